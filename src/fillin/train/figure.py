"""Learning curve of a run."""

from collections.abc import Sequence
from pathlib import Path

from fillin.plots import BLUE, ORANGE, panels, save, style
from fillin.train.log import LogLine


def draw_learning_curve(lines: Sequence[LogLine], path: Path, title: str = "") -> Path:
    """Draw the log-likelihood per target against steps: training as a line, validations as dots."""
    with style():
        figure, [[axes]] = panels(1, 1, width=7.0, height=3.2)
        axes.plot(
            [line.step for line in lines],
            [-line.loss for line in lines],
            color=BLUE,
            alpha=0.35,
            linewidth=0.8,
            label="training",
        )
        validated = [line for line in lines if line.validation is not None]
        axes.plot(
            [line.step for line in validated],
            [line.validation for line in validated],
            "o-",
            color=ORANGE,
            markersize=3,
            linewidth=1.2,
            label="validation",
        )
        set_limits(axes, [line.validation for line in validated])
        axes.set_title(title)
        axes.set_xlabel("step")
    return save(figure, path)


def set_limits(axes, validations: Sequence[float | None]) -> None:
    """Set the y axis to the range of the validations: the first losses of a run are far below."""
    if shown := [value for value in validations if value is not None]:
        low, high = min(shown), max(shown)
        margin = 0.08 * (high - low) or 0.1
        axes.set_ylim(low - margin, high + margin)
    axes.set_ylabel("log-likelihood per target")
    axes.legend(loc="lower right")
