"""Report of the study: a table of variants, the tests, learned spans and costs, with figures."""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, Rectangle

from fillin.plots import BLUE, COLOURS, FAINT, GREEN, INK, ORANGE
from fillin_studies.base import StudyCell, StudyReport
from fillin_studies.curves import drawing
from fillin_studies.positions_and_span import results
from fillin_studies.positions_and_span.costs import BIAS, FULL, IMPLEMENTATIONS, KERNEL, PARTS, cost_ratio
from fillin_studies.positions_and_span.results import SIGNIFICANCE, VARIANTS, VariantKey, VariantResults
from fillin_studies.report import format_table

_COLUMNS = (
    "classifier", "accuracy, %", "± over seeds", "best, %", "seeds", "log-likelihood", "pairs computed, %",
    "σ by layer", "share by layer, %", "attention, M multiply-adds", "all, M", "ms a step", "MB a step", "ms inference",
)  # fmt: skip
_TEST_COLUMNS = ("H₁: higher than", "mean, %", "its mean, %", "pairs", "points", "p", "outcome")
_COST_COLUMNS = (
    "classifier", "part", *(f"{name}, {unit}" for name in IMPLEMENTATIONS for unit in ("ms", "MB")), "× kernel",
    "bias × kernel",
)  # fmt: skip
_COST_COLOURS = {FULL: ORANGE, BIAS: FAINT, KERNEL: BLUE}
_CUT_RADIUS = math.sqrt(-2 * math.log(results.THRESHOLD))  # in σ, from the centre of a window to its cut
_CUT_WINDOWS = {(variant.dims, variant.name): variant.window for variant in VARIANTS if variant.window and variant.cuts}
_EXPERIMENTS = [
    "## Experiments",
    "",
    "The score is that of Transformer-XL, [(q + u)·k + (q + v)·r(Δ)]/√d, in the form of Alfons 2022: r(Δ) comes from "
    "fixed sinusoids and a linear map, or from a SIREN. `alfons siren` is the network of Alfons 2022: three linear "
    "maps with sines of ω₀ = 10 between them, for Δ in [−1, 1]. `stable siren` is the parameterisation that needs no "
    "tuned ω. `siren` starts as sinusoids do, sines and cosines from very slow to a radian a pixel, and learns the "
    "difference from that start, slowly; windows and fixed blocks have it unless `alfons siren` is named.",
    "",
    "A window on scores multiplies logits by G(Δ) (Alfons 2022), so that distant pixels keep a weight of e⁰; one on "
    "weights adds ln G(Δ) to logits, which multiplies the weight. A hard cut drops pairs where G is below 0.1; a "
    "continuous one lowers the window so that it reaches 0 there. Windows of `alfons siren` are those of Alfons 2022: "
    "one σ per layer and axis, and a box as the cut; the others have one per head too, and are cut where G = 0.1. "
    "`full covariance` learns the orientation of each window as well. Fixed blocks are independent: a pixel attends to "
    "the pixels of its own block, which is a quarter of the image.",
    "",
    "Images of a folder are averaged to fewer pixels (16 × 16 of CIFAR-10, 14 × 14 of Fashion-MNIST, unless the "
    "command sets `--data.size`), 10,000 of them are trained on, about four times each unless the command sets the "
    "budget, by a transformer of the size of Alfons 2022 (6 blocks, 64 wide, 8 heads, feed-forward 128) without "
    "dropout, with a mean over pixels as the readout. Alfons 2022 trained on 50,000 images of 32 × 32 pixels for 80 "
    "epochs, with dropout 0.1: differences between variants are comparable, accuracies are not. Digits are 8 × 8 "
    "pixels, in 2 blocks, 32 wide, with 2 heads.",
    "",
    "Tests are t-tests paired by seed, one-sided as in Alfons 2022: the variants of a pair share the images and their "
    f"order. H₁, the first is higher, is accepted where p is below {SIGNIFICANCE}, and the opposite where it is above "
    f"{1 - SIGNIFICANCE}; p is not corrected for the number of tests. Weights are those after the last step. Shared "
    "settings (learning rate, steps) were selected on the test digits; initialisation and learning rate of `siren` on "
    "test images of Fashion-MNIST.",
    "",
    "Multiply-adds are those of one image through all layers: of the pairs that are computed, and of everything. A "
    "step (a batch, forward and backward) and inference of a batch are timed after training, three times.",
    "",
    "Costs of implementations are medians over rounds in which each implementation runs once (on 64 × 64 pixels the "
    "window as a bias in the first of seven alone), on one thread, of the same classifier with the same weights. Full "
    "attention in PyTorch is the fused kernel where positions fold into queries and keys (sinusoids), else pairs that "
    "are stored or, where "
    "they are many, recomputed in the backward pass. Narrow windows are those of one layer of the size of Alfons 2022 "
    "(64 wide, 8 heads). MB are peak memory beyond what was in use before.",
    "",
]


