"""A picture of the average ranks."""

from pathlib import Path

import numpy as np

from fillin.plots import panels, save, style
from fillin_studies.figures import colour
from fillin_studies.tables.methods import OURS, WITH_FEW
from fillin_studies.tables.ranks import RANKED, Results


def draw(boards: dict[str, Results], folder: Path) -> dict[str, str]:
    """A panel a group of sets, a row a method, a mark a measure."""
    if not boards:
        return {}
    with style():
        figure, [row] = panels(1, len(boards), width=1.2 + 3.2 * len(boards), height=3.2)
        for panel, (name, each) in zip(row, boards.items(), strict=True):
            methods = [method for method in WITH_FEW if method in each.methods]
            measures = RANKED[each.group]
            for number, measure in enumerate(measures):
                ranks = each.ranks(measure)
                y = np.arange(len(methods)) + 0.5 * ((number + 0.5) / len(measures) - 0.5)
                panel.errorbar(
                    [ranks[method].value for method in methods], y, xerr=[ranks[method].error for method in methods],
                    fmt="os^"[number % 3], color=colour(number)[0], markersize=4, linewidth=1, label=measure.title,
                )  # fmt: skip
            panel.set_yticks(range(len(methods)), methods)
            for label, method in zip(panel.get_yticklabels(), methods, strict=True):
                label.set_fontweight("bold" if method.startswith(OURS) else "normal")
            panel.invert_yaxis()
            panel.set_xlim(0.5, len(methods) + 0.5)
            panel.set_title(f"{name} ({len(each.of)})")
            panel.set_xlabel("average rank")
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(measures))
        save(figure, folder / "ranks.png")
    return {"ranks.png": "Average ranks over sets (how many there are), with standard errors; 1 is best."}
