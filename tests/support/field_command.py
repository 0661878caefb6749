"""Fixtures of tests that fill fields and arrays: a small model of two input dimensions, and the command."""

from pathlib import Path

import pytest
import torch

import fillin
from fillin.cli import main


@pytest.fixture(scope="session")
def model() -> fillin.models.Process:
    """Model with random weights: its predictions are poor, but every other property must hold."""
    torch.manual_seed(0)
    return fillin.create("filler", dim_x=2, size="small", layers=1, width=16, heads=2, hidden=16).eval()


@pytest.fixture(scope="session")
def folder(model, tmp_path_factory) -> Path:
    return fillin.save(model, tmp_path_factory.mktemp("filler") / "model")


@pytest.fixture
def command(folder, capsys):
    """Return `command(path, *arguments)`, which runs `fillin fill` and returns its stdout and stderr."""

    def run(path: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
        figure = [] if "--figure" in arguments or "--report" in arguments else ["--no-figure"]
        remaining = [argument for argument in arguments if argument != "--figure"]
        with_model = [] if "--model" in arguments else ["--model", str(folder)]
        exit_code = main(["fill", str(path), *with_model, *figure, *remaining])
        captured = capsys.readouterr()
        assert exit_code == code, captured.out + captured.err
        assert "Traceback" not in captured.err
        return captured.out, captured.err

    return run
