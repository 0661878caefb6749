"""Training log: log.csv, and the same for TensorBoard where that is installed."""

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fillin.errors import InputError
from fillin.io import write_file


class LogLine(NamedTuple):
    """Means since the previous line, after `step` steps; `validation` where one was due."""

    step: int
    seconds: float
    loss: float
    gradient: float
    rate: float
    validation: float | None = None


COLUMNS = LogLine._fields


class Log:
    """Log whose lines are appended and flushed one by one. Opening it at step s drops later lines: a killed run resumes
    from its checkpoint with a consistent log."""

    def __init__(self, folder: Path, step: int = 0):
        self.path = folder / "log.csv"
        lines = [line for line in read_log(folder) if line.step <= step] if self.path.exists() else []
        try:
            write_file(self.path, lambda temporary: _write_lines(temporary, lines))
            self._file = self.path.open("a", newline="")
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error}") from error
        self._writer = csv.writer(self._file)
        self._tensorboard = None
        with suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def add(self, line: LogLine) -> None:
        try:
            self._writer.writerow(_row(line))
            self._file.flush()
            for name in COLUMNS[2:]:
                if self._tensorboard and (value := getattr(line, name)) is not None:
                    self._tensorboard.add_scalar(name, value, line.step)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error}; free disk space, continue with --resume") from error

    def close(self) -> None:
        """Close the files; errors of writing were raised before."""
        for file in filter(None, (self._file, self._tensorboard)):
            with suppress(OSError):
                file.close()


def read_log(folder: Path) -> list[LogLine]:
    """Read the lines of a run, without an incomplete last line of a killed process."""
    path = folder / "log.csv"
    try:
        with path.open(newline="") as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"{folder} has no log: {error}") from error
    rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    if rows and tuple(rows[0]) != COLUMNS:
        raise InputError(f"{path}: not a training log: its first line is {','.join(rows[0])!r}; move the file away")
    lines = []
    for number, row in enumerate(rows[1:], 2):
        try:
            step, elapsed, loss, gradient, rate, validation = row
            numbers = float(elapsed), float(loss), float(gradient), float(rate)
            lines.append(LogLine(int(step), *numbers, float(validation) if validation else None))
        except (ValueError, IndexError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: not a line of a training log: {','.join(row)!r}; delete it and all after it"
            ) from error
    return lines


def _write_lines(path: Path, lines: list[LogLine]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(_row(line) for line in lines)


def _row(line: LogLine) -> list[str]:
    numbers = (f"{value:.6g}" for value in line[2:5])
    validation = "" if line.validation is None else f"{line.validation:.6f}"
    return [str(line.step), f"{line.seconds:.3f}", *numbers, validation]


def draw_learning_curve(lines: Sequence[LogLine], path: Path, title: str = "") -> Path:
    """Draw the log-likelihood per target against steps: training as a line, validations as dots."""
    from fillin.plots import BLUE, ORANGE, panels, save, style  # slow to import

    with style():
        figure, [[axes]] = panels(1, 1, width=7.0, height=3.2)
        steps, losses = [line.step for line in lines], [-line.loss for line in lines]
        axes.plot(steps, losses, color=BLUE, alpha=0.35, linewidth=0.8, label="training")
        validated = [line for line in lines if line.validation is not None]
        steps, scores = [line.step for line in validated], [line.validation for line in validated]
        axes.plot(steps, scores, "o-", color=ORANGE, markersize=3, linewidth=1.2, label="validation")
        set_limits(axes, scores)
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
