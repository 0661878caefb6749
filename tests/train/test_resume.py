"""Stopped anywhere and resumed, a run ends with the same bytes; and nothing that goes wrong harms what was good."""

import csv
import errno
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.helpers import SMALL

import fillin
from fillin.errors import FillinError
from fillin.train import checkpoint, fit, open_run, read_recipe
from fillin.train.log import Log, LogLine, read_log
from fillin.train.loop import TrainingModule, make_objective, make_optimiser
from fillin.train.recipe import CHOICES, build_model, make_stream
from fillin.train.runs import FolderLocked, lock_folder

WEIGHTS = ("best/model.safetensors", "last/model.safetensors", "last/trainer.safetensors")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rows(folder: Path) -> list[tuple]:
    """The log without its seconds."""
    return [(line.step, *line[2:]) for line in read_log(folder)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return fit(SMALL, tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A run of 4 steps that is done, to be harmed."""
    return shutil.copytree(finished, tmp_path / "run")


# ---- killed and interrupted


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("killed")
    keep = {"log": 5, "validations": 8, "batches": 1, "checkpoint": 0.01}
    recipe = json.dumps({**SMALL, "budget": {"steps": 200}, "keep": keep})
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "kill_and_resume.py"), str(folder), recipe]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_killed_ten_times_it_ends_with_the_same_bytes(killed):
    folder, report = killed
    assert len(report["steps"]) == 10
    assert len(set(report["steps"])) > 3, report["steps"]  # killed at different steps, not before the first
    for name in WEIGHTS:
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    assert rows(folder / "killed") == rows(folder / "whole")
    assert [row[0] for row in rows(folder / "killed")] == list(range(5, 201, 5))
    left = {p.name for p in (folder / "killed").iterdir()}
    assert not any(".new" in name or ".old" in name for name in left), left


def test_interrupted_it_says_how_to_go_on_and_ends_with_the_same_bytes(killed):
    folder, report = killed[0], killed[1]["interrupted"]
    assert report["code"] == 130
    assert f"continue with: fillin train --resume {folder / 'interrupted'}" in report["stderr"]
    assert "Traceback" not in report["stderr"]
    assert 3 <= report["lines"] < 40
    for name in WEIGHTS:
        assert (folder / "interrupted" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    assert rows(folder / "interrupted") == rows(folder / "whole")


# ---- resuming


@pytest.mark.parametrize("name", CHOICES["optimiser.name"])
def test_a_checkpoint_comes_back_to_the_bit(name, tmp_path):
    recipe = read_recipe(SMALL, ["--optimiser.name", name])
    stream = make_stream(recipe)

    def new():
        goal = TrainingModule(build_model(recipe, stream), make_objective(recipe))
        return goal, make_optimiser(recipe, goal)

    def step(goal, optimiser, number):
        task = stream.task(number)
        goal(task.xc, task.yc, task.xt, task.yt).backward()
        optimiser.step()
        optimiser.zero_grad()

    goal, optimiser = new()
    for number in range(3):
        step(goal, optimiser, number)
    state = checkpoint.TrainingState(3, 0.1 + 0.2, -1 / 3, [[1 / 7, 2 / 3]], 1e-3, "abc")
    checkpoint.write(tmp_path / "last", goal.model, optimiser, state)
    again, other = new()
    assert checkpoint.read(tmp_path / "last", again.model, other, "abc") == state
    for _ in range(2):  # and so does the step after
        for a, b in zip(goal.parameters(), again.parameters(), strict=True):
            assert torch.equal(a, b)
            for key, value in optimiser.state[a].items():
                assert torch.equal(value, other.state[b][key])
        step(goal, optimiser, 3)
        step(again, other, 3)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_other_optimisers_are_resumed(name, tmp_path):
    """At a constant rate, so that 2 steps and 2 more are 4."""
    said = [f"--optimiser.name={name}", "--schedule.name=constant", "--schedule.warmup=0"]
    fit(SMALL, tmp_path / "whole", overrides=said)
    fit(SMALL, tmp_path / "parts", overrides=[*said, "--budget.steps=2"])
    fit(folder=tmp_path / "parts", resume=True, overrides=["--budget.steps=4"])
    for file in WEIGHTS[1:]:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_a_finished_run_is_left_as_it_is(run):
    before = contents(run)
    fit(folder=run, resume=True)
    after = contents(run)
    assert all(after[name] == before[name] for name in before if "tensorboard" not in name and "png" not in name)


def test_a_longer_budget_goes_on(run):
    longer = fit(folder=run, resume=True, overrides=["--budget.steps", "6", "--keep.log", "1"])
    assert [line.step for line in longer.lines] == [2, 4, 5, 6]
    assert open_run(run).recipe["budget"]["steps"] == 6


@pytest.mark.parametrize(
    ("section", "said"),
    [("data", "--data.batch=4"), ("data", "--data.function=periodic"), ("model", "--model.width=32"),
     ("seed", "--seed=1"), ("model", "--model.name=cnp"), ("data", "--data.length=[0.2, 0.6]"),
     ("optimiser.name", "--optimiser.name=adam")],
)  # fmt: skip
def test_what_a_resumed_run_cannot_change(section, said, run):
    before = contents(run)
    with pytest.raises(FillinError, match=f"`{section}` cannot change within a run|unknown setting"):
        fit(folder=run, resume=True, overrides=[said])
    assert contents(run) == before


def test_what_is_no_run(tmp_path):
    for call, message in (
        (lambda: fit(folder=tmp_path, resume=True), "is not a run: it has no recipe.yaml"),
        (lambda: fit(resume=True), "resume needs the folder of the run"),
        (lambda: fit(), "fit needs a recipe"),
    ):
        with pytest.raises(FillinError, match=message):
            call()
    assert not list(tmp_path.iterdir())


def test_two_trainings_in_one_folder(run):
    before = contents(run)
    with (
        lock_folder(run),
        pytest.raises(FolderLocked, match="is being trained by another process"),
    ):
        fit(folder=run, resume=True, overrides=["--budget.steps", "9"])
    with lock_folder(run), pytest.raises(FolderLocked):
        fit(SMALL, run)
    assert contents(run) == before
    with pytest.raises(FillinError, match="already holds a run"):
        fit(SMALL, run)
    with lock_folder(run):  # nobody keeps it
        pass


# ---- a process killed between two renames


def test_killed_between_the_renames_the_old_checkpoint_comes_back(run):
    (run / "last").rename(run / "last.old")
    (run / "last.new").mkdir()
    (run / "last.new" / "model.safetensors").write_bytes(b"half")
    fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert rows(run)[-1][0] == 6
    assert not {p.name for p in run.iterdir()} & {"last.old", "last.new"}


def test_killed_before_the_old_checkpoint_was_removed(run):
    shutil.copytree(run / "last", run / "last.old")
    (run / "last.old" / "trainer.json").unlink()
    fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert json.loads((run / "last" / "trainer.json").read_text())["step"] == 6
    assert not (run / "last.old").exists()


# ---- disks


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("moment", ["first rename", "second rename", "weights", "state", "read-only"])
def test_a_full_disk_leaves_the_checkpoint_before(moment, run, monkeypatch):
    before, real = contents(run / "last"), os.rename

    def rename(source, target):
        fails = Path(target).name == ("last.old" if moment == "first rename" else "last")
        if fails and Path(source).name != "last.old":
            full()
        real(source, target)

    if "rename" in moment:
        monkeypatch.setattr(os, "rename", rename)
    elif moment == "weights":
        monkeypatch.setattr(checkpoint, "save", full)
    elif moment == "state":
        monkeypatch.setattr(checkpoint, "write_tensors", full)
    else:
        monkeypatch.setattr(checkpoint, "save", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only")))
    with pytest.raises(FillinError, match=r"cannot write a checkpoint.*the previous checkpoint is unchanged.*--resume"):
        fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert contents(run / "last") == before
    assert not (run / "last.new").exists()
    monkeypatch.undo()
    fit(folder=run, resume=True)
    assert rows(run)[-1][0] == 6


def test_a_real_limit_on_files(run):
    """No monkeys: the system refuses to write more than half of the optimiser's state."""
    before = contents(run / "last")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["trainer.safetensors"]) // 2, hard))
    try:
        with pytest.raises(FillinError, match=r"cannot write.*[Tt]oo large"):
            fit(folder=run, resume=True, overrides=["--budget.steps", "6", "--keep.validations", "1"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(run / "last") == before
    fit(folder=run, resume=True)
    assert rows(run)[-1][0] == 6


def test_a_log_that_cannot_be_written(tmp_path):
    log = Log(tmp_path)
    log._file.close()
    log._file = Path("/dev/full").open("a")  # noqa: SIM115 (it is closed below)
    log._writer = csv.writer(log._file)
    with pytest.raises(FillinError, match=r"cannot write .*log\.csv.*No space left.*--resume"):
        log.add(LogLine(1, 0.1, 1.0, 1.0, 1e-3))
    log.close()


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FillinError, match=r"cannot write to .*file.*choose another folder"):
        fit(SMALL, tmp_path / "file" / "run")


def test_a_recipe_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fillin.train.runs.write_text", full)
    with pytest.raises(FillinError, match=r"cannot write to .*No space left"):
        fit(SMALL, tmp_path / "run")
    monkeypatch.undo()
    fit(SMALL, tmp_path / "run")  # what was left is no run, and not in the way


def test_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        folder = fit(SMALL, tmp_path / "run").folder
    finally:
        os.umask(before)
    for path in (p for which in ("best", "last") for p in (folder / which).iterdir()):
        assert path.stat().st_mode & 0o777 == 0o640, path


# ---- checkpoints that are not what they were


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.safetensors", "trainer.json"])
def test_a_damaged_checkpoint_is_refused_and_left_alone(name, run):
    path, choose = run / "last" / name, random.Random(name)
    good = path.read_bytes()
    cuts = [good[: len(good) // 2], good[:-1] if name != "trainer.json" else good[:-3], b""]
    for _ in range(12):
        place = choose.randrange(len(good))
        cuts.append(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
    model = fillin.load(run / "last")
    digest = json.loads((run / "last" / "trainer.json").read_text())["recipe"]
    for bad in cuts:
        path.write_bytes(bad)
        with pytest.raises(FillinError, match="damaged"):
            checkpoint.read(run / "last", model, None, digest)
    before = contents(run)
    with pytest.raises(FillinError, match="damaged"):
        fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert {k: v for k, v in contents(run).items() if "/" in k} == {k: v for k, v in before.items() if "/" in k}


def test_a_run_without_its_checkpoint_is_not_begun_anew(run):
    """Over its log and its best weights."""
    shutil.rmtree(run / "last")
    before = contents(run)
    with pytest.raises(FillinError, match="its checkpoint, the folder `last`, is missing"):
        fit(folder=run, resume=True)
    assert contents(run) == before


def test_a_step_that_was_edited_is_seen(run):
    path = run / "last" / "trainer.json"
    path.write_text(path.read_text().replace('"step": 4', '"step": 3'))
    with pytest.raises(FillinError, match=r"trainer\.json is damaged"):
        fit(folder=run, resume=True)


def test_checkpoints_of_others(run, tmp_path):
    other = fit(SMALL, tmp_path / "other", overrides=["--model.width=8"]).folder
    shutil.rmtree(run / "last")
    shutil.copytree(other / "last", run / "last")
    with pytest.raises(FillinError, match="belongs to another recipe or"):
        fit(folder=run, resume=True, overrides=["--budget.steps=6"])
    assert contents(run / "last") == contents(other / "last")
    shutil.rmtree(run / "last")
    (run / "last").mkdir()
    save_file({"weight": torch.zeros(3)}, run / "last" / "model.safetensors")
    with pytest.raises(FillinError, match=r"not a checkpoint of fillin: trainer\.json is missing"):
        fit(folder=run, resume=True)
    (run / "last" / "trainer.json").write_text("[1, 2]")
    with pytest.raises(FillinError, match="damaged"):
        fit(folder=run, resume=True)
