"""Training objectives: functions of (model, batch) to [b], which training maximises."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.data.images import Episode, LabelledBatch
from fillin.data.sequences import PADDING, SequenceBatch
from fillin.data.task import SheetBatch, TableBatch, Task
from fillin.errors import InputError
from fillin.heads import Autoregressive, ObservedMixture, joint_log_prob
from fillin.models.base import LatentProcess, Process, check_values, per_entry
from fillin.models.cached import BufferedTNP
from fillin.models.classifier import PixelClassifier
from fillin.models.few_shot import InContextClassifier
from fillin.models.npt import NPT
from fillin.models.seq2seq import Seq2Seq
from fillin.models.sheet import Sheet

_MAX_COST = 100.0  # nats that one target may cost


def _count_targets(task: Task) -> Float[Tensor, "b"]:
    """Return the number of targets of each task; one with half of its outputs missing counts half."""
    if task.mask_t is None:
        return task.yt.new_full((len(task.yt),), task.yt.shape[1])
    per_point = task.mask_t.ndim == 2
    return (task.mask_t.sum(1) if per_point else task.mask_t.float().mean(-1).sum(1)).to(task.yt.dtype)


def log_likelihood(model: Process, task: Task) -> Float[Tensor, "b"]:
    """ln p(yt | context) per valid target: marginal, joint or autoregressive, depending on the model."""
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    keep = None if task.mask_t is None else per_entry(task.mask_t, task.yt)
    total = joint_log_prob(model(*task.inputs), task.yt, keep)
    return total / _count_targets(task).clamp_min(1)


def observed_and_clean(model: Process, task: Task) -> Float[Tensor, "b"]:
    """ln p(yt | context) + ln p(ft | context) per valid target, f the latent function.

    For models with the head "observed", on data with noise-free values. A target costs at most 100 nats, since a jump
    after a flat context would outweigh everything else.
    """
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    keep = None if task.mask_t is None else per_entry(task.mask_t, task.yt)
    predicted = model(*task.inputs)
    given = predicted.given(task.yt) if isinstance(predicted, Autoregressive) else predicted
    if task.noise_free_t is None or not isinstance(given, ObservedMixture):
        raise InputError("observed-and-clean needs a model with head='observed' and noise-free data (data.name=broad)")
    total = task.yt.new_zeros(len(task.yt))
    for distribution, value in ((given, task.yt), (given.noise_free, task.noise_free_t)):
        log_prob = distribution.log_prob(value if keep is None else torch.where(keep, value, 0)).clamp_min(-_MAX_COST)
        total = total + (log_prob if keep is None else torch.where(keep, log_prob, 0)).sum((1, 2))
    return total / _count_targets(task).clamp_min(1)


def queried_cells(model: Sheet, sheet: SheetBatch) -> Float[Tensor, "b"]:
    """ln p(y | observed cells) + ln p(f | observed cells) per queried cell, f the latent function. A cell costs at most
    100 nats."""
    predicted = model.fill(sheet)
    total = predicted.log_prob(torch.where(sheet.queried, sheet.values, 0)).clamp_min(-_MAX_COST)
    if sheet.noise_free is not None:
        latent = predicted.noise_free.log_prob(torch.where(sheet.queried, sheet.noise_free, 0))
        total = total + latent.clamp_min(-_MAX_COST)
    return torch.where(sheet.queried, total, 0).sum((1, 2)) / sheet.queried.sum((1, 2)).clamp_min(1)


def masked_reconstruction(model: NPT, cells: TableBatch, features: float = 0.3) -> Float[Tensor, "b"]:
    """(1 − λ) ln p(targets) + λ ln p(features), each per queried cell, λ = `features` (Kossen et al. 2021). Where no
    target is queried λ is 1, where no feature is queried 0."""
    log_prob = model.fill(cells).log_prob(cells.values).clamp_min(-_MAX_COST)
    log_prob, queried = torch.where(cells.queried, log_prob, 0), cells.queried.to(log_prob.dtype)
    first = log_prob.shape[2] - cells.targets
    sums = [(part[:, :, first:].sum((1, 2)), part[:, :, :first].sum((1, 2))) for part in (log_prob, queried)]
    (target, feature), (n_targets, n_features) = sums
    weight = torch.where(n_features == 0, 0, torch.where(n_targets == 0, 1, features))
    return (1 - weight) * target / n_targets.clamp_min(1) + weight * feature / n_features.clamp_min(1)


def _smoothed_log_prob(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    log_prob = logits.log_softmax(-1)
    return (1 - smoothing) * log_prob.gather(-1, labels[..., None])[..., 0] + smoothing * log_prob.mean(-1)


def classification(
    model: PixelClassifier, batch: LabelledBatch, smoothing: float = 0.0, span_penalty: float = 0.0
) -> Float[Tensor, "b"]:
    """(1 − s) ln p(label) + s · mean over classes of ln p, minus a penalty on the width of windows (`openness`)."""
    model.check_labels(batch.labels)
    smoothed = _smoothed_log_prob(model(batch.images), batch.labels, smoothing)
    return smoothed - span_penalty * model.openness(*batch.images.shape[1:3]) if span_penalty else smoothed


def by_example(model: InContextClassifier, episode: Episode, smoothing: float = 0.0) -> Float[Tensor, "b"]:
    """(1 − s) ln p(label | support set) + s · mean over classes of ln p, per query image."""
    return _smoothed_log_prob(model(*episode.inputs), episode.query_labels, smoothing).mean(1)


def teacher_forcing(model: Seq2Seq, batch: SequenceBatch) -> Float[Tensor, "b"]:
    """Mean over the tokens of a target, its end included, of ln p(y_i | y_1 … y_{i−1}, source): the decoder reads the
    true tokens before each (Vaswani et al. 2017; Sivaraya 2023, section 1.7)."""
    log_prob = model(batch.source, batch.decoder_input).log_softmax(-1)
    log_prob, valid = log_prob.gather(-1, batch.target[..., None])[..., 0], batch.target != PADDING
    return torch.where(valid, log_prob, 0).sum(1) / valid.sum(1).clamp_min(1)


def autoregressive(model: Process, task: Task) -> Float[Tensor, "b"]:
    """Σ_i ln p(y_i | context, y_1 … y_{i−1}) per valid target, for any model: each target joins the context in turn. It
    takes one forward pass per target: for evaluation. The log-likelihood of *-a models is the same in one pass."""
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    total = task.yt.new_zeros(len(task.yt))
    xc, yc, observed = task.xc, task.yc, per_entry(task.mask_c, task.yc)
    valid = per_entry(task.mask_t, task.yt)
    for i in range(task.yt.shape[1]):
        x, y, mask = task.xt[:, i : i + 1], task.yt[:, i : i + 1], valid[:, i : i + 1]
        total = total + joint_log_prob(model(xc, yc, x, observed, mask), y, mask)
        xc, yc, observed = torch.cat([xc, x], 1), torch.cat([yc, y], 1), torch.cat([observed, mask], 1)
    return total / _count_targets(task).clamp_min(1)


def random_prefixes(model: Process, task: Task) -> Float[Tensor, "b"]:
    """ln p(y_i | context, y_1 … y_r) per valid target, for models with a buffer, from torch's random state.

    Half of the targets see the context alone (r = 0), so that marginal predictions are trained; for the others r is
    uniform in 0 … min(i − 1, buffer). One pass, in which the buffer holds the first targets of the task. Targets should
    come in random order, as all training data do.
    """
    if not isinstance(model, BufferedTNP):
        raise InputError(
            f"{type(model).__name__} has no buffer of targets, which random-prefixes needs; train it with "
            "log-likelihood, or train tnp-buffer"
        )
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    shape, device = task.yt.shape[:2], task.yt.device
    longest = torch.arange(shape[1], device=device).clamp_max(model.buffer)
    lengths = (torch.rand(shape, device=device) * (longest + 1)).long()
    lengths = torch.where(torch.rand(shape, device=device) < 0.5, 0, lengths)
    predicted = model.after_prefixes(task.xc, task.yc, task.xt, task.yt, lengths, task.mask_c, task.mask_t)
    keep = None if task.mask_t is None else per_entry(task.mask_t, task.yt)
    return joint_log_prob(predicted, task.yt, keep) / _count_targets(task).clamp_min(1)


def elbo(model: Process, task: Task, samples: int = 1, weighted: bool = False) -> Float[Tensor, "b"]:
    """(E_q[ln p(yt | z)] − KL(q(z | context, targets) ‖ q(z | context))) per valid target, q reparameterised."""
    if not isinstance(model, LatentProcess):
        kind = type(model).__name__
        raise InputError(f"{kind} has no latent variable, which a bound needs; train it with log_likelihood")
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    bound = model.bound(task.xc, task.yc, task.xt, task.yt, task.mask_c, task.mask_t, samples, weighted)
    return bound / _count_targets(task).clamp_min(1)


def importance_weighted(model: Process, task: Task, samples: int = 8) -> Float[Tensor, "b"]:
    """ln (1/K) Σ_k p(yt | z_k) q(z_k | context)/q(z_k | context, targets) per valid target: tighter as K grows."""
    return elbo(model, task, samples, weighted=True)


@dataclass(frozen=True)
class Objective:
    """Objective of a recipe: the function that training maximises, the type of its batches, and its options.
    `validation` is the score on held-out data where it differs; `options` are those of the recipe, with defaults."""

    maximised: Callable[..., Tensor]
    batch: type = Task
    validation: Callable[..., Tensor] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def score(self, model: Any, batch: Any) -> Float[Tensor, "b"]:
        """Score a model on held-out data."""
        return (self.validation or self.maximised)(model, batch)


OBJECTIVES = {
    "log-likelihood": Objective(log_likelihood),
    "random-prefixes": Objective(random_prefixes, validation=log_likelihood),
    "elbo": Objective(elbo, validation=log_likelihood, options={"samples": 4}),
    "importance-weighted": Objective(importance_weighted, validation=log_likelihood, options={"samples": 4}),
    "observed-and-clean": Objective(observed_and_clean),
    "masked-reconstruction": Objective(masked_reconstruction, TableBatch),
    "queried-cells": Objective(queried_cells, SheetBatch),
    "classification": Objective(classification, LabelledBatch, options={"smoothing": 0.0, "span_penalty": 0.0}),
    "teacher-forcing": Objective(teacher_forcing, SequenceBatch),
    "by-example": Objective(by_example, Episode, options={"smoothing": 0.0}),
}
