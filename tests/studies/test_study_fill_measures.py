"""Scores of the study `fill`: masks, closed forms, pooling, and the comparisons of the report."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import ExactProcess, make_monthly_series

from fillin.predictive import GaussianMixture
from fillin_studies.fill import CRPS, OTHER_METRICS, scores, tabulate
from fillin_studies.fill.comparison import (
    compare_with_three,
    describe_comparisons,
    tabulate_comparisons,
    tabulate_distances,
)
from fillin_studies.fill.data import (
    BLOCK_SHARES,
    GAP_KINDS,
    GapCase,
    GapMask,
    PriorSeries,
    draw_block_lengths,
    make_mask,
)
from fillin_studies.fill.interpolation import make_normal
from fillin_studies.fill.methods import BEST_OF_THREE, METHODS

SIZES = (12, 64, 91, 144, 468)


def runs(held_out: np.ndarray) -> list[int]:
    """Lengths of runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], held_out.astype(int), [0]])))
    return list(edges[1::2] - edges[::2])


# Masks


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("number", [0, 1, 7])
def test_masks_hold_out_the_declared_share(n, number):
    for kind in ("random", "blocks"):
        mask = make_mask(kind, n, number)
        assert mask.held_out.sum() == round(0.3 * n)
        assert (mask.observed == ~mask.held_out).all()
    low, high = math.ceil(BLOCK_SHARES[0] * n), max(1, math.floor(BLOCK_SHARES[1] * n))
    lengths = runs(make_mask("blocks", n, number).held_out)
    assert all(low <= length <= high for length in lengths)
    assert sum(lengths) == round(0.3 * n)
    end = make_mask("end", n, number)
    used = int((end.observed | end.held_out).sum())
    assert end.held_out.sum() == round(0.15 * used)
    assert runs(end.held_out) == [end.held_out.sum()]
    assert end.held_out[used - 1]
    assert not end.observed[used:].any()
    assert used == n if number == 0 else 0.6 * n - 1 <= used <= n


def test_a_field_holds_out_the_given_share():
    assert make_mask("random", 1000, 0, share=0.4).held_out.sum() == 400


def test_masks_are_a_function_of_their_number():
    for kind in GAP_KINDS:
        assert (make_mask(kind, 91, 3).held_out == make_mask(kind, 91, 3).held_out).all()
        assert len({make_mask(kind, 91, number).held_out.tobytes() for number in range(20)}) > 10


def test_block_lengths_sum_to_the_number_of_held_out_points():
    for seed in range(50):
        lengths = draw_block_lengths(100, 30, np.random.default_rng(seed))
        assert lengths.sum() == 30
        assert lengths.min() >= 3
        assert lengths.max() <= 12


# Measures


def test_measures_against_closed_forms():
    """N(0, 1) where the truth is 0, 1 and 3, in units of the whole series."""
    y = np.array([0.0, 1.0, 3.0, 5.0, -4.0])
    case = GapCase(np.arange(5.0)[:, None], y, GapMask(np.arange(5) > 2, np.arange(5) < 3))
    scored = scores.score_prediction(make_normal(np.zeros(3), np.ones(3)), case)
    unit, truth = y.std(), y[:3]
    density = np.exp(-(truth**2) / 2) / np.sqrt(2 * np.pi)
    below = np.array([0.5 * (1 + math.erf(t / math.sqrt(2))) for t in truth])
    crps = truth * (2 * below - 1) + 2 * density - 1 / math.sqrt(math.pi)  # Gneiting & Raftery 2007, equation 21
    assert scored["crps"] == pytest.approx(crps.mean() / unit)
    assert scored["log_likelihood"] == pytest.approx(np.log(density * unit).mean())
    assert scored["squared"] == pytest.approx((truth**2).mean() / unit**2)
    assert scored["point"] == pytest.approx(truth.mean() / unit)
    assert scored["covered"] == pytest.approx(2 / 3)


def test_measures_do_not_depend_on_units():
    x, y = make_monthly_series()
    held_out = make_mask("blocks", len(y), 0)
    scored = scores.score_prediction(METHODS["linear"].predict(*(case := GapCase(x, y, held_out)).query), case)
    rescaled = scores.score_prediction(
        METHODS["linear"].predict(*(case := GapCase(9 * x, 1e4 * y - 7, held_out)).query), case
    )
    assert scored == pytest.approx(rescaled)


