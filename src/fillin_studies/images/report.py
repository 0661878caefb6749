"""Findings, a table and pictures of completed images."""

from collections.abc import Sequence
from pathlib import Path

from fillin.evaluate.image_completion import KINDS, MOVED
from fillin.plots import panels, save, style
from fillin_studies.base import Cell, Report, average
from fillin_studies.figures import learning
from fillin_studies.images.figures import draw


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
            pictures |= draw(name, own, folder)
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
