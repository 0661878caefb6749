"""S4, on images: NP, ANP, ConvCNP and TE-TNP complete them from any part, at any resolution, after Kim et al. 2019.

A cell is one model, trained on tasks of every kind, and asked for each kind apart: one set of weights for all.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fillin.evaluate.image_completion import Completing, judge
from fillin.models import Process
from fillin.train.recipe import Recipe
from fillin_studies.base import Scale, Settings, Study
from fillin_studies.image_sets import find
from fillin_studies.images.report import report

# Latents by the likelihood itself, and Laplace attention: by the bound and with heads, ANP left pixels that it knew to
# its latent variable, and missed them by 0.21 of their range after 4,700 steps on MNIST; so by 0.10 after 550.
MODELS: dict[str, Settings] = {
    "np": {"model.name": "np", "model.samples": 8},
    "anp": {"model.name": "anp", "model.samples": 8, "model.cross": "laplace"},
    # a third of a pixel: with Gaussians of a whole one neighbours run into each other (validation 0.03 nats after 150 s
    # on digits, 16 at a time, instead of 0.81)
    "convcnp": {
        "model.name": "convcnp",
        "model.network": "cnn",
        "model.depth": 4,
        "model.length": 0.3,
        "data.batch": 4,  # here and below a step is dear: more and smaller ones
    },
    "te-tnp": {"model.name": "te-tnp", "data.batch": 4},
}

SEEDS = 2
BATCHES = 150  # of four images that each kind of question is asked about
QUICK = 50


def variants(sources: Mapping[str, Path], quick: bool) -> Mapping[str, Settings]:
    """Every model on every set: digits, or at full budget those of a folder."""
    sets = {"digits": "digits"} if quick or not sources else {name: str(path) for name, path in sources.items()}
    return {
        f"{name}, {model}": {"data.source": place, **own, **_grid(model, name)}
        for name, place in sets.items()
        for model, own in MODELS.items()
    }


def _grid(model: str, name: str) -> Settings:
    """Convolutions have one point of their grid a pixel. An image is four wide."""
    return {"model.points_per_unit": {"digits": 2.0, "cifar10": 8.0}.get(name, 7.0)} if model == "convcnp" else {}


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    return asdict(judge(Completing(model, recipe["data"]["source"]), QUICK if quick else BATCHES))


def configured(data: Path | None = None, masks: int | None = None) -> Study:
    """The study with the images of a folder at full budget, and another number of seeds than its budgets have."""
    sources, seeds = find(data), masks or SEEDS
    what = ", ".join(sources) if sources else "digits"
    return Study(
        name="images",
        line="images completed from any part of them, at any resolution",
        question="An image is a function from places to colours, of which some pixels are known: a few, a half, a "
        "block, a coarse picture. NP squeezes them into one vector, ANP looks at them from each pixel, ConvCNP and "
        "TE-TNP see displacements alone. Which tells the others best, with one set of weights for every kind of "
        "question? Log-likelihood per pixel in nats, of colours from −½ to ½, higher is better; all pixels are asked "
        "for, those that are known as well.",
        recipe={"data.name": "images", "data.patterns": "every", "model.size": "small", "model.floor": 0.02},
        variants=partial(variants, sources),
        quick=Scale({"budget.time": "150s"}, seeds, f"quick: digits, 150 seconds each on one thread, seeds: {seeds}."),
        full=Scale({"budget.time": "25m"}, seeds, f"full: {what}, 25 minutes each on one thread, seeds: {seeds}."),
        measure=measure,
        report=report,
    )


STUDY = configured()