def test_scores_of_a_mixture():
    """Half at −1 and half at 1, both narrow: the truth at 1 has half of the density, and both ends are covered."""
    case = GapCase(
        np.arange(4.0)[:, None], np.array([1.0, -1.0, 1.0, -1.0]), GapMask(np.arange(4) > 1, np.arange(4) < 2)
    )
    prediction = GaussianMixture(np.full((2, 2), 0.5), np.tile([-1.0, 1.0], (2, 1)), np.full((2, 2), 0.01))
    scored = scores.score_prediction(prediction, case)
    assert scored["log_likelihood"] == pytest.approx(math.log(0.5 / 0.01 / math.sqrt(2 * math.pi)))
    assert scored["crps"] == pytest.approx(0.5, abs=0.01)  # E|X − 1| − E|X − X'|/2 = 1 − 1/2
    assert scored["covered"] == 1


def test_pooling_is_over_masks():
    first = {"crps": 0.1, "squared": 1.0, "covered": 1.0, "seconds": 2.0}
    second = {"crps": 0.3, "squared": 7.0, "covered": 0.5, "seconds": 4.0}
    pooled = scores.pool_masks([first, second])
    assert pooled["masks"] == 2
    assert pooled["crps"] == pytest.approx(0.2)
    assert pooled["crps_error"] == pytest.approx(0.1)
    assert pooled["rmse"] == pytest.approx(2.0)
    assert (pooled["covered"], pooled["seconds"]) == (0.75, 3.0)
    assert scores.pool_masks([first])["crps_error"] == 0


def test_a_limit_that_has_not_converged_is_none():
    converged, moved = ({"log_likelihood": 1.0, "moved": by, "seconds": 1.0} for by in (0.01, 0.2))
    assert scores.pool_masks([converged, converged])["log_likelihood"] == 1
    assert "log_likelihood" not in scores.pool_masks([converged, moved])


def test_linear_interpolation_does_not_exceed_exact_bayes():
    data = PriorSeries("rbf")
    limit = scores.measure(data, "random", scores.BAYES, 3, lambda share: None)
    line = scores.measure(data, "random", "linear", 3, lambda share: None)
    assert limit["log_likelihood"] > line["log_likelihood"]
    assert "crps" not in limit


# The report


def result(method: str, crps: float, covered: float = 0.95, seconds: float = 1.0, group: str = "curve") -> dict:
    fields = {"data": "a", "kind": "random", "group": group, "method": method, "masks": 1}
    return {**fields, "crps": crps, "covered": covered, "seconds": seconds, "log_likelihood": -crps, "rmse": crps}


def test_the_best_is_bold_and_bayes_is_not_ranked():
    results = {("a", "random"): {"curve": result("curve", 0.2), "linear": result("linear", 0.1)}}
    columns, rows = tabulate(results, CRPS)
    assert columns == ["", "curve", "linear"]
    assert rows == [["a, random", "0.200", "**0.100**"]]
    results["a", "random"][scores.BAYES] = {"log_likelihood": 5.0, "seconds": 1.0}
    columns, [row] = tabulate(results, OTHER_METRICS[0])
    assert columns[-1] == scores.BAYES
    assert row == ["a, random", "-0.20", "**-0.10**", "5.00"]
    assert "**" not in "".join(tabulate(results, OTHER_METRICS[2])[1][0])  # coverage has no best


def by_mask(method: str, crps: list[float], covered: float = 0.95, group: str = "curve") -> dict:
    spread = {"crps_by_mask": crps, "covered_error": 0.01}
    return {**result(method, float(np.mean(crps)), covered, group=group), **spread}


