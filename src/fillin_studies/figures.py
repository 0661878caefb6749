"""Pictures that several studies draw."""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes

from fillin.data import Curves
from fillin.models import Process
from fillin.plots import COLOURS, bands, panels, save, style
from fillin.train.figure import frame
from fillin_studies.base import Cell

_DASHES = ("-", "--", ":", "-.")


def colour(number: int) -> tuple[str, str]:
    """Colour and dash of the n-th line of a panel: colours first, then dashes."""
    return COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]


def learning(axes: Axes, cells: Sequence[Cell], against: str, names: Sequence[str] | None = None) -> None:
    """Validations of each cell of seed 0 against "step" or "seconds"; `names` fixes which colour is whose."""
    first = [cell for cell in cells if cell.seed == 0]
    order = list(names or dict.fromkeys(cell.variant for cell in first))
    values: list[float] = []
    for cell in first:
        seen = [(getattr(line, against), line.validation) for line in cell.lines if line.validation is not None]
        values += [value for _, value in seen[1:]]  # the first is before anything is learnt
        ink, dash = colour(order.index(cell.variant))
        axes.plot([x for x, _ in seen], [y for _, y in seen], dash, color=ink, linewidth=1.2, label=cell.variant)
    frame(axes, values)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside the lines, not over them
    axes.set_xlabel({"step": "steps", "seconds": "seconds of training"}[against])


@torch.no_grad()
def fits(models: dict[str, Process], streams: dict[str, Curves], path: Path, step: int = 0) -> Path:
    """One task a stream (column), each model (row): its bands through the context, and what is true as dots."""
    with style():
        figure, axes = panels(
            len(models), len(streams), width=3.4 * len(streams), height=1.7, sharex="col", sharey="col"
        )
        for row, (name, model) in zip(axes, models.items(), strict=True):
            row[0].set_ylabel(name)
            for panel, stream in zip(row, streams.values(), strict=True):
                task = stream.task(step)
                places = torch.cat([task.xc[:1], task.xt[:1]], 1)
                xt = torch.linspace(float(places.min()), float(places.max()), 300).view(1, -1, 1)
                bands(panel, xt, model(task.xc[:1], task.yc[:1], xt), task.xc[:1], task.yc[:1])
                panel.plot(task.xt[0, :, 0], task.yt[0, :, 0], ".", color="#999999", markersize=2, zorder=1)
                span = float(task.yt[0].max() - task.yt[0].min()) or 1.0
                panel.set_ylim(float(task.yt[0].min()) - 0.6 * span, float(task.yt[0].max()) + 0.6 * span)
        for panel, where in zip(axes[0], streams, strict=True):
            panel.set_title(where)
    return save(figure, path)
