"""How well anyone could do: the likelihood of exact inference, which no model can beat on average."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from fillin.data.curves import Curves
from fillin.data.functions import Hypotheses


class Limit(NamedTuple):
    """ln p(yt | context) per target, of each task: every target on its own, and all of them together."""

    marginal: Float[Tensor, "b"]
    joint: Float[Tensor, "b"]


def oracle_limit(stream: Curves, step: int) -> Limit | None:
    """Of batch `step`, for one who is told the hyperparameters. None where there is no closed form."""
    task, unknowns = stream.draw(step)
    return _average(stream.function.given(unknowns, task))


def bayes_limit(stream: Curves, step: int, settings: int = 512) -> Limit | None:
    """Of batch `step`, for one who knows only the prior of the hyperparameters: the best that a model can do.

        p(yt | yc) = Σ_s w_s p(yt | yc, θ_s),    w_s ∝ p(yc | θ_s)

    with θ_s where the posterior has its mass (`fillin.data.quadrature`). None where there is no closed form.
    """
    return _average(stream.function.settings(stream.task(step), settings))


def _average(found: Hypotheses | None) -> Limit | None:
    if found is None:
        return None
    weights = found.evidence.log_softmax(0)
    targets = max(1, found.marginal.shape[-1])
    marginal = (weights[..., None] + found.marginal).logsumexp(0).mean(-1)
    return Limit(marginal, (weights + found.joint).logsumexp(0) / targets)
