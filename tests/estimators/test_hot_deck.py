"""Blanks in what is read: bands widen by what is not known, and a blank may itself say something."""

import numpy as np
import pytest

import fillin
from fillin.learners.calibration import untrimmed
from fillin.learners.imputation import DONORS, HotDeck, merge_completions, reduce_components
from fillin.predictive import Categorical, GaussianMixture
from fillin.warp import PiecewiseLinearWarp


def table(rows: int = 200, seed: int = 0) -> np.ndarray:
    """A number, another that follows it closely, and a class that goes with its sign."""
    random = np.random.default_rng(seed)
    x = random.normal(size=rows)
    return np.stack([x, 2 * x + 0.1 * random.normal(size=rows), x > 0], 1)


def deck(rows: np.ndarray) -> HotDeck:
    return HotDeck.from_rows(rows, np.nanstd(rows, 0), np.array([False, False, True]))


def test_what_is_seen_stays_and_blanks_are_as_in_rows_that_are_like():
    asked = np.array([[1.5, np.nan, 1], [np.nan, np.nan, 0], [-0.3, -0.6, 0]])
    found = deck(table()).complete(asked)
    assert found.shape == (3, DONORS, 3)
    assert not np.isnan(found).any()
    there = ~np.isnan(asked)
    for row, seen, made in zip(asked, there, found, strict=True):
        np.testing.assert_array_equal(made[:, seen], np.broadcast_to(row[seen], (DONORS, seen.sum())))
    assert abs(found[0, :, 1].mean() - 3) < 0.5
    assert (found[1, :, 0] < 0).all()


def test_a_row_without_anything_is_completed_by_any_rows():
    rows = np.sort(table(2_000), 0)
    found = deck(rows).complete(np.full((1, 3), np.nan), 400)[0]
    np.testing.assert_allclose(found.std(0), rows.std(0), rtol=0.2)


def test_rows_that_lack_the_same_cell_come_last():
    rows = table()
    rows[: len(rows) // 2, 1] = np.nan
    assert not np.isnan(deck(rows).complete(np.array([[0.2, np.nan, 1]]))).any()


def test_networks_are_asked_about_as_many_blanks_as_they_learnt():
    rows = table()
    rows[::5, 1] = np.nan
    asked = np.array([[0.1, 0.2, 1], [0.1, np.nan, 1], [np.nan, 0.2, 1], [np.nan, np.nan, 1]])
    blanks = deck(rows)
    assert blanks.max_missing == 1
    assert blanks.needs_donors(asked).tolist() == [
        False,
        False,
        True,
        True,
    ]  # nothing is known of blanks in the first column
    assert blanks.with_max_missing(0).needs_donors(asked).tolist() == [False, True, True, True]
    assert not blanks.with_max_missing(3).needs_donors(asked).any()


def test_fewer_parts_have_the_same_mean_and_variance():
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(60), 7)
    means, deviations = random.normal(size=(7, 60)), random.uniform(0.1, 2, (7, 60))
    every = untrimmed(weights, means, deviations)
    fewer = untrimmed(*reduce_components(weights, means, deviations, 9))
    assert fewer.weights.shape == (7, 9)
    np.testing.assert_allclose(fewer.mean, every.mean, atol=1e-12)
    np.testing.assert_allclose(fewer.std, every.std, rtol=1e-12)
    np.testing.assert_allclose(fewer.quantile(0.975), every.quantile(0.975), atol=0.25)


def test_answers_come_back_in_the_order_of_rows():
    lost = np.array([True, False, True])
    chances = np.array([[0.5, 0.5], [1, 0], [0, 1], [0.2, 0.8], [0.4, 0.6]])  # of the second row, then two each
    prediction = merge_completions(Categorical(chances), lost, 2)
    np.testing.assert_allclose(prediction.probabilities, [[0.5, 0.5], [0.5, 0.5], [0.3, 0.7]])
    ones, warp = np.ones((5, 1)), PiecewiseLinearWarp.fit(table()[:, 0])
    mixture = untrimmed(ones, np.array([5.0, 1, 3, 7, 9])[:, None], ones).transformed(warp)
    merged = merge_completions(mixture, lost, 2)
    assert isinstance(merged, GaussianMixture)
    np.testing.assert_allclose(merged.mean, warp.inverse(np.array([2.0, 5, 8])))


@pytest.fixture(scope="module")
def blank_matters():
    """y is the first column, and 2 more where the second is blank: only a network that sees blanks can know."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    gone = random.random(200) < 0.3
    y = x[:, 0] + 2 * gone + 0.1 * random.normal(size=200)
    x[gone, 1] = np.nan
    return fillin.TableRegressor(members=2, steps=200).fit(x, y)


def test_a_blank_that_says_something_is_left_to_the_networks(blank_matters, tmp_path):
    assert blank_matters.learner_.hot_deck.max_missing == 1
    asked = np.array([[0.5, np.nan], [0.5, 0.1]])
    told = blank_matters.predict(asked)
    assert told[0] - told[1] > 1
    again = fillin.TableRegressor.load(blank_matters.save(tmp_path / "model.safetensors"))
    np.testing.assert_allclose(again.predict(asked), told)


def test_bands_widen_with_what_is_not_known():
    rows = table(150)
    y = 3 * rows[:, 0] + 0.2 * np.random.default_rng(1).normal(size=len(rows))
    model = fillin.TableRegressor(members=2, steps=80).fit(rows, y)
    asked = np.array([[1.0, 2.0, 1], [np.nan, np.nan, 1], [np.nan, np.nan, np.nan]])
    mean, std = model.predict(asked, return_std=True)
    assert std[0] < 0.5 * std[1] < 0.5 * std[2]
    assert abs(std[2] / y.std() - 1) < 0.35
    alone = [model.predict(row[None])[0] for row in asked]
    np.testing.assert_allclose(alone, mean, rtol=1e-9)


def test_classes_are_less_sure_too():
    rows = table(150)
    model = fillin.TableClassifier(members=2, steps=80).fit(rows[:, :2], rows[:, 2])
    chances = model.predict_proba(np.array([[1.0, 2.0], [np.nan, np.nan]])).max(1)
    assert chances[0] > 0.9
    assert chances[1] < 0.75


def test_far_from_all_rows_nothing_is_sure():
    rows = table(150)[:, :2]
    model = fillin.TableRegressor(members=2, steps=80).fit(rows, np.sin(2 * rows[:, 0]))
    assert model.learner_.calibrations[0].gp_share > 0
    _, std = model.predict(np.array([[0.5, 1.0], [40.0, -90.0]]), return_std=True)
    assert std[1] > 3 * std[0]
