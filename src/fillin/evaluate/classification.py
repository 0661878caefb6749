"""How good a classifier is: accuracy, likelihood, calibration, what it takes for what, and how far its layers look."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.images import LabelledImages
from fillin.errors import InputError
from fillin.metrics import calibration_error
from fillin.models import PixelClassifier, load
from fillin.models.registry import get_entry
from fillin.plots import panels, save, spans, style, windows
from fillin.predictive import Categorical
from fillin.pretrained import locate
from fillin.train import open_run
from fillin.train.recipe import make_stream


class Classified(NamedTuple):
    """A classifier, and the images that it has not been trained on."""

    model: PixelClassifier
    stream: LabelledImages


@dataclass(frozen=True)
class Layer:
    """σ of each head along each axis (None: no window), and the share of pairs that are inside."""

    sigma: list[list[float]] | None
    share: float


@dataclass(frozen=True)
class ClassScores:
    """Of `images` images. `calibration_error` is the mean distance of confidence and accuracy in 15 bins of confidence;
    `confusion[i][j]` counts images of class i that were taken for j."""

    images: int
    accuracy: float
    accuracy_error: float
    log_likelihood: float
    standard_error: float
    calibration_error: float
    confusion: list[list[int]]
    layers: list[Layer]


def classified(folder: str | os.PathLike, source: str | None = None) -> Classified | None:
    """The classifier in a run, or in a folder of `fillin.save`, with the images of its recipe or of another source;
    None where there is none: a process, or nothing at all."""
    path = locate(folder)
    if (path / "recipe.yaml").exists():
        recipe = open_run(path).recipe
        if get_entry(recipe["model"]["name"]).build is not PixelClassifier:
            return None
        if not (path / "best").exists():
            raise InputError(f"{path} has no weights yet; go on with: fillin train --resume {path}")
        learnt = make_stream(recipe)
        assert isinstance(learnt, LabelledImages)
        source = source or learnt.source
    elif not (path / "model.safetensors").exists() or not isinstance(load(path), PixelClassifier):
        return None
    model = load(path, PixelClassifier)
    if source is None:
        raise InputError(f"{path} is a classifier without a recipe: say which images it is asked with --source")
    stream = LabelledImages(source, part="test")
    if stream.dim_x != model.dim_x or stream.dim_y > model.dim_y:
        raise InputError(
            f"{source} has {stream.dim_x} colours and {stream.dim_y} classes; the model was made for {model.dim_x} and "
            f"{model.dim_y}"
        )
    return Classified(model, stream)


@torch.no_grad()
def judge(about: Classified, most: int = 0, batch: int = 64, tick: Callable[[], object] = lambda: None) -> ClassScores:
    """The scores on the part for testing, on no more than `most` of its images where that is not 0."""
    model, found = about.model.eval(), about.stream.images
    number = min(most or len(found), len(found))
    stream = LabelledImages(about.stream.source, batch=min(batch, number), part="test")
    logits, labels = [], []
    for step in range(math.ceil(number / stream.batch)):
        images, truth = stream.task(step).parts
        logits.append(model(images.to(model.out.weight)).float().cpu())
        labels.append(truth)
        tick()
    height, width, _ = found.shape
    return scores_of(torch.cat(logits)[:number].log_softmax(-1), torch.cat(labels)[:number], [
        Layer(None if one.sigma is None else one.sigma.tolist(), one.share) for one in model.spans(height, width)
    ])  # fmt: skip


def scores_of(each: Float[Tensor, "n k"], labels: Int64[Tensor, "n"], layers: list[Layer]) -> ClassScores:
    """From ln p of every class."""
    n, classes = each.shape
    taken = each.argmax(1)
    right, likely = (taken == labels).double(), each.gather(1, labels[:, None])[:, 0].double()
    accuracy = float(right.mean())
    mistakes = torch.zeros(classes * classes, dtype=torch.long)
    mistakes.index_add_(0, labels * classes + taken, torch.ones_like(labels))
    return ClassScores(
        n, accuracy, math.sqrt(accuracy * (1 - accuracy) / n), float(likely.mean()),
        float(likely.std(unbiased=False)) / math.sqrt(n),
        calibration_error(Categorical(each.double().exp().numpy()), labels.numpy()),
        mistakes.view(classes, classes).tolist(), layers,
    )  # fmt: skip


def draw(folder: Path, model: PixelClassifier, scores: ClassScores) -> list[Path]:
    """What is taken for what, and the learned windows where there are some; where each picture is."""
    made = [confusion(folder / "confusion.png", scores)]
    if spans(model):
        made.append(save(windows(model), folder / "windows.png"))
    return made


def confusion(path: Path, scores: ClassScores) -> Path:
    """A picture of what is taken for what."""
    counts = torch.tensor(scores.confusion)
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
    side = len(counts)
    with style():
        figure, [[axes]] = panels(1, 1, width=1.6 + 0.42 * side, height=1.2 + 0.42 * side)
        axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # its root: few mistakes are seen too
        for i in range(side):
            for j in range(side if side <= 20 else 0):
                if counts[i, j]:
                    ink = "white" if shares[i, j] > 0.4 else "black"
                    axes.text(j, i, str(int(counts[i, j])), ha="center", va="center", fontsize=7, color=ink)
        axes.set(xlabel="taken for", ylabel="class", title=f"{100 * scores.accuracy:.1f} % of {scores.images:,} images")
        if side <= 20:
            axes.set(xticks=range(side), yticks=range(side))
        axes.grid(False)
    return save(figure, path)
