"""Learned positions and learned windows on pixels, after Alfons 2022: accuracy, time and memory.

A cell is a classifier of pixels, trained and tested on one image set; some that drop pairs are also timed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from fillin.data.images import LabelledImages
from fillin.evaluate.classification import ClassifierEvaluation
from fillin.models import PixelClassifier
from fillin.train.recipe import Recipe
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy
from fillin_studies.images import find_image_sets
from fillin_studies.positions_and_span import costs
from fillin_studies.positions_and_span.report import make_report
from fillin_studies.positions_and_span.results import CUT, PENALTIES, VARIANTS

_SMALL: RecipeSettings = {
    "model.width": 32, "model.heads": 2, "model.hidden": 64, "model.dropout": 0.0, "data.batch": 16,
    "optimiser.rate": 0.01,
    "keep.validations": 1,  # after the last step: nothing is selected by the test images
}  # fmt: skip
DIGITS: RecipeSettings = {
    **_SMALL, "model.layers": 2, "model.side": 8, "data.source": "digits", "data.shift": 1, "objective.smoothing": 0.1,
    "keep.batches": 6,
}  # fmt: skip
LARGER_IMAGES: RecipeSettings = {
    **_SMALL, "model.layers": 3, "model.side": 32, "data.limit": 10_000, "keep.batches": 20,
}  # fmt: skip
REDUCE = {1: [1, 2], 2: [1]}  # of larger images: a sequence is halved twice where a plane is halved along both sides
_MAX_TEST_IMAGES = 4_000  # at full budget
_TIMED = {CUT, *PENALTIES}


class PositionStudy(TrainingStudy):
    name = "positions-and-span"
    title = "learned positions and learned windows, on pixels"
    question = (
        "A transformer on a set of pixels receives their locations through a score of their displacement: fixed "
        "sinusoids and a linear layer, or a SIREN, along one sequence of all pixels or in the plane. A Gaussian window "
        "around each pixel, whose width is learned, may attenuate distant pixels, and a threshold drop them. Which is "
        "most accurate, how wide is the window of each layer, and what does dropping pairs save? (Alfons 2022.)"
    )
    recipe: ClassVar[RecipeSettings] = {
        "data.name": "labelled-images", "model.name": "classifier", "objective.name": "classification",
    }  # fmt: skip
    reads_data = True

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        self.sources = find_image_sets(data, ("fashion_mnist", "cifar10"))
        seeds, full_seeds = repeats or 3, repeats or 5
        images = "10,000 images of each set, 600 steps of 16" if self.sources else "digits, 3,000 steps of 16"
        self.quick = StudyScale({"budget.steps": 600}, seeds, f"quick: digits, 600 steps of 16, {seeds} seeds.")
        steps = {"budget.steps": 600 if self.sources else 3000}
        self.full = StudyScale(steps, full_seeds, f"full: {images}, {full_seeds} seeds.")

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every kind of positions and windows: on digits, or at full budget on the images of a folder."""
        small = quick or not self.sources
        settings: dict[str, RecipeSettings] = {}
        for (data, path), variant in product({"digits": "digits"}.items() if small else self.sources.items(), VARIANTS):
            folded = variant.positions == "sinusoid" and variant.window is None
            settings[variant.on(data)] = {
                **(DIGITS if small else LARGER_IMAGES), "data.source": str(path),
                "model.positions": variant.positions, "model.dims": variant.dims, "model.span": variant.window,
                # digits with `reference`: for so small an image a table has more nodes than there are pairs
                "model.backend": "auto" if not small or folded else "reference",
                "objective.span_penalty": variant.penalty, "model.reduce": [] if small else REDUCE[variant.dims],
            }  # fmt: skip
        return settings

    def measure(self, model: PixelClassifier, recipe: Recipe, quick: bool) -> dict[str, Any]:
        """Measure accuracy, spans and, for some variants of the first seed, time and memory."""
        stream = LabelledImages(recipe["data"]["source"], part="test")
        scores = ClassifierEvaluation(model, stream, max_images=0 if quick else _MAX_TEST_IMAGES, batch=32).score()
        height, width, _ = stream.images.shape
        result: dict[str, Any] = {
            "images": scores.images, "accuracy": scores.accuracy, "accuracy_error": scores.accuracy_error,
            "log_likelihood": scores.log_likelihood, "standard_error": scores.standard_error,
            "sigma": [layer.sigma for layer in scores.layers], "shares": [layer.share for layer in scores.layers],
            "pairs": share_of_pairs(model, height, width), "side": height,
        }  # fmt: skip
        options = recipe["model"]
        settings = options["dims"], options["positions"], options["span"], recipe["objective"]["span_penalty"]
        name = next(v.name for v in VARIANTS if (v.dims, v.positions, v.window, v.penalty) == settings)
        if recipe["seed"] == 0 and recipe["model"]["dims"] == 2 and name in _TIMED:
            sides = {height: recipe["data"]["batch"]}
            sides |= {costs.LEARNED_SIDE: 1} if height < costs.LEARNED_SIDE else {}
            result["learned"] = [costs.measure_learned(model, side, batch, rounds=3) for side, batch in sides.items()]
            if name == CUT:
                result["narrow"] = costs.measure_narrow()
        return result

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        return make_report(cells, folder)


def share_of_pairs(model: PixelClassifier, height: int, width: int) -> float:
    """Return the share of the pairs of all layers that are computed, weighted by the pairs of each layer."""
    layers, pairs = model.spans(height, width), []
    sizes = (height, width) if model.dims == 2 else (1, height * width)
    for number in range(1, len(layers) + 1):
        pairs.append(math.prod(sizes) ** 2)
        if number in model.reduce:
            sizes = tuple(math.ceil(size / 2) for size in sizes)
    return sum(layer.share * total for layer, total in zip(layers, pairs, strict=True)) / sum(pairs)
