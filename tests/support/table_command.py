"""Fixtures of tests of `fillin fill` of tables: networks that train for a moment, and the command."""

import pandas as pd
import pytest

from fillin.cli import main
from fillin.filling.table import impute as learn


@pytest.fixture
def quick_tables(monkeypatch):
    """Whoever fills tables does it with two networks of ten steps."""
    monkeypatch.setattr(learn, "FULL", learn.EnsembleSize(2, 10))
    monkeypatch.setattr(learn, "SCORING", learn.EnsembleSize(2, 5))


@pytest.fixture
def fill_table(tmp_path, capsys, monkeypatch, quick_tables):
    """fill_table(content, *words): write a file, fill it; the exit code, printed text and output (None: none)."""
    monkeypatch.chdir(tmp_path)

    def run(content: str | bytes | pd.DataFrame, *words: str, picture: bool = False):
        raw = content.to_csv(index=False) if isinstance(content, pd.DataFrame) else content
        raw = raw.encode() if isinstance(raw, str) else raw
        path, out = tmp_path / "data.csv", tmp_path / "data.filled.csv"
        path.write_bytes(raw)
        code = main(["fill", "data.csv", *([] if picture else ["--no-picture"]), *words])
        printed = capsys.readouterr()
        assert path.read_bytes() == raw, "the input was touched"
        return code, printed.out + printed.err, out.read_bytes() if out.exists() else None

    return run
