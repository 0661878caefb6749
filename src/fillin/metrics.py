"""Pure functions of a prediction and what came: density, CRPS, PIT and what follows from it, means with errors."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal, OneHotCategorical

from fillin.heads import LatentMixture

LEVELS = tuple(range(5, 100, 5))  # of central bands, in percent
BINS = 10


class Components(NamedTuple):
    """Σ_k share_k Normal(mean_k, deviation_k): what a prediction says of each target entry on its own, in float64."""

    share: Float[Tensor, "*b k"]
    mean: Float[Tensor, "*b k"]
    deviation: Float[Tensor, "*b k"]


def components(prediction: Distribution) -> Components | None:
    """The marginals of any prediction, [b nt dy k]; None where y is a class."""
    each = getattr(prediction, "marginals", prediction)
    if isinstance(each, OneHotCategorical):
        return None
    if isinstance(each, LatentMixture):
        given = components(each.given)  # [K b nt dy k]
        if given is None:
            return None
        given = given._replace(share=given.share / len(given.share))
        return Components(*(part.movedim(0, -2).flatten(-2) for part in given))
    if isinstance(each, MixtureSameFamily):
        chosen, parts = each.mixture_distribution, each.component_distribution
        assert isinstance(chosen, Categorical)
        share = chosen.probs.double()  # of a float32 softmax: they miss 1 by a little, and PIT values would too
        return Components(share / share.sum(-1, keepdim=True), parts.mean.double(), parts.stddev.double())
    mean, deviation = each.mean.double()[..., None], each.stddev.double()[..., None]
    return Components(torch.ones_like(mean), mean, deviation)


def log_density(parts: Components, y: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """ln Σ_k share_k Normal(y; mean_k, deviation_k)."""
    normal = Normal(parts.mean, parts.deviation, validate_args=False)
    return (parts.share.log() + normal.log_prob(y[..., None].double())).logsumexp(-1)


def pit(parts: Components, y: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """P(Y ≤ y), the probability integral transform: uniform where predictions are calibrated."""
    below = torch.special.ndtr((y[..., None].double() - parts.mean) / parts.deviation)
    return (parts.share * below).sum(-1).clamp(0, 1)


def crps(parts: Components, y: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """∫ (P(Y ≤ z) − [y ≤ z])² dz in closed form: in units of y, |y − mean| for one who is certain."""
    import scoringrules  # slow to come, with scipy

    seen, (share, mean, deviation) = y.double().cpu().numpy(), (part.cpu().numpy() for part in parts)
    if share.shape[-1] == 1:
        return torch.as_tensor(scoringrules.crps_normal(seen, mean[..., 0], deviation[..., 0]))
    # task by task: a mixture is compared with itself, pair by pair of its components
    rows = zip(seen, mean, deviation, share, strict=True)
    return torch.stack([torch.as_tensor(scoringrules.crps_mixnorm(*row)) for row in rows])


def coverage(u: Float[Tensor, "n"]) -> dict[str, float]:
    """The share of values inside each central band, by its level in percent: {"50": 0.49, …}, from their PIT."""
    off = (2 * u - 1).abs()
    return {str(level): float((off <= level / 100).double().mean()) for level in LEVELS}


def histogram(u: Float[Tensor, "n"]) -> list[float]:
    """The share of PIT values in each of ten bins; 0.1 everywhere where they are uniform."""
    return (torch.histc(u, BINS, 0, 1) / len(u)).tolist()


def kolmogorov_smirnov(u: Float[Tensor, "n"]) -> float:
    """max_z |share of values ≤ z − z|: 0 where they are uniform."""
    u, n = u.sort().values, len(u)
    ranks = torch.arange(n + 1, dtype=u.dtype, device=u.device) / n
    return float(torch.maximum(ranks[1:] - u, u - ranks[:-1]).max())


def average(values: Float[Tensor, "s b"]) -> tuple[float, float]:
    """The mean over tasks, and its standard error.

    Tasks of a batch have the same number of points, so they are alike: a batch counts as one draw, √(Var_s/s). A single
    batch is taken for b draws.
    """
    draws = values.mean(1) if len(values) > 1 else values[0]
    error = float(draws.std()) / math.sqrt(len(draws)) if len(draws) > 1 else 0.0
    return float(values.mean()), error
