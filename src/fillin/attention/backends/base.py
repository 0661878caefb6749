"""The interface of a back end."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from fillin.attention.problem import AttentionProblem, AttentionResult


class Backend(ABC):
    """One way to compute attention. All back ends agree with the reference in values and gradients.

    `provides` names the results beyond the output that this back end can return: "lse", "weights".
    """

    provides: frozenset[str] = frozenset({"lse"})

    def unfit(self, problem: AttentionProblem) -> str | None:
        """Return the reason why this back end cannot solve the problem, or None where it can."""
        return None

    @abstractmethod
    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        """Solve the problem. `want` names the results beyond the output; it is a subset of `provides`."""
