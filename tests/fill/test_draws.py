"""Completed copies of series: draws that are coherent across rows and columns."""

import numpy as np
import pandas as pd
import pytest
import torch
from support.helpers import tiny

import fillin
from fillin.cli import main
from fillin.errors import FillinError
from fillin.inference import sheet_paths
from fillin.inference.sheet_paths import ColumnProcess, correlate_columns, mix_columns
from fillin.inference.sheets import SheetContext
from fillin.models.covariance import correlate, distances
from fillin.models.processes import Kernels
from fillin.predictive import GaussianMixture


@pytest.fixture(scope="module")
def model():
    return tiny("sheet", dtype=torch.float32).eval()


def make_frame(n=60, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    t = np.arange(n)
    a = np.sin(t / 9) + 0.02 * random.normal(size=n)
    frame = pd.DataFrame({"day": t, "a": a, "b": 2 * a + 0.1 * random.normal(size=n)})
    frame.loc[15:39, ["a", "b"]] = np.nan
    frame.loc[random.choice(n, 8), "b"] = np.nan
    return frame


def test_draws_are_columns_that_keep_observed_values(model):
    frame = make_frame()
    filled = fillin.fill(frame, draws=3, model=model)
    assert [name for name in filled if "draw" in name] == [f"{y}_draw{k}" for y in "ab" for k in (1, 2, 3)]
    for column in "ab":
        seen = frame[column].notna()
        draws = filled[[f"{column}_draw{k}" for k in (1, 2, 3)]].to_numpy()
        assert (draws[seen] == frame.loc[seen, [column]].to_numpy()).all()
        assert np.isfinite(draws).all()
        assert (draws[~seen].std(1) > 0).all()
    again = fillin.fill(frame, draws=3, model=model)
    assert again.equals(filled)  # the same seed
    other = fillin.fill(frame, draws=3, model=model, seed=1)
    assert not other.equals(filled)
    predicted = [name for name in filled if "draw" not in name]
    assert other[predicted].equals(filled[predicted])  # predictions do not depend on it


def test_moments_of_draws_are_those_of_the_predictions(model):
    frame = make_frame()
    filled = fillin.fill(frame, draws=400, model=model)
    for column in "ab":
        rows = frame[column].isna()
        draws = filled.loc[rows, [f"{column}_draw{k}" for k in range(1, 401)]].to_numpy()
        mean, std = filled.loc[rows, f"{column}_filled"], filled.loc[rows, f"{column}_std"]
        assert (np.abs(draws.mean(1) - mean) < 0.3 * std).all()
        assert np.abs(np.log(draws.std(1) / std)).max() < 0.25


def test_draws_of_a_csv_and_of_bounded_columns(model, tmp_path):
    frame = make_frame()
    frame["b"] = frame["b"].clip(lower=0.1)
    path, weights = tmp_path / "log.csv", tmp_path / "model"
    frame.to_csv(path, index=False)
    fillin.save(model, weights)
    command = ["fill", str(path), "--draws", "2", "--bounds", "b=0:", "--model", str(weights), "--no-figure"]
    assert main(command) == 0
    written = pd.read_csv(tmp_path / "log.filled.csv")
    assert (written[["b_draw1", "b_draw2"]] >= 0).all().all()
    expected = fillin.fill(frame, draws=2, bounds={"b": (0, None)}, model=model)
    assert np.allclose(written["a_draw2"], expected["a_draw2"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("draws", [-1, 10_000, True])
def test_numbers_of_draws_are_checked(draws, model):
    with pytest.raises(FillinError, match="draws must be a whole number from 0 to 1000"):
        fillin.fill(make_frame(), draws=draws, model=model)


def test_draws_need_series_and_a_sheet_model():
    with pytest.raises(FillinError, match="draws does not apply to a field or array"):
        fillin.fill(np.array([[1.0, np.nan], [2.0, 3.0]]), draws=2)
    with pytest.raises(FillinError, match="draws needs a model that fills sheets"):
        fillin.fill(make_frame(), draws=2, model=tiny("filler", dtype=torch.float32))


def test_scores_are_those_of_the_process(monkeypatch):
    """Drawn block by block, normal scores have the correlations of exact inference."""
    monkeypatch.setattr(sheet_paths, "_BLOCK", 4)
    x = np.linspace(-2, 2, 30)[:, None]
    observed, queried = np.array([0, 3, 20, 25]), np.arange(4, 16)
    theta = torch.tensor([[[0, 0.5, 0.1, 0, 1, 1]]], dtype=torch.float64)
    kernels = Kernels(theta, torch.zeros(1), torch.zeros(1, dtype=torch.bool))
    noises = np.random.default_rng(0).normal(size=(2, 20_000, 30))
    scores = ColumnProcess(x, observed, queried, kernels).draw(noises, lambda done: None)
    points = torch.from_numpy(x)[None]
    gram = correlate(theta[:, 0], torch.zeros(1), distances(points, points))[0].numpy()
    noise = 0.01 * np.eye(30)
    cross = gram[np.ix_(queried, observed)]
    left = gram + noise
    posterior = left[np.ix_(queried, queried)] - cross @ np.linalg.solve(left[np.ix_(observed, observed)], cross.T)
    root = np.sqrt(posterior.diagonal())
    assert np.abs(np.cov(scores.T) - posterior / np.outer(root, root)).max() < 0.05


def test_columns_of_a_row_are_mixed_given_the_observed_ones():
    random = np.random.default_rng(0)
    loading = np.array([[1.0, 0.9, -0.5], [0.0, 0.4, 0.8]])
    values = random.normal(size=(5000, 2)) @ loading + 0.3 * random.normal(size=(5000, 3))
    values /= values.std(0)
    seen = np.ones((5000, 3), dtype=bool)
    correlation = correlate_columns(values, seen)
    assert np.abs(correlation - np.corrcoef(values.T)).max() < 0.03
    observed = np.array([[False, False, False], [False, False, True]])
    mixed = mix_columns(random.normal(size=(1, 20_000, 2, 3)), correlation, observed)[0]
    assert np.abs(np.corrcoef(mixed[:, 0].T) - correlation).max() < 0.04
    given = correlation[:2, :2] - np.outer(correlation[:2, 2], correlation[:2, 2])
    expected = given[0, 1] / np.sqrt(given[0, 0] * given[1, 1])
    assert abs(np.corrcoef(mixed[:, 1, :2].T)[0, 1] - expected) < 0.04
    assert np.isfinite(correlate_columns(np.zeros((4, 3)), np.zeros((4, 3), dtype=bool))).all()


def test_a_gap_of_two_columns_is_drawn_coherently(model):
    frame = make_frame()
    x, y = frame["day"].to_numpy(float), frame[["a", "b"]].to_numpy()
    scores = SheetContext(model, x, y).draw_scores(np.isnan(y), 500, 0)
    a, b = scores
    assert a is not None
    assert b is not None
    middle = np.flatnonzero(np.isnan(y[:, 0])).tolist().index(25), np.flatnonzero(np.isnan(y[:, 1])).tolist().index(25)
    assert np.corrcoef(a[:, middle[0]], a[:, middle[0] + 1])[0, 1] > 0.5  # along the rows
    assert np.corrcoef(a[:, middle[0]], b[:, middle[1]])[0, 1] > 0.5  # b is twice a


def test_a_mixture_is_drawn_at_normal_scores():
    mixture = GaussianMixture(np.array([[0.4, 0.6]]), np.array([[-1.0, 2.0]]), np.array([[0.5, 1.0]]))
    scores = np.random.default_rng(0).normal(size=(20_000, 1))
    draws = mixture.draw_at(scores)
    assert abs(draws.mean() - mixture.mean[0]) < 0.03
    assert abs(draws.std() - mixture.std[0]) < 0.03
    assert (np.diff(draws[scores[:, 0].argsort(), 0]) >= 0).all()


def test_draws_of_many_columns_are_joint(model):
    """More columns than are predicted together share the gaps of one walk."""
    random = np.random.default_rng(0)
    walk = random.normal(size=80).cumsum()
    y = walk[:, None] + 0.3 * random.normal(size=(80, 15))
    y[30:50] = np.nan
    scores = SheetContext(model, np.arange(80.0), y).draw_scores(np.isnan(y), 200, 0)
    middle = np.corrcoef(np.stack([score[:, 10] for score in scores if score is not None]))
    assert middle.shape == (15, 15)
    assert middle.min() > 0.4


def test_draws_near_uncertain_values_go_together(model):
    """An observation with a large error does not pin the draws beside it."""
    y = np.random.default_rng(0).normal(size=60).cumsum()[:, None]
    y[29], y[31] = np.nan, np.nan

    def correlation(error: float) -> float:
        errors = np.zeros_like(y)
        errors[30] = error
        (scores,) = SheetContext(model, np.arange(60.0), y, errors).draw_scores(np.isnan(y), 2000, 0)
        assert scores is not None
        return float(np.corrcoef(scores.T)[0, 1])

    assert correlation(5.0) > correlation(0.0) + 0.1


def test_blocks_of_draws_span_few_observed_cells():
    """Also where little is missing of a long record."""
    x = np.arange(20_000.0)[:, None]
    queried = np.arange(0, 20_000, 400)
    observed = np.setdiff1d(np.arange(20_000), queried)
    process = ColumnProcess(x, observed, queried, Kernels(torch.zeros(1, 1, 6), torch.zeros(1), torch.zeros(1) > 0))
    blocks = list(process._blocks())
    assert sorted(i for block in blocks for i in block.queries) == list(range(50))
    close = ColumnProcess(x, observed[::400], np.arange(100, 300), process.kernels)
    assert max(len(block.queries) for block in close._blocks()) == sheet_paths._BLOCK
