"""Evaluation of classifiers that see labelled images: of training images, or of shots of held-out classes.

The baselines are the model with permuted support labels, the nearest centroid of a class in pixels and in embeddings,
and for few-shot tasks the model before training.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.data.images import Episode, FewShot, LabelledSets
from fillin.data.task import make_generator
from fillin.evaluate.class_scores import COLUMNS, ClassScores, draw_confusion, score_classes
from fillin.evaluate.scores import Evaluation, ResultTable, format_percent
from fillin.models import InContextClassifier
from fillin.models.registry import create_from_config
from fillin.plots import panels, save, style
from fillin.runtime import progress

_SHUFFLE = 4  # purpose of a random generator, besides those of the data
_DRAWN_TASKS, _DRAWN_QUERIES = 6, 10


@dataclass(frozen=True)
class Baseline:
    """Accuracy of a baseline, and by how much that of the model is higher on the same tasks, with standard errors."""

    accuracy: float
    error: float
    gain: float
    gain_error: float

    @property
    def cells(self) -> tuple[str, str]:
        """Accuracy and gain in per cent, as text."""
        accuracy, gain = (
            f"{format_percent(value, 2)} ± {format_percent(error, 2)}"
            for value, error in ((self.accuracy, self.error), (self.gain, self.gain_error))
        )
        return accuracy, gain


@dataclass(frozen=True)
class InContextScores:
    """Scores of the model, with `support_images` in each support set, and those of the baselines by name."""

    tasks: int
    support_images: int
    model: ClassScores
    baselines: dict[str, Baseline]


@dataclass(frozen=True)
class InContextEvaluation(Evaluation):
    """An in-context classifier and its test sets: every test image, or `tasks` few-shot tasks."""

    model: InContextClassifier
    stream: LabelledSets | FewShot
    tasks: int = 600

    @torch.no_grad()
    def score(self, show_progress: bool = False) -> list[InContextScores]:
        """Score the model, at the fewest and at the most shots of few-shot tasks."""
        if not isinstance(self.stream, FewShot):
            queries, images = self.stream.asked, len(self.stream.stream.images)
            with progress("evaluate", math.ceil(images / (self.stream.batch * queries)), show_progress) as tick:
                return [self._score(self.stream, queries, images, 1, tick)]
        streams = [replace(self.stream, shots=shots) for shots in sorted({*self.stream.shots_range})]
        queries = self.stream.ways * self.stream.queries
        steps = math.ceil(self.tasks / self.stream.batch)
        with progress("evaluate", len(streams) * steps, show_progress) as tick:
            # queries of a few-shot task share their support set: its mean counts as one draw
            return [self._score(stream, queries, self.tasks * queries, queries, tick) for stream in streams]

    def _score(
        self, stream: LabelledSets | FewShot, queries: int, number: int, group: int, tick: Callable[[], object]
    ) -> InContextScores:
        """Score `number` images in sets of `queries`; means over `group` successive images are independent."""
        model, support = self.model.eval(), 0
        untrained = _without_training(model) if isinstance(stream, FewShot) else None
        log_probs, labels = [], []
        correct: dict[str, list[Tensor]] = {}
        for step in range(math.ceil(number / (stream.batch * queries))):
            episode = stream.task(step)
            episode = replace(episode, images=episode.images.to(model.norm.weight))
            support, truth = episode.support, episode.query_labels
            log_probs.append(model(*episode.inputs).float().log_softmax(-1).flatten(0, 1))
            labels.append(truth.flatten())
            support_labels, random = episode.labels[:, :support], make_generator(stream.seed, step, _SHUFFLE)
            shuffled = support_labels.gather(1, torch.rand(support_labels.shape, generator=random).argsort(1))
            predictions = {
                "shuffled support labels": model(episode.images, shuffled),
                "nearest centroid, pixels": _centroid_scores(episode.images.flatten(2), episode, model.dim_y),
                "nearest centroid, embedding": _embedded_centroid_scores(model, episode),
            }
            if untrained is not None:
                predictions["random weights"] = untrained(*episode.inputs)
                predictions["nearest centroid, random embedding"] = _embedded_centroid_scores(untrained, episode)
            for name, logits in predictions.items():
                correct.setdefault(name, []).append((logits.argmax(-1) == truth).flatten())
            tick()
        all_probs, all_labels = torch.cat(log_probs)[:number], torch.cat(labels)[:number]
        scores, hits = score_classes(all_probs, all_labels, group=group), all_probs.argmax(1) == all_labels
        baselines = {name: _compare(hits, torch.cat(parts)[:number], group) for name, parts in correct.items()}
        return InContextScores(math.ceil(number / queries), support, scores, baselines)

    def draw(self, folder: Path, scores: Sequence[InContextScores]) -> list[Path]:
        """Draw the confusion matrix, or some few-shot tasks, whose classes have no names."""
        if isinstance(self.stream, FewShot):
            return [_draw_tasks(folder / "tasks.png", self.model.eval(), self.stream)]
        return [draw_confusion(folder / "confusion.png", scores[0].model)]

    def tables(self, name: str, scores: Sequence[InContextScores]) -> list[ResultTable]:
        caption = (
            "± one standard error; likelihood in nats. Gain: accuracy of the model minus that of the baseline, on the "
            "same images. Shuffled: the model with permuted support labels. Nearest centroid: the class whose support "
            "images have the nearest mean. Random: the model before training."
        )
        tables = []
        for result in scores:
            counts = f"{result.model.images:,} images in {result.tasks:,} sets"
            rows = [("model", *result.model.cells, "")]
            for label, baseline in result.baselines.items():
                accuracy, gain = baseline.cells
                rows.append((label, accuracy, "", "", gain))
            title = f"{name}: {counts}, {result.support_images:,} support images each"
            tables.append(ResultTable(title, ("", *COLUMNS, "gain, %"), rows, caption))
        return tables


def _without_training(model: InContextClassifier) -> InContextClassifier:
    """Return the same model with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create_from_config(model.config).to(model.norm.weight).eval()