def make_report(cells: Sequence[StudyCell], folder: Path) -> StudyReport:
    measured = [cell.result for cell in cells]
    sets = results.group_cells(measured)
    findings = [sentence for data, variants in sets.items() for sentence in results.summarise(data, variants)]
    rows = [
        [
            f"{variant.data}, {variant.title}", f"{100 * variant.mean():.1f}", f"{100 * variant.std:.1f}",
            f"{100 * max(variant.accuracies):.1f}", len(variant.cells), variant.mean("log_likelihood"),
            f"{100 * variant.mean('pairs'):.0f}",
            "–" if variant.sigmas is None else " ".join(f"{s:.2f}" for s in variant.sigmas),
            " ".join(f"{100 * share:.0f}" for share in variant.shares), *_format_costs(variant),
        ]
        for variants in sets.values() for variant in variants.values()
    ]  # fmt: skip
    more: list[str] = []
    for data, variants in sets.items():
        tests = [
            [f"{test.a.title} > {test.b.title}", f"{100 * test.a.mean():.1f}", f"{100 * test.b.mean():.1f}",
             test.pairs, test.signed_points, test.p, test.outcome]
            for test in results.run_tests(variants)
        ]  # fmt: skip
        more += [f"## Tests: {data}", "", *format_table(_TEST_COLUMNS, tests), ""] if tests else []
    if costs := [row for cell in measured for row in _tabulate_costs(cell)]:
        more += ["## Time and memory", "", *format_table(_COST_COLUMNS, costs), ""]
    figures = _draw_figures(sets, folder)
    seeds, steps = (sorted({cell[key] for cell in measured}) for key in ("seed", "steps"))
    procedure = (
        f"{len(measured)} runs, seeds {', '.join(map(str, seeds))}, {' or '.join(f'{s:,}' for s in steps)} steps each, "
        f"{sum(cell['seconds'] for cell in measured) / 60:.0f} minutes of training in all. Each run has its recipe in "
        "`cells/`."
    )
    return StudyReport(findings, _COLUMNS, rows, figures, [*more, *_EXPERIMENTS], procedure)


def _format_costs(variant: VariantResults) -> list[str | None]:
    """Millions of multiply-adds of the pairs and of everything, and the cost of a step as it was trained."""
    operations = [cell["operations"] for cell in variant.cells]
    pairs, tokens = (statistics.fmean(row[key] for row in operations) / 1e6 for key in ("pairs", "tokens"))
    milliseconds, inference = (
        f"{1000 * statistics.median(cell['step'][part]['seconds'] for cell in variant.cells):.0f}" for part in PARTS
    )
    memory = [size for cell in variant.cells if (size := cell["step"]["training"]["bytes"]) is not None]
    megabytes = f"{statistics.median(memory) / 1e6:.0f}" if memory else None
    return [f"{pairs:.1f}", f"{pairs + tokens:.1f}", milliseconds, megabytes, inference]


