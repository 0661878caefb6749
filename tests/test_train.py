"""Training: recipes say what is meant, batches come in order, every model learns, and what goes wrong is said."""

import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import jaxtyping
import pytest
import torch
from helpers import TINY
from hypothesis import given
from hypothesis import strategies as st

from fillin.cli import main
from fillin.data import Task, curves
from fillin.data.curves import generator
from fillin.errors import FillinError
from fillin.models import names as models
from fillin.models import options_of
from fillin.objectives import log_likelihood
from fillin.train import dump, fit, names, open_run, read
from fillin.train import loop as loops
from fillin.train.feed import feed
from fillin.train.log import Line, Log
from fillin.train.log import read as read_log
from fillin.train.loop import HELD_OUT, Diverged, Goal, objective_of, optimiser_of, rate_at, seed_step
from fillin.train.picture import learning
from fillin.train.recipe import CHOICES, model_of, seconds, share_spent, stream_of

SMALL = {
    "data": {"batch": 2, "points": 12, "context": [3, 5], "targets": [3, 5]},
    "model": {"name": "te-tnp", "size": "small", "width": 16, "heads": 2, "layers": 1, "hidden": 16},
    "budget": {"steps": 4},
    "keep": {"log": 2, "validations": 2, "batches": 1},
}


def options(recipe=SMALL) -> list[str]:
    """The same as words of a command line."""
    return [f"--{section}.{key}={value}" for section, part in recipe.items() for key, value in part.items()]


# ---- recipes


def test_a_recipe_is_the_file_then_what_was_said_then_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: {name: te-tnp, size: small}\nbudget: {steps: 10}\noptimiser: {rate: 2.0e-3}\n")
    recipe = read(path, ["--optimiser.rate", "1e-3", "--data.protocol=te-tnp", "--seed", "7"])
    assert recipe["optimiser"] == {"name": "muon", "rate": 1e-3, "decay": 0.1, "clip": 20.0}
    assert recipe["data"]["target_range"] == [-3.0, 3.0]
    assert recipe["model"]["width"] == 64
    assert recipe["seed"] == 7
    assert set(options_of("te-tnp")) <= set(recipe["model"])


@pytest.mark.parametrize("name", names())
def test_shipped_recipes_are_whole(name):
    recipe = read(name)
    stream = stream_of(recipe)
    model = model_of(recipe, stream)
    assert objective_of(recipe)(model, stream.task(0).rows(slice(0, 2))).isfinite().all()


