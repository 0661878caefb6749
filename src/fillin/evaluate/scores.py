"""Scores of one model on one stream of tasks, and the interface of evaluations."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import OneHotCategorical

from fillin import metrics, objectives
from fillin.data import Curves, bayes_limit, oracle_limit
from fillin.data.images import Images
from fillin.errors import InputError
from fillin.heads import LatentMixture, joint_log_prob, marginal_of, to_predictive
from fillin.models import Process
from fillin.models.base import per_entry
from fillin.predictive import GaussianMixture
from fillin.train import Run, open_run

# Added to the seed: training uses seeds from 0, validation from 2³¹. The sum stays below 2³², because numpy cuts seeds
# into words of 32 bits, and the words of a longer seed equal those of another (seed, step).
TEST_SEED = 3 * 2**30
_Stream = TypeVar("_Stream", bound=Curves | Images)
_MAX_LIMIT_CHANGE = 0.02  # nats: a limit that changes by more when its settings are doubled has not converged
_CHECK_LIMIT_EVERY = 4  # batches


@dataclass(frozen=True)
class Likelihood:
    """Mean over tasks of ln p(yt | context) per target, beside the Bayes limit on the same tasks.

    `limit` is that of exact inference given the prior of the hyperparameters, `known` given the hyperparameters
    themselves; gap = limit − log_likelihood, with the standard error of its mean over tasks. None: there is no closed
    form, or it was not requested.
    """

    log_likelihood: float
    standard_error: float
    limit: float | None
    known: float | None
    gap: float | None
    gap_error: float | None
    tasks: int

    @property
    def likelihood_cells(self) -> tuple[str, ...]:
        value, gap = format_score(self.log_likelihood, self.standard_error), format_score(self.gap, self.gap_error)
        return value, format_score(self.limit), gap, format_score(self.known)


@dataclass(frozen=True)
class Scores(Likelihood):
    """Scores of the marginal predictive distributions.

    `joint` is the joint likelihood of all targets, if the model has one. RMSE and CRPS are means over tasks, like the
    likelihood. `coverage` (of central intervals, by percent), `pit` (ten bins) and `ks` are over targets; they and CRPS
    are None if y is a class.
    """

    joint: Likelihood | None
    rmse: float
    crps: float | None
    coverage: dict[str, float] | None
    pit: list[float] | None
    ks: float | None
    targets: int

    @property
    def marginal_cells(self) -> tuple[str, ...]:
        coverage = (format_percent((self.coverage or {}).get(level)) for level in ("50", "80", "95"))
        return format_score(self.rmse), format_score(self.crps), *coverage, format_score(self.ks)


@torch.no_grad()
def evaluate(
    model: Process,
    stream: Curves | Images,
    batches: int = 40,
    seed: int = 0,
    *,
    limit_samples: int = 256,
    autoregressive: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> Scores:
    """Score a model on `batches` batches of a stream. `seed` selects the tasks, not the seed of the stream.

    The limit averages over `limit_samples` settings of the hyperparameters and takes most of the time; 0 omits it
    (images have none). The joint likelihood of a marginal model is that of each target given the previous ones,
    computed on the first `autoregressive` batches with one pass per target. `tick` is called after each batch.
    """
    check_dimensions(model, stream)
    if batches < 1 or limit_samples < 0 or limit_samples == 1 or autoregressive < 0:
        raise InputError(
            "evaluate: batches must be at least 1, limit_samples and autoregressive at least 0, got "
            f"{batches}, {limit_samples} and {autoregressive}"
        )
    if limit_samples and not isinstance(stream, Curves):
        raise InputError("evaluate: the limit of images is unknown; pass limit_samples=0")
    if autoregressive and model.kind != "marginal":
        raise InputError(f"evaluate: a model of kind {model.kind} has a joint likelihood; drop autoregressive")
    stream = to_test_stream(stream, seed)
    training, scores = model.training, []
    model.eval()
    try:
        for step in range(batches):
            scores.append(_score_batch(model, stream, step, limit_samples, step < autoregressive))
            tick()
    finally:
        model.train(training)
    marginal = _summarise_likelihood(scores, "marginal")
    assert marginal is not None

    def average(name: str) -> float:
        return metrics.average(torch.stack([batch[name] for batch in scores]))[0]

    numeric = "pit" in scores[0]
    u = torch.cat([batch["pit"] for batch in scores]).numpy() if numeric else np.empty(0)
    return Scores(
        **asdict(marginal),
        joint=_summarise_likelihood(scores, "joint"),
        rmse=average("squared error") ** 0.5,
        crps=average("crps") if numeric else None,
        coverage=metrics.coverage(u) if numeric else None,
        pit=metrics.pit_histogram(u) if numeric else None,
        ks=metrics.kolmogorov_smirnov(u) if numeric else None,
        targets=sum(int(batch["targets"]) for batch in scores),
    )


def to_test_stream(stream: _Stream, seed: int) -> _Stream:
    """Return the same distribution over tasks with a seed that neither training nor validation uses."""
    if not 0 <= seed < 2**30:
        raise InputError(f"evaluate: seed must be between 0 and 2³⁰, got {seed}")
    return replace(stream, seed=seed + TEST_SEED)


def check_dimensions(model: Process, stream: Curves | Images) -> None:
    """Raise an error unless the model accepts the tasks of the stream."""
    if model.dim_x not in (None, stream.dim_x) or model.dim_y != stream.dim_y:
        raise InputError(
            f"evaluate: the model has dim_x={model.dim_x} and dim_y={model.dim_y}, the data dim_x={stream.dim_x} and "
            f"dim_y={stream.dim_y}; choose another function, or a model with these dimensions"
        )


def _score_batch(
    model: Process, stream: Curves | Images, step: int, limit_samples: int, autoregressive: bool
) -> dict[str, Tensor]:
    """Score the tasks of one batch, [b] each; keys of limits are "limit marginal", "known joint" and so on."""
    task = stream.task(step).to(next(model.parameters()).device)
    keep = per_entry(task.mask_t, task.yt)
    y = torch.where(keep, task.yt, 0)
    prediction = model(*task.inputs)
    marginals = to_predictive(prediction)
    count, entries = keep.double().mean(-1).sum(1).clamp_min(1), keep.double().sum((1, 2)).clamp_min(1)

    def sum_over_targets(values: Float[Tensor, "b nt dy"]) -> Float[Tensor, "b"]:
        return torch.where(keep, values.to(y.device), 0).sum((1, 2))

    scores = {"squared error": sum_over_targets((prediction.mean - y).double().square()) / entries}
    if isinstance(marginals, GaussianMixture):
        values = y.double().cpu().numpy()
        scores["marginal"] = sum_over_targets(torch.from_numpy(marginals.log_prob(values))) / count
        scores["crps"] = sum_over_targets(torch.from_numpy(metrics.crps(marginals, values))) / entries
        scores["pit"] = torch.from_numpy(metrics.pit(marginals, values))[keep.cpu()]
    else:
        classes = marginal_of(prediction)
        if isinstance(prediction, LatentMixture):
            classes = OneHotCategorical(probs=prediction.given.probs.mean(0), validate_args=False)  # type: ignore[attr-defined]
        scores["marginal"] = joint_log_prob(classes, y, keep) / count
    if not scores["marginal"].isfinite().all():
        raise InputError(f"evaluate: batch {step}: the likelihood is not finite; the model diverged, use older weights")
    if model.kind != "marginal":
        scores["joint"] = joint_log_prob(prediction, task.yt, keep) / count
    elif autoregressive:
        scores["joint"] = objectives.autoregressive(model, task)
    if limit_samples and isinstance(stream, Curves):
        limits = {"limit": bayes_limit(stream, step, limit_samples), "known": oracle_limit(stream, step)}
        if step % _CHECK_LIMIT_EVERY == 0:
            limits["coarse"] = bayes_limit(stream, step, limit_samples // 2)
        for name, limit in limits.items():
            scores |= {} if limit is None else {f"{name} {kind}": value for kind, value in limit._asdict().items()}
    return {name: value.double().cpu() for name, value in scores.items()} | {"targets": keep.any(-1).sum()}


def _summarise_likelihood(batches: Sequence[dict[str, Tensor]], kind: str) -> Likelihood | None:
    """Average the likelihoods and limits of one kind, "marginal" or "joint", without limits that have not converged."""
    batches = [batch for batch in batches if kind in batch]
    if not batches:
        return None
    values = torch.stack([batch[kind] for batch in batches])
    limits = {
        name: torch.stack([batch[f"{name} {kind}"] for batch in batches])
        for name in ("limit", "known")
        if f"{name} {kind}" in batches[0]
    }
    # hardly any setting falls into a narrow posterior, as that of a period; a model could seem to beat such a limit
    changes = [b[f"limit {kind}"] - b[f"coarse {kind}"] for b in batches if f"coarse {kind}" in b]
    if changes and abs(float(torch.stack(changes).mean())) > _MAX_LIMIT_CHANGE:
        del limits["limit"]
    gap, gap_error = metrics.average(limits["limit"] - values) if "limit" in limits else (None, None)
    limit, oracle = (metrics.average(limits[name])[0] if name in limits else None for name in ("limit", "known"))
    return Likelihood(*metrics.average(values), limit, oracle, gap, gap_error, tasks=values.numel())


class ResultTable(NamedTuple):
    """A table to print. Its first column names the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


