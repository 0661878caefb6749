"""Evaluation of image classifiers, and how the classifier of a run is opened (in-context ones: `in_context`)."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fillin.data.images import FewShot, LabelledImages, LabelledSets
from fillin.errors import InputError, option
from fillin.evaluate.class_scores import COLUMNS, ClassScores, LayerWindow, draw_confusion, score_classes
from fillin.evaluate.in_context import InContextEvaluation
from fillin.evaluate.scores import Evaluation, ResultTable, find_run, format_percent
from fillin.models import Classifier, FewShotProcess, InContextClassifier, MatchingNetwork, PixelClassifier, load
from fillin.plots import draw_windows, find_spans, save
from fillin.pretrained import locate
from fillin.runtime import progress
from fillin.train.recipe import make_stream

_MAX_SUPPORT, _MAX_QUERIES = 1024, 500  # images of a labelled set
_ALL_CLASSES = 2**31


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
        stream = replace(self.stream, batch=min(self.batch, number), seed=0, part="test")
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
        return [ResultTable(title, COLUMNS, [scores.cells], note), windows]


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
    if run is None and isinstance(model, FewShotProcess | MatchingNetwork):
        raise InputError(f"{path} is a few-shot model without a recipe; pass the run that trained it")
    source = source or (stream and stream.source)
    if source is None:
        raise InputError("{path} is a classifier without a recipe; choose images with {source}",
                         path=path, source=option("source"))  # fmt: skip
    if isinstance(stream, FewShot) and not is_pixel_classifier:
        return _open_few_shot(model, stream, source)
    default = LabelledImages() if is_pixel_classifier else LabelledSets()
    stream = replace(stream or default, source=source, **({"part": "test"} if is_pixel_classifier else {}))
    _check_fit(model, source, stream.dim_x, stream.dim_y)
    if is_pixel_classifier:
        return ClassifierEvaluation(model, stream)
    stream = replace(stream, part="test", context=0, asked=1, batch=1)
    context, queries = min(_MAX_SUPPORT, len(stream.context_images)), min(_MAX_QUERIES, len(stream.stream.images))
    return InContextEvaluation(model, replace(stream, context=context, asked=queries))


def _open_few_shot(model: InContextClassifier, stream: FewShot, source: str) -> InContextEvaluation:
    """Open the held-out classes of the recipe; of another source all classes, unless the recipe lists those."""
    held_out = _ALL_CLASSES if source != stream.source and isinstance(stream.held_out, int) else stream.held_out
    stream = replace(stream, source=source, held_out=held_out, part="held-out")
    _ = stream.members  # raises an error where there are too few classes or images
    _check_fit(model, source, stream.dim_x, stream.ways)
    return InContextEvaluation(model, stream)


def _check_fit(model: Classifier, source: str, colours: int, classes: int) -> None:
    if colours != model.dim_x or classes > model.dim_y:
        raise InputError(
            f"{source} has {colours} colours and {classes} classes, but the model has {model.dim_x} and {model.dim_y}"
        )
