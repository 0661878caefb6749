"""Fixtures of tests of the regressor: one that is fitted, a package that ships small models, and little patience."""

import pytest

import fillin
from fillin import ProcessRegressor
from support.regression_data import X, Y, filler


@pytest.fixture
def hasty(monkeypatch):
    """The search for scales has tests of its own."""
    monkeypatch.setattr("fillin.inference.length_scales.MAX_STEPS", 2)


@pytest.fixture(scope="module")
def fitted():
    return ProcessRegressor(filler()).fit(X, Y)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package that ships `names`, each a small model with random weights."""
    monkeypatch.setattr("fillin.pretrained.FOLDER", tmp_path)

    def ship(**models):
        for name, model in models.items():
            fillin.save(model, tmp_path / name / "best")
            (tmp_path / name / "recipe.yaml").touch()
        return tmp_path

    return ship
