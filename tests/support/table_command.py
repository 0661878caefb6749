"""Fixtures of tests of `fillin fill` of tables: networks with few training steps, and the command."""

import pandas as pd
import pytest

from fillin.cli import main
from fillin.filling.table import impute as learn


@pytest.fixture
def quick_tables(monkeypatch):
    """Fill tables with two networks of ten steps."""
    monkeypatch.setattr(learn, "FULL", learn.EnsembleSize(2, 10))
    monkeypatch.setattr(learn, "SCORING", learn.EnsembleSize(2, 5))


@pytest.fixture
def fill_table(tmp_path, capsys, monkeypatch, quick_tables):
    """Return `fill_table(content, *arguments)`, which writes a file and fills it.

    It returns the exit code, the printed text and the bytes of the output (None without output).
    """
    monkeypatch.chdir(tmp_path)

    def run(content: str | bytes | pd.DataFrame, *arguments: str, figure: bool = False):
        content_bytes = content.to_csv(index=False) if isinstance(content, pd.DataFrame) else content
        content_bytes = content_bytes.encode() if isinstance(content_bytes, str) else content_bytes
        path, out = tmp_path / "data.csv", tmp_path / "data.filled.csv"
        path.write_bytes(content_bytes)
        code = main(["fill", "data.csv", *([] if figure else ["--no-figure"]), *arguments])
        printed = capsys.readouterr()
        assert path.read_bytes() == content_bytes, "the input was touched"
        return code, printed.out + printed.err, out.read_bytes() if out.exists() else None

    return run
