"""Fixtures of tests of `fillin fill`: a small model in a folder, files, and the command."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import torch

import fillin
from fillin.cli import main


class CommandResult(NamedTuple):
    code: int
    stdout: str
    stderr: str
    path: Path  # of the output

    @property
    def frame(self) -> pd.DataFrame:
        assert self.code == 0, self.stderr
        return pd.read_csv(self.path)


@pytest.fixture(scope="session")
def small_filler(tmp_path_factory) -> Path:
    """Filler with random weights: its predictions are poor, but every other property must hold."""
    torch.manual_seed(0)
    return fillin.save(
        fillin.create("filler", size="small", layers=1, width=16, heads=2, hidden=16),
        tmp_path_factory.mktemp("filler") / "model",
    )


@pytest.fixture
def fill(tmp_path, small_filler, capsys):
    """Return `fill(content, *arguments)`, which writes the content to a file and fills it."""

    def run(content: str | bytes, *arguments: str, name: str = "data.csv", figure: bool = False) -> CommandResult:
        path = tmp_path / name
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(raw)
        code = main(["fill", str(path), "--model", str(small_filler), *([] if figure else ["--no-figure"]), *arguments])
        captured = capsys.readouterr()
        assert path.read_bytes() == raw, "the input was touched"
        return CommandResult(code, captured.out, captured.err, path.with_name(f"{path.stem}.filled{path.suffix}"))

    return run


@pytest.fixture
def assert_refused(fill, tmp_path, monkeypatch):
    """Return `assert_refused(content, arguments, message)`: one line of error that matches, and no file is written."""

    def run(content: str | bytes, arguments: list[str], message: str) -> None:
        monkeypatch.chdir(tmp_path)
        result = fill(content, *arguments)
        assert result.code == 2, result.stdout
        assert re.search(message, result.stderr), result.stderr
        assert "Traceback" not in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert os.listdir(tmp_path) == ["data.csv"]

    return run
