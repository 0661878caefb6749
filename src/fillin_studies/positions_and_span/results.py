"""Classifiers that are compared, their results over seeds, paired tests between them, and findings."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from fillin_studies.positions_and_span.costs import BIAS, FULL, KERNEL, cost_ratio
from fillin_studies.report import with_minus

INIT, THRESHOLD = 0.3, 0.1  # initial σ, and G(Δ) below which a pair is dropped, as in Alfons 2022

SINUSOID, SIREN, STABLE, ALFONS = "sinusoid", "siren", "stable siren", "alfons siren"
POSITIONS = {SINUSOID: "sinusoid", SIREN: "siren", STABLE: "siren-stable", ALFONS: "siren-alfons"}  # of the classifier
FADED, FADED_SCORES = "window on weights", "window on scores"
CUT, CUT_HARD = "window on weights, continuous cut", "window on weights, hard cut"
CUT_SCORES, CUT_SCORES_HARD = "window on scores, continuous cut", "window on scores, hard cut"
ALFONS_FADED, ALFONS_CUT = f"{ALFONS}, {FADED_SCORES}", f"{ALFONS}, {CUT_SCORES_HARD}"
FULL_COVARIANCE = f"{CUT}, full covariance"
FIXED_BLOCKS = "fixed blocks"
PENALTIES = {"continuous cut, penalty 0.1": 0.1, "continuous cut, penalty 1": 1.0}


class ClassifierVariant(NamedTuple):
    """Positions in 1 or 2 dimensions, and the arguments of the windows (None: no windows)."""

    name: str
    dims: int
    positions: str = POSITIONS[SIREN]
    window: dict[str, Any] | None = None

    @property
    def cuts(self) -> bool:
        return self.window is not None and self.window["threshold"] > 0

    @property
    def penalty(self) -> float:
        return PENALTIES.get(self.name, 0.0)

    def blocks(self, side: int) -> int | None:
        """Side of the fixed blocks of an image of that side: a quarter of its pixels, as many of them in a row."""
        return (side // 2) ** (3 - self.dims) if self.name == FIXED_BLOCKS else None

    def on(self, data: str) -> str:
        """Return the name of the variant on an image set."""
        return f"{data}, {self.dims}-D, {self.name}"


def _make_window(modulate: str, cut: str | None = None, **options: Any) -> dict[str, Any]:
    """Return a window with that cut (None: none). That of Alfons 2022 is a box that multiplies scores, cut hard."""
    window: dict[str, Any] = {"init": INIT, "threshold": THRESHOLD if cut else 0.0, "modulate": modulate}
    if cut:
        window |= {"cut": cut, "shape": "box" if (modulate, cut) == ("scores", "hard") else "ball"}
    return window | options


_WINDOWS = {
    FADED: _make_window("weights"), FADED_SCORES: _make_window("scores"), CUT: _make_window("weights", "continuous"),
    CUT_HARD: _make_window("weights", "hard"), CUT_SCORES: _make_window("scores", "continuous"),
    CUT_SCORES_HARD: _make_window("scores", "hard"),
    FULL_COVARIANCE: _make_window("weights", "continuous", covariance="full"),
    **dict.fromkeys(PENALTIES, _make_window("weights", "continuous")),
}  # fmt: skip
_WINDOWS_1D = (FADED, FADED_SCORES, CUT, CUT_SCORES_HARD)
# one σ per layer and axis, shared by the heads
_ALFONS_WINDOWS = {
    ALFONS_FADED: _make_window("scores", heads=1), ALFONS_CUT: _make_window("scores", "hard", heads=1),
}  # fmt: skip

VARIANTS = tuple(
    variant
    for dims, windows in ((1, _WINDOWS_1D), (2, _WINDOWS))
    for variant in (
        *(ClassifierVariant(name, dims, positions) for name, positions in POSITIONS.items()),
        *(ClassifierVariant(name, dims, POSITIONS[ALFONS], window) for name, window in _ALFONS_WINDOWS.items()),
        *(ClassifierVariant(name, dims, window=_WINDOWS[name]) for name in windows),
        ClassifierVariant(FIXED_BLOCKS, dims),
    )
)


SIGNIFICANCE = 0.05  # as in Alfons 2022
REQUIRED_SPEEDUPS = {32: (3, 10), 64: (8, 50)}  # over full attention in PyTorch, and over the window as a bias

VariantKey = tuple[int, str]  # dimensions, name of a variant


@dataclass(frozen=True)
class VariantResults:
    """Measured cells of one variant on one image set, seed by seed."""

    data: str
    dims: int
    name: str
    cells: list[dict[str, Any]]

    @property
    def title(self) -> str:
        return f"{self.dims}-D, {self.name}"

    @property
    def accuracies(self) -> list[float]:
        return [cell["accuracy"] for cell in self.cells]

    @property
    def std(self) -> float:
        """Standard deviation of the accuracy over seeds; 0 with one seed."""
        return statistics.stdev(self.accuracies) if len(self.cells) > 1 else 0.0

    def mean(self, key: str = "accuracy") -> float:
        return statistics.fmean(cell[key] for cell in self.cells)

    @property
    def shares(self) -> list[float]:
        """Share of pairs that each layer computes, on average over seeds."""
        return [statistics.fmean(layer) for layer in zip(*(cell["shares"] for cell in self.cells), strict=True)]

    @property
    def sigmas(self) -> list[float] | None:
        """σ of each layer: the geometric mean over heads, axes and seeds."""
        if any(layer is None for cell in self.cells for layer in cell["sigma"]):
            return None
        layers = zip(*(cell["sigma"] for cell in self.cells), strict=True)
        return [
            math.exp(statistics.fmean(math.log(s) for seed in layer for head in seed for s in head)) for layer in layers
        ]

    def costs(self, kind: str) -> list[dict[str, Any]]:
        """Measured costs with "learned" or with "narrow" windows."""
        return [row for cell in self.cells for row in cell.get(kind, ())]

    def format_accuracy(self) -> str:
        spread = f" ± {100 * self.std:.1f}" if len(self.cells) > 1 else ""
        return f"{100 * self.mean():.1f}{spread} %"


def group_cells(measured: Sequence[dict[str, Any]]) -> dict[str, dict[VariantKey, VariantResults]]:
    """Group cells by image set, then by dimensions and variant."""
    sets: dict[str, dict[VariantKey, VariantResults]] = {}
    for cell in measured:
        data, dims, name = cell["variant"].split(", ", 2)
        key = int(dims[0]), name
        sets.setdefault(data, {}).setdefault(key, VariantResults(data, *key, [])).cells.append(cell)
    return sets


@dataclass(frozen=True)
class AccuracyTest:
    """One-sided paired t-test of H₁, that `a` is more accurate than `b`, against H₀, that they are equally accurate.

    Pairs share a seed, and with it the images and their order. `points` is the mean difference over these pairs.
    """

    a: VariantResults
    b: VariantResults
    pairs: int
    points: float
    p: float | None

    @property
    def signed_points(self) -> str:
        return with_minus(f"{self.points:+.1f}")

    @property
    def outcome(self) -> str:
        if self.p is None:
            return "no test"
        return "higher" if self.p < SIGNIFICANCE else "lower" if self.p > 1 - SIGNIFICANCE else "no difference shown"

    def __str__(self) -> str:
        p = "" if self.p is None else f", p = {self.p:.3f}"
        accuracies = f"{self.a.format_accuracy()} against {self.b.format_accuracy()}"
        return f"{accuracies}, {self.signed_points} points{p}"


HYPOTHESES: tuple[tuple[VariantKey, VariantKey], ...] = (
    # of Alfons 2022
    *(((dims, ALFONS), (dims, SINUSOID)) for dims in (1, 2)),
    ((2, ALFONS), (1, ALFONS)),
    *(((dims, ALFONS_FADED), (dims, ALFONS)) for dims in (1, 2)),
    *(((dims, ALFONS_CUT), (dims, ALFONS_FADED)) for dims in (1, 2)),
    # of positions and windows specific to fillin
    *(((dims, SIREN), (dims, SINUSOID)) for dims in (1, 2)),
    *(((dims, name), (dims, ALFONS)) for dims in (1, 2) for name in (SIREN, STABLE)),
    ((2, SIREN), (1, SIREN)),
    *(((dims, name), (dims, SIREN)) for dims in (1, 2) for name in (FADED, FADED_SCORES)),
    *(((dims, CUT), (dims, FADED)) for dims in (1, 2)),
    *(((dims, CUT_SCORES_HARD), (dims, FADED_SCORES)) for dims in (1, 2)),
    *(((dims, name), (dims, FIXED_BLOCKS)) for dims in (1, 2) for name in (SIREN, CUT)),
    *(((2, CUT), (2, name)) for name in (SIREN, CUT_SCORES, CUT_HARD, ALFONS_CUT)),
    ((2, FULL_COVARIANCE), (2, CUT)),
)


def run_tests(variants: dict[VariantKey, VariantResults]) -> list[AccuracyTest]:
    """Test every hypothesis of which both sides were measured."""
    tests = (compare(variants[a], variants[b]) for a, b in HYPOTHESES if a in variants and b in variants)
    return [test for test in tests if test is not None]


def compare(a: VariantResults, b: VariantResults) -> AccuracyTest | None:
    """Test a against b, paired by seed; None without common seeds. With one, or where all differences are equal, there
    is no p."""
    from scipy.stats import ttest_rel

    first, second = ({cell["seed"]: cell["accuracy"] for cell in variant.cells} for variant in (a, b))
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    differences = [first[seed] - second[seed] for seed in seeds]
    p = None
    if len(seeds) > 1 and max(differences) - min(differences) > 1e-12:
        result: Any = ttest_rel([first[s] for s in seeds], [second[s] for s in seeds], alternative="greater")
        p = float(result.pvalue)
    return AccuracyTest(a, b, len(seeds), 100 * statistics.fmean(differences), p)


def summarise(data: str, variants: dict[VariantKey, VariantResults]) -> list[str]:
    """Return the findings on one image set."""
    best = max(variants.values(), key=VariantResults.mean)
    images = best.cells[0]["images"]
    findings = [f"{data}: the most accurate is **{best.title}**, {best.format_accuracy()} of {images:,} images."]
    findings += _summarise_tests(data, run_tests(variants))
    ordered = [variants[key] for key in ((2, CUT), (2, SIREN), (1, SIREN)) if key in variants]
    if len(ordered) == 3:
        holds = all(a.mean() >= b.mean() for a, b in pairwise(ordered))
        findings.append(
            f"{data}: that 2-D with a window is no worse than 2-D without, and that no worse than 1-D, "
            f"{'holds' if holds else 'does **not** hold'} in the mean: "
            f"{', '.join(variant.format_accuracy() for variant in ordered)}."
        )
    for name in (ALFONS_CUT, CUT):
        if (windows := variants.get((2, name))) and (sigmas := windows.sigmas):
            layers = ", ".join(
                f"{s:.2f} ({100 * share:.0f} %)" for s, share in zip(sigmas, windows.shares, strict=True)
            )
            wider = all(a <= b for a, b in pairwise(sigmas))
            findings.append(
                f"{data}: {windows.title}: σ went from {INIT} to, layer by layer, {layers} of an image, in brackets "
                f"the share of pairs that are computed; windows of later layers are {'wider' if wider else 'not wider'}"
                " than those of earlier ones throughout. Of the pairs of all layers "
                f"{100 * windows.mean('pairs'):.0f} % are computed."
            )
    if cut := variants.get((2, CUT)):
        findings += [
            f"{data}: at {row['side']} × {row['side']} pixels the learned windows keep "
            f"{', '.join(f'{100 * share:.0f}' for share in row['shares'])} % of pairs, layer by layer; relative to the "
            f"kernel, a step with full attention in PyTorch takes {_format_ratios(row['costs'], FULL)}, with the "
            f"window as a bias {_format_ratios(row['costs'], BIAS)}."
            for row in cut.costs("learned")
        ]
        findings += [_summarise_penalty(data, cut, variants[2, name]) for name in PENALTIES if (2, name) in variants]
        for row in cut.costs("narrow"):
            full, bias = (cost_ratio(row["costs"], implementation) for implementation in (FULL, BIAS))
            required = REQUIRED_SPEEDUPS.get(row["side"])
            holds = required and (full or 0) >= required[0] and (bias is None or bias >= required[1])
            goal = f" (required: {required[0]} and {required[1]}; {'met' if holds else 'not met'})" if required else ""
            than_bias = "" if bias is None else f" and {bias:.0f} times as fast as the window as a bias"
            findings.append(
                f"Windows that keep {100 * row['share']:.1f} % of pairs, {row['side']} × {row['side']} pixels, "
                f"{row['positions']}: a training step is {full:.1f} times as fast as with full attention in PyTorch"
                f"{than_bias}{goal}."
            )
    return findings


def _summarise_tests(data: str, tests: list[AccuracyTest]) -> list[str]:
    findings = []
    positions = [test for test in tests if test.b.name == SINUSOID]
    if positions:
        results = "; ".join(f"{test.a.title} {test} ({test.outcome})" for test in positions)
        findings.append(f"{data}: positions from a SIREN against sinusoids, {results}.")
    others = [test for test in tests if test.b.name != SINUSOID and test.p is not None]
    if others:
        significant = [test for test in others if test.outcome in ("higher", "lower")]
        results = "; ".join(f"{test.a.title} is {test.outcome} than {test.b.title} ({test})" for test in significant)
        findings.append(
            f"{data}: of {len(others)} other hypotheses, p is below {SIGNIFICANCE} or above {1 - SIGNIFICANCE} of "
            f"{len(significant)}{': ' if results else ''}{results}."
        )
    return findings


def _format_ratios(costs: dict[str, Any], implementation: str) -> str:
    time, inference, memory = (
        cost_ratio(costs, implementation, part, quantity)
        for part, quantity in (("training", "seconds"), ("inference", "seconds"), ("training", "bytes"))
    )
    with_memory = "" if memory is None else f", memory {memory:.1f}"
    return f"{time:.1f} times the time (inference {inference:.1f}{with_memory})"


def _summarise_penalty(data: str, plain: VariantResults, penalised: VariantResults) -> str:
    rows = [variant.costs("learned") for variant in (plain, penalised)]
    faster = ""
    if all(rows):
        side = rows[0][-1]["side"]
        times = [1000 * costs[-1]["costs"][KERNEL]["training"]["seconds"] for costs in rows]
        faster = f"; a step on {side} × {side} pixels from {times[0]:.0f} to {times[1]:.0f} ms"
    return (
        f"{data}: a penalty of {PENALTIES[penalised.name]:g} on the span takes the pairs that are computed from "
        f"{100 * plain.mean('pairs'):.0f} to {100 * penalised.mean('pairs'):.0f} %, accuracy from "
        f"{plain.format_accuracy()} to {penalised.format_accuracy()}{faster}."
    )
