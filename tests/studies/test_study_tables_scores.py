"""The study `tables`: every method receives the same rows, and scores agree with closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from scoringrules import crps_normal

from fillin.metrics import calibration_error
from fillin.predictive import Categorical, GaussianMixture
from fillin_studies.tables.data import FEW_LABELS, TableDataset, TableSplit, find_tables
from fillin_studies.tables.methods import (
    FEW_LABEL_METHODS,
    LABELLED_ONLY,
    MAX_GP_ROWS,
    METHODS,
    OURS,
    make_gp,
    predict_points,
    score_classes,
    score_numbers,
)

pytest_plugins = ["support.study_tables"]

pandas = pytest.importorskip("pandas")


def test_every_method_receives_the_same_rows(sets_folder):
    from sklearn.base import BaseEstimator, RegressorMixin

    received: dict[str, list] = {}

    class RegressorSpy(RegressorMixin, BaseEstimator):
        def __init__(self, name):
            self.name = name

        def fit(self, X, y):
            received.setdefault(self.name, []).append((X.to_numpy().tobytes(), y.tobytes()))
            return self

        def predict(self, X):
            received[self.name].append(X.to_numpy().tobytes())
            return np.zeros(len(X))

    data = find_tables(sets_folder).sets["line"]
    for name in ("CatBoost", "k-NN"):
        method = replace(METHODS[name], regressor=lambda seed, name=name: RegressorSpy(name))
        for split in range(2):
            method.evaluate(data.split(split), split)
    assert received["CatBoost"] == received["k-NN"]
    assert len(received["k-NN"]) == 2 * (5 + 1) * 2


def test_rows_without_labels_go_only_to_methods_that_accept_them():
    seen = []

    class ClassifierSpy:
        classes_ = np.array([0.0, 1.0])

        def fit(self, X, y):
            seen.append((len(X), np.isnan(y).sum()))
            return self

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    split = TableDataset("breast_cancer", few_labels=FEW_LABELS).split(0)
    for name in (OURS, LABELLED_ONLY, "MLP"):
        replace(FEW_LABEL_METHODS[name], classifier=lambda seed: ClassifierSpy()).evaluate(split, 0)
    assert seen == [(569, 549), (FEW_LABELS, 0), (FEW_LABELS, 0)]


def test_scores_of_numbers_are_those_of_a_normal_distribution():
    from scipy.stats import norm

    random = np.random.default_rng(0)
    mean, std = random.normal(size=4000), 0.5 + random.random(4000)
    truth = mean + std * random.normal(size=4000)
    scores = score_numbers(GaussianMixture(np.ones((4000, 1)), mean[:, None], std[:, None]), truth)
    assert scores["crps"] == pytest.approx(np.mean(crps_normal(truth, mean, std)), rel=1e-9)
    assert scores["covered"] == pytest.approx(0.95, abs=0.01)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))
    assert scores["log_likelihood"] == pytest.approx(norm.logpdf(truth, mean, std).mean())


def test_scores_of_classes():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
    scores = score_classes(Categorical(probabilities), np.array([0.0, 1.0, 2.0, 0.0]))
    assert scores["accuracy"] == 0.75
    assert scores["log_likelihood"] == pytest.approx(np.mean(np.log([0.9, 0.8, 0.4, 1e-6])))
    assert scores["auroc"] == pytest.approx(np.mean([0.5, 1.0, 2 / 3]))
    assert scores["calibration"] == pytest.approx((0.1 + 0.2 + 0.6 + 1.0) / 4)
    two = np.array([[0.8, 0.2]] * 10)
    codes = np.array([0] * 8 + [1] * 2)  # as often right as the confidence predicts
    assert calibration_error(Categorical(two), codes) == pytest.approx(0)


def test_intervals_of_point_predictions_come_from_held_out_rows():
    """A model that memorises its training rows has no error on them, and is uncertain all the same."""
    from sklearn.neighbors import KNeighborsRegressor

    random = np.random.default_rng(0)
    X, y = pandas.DataFrame({"x": np.arange(400.0)}), random.normal(size=400)
    prediction, _ = predict_points(KNeighborsRegressor(1), TableSplit(X, y, X, y))
    assert np.abs(prediction.mean - y).max() == 0
    assert prediction.std[0] == pytest.approx(np.sqrt(2), rel=0.15)  # of the difference of two


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of a bound that it is at
def test_a_gaussian_process_fits_hyperparameters_on_few_rows_and_predicts_from_all(monkeypatch):
    monkeypatch.setitem(MAX_GP_ROWS, "Regressor", 20)
    monkeypatch.setitem(MAX_GP_ROWS, "Classifier", 12)
    x = np.linspace(-2, 2, 60)[:, None]
    model = make_gp("Regressor", 0).fit(x, np.sin(3 * x[:, 0]))
    assert model.X_train_.shape == (60, 1)
    mean, std = model.predict(x, return_std=True)
    assert np.abs(mean - np.sin(3 * x[:, 0])).max() < 0.05
    assert (std > 0).all()
    classifier = make_gp("Classifier", 0).fit(x, (x[:, 0] > 0).astype(float))
    assert classifier.base_estimator_.X_train_.shape == (12, 1)
    assert classifier.predict_proba(x)[[0, -1], [0, 1]].min() > 0.5