class Evaluation(ABC):
    """A model and the tasks that it is scored on. Each kind of data has a subclass."""

    model: Any
    stream: Any

    def describe(self) -> dict[str, Any]:
        """Describe the `data`, by default the source of the images, and the `budget`, for JSON."""
        return {"data": {"source": self.stream.source}, "budget": {}}

    @abstractmethod
    def score(self, show_progress: bool = False) -> Any:
        """Return a dataclass of scores, or a list of them."""

    @abstractmethod
    def draw(self, folder: Path, scores: Any) -> list[Path]:
        """Save the figures into a folder and return their paths."""

    @abstractmethod
    def tables(self, name: str, scores: Any) -> list[ResultTable]:
        """Arrange the scores of the model `name` for printing."""


def find_run(path: Path) -> Run | None:
    """Return the run in a folder, or None if it holds no run. A run without weights is an error."""
    if not (path / "recipe.yaml").exists():
        return None
    run = open_run(path)
    if not (path / "best").exists():
        raise InputError(f"{path} has no weights yet; continue its training: fillin train --resume {path}")
    return run


def format_score(value: float | None, standard_error: float | None = None) -> str:
    """Format with three decimals, and with the standard error if there is one; a dash for None."""
    error = "" if standard_error is None else f" ± {standard_error:.3f}"
    return "–" if value is None else f"{value:.3f}{error}"


def format_percent(share: float | None, decimals: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{decimals}f}"