def test_ours_is_compared_with_the_best_of_three():
    others = {name: by_mask(name, [crps, crps]) for name, crps in zip(BEST_OF_THREE, (0.3, 0.2, 0.4), strict=True)}
    ours = by_mask("sheet", [0.2, 0.24], covered=0.93)
    [comparison] = compare_with_three({("a", "random"): {**others, "sheet": ours}})
    assert comparison.best == BEST_OF_THREE[1]
    assert comparison.is_calibrated
    assert comparison.ratio == pytest.approx(1.1)
    assert comparison.errors_behind == pytest.approx(0.02 / 0.02)  # differences 0 and 0.04 on the two masks
    assert comparison.no_worse
    assert not compare_with_three({("a", "random"): {"sheet": ours}})  # nothing to compare with
    field = {name: {**scored, "group": "field"} for name, scored in {**others, "sheet": ours}.items()}
    assert not compare_with_three({("a", "random"): field})


def test_differences_are_paired_over_masks():
    """Masks differ far more than the methods do, and by the same amount for both."""
    others = {name: by_mask(name, [1.0, 2.0, 4.0]) for name in BEST_OF_THREE}
    [comparison] = compare_with_three({("a", "random"): {**others, "sheet": by_mask("sheet", [1.1, 2.1, 4.11])}})
    assert comparison.errors_behind > 20
    assert not comparison.no_worse
    [comparison] = compare_with_three({("a", "random"): {**others, "sheet": by_mask("sheet", [0.9, 1.9, 3.89])}})
    assert comparison.errors_behind < -20
    once = {name: by_mask(name, [1.0]) for name in BEST_OF_THREE}
    [comparison] = compare_with_three({("a", "random"): {**once, "sheet": by_mask("sheet", [1.1])}})
    assert comparison.errors_behind == math.inf


def test_the_table_marks_what_does_not_hold():
    others = {name: by_mask(name, [0.1, 0.11]) for name in BEST_OF_THREE}
    results = {
        ("a", "random"): {**others, "sheet": by_mask("sheet", [0.1, 0.11])},
        ("b", "end"): {
            **others,
            "sheet": by_mask("sheet", [0.2, 0.21], covered=0.99),
            "curve": by_mask("curve", [0.1]),
        },
    }
    good, bad = tabulate_comparisons(results)[-2:]
    assert "**" not in good
    assert "| **1.952** | 0.952 |" in bad
    assert "| **no** | **0.990 ± 0.010** |" in bad
    findings = describe_comparisons(compare_with_three(results))
    assert "in 1 of 2 cells" in findings[0]
    assert "b, end: 1.95" in findings[1]
    assert "not: b, end: 99.0%" in findings[2]


def test_distances_are_to_the_nearest_observed_location():
    """Points 0 … 40 with 0, 1, 30 and 31 observed, of which those next to one are covered and others are not."""
    x, observed = np.arange(41.0), np.isin(np.arange(41), [0, 1, 30, 31])
    case = GapCase(x[:, None], np.zeros(41), GapMask(observed, ~observed))
    near = np.isin(x[~observed], [2, 29, 32])
    prediction = make_normal(np.where(near, 0.0, 5.0), np.ones(37))
    assert scores.count_by_distance(prediction, case) == [[3, 3], [6, 0], [12, 0], [16, 0], [0, 0]]
    scaled = GapCase(1e-3 * case.x + 7, case.y, case.mask)
    assert scores.count_by_distance(prediction, scaled) == scores.count_by_distance(prediction, case)
    counted = {"distances": scores.count_by_distance(prediction, case)}
    [row] = tabulate_distances({("a", "blocks"): {"linear": counted}})[4:]
    assert row == "| linear, all | 1.000 (3) | 0.000 (6) | 0.000 (12) | 0.000 (16) | – |"


def test_the_gap_to_bayes_is_that_of_the_same_tasks(monkeypatch):
    """The exact process has the true length, scale and noise, so its gap is zero where their ranges are narrow."""
    model = ExactProcess(length=0.5, scale=1.0, noise=0.1)
    monkeypatch.setattr(scores, "load_once", lambda name: model)
    monkeypatch.setattr(
        scores, "curves", lambda name: replace(PriorSeries(name).stream("random", 0), function=model.exact)
    )
    monkeypatch.setattr(scores, "_NARROW", (2, 256))
    seen = []
    measured = scores.measure_gap("rbf", "sheet", 1, seen.append)
    assert measured["gap"] == pytest.approx(0, abs=1e-3)
    assert measured["tasks"] == 2 * scores._BATCH
    assert seen == [0.5, 1.0]
