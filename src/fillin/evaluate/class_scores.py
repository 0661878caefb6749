"""Scores of class probabilities: accuracy, likelihood, calibration and the confusion matrix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.evaluate.scores import format_percent, format_score
from fillin.metrics import calibration_error
from fillin.plots import panels, save, style
from fillin.predictive import Categorical

COLUMNS = ("accuracy, %", "log-likelihood", "calibration error, %")
_MAX_NAMED_CLASSES = 20  # counts and ticks of larger confusion matrices are unreadable


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
        """The scores of `COLUMNS`, as text."""
        return (
            f"{format_percent(self.accuracy, 2)} ± {format_percent(self.accuracy_error, 2)}",
            format_score(self.log_likelihood, self.standard_error),
            format_percent(self.calibration_error, 2),
        )


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
