"""Pictures: accuracy with its spread, how far each head of each layer looks, and what it costs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, Patch, Rectangle

from fillin.plots import BLUE, COLOURS, FAINT, GREEN, INK, ORANGE, panels, save, style
from fillin_studies.positions_and_span.costs import BIAS, FULL, KERNEL
from fillin_studies.positions_and_span.results import Group, Key
from fillin_studies.positions_and_span.variants import THRESHOLD, WAYS

_INKS = {FULL: ORANGE, BIAS: FAINT, KERNEL: BLUE}
_EDGE = math.sqrt(-2 * math.log(THRESHOLD))  # σ's from the middle of a window to its cut
_CUTS = {(way.dims, way.name): way.window for way in WAYS if way.window and way.cuts}


def draw(found: Mapping[str, dict[Key, Group]], folder: Path) -> dict[str, str]:
    """The pictures that there is anything for, with their captions."""
    pictures = {}
    if found:
        _accuracies(found, folder / "accuracy.png")
        pictures["accuracy.png"] = "Accuracy: each seed a dot, their mean and its standard error a bar."
    for data, groups in found.items():
        shown = [group for key, group in groups.items() if key in _CUTS and group.dims == 2]
        if shown:
            _windows(shown, folder / f"windows-{data}.png")
            pictures[f"windows-{data}.png"] = (
                f"{data}: where the window of each head (a colour each) is cut, layer by layer, around a pixel in the "
                f"middle of an image; dotted: at first. Of the first seed; in the corner the share of pairs inside."
            )
    every = [group for groups in found.values() for group in groups.values()]
    rows = [row for kind in (_learned, _narrow) for group in every for row in kind(group)]
    if rows:
        _costs(rows, folder / "costs.png")
        pictures["costs.png"] = (
            "A step of training: its time and the most memory that it takes, with full attention in torch, with the "
            "window as a bias, and with the kernel of windows; beside each bar how many times the kernel's it is."
        )
    return pictures


def _accuracies(found: Mapping[str, dict[Key, Group]], path: Path) -> None:
    most = max(len(groups) for groups in found.values())
    with style():
        figure, [axes] = panels(1, len(found), width=3.2 + 3.6 * len(found), height=0.6 + 0.24 * most, sharey=True)
        for panel, (data, groups) in zip(axes, found.items(), strict=True):
            for at, group in enumerate(groups.values()):
                ink = GREEN if group.dims == 1 else BLUE
                values = [100 * value for value in group.accuracies]
                error = 100 * group.deviation / math.sqrt(len(values))
                panel.errorbar([100 * group.mean()], [at], xerr=[error], fmt="|", color=ink, markersize=9, capsize=0)
                panel.plot(values, [at] * len(values), "o", color=ink, markersize=3, alpha=0.5, markeredgewidth=0)
            panel.set_yticks(range(len(groups)), [group.title for group in groups.values()])
            panel.tick_params(axis="y", length=0)
            panel.grid(axis="x", color="#E6E6E6", linewidth=0.6)
            panel.set_axisbelow(True)
            panel.margins(x=0.06)
            panel.set_ylim(len(groups) - 0.4, -0.6)
            panel.set(title=data, xlabel="accuracy, %")
    save(figure, path)


def _windows(groups: list[Group], path: Path) -> None:
    """Rows: classifiers. Columns: layers."""
    layers = len(groups[0].cells[0]["shares"])
    each = [max(head) for group in groups for layer in group.cells[0]["sigma"] for head in layer]
    far = min(1.2, max(0.6, 1.05 * _EDGE * max(each)))
    with style():
        figure, axes = panels(len(groups), layers, width=1.7 + 1.5 * layers, height=1.5, sharex=True, sharey=True)
        for row, group in zip(axes, groups, strict=True):
            first, window = group.cells[0], _CUTS[group.dims, group.name]
            for layer, panel in enumerate(row):
                _heads(panel, first["sigma"][layer], window)
                panel.text(
                    0.99, 0.01, f"{100 * first['shares'][layer]:.0f} %", transform=panel.transAxes, ha="right",
                    va="bottom", fontsize=7, color=INK,
                )  # fmt: skip
                panel.set(xlim=(-far, far), ylim=(far, -far), xticks=[], yticks=[], aspect="equal")
            row[0].set_ylabel(group.name.replace(", ", "\n"), rotation=0, ha="right", va="center", labelpad=8)
        for layer, panel in enumerate(axes[0]):
            panel.set_title(f"layer {layer + 1}")
    save(figure, path)


def _heads(axes: Axes, sigma: list[list[float]], window: dict[str, Any]) -> None:
    """Places have the row first; pictures have it downwards."""
    start, box = 2 * [window["init"]], window["shape"] == "box"
    axes.add_patch(Rectangle((-0.5, -0.5), 1, 1, facecolor="#F3F3F3", edgecolor=FAINT, linewidth=0.6))
    axes.add_patch(_outline(start, box, edgecolor=FAINT, linestyle=":", linewidth=0.8))
    for head, own in enumerate(sigma):
        axes.add_patch(_outline(own, box, edgecolor=COLOURS[head % len(COLOURS)], linewidth=1.2))
    axes.plot(0, 0, "+", color=INK, markersize=4)
    for side in axes.spines.values():
        side.set_visible(False)


def _outline(sigma: list[float], box: bool, **look: Any) -> Patch:
    down, right = (_EDGE * s for s in sigma)
    if box:
        return Rectangle((-right, -down), 2 * right, 2 * down, facecolor="none", **look)
    return Ellipse((0, 0), 2 * right, 2 * down, facecolor="none", **look)


def _learned(group: Group) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for one in (row for cell in group.cells for row in cell.get("learned", ())):
        share = 100 * sum(one["shares"]) / len(one["shares"])
        name = f"{group.name.replace('window on weights, ', '')}\nlearned, {share:.0f} % of pairs"
        found.append((f"{name}, {one['side']} × {one['side']}", one["costs"]))
    return found


def _narrow(group: Group) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for one in (row for cell in group.cells for row in cell.get("narrow", ())):
        name = f"{one['positions']}, narrow\n{100 * one['share']:.0f} % of pairs"
        found.append((f"{name}, {one['side']} × {one['side']}", one["costs"]))
    return found


def _costs(rows: list[tuple[str, dict[str, Any]]], path: Path) -> None:
    with style():
        figure, [axes] = panels(1, 2, width=9.6, height=0.8 + 0.62 * len(rows), sharey=True)
        for panel, what, factor, label in (
            (axes[0], "seconds", 1000, "milliseconds a step"), (axes[1], "bytes", 1e-6, "MB"),
        ):  # fmt: skip
            _bars(panel, rows, what, factor)
            panel.set_xlabel(label)
            panel.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(rows)), [name for name, _ in rows])
        axes[0].set_ylim(len(rows) - 0.4, -0.6)
        handles = [Rectangle((0, 0), 1, 1, color=ink) for ink in _INKS.values()]
        figure.legend(handles, list(_INKS), loc="outside upper center", ncols=3)
    save(figure, path)


def _bars(axes: Axes, rows: list[tuple[str, dict[str, Any]]], what: str, factor: float) -> None:
    values = [
        (at, place, way, factor * costs[way]["training"][what], costs[KERNEL]["training"][what])
        for at, (_, costs) in enumerate(rows)
        for place, way in enumerate(_INKS)
        if way in costs and costs[way]["training"][what] and costs[KERNEL]["training"][what]
    ]
    axes.set_xscale("log")
    for at, place, way, value, kernel in values:
        y = at + 0.26 * (place - 1)
        axes.barh(y, value, height=0.24, color=_INKS[way])
        times = value / (factor * kernel)
        if way != KERNEL:
            axes.annotate(f"{times:.{0 if times >= 10 else 1}f} ×", (value, y), (3, 0), textcoords="offset points",
                          va="center", fontsize=7)  # fmt: skip
    if values:
        axes.set_xlim(0.5 * min(v[3] for v in values), 3 * max(v[3] for v in values))
