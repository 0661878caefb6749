"""Image completion by NP, ANP, ConvCNP and TE-TNP from any part, at any resolution, after Kim et al. 2019.

A cell is one model, trained on tasks of every kind and scored on each kind apart: one set of weights for all.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fillin.data.images import Pattern
from fillin.errors import InputError
from fillin.evaluate import image_completion as completion
from fillin.evaluate.image_completion import OBSERVED, SHIFT_PIXELS, CompletionEvaluation
from fillin.filling.image.figures import PixelAttention, attention_weights, draw_heads, show_observed
from fillin.filling.image.read import observe_pattern
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.train.recipe import Recipe
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy, mean_over_seeds
from fillin_studies.curves import draw_learning, drawing
from fillin_studies.report import with_minus

# Latent models are trained by the likelihood, and ANP has Laplace attention: by the ELBO and with heads, ANP left
# observed pixels to its latent variable, with an RMSE of 0.21 at them after 4,700 steps on MNIST; so 0.10 after 550
MODELS: dict[str, RecipeSettings] = {
    "np": {"model.name": "np", "model.samples": 8},
    "anp": {"model.name": "anp", "model.samples": 8, "model.cross": "laplace"},
    "convcnp": {
        "model.name": "convcnp",
        "model.network": "cnn",
        "model.depth": 4,
        # a third of a pixel: Gaussians as wide as a pixel blur neighbours (validation of 0.03 nats instead of 0.81
        # after 150 s on digits, 16 at a time)
        "model.length": 0.3,
        "data.batch": 4,  # here and below a step is slow: more and smaller ones
    },
    "te-tnp": {"model.name": "te-tnp", "data.batch": 4},
}
IMAGE_SETS = {"mnist": "mnist", "fashion_mnist": "fashion_mnist", "cifar10": "cifar10/cifar10_batch1_plus_test.npz"}
BATCHES, QUICK_BATCHES = 150, 50  # of four images, for each kind of task

_SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
_LATENT_SAMPLES = 5  # drawn
_ATTENTION_IMAGES = 3  # drawn


def find_image_sets(data: Path | None, names: Sequence[str] = tuple(IMAGE_SETS)) -> dict[str, Path]:
    """Find the image sets of these names below a folder."""
    if data is None:
        return {}
    paths = {name: data / IMAGE_SETS[name] for name in names if (data / IMAGE_SETS[name]).exists()}
    if not paths:
        expected = ", ".join(IMAGE_SETS[name] for name in names)
        raise InputError(f"{data} holds none of {expected}; --data is the folder that contains them")
    return paths


class ImageStudy(TrainingStudy):
    name = "images"
    title = "images completed from any part of them, at any resolution"
    question = (
        "An image is a function from pixel locations to colours, of which some pixels are observed: a few, a half, a "
        "block, or every other one. NP compresses them into one vector, ANP attends to them from each pixel, ConvCNP "
        "and TE-TNP see displacements alone. Which predicts the others best, with one set of weights for every kind of "
        "task? Log-likelihood per pixel in nats, of colours from −½ to ½, higher is better; all pixels are targets, "
        "the observed ones included."
    )
    recipe: ClassVar[RecipeSettings] = {
        "data.name": "images", "data.patterns": "every", "model.size": "small", "model.floor": 0.02,
    }  # fmt: skip
    reads_data = True

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        self.sources, seeds = find_image_sets(data), repeats or 2
        names = ", ".join(self.sources) if self.sources else "digits"
        quick = f"quick: digits, 150 seconds each on one thread, seeds: {seeds}."
        self.quick = StudyScale({"budget.time": "150s"}, seeds, quick)
        full = f"full: {names}, 25 minutes each on one thread, seeds: {seeds}."
        self.full = StudyScale({"budget.time": "25m"}, seeds, full)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every model on every image set: digits, or at full budget those of a folder."""
        sources = {"digits": "digits"} if quick or not self.sources else self.sources

        def grid(model: str, name: str) -> RecipeSettings:  # of one point a pixel; an image is four units wide
            points = {"digits": 2.0, "cifar10": 8.0}.get(name, 7.0)
            return {"model.points_per_unit": points} if model == "convcnp" else {}

        return {
            f"{name}, {model}": {"data.source": str(source), **settings, **grid(model, name)}
            for name, source in sources.items()
            for model, settings in MODELS.items()
        }

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        batches = QUICK_BATCHES if quick else BATCHES
        return asdict(CompletionEvaluation(model, recipe["data"]["source"], batches).score())

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        sets = list(dict.fromkeys(cell.variant.split(", ")[0] for cell in cells))
        keys = ("log_likelihood", "rmse", "context_rmse", "moved", "ms", "steps")
        means = {key: mean_over_seeds(cells, key) for key in keys}
        rows = [
            (*variant.split(", "), *(means[key][variant] for key in keys[:-1]), round(means["steps"][variant]))
            for variant in means["log_likelihood"]
        ]
        figures = {
            "learning.png": "Validation during training (of latent models jointly, all targets of a task at once: not "
            "comparable with the table)."
        }
        learning = [
            (name, "seconds", lambda variant, start=f"{name}, ": variant if variant.startswith(start) else None)
            for name in sets
        ]
        path, width = folder / "learning.png", 1.5 + 4.5 * len(sets)
        draw_learning(cells, learning, None, path, width=width, height=3.4, shared_legend=False)
        first = [cell for cell in cells if cell.seed == 0 and not cell.failed]
        for name in sets:
            start = f"{name}, "
            of_set = {c.variant.removeprefix(start): c for c in first if c.variant.startswith(start)}
            figures |= _draw_image_set(name, of_set, folder) if of_set else {}
        columns = (
            "images", "model", "log-likelihood", "RMSE", "RMSE at observed pixels",
            f"change when shifted by {SHIFT_PIXELS} pixels", "ms a step", "steps",
        )  # fmt: skip
        more = [
            "## By observed part",
            "",
            "Log-likelihood per pixel ± standard error over images, and the share of pixels inside the 95 % interval.",
            "",
            f"|  | {' | '.join(cell.variant for cell in first)} |",
            f"| --- |{' ---: |' * len(first)}",
        ]
        for title in OBSERVED:
            scores = [cell.result["kinds"][title] for cell in first]
            texts = [f"{s['log_likelihood']:.3f} ± {s['error']:.3f}, {s['covered']:.0%}" for s in scores]
            more.append(f"| {title} | {' | '.join(map(with_minus, texts))} |")
        return StudyReport(_summarise(sets, means), columns, rows, figures, more)


