"""S7: sinusoids against SIREN, and what a learned window does to accuracy, time and memory, after document 004.

A cell is a classifier of pixels, trained and tested on one set of images. Those that drop pairs are also timed: beside
the same classifier with full attention in torch, and with its window as a bias.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fillin_studies.base import Scale, Settings, Study
from fillin_studies.image_sets import find
from fillin_studies.positions_and_span.measure import measure
from fillin_studies.positions_and_span.report import report
from fillin_studies.positions_and_span.variants import DIGITS, IMAGES, PENALTIES, REDUCE, WAYS, Way, named

QUICK, FULL = 3, 5  # seeds
SOURCES = ("fashion_mnist", "cifar10")  # below --data


def variants(sources: Mapping[str, Path], quick: bool) -> Mapping[str, Settings]:
    """Every way of telling and limiting positions: on digits, or at full budget on the images of a folder."""
    if quick or not sources:
        return {named("digits", way): {**DIGITS, **_settings(way, "digits")} for way in WAYS}
    return {
        named(name, way): {**IMAGES, "data.source": str(path), **_settings(way, name)}
        for name, path in sources.items()
        for way in WAYS
    }


def _settings(way: Way, data: str) -> Settings:
    """`reference` on digits: so small an image has more nodes in a table than pairs."""
    positions, dims, small = way.positions, way.dims, data == "digits"
    backend = "auto" if not small or (positions == "sinusoid" and way.window is None) else "reference"
    return {
        "model.positions": positions, "model.dims": dims, "model.span": way.window, "model.backend": backend,
        "objective.span_penalty": PENALTIES.get(way.name, 0.0), "model.reduce": [] if small else REDUCE[dims],
    }  # fmt: skip


def configured(data: Path | None = None, masks: int | None = None) -> Study:
    """The study with the images of a folder at full budget, and another number of seeds than its budgets have."""
    sources = find(data, SOURCES)
    quick, full = masks or QUICK, masks or FULL
    what = "10,000 images of each set, 600 steps of 16" if sources else "digits, 3,000 steps of 16"
    return Study(
        name="positions-and-span",
        line="learned positions and learned windows, on pixels",
        question="A transformer that sees pixels as a set is told where they are by a score of their displacement: "
        "fixed sinusoids and a linear layer, or a SIREN, along one row of all pixels or in the plane. A Gaussian "
        "window around each pixel, whose width is learned, may fade what is far, and a threshold drop it. Which is "
        "most often right, how far does each layer look, and what does dropping pairs save? (Alfons 2022.)",
        recipe={"data.name": "labelled-images", "model.name": "classifier", "objective.name": "classification"},
        variants=partial(variants, sources),
        quick=Scale({"budget.steps": 600}, quick, f"quick: digits, 600 steps of 16, {quick} seeds."),
        full=Scale({"budget.steps": 600 if sources else 3000}, full, f"full: {what}, {full} seeds."),
        measure=measure,
        report=report,
    )


STUDY = configured()
