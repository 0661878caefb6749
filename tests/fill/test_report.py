"""Figure and HTML report of a filled series, with scores on held-out points."""

import re
import shlex
from html import unescape

import numpy as np
import pandas as pd
import pytest
from support.helpers import ExactProcess
from support.series_files import csv, waves

from fillin.filling.holdout import PATTERNS, choose_points, score_holdout
from fillin.filling.plan import make_plan
from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.holdout import holdout_series
from fillin.filling.series.plan import Series

pytest_plugins = ["support.fill_command"]


def test_the_command_of_a_report_is_quoted_for_a_shell(fill):
    ran = fill("t,a b\n1,1\n2,\n3,2\n", "--report", "--y", "a b", name="my data.csv")
    command = unescape(re.search("<code>(.*?)</code>", ran.path.with_suffix(".html").read_text())[1])
    assert shlex.split(command)[-3:] == ["--report", "--y", "a b"]
    assert any(word.endswith("/my data.csv") for word in shlex.split(command))


def test_the_figure_and_the_self_contained_report(fill):
    frame = pd.concat([waves(30).assign(who="a"), waves(30, 1).assign(who="<b>")])
    ran = fill(csv(frame), "--by", "who", "--report", "--threads", "1", figure=True)
    figure, page = ran.path.with_suffix(".png").read_bytes(), ran.path.with_suffix(".html").read_text()
    assert figure.startswith(b"\x89PNG")
    assert len(figure) > 10_000
    assert "data:image/png;base64," in page
    assert "http" not in page
    assert "<b>" not in page
    for word in ("skill", "CRPS", "linear", "in 50 %", "in 95 %", *PATTERNS, "Assumptions", "2 groups by who"):
        assert word in page
    again = fill(csv(frame), "--by", "who", "--report", "--force", "--no-figure")
    same = again.path.with_suffix(".html").read_text()
    rows = lambda text: [line for line in text.splitlines() if line.startswith("<table")]  # noqa: E731
    assert rows(same) == rows(page), "the same seed holds out the same points"
    other = fill(csv(frame), "--by", "who", "--report", "--force", "--no-figure", "--seed", "5")
    assert rows(other.path.with_suffix(".html").read_text()) != rows(page)


@pytest.mark.parametrize("gaps", ["many", "one"])
def test_the_size_of_a_figure_of_many_locations_is_bounded(gaps):
    n = 60_000
    y = np.where(np.arange(n) % 2 if gaps == "many" else np.arange(n) < n // 2, np.nan, 1.0)
    plan = make_plan(pd.DataFrame({"x": np.arange(n), "y": y}), {})
    rows = plan.series[0].rows
    filled = NumericPrediction(rows, *(np.full(len(rows), v) for v in (1.0, 0.1, 0.8, 1.2, 0.9, 1.1)))
    axes = plan.figure({"y": filled}).axes[0]
    drawn = sum(len(path.vertices) for interval in axes.collections[:2] for path in interval.get_paths())
    assert n < drawn < 5 * n
    assert axes.get_legend_handles_labels()[1] == ["95%", "50%", "filled", "observed"]


def test_holdout_scores_of_an_exact_process():
    """For data from the process itself, intervals have their coverage and linear interpolation is worse."""
    random = np.random.default_rng(0)
    x = np.sort(random.random(150))
    x[0], x[-1] = 0, 1
    kernel = np.exp(-0.5 * ((x[:, None] - x) / 0.05) ** 2) + 0.01 * np.eye(len(x))
    series = []
    for number in range(4):
        y = np.linalg.cholesky(kernel) @ random.standard_normal(len(x))
        series.append(Series("y", str(number), x, y / np.abs(y).max(), None, x[:0], np.empty(0, dtype=int)))
    scale = float(np.mean([member.y.std() for member in series]))
    model = ExactProcess(length=0.05, scale=scale, noise=0.1 * scale)
    scores = score_holdout(holdout_series(series), model)
    assert [score.name for score in scores] == list(PATTERNS)
    assert all(score.n == 4 * 3 * 30 for score in scores)
    assert scores[0].skill > 0.05
    for score in scores:
        assert 0.35 < score.coverage_50 < 0.65
        assert 0.8 < score.coverage_95 < 1
        assert score.crps < score.rmse


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_many_points_are_held_out_as_requested(pattern):
    random = np.random.default_rng(0)
    for n, n_held_out in ((8, 2), (100, 20), (1000, 333)):
        assert choose_points(n, n_held_out, pattern, random).sum() == n_held_out
    runs = (np.diff(choose_points(1000, 200, pattern, random).astype(int)) == 1).sum()
    assert (runs < 20) == (pattern == "blocks")
