"""Hidden cells of several series over common steps, filled jointly, one by one, and by common methods.

A cell is a sheet × a pattern of gaps × a method × a seed of the pattern. Patterns are the same for every method.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport, StudyScale
from fillin_studies.fill.methods import digest_weights
from fillin_studies.report import format_sections
from fillin_studies.sheets.data import ADDED, MAX_COLUMNS, MAX_ROWS, PATTERNS, SEVERAL, SINGLE, find_sheets
from fillin_studies.sheets.figures import draw_examples, draw_methods, draw_ratios
from fillin_studies.sheets.methods import JOINT, METHODS, SHEET, WITH_ADDED_COLUMNS, measure
from fillin_studies.sheets.results import (
    Boards,
    collect,
    count_seeds,
    find_changes,
    name_board,
    summarise,
    tabulate_changes,
    tabulate_comparisons,
    tabulate_pattern,
    tabulate_series,
)


class SheetsStudy(MethodStudy):
    name = "sheets"
    title = "filling several series over common steps, jointly and one by one"
    question = (
        "Where series go together, a gap of one can be predicted from the others; where they do not, from its own "
        "neighbours. Does one pretrained model do both, as well as the better of the methods that do one of them? "
        "Errors are in standard deviations of each column; ± is the standard error over seeds of the pattern, 0 where "
        "there is one."
    )
    caveat = (
        "The model was developed with these sheets in view, and the settings of SAITS and BRITS were chosen on two of "
        "them with another seed; the study `unseen-sheets` repeats the comparison on other sheets."
    )
    repeats = 1, 5  # seeds
    model = SHEET

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        self.sheets = find_sheets(data)
        self.quick, self.full = (StudyScale({}, seeds) for seeds in self.repeats)

    def with_model(self, model: str) -> "SheetsStudy":
        other = self.replaced(model=model)
        assert isinstance(other, SheetsStudy)
        return other

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every sheet, pattern and method; columns alone by methods that fill each column by itself; then further
        columns."""
        present = [name for name, method in METHODS.items() if not method.find_missing(self.model)]
        cells = [
            (data, pattern, "", method)
            for data in self.sheets.sets
            for pattern in PATTERNS
            for method in present
            if pattern in SEVERAL or METHODS[method].alone
        ]
        cells += [
            (data, pattern, added, method)
            for data in self.sheets.sets
            for pattern in SEVERAL
            for added in ADDED
            for method in present
            if method in WITH_ADDED_COLUMNS
        ]
        return {
            f"{data}, {name_board(pattern, added)}, {method}": {
                "data": data, "pattern": pattern, "added": added, "method": method,
            }
            for data, pattern, added, method in cells
        }  # fmt: skip

    def version_of(self, settings: RecipeSettings) -> str:
        method = METHODS[settings["method"]]
        weights = method.choose_weights(self.model)
        stamp = f", weights {digest_weights(weights)}" if weights else ""
        return f"{self.version}.{method.version}{stamp}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        data, pattern, added, method, seed = (settings[key] for key in ("data", "pattern", "added", "method", "seed"))
        case = self.sheets.sets[data].case(pattern, seed)
        case = case.add(added, seed) if added else case
        scores = measure(case, METHODS[method], self.model)
        return {"data": data, "group": name_board(pattern, added), "method": method, "split": seed, **scores}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        measured = [cell.result for cell in cells]
        boards = collect(measured)
        sections = {f"Pattern `{name}`": tabulate_pattern(boards[name]) for name in SEVERAL if name in boards}
        if SINGLE in boards:
            sections["One column"] = tabulate_series(boards[SINGLE])
        if changes := find_changes(boards):
            sections["A further column"] = tabulate_changes(changes)
        used = {cell["method"] for cell in measured}
        sections["Methods"] = [f"- **{name}**: {method.about}." for name, method in METHODS.items() if name in used]
        missing = [
            f"{name} is left out: {reason}."
            for name, method in METHODS.items()
            if (reason := method.find_missing(self.model))
        ]
        caveat = [self.caveat] if self.caveat and not self.sheets.left_out else []  # sheets that are made are new
        findings = [*summarise(boards), *caveat, *count_seeds(boards), *self.sheets.left_out, *missing]
        seeds, minutes = len({cell["split"] for cell in measured}), sum(cell["seconds"] for cell in measured) / 60
        procedure = (
            f"{len(self.sheets.sets)} sheets, their first {MAX_ROWS:,} rows and {MAX_COLUMNS} columns, seeds of each "
            f"pattern: {seeds}; {minutes:.0f} minutes in all on one thread. `cells` hides 20 % of all cells anywhere, "
            "`blocks` 2 to 4 blocks of 3 to 8 % of the rows in each column, `column` a quarter of one column in one "
            "piece, `single` 20 % of all columns, each filled without the others. Baselines are the methods "
            "of others; the best is that with the lowest mean over seeds. RMSE and MAE are over all hidden cells."
        )
        figures = self._draw_figures(boards, folder)
        return StudyReport(findings, *tabulate_comparisons(boards), figures, format_sections(sections), procedure)

    def _draw_figures(self, boards: Boards, folder: Path) -> dict[str, str]:
        captions = {}
        if draw_ratios(boards, folder / "rmse.png"):
            captions["rmse.png"] = (
                "RMSE over that of the best baseline on the same sheet and pattern, with standard errors over seeds; "
                "lower is better, and below 1 is better than every baseline."
            )
        measured = {data: methods for name in SEVERAL if name in boards for data, methods in boards[name].sets.items()}
        used = [name for name in METHODS if any(name in methods for methods in measured.values())]
        ready = [name for name in used if not METHODS[name].find_missing(self.model)]
        if ready:  # no method fills a sheet for a figure that it was not measured on
            sheet = self.sheets.sets[next(iter(measured))]
            column = draw_methods(sheet, ready, self.model, folder / "methods.png")
            captions["methods.png"] = (
                f"The longest gap of {sheet.name} with blocks, in {column}: hidden values (orange), the mean of each "
                "method and its 95 % interval, if it has one (blue)."
            )
        if JOINT in ready:
            draw_examples({data: self.sheets.sets[data] for data in measured}, self.model, folder / "examples.png")
            captions["examples.png"] = (
                f"The longest gaps: hidden values (orange), mean, 50 % and 95 % intervals of {JOINT} (blue), linear "
                "interpolation (grey)."
            )
        return captions
