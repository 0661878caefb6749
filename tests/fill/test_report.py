"""The picture, the page and its verdict on points that were hidden."""

import re
import shlex
from html import unescape

import numpy as np
import pandas as pd
import pytest
from support.helpers import ExactProcess
from support.series_files import csv, waves

from fillin.filling.api import plan
from fillin.filling.frames import read_frame
from fillin.filling.holdout import WAYS, hide, judge
from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.figure import draw
from fillin.filling.series.run import Asked, Series

pytest_plugins = ["support.fill_command"]


def test_the_command_can_be_given_to_a_shell_again(fill):
    ran = fill("t,a b\n1,1\n2,\n3,2\n", "--report", "--y", "a b", name="my data.csv")
    told = unescape(re.search("<code>(.*?)</code>", ran.path.with_suffix(".html").read_text())[1])
    assert shlex.split(told)[-3:] == ["--report", "--y", "a b"]
    assert any(word.endswith("/my data.csv") for word in shlex.split(told))


def test_a_picture_and_a_page_that_stands_alone(fill):
    frame = pd.concat([waves(30).assign(who="a"), waves(30, 1).assign(who="<b>")])
    ran = fill(csv(frame), "--by", "who", "--report", "--threads", "1", picture=True)
    picture, page = ran.path.with_suffix(".png").read_bytes(), ran.path.with_suffix(".html").read_text()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    assert "data:image/png;base64," in page
    assert "http" not in page
    assert "<b>" not in page
    for word in ("skill", "CRPS", "linear", "in 50 %", "in 95 %", *WAYS, "What was assumed", "2 groups by who"):
        assert word in page
    again = fill(csv(frame), "--by", "who", "--report", "--force", "--no-picture")
    same = again.path.with_suffix(".html").read_text()
    rows = lambda text: [line for line in text.splitlines() if line.startswith("<table")]  # noqa: E731
    assert rows(same) == rows(page), "the same seed hides the same points"
    other = fill(csv(frame), "--by", "who", "--report", "--force", "--no-picture", "--seed", "5")
    assert rows(other.path.with_suffix(".html").read_text()) != rows(page)


@pytest.mark.parametrize("gaps", ["many", "one"])
def test_a_picture_of_very_many_places_is_no_larger(gaps):
    n = 60_000
    y = np.where(np.arange(n) % 2 if gaps == "many" else np.arange(n) < n // 2, np.nan, 1.0)
    asked = plan(read_frame(pd.DataFrame({"x": np.arange(n), "y": y})).table)
    at = asked.series[0]
    filled = NumericPrediction(at.rows, *(np.full(len(at.rows), v) for v in (1.0, 0.1, 0.8, 1.2, 0.9, 1.1)))
    axes = draw(asked, {"y": filled}).axes[0]
    drawn = sum(len(path.vertices) for band in axes.collections[:2] for path in band.get_paths())
    assert n < drawn < 5 * n
    assert axes.get_legend_handles_labels()[1] == ["95%", "50%", "filled", "known"]


def test_the_verdict_on_an_exact_process():
    """Drawn from the process that fills: bands hold what they say, and it beats straight lines."""
    random = np.random.default_rng(0)
    x = np.sort(random.random(150))
    x[0], x[-1] = 0, 1
    kernel = np.exp(-0.5 * ((x[:, None] - x) / 0.05) ** 2) + 0.01 * np.eye(len(x))
    series = []
    for number in range(4):
        y = np.linalg.cholesky(kernel) @ random.standard_normal(len(x))
        series.append(Series("y", str(number), x, y / np.abs(y).max(), None, x[:0], np.empty(0, dtype=int)))
    scale = float(np.mean([one.y.std() for one in series]))
    found = judge(series, ExactProcess(length=0.05, scale=scale, noise=0.1 * scale), Asked())
    assert [verdict.way for verdict in found] == list(WAYS)
    assert all(verdict.points == 4 * 3 * 30 for verdict in found)
    assert found[0].skill > 0.05
    for verdict in found:
        assert 0.35 < verdict.inside_50 < 0.65
        assert 0.8 < verdict.inside_95 < 1
        assert verdict.crps < verdict.rmse


@pytest.mark.parametrize("way", WAYS)
def test_hiding_hides_as_many_as_asked(way):
    random = np.random.default_rng(0)
    for n, number in ((8, 2), (100, 20), (1000, 333)):
        assert hide(n, number, way, random).sum() == number
    runs = (np.diff(hide(1000, 200, way, random).astype(int)) == 1).sum()
    assert (runs < 20) == (way == "blocks")
