"""The picture and the page of a filled table, and the test on cells hidden on purpose."""

import os

import pytest
from support.mixed_tables import mixed

from fillin.filling.table import impute as learn
from fillin.filling.table import plan

pytest_plugins = ["support.table_command"]
pytestmark = pytest.mark.usefixtures("quick_tables")


def test_a_picture_and_a_page(fill_table, tmp_path):
    code, said, _ = fill_table(mixed(60), "--as", "table", "--report", picture=True)
    assert code == 0, said
    assert sorted(os.listdir(tmp_path)) == ["data.csv", "data.filled.csv", "data.filled.html", "data.filled.png"]
    assert (tmp_path / "data.filled.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "data.filled.html").read_text()
    for words in ("cells hidden on purpose", "RMSE of the mean", "right: the commonest", "mean ln p", "as table"):
        assert words in page
    for column, cells in {"a": 6, "b": 6, "day": 5, "c": 5, "yes": 5}.items():
        assert f"<td>{column}</td><td>{cells}</td>" in page
    assert "://" not in page  # base64 may spell anything without a colon


def test_what_is_hidden_is_not_seen(monkeypatch):
    """The networks that are judged get a frame without the cells that they are judged on."""
    from fillin.filling.frames import read_frame
    from fillin.filling.table.holdout import judge

    seen, tell = [], learn.tell

    def spy(plan, frame, asked, size):
        seen.append((frame, asked))
        return tell(plan, frame, asked, size)

    monkeypatch.setattr(learn, "tell", spy)
    asked = plan.plan_table(read_frame(mixed(60)).table, kind="table")
    verdicts = judge(asked)
    ((frame, hidden),) = seen
    assert [v.column for v in verdicts] == list(hidden) == ["a", "b", "c", "yes", "day"]
    for name, cells in hidden.items():
        assert cells.any()
        assert frame[name][cells].isna().all()
        assert asked.frame[name][cells].notna().all()
        assert frame[name][~cells].equals(asked.frame[name][~cells])
