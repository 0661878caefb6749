"""Fixtures of tests that fill fields and arrays: a small model of two dimensions, and the command."""

from pathlib import Path

import pytest
import torch

import fillin
from fillin.cli import main


@pytest.fixture(scope="session")
def model() -> fillin.models.Process:
    """Of random weights: what it fills is no good, but all else about it must hold."""
    torch.manual_seed(0)
    return fillin.create("filler", dim_x=2, size="small", layers=1, width=16, heads=2, hidden=16).eval()


@pytest.fixture(scope="session")
def folder(model, tmp_path_factory) -> Path:
    return fillin.save(model, tmp_path_factory.mktemp("filler") / "model")


@pytest.fixture
def command(folder, capsys):
    """command(path, *words): the output, and the errors."""

    def run(path: Path, *words: str, code: int = 0) -> tuple[str, str]:
        picture = [] if "--picture" in words or "--report" in words else ["--no-picture"]
        kept = [word for word in words if word != "--picture"]
        with_model = [] if "--model" in words else ["--model", str(folder)]
        exit_code = main(["fill", str(path), *with_model, *picture, *kept])
        captured = capsys.readouterr()
        assert exit_code == code, captured.out + captured.err
        assert "Traceback" not in captured.err
        return captured.out, captured.err

    return run