@pytest.mark.parametrize(
    "said",
    [[], ["--model.name", "convnp"], ["--model.span", "{init: 0.7}"], ["--data.noise", "[0.1, 0.2]"],
     ["--budget.time", "90"], ["--data.function", "2 rbf * linear | sawtooth"], ["--budget.steps", "2e4"],
     ["--model.size", "1m"]],
)  # fmt: skip
def test_what_is_printed_reads_as_what_it_was(said, tmp_path, capsys):
    assert main(["train", "te-tnp", *said, "--print-config"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert read(tmp_path / "printed.yaml") == read("te-tnp", said)
    assert dump(read(tmp_path / "printed.yaml")) == dump(read("te-tnp", said))


def test_numbers_as_people_write_them():
    assert read(SMALL, ["--budget.steps", "2e4"])["budget"]["steps"] == 20_000
    assert read({**SMALL, "data": None}) == read({k: v for k, v in SMALL.items() if k != "data"})
    found = [seconds(t) for t in ("90", 90, "90s", "20m", "1h30m", "0.5s", " 1h 1s ", None)]
    assert found == [90, 90, 90, 1200, 5400, 0.5, 3601, None]


WRONG = {
    "a section": (["--modle.name", "cnp"], "'modle.name'; did you mean 'model.name'"),
    "a setting": (["--model.widht", "3"], "'model.widht'; did you mean 'model.width'"),
    "a setting of another model": (["--model.pseudo_tokens", "3"], "unknown setting of the command line"),
    "a model": (["--model.name", "te-tpn"], "did you mean 'te-tnp'"),
    "a size": (["--model.size", "smal"], "did you mean 'small'"),
    "a protocol": (["--data.protocol", "tpn"], "did you mean 'tnp'"),
    "an objective": (["--objective.name", "elbow"], "did you mean 'elbo'"),
    "a schedule": (["--schedule.name", "cosin"], "did you mean 'cosine'"),
    "an optimiser": (["--optimiser.name", "adam-w"], "did you mean 'adamw'"),
    "kinds of data": (["--data.name", "curve"], "did you mean 'curves'"),
    "no end": (["--budget.steps", "null"], "has no end; add --steps 10000 or --time 20m"),
    "no time": (["--budget.time", "0s"], "longer than nothing"),
    "a time": (["--budget.time", "soon"], "like 90s, 20m or 1h30m"),
    "no steps": (["--budget.steps", "0"], "budget.steps must be at least 1"),
    "half a step": (["--budget.steps", "2.5"], "budget.steps cannot be '2.5'; it is a whole number"),
    "a rate in words": (["--optimiser.rate", "fast"], "optimiser.rate cannot be 'fast'; it is a number"),
    "a seed of others": (["--seed", str(2**30)], "seed must be below"),
    "a rate of nothing": (["--optimiser.rate", "0"], "optimiser.rate must be at least"),
    "a rate that is none": (["--optimiser.rate", ".nan"], "optimiser.rate must be at least"),
    "a warm-up of all": (["--schedule.warmup", "1"], "schedule.warmup is a share of the budget, below 1"),
    "no lines": (["--keep.log", "0"], "keep.log must be at least 1"),
    "a seed": (["--seed", "-1"], "seed must be at least 0"),
    "no value": (["--model.width"], "--model.width needs a value"),
    "no setting": (["width", "3"], "expected a setting like"),
    "a bound without a latent": (["--objective.name", "elbo"], "te-tnp has none; train it with log-likelihood"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings(case):
    said, message = WRONG[case]
    with pytest.raises(FillinError, match=message):
        read(SMALL, said)


@pytest.mark.parametrize(
    ("said", "message"),
    [("--data.length=3", "length must be a range"), ("--data.function=rbff", "did you mean 'rbf'"),
     ("--model.head=[1]", "can be built|unknown head"), ("--model.width=x", "width must be an even whole number"),
     ("--model.score=furier", "did you mean 'fourier'"), ("--data.shift=far", "shift must be a number")],
)  # fmt: skip
def test_what_cannot_be_made_leaves_no_folder(said, message, tmp_path):
    jaxtyping.config.update("jaxtyping_disable", True)  # as users have it
    try:
        with pytest.raises(FillinError, match=message):
            fit(SMALL, tmp_path / "run", overrides=[said])
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [("model: [", "is not YAML"), ("- 1", "a recipe is a mapping"), ("budget: {steps: 3}", "names no model"),
     ("model: cnp", "names no model"), ("model: {name: cnp}\nbugdet: {steps: 1}", "did you mean 'budget.steps'"),
     (b"\xff\xfe", "cannot read"), ("model: {name: cnp}", "has no end")],
)  # fmt: skip
def test_files_that_are_no_recipes(text, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FillinError, match=message):
        read(path)
    with pytest.raises(FillinError, match="cannot read the recipe"):
        read(tmp_path / "nowhere.yaml")
    with pytest.raises(FillinError, match="unknown recipe 'te-tpn'; did you mean 'te-tnp'"):
        read("te-tpn")


# ---- the schedule


@given(
    st.sampled_from(["cosine", "linear"]),
    st.floats(0, 0.9),
    st.sampled_from(["--budget.steps=1000", "--budget.time=20m"]),
)
def test_the_rate_warms_up_and_ends_at_zero(name, warmup, budget):
    recipe = read({**SMALL, "budget": {}}, [f"--schedule.name={name}", f"--schedule.warmup={warmup!r}", budget])
    top, whole = recipe["optimiser"]["rate"], 1000 if "steps" in budget else 1200.0
    spent = [
        share_spent(recipe, round(i * whole / 200), 0.0)
        if "steps" in budget
        else share_spent(recipe, 5, i * whole / 200)
        for i in range(201)
    ]
    rates = [rate_at(recipe, share) for share in spent]
    peak = rates.index(max(rates))
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == 0
    assert 0 < rates[0] <= top
    assert max(rates) <= top * (1 + 1e-12)
    assert rate_at(recipe, warmup) == pytest.approx(top)
    assert rates[0] < 0.2 * top or warmup < 0.01
    assert rate_at({**recipe, "schedule": {"name": "constant", "warmup": warmup}}, 1.0) == top


def test_whichever_budget_ends_first():
    recipe = read(SMALL, ["--budget.time", "10s", "--budget.steps", "100"])
    assert share_spent(recipe, 50, 9.0) == 0.9
    assert share_spent(recipe, 95, 1.0) == 0.95


# ---- data


def test_what_is_validated_on_is_never_trained_on():
    stream = stream_of(read(SMALL))
    places = [
        {tuple(curves(seed=seed, batch=1).task(step).xc[0, :3, 0].tolist()) for step in range(300)}
        for seed in (stream.seed, stream.seed + HELD_OUT)
    ]
    assert not places[0] & places[1]


def test_the_randomness_of_a_step_is_not_that_of_its_data():
    for seed, step in ((0, 0), (3, 5)):
        seed_step(seed, step)
        own = torch.rand(4)
        assert not torch.equal(own, torch.rand(4, generator=generator(seed, step)))
        seed_step(seed, step, rank=1)
        assert not torch.equal(own, torch.rand(4))
        seed_step(seed, step)
        assert torch.equal(own, torch.rand(4))


def feeders() -> int:
    return sum(thread.name == "fillin-feed" for thread in threading.enumerate())


@pytest.mark.parametrize("start", [0, 17])
def test_a_feed_is_the_stream_in_order(start):
    stream, batches = curves(batch=2), feed(curves(batch=2), start, ahead=3)
    for step in range(start, start + 10):
        assert torch.equal(next(batches).yt, stream.task(step).yt)
    assert feeders() == 1
    batches.close()
    assert feeders() == 0


def test_an_error_in_the_stream_comes_where_its_batch_would():
    class Broken:
        batch = 2

        def task(self, step: int) -> Task:
            if step == 3:
                raise RuntimeError("no batch 3")
            return curves(batch=2).task(step)

    batches = feed(Broken(), 0)
    for _ in range(3):
        next(batches)
    with pytest.raises(RuntimeError, match="no batch 3"):
        next(batches)
    assert feeders() == 0


def test_a_feed_waits_when_nobody_asks():
    class Counted:
        batch, asked = 2, 0

        def task(self, step: int) -> Task:
            self.asked += 1
            return curves(batch=2).task(step)

    stream = Counted()
    batches = feed(stream, 0, ahead=2)
    next(batches)
    time.sleep(0.3)
    assert stream.asked <= 4
    batches.close()


# ---- learning


@pytest.mark.parametrize("name", models())
def test_every_model_takes_a_step(name):
    small = {k: v for k, v in TINY.items() if k in options_of(name)}
    recipe = read({**SMALL, "model": {"name": name, **small}})
    stream = stream_of(recipe)
    goal = Goal(model_of(recipe, stream), objective_of(recipe))
    optimiser, task = optimiser_of(recipe, goal), stream.task(0)
    before = [p.detach().clone() for p in goal.parameters()]
    loss = goal(task.xc, task.yc, task.xt, task.yt)
    loss.backward()
    assert 0 < loops._clip(list(goal.parameters()), 0.5) < math.inf
    assert all(p.grad.isfinite().all() for p in goal.parameters() if p.grad is not None)
    optimiser.step()
    assert sum(not torch.equal(p, q) for p, q in zip(goal.parameters(), before, strict=True)) > len(before) / 2
    assert goal(task.xc, task.yc, task.xt, task.yt).isfinite()


def test_a_gradient_is_no_longer_than_clip():
    module = torch.nn.Linear(3, 1)
    for longest, wanted in ((0.5, 0.5), (0.0, 5.0), (10.0, 5.0)):
        module.weight.grad, module.bias.grad = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([4.0])
        assert loops._clip(list(module.parameters()), longest) == pytest.approx(5)
        found = torch.cat([module.weight.grad.flatten(), module.bias.grad]).norm().item()
        assert found == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("name", CHOICES["optimiser.name"])
def test_it_learns(name, tmp_path):
    """A constant function is learnt in a few steps, whatever the optimiser."""
    said = ["--optimiser.rate=0.02", f"--optimiser.name={name}", "--data.scale=[0.01, 0.01]", "--budget.steps=45"]
    lines = fit(SMALL, tmp_path / "run", overrides=[*said, "--keep.log=15"]).lines
    assert lines[-1].loss < lines[0].loss - 0.5


@pytest.mark.parametrize(("name", "objective"), [("np", "elbo"), ("anp", "elbo"), ("convnp", "importance-weighted")])
def test_bounds_of_latent_models(name, objective, tmp_path):
    small = {k: v for k, v in TINY.items() if k in options_of(name)}
    recipe = {**SMALL, "model": {"name": name, **small}, "objective": {"name": objective, "samples": 2}}
    run = fit(recipe, tmp_path / "run")
    assert [line.step for line in run.lines] == [2, 4]
    assert all(math.isfinite(line.loss + line.validation) for line in run.lines)


def test_what_a_run_leaves(tmp_path):
    told = []
    run = fit(SMALL, tmp_path / "run", watch=lambda *line: told.append(line))
    assert {p.name for p in run.folder.iterdir()} >= {"recipe.yaml", "log.csv", "best", "last", "learning.png"}
    assert [line.step for line in run.lines] == [line[0] for line in told] == [2, 4]
    assert told[-1][2] == 1
    assert open_run(run.folder).recipe == run.recipe == read(SMALL)
    scores = {line.step: line.validation for line in run.lines}
    recipe, stream = run.recipe, replace(stream_of(run.recipe, seed=HELD_OUT), batch=4)
    for which, step in (("best", max(scores, key=scores.get)), ("last", 4)):
        model = run.model(which).eval()
        found = log_likelihood(model, stream.task(0)).mean().item()
        assert found == pytest.approx(scores[step], abs=1e-5)
        assert model.config == model_of(recipe, stream).config
    assert torch.get_num_threads() == 1


def test_a_budget_of_time(tmp_path):
    run = fit({**SMALL, "budget": {"time": "0.5s"}}, tmp_path / "run")
    last = run.lines[-1]
    assert last.seconds >= 0.5
    assert last.validation is not None
    assert share_spent(run.recipe, last.step, last.seconds) >= 1


def test_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [str(fit("te-tnp", overrides=options()).folder) for _ in range(2)] == ["runs/te-tnp", "runs/te-tnp-2"]
    assert str(fit(SMALL).folder) == "runs/run"


@pytest.mark.parametrize(("value", "said"), [(math.nan, "nan"), (-1e6, "1e.06")])
def test_a_loss_that_cannot_be_trained_on(value, said, tmp_path, monkeypatch):
    """Step, last good checkpoint, advice; and what is on the disk stays as it is."""
    folder, seen = tmp_path / "run", []

    def objective(model, task):
        seen.append(1)
        if len(seen) <= 3:
            return log_likelihood(model, task)
        good.extend((folder / which / "model.safetensors").read_bytes() for which in ("best", "last"))
        return value + 0 * log_likelihood(model, task)

    good: list[bytes] = []
    monkeypatch.setattr(loops, "objective_of", lambda recipe: objective)
    with pytest.raises(
        Diverged, match=rf"step 3: the loss is {said}.* last good checkpoint is .*last.*optimiser\.rate"
    ):
        fit(SMALL, folder, overrides=["--keep.checkpoint", "0"])
    assert good == [(folder / which / "model.safetensors").read_bytes() for which in ("best", "last")]
    assert feeders() == 0
    monkeypatch.undo()
    run = fit(folder=folder, resume=True, overrides=["--optimiser.rate", "1e-4"])
    assert [line.step for line in run.lines] == [2, 4]


def test_a_rate_far_too_high(tmp_path):
    said = ["--optimiser.name=sgd", "--optimiser.rate=1e30", "--optimiser.clip=0", "--budget.steps=50"]
    with pytest.raises(Diverged, match=r"there is no checkpoint yet.*--optimiser\.rate 3e.29"):
        fit(SMALL, tmp_path / "run", overrides=[*said, "--keep.log=50", "--keep.validations=1"])


# ---- the log and its picture


def test_a_log_forgets_what_came_after_its_checkpoint(tmp_path):
    log = Log(tmp_path)
    for step in (5, 10, 15):
        log.add(Line(step, step / 7, 1 / step, 0.5, 1e-3, None if step == 5 else -1.5))
    log.close()
    with (tmp_path / "log.csv").open("a") as file:
        file.write("20,0.1,0.")  # killed in the middle of a line
    assert [line.step for line in read_log(tmp_path)] == [5, 10, 15]
    Log(tmp_path, 10).close()
    assert [line.step for line in read_log(tmp_path)] == [5, 10]
    assert read_log(tmp_path)[0] == Line(5, 0.714, 0.2, 0.5, 1e-3, None)
    (tmp_path / "log.csv").write_text("step\nnonsense\n")
    with pytest.raises(FillinError, match=r"log\.csv, line 2: not a line of a log: 'nonsense'"):
        read_log(tmp_path)
    with pytest.raises(FillinError, match="has no log"):
        read_log(tmp_path / "nowhere")


def test_learning_curves(tmp_path):
    lines = [
        Line(step, step / 10, -step / 30, 1.0, 1e-3, step / 40 if step % 20 else None) for step in range(10, 100, 10)
    ]
    for shown in (lines, lines[:1], []):
        assert learning(shown, tmp_path / "one.png", "te-tnp").read_bytes().startswith(b"\x89PNG")


# ---- several processes, compiled


def test_two_processes_learn_what_one_does(tmp_path):
    said = [*options(), "--data.batch=4", "--budget.steps=6", "--budget.time=null", "--keep.log=1", "--keep.batches=2"]
    command = [
        sys.executable,
        "-m",
        "fillin",
        "train",
        "te-tnp",
        *said,
        "--devices",
        "2",
        "--out",
        str(tmp_path / "two"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    one, two = fit("te-tnp", tmp_path / "one", overrides=said).lines, read_log(tmp_path / "two")
    assert [line.step for line in two] == [1, 2, 3, 4, 5, 6]
    for a, b in zip(one, two, strict=True):
        assert (a.loss, a.gradient, a.rate) == pytest.approx((b.loss, b.gradient, b.rate), rel=2e-5)
        assert (a.validation or 0) == pytest.approx(b.validation or 0, rel=2e-5)


def test_a_batch_that_cannot_be_shared():
    class Two:
        world_size, global_rank = 2, 1

    assert loops._rows(4, Two()) == slice(1, None, 2)
    with pytest.raises(FillinError, match=r"a batch of 3 cannot be shared by 2 processes; change --data\.batch"):
        loops._rows(3, Two())


# ---- the command line


def test_train_lists_what_ships(capsys):
    assert main(["train"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in names())


@pytest.mark.parametrize(
    ("said", "message"),
    [(["te-tpn"], "unknown recipe 'te-tpn'; did you mean 'te-tnp'"), (["te-tnp", "--steps", "x"], "budget.steps"),
     (["te-tnp", "--tiem", "5m"], "did you mean '--time'"),
     (["te-tnp", "--time", "x"], "a time is like 90s, 20m or 1h30m, got 'x'"),
     (["te-tnp", "--model.widht", "3"], "did you mean 'model.width'"), (["--resume", "nowhere"], "is not a run"),
     (["te-tnp", "--resume", "x"], "has its recipe already"), (["--print-config"], "which recipe"),
     (["te-tnp", "--devices", "x"], "whole number"), (["te-tnp", "--model.score"], "--model.score needs a value"),
     (["te-tnp", "--strategy", "dpp", "--steps", "1"], "strategy='dpp'"), (["te-tnp", "cnp"], "expected a setting")],
)  # fmt: skip
def test_wrong_usage(said, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *said]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_settings_may_stand_anywhere(capsys):
    """argparse would take the value of an option it does not know for the recipe."""
    printed = []
    for words in (["te-tnp", "--model.width", "32", "--time", "5m"], ["--model.width=32", "--time", "5m", "te-tnp"],
                  ["--time", "5m", "--model.width", "32", "te-tnp"]):  # fmt: skip
        assert main(["train", *words, "--print-config"]) == 0
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1
    assert "width: 32" in printed[0]
    assert "time: 5m" in printed[0]


def test_one_kind_of_budget_replaces_the_other(capsys):
    for said, wanted in (
        (["--steps", "7"], {"steps": 7, "time": None}),
        (["--time", "7m"], {"steps": None, "time": "7m"}),
        (["--time", "7m", "--steps", "7"], {"steps": 7, "time": "7m"}),
        (["--budget.steps", "7"], {"steps": 7, "time": "7m"}),
    ):
        assert main(["train", "te-tnp", *said, "--print-config"]) == 0
        assert dump({**read("te-tnp"), "budget": wanted}) == capsys.readouterr().out


def test_a_run_says_where_it_is_and_that_it_is_done(tmp_path, capsys):
    out = tmp_path / "a [long] name"
    assert main(["train", "te-tnp", *options(), "--steps", "6", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "100%  step 6" in said
    assert f"{out}: 6 steps" in said
    assert f"weights: {out}/best" in said
    assert main(["train", "te-tnp", "--out", str(out)]) == 2
    assert f"holds a run already; go on with --resume {out}" in capsys.readouterr().err
    assert main(["train", "--resume", str(out), "--print-config"]) == 0
    assert capsys.readouterr().out == (out / "recipe.yaml").read_text()
    assert main(["train", "--resume", str(out), "--steps", "8", "--keep.log", "1"]) == 0
    assert [line.step for line in read_log(out)] == [2, 3, 4, 6, 7, 8]
