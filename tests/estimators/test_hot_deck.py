"""Missing features: multiple imputation widens prediction intervals, and missingness itself may be informative."""

from dataclasses import replace

import numpy as np
import pytest

import fillin
from fillin.learners.calibration import untrimmed
from fillin.learners.encoding import DONORS, HotDeck, merge_completions, reduce_components
from fillin.predictive import Categorical, GaussianMixture
from fillin.warp import PiecewiseLinearWarp


def table(rows: int = 200, seed: int = 0) -> np.ndarray:
    """A number, a correlated number, and the class of its sign."""
    random = np.random.default_rng(seed)
    x = random.normal(size=rows)
    return np.stack([x, 2 * x + 0.1 * random.normal(size=rows), x > 0], 1)


def deck(rows: np.ndarray) -> HotDeck:
    return HotDeck.from_rows(rows, np.nanstd(rows, 0), np.array([False, False, True]))


def test_observed_cells_are_kept_and_missing_ones_come_from_similar_rows():
    query = np.array([[1.5, np.nan, 1], [np.nan, np.nan, 0], [-0.3, -0.6, 0]])
    completions = deck(table()).complete(query)
    assert completions.shape == (3, DONORS, 3)
    assert not np.isnan(completions).any()
    for row, observed, completed in zip(query, ~np.isnan(query), completions, strict=True):
        np.testing.assert_array_equal(completed[:, observed], np.broadcast_to(row[observed], (DONORS, observed.sum())))
    assert abs(completions[0, :, 1].mean() - 3) < 0.5
    assert (completions[1, :, 0] < 0).all()


def test_an_empty_row_is_completed_from_all_rows():
    rows = np.sort(table(2_000), 0)
    completions = deck(rows).complete(np.full((1, 3), np.nan), 400)[0]
    np.testing.assert_allclose(completions.std(0), rows.std(0), rtol=0.2)


def test_donors_have_the_missing_cell():
    rows = table()
    rows[: len(rows) // 2, 1] = np.nan
    assert not np.isnan(deck(rows).complete(np.array([[0.2, np.nan, 1]]))).any()


def test_networks_handle_as_many_missing_cells_as_in_training():
    rows = table()
    rows[::5, 1] = np.nan
    query = np.array([[0.1, 0.2, 1], [0.1, np.nan, 1], [np.nan, 0.2, 1], [np.nan, np.nan, 1]])
    donors = deck(rows)
    assert donors.max_missing == 1
    # the first column is never missing in training
    assert donors.needs_donors(query).tolist() == [False, False, True, True]
    assert replace(donors, max_missing=0).needs_donors(query).tolist() == [False, True, True, True]
    assert not replace(donors, max_missing=3).needs_donors(query).any()


def test_reduced_mixtures_keep_mean_and_variance():
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(60), 7)
    means, stds = random.normal(size=(7, 60)), random.uniform(0.1, 2, (7, 60))
    full = untrimmed(weights, means, stds)
    reduced = untrimmed(*reduce_components(weights, means, stds, 9))
    assert reduced.weights.shape == (7, 9)
    np.testing.assert_allclose(reduced.mean, full.mean, atol=1e-12)
    np.testing.assert_allclose(reduced.std, full.std, rtol=1e-12)
    np.testing.assert_allclose(reduced.quantile(0.975), full.quantile(0.975), atol=0.25)


def test_merged_predictions_are_in_the_order_of_rows():
    incomplete = np.array([True, False, True])
    probabilities = np.array([[0.5, 0.5], [1, 0], [0, 1], [0.2, 0.8], [0.4, 0.6]])  # of the second row, then two each
    prediction = merge_completions(Categorical(probabilities), incomplete, 2)
    np.testing.assert_allclose(prediction.probabilities, [[0.5, 0.5], [0.5, 0.5], [0.3, 0.7]])
    ones, warp = np.ones((5, 1)), PiecewiseLinearWarp.fit(table()[:, 0])
    mixture = untrimmed(ones, np.array([5.0, 1, 3, 7, 9])[:, None], ones).transformed(warp)
    merged = merge_completions(mixture, incomplete, 2)
    assert isinstance(merged, GaussianMixture)
    np.testing.assert_allclose(merged.mean, warp.inverse(np.array([2.0, 5, 8])))


@pytest.fixture(scope="module")
def informative_missingness():
    """y is the first column, plus 2 where the second is missing: only a network that sees missing cells can know."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    missing = random.random(200) < 0.3
    y = x[:, 0] + 2 * missing + 0.1 * random.normal(size=200)
    x[missing, 1] = np.nan
    return fillin.TableRegressor(members=2, steps=200).fit(x, y)


def test_informative_missingness_is_left_to_the_networks(informative_missingness, tmp_path):
    assert informative_missingness.learner_.hot_deck.max_missing == 1
    query = np.array([[0.5, np.nan], [0.5, 0.1]])
    prediction = informative_missingness.predict(query)
    assert prediction[0] - prediction[1] > 1
    again = fillin.TableRegressor.load(informative_missingness.save(tmp_path / "model.safetensors"))
    np.testing.assert_allclose(again.predict(query), prediction)


def test_intervals_widen_with_missing_features():
    rows = table(150)
    y = 3 * rows[:, 0] + 0.2 * np.random.default_rng(1).normal(size=len(rows))
    model = fillin.TableRegressor(members=2, steps=80).fit(rows, y)
    query = np.array([[1.0, 2.0, 1], [np.nan, np.nan, 1], [np.nan, np.nan, np.nan]])
    mean, std = model.predict(query, return_std=True)
    assert std[0] < 0.5 * std[1] < 0.5 * std[2]
    assert abs(std[2] / y.std() - 1) < 0.35
    alone = [model.predict(row[None])[0] for row in query]
    np.testing.assert_allclose(alone, mean, rtol=1e-9)


def test_class_confidence_falls_with_missing_features():
    rows = table(150)
    model = fillin.TableClassifier(members=2, steps=80).fit(rows[:, :2], rows[:, 2])
    confidence = model.predict_proba(np.array([[1.0, 2.0], [np.nan, np.nan]])).max(1)
    assert confidence[0] > 0.9
    assert confidence[1] < 0.75


def test_intervals_widen_far_from_all_rows():
    rows = table(150)[:, :2]
    model = fillin.TableRegressor(members=2, steps=80).fit(rows, np.sin(2 * rows[:, 0]))
    assert model.learner_.calibrations[0].gp_share > 0
    _, std = model.predict(np.array([[0.5, 1.0], [40.0, -90.0]]), return_std=True)
    assert std[1] > 3 * std[0]