def _compare(model: Bool[Tensor, "n"], baseline: Bool[Tensor, "n"], group: int) -> Baseline:
    """Compare which images are classified correctly, with standard errors over means of `group` successive images."""
    numbers = []
    for values in (baseline.double(), model.double() - baseline.double()):
        means = values.view(-1, group).mean(1)
        numbers += [float(means.mean()), float(means.std(unbiased=False)) / math.sqrt(len(means))]
    return Baseline(*numbers)


def _embedded_centroid_scores(model: InContextClassifier, episode: Episode) -> Float[Tensor, "b queries k"]:
    return _centroid_scores(model.embed_images(episode.images), episode, model.dim_y)


def _centroid_scores(x: Float[Tensor, "b n e"], episode: Episode, classes: int) -> Float[Tensor, "b queries k"]:
    """Minus the distance of each query from the mean support image of each class; −∞ for a class without any."""
    membership = torch.nn.functional.one_hot(episode.labels[:, : episode.support], classes).to(x)  # [b support k]
    counts = membership.sum(1)[..., None]
    means = membership.mT @ x[:, : episode.support] / counts.clamp_min(1)
    return -torch.cdist(x[:, episode.support :], means).masked_fill(counts.mT == 0, torch.inf)


@torch.no_grad()
def _draw_tasks(path: Path, model: InContextClassifier, stream: FewShot) -> Path:
    """Draw a task per row: one shot of each class, then queries framed in their predicted class, mistakes crossed."""
    stream = replace(stream, batch=_DRAWN_TASKS, shots=stream.shots_range[0])
    episode = stream.task(0)
    predicted = model(*replace(episode, images=episode.images.to(model.norm.weight)).inputs).argmax(-1)
    queries = torch.linspace(0, predicted.shape[1] - 1, min(_DRAWN_QUERIES, predicted.shape[1])).long()
    shots = torch.arange(stream.ways) * stream.shots_range[0]  # the first of each class
    images = [*shots.tolist(), *(episode.support + queries).tolist()]
    with style():
        figure, grid = panels(_DRAWN_TASKS, len(images), width=0.7 * len(images), height=0.7)
        for row, panel_row in enumerate(grid):
            for axes, i in zip(panel_row, images, strict=True):
                label = int(episode.labels[row, i])
                name = label if i < episode.support else int(predicted[row, i - episode.support])
                image = (episode.images[row, i] + 0.5).clamp(0, 1)
                axes.imshow(image.expand(-1, -1, 3).numpy(), interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                axes.grid(False)
                for side in axes.spines.values():
                    side.set(visible=True, color=f"C{name % 10}", linewidth=3)
                if name != label:
                    axes.plot([0, 1], [0, 1], color="red", transform=axes.transAxes)
    return save(figure, path)
