"""How good a model is that is shown images, beside the nearest centroid, and whether it looks at what it is shown.

On `LabelledSets` images for testing are asked about, 1,024 for training shown; on tasks of `FewShot` the classes that
were held out. Baselines know what the model is shown: the class whose mean is nearest, in pixels and in the model's own
vectors of images. `shuffled` is the model again, the shown labels dealt out anew.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.images import Episode, FewShot, LabelledSets
from fillin.data.task import make_generator
from fillin.errors import InputError
from fillin.evaluate.classification import ClassScores, confusion, scores_of
from fillin.models import InContextClassifier, MatchingNetwork, load
from fillin.models.registry import get_entry
from fillin.plots import panels, save, style
from fillin.pretrained import locate
from fillin.train import open_run
from fillin.train.recipe import make_stream

_CONTEXT, _ASKED = 1024, 500  # images of a data set
_TASKS = 600  # few-shot
_SHUFFLE = 4  # what random numbers are for


class Taught(NamedTuple):
    """A model, and what it is asked."""

    model: InContextClassifier
    stream: LabelledSets | FewShot


@dataclass(frozen=True)
class LessonScores:
    """`found` are the scores of the model; the others are accuracies. Errors of few-shot tasks are over tasks."""

    tasks: int
    shown: int
    found: ClassScores
    shuffled: float
    centroid_pixels: float
    centroid_embedding: float


def taught(folder: str | os.PathLike, source: str | None = None) -> Taught | None:
    """The model in a run, or in a folder of `fillin.save`, with the images of its recipe or of another source; None
    where there is no such model."""
    path = locate(folder)
    if (path / "recipe.yaml").exists():
        recipe = open_run(path).recipe
        if not issubclass(get_entry(recipe["model"]["name"]).build, InContextClassifier):
            return None
        if not (path / "best").exists():
            raise InputError(f"{path} has no weights yet; go on with: fillin train --resume {path}")
        learnt = make_stream(recipe)
        assert isinstance(learnt, LabelledSets | FewShot)
        stream = replace(learnt, source=source or learnt.source)
    elif not (path / "model.safetensors").exists() or not isinstance(load(path), InContextClassifier):
        return None
    elif source is None or isinstance(load(path, InContextClassifier), MatchingNetwork):
        raise InputError(
            f"{path} is a model without a recipe: give the run that it is of; npt-images, which knows its classes, can "
            "be asked other images with --source"
        )
    else:
        stream = LabelledSets(source)
    return Taught(load(path, InContextClassifier), _asked(stream, load(path, InContextClassifier)))


def _asked(stream: LabelledSets | FewShot, model: InContextClassifier) -> LabelledSets | FewShot:
    """What is evaluated on, if it fits the model."""
    if stream.dim_x != model.dim_x or stream.dim_y > model.dim_y:
        raise InputError(
            f"{stream.source} has {stream.dim_x} colours and {stream.dim_y} classes; the model was made for "
            f"{model.dim_x} and {model.dim_y}"
        )
    if isinstance(stream, FewShot):
        return replace(stream, part="held-out")
    found = replace(stream, part="test", context=0, asked=1, batch=1)
    return replace(found, context=min(_CONTEXT, len(found.context_images)), asked=min(_ASKED, len(found.stream.images)))


@torch.no_grad()
def judge(about: Taught, tasks: int = _TASKS, tick: Callable[[], object] = lambda: None) -> LessonScores:
    """The scores on every image for testing, or on so many few-shot `tasks`."""
    model, stream = about.model.eval(), about.stream
    images = len(stream.stream.images) if isinstance(stream, LabelledSets) else tasks * stream.ways * stream.queries
    logits, answers, right, shown = [], [], [], 0
    for step in range(math.ceil(images / (stream.batch * _each(stream)))):
        lesson = stream.task(step)
        lesson = Episode(lesson.images.to(model.norm.weight), lesson.labels, lesson.support)
        shown = lesson.support
        logits.append(model(*lesson.inputs).float().log_softmax(-1).flatten(0, 1))
        answers.append(lesson.query_labels.flatten())
        others = [
            model(lesson.images, _shuffled(lesson, stream.seed, step)),
            _centroids(lesson.images.flatten(2), lesson, model.dim_y),
            _centroids(model.embedded(lesson.images), lesson, model.dim_y),
        ]
        right.append(torch.stack([(other.argmax(-1) == lesson.query_labels).flatten() for other in others], 1))
        tick()
    found = scores_of(torch.cat(logits)[:images], torch.cat(answers)[:images], [])
    if isinstance(stream, FewShot):
        found = _over_tasks(found, torch.cat(logits)[:images], torch.cat(answers)[:images], _each(stream))
    shares = torch.cat(right)[:images].double().mean(0).tolist()
    return LessonScores(math.ceil(images / _each(stream)), shown, found, *shares)


def _each(stream: LabelledSets | FewShot) -> int:
    """How many images one task asks about."""
    return stream.asked if isinstance(stream, LabelledSets) else stream.ways * stream.queries


def _shuffled(lesson: Episode, seed: int, step: int) -> Int64[Tensor, "b shown"]:
    """The labels that are shown, dealt out anew."""
    order = torch.rand(
        lesson.labels[:, : lesson.support].shape, generator=make_generator(seed, step, _SHUFFLE)
    ).argsort(1)
    return lesson.labels[:, : lesson.support].gather(1, order)


def _centroids(x: Float[Tensor, "b n e"], lesson: Episode, classes: int) -> Float[Tensor, "b asked k"]:
    """How near each image is to the mean of the shown ones of each class; −∞ where none was shown."""
    of = torch.nn.functional.one_hot(lesson.labels[:, : lesson.support], classes).to(x)  # [b shown k]
    counts = of.sum(1)[..., None]
    means = of.mT @ x[:, : lesson.support] / counts.clamp_min(1)
    return -torch.cdist(x[:, lesson.support :], means).masked_fill(counts.mT == 0, torch.inf)


def _over_tasks(found: ClassScores, each: Float[Tensor, "n k"], answers: Int64[Tensor, "n"], size: int) -> ClassScores:
    """Images of a task share their shots: errors are those of means of tasks."""
    right = (each.argmax(1) == answers).double().view(-1, size).mean(1)
    likely = each.gather(1, answers[:, None])[:, 0].double().view(-1, size).mean(1)
    error, other = (float(part.std(unbiased=False)) / math.sqrt(len(part)) for part in (right, likely))
    return replace(found, accuracy_error=error, standard_error=other)


@torch.no_grad()
def draw(folder: Path, about: Taught, scores: LessonScores) -> list[Path]:
    """What is taken for what; of few-shot tasks, whose classes have no names, some of them instead."""
    if isinstance(about.stream, FewShot):
        return [_tasks(folder / "tasks.png", about.model.eval(), about.stream)]
    return [confusion(folder / "confusion.png", scores.found)]


def _tasks(path: Path, model: InContextClassifier, stream: FewShot, most: int = 6) -> Path:
    """A row a task: a shot of each class in its frame, then queries, framed as they are taken, crossed out if wrong."""
    lesson = replace(stream, batch=most).task(0)
    taken = model(*Episode(lesson.images.to(model.norm.weight), lesson.labels, lesson.support).inputs).argmax(-1)
    asked = torch.linspace(0, taken.shape[1] - 1, min(10, taken.shape[1])).long()
    shown = torch.arange(stream.ways) * stream.shots  # the first of each class
    with style():
        figure, grid = panels(most, len(shown) + len(asked), width=0.7 * (len(shown) + len(asked)), height=0.7)
        for row, axes in enumerate(grid):
            for column, one in enumerate([*shown.tolist(), *(lesson.support + asked).tolist()]):
                label = int(lesson.labels[row, one])
                name = label if one < lesson.support else int(taken[row, one - lesson.support])
                image = (lesson.images[row, one] + 0.5).clamp(0, 1)
                axes[column].imshow(image.expand(-1, -1, 3).numpy(), interpolation="nearest")
                axes[column].set(xticks=[], yticks=[])
                axes[column].grid(False)
                for side in axes[column].spines.values():
                    side.set(visible=True, color=f"C{name % 10}", linewidth=3)
                if name != label:
                    axes[column].plot([0, 1], [0, 1], color="red", transform=axes[column].transAxes)
    return save(figure, path)
