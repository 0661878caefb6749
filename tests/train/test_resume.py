"""A run that is stopped and resumed ends with the same bytes, and no failure damages the previous checkpoint."""

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
from support.helpers import SMALL, TIMEOUT

import fillin
from fillin.errors import FillinError
from fillin.train import checkpoint, fit, open_run, read_recipe
from fillin.train.log import Log, LogLine, read_log
from fillin.train.loop import TrainingModule, make_objective, make_optimiser
from fillin.train.recipe import CHOICES, build_model, make_stream
from fillin.train.runs import FolderLocked, lock_folder

WEIGHTS = ("best/model.safetensors", "last/model.safetensors", "last/trainer.safetensors")


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_log_rows(folder: Path) -> list[tuple]:
    """Lines of the log without their seconds."""
    return [(line.step, *line[2:]) for line in read_log(folder)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return fit(SMALL, tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """Copy of a finished run of 4 steps that a test may damage."""
    return shutil.copytree(finished, tmp_path / "run")


# ---- killed and interrupted


@pytest.fixture(scope="module", params=[4, pytest.param(10, marks=pytest.mark.slow)])
def killed_run(request, tmp_path_factory) -> tuple[Path, dict]:
    """A run that was killed four or ten times, one that was interrupted, and one that was not."""
    folder = tmp_path_factory.mktemp("killed")
    keep = {"log": 5, "validations": 8, "batches": 1, "checkpoint": 0.01}
    recipe = json.dumps({**SMALL, "budget": {"steps": 20 * request.param}, "keep": keep})
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "kill_and_resume.py"), str(folder), recipe]
    command.append(str(request.param))
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert process.returncode == 0, process.stderr
    return folder, json.loads(process.stdout)


def test_a_killed_run_ends_with_the_same_bytes(killed_run, request):
    folder, report = killed_run
    kills = request.node.callspec.params["killed_run"]
    assert len(report["steps"]) == kills
    assert len(set(report["steps"])) > kills // 3, report["steps"]  # killed at different steps, not before the first
    for name in WEIGHTS:
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    assert read_log_rows(folder / "killed") == read_log_rows(folder / "whole")
    assert [row[0] for row in read_log_rows(folder / "killed")] == list(range(5, 20 * kills + 1, 5))
    files = {p.name for p in (folder / "killed").iterdir()}
    assert not any(".new" in name or ".old" in name for name in files), files