def _summarise(sets: Sequence[str], means: dict[str, dict[str, float]]) -> list[str]:
    findings = []
    for name in sets:
        start = f"{name}, "
        of_set = {variant: mean for variant, mean in means["log_likelihood"].items() if variant.startswith(start)}
        scores = {variant.removeprefix(start): mean for variant, mean in of_set.items()}
        order = sorted(scores, key=scores.__getitem__, reverse=True)
        ranks = ", ".join(f"{model} {scores[model]:.3f}" for model in order)
        findings.append(f"{name}: log-likelihood per pixel, mean over kinds of task: {ranks}.".replace("-0", "−0"))
        context = ", ".join(f"{model} {means['context_rmse'][f'{name}, {model}']:.3f}" for model in order)
        findings.append(f"{name}: RMSE at observed pixels, of a range of 1: {context}.")
        changes = {model: means["moved"][f"{name}, {model}"] for model in order}
        equivariant = [model for model in order if changes[model] < 1e-4]
        others = [f"{model} {changes[model]:.2f}" for model in order if model not in equivariant]
        if equivariant:
            findings.append(
                f"{name}: shifting the image by {SHIFT_PIXELS} pixels changes nothing for {', '.join(equivariant)}"
                + (f"; the largest changes of the others: {', '.join(others)}." if others else ".")
            )
    return findings


