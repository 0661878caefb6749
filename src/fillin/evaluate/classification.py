"""Evaluation of image classifiers: accuracy, likelihood, calibration, confusion matrix, learned windows.

An `InContextClassifier` sees a support set of labelled training images (`LabelledSets`) or of shots of held-out classes
(`FewShot`). Its baselines are itself with permuted support labels, and the nearest centroid of a class.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.images import Episode, FewShot, LabelledImages, LabelledSets
from fillin.data.task import make_generator
from fillin.errors import InputError, option
from fillin.evaluate.scores import Evaluation, ResultTable, find_run, format_percent, format_score
from fillin.metrics import calibration_error
from fillin.models import InContextClassifier, MatchingNetwork, PixelClassifier, load
from fillin.plots import draw_windows, find_spans, panels, save, style
from fillin.predictive import Categorical
from fillin.pretrained import locate
from fillin.runtime import progress
from fillin.train.recipe import make_stream

_MAX_SUPPORT, _MAX_QUERIES = 1024, 500  # images of a labelled set
_SHUFFLE = 4  # purpose of a random generator, besides those of the data
_COLUMNS = ("accuracy, %", "log-likelihood", "calibration error, %")
_MAX_NAMED_CLASSES = 20  # counts and ticks of larger confusion matrices are unreadable
_DRAWN_TASKS, _DRAWN_QUERIES = 6, 10


@dataclass(frozen=True)
class LayerWindow:
    """σ of each head along each axis (None: no window), and the share of pairs of pixels inside."""

    sigma: list[list[float]] | None
    share: float


@dataclass(frozen=True)
class ClassScores:
    """Scores on `images` images. `confusion[i][j]` counts images of class i that are classified as j."""

    images: int
    accuracy: float
    accuracy_error: float
    log_likelihood: float
    standard_error: float
    calibration_error: float  # expected calibration error with 15 bins
    confusion: list[list[int]]
    layers: list[LayerWindow]

    @property
    def cells(self) -> tuple[str, str, str]:
        """The scores of `_COLUMNS`, as text."""
        return (
            f"{format_percent(self.accuracy, 2)} ± {format_percent(self.accuracy_error, 2)}",
            format_score(self.log_likelihood, self.standard_error),
            format_percent(self.calibration_error, 2),
        )


@dataclass(frozen=True)
class InContextScores:
    """Scores of the model, with `support_images` in each support set, and accuracies of the baselines."""

    tasks: int
    support_images: int
    model: ClassScores
    shuffled: float
    centroid_pixels: float
    centroid_embedding: float


@dataclass(frozen=True)
class ClassifierEvaluation(Evaluation):
    """A classifier and its test images, at most `max_images` of them unless that is 0."""

    model: PixelClassifier
    stream: LabelledImages
    max_images: int = 0
    batch: int = 64

    @torch.no_grad()
    def score(self, show_progress: bool = False) -> ClassScores:
        model, available = self.model.eval(), len(self.stream.images)
        number = min(self.max_images or available, available)
        stream = LabelledImages(self.stream.source, batch=min(self.batch, number), part="test")
        steps = math.ceil(number / stream.batch)
        log_probs, labels = [], []
        with progress("evaluate", steps, show_progress) as tick:
            for step in range(steps):
                batch = stream.task(step)
                log_probs.append(model(batch.images.to(model.out.weight)).float().cpu().log_softmax(-1))
                labels.append(batch.labels)
                tick()
        height, width, _ = self.stream.images.shape
        layers = [
            LayerWindow(None if layer.sigma is None else layer.sigma.tolist(), layer.share)
            for layer in model.spans(height, width)
        ]
        return score_classes(torch.cat(log_probs)[:number], torch.cat(labels)[:number], layers)

    def draw(self, folder: Path, scores: ClassScores) -> list[Path]:
        paths = [draw_confusion(folder / "confusion.png", scores)]
        return [*paths, save(draw_windows(self.model), folder / "windows.png")] if find_spans(self.model) else paths

    def tables(self, name: str, scores: ClassScores) -> list[ResultTable]:
        layers = []
        for number, layer in enumerate(scores.layers, 1):
            sigma = [value for head in layer.sigma or () for value in head]
            text = f"{min(sigma):.3g} – {max(sigma):.3g}" if sigma else "no window"
            layers.append((str(number), text, format_percent(layer.share)))
        caption = "σ: from the narrowest head to the widest; an image is 1 wide and 1 high."
        title, note = f"{name}: {scores.images:,} images", "± one standard error; likelihood in nats."
        windows = ResultTable("", ("layer", "σ", "pairs inside, %"), layers, caption)
        return [ResultTable(title, _COLUMNS, [scores.cells], note), windows]


@dataclass(frozen=True)
class InContextEvaluation(Evaluation):
    """An in-context classifier and its test sets: every test image, or `tasks` few-shot tasks."""

    model: InContextClassifier
    stream: LabelledSets | FewShot
    tasks: int = 600

    @torch.no_grad()
    def score(self, show_progress: bool = False) -> InContextScores:
        model, stream, support = self.model.eval(), self.stream, 0
        few_shot = isinstance(stream, FewShot)
        queries = stream.ways * stream.queries if few_shot else stream.asked
        number = self.tasks * queries if few_shot else len(stream.stream.images)
        steps = math.ceil(number / (stream.batch * queries))
        log_probs, labels, correct = [], [], []
        with progress("evaluate", steps, show_progress) as tick:
            for step in range(steps):
                episode = stream.task(step)
                episode = replace(episode, images=episode.images.to(model.norm.weight))
                support, truth = episode.support, episode.query_labels
                log_probs.append(model(*episode.inputs).float().log_softmax(-1).flatten(0, 1))
                labels.append(truth.flatten())
                support_labels, random = episode.labels[:, :support], make_generator(stream.seed, step, _SHUFFLE)
                shuffled = support_labels.gather(1, torch.rand(support_labels.shape, generator=random).argsort(1))
                baselines = [
                    model(episode.images, shuffled),
                    _centroid_scores(episode.images.flatten(2), episode, model.dim_y),
                    _centroid_scores(model.embed_images(episode.images), episode, model.dim_y),
                ]
                correct.append(torch.stack([(logits.argmax(-1) == truth).flatten() for logits in baselines], 1))
                tick()
        # queries of a few-shot task share their support set: its mean counts as one draw
        group = queries if few_shot else 1
        scores = score_classes(torch.cat(log_probs)[:number], torch.cat(labels)[:number], group=group)
        accuracies = torch.cat(correct)[:number].double().mean(0).tolist()
        return InContextScores(math.ceil(number / queries), support, scores, *accuracies)

    def draw(self, folder: Path, scores: InContextScores) -> list[Path]:
        """Draw the confusion matrix, or some few-shot tasks, whose classes have no names."""
        if isinstance(self.stream, FewShot):
            return [_draw_tasks(folder / "tasks.png", self.model.eval(), self.stream)]
        return [draw_confusion(folder / "confusion.png", scores.model)]

    def tables(self, name: str, scores: InContextScores) -> list[ResultTable]:
        labels = ("shuffled support labels", "nearest centroid, pixels", "nearest centroid, embedding")
        baselines = zip(labels, (scores.shuffled, scores.centroid_pixels, scores.centroid_embedding), strict=True)
        counts = f"{scores.model.images:,} images in {scores.tasks:,} sets"
        rows = [(label, format_percent(accuracy, 2), "", "") for label, accuracy in baselines]
        caption = (
            "± one standard error; likelihood in nats. Shuffled: the model with permuted support labels. Nearest "
            "centroid: the class whose support images have the nearest mean."
        )
        title = f"{name}: {counts}, {scores.support_images:,} support images each"
        return [ResultTable(title, ("", *_COLUMNS), [("model", *scores.model.cells), *rows], caption)]


def open_classifier(
    folder: str | os.PathLike, source: str | None = None
) -> ClassifierEvaluation | InContextEvaluation | None:
    """Open the classifier of a run or saved folder, if any, with the test images of its recipe or of `source`."""
    path = locate(folder)
    run = find_run(path)
    if run is None and not (path / "model.safetensors").exists():
        return None
    model: Any = load(path)
    is_pixel_classifier = isinstance(model, PixelClassifier)
    if not is_pixel_classifier and not isinstance(model, InContextClassifier):
        return None
    stream: Any = None if run is None else make_stream(run.recipe)
    if run is None and isinstance(model, MatchingNetwork):
        raise InputError(f"{path} is a few-shot model without a recipe; pass the run that trained it")
    source = source or (stream and stream.source)
    if source is None:
        raise InputError("{path} is a classifier without a recipe; choose images with {source}",
                         path=path, source=option("source"))  # fmt: skip
    stream = (
        LabelledImages(source, part="test") if is_pixel_classifier else replace(stream or LabelledSets(), source=source)
    )
    if stream.dim_x != model.dim_x or stream.dim_y > model.dim_y:
        raise InputError(
            f"{source} has {stream.dim_x} colours and {stream.dim_y} classes, but the model has {model.dim_x} and "
            f"{model.dim_y}"
        )
    if is_pixel_classifier:
        return ClassifierEvaluation(model, stream)
    if isinstance(stream, FewShot):
        return InContextEvaluation(model, replace(stream, part="held-out"))
    stream = replace(stream, part="test", context=0, asked=1, batch=1)
    context, queries = min(_MAX_SUPPORT, len(stream.context_images)), min(_MAX_QUERIES, len(stream.stream.images))
    return InContextEvaluation(model, replace(stream, context=context, asked=queries))


def score_classes(
    log_probs: Float[Tensor, "n k"], labels: Int64[Tensor, "n"], layers: Sequence[LayerWindow] = (), group: int = 1
) -> ClassScores:
    """Score log-probabilities. Standard errors are over means of `group` successive images."""
    n, classes = log_probs.shape
    predicted = log_probs.argmax(1)
    correct, likelihood = (predicted == labels).double(), log_probs.gather(1, labels[:, None])[:, 0].double()
    accuracy_error, standard_error = (
        float(values.view(-1, group).mean(1).std(unbiased=False)) / math.sqrt(n / group)
        for values in (correct, likelihood)
    )
    confusion = torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)
    return ClassScores(
        n, float(correct.mean()), accuracy_error, float(likelihood.mean()), standard_error,
        calibration_error(Categorical(log_probs.double().exp().numpy()), labels.numpy()), confusion.tolist(),
        list(layers),
    )  # fmt: skip


def _centroid_scores(x: Float[Tensor, "b n e"], episode: Episode, classes: int) -> Float[Tensor, "b queries k"]:
    """Minus the distance of each query from the mean support image of each class; −∞ for a class without any."""
    membership = torch.nn.functional.one_hot(episode.labels[:, : episode.support], classes).to(x)  # [b support k]
    counts = membership.sum(1)[..., None]
    means = membership.mT @ x[:, : episode.support] / counts.clamp_min(1)
    return -torch.cdist(x[:, episode.support :], means).masked_fill(counts.mT == 0, torch.inf)


def draw_confusion(path: Path, scores: ClassScores) -> Path:
    """Draw the confusion matrix."""
    counts = torch.tensor(scores.confusion)
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
    side = len(counts)
    named = range(side if side <= _MAX_NAMED_CLASSES else 0)
    with style():
        figure, [[axes]] = panels(1, 1, width=1.6 + 0.42 * side, height=1.2 + 0.42 * side)
        axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the root makes rare mistakes visible
        for i, j in ((i, j) for i in named for j in named if counts[i, j]):
            ink = "white" if shares[i, j] > 0.4 else "black"
            axes.text(j, i, str(int(counts[i, j])), ha="center", va="center", fontsize=7, color=ink)
        title = f"{100 * scores.accuracy:.1f} % of {scores.images:,} images"
        axes.set(xlabel="predicted class", ylabel="class", title=title)
        if named:
            axes.set(xticks=named, yticks=named)
        axes.grid(False)
    return save(figure, path)


@torch.no_grad()
def _draw_tasks(path: Path, model: InContextClassifier, stream: FewShot) -> Path:
    """Draw a task per row: one shot of each class, then queries framed in their predicted class, mistakes crossed."""
    episode = replace(stream, batch=_DRAWN_TASKS).task(0)
    predicted = model(*replace(episode, images=episode.images.to(model.norm.weight)).inputs).argmax(-1)
    queries = torch.linspace(0, predicted.shape[1] - 1, min(_DRAWN_QUERIES, predicted.shape[1])).long()
    shots = torch.arange(stream.ways) * stream.shots  # the first of each class
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
