"""The study `tables`: every method is asked the same, and what it says is measured rightly."""

from dataclasses import replace

import numpy as np
import pytest
from scoringrules import crps_normal

from fillin_studies.tables import gps
from fillin_studies.tables.data import FEW, Case, Set, find
from fillin_studies.tables.forecasts import LEVELS, Forecast, points
from fillin_studies.tables.methods import ALONE, METHODS, OURS, WITH_FEW
from fillin_studies.tables.score import ask, calibration, of_classes, of_numbers

pytest_plugins = ["support.study_tables"]

pandas = pytest.importorskip("pandas")


def test_every_method_is_asked_the_same(sets_folder):
    from sklearn.base import BaseEstimator, RegressorMixin

    asked: dict[str, list] = {}

    class Spy(RegressorMixin, BaseEstimator):
        def __init__(self, name):
            self.name = name

        def fit(self, X, y):
            asked.setdefault(self.name, []).append((X.to_numpy().tobytes(), y.tobytes()))
            return self

        def predict(self, X):
            asked[self.name].append(X.to_numpy().tobytes())
            return np.zeros(len(X))

    data = find(sets_folder).sets["line"]
    for name in ("CatBoost", "k-NN"):
        method = replace(METHODS[name], regressor=lambda seed, name=name: Spy(name))
        for split in range(2):
            ask(method, data.case(split), split)
    assert asked["CatBoost"] == asked["k-NN"]
    assert len(asked["k-NN"]) == 2 * (5 + 1) * 2


def test_only_who_can_is_given_rows_without_labels():
    seen = []

    class Spy:
        classes_ = np.array([0.0, 1.0])

        def fit(self, X, y):
            seen.append((len(X), np.isnan(y).sum()))
            return self

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    case = Set("breast_cancer", few=FEW).case(0)
    for name in (OURS, ALONE, "MLP"):
        ask(replace(WITH_FEW[name], classifier=lambda seed: Spy()), case, 0)
    assert seen == [(569, 549), (FEW, 0), (FEW, 0)]


def test_scores_of_numbers_are_those_of_a_normal():
    from scipy.stats import norm

    random = np.random.default_rng(0)
    mean, deviation = random.normal(size=4000), 0.5 + random.random(4000)
    truth = mean + deviation * random.normal(size=4000)
    told = Forecast(mean, mean + norm.ppf(LEVELS)[:, None] * deviation, norm.logpdf(truth, mean, deviation), 0.0)
    found = of_numbers(told, truth)
    assert found["crps"] == pytest.approx(np.mean(crps_normal(truth, mean, deviation)), rel=5e-3)
    assert found["covered"] == pytest.approx(0.95, abs=0.01)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))
    assert found["log_likelihood"] == pytest.approx(norm.logpdf(truth, mean, deviation).mean())


def test_scores_of_classes():
    told = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
    found = of_classes(told, np.array([0.0, 1.0, 2.0, 0.0]))
    assert found["accuracy"] == 0.75
    assert found["log_likelihood"] == pytest.approx(np.mean(np.log([0.9, 0.8, 0.4, 1e-6])))
    assert found["auroc"] == pytest.approx(np.mean([0.5, 1.0, 2 / 3]))
    assert calibration(told, np.array([0, 1, 2, 0])) == pytest.approx((0.1 + 0.2 + 0.6 + 1.0) / 4)
    two = np.array([[0.8, 0.2]] * 10)
    assert calibration(two, np.array([0] * 8 + [1] * 2)) == pytest.approx(0)  # right as often as it says


def test_bands_of_points_are_of_rows_that_were_left_out():
    """One that knows its own rows by heart misses none of them, and still is not sure."""
    from sklearn.neighbors import KNeighborsRegressor

    random = np.random.default_rng(0)
    X, y = pandas.DataFrame({"x": np.arange(400.0)}), random.normal(size=400)
    told = points(KNeighborsRegressor(1), Case(X, y, X, y))
    assert np.abs(told.mean - y).max() == 0
    deviation = -told.log_prob[0] - 0.5 * np.log(2 * np.pi)
    assert np.exp(deviation) == pytest.approx(np.sqrt(2), rel=0.15)  # of the difference of two


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of a bound that it is at
def test_a_process_takes_few_rows_for_its_settings_and_all_for_its_answers(monkeypatch):
    monkeypatch.setitem(gps.MOST, "regression", 20)
    monkeypatch.setitem(gps.MOST, "classification", 12)
    x = np.linspace(-2, 2, 60)[:, None]
    model = gps.ProcessRegressor().fit(x, np.sin(3 * x[:, 0]))
    assert model.fitted_.X_train_.shape == (60, 1)
    mean, deviation = model.predict(x, return_std=True)
    assert np.abs(mean - np.sin(3 * x[:, 0])).max() < 0.05
    assert (deviation > 0).all()
    sorted_out = gps.ProcessClassifier().fit(x, (x[:, 0] > 0).astype(float))
    assert sorted_out.fitted_.base_estimator_.X_train_.shape == (12, 1)
    assert sorted_out.predict_proba(x)[[0, -1], [0, 1]].min() > 0.5
