"""Log-likelihood of exact inference, which no model exceeds on average."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from fillin.data.curves import Curves
from fillin.data.functions import Hypotheses


class Limit(NamedTuple):
    """ln p(yt | context) per target of each task: of every target alone, and of all targets jointly."""

    marginal: Float[Tensor, "b"]
    joint: Float[Tensor, "b"]


def oracle_limit(stream: Curves, step: int) -> Limit | None:
    """Return the limit on batch `step` for known hyperparameters. None without a closed form."""
    task, parameters = stream.draw(step)
    return _average(stream.function.true_hypothesis(parameters, task))


def bayes_limit(stream: Curves, step: int, settings: int = 512) -> Limit | None:
    """Return the limit on batch `step` where only the prior of the hyperparameters is known: the best a model can do.

        p(yt | yc) = Σ_s w_s p(yt | yc, θ_s),    w_s ∝ p(yc | θ_s)

    with θ_s where the posterior has its mass (`fillin.data.quadrature`). None without a closed form.
    """
    return _average(stream.function.hypotheses(stream.task(step), settings))


def _average(hypotheses: Hypotheses | None) -> Limit | None:
    if hypotheses is None:
        return None
    weights = hypotheses.evidence.log_softmax(0)
    targets = max(1, hypotheses.marginal.shape[-1])
    marginal = (weights[..., None] + hypotheses.marginal).logsumexp(0).mean(-1)
    return Limit(marginal, (weights + hypotheses.joint).logsumexp(0) / targets)
