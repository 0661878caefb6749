"""Long series in the study `fill`: each column of a sheet by itself, with a fifth of its values hidden anywhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fillin_studies.fill.data import GapCase, GapDataset, GapMask
from fillin_studies.fill.methods import EARLIER, OURS
from fillin_studies.report import format_table

if TYPE_CHECKING:
    from fillin_studies.sheets.data import SheetDataset

LONG = "long"
LONG_METHODS = (OURS[1], EARLIER, "linear", "cubic spline")  # others are too slow for a thousand points
MAX_LONG_LOSS = 1.02  # ratio to linear interpolation up to which a series counts as close


class LongSeries(GapDataset):
    """A column of a sheet, with the masks that the study `sheets` hides in columns alone."""

    group = LONG
    kinds = ("fifth",)
    max_masks = 5

    def __init__(self, sheet: "SheetDataset", column: int):
        self.sheet, self.column = sheet, column
        self.name = f"{sheet.name} {sheet.columns[column]}"

    def case(self, kind: str, number: int) -> GapCase:
        from fillin_studies.sheets.data import SINGLE

        case = self.sheet.case(SINGLE, number)
        y, hidden = case.y[:, self.column], case.hidden[:, self.column]
        present = ~np.isnan(y)
        x = np.flatnonzero(present).astype(float)[:, None]
        return GapCase(x, y[present], GapMask(~hidden[present], hidden[present]))


def find_long_series(folder: Path | None) -> dict[str, LongSeries]:
    """Find the columns of the sheets of a folder, if it has any."""
    from fillin_studies.sheets.data import find_sheets  # that study imports this one

    if folder is None or not any((folder / "sheets").glob("*.csv.gz")):
        return {}
    columns = [LongSeries(sheet, j) for sheet in find_sheets(folder).sets.values() for j in range(len(sheet.columns))]
    return {series.name: series for series in columns}


class LongComparison(NamedTuple):
    """RMSE of a method over that of linear interpolation, by series."""

    method: str
    ratios: Mapping[str, float]

    @property
    def better(self) -> int:
        return sum(ratio < 1 for ratio in self.ratios.values())

    @property
    def close(self) -> int:
        return sum(ratio <= MAX_LONG_LOSS for ratio in self.ratios.values())

    @property
    def worst(self) -> str:
        return max(self.ratios, key=lambda name: self.ratios[name])


def compare_long(measured: Sequence[dict[str, Any]]) -> list[LongComparison]:
    """Compare every method with linear interpolation on the series that both were measured on."""
    rmse = {(cell["method"], cell["data"]): cell["rmse"] for cell in measured if cell["group"] == LONG}
    comparisons = []
    for method in (name for name in LONG_METHODS if name != "linear"):
        pairs = {data: (value, rmse.get(("linear", data))) for (name, data), value in rmse.items() if name == method}
        ratios = {data: value / linear for data, (value, linear) in pairs.items() if linear}
        if ratios:
            comparisons.append(LongComparison(method, ratios))
    return comparisons


def tabulate_long(comparisons: Sequence[LongComparison]) -> list[str]:
    columns = ("", "series", "better", f"at most {MAX_LONG_LOSS}", "median ratio", "worst ratio", "of")
    rows = [
        (c.method, len(c.ratios), c.better, c.close, float(np.median([*c.ratios.values()])), c.ratios[c.worst], c.worst)
        for c in comparisons
    ]
    text = (
        "The first 1,000 points of each column of the sheets, a fifth of them hidden at random: RMSE over that of "
        "linear interpolation."
    )
    return [text, "", *format_table(columns, rows)]


def describe_long(comparisons: Sequence[LongComparison]) -> list[str]:
    return [
        f"Long series, a fifth of the points hidden at random: {c.method} is better than linear interpolation on "
        f"{c.better} of {len(c.ratios)}, and at most {MAX_LONG_LOSS} times it on {c.close}; at worst "
        f"{c.ratios[c.worst]:.2f} times ({c.worst})."
        for c in comparisons
        if c.method == OURS[1]
    ]