def _tabulate_costs(cell: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for cost in [*cell.get("learned", ()), *cell.get("narrow", ())]:
        narrow = "positions" in cost
        name = f"{cost['positions']}, {100 * cost['share']:.1f} % of pairs" if narrow else cell["variant"]
        title = f"{name}, {cost['side']} × {cost['side']}, batch {cost['batch']}"
        for part in PARTS:
            figures = [
                value and f"{value * factor:,.0f}"
                for costs in (cost["costs"].get(implementation, {}).get(part, {}) for implementation in IMPLEMENTATIONS)
                for value, factor in ((costs.get("seconds"), 1000), (costs.get("bytes"), 1e-6))
            ]
            ratios = [cost_ratio(cost["costs"], implementation, part) for implementation in (FULL, BIAS)]
            rows.append([title, part, *figures, *(ratio and f"{ratio:.1f}" for ratio in ratios)])
    return rows


def _draw_figures(sets: Mapping[str, dict[VariantKey, VariantResults]], folder: Path) -> dict[str, str]:
    """Draw all figures that the results allow; return captions by file."""
    captions = {}
    if sets:
        _draw_accuracies(sets, folder / "accuracy.png")
        captions["accuracy.png"] = "Accuracy: a dot for each seed, a bar for their mean with its standard error."
    for data, variants in sets.items():
        shown = [variant for key, variant in variants.items() if key in _CUT_WINDOWS and variant.dims == 2]
        if shown:
            _draw_windows(shown, folder / f"windows-{data}.png")
            captions[f"windows-{data}.png"] = (
                f"{data}: the cut of the window of each head (one colour each), layer by layer, around a pixel in the "
                "middle of an image; dotted: at the start. First seed; in the corner the share of pairs inside."
            )
    rows = []
    every = [variant for variants in sets.values() for variant in variants.values()]
    for variant, cost in [(v, cost) for v in every for cost in v.costs("learned")]:
        share = 100 * sum(cost["shares"]) / len(cost["shares"])
        name = f"{variant.name.replace('window on weights, ', '')}\nlearned, {share:.0f} % of pairs"
        rows.append((f"{name}, {cost['side']} × {cost['side']}", cost["costs"]))
    for cost in [cost for v in every for cost in v.costs("narrow")]:
        name = f"{cost['positions']}, narrow\n{100 * cost['share']:.0f} % of pairs"
        rows.append((f"{name}, {cost['side']} × {cost['side']}", cost["costs"]))
    if rows:
        _draw_costs(rows, folder / "costs.png")
        captions["costs.png"] = (
            "A training step: time and peak memory with full attention in PyTorch, with the window as a bias, and with "
            "the kernel of windows; beside each bar its ratio to the kernel."
        )
    return captions


def _draw_accuracies(sets: Mapping[str, dict[VariantKey, VariantResults]], path: Path) -> None:
    lines = max(len(variants) for variants in sets.values())
    size = {"width": 3.2 + 3.6 * len(sets), "height": 0.6 + 0.24 * lines, "sharey": True}
    with drawing(path, 1, len(sets), **size) as (_, [axes]):
        for panel, (data, variants) in zip(axes, sets.items(), strict=True):
            for y, variant in enumerate(variants.values()):
                colour = GREEN if variant.dims == 1 else BLUE
                values = [100 * value for value in variant.accuracies]
                error = 100 * variant.std / math.sqrt(len(values))
                panel.errorbar(
                    [100 * variant.mean()], [y], xerr=[error], fmt="|", color=colour, markersize=9, capsize=0
                )
                panel.plot(values, [y] * len(values), "o", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
            panel.set_yticks(range(len(variants)), [variant.title for variant in variants.values()])
            panel.tick_params(axis="y", length=0)
            panel.grid(axis="x", color="#E6E6E6", linewidth=0.6)
            panel.set_axisbelow(True)
            panel.margins(x=0.06)
            panel.set(ylim=(len(variants) - 0.4, -0.6), title=data, xlabel="accuracy, %")


def _draw_windows(variants: list[VariantResults], path: Path) -> None:
    """Draw classifiers (rows) and layers (columns)."""
    layers = len(variants[0].cells[0]["shares"])
    widths = [max(head) for variant in variants for layer in variant.cells[0]["sigma"] for head in layer]
    limit = min(1.2, max(0.6, 1.05 * _CUT_RADIUS * max(widths)))
    size = {"width": 1.7 + 1.5 * layers, "height": 1.5, "sharex": True, "sharey": True}
    with drawing(path, len(variants), layers, **size) as (_, axes):
        for row, variant in zip(axes, variants, strict=True):
            first, window = variant.cells[0], _CUT_WINDOWS[variant.dims, variant.name]
            for layer, panel in enumerate(row):
                covariance = first.get("covariance", {layer: None})[layer]
                _plot_heads(panel, first["sigma"][layer], window, covariance)
                panel.text(
                    0.99, 0.01, f"{100 * first['shares'][layer]:.0f} %", transform=panel.transAxes, ha="right",
                    va="bottom", fontsize=7, color=INK,
                )  # fmt: skip
                panel.set(xlim=(-limit, limit), ylim=(limit, -limit), xticks=[], yticks=[], aspect="equal")
            row[0].set_ylabel(variant.name.replace(", ", "\n"), rotation=0, ha="right", va="center", labelpad=8)
        for layer, panel in enumerate(axes[0]):
            panel.set_title(f"layer {layer + 1}")


def _plot_heads(
    axes: Axes, sigma: list[list[float]], window: dict[str, Any], covariance: list[list[list[float]]] | None = None
) -> None:
    """Plot the window of each head. Locations have the row first, drawn downwards."""

    def add_outline(sigma: list[float], full: list[list[float]] | None = None, **options: Any) -> None:
        down, right = (_CUT_RADIUS * s for s in sigma)
        if full is not None:
            x, y = outline_ellipse(full)
            axes.plot(x, y, color=options["edgecolor"], linewidth=options["linewidth"])
            return
        if window["shape"] == "box":
            axes.add_patch(Rectangle((-right, -down), 2 * right, 2 * down, facecolor="none", **options))
        else:
            axes.add_patch(Ellipse((0, 0), 2 * right, 2 * down, facecolor="none", **options))

    axes.add_patch(Rectangle((-0.5, -0.5), 1, 1, facecolor="#F3F3F3", edgecolor=FAINT, linewidth=0.6))
    add_outline(2 * [window["init"]], edgecolor=FAINT, linestyle=":", linewidth=0.8)
    for head, widths in enumerate(sigma):
        full = None if covariance is None else covariance[head]
        add_outline(widths, full, edgecolor=COLOURS[head % len(COLOURS)], linewidth=1.2)
    axes.plot(0, 0, "+", color=INK, markersize=4)
    for side in axes.spines.values():
        side.set_visible(False)


def outline_ellipse(covariance: list[list[float]]) -> np.ndarray:
    """Return columns and rows [2 n] of the curve ΔᵀC⁻¹Δ = r², at the radius r of the cut."""
    angle = np.linspace(0, 2 * math.pi, 121)
    rows, columns = _CUT_RADIUS * np.linalg.cholesky(np.array(covariance)) @ np.stack([np.cos(angle), np.sin(angle)])
    return np.stack([columns, rows])


def _draw_costs(rows: list[tuple[str, dict[str, Any]]], path: Path) -> None:
    size = {"width": 9.6, "height": 0.8 + 0.62 * len(rows), "sharey": True}
    with drawing(path, 1, 2, **size) as (figure, [axes]):
        for panel, quantity, factor, label in (
            (axes[0], "seconds", 1000, "milliseconds a step"), (axes[1], "bytes", 1e-6, "MB"),
        ):  # fmt: skip
            panel.set(xscale="log", xlabel=label)
            panel.tick_params(axis="y", length=0)
            values = []
            for (row, (_, costs)), (number, name) in product(enumerate(rows), enumerate(_COST_COLOURS)):
                if (ratio := cost_ratio(costs, name, quantity=quantity)) is None:
                    continue
                value, y = factor * costs[name]["training"][quantity], row + 0.26 * (number - 1)
                values.append(value)
                panel.barh(y, value, height=0.24, color=_COST_COLOURS[name])
                if name != KERNEL:
                    text = f"{ratio:.{0 if ratio >= 10 else 1}f} ×"
                    panel.annotate(text, (value, y), (3, 0), textcoords="offset points", va="center", fontsize=7)
            if values:
                panel.set_xlim(0.5 * min(values), 3 * max(values))
        axes[0].set_yticks(range(len(rows)), [name for name, _ in rows])
        axes[0].set_ylim(len(rows) - 0.4, -0.6)
        handles = [Rectangle((0, 0), 1, 1, color=colour) for colour in _COST_COLOURS.values()]
        figure.legend(handles, list(_COST_COLOURS), loc="outside upper center", ncols=3)
