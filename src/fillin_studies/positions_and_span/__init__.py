"""Learned positions and learned windows on pixels, after Alfons 2022: accuracy, time and memory.

A cell is a classifier of pixels, trained and tested on one image set; some that drop pairs are also timed.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from fillin.attention import kernel
from fillin.data.images import LabelledImages
from fillin.evaluate.classification import ClassifierEvaluation
from fillin.models import PixelClassifier
from fillin.train.recipe import Recipe
from fillin_studies.base import RecipeSettings, Study, StudyCell, StudyReport, StudyScale, TrainingStudy
from fillin_studies.images import find_image_sets
from fillin_studies.positions_and_span import costs
from fillin_studies.positions_and_span.report import make_report
from fillin_studies.positions_and_span.results import ALFONS_CUT, CUT, PENALTIES, VARIANTS

_SHARED: RecipeSettings = {
    "model.dropout": 0.0, "data.batch": 16, "optimiser.rate": 0.01,
    "keep.validations": 1,  # after the last step: nothing is selected by the test images
}  # fmt: skip
DIGITS: RecipeSettings = {
    **_SHARED, "model.width": 32, "model.heads": 2, "model.hidden": 64, "model.layers": 2, "data.source": "digits",
    "data.shift": 1, "objective.smoothing": 0.1, "keep.batches": 6,
}  # fmt: skip
LARGER_IMAGES: RecipeSettings = {  # with the transformer of Alfons 2022: 6 blocks, 64 wide, 8 heads, feed-forward 128
    **_SHARED, "model.width": 64, "model.heads": 8, "model.hidden": 128, "model.layers": 6, "data.limit": 10_000,
    "keep.batches": 20,
}  # fmt: skip
SIDES = {"digits": 8, "fashion_mnist": 14, "cifar10": 16}  # in pixels, to which images are averaged
STEPS = {"digits": 3000, "larger": 2400}  # at full budget
_MAX_TEST_IMAGES = 4_000  # at full budget
_TIMED = {CUT, ALFONS_CUT, *PENALTIES}


class PositionStudy(TrainingStudy):
    name = "positions-and-span"
    title = "learned positions and learned windows, on pixels"
    question = (
        "A transformer on a set of pixels receives their locations through a score of their displacement: fixed "
        "sinusoids and a linear layer, or a SIREN, along one sequence of all pixels or in the plane. A Gaussian window "
        "around each pixel, whose width is learned, may attenuate distant pixels, and a threshold drop them; previous "
        "work divided the image into fixed independent blocks. Which is most accurate, how wide is the window of each "
        "layer, and what does dropping pairs save? (Alfons 2022.)"
    )
    recipe: ClassVar[RecipeSettings] = {
        "data.name": "labelled-images", "model.name": "classifier", "objective.name": "classification",
    }  # fmt: skip
    reads_data = True

    version = 2

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        self.sources, self.size = find_image_sets(data, ("fashion_mnist", "cifar10")), 0
        seeds, full_seeds = repeats or 3, repeats or 5
        steps = STEPS["larger" if self.sources else "digits"]
        images = "10,000 images of each set" if self.sources else "digits"
        self.quick = StudyScale({"budget.steps": 600}, seeds, f"quick: digits, 600 steps of 16, {seeds} seeds.")
        about = f"full: {images}, {steps:,} steps of 16, {full_seeds} seeds."
        self.full = StudyScale({"budget.steps": steps}, full_seeds, about)

    def with_settings(self, settings: RecipeSettings) -> Study:
        """Return the study with other settings; positions and fixed blocks follow another `data.size`."""
        resized = self.replaced(size=settings.get("data.size", 0))
        return TrainingStudy.with_settings(resized, settings)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every kind of positions and windows: on digits, or at full budget on the images of a folder."""
        small = quick or not self.sources
        settings: dict[str, RecipeSettings] = {}
        for (data, path), variant in product({"digits": "digits"}.items() if small else self.sources.items(), VARIANTS):
            side = self.size or SIDES[data]
            # full attention of sinusoids folds into one product, fast for few pixels; larger images all take the kernel
            folded = variant.positions == "sinusoid" and variant.window is None
            backend = "native" if folded and kernel.is_available() else "auto"
            settings[variant.on(data)] = {
                **(DIGITS if small else LARGER_IMAGES), "data.source": str(path), "data.size": side,
                "model.positions": variant.positions, "model.dims": variant.dims, "model.span": variant.window,
                "model.side": side, "model.blocks": variant.blocks(side),
                # digits with `reference`: for so small an image a table has more nodes than there are pairs
                "model.backend": backend if not small else "auto" if folded else "reference",
                "objective.span_penalty": variant.penalty,
            }  # fmt: skip
        return settings

    def measure(self, model: PixelClassifier, recipe: Recipe, quick: bool) -> dict[str, Any]:
        """Measure accuracy, spans, operations, time and memory of a step; for some variants of the first seed also
        those of other implementations."""
        stream = LabelledImages(recipe["data"]["source"], size=recipe["data"]["size"], part="test")
        scores = ClassifierEvaluation(model, stream, max_images=0 if quick else _MAX_TEST_IMAGES, batch=32).score()
        height, width, _ = stream.images.shape
        result: dict[str, Any] = {
            "images": scores.images, "accuracy": scores.accuracy, "accuracy_error": scores.accuracy_error,
            "log_likelihood": scores.log_likelihood, "standard_error": scores.standard_error,
            "sigma": [layer.sigma for layer in scores.layers], "shares": [layer.share for layer in scores.layers],
            "pairs": costs.share_of_pairs(model, height, width), "side": height,
            "operations": costs.count_operations(model, height, width),
            "step": costs.measure_own(model, height, recipe["data"]["batch"], rounds=3),
        }  # fmt: skip
        spans = [block.attention.span for block in model.blocks]
        if all(span is not None and span.covariance == "full" for span in spans):
            result["covariance"] = [(span.factor @ span.factor.mT).tolist() for span in spans]
        settings, penalty = recipe["model"], recipe["objective"]["span_penalty"]
        timed = recipe["seed"] == 0 and settings["dims"] == 2 and settings["span"] is not None
        name = next(
            (v.name for v in VARIANTS if v.name in _TIMED and v.dims == 2 and v.positions == settings["positions"]
             and v.window == settings["span"] and v.penalty == penalty), None,
        )  # fmt: skip
        if timed and name is not None:
            sides = {height: recipe["data"]["batch"]}
            sides |= {costs.LEARNED_SIDE: 1} if height < costs.LEARNED_SIDE else {}
            result["learned"] = [costs.measure_learned(model, side, batch, rounds=3) for side, batch in sides.items()]
            if name == CUT:
                result["narrow"] = costs.measure_narrow()
        return result

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        return make_report(cells, folder)
