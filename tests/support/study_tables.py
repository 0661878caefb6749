"""Fixtures of tests of the study `tables`: a folder of data sets, and fast settings of our method."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fillin
from fillin_studies.tables.methods import FEW_LABEL_METHODS, LABELLED_ONLY, METHODS, OURS
from support.study_files import write_data_set


@pytest.fixture
def sets_folder(tmp_path) -> Path:
    """Noisy line in 40 rows, and a set with the name of a large one."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2)).round(4)
    y = (3 * x[:, 0] + 0.1 * random.normal(size=40)).round(4)
    write_data_set(tmp_path / "data" / "line", [f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True)])
    write_data_set(tmp_path / "data" / "protein", ["1,2"] * 8)
    return tmp_path / "data"


@pytest.fixture
def fast_table_methods(monkeypatch):
    """Our method with two members and at most twenty steps."""

    def small(kind, steps=20, **options):
        return lambda seed: kind(members=2, steps=steps, random_state=seed, **options)

    ours = replace(METHODS[OURS], regressor=small(fillin.TableRegressor), classifier=small(fillin.TableClassifier))
    monkeypatch.setitem(METHODS, OURS, ours)
    monkeypatch.setitem(FEW_LABEL_METHODS, LABELLED_ONLY, ours)
    semi = replace(ours, classifier=small(fillin.TableClassifier, 4, features=0.5), unlabelled=True)
    monkeypatch.setitem(FEW_LABEL_METHODS, OURS, semi)
