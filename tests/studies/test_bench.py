"""The benchmarks run and report every row. No test depends on the times that they measure."""

import json
import math
from itertools import count

import numpy as np
import pytest
import torch

from fillin import measure
from fillin.attention import SCORES
from fillin.cli import main
from fillin.models import names
from fillin.runtime import threads
from fillin_studies.base import count_parameters
from fillin_studies.bench import models, speed
from fillin_studies.bench.models import StepSize

TINY = StepSize(3, 4, batch=2, rounds=1)


def test_each_candidate_runs_once_a_round():
    seen = []
    times = measure.fastest_times({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, 3)
    assert seen == ["a", "b"] * 3
    assert all(t >= 0 for t in times.values())


def test_a_fast_candidate_runs_again_until_its_time_has_passed(monkeypatch):
    seen, clock = [], count(step=2)  # seconds per call
    monkeypatch.setattr(measure, "perf_counter", lambda: next(clock))
    measure.fastest_times({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, 2, min_seconds=10)
    assert seen == ["a"] * 3 + ["b"] * 3 + ["a"] * 3 + ["b"] * 3


def test_costs_ticks_as_often_as_announced():
    ticked = []
    costs = measure.measure_costs({"a": int, "b": int}, 4, lambda: ticked.append(1))
    assert len(ticked) == measure.count_ticks(2, 4)
    assert set(costs) == {"a", "b"}


def test_the_peak_includes_memory_that_is_freed_again():
    peak = measure.peak_memory(lambda: torch.ones(8_000_000).sum())  # 32 MB
    assert peak is None or 30e6 < peak < 64e6


def test_the_peak_is_none_where_the_system_has_no_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "_CLEAR", tmp_path / "missing" / "clear_refs")
    assert measure.peak_memory(int) is None


def test_the_number_of_threads_is_restored():
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_models():
    rows = models.measure_models(["cnp", "np"], [TINY, StepSize(5, 6, batch=2, rounds=1)], size="small")
    assert [row["model"] for row in rows] == ["cnp", "np", "tnp-d"]  # tnp-d is there for the ratios
    assert all([f["size"] for f in row["figures"]] == ["3/4", "5/6"] for row in rows)
    for figure in (f for row in rows for f in row["figures"]):
        assert math.isfinite(figure["yardsticks"])
        assert figure["milliseconds"] > 0
    assert rows[-1]["figures"][0]["to_reference"] == 1


def test_no_name_is_every_model():
    assert models.select_models([]) == names()


@pytest.mark.parametrize("name", names())
def test_every_model_can_be_timed(name):
    model = models.make_model(name, size="small")
    models.make_step(model, models.make_task(TINY))()
    assert all(p.grad is None for p in model.parameters())


def test_measuring_leaves_the_random_state_alone():
    state = torch.random.get_rng_state()
    models.measure_models(["np"], [TINY], size="small")
    assert torch.equal(state, torch.random.get_rng_state())


def test_peers_are_about_as_large():
    rows = models.measure_peers([p for p in models.PEERS if p.model == "anp"], TINY)
    assert [row["samples"] for row in rows] == [4]
    for row in rows:
        assert abs(row["parameters"] / row["peer_parameters"] - 1) < 0.03
        assert row["ratio"] == pytest.approx(row["yardsticks"] / row["peer_yardsticks"])


def test_every_peer_can_be_built():
    for peer in models.PEERS:
        assert 0.45 < count_parameters(models.make_model(peer.model, **peer.options)) / peer.parameters < 1.05


def test_scores():
    at = StepSize(128, 128, batch=2, rounds=1)  # enough pairs for a table
    rows = {row["score"]: row for row in models.measure_scores(["fourier", "mlp", "laplace"], at, size="small")}
    assert [row["how"] for row in rows.values()] == ["folded", "folded", "table", "pairs"]  # tnp-d first
    error = rows["mlp"]["error"]
    assert error is not None
    assert error < 1e-3
    assert rows["fourier"]["error"] is None


def test_joint_is_measured_only_on_request():
    assert "joint" not in models.select_scores()
    assert models.select_scores(include_slow=True) == list(SCORES)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(models, "step_sizes", lambda repeats: (TINY, TINY))
    monkeypatch.setattr(models, "PEER_SIZE", TINY)
    monkeypatch.setattr(models, "SCORE_SIZE", TINY)
    monkeypatch.setattr(models, "select_scores", lambda include_slow: ["fourier"])


COMMANDS = {"models": ["models", "cnp"], "peers": ["models", "canp", "--peers"], "scores": ["scores"]}


@pytest.mark.parametrize("what", COMMANDS)
def test_command_prints_a_table_and_writes_a_file(what, tiny, tmp_path, capsys):
    path = tmp_path / "new" / "figures.json"
    command = ["bench", *COMMANDS[what], "--repeats", "1", "--seed", "3", "--json", str(path)]
    assert main(command) == 0
    assert "1 thread" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert content["benchmark"] == what
    assert content["rows"]
    assert content["seed"] == 3
    assert content["command"] == ["fillin", *command]
    assert content["machine"]["torch"] == torch.__version__
    assert content["machine"]["cores"] >= 1
    assert content["budget"]["threads"] == 1
    assert content["budget"]["batch"] == 2
    assert [p.name for p in path.parent.iterdir()] == ["figures.json"]


@pytest.mark.parametrize("what", COMMANDS)
def test_command_prints_json(what, tiny, capsys):
    assert main(["bench", *COMMANDS[what], "--repeats", "1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]


@pytest.mark.slow
def test_speed_of_every_case_on_one_thread_and_on_two(monkeypatch, capsys, tmp_path):
    for name, value in (
        ("LARGE", TINY),
        ("SMALL", TINY),
        ("STEPS", 1),
        ("POINTS", 40),
        ("SIDE", 8),
        ("MIN_SECONDS", 0),
    ):
        monkeypatch.setattr(speed, name, value)
    assert main(["bench", "speed", "--repeats", "1", "--json", str(tmp_path / "speed.json")]) == 0
    assert "Speed against the plain path" in capsys.readouterr().out
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    assert len(rows) == speed.count_ticks(speed.list_cases())
    assert [row["threads"] for row in rows] == [1, 2] * (len(rows) // 2)
    for row in rows:
        assert row["holds"] == (row["ratio"] >= row["required"] if row["at_least"] else row["ratio"] <= row["required"])
        assert all(ms > 0 for ms in row["milliseconds"].values())


def test_the_plain_path_predicts_the_same(monkeypatch):
    monkeypatch.setattr(speed, "POINTS", 60)
    filled, plain = (fill() for fill in speed.make_fills(0).values())
    assert np.allclose(filled["y_filled"], plain["y_filled"], atol=1e-4)
    assert np.allclose(filled["y_std"], plain["y_std"], atol=1e-4)
