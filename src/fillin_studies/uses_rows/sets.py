"""A fitted model on a real set: with the right rows to look at, with corrupted ones, with ever fewer."""

from dataclasses import replace
from typing import Any

from fillin.runtime import require
from fillin_studies.base import Told
from fillin_studies.tables.data import Case, Set
from fillin_studies.uses_rows.corrupt import corrupted
from fillin_studies.uses_rows.delete import ROWS, Memory, in_order, one_by_one
from fillin_studies.uses_rows.distance import against, distances, weights
from fillin_studies.uses_rows.models import fit, scores


def measure(data: Set, name: str, split: int, size: dict[str, Any], told: Told) -> dict[str, Any]:
    """The result of one cell. Attention and deletion are of networks that look once, and of the first split."""
    from fillin.learners.row_learner import RowLearner

    case = data.case(split)
    with require("threadpoolctl").threadpool_limits(1):
        model = fit(name, case, split, **size)
        told(0.5)
        found = {
            "right": scores(model, case),
            "corrupted": corrupted(model, case, split),
            "targets": corrupted(model, case, split, features=False),
        }
        told(0.6)
        if split == 0 and isinstance(model.learner_, RowLearner):
            found |= looked_at(model, case)
    about = {"part": "sets", "data": data.title, "group": data.group, "model": name, "split": split}
    return {**about, "rows": len(case.X), "columns": case.X.shape[1], **found}


def looked_at(model: Any, case: Case) -> dict[str, Any]:
    """Attention against distance, and what is left where rows are deleted."""
    far, looks = distances(case), weights(model, case)
    few = replace(case, asked=case.asked.iloc[:ROWS], truth=case.truth[:ROWS])
    return {
        "attention": against(looks, far, 0),
        "deleted": in_order(Memory(model, case), looks, 0),
        "kept": one_by_one(Memory(model, few), far[:ROWS], 0),
    }
