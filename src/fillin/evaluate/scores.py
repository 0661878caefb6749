"""One model on one stream of tasks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.distributions import Distribution, OneHotCategorical

from fillin import metrics, objectives
from fillin.data import Curves, Limit, Task, bayes_limit, oracle_limit
from fillin.data.images import Images
from fillin.errors import InputError
from fillin.heads import Keep, LatentMixture, joint_log_prob, to_predictive
from fillin.models import Process
from fillin.models.points import per_entry
from fillin.predictive import GaussianMixture

# Added to the seed: training uses seeds from 0 and validation from 2³¹. Below 2³² in all, since numpy cuts seeds into
# words of 32 bits, and what is longer meets the words of another (seed, step).
UNSEEN = 3 * 2**30
_Stream = TypeVar("_Stream", bound=Curves | Images)
_MOVED = 0.02  # nats: a limit that moves by more when its settings are doubled is none yet
_PROBE = 4  # every so many batches it is asked whether it does


@dataclass(frozen=True)
class Likelihood:
    """ln p(yt | context) per target, mean over tasks, beside the most that is possible on the same tasks.

    `limit` is of one who knows the prior of the hyperparameters, `known` of one who is told them; gap = limit −
    log_likelihood, with the standard error of its mean over tasks. None: no closed form, or not asked for.
    """

    log_likelihood: float
    standard_error: float
    limit: float | None
    known: float | None
    gap: float | None
    gap_error: float | None
    tasks: int


@dataclass(frozen=True)
class Scores(Likelihood):
    """The likelihood of each target on its own, and what else is said of each on its own.

    `joint` is the likelihood of all targets together, where the model has one. RMSE and CRPS are means over tasks, like
    the likelihood; `coverage` (of central bands, by percent), `pit` (ten bins) and `ks` are over targets. None: y is a
    class.
    """

    joint: Likelihood | None
    rmse: float
    crps: float | None
    coverage: dict[str, float] | None
    pit: list[float] | None
    ks: float | None
    targets: int


class _Batch(NamedTuple):
    marginal: Float[Tensor, "b"]
    joint: Float[Tensor, "b"] | None
    squared: Float[Tensor, "b"]
    crps: Float[Tensor, "b"] | None
    pit: Float[ndarray, "n"] | None
    limit: Limit | None
    coarse: Limit | None  # the limit at half of the settings
    known: Limit | None
    targets: int


@torch.no_grad()
def evaluate(
    model: Process,
    stream: Curves | Images,
    batches: int = 40,
    seed: int = 0,
    *,
    settings: int = 256,
    autoregressive: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> Scores:
    """The scores of a model on `batches` batches of a stream; which tasks is up to `seed`, not to the stream's.

    The limit averages over so many `settings` of the hyperparameters; it takes most of the time, and 0 leaves it out
    (of images nobody knows it). A
    marginal model has no joint likelihood but that of each target given those before: on the first `autoregressive`
    batches, one pass a target. `tick` is called after each batch.
    """
    fits(model, stream)
    if batches < 1 or settings < 0 or settings == 1 or autoregressive < 0:
        raise InputError(
            f"evaluate: batches must be at least 1, settings and autoregressive at least 0, got {batches}, {settings} "
            f"and {autoregressive}"
        )
    if settings and not isinstance(stream, Curves):
        raise InputError("evaluate: nobody knows the limit of images; say settings=0")
    if autoregressive and model.kind != "marginal":
        raise InputError(f"evaluate: the model is {model.kind}, its own likelihood is joint; drop autoregressive")
    stream = unseen(stream, seed)
    training = model.training
    model.eval()
    try:
        found = []
        for step in range(batches):
            found.append(_batch(model, stream, step, settings, step < autoregressive))
            tick()
    finally:
        model.train(training)
    return _summary(found)


def unseen(stream: _Stream, seed: int) -> _Stream:
    """The same distribution over tasks, and none of those of training or validation."""
    if not 0 <= seed < 2**30:
        raise InputError(f"evaluate: seed must be between 0 and 2³⁰, got {seed}")
    return replace(stream, seed=seed + UNSEEN)


def fits(model: Process, stream: Curves | Images) -> None:
    """An error unless the model takes what the stream gives."""
    if model.dim_x not in (None, stream.dim_x) or model.dim_y != stream.dim_y:
        raise InputError(
            f"evaluate: the model has dim_x={model.dim_x} and dim_y={model.dim_y}, the data dim_x={stream.dim_x} and "
            f"dim_y={stream.dim_y}; choose another function, or a model that was made for it"
        )


def _batch(model: Process, stream: Curves | Images, step: int, settings: int, stepwise: bool) -> _Batch:
    task = stream.task(step).to(next(model.parameters()).device)
    keep = per_entry(task.mask_t, task.yt)
    y = torch.where(keep, task.yt, 0)
    prediction = model(*task.inputs)
    marginals = to_predictive(prediction)
    count, entries = keep.double().mean(-1).sum(1).clamp_min(1), keep.double().sum((1, 2)).clamp_min(1)

    def per_entry_mean(values: Float[Tensor, "b nt dy"]) -> Float[Tensor, "b"]:
        return torch.where(keep, values, 0).sum((1, 2)) / entries

    crps = pit = None
    if isinstance(marginals, GaussianMixture):
        values = y.double().cpu().numpy()
        log_prob = torch.from_numpy(marginals.log_prob(values)).to(y.device)
        marginal = torch.where(keep, log_prob, 0).sum((1, 2)) / count
        crps = per_entry_mean(torch.from_numpy(metrics.crps(marginals, values)).to(y.device)).cpu()
        pit = metrics.pit(marginals, values)[keep.cpu().numpy()]
    else:
        marginal = joint_log_prob(_classes(prediction), y, keep) / count
    if not marginal.isfinite().all():
        raise InputError(f"evaluate: batch {step}: the likelihood is no number; the model diverged, take older weights")
    curves = stream if settings and isinstance(stream, Curves) else None
    return _Batch(
        marginal=marginal.double().cpu(),
        joint=_joint(model, task, prediction, keep, count, stepwise),
        squared=per_entry_mean((prediction.mean - y).double().square()).cpu(),
        crps=crps,
        pit=pit,
        limit=None if curves is None else bayes_limit(curves, step, settings),
        coarse=bayes_limit(curves, step, settings // 2) if curves is not None and step % _PROBE == 0 else None,
        known=None if curves is None else oracle_limit(curves, step),
        targets=int(keep.any(-1).sum()),
    )


def _classes(prediction: Distribution) -> Distribution:
    """p(class) of each target."""
    if isinstance(prediction, LatentMixture):
        return OneHotCategorical(probs=prediction.given.probs.mean(0), validate_args=False)  # type: ignore[attr-defined]
    return getattr(prediction, "marginals", prediction)


def _joint(
    model: Process, task: Task, prediction: Distribution, keep: Keep, count: Float[Tensor, "b"], stepwise: bool
) -> Float[Tensor, "b"] | None:
    if model.kind != "marginal":
        return (joint_log_prob(prediction, task.yt, keep) / count).double().cpu()
    return objectives.autoregressive(model, task).double().cpu() if stepwise else None


def _summary(found: Sequence[_Batch]) -> Scores:
    own = _likelihood(found, "marginal")
    assert own is not None
    u = None if found[0].pit is None else np.concatenate([one.pit for one in found if one.pit is not None])
    crps = None if u is None else metrics.average(torch.stack([one.crps for one in found if one.crps is not None]))[0]
    squared, _ = metrics.average(torch.stack([one.squared for one in found]))
    return Scores(
        **asdict(own),
        joint=_likelihood(found, "joint"),
        rmse=squared**0.5,
        crps=crps,
        coverage=None if u is None else metrics.coverage(u),
        pit=None if u is None else metrics.pit_histogram(u),
        ks=None if u is None else metrics.kolmogorov_smirnov(u),
        targets=sum(one.targets for one in found),
    )


def _likelihood(found: Sequence[_Batch], kind: str) -> Likelihood | None:
    """`kind` is "marginal" or "joint", of model and limits alike."""
    found = [one for one in found if getattr(one, kind) is not None]
    if not found:
        return None
    values = torch.stack([getattr(one, kind) for one in found])
    limit, told = (
        None if getattr(found[0], name) is None else torch.stack([getattr(getattr(one, name), kind) for one in found])
        for name in ("limit", "known")
    )
    if limit is not None and _moves(found, kind):
        limit = None
    gap, gap_error = (None, None) if limit is None else metrics.average(limit - values)
    return Likelihood(
        *metrics.average(values),
        limit=None if limit is None else metrics.average(limit)[0],
        known=None if told is None else metrics.average(told)[0],
        gap=gap,
        gap_error=gap_error,
        tasks=values.numel(),
    )


def _moves(found: Sequence[_Batch], kind: str) -> bool:
    """Whether the limit is still far from its end. It is where a posterior is so narrow that hardly a setting falls
    into it, as that of a period; a model could then seem to beat it."""
    pairs = [(one.limit, one.coarse) for one in found if one.limit is not None and one.coarse is not None]
    moved = [getattr(limit, kind) - getattr(coarse, kind) for limit, coarse in pairs]
    return bool(moved) and abs(float(torch.stack(moved).mean())) > _MOVED