def test_an_interrupted_run_names_the_command_to_continue_and_ends_with_the_same_bytes(killed_run, request):
    folder, report = killed_run[0], killed_run[1]["interrupted"]
    assert report["code"] == 130
    assert f"continue with: fillin train --resume {folder / 'interrupted'}" in report["stderr"]
    assert "Traceback" not in report["stderr"]
    assert 3 <= report["lines"] < 4 * request.node.callspec.params["killed_run"]
    for name in WEIGHTS:
        assert (folder / "interrupted" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    assert read_log_rows(folder / "interrupted") == read_log_rows(folder / "whole")


# ---- resuming


@pytest.mark.parametrize("name", CHOICES["optimiser.name"])
def test_a_checkpoint_is_restored_exactly(name, tmp_path):
    recipe = read_recipe(SMALL, ["--optimiser.name", name])
    stream = make_stream(recipe)

    def build():
        module = TrainingModule(build_model(recipe, stream), make_objective(recipe))
        return module, make_optimiser(recipe, module)

    def train_step(module, optimiser, number):
        task = stream.task(number)
        module(task.xc, task.yc, task.xt, task.yt).backward()
        optimiser.step()
        optimiser.zero_grad()

    module, optimiser = build()
    for number in range(3):
        train_step(module, optimiser, number)
    state = checkpoint.TrainingState(3, 0.1 + 0.2, -1 / 3, [[1 / 7, 2 / 3]], 1e-3, "abc")
    checkpoint.write(tmp_path / "last", module.model, optimiser, state)
    restored, restored_optimiser = build()
    assert checkpoint.read(tmp_path / "last", restored.model, restored_optimiser, "abc") == state
    for _ in range(2):  # equal after reading, and after one more step
        for a, b in zip(module.parameters(), restored.parameters(), strict=True):
            assert torch.equal(a, b)
            for key, value in optimiser.state[a].items():
                assert torch.equal(value, restored_optimiser.state[b][key])
        train_step(module, optimiser, 3)
        train_step(restored, restored_optimiser, 3)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_other_optimisers_are_resumed(name, tmp_path):
    """The rate is constant, so that 2 steps and 2 more equal 4."""
    overrides = [f"--optimiser.name={name}", "--schedule.name=constant", "--schedule.warmup=0"]
    fit(SMALL, tmp_path / "whole", overrides=overrides)
    fit(SMALL, tmp_path / "parts", overrides=[*overrides, "--budget.steps=2"])
    fit(folder=tmp_path / "parts", resume=True, overrides=["--budget.steps=4"])
    for file in WEIGHTS[1:]:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_resuming_a_finished_run_changes_nothing(run):
    before = read_files(run)
    fit(folder=run, resume=True)
    after = read_files(run)
    assert all(after[name] == before[name] for name in before if "tensorboard" not in name and "png" not in name)


def test_a_longer_budget_continues_a_run(run):
    longer = fit(folder=run, resume=True, overrides=["--budget.steps", "6", "--keep.log", "1"])
    assert [line.step for line in longer.lines] == [2, 4, 5, 6]
    assert open_run(run).recipe["budget"]["steps"] == 6


@pytest.mark.parametrize(
    ("section", "override"),
    [("data", "--data.batch=4"), ("data", "--data.function=periodic"), ("model", "--model.width=32"),
     ("seed", "--seed=1"), ("model", "--model.name=cnp"), ("data", "--data.length=[0.2, 0.6]"),
     ("optimiser.name", "--optimiser.name=adam")],
)  # fmt: skip
def test_settings_that_a_resumed_run_cannot_change(section, override, run):
    before = read_files(run)
    with pytest.raises(FillinError, match=f"`{section}` cannot change within a run|unknown setting"):
        fit(folder=run, resume=True, overrides=[override])
    assert read_files(run) == before


def test_folders_that_are_not_runs(tmp_path):
    for call, message in (
        (lambda: fit(folder=tmp_path, resume=True), "is not a run: it has no recipe.yaml"),
        (lambda: fit(resume=True), "resume needs the folder of the run"),
        (lambda: fit(), "fit needs a recipe"),
    ):
        with pytest.raises(FillinError, match=message):
            call()
    assert not list(tmp_path.iterdir())


def test_a_folder_is_locked_while_training(run):
    before = read_files(run)
    with (
        lock_folder(run),
        pytest.raises(FolderLocked, match="is being trained by another process"),
    ):
        fit(folder=run, resume=True, overrides=["--budget.steps", "9"])
    with lock_folder(run), pytest.raises(FolderLocked):
        fit(SMALL, run)
    assert read_files(run) == before
    with pytest.raises(FillinError, match="already holds a run"):
        fit(SMALL, run)
    with lock_folder(run):  # the lock was released
        pass


# ---- a process killed between two renames


def test_a_kill_between_the_renames_restores_the_old_checkpoint(run):
    (run / "last").rename(run / "last.old")
    (run / "last.new").mkdir()
    (run / "last.new" / "model.safetensors").write_bytes(b"half")
    fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert read_log_rows(run)[-1][0] == 6
    assert not {p.name for p in run.iterdir()} & {"last.old", "last.new"}


def test_a_kill_before_the_old_checkpoint_is_removed(run):
    shutil.copytree(run / "last", run / "last.old")
    (run / "last.old" / "trainer.json").unlink()
    fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert json.loads((run / "last" / "trainer.json").read_text())["step"] == 6
    assert not (run / "last.old").exists()


# ---- disks


def raise_disk_full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("moment", ["first rename", "second rename", "weights", "state", "read-only"])
def test_a_full_disk_keeps_the_previous_checkpoint(moment, run, monkeypatch):
    before, real_rename = read_files(run / "last"), os.rename

    def rename(source, target):
        fails = Path(target).name == ("last.old" if moment == "first rename" else "last")
        if fails and Path(source).name != "last.old":
            raise_disk_full()
        real_rename(source, target)

    if "rename" in moment:
        monkeypatch.setattr(os, "rename", rename)
    elif moment == "weights":
        monkeypatch.setattr(checkpoint, "save", raise_disk_full)
    elif moment == "state":
        monkeypatch.setattr(checkpoint, "write_tensors", raise_disk_full)
    else:
        monkeypatch.setattr(checkpoint, "save", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only")))
    with pytest.raises(FillinError, match=r"cannot write a checkpoint.*the previous checkpoint is unchanged.*--resume"):
        fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert read_files(run / "last") == before
    assert not (run / "last.new").exists()
    monkeypatch.undo()
    fit(folder=run, resume=True)
    assert read_log_rows(run)[-1][0] == 6


def test_a_file_size_limit_keeps_the_previous_checkpoint(run):
    """The system refuses to write more than half of the optimiser's state; nothing is patched."""
    before = read_files(run / "last")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["trainer.safetensors"]) // 2, hard))
    try:
        with pytest.raises(FillinError, match=r"cannot write.*[Tt]oo large"):
            fit(folder=run, resume=True, overrides=["--budget.steps", "6", "--keep.validations", "1"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_files(run / "last") == before
    fit(folder=run, resume=True)
    assert read_log_rows(run)[-1][0] == 6


def test_an_unwritable_log_is_an_error(tmp_path):
    log = Log(tmp_path)
    log._file.close()
    log._file = Path("/dev/full").open("a")  # noqa: SIM115 (it is closed below)
    log._writer = csv.writer(log._file)
    with pytest.raises(FillinError, match=r"cannot write .*log\.csv.*No space left.*--resume"):
        log.add(LogLine(1, 0.1, 1.0, 1.0, 1e-3))
    log.close()


def test_an_unwritable_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FillinError, match=r"cannot write to .*file.*choose another folder"):
        fit(SMALL, tmp_path / "file" / "run")


def test_an_unwritable_recipe_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("fillin.train.runs.write_text", raise_disk_full)
    with pytest.raises(FillinError, match=r"cannot write to .*No space left"):
        fit(SMALL, tmp_path / "run")
    monkeypatch.undo()
    fit(SMALL, tmp_path / "run")  # the remaining folder is not a run and does not block a new one


def test_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        folder = fit(SMALL, tmp_path / "run").folder
    finally:
        os.umask(before)
    for path in (p for which in ("best", "last") for p in (folder / which).iterdir()):
        assert path.stat().st_mode & 0o777 == 0o640, path


# ---- damaged checkpoints


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.safetensors", "trainer.json"])
def test_a_damaged_checkpoint_is_refused_and_unchanged(name, run):
    path, rng = run / "last" / name, random.Random(name)
    good = path.read_bytes()
    variants = [good[: len(good) // 2], good[:-1] if name != "trainer.json" else good[:-3], b""]
    for _ in range(12):
        index = rng.randrange(len(good))
        variants.append(good[:index] + bytes([good[index] ^ 0xFF]) + good[index + 1 :])
    model = fillin.load(run / "last")
    digest = json.loads((run / "last" / "trainer.json").read_text())["recipe"]
    for damaged in variants:
        path.write_bytes(damaged)
        with pytest.raises(FillinError, match="damaged"):
            checkpoint.read(run / "last", model, None, digest)
    before = read_files(run)
    with pytest.raises(FillinError, match="damaged"):
        fit(folder=run, resume=True, overrides=["--budget.steps", "6"])
    assert {k: v for k, v in read_files(run).items() if "/" in k} == {k: v for k, v in before.items() if "/" in k}


def test_a_run_without_its_checkpoint_is_not_restarted(run):
    """Its log and its best weights are not overwritten."""
    shutil.rmtree(run / "last")
    before = read_files(run)
    with pytest.raises(FillinError, match="its checkpoint, the folder `last`, is missing"):
        fit(folder=run, resume=True)
    assert read_files(run) == before


def test_an_edited_step_is_detected(run):
    path = run / "last" / "trainer.json"
    path.write_text(path.read_text().replace('"step": 4', '"step": 3'))
    with pytest.raises(FillinError, match=r"trainer\.json is damaged"):
        fit(folder=run, resume=True)


def test_checkpoints_of_other_runs_are_refused(run, tmp_path):
    other = fit(SMALL, tmp_path / "other", overrides=["--model.width=8"]).folder
    shutil.rmtree(run / "last")
    shutil.copytree(other / "last", run / "last")
    with pytest.raises(FillinError, match="belongs to another recipe or"):
        fit(folder=run, resume=True, overrides=["--budget.steps=6"])
    assert read_files(run / "last") == read_files(other / "last")
    shutil.rmtree(run / "last")
    (run / "last").mkdir()
    save_file({"weight": torch.zeros(3)}, run / "last" / "model.safetensors")
    with pytest.raises(FillinError, match=r"not a checkpoint of fillin: trainer\.json is missing"):
        fit(folder=run, resume=True)
    (run / "last" / "trainer.json").write_text("[1, 2]")
    with pytest.raises(FillinError, match="damaged"):
        fit(folder=run, resume=True)
