"""Fixtures of tests of the regressor: a fitted one, small pretrained models, and a short search for length scales."""

import pytest

import fillin
from fillin import ProcessRegressor
from support.regression_data import X, Y, filler


@pytest.fixture
def short_search(monkeypatch):
    """Search for length scales with two steps: other tests check the search."""
    monkeypatch.setattr("fillin.inference.length_scales.MAX_STEPS", 2)


@pytest.fixture(scope="module")
def fitted():
    return ProcessRegressor(filler()).fit(X, Y)


@pytest.fixture
def ship_models(tmp_path, monkeypatch):
    """Return `ship_models(**models)`, which replaces the pretrained models by the given ones."""
    monkeypatch.setattr("fillin.pretrained.FOLDER", tmp_path)

    def ship(**models):
        for name, model in models.items():
            fillin.save(model, tmp_path / name / "best")
            (tmp_path / name / "recipe.yaml").touch()
        return tmp_path

    return ship
