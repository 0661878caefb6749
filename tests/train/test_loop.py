"""Training loop: the learning rate follows its schedule, every model learns, and a diverged loss stops the run."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import SMALL, TIMEOUT, count_prefetch_threads, recipe_arguments, tiny_options

from fillin.errors import FillinError
from fillin.models import names as models
from fillin.objectives import log_likelihood
from fillin.train import fit, open_run, read_recipe
from fillin.train import loop as loops
from fillin.train.log import read_log
from fillin.train.loop import HELD_OUT, TrainingDiverged, TrainingModule, learning_rate, make_objective, make_optimiser
from fillin.train.recipe import CHOICES, budget_fraction, build_model, make_stream

# ---- the schedule


@given(
    st.sampled_from(["cosine", "linear"]),
    st.floats(0, 0.9),
    st.sampled_from(["--budget.steps=1000", "--budget.time=20m"]),
)
def test_the_rate_warms_up_and_ends_at_zero(name, warmup, budget):
    recipe = read_recipe({**SMALL, "budget": {}}, [f"--schedule.name={name}", f"--schedule.warmup={warmup!r}", budget])
    peak_rate, total = recipe["optimiser"]["rate"], 1000 if "steps" in budget else 1200.0
    fractions = [
        budget_fraction(recipe, round(i * total / 200), 0.0)
        if "steps" in budget
        else budget_fraction(recipe, 5, i * total / 200)
        for i in range(201)
    ]
    rates = [learning_rate(recipe, fraction) for fraction in fractions]
    peak = rates.index(max(rates))
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == 0
    assert 0 < rates[0] <= peak_rate
    assert max(rates) <= peak_rate * (1 + 1e-12)
    assert learning_rate(recipe, warmup) == pytest.approx(peak_rate)
    assert rates[0] < 0.2 * peak_rate or warmup < 0.01
    assert learning_rate({**recipe, "schedule": {"name": "constant", "warmup": warmup}}, 1.0) == peak_rate


def test_the_first_exhausted_budget_counts():
    recipe = read_recipe(SMALL, ["--budget.time", "10s", "--budget.steps", "100"])
    assert budget_fraction(recipe, 50, 9.0) == 0.9
    assert budget_fraction(recipe, 95, 1.0) == 0.95


# ---- learning


@pytest.mark.parametrize("name", models())
def test_every_model_takes_a_step(name):
    recipe = read_recipe({**SMALL, "model": {"name": name, **tiny_options(name)}})
    stream = make_stream(recipe)
    module = TrainingModule(build_model(recipe, stream), make_objective(recipe))
    optimiser, task = make_optimiser(recipe, module), stream.task(0)
    before = [p.detach().clone() for p in module.parameters()]
    loss = module(task.xc, task.yc, task.xt, task.yt)
    loss.backward()
    assert 0 < loops._clip(list(module.parameters()), 0.5) < math.inf
    assert all(p.grad.isfinite().all() for p in module.parameters() if p.grad is not None)
    optimiser.step()
    assert sum(not torch.equal(p, q) for p, q in zip(module.parameters(), before, strict=True)) > len(before) / 2
    assert module(task.xc, task.yc, task.xt, task.yt).isfinite()


def test_gradients_are_clipped_to_their_maximal_norm():
    module = torch.nn.Linear(3, 1)
    for clip, expected in ((0.5, 0.5), (0.0, 5.0), (10.0, 5.0)):
        module.weight.grad, module.bias.grad = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([4.0])
        assert loops._clip(list(module.parameters()), clip) == pytest.approx(5)
        norm = torch.cat([module.weight.grad.flatten(), module.bias.grad]).norm().item()
        assert norm == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", CHOICES["optimiser.name"])
def test_every_optimiser_reduces_the_loss(name, tmp_path):
    """A constant function is learned in a few steps with every optimiser."""
    overrides = ["--optimiser.rate=0.02", f"--optimiser.name={name}", "--data.scale=[0.01, 0.01]", "--budget.steps=45"]
    lines = fit(SMALL, tmp_path / "run", overrides=[*overrides, "--keep.log=15"]).lines
    assert lines[-1].loss < lines[0].loss - 0.5


@pytest.mark.parametrize(("name", "objective"), [("np", "elbo"), ("anp", "elbo"), ("convnp", "importance-weighted")])
def test_bounds_of_latent_models(name, objective, tmp_path):
    recipe = {**SMALL, "model": {"name": name, **tiny_options(name)}, "objective": {"name": objective, "samples": 2}}
    run = fit(recipe, tmp_path / "run")
    assert [line.step for line in run.lines] == [2, 4]
    assert all(math.isfinite(line.loss + line.validation) for line in run.lines)


def test_the_files_of_a_run(tmp_path):
    reports = []
    run = fit(SMALL, tmp_path / "run", watch=lambda *line: reports.append(line))
    assert {p.name for p in run.folder.iterdir()} >= {"recipe.yaml", "log.csv", "best", "last", "learning.png"}
    assert [line.step for line in run.lines] == [line[0] for line in reports] == [2, 4]
    assert reports[-1][2] == 1
    assert open_run(run.folder).recipe == run.recipe == read_recipe(SMALL)
    scores = {line.step: line.validation for line in run.lines}
    recipe, stream = run.recipe, replace(make_stream(run.recipe, seed=HELD_OUT), batch=4)
    for which, step in (("best", max(scores, key=scores.get)), ("last", 4)):
        model = run.model(which).eval()
        score = log_likelihood(model, stream.task(0)).mean().item()
        assert score == pytest.approx(scores[step], abs=1e-5)
        assert model.config == build_model(recipe, stream).config
    assert torch.get_num_threads() == 1


def test_a_budget_of_time(tmp_path):
    run = fit({**SMALL, "budget": {"time": "0.5s"}}, tmp_path / "run")
    last = run.lines[-1]
    assert last.seconds >= 0.5
    assert last.validation is not None
    assert budget_fraction(run.recipe, last.step, last.seconds) >= 1


def test_every_run_gets_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [str(fit("te-tnp", overrides=recipe_arguments(SMALL)).folder) for _ in range(2)] == [
        "runs/te-tnp",
        "runs/te-tnp-2",
    ]
    assert str(fit(SMALL).folder) == "runs/run"


@pytest.mark.parametrize(("value", "shown_loss"), [(math.nan, "nan"), (-1e6, "1e.06")])
def test_a_diverged_loss_stops_the_run(value, shown_loss, tmp_path, monkeypatch):
    """The error names the step, the last good checkpoint and a remedy; files on disk are unchanged."""
    folder, calls = tmp_path / "run", []

    def objective(model, task):
        calls.append(1)
        if len(calls) <= 3:
            return log_likelihood(model, task)
        good.extend((folder / which / "model.safetensors").read_bytes() for which in ("best", "last"))
        return value + 0 * log_likelihood(model, task)

    good: list[bytes] = []
    monkeypatch.setattr(loops, "make_objective", lambda recipe: objective)
    with pytest.raises(
        TrainingDiverged,
        match=rf"step 3: training diverged, the loss is {shown_loss}.* last good checkpoint is .*last.*optimiser\.rate",
    ):
        fit(SMALL, folder, overrides=["--keep.checkpoint", "0"])
    assert good == [(folder / which / "model.safetensors").read_bytes() for which in ("best", "last")]
    assert count_prefetch_threads() == 0
    monkeypatch.undo()
    run = fit(folder=folder, resume=True, overrides=["--optimiser.rate", "1e-4"])
    assert [line.step for line in run.lines] == [2, 4]


def test_a_too_high_rate_diverges(tmp_path):
    overrides = ["--optimiser.name=sgd", "--optimiser.rate=1e30", "--optimiser.clip=0", "--budget.steps=50"]
    with pytest.raises(TrainingDiverged, match=r"last good checkpoint is .*last.*--optimiser\.rate 3e.29"):
        fit(SMALL, tmp_path / "run", overrides=[*overrides, "--keep.log=50", "--keep.validations=1"])


# ---- several processes


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path):
    overrides = [*recipe_arguments(SMALL), "--data.batch=4", "--budget.steps=6", "--budget.time=null"]
    overrides += ["--keep.log=1", "--keep.batches=2"]
    command = [
        sys.executable,
        "-m",
        "fillin",
        "train",
        "te-tnp",
        *overrides,
        "--devices",
        "2",
        "--out",
        tmp_path / "two",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
    assert process.returncode == 0, process.stderr
    single, parallel = fit("te-tnp", tmp_path / "one", overrides=overrides).lines, read_log(tmp_path / "two")
    assert [line.step for line in parallel] == [1, 2, 3, 4, 5, 6]
    for a, b in zip(single, parallel, strict=True):
        assert (a.loss, a.gradient, a.rate) == pytest.approx((b.loss, b.gradient, b.rate), rel=2e-5)
        assert (a.validation or 0) == pytest.approx(b.validation or 0, rel=2e-5)


def test_a_batch_must_be_divisible_among_processes():
    class TwoProcesses:
        world_size, global_rank = 2, 1

    assert loops._rows_of_process(4, TwoProcesses()) == slice(1, None, 2)
    with pytest.raises(FillinError, match=r"a batch of 3 cannot be divided among 2 processes; change --data\.batch"):
        loops._rows_of_process(3, TwoProcesses())