def _draw_image_set(name: str, cells: Mapping[str, StudyCell], folder: Path) -> dict[str, str]:
    """Draw every figure of one image set and the models trained on it; return captions by file."""
    models = {model: cell.model().eval() for model, cell in cells.items()}
    source = next(iter(cells.values())).recipe["data"]["source"]
    h, w = completion.get_image_shape(source)
    captions = {
        f"{name}.png": f"{name}: the observed part of one held-out image, and the mean and standard deviation that "
        "each model predicts, one set of weights each; the last column has "
        f"{completion.UPSCALING} times the pixels a side.",
        f"{name}-shares.png": f"{name}: from few observed pixels to all of them.",
    }
    completion.draw_patterns(models, source, folder / f"{name}.png")
    shares = [(f"{share:.0%}", completion.draw_task(source, f"random {share}", 3), (h, w)) for share in _SHARES]
    completion.draw_completions(models, shares, (h, w), folder / f"{name}-shares.png")
    latent = {label: model for label, model in models.items() if isinstance(model, LatentProcess)}
    if latent:
        _draw_latents(latent, source, (h, w), folder / f"{name}-latents.png")
        captions[f"{name}-latents.png"] = (
            f"{name}: {_LATENT_SAMPLES} latent samples given one pixel in twenty, and given the upper half."
        )
    if _draw_attention(models, source, folder / f"{name}-attention.png"):
        captions[f"{name}-attention.png"] = (
            f"{name}: attention of each head of each layer from the pixel with a cross, one pixel in ten observed; "
            "each head has a colour, and the area of its marks is its weight."
        )
    return captions


@torch.no_grad()
def _draw_latents(models: Mapping[str, LatentProcess], source: str, shape: tuple[int, int], path: Path) -> None:
    """Draw models on two tasks (rows): the observed pixels, and one latent sample after another (columns)."""
    rows = [(name, model, OBSERVED[kind]) for name, model in models.items() for kind in ("1 pixel in 20", "upper half")]
    columns = 1 + _LATENT_SAMPLES
    with drawing(path, len(rows), columns, width=1.6 * columns, height=1.6) as (_, axes):
        for row, (_, model, pattern) in zip(axes, rows, strict=True):
            torch.manual_seed(completion.FIGURE_SEED)
            task = completion.draw_task(source, pattern, 1)
            completion.draw_observed(row[0], task, shape)
            for panel, mean in zip(row[1:], model(*task.inputs).given.mean[:_LATENT_SAMPLES], strict=False):
                completion.draw_colours(panel, mean[0].view(*shape, -1))
        for number, panel in enumerate(axes[0][1:], 1):
            panel.set_title(f"sample {number}")
        completion.label_rows(axes, [name for name, _, _ in rows])


def _draw_attention(models: Mapping[str, Process], source: str, path: Path) -> bool:
    """Draw images (rows) and layers (columns) of the last model that attends to pixels with several heads, if any."""
    pixels = completion.open_test_images(source, "top").images.pixels[:_ATTENTION_IMAGES]
    h, w = pixels.shape[1:3]
    middle, clear = (h // 2, w // 2), np.zeros((h, w), bool)
    parts = [observe_pattern(image, Pattern("random", 0.1), number, clear) for number, image in enumerate(pixels)]
    attention: list[list[PixelAttention]] = []
    for model in models.values():
        with suppress(InputError):  # of a model without attention to pixels
            heads = [attention_weights(model, part, middle) for part in parts]
            attention += [heads] if all(len(weights) > 1 for _, layers in heads for weights in layers) else []
    if not attention:
        return False
    layers = len(attention[-1][0][1])
    with drawing(path, len(parts), layers, width=2.0 * layers, height=2.0) as (_, axes):
        for row, part, (x, weights) in zip(axes, parts, attention[-1], strict=True):
            for panel, layer in zip(row, weights, strict=True):
                draw_heads(panel, 0.65 + 0.35 * show_observed(part), x, layer, middle)
        for number, panel in enumerate(axes[0], 1):
            panel.set_title(f"layer {number}")
        completion.label_rows(axes, [])
    return True
