"""Findings, a table and pictures of completed images."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from fillin.data.images import Images
from fillin.data.images.places import places
from fillin.data.task import Task
from fillin.models import Process
from fillin.plots import panels, save, style
from fillin.studies.base import Cell, Report, average
from fillin.studies.figures import learning
from fillin.studies.images.kinds import KINDS, MOVED, asked

_SHOWN = ("1 pixel in 20", "1 in 5", "upper half", "all but a block", "a quarter of it")
_FINER = 4  # times as many pixels a side, of what is drawn at a higher resolution


def report(cells: Sequence[Cell], folder: Path) -> Report:
    sets = list(dict.fromkeys(_parts(cell)[0] for cell in cells))
    found = {key: average(cells, key) for key in ("log_likelihood", "rmse", "context_rmse", "moved", "ms", "steps")}
    rows = [
        (*variant.split(", "), *(found[key][variant] for key in ("log_likelihood", "rmse", "context_rmse", "moved")),
         found["ms"][variant], round(found["steps"][variant]))
        for variant in found["log_likelihood"]
    ]  # fmt: skip
    pictures = {"learning.png": "Validation while training (of models with a latent variable jointly, all targets of a "
                "task at once: not to be compared with the table)."}  # fmt: skip
    with style():
        figure, axes = panels(1, len(sets), width=1.5 + 4.5 * len(sets), height=3.4)
        for panel, name in zip(axes[0], sets, strict=True):
            learning(panel, [cell for cell in cells if _parts(cell)[0] == name], "seconds")
            panel.set_title(name)
        save(figure, folder / "learning.png")
    for name in sets:
        own = {
            _parts(cell)[1]: cell for cell in cells if _parts(cell)[0] == name and cell.seed == 0 and not cell.failed
        }
        if own:
            _completions(own, folder / f"{name}.png")
            pictures[f"{name}.png"] = (
                f"{name}: what is known of one image that was held out, and the mean and deviation that each model "
                f"tells, one set of weights each; the last column asks for {_FINER} times the pixels a side."
            )
    columns = ("images", "model", "log-likelihood", "rmse", "rmse at known pixels",
               f"change when moved by {MOVED} pixels", "ms a step", "steps")  # fmt: skip
    return Report(_findings(cells, sets, found), columns, rows, pictures, _by_kind(cells))


def _first(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.seed == 0 and not cell.failed]


def _parts(cell: Cell) -> list[str]:
    return cell.variant.split(", ")


def _findings(cells: Sequence[Cell], sets: Sequence[str], found: dict[str, dict[str, float]]) -> list[str]:
    said = []
    for name in sets:
        own = {variant.split(", ")[1]: value for variant, value in found["log_likelihood"].items()
               if variant.startswith(f"{name}, ")}  # fmt: skip
        order = sorted(own, key=own.__getitem__, reverse=True)
        ranks = ", ".join(f"{model} {own[model]:.3f}" for model in order)
        said.append(f"{name}: log-likelihood per pixel, mean over kinds of question: {ranks}.".replace("-0", "−0"))
        known = ", ".join(f"{model} {found['context_rmse'][f'{name}, {model}']:.3f}" for model in order)
        said.append(f"{name}: known pixels are missed by a root mean square of {known} (of a range of 1).")
        still = [model for model in order if found["moved"][f"{name}, {model}"] < 1e-4]
        rest = [f"{model} {found['moved'][f'{name}, {model}']:.2f}" for model in order if model not in still]
        if still:
            said.append(
                f"{name}: where the image is moved by {MOVED} pixels nothing changes for {', '.join(still)}"
                + (f"; the largest changes of the others: {', '.join(rest)}." if rest else ".")
            )
    return said


def _by_kind(cells: Sequence[Cell]) -> list[str]:
    """A table for each kind of question: log-likelihood, and the share of pixels inside the 95 % band."""
    first = _first(cells)
    lines = [
        "## By what is known",
        "",
        "Log-likelihood per pixel ± standard error over images, and the share of pixels that 95 % bands hold.",
        "",
        f"|  | {' | '.join(cell.variant for cell in first)} |",
        f"| --- |{' ---: |' * len(first)}",
    ]
    for title in KINDS:
        each = [cell.result["kinds"][title] for cell in first]
        shown = [f"{one['log_likelihood']:.3f} ± {one['error']:.3f}, {one['covered']:.0%}" for one in each]
        lines.append(f"| {title} | {' | '.join(shown)} |".replace("| -", "| −"))
    return lines


@torch.no_grad()
def _completions(own: dict[str, Cell], path: Path) -> None:
    """Rows: what is known, then mean and deviation of each model. Columns: kinds of question, and a finer picture."""
    recipe = next(iter(own.values())).recipe
    tasks = {title: replace(asked(recipe, KINDS[title]), seed=7) for title in _SHOWN}
    models = {name: cell.model().eval() for name, cell in own.items()}
    columns = [*tasks.items(), ("finer", tasks["upper half"])]
    with style():
        figure, axes = panels(1 + 2 * len(models), len(columns), width=1.6 * len(columns), height=1.6)
        for column, (title, stream) in enumerate(columns):
            h, w, _ = stream.images.shape
            task = _one(stream)
            fine = (_FINER * h, _FINER * w) if title == "finer" else (h, w)
            xt = places(*fine, of=(h, w))[None]
            _known(axes[0][column], task, (h, w))
            axes[0][column].set_title(title if title != "finer" else f"{fine[0]} × {fine[1]}")
            for row, (name, model) in enumerate(models.items()):
                mean, deviation = _told(model, task, xt)
                _draw(axes[1 + 2 * row][column], mean.view(*fine, -1))
                axes[2 + 2 * row][column].imshow(
                    deviation.view(*fine, -1).mean(-1).numpy(), cmap="magma", vmin=0, vmax=0.4
                )
                axes[1 + 2 * row][0].set_ylabel(name)
        for panel in axes.flat:
            panel.set_xticks([])
            panel.set_yticks([])
        axes[0][0].set_ylabel("known")
        save(figure, path)


def _one(stream: Images) -> Task:
    return stream.task(0).rows(slice(0, 1))


def _told(model: Process, task: Task, xt: Float[Tensor, "1 n 2"]) -> tuple[Tensor, Tensor]:
    found = [model(task.xc, task.yc, some) for some in xt.split(1024, 1)]
    return torch.cat([one.mean[0] for one in found]), torch.cat([one.stddev[0] for one in found])


def _known(axes: Axes, task: Task, shape: tuple[int, int]) -> None:
    """Known pixels where they are; what is not known is blue."""
    h, w = shape
    canvas = torch.tensor([0.75, 0.84, 0.95]).repeat(h, w, 1)
    unit = 4 / max(h, w)
    at = (task.xc[0] / unit + torch.tensor([h, w]) / 2 - 0.5).round().long()
    canvas[at[:, 0].clamp(0, h - 1), at[:, 1].clamp(0, w - 1)] = (task.yc[0] + 0.5).clamp(0, 1).expand(-1, 3)
    axes.imshow(canvas.numpy())


def _draw(axes: Axes, colours: Float[Tensor, "h w c"]) -> None:
    axes.imshow((colours + 0.5).clamp(0, 1).expand(-1, -1, 3).numpy())
