"""Figure and HTML report of a filled table, with scores on held-out cells."""

import os

import numpy as np
import pytest
from support.mixed_tables import mixed

from fillin.filling.plan import make_plan
from fillin.filling.table import impute as learn

pytest_plugins = ["support.table_command"]
pytestmark = pytest.mark.usefixtures("quick_tables")


def test_the_figure_and_the_report(fill_table, tmp_path):
    code, printed, _ = fill_table(mixed(60), "--as", "table", "--report", figure=True)
    assert code == 0, printed
    assert sorted(os.listdir(tmp_path)) == ["data.csv", "data.filled.csv", "data.filled.html", "data.filled.png"]
    assert (tmp_path / "data.filled.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "data.filled.html").read_text()
    for words in ("Hold-out scores", "RMSE of the mean", "most frequent class", "mean ln p", "as table"):
        assert words in page
    for column, cells in {"a": 6, "b": 6, "day": 5, "c": 5, "yes": 5}.items():
        assert f"<td>{column}</td><td>{cells}</td>" in page
    assert "://" not in page  # base64 may spell anything without a colon


def test_held_out_cells_are_missing_in_training(monkeypatch):
    """The scored networks get a table without the cells that they are scored on."""
    calls, predict_cells = [], learn.predict_cells

    def record_call(plan, table, cells, size):
        calls.append((table, cells))
        return predict_cells(plan, table, cells, size)

    monkeypatch.setattr(learn, "predict_cells", record_call)
    plan = make_plan(mixed(60), {"kind": "table"})
    scores = plan.holdout(None, {})
    ((table, held_out),) = calls
    assert [score.name for score in scores] == list(held_out) == ["a", "b", "c", "yes", "day"]
    for name, cells in held_out.items():
        assert cells.any()
        column, complete = table.column(name), plan.table.column(name)
        assert column.missing[cells].all()
        assert not complete.missing[cells].any()
        np.testing.assert_array_equal(column.features[~cells], complete.features[~cells])
