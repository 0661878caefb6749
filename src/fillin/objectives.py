"""Training objectives, to be maximised: each objective maps (model, batch) to a number for each of the batch, [b]."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.data.images import Episode, LabelledBatch
from fillin.data.task import TableBatch, Task
from fillin.errors import InputError
from fillin.heads import Autoregressive, ObservedMixture, joint_log_prob
from fillin.models.base import LatentProcess, Process
from fillin.models.classifier import PixelClassifier
from fillin.models.few_shot import InContextClassifier
from fillin.models.npt import NPT
from fillin.models.points import check_values, per_entry

_DEAREST = 100.0  # nats that one target may cost


def _entries(task: Task) -> Float[Tensor, "b"]:
    """How many targets each task has; a target of which half the outputs are missing counts half."""
    if task.mask_t is None:
        return task.yt.new_full((len(task.yt),), task.yt.shape[1])
    per_point = task.mask_t.ndim == 2
    return (task.mask_t.sum(1) if per_point else task.mask_t.float().mean(-1).sum(1)).to(task.yt.dtype)


def log_likelihood(model: Process, task: Task) -> Float[Tensor, "b"]:
    """ln p(yt | context) per valid target: marginal, joint or autoregressive as the model is."""
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    keep = None if task.mask_t is None else per_entry(task.mask_t, task.yt)
    total = joint_log_prob(model(*task.inputs), task.yt, keep)
    return total / _entries(task).clamp_min(1)


def observed_and_clean(model: Process, task: Task) -> Float[Tensor, "b"]:
    """ln p(yt | context) + ln p(ft | context) per valid target, f the function without noise: for models whose head is
    "observed", on data that knows both. Each costs at most 100 nats: a jump that nothing announced, in deviations of a
    flat context, would outweigh all others."""
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    keep = None if task.mask_t is None else per_entry(task.mask_t, task.yt)
    predicted = model(*task.inputs)
    given = predicted.given(task.yt) if isinstance(predicted, Autoregressive) else predicted
    if task.noise_free_t is None or not isinstance(given, ObservedMixture):
        raise InputError("observed-and-clean needs a model with head='observed', and data that knows its noise: broad")
    total = task.yt.new_zeros(len(task.yt))
    for found, value in ((given, task.yt), (given.clean, task.noise_free_t)):
        each = found.log_prob(value if keep is None else torch.where(keep, value, 0)).clamp_min(-_DEAREST)
        total = total + (each if keep is None else torch.where(keep, each, 0)).sum((1, 2))
    return total / _entries(task).clamp_min(1)


def masked_reconstruction(model: NPT, cells: TableBatch, features: float = 0.3) -> Float[Tensor, "b"]:
    """(1 − λ) ln p(targets) + λ ln p(features), each per cell that is asked for (Kossen et al. 2021). λ is what
    `features` says; where there is nothing of a kind to tell, all of it goes to the other."""
    each = model.fill(cells).log_prob(cells.values).clamp_min(-_DEAREST)
    each, asked = torch.where(cells.queried, each, 0), cells.queried.to(each.dtype)
    first = each.shape[2] - cells.targets
    sums = [(part[:, :, first:].sum((1, 2)), part[:, :, :first].sum((1, 2))) for part in (each, asked)]
    (target, feature), (targets, some) = sums
    share = torch.where(some == 0, 0, torch.where(targets == 0, 1, features))
    return (1 - share) * target / targets.clamp_min(1) + share * feature / some.clamp_min(1)


def classification(
    model: PixelClassifier, batch: LabelledBatch, smoothing: float = 0.0, span_penalty: float = 0.0
) -> Float[Tensor, "b"]:
    """(1 − s) ln p(label) + s · mean over classes of ln p, less a penalty on how far windows are open (`openness`)."""
    labels = batch.labels
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < model.dim_y:
        raise InputError(
            f"classification: labels go from {labels.min()} to {labels.max()}, but the model tells {model.dim_y} "
            f"classes apart, 0 to {model.dim_y - 1}; make it with dim_y={int(labels.max()) + 1}, or mend the labels"
        )
    each = model(batch.images).log_softmax(-1)
    found = (1 - smoothing) * each.gather(1, labels[:, None])[:, 0] + smoothing * each.mean(1)
    return found - span_penalty * model.openness(*batch.images.shape[1:3]) if span_penalty else found


def by_example(model: InContextClassifier, lesson: Episode, smoothing: float = 0.0) -> Float[Tensor, "b"]:
    """(1 − s) ln p(label | images and labels that are shown) + s · mean over classes of ln p, per image asked about."""
    each = model(*lesson.inputs).log_softmax(-1)
    found = (1 - smoothing) * each.gather(2, lesson.query_labels[..., None])[..., 0] + smoothing * each.mean(2)
    return found.mean(1)


def autoregressive(model: Process, task: Task) -> Float[Tensor, "b"]:
    """Σ_i ln p(y_i | context, y_1 … y_{i−1}) per valid target, for any model: each target joins the context in turn.

    One forward pass a target: for evaluation. A *-a model has it in one pass, as its log-likelihood.
    """
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    total = task.yt.new_zeros(len(task.yt))
    xc, yc, seen = task.xc, task.yc, per_entry(task.mask_c, task.yc)
    real = per_entry(task.mask_t, task.yt)
    for i in range(task.yt.shape[1]):
        x, y, here = task.xt[:, i : i + 1], task.yt[:, i : i + 1], real[:, i : i + 1]
        total = total + joint_log_prob(model(xc, yc, x, seen, here), y, here)
        xc, yc, seen = torch.cat([xc, x], 1), torch.cat([yc, y], 1), torch.cat([seen, here], 1)
    return total / _entries(task).clamp_min(1)


def elbo(model: Process, task: Task, samples: int = 1) -> Float[Tensor, "b"]:
    """(E_q[ln p(yt | z)] − KL(q(z | context, targets) ‖ q(z | context))) per valid target, q reparameterised."""
    return _bound(model, task, samples, weighted=False)


def importance_weighted(model: Process, task: Task, samples: int = 8) -> Float[Tensor, "b"]:
    """ln (1/K) Σ_k p(yt | z_k) q(z_k | context)/q(z_k | context, targets) per valid target: tighter as K grows."""
    return _bound(model, task, samples, weighted=True)


def _bound(model: Process, task: Task, samples: int, weighted: bool) -> Float[Tensor, "b"]:
    if not isinstance(model, LatentProcess):
        raise InputError(f"{type(model).__name__} has no latent variable to bound over; train it with log_likelihood")
    check_values(task.yt, task.xt, task.mask_t, model.dim_y)
    bound = model.bound(task.xc, task.yc, task.xt, task.yt, task.mask_c, task.mask_t, samples, weighted)
    return bound / _entries(task).clamp_min(1)


@dataclass(frozen=True)
class Aim:
    """An objective as a recipe names it: what is `raised`, the kind of `batch` it takes, what a validation tells (what
    is raised, unless there is a `judge`), and the `options` a recipe may give it, with their defaults."""

    raised: Callable[..., Tensor]
    batch: type = Task
    judge: Callable[..., Tensor] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def tell(self, model: Any, batch: Any) -> Float[Tensor, "b"]:
        """Score a model on validation data."""
        return (self.judge or self.raised)(model, batch)


OBJECTIVES = {
    "log-likelihood": Aim(log_likelihood),
    "elbo": Aim(elbo, judge=log_likelihood, options={"samples": 4}),
    "importance-weighted": Aim(importance_weighted, judge=log_likelihood, options={"samples": 4}),
    "observed-and-clean": Aim(observed_and_clean),
    "masked-reconstruction": Aim(masked_reconstruction, TableBatch),
    "classification": Aim(classification, LabelledBatch, options={"smoothing": 0.0, "span_penalty": 0.0}),
    "by-example": Aim(by_example, Episode, options={"smoothing": 0.0}),
}
