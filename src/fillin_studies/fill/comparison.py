"""fillin on every series of the study `fill` against the best of three methods, with paired standard errors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fillin_studies.fill.methods import BEST_OF_THREE, EARLIER, OURS
from fillin_studies.fill.scores import DISTANCES
from fillin_studies.report import format_table, with_minus

GapResults = Mapping[tuple[str, str], Mapping[str, dict[str, Any]]]  # (data set, kind of gap) → method → numbers
ACCEPTED_COVERAGE = (0.92, 0.97)  # share of values inside 95 % intervals
MAX_LOSS = 1.10  # ratio to the best of three that is still accepted
ERRORS_APART = 2.0  # paired standard errors, up to which a difference counts as none


class Difference(NamedTuple):
    """CRPS of a method minus that of fillin on the same masks: the mean, and its standard error over masks."""

    mean: float
    error: float

    @classmethod
    def between(cls, other: Mapping[str, Any], ours: Mapping[str, Any]) -> "Difference":
        apart = np.subtract(other["crps_by_mask"], ours["crps_by_mask"])
        error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
        return cls(float(apart.mean()), float(error))


class ThreeComparison(NamedTuple):
    """A method of fillin on one series with one kind of gap, beside the three."""

    data: str
    kind: str
    group: str
    ours: Mapping[str, Any]
    others: Mapping[str, Mapping[str, Any]]

    @property
    def best(self) -> str:
        return min(self.others, key=lambda name: self.others[name]["crps"])

    @property
    def ratio(self) -> float:
        return self.ours["crps"] / self.others[self.best]["crps"]

    def difference(self, name: str) -> Difference:
        return Difference.between(self.others[name], self.ours)

    @property
    def errors_behind(self) -> float:
        """How many paired standard errors the CRPS exceeds that of the best by; negative where it is lower."""
        mean, error = self.difference(self.best)
        if not error:  # a single mask
            return math.copysign(math.inf, -mean) if mean else 0.0
        return -mean / error

    @property
    def no_worse(self) -> bool:
        return self.errors_behind <= ERRORS_APART

    @property
    def is_calibrated(self) -> bool:
        low, high = ACCEPTED_COVERAGE
        return low <= round(self.ours["covered"], 3) <= high

    def describe_coverage(self) -> str:
        return f"{self.data}, {self.kind}: {self.ours['covered']:.1%}"


def compare_with_three(results: GapResults, method: str = OURS[1]) -> list[ThreeComparison]:
    """Compare on every series and kind of gap that the method and all of the three were measured on."""
    comparisons = []
    for (data, kind), methods in results.items():
        ours = methods.get(method)
        if ours is None or ours["group"] == "field" or not all(name in methods for name in BEST_OF_THREE):
            continue
        others = {name: methods[name] for name in BEST_OF_THREE}
        comparisons.append(ThreeComparison(data, kind, ours["group"], ours, others))
    return comparisons


def tabulate_comparisons(results: GapResults) -> list[str]:
    """Return the lines of the section: one row for each series and kind of gap."""
    comparisons = compare_with_three(results)
    if not comparisons:
        return [f"Not measured: {OURS[1]} and {', '.join(BEST_OF_THREE)} on the same series."]
    earlier = {(c.data, c.kind): c.ratio for c in compare_with_three(results, EARLIER)}
    columns = (
        "", OURS[1], *BEST_OF_THREE, "ratio to the best", f"ratio of {EARLIER}", "standard errors behind", "no worse",
        "in the 95 % interval", "seconds",
    )  # fmt: skip
    rows = []
    for c in comparisons:
        ratio, previous = f"{c.ratio:.3f}", earlier.get((c.data, c.kind))
        others = [f"{c.others[name]['crps']:.3f} ± {c.difference(name).error:.3f}" for name in BEST_OF_THREE]
        covered = f"{c.ours['covered']:.3f} ± {c.ours['covered_error']:.3f}"
        rows.append((
            f"{c.data}, {c.kind}", f"{c.ours['crps']:.3f}", *others,
            ratio if c.ratio <= MAX_LOSS else f"**{ratio}**", previous, with_minus(f"{c.errors_behind:.1f}"),
            "yes" if c.no_worse else "**no**", covered if c.is_calibrated else f"**{covered}**", c.ours["seconds"],
        ))  # fmt: skip
    low, high = ACCEPTED_COVERAGE
    text = (
        f"CRPS over the standard deviation of the series. A cell is a series with a kind of gap: "
        f"{len({c.data for c in comparisons if c.group == 'curve'})} real series and "
        f"{len({c.data for c in comparisons if c.group == 'prior'})} priors. ± behind one of the three is the paired "
        f"standard error, over masks, of its difference to {OURS[1]}. No worse: the difference to the best of the "
        f"three is at most {ERRORS_APART:g} of them. ± behind the coverage is its standard error over masks. Bold: a "
        f"ratio above {MAX_LOSS:.2f}, worse, or a coverage outside {low:.0%} to {high:.0%}."
    )
    return [text, "", *format_table(columns, rows)]


def describe_comparisons(comparisons: Sequence[ThreeComparison]) -> list[str]:
    if not comparisons:
        return []
    n, worst = len(comparisons), max(comparisons, key=lambda c: c.ratio)
    lower, within_one, no_worse = (
        sum(c.errors_behind <= errors for c in comparisons) for errors in (0, 1, ERRORS_APART)
    )
    outside = [c for c in comparisons if not c.is_calibrated]
    far = [c for c in comparisons if c.ratio > MAX_LOSS]
    low, high = ACCEPTED_COVERAGE
    pooled = np.mean([c.ours["covered"] for c in comparisons])
    return [
        f"{OURS[1]} is no worse in CRPS than the **best** of {', '.join(BEST_OF_THREE)} in {no_worse} of {n} cells, "
        f"where a difference of up to {ERRORS_APART:g} paired standard errors counts as none ({within_one} of {n} with "
        f"one, {lower} of {n} with none).",
        f"At worst its CRPS is {worst.ratio:.2f} times that of the best ({worst.data}, {worst.kind}); it is more than "
        f"{MAX_LOSS:.2f} times that in {len(far)} of {n}"
        + (f" ({'; '.join(f'{c.data}, {c.kind}: {c.ratio:.2f}' for c in far)})." if far else "."),
        f"Its 95 % intervals contain {pooled:.1%} on average over cells, and {low:.0%} to {high:.0%} in "
        f"{n - len(outside)} of {n}"
        + (f" (not: {'; '.join(c.describe_coverage() for c in outside)})." if outside else "."),
    ]


def tabulate_distances(results: GapResults) -> list[str]:
    """Return the lines of the section on coverage by distance to the nearest observed location."""
    counts: dict[tuple[str, str], np.ndarray] = {}  # method, kind → [distance (points, inside)]
    for (_, kind), methods in results.items():
        for name in (OURS[1], EARLIER, *BEST_OF_THREE):
            if "distances" in methods.get(name, {}):
                found = np.array(methods[name]["distances"])
                for key in ((name, kind), (name, "all")):
                    counts[key] = counts.get(key, 0) + found
    if not counts:
        return ["No series were measured."]
    edges = [f"{edge:g}" for edge in DISTANCES]
    columns = ["", *(f"{a} to {b}" for a, b in zip(["0", *edges], edges, strict=False)), f"beyond {edges[-1]}"]
    kinds = [kind for name, kind in counts if name == OURS[1] and kind != "all"]
    shown = [*((OURS[1], kind) for kind in kinds), *((name, "all") for name in (OURS[1], EARLIER, *BEST_OF_THREE))]
    rows = []
    for key in shown:
        if key in counts:
            cells = [f"{inside / n:.3f} ({n:,})" if n else None for n, inside in counts[key].tolist()]
            rows.append([", ".join(key), *cells])
    text = (
        "Share of held-out points inside the 95 % interval, and the number of points, by the distance to the nearest "
        "observed location in median steps of the series; all series and masks together."
    )
    return [text, "", *format_table(columns, rows)]
