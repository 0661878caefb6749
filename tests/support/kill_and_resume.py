"""Train in a child process, kill it at a random moment, resume, and so on: a script, run by test_resume.py.

    python tests/support/kill_and_resume.py FOLDER '{"model": …}'

Importing everything takes seconds, so it is done once and children are forked. That is sound because there is only one
thread to fork: torch has one, and those of a run (data, TensorBoard) begin in the child.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
import lightning_fabric  # noqa: F401 (so that no child has to import it)
import torch
import torch.utils.tensorboard

from fillin.cli import main
from fillin.train import fit, loop  # noqa: F401

torch.set_num_threads(1)


def child(call) -> int:
    """The process id of a child that calls `call` and ends with what it returns."""
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = call() or 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def ended(pid: int) -> int:
    """Its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(recipe: dict | None, folder: Path) -> None:
    begun = (folder / "recipe.yaml").exists()
    fit(None if begun else recipe, folder, resume=begun)


def whole(recipe: dict, folder: Path) -> None:
    """A run that nobody disturbs."""
    assert ended(child(lambda: train(recipe, folder))) == 0


def step(folder: Path) -> int:
    """That of the last checkpoint."""
    try:
        return json.loads((folder / "last" / "trainer.json").read_text())["step"]
    except OSError:  # there is none yet, or it is between two renames
        return 0


def killed(recipe: dict, folder: Path, span: float, times: int = 10) -> list[int]:
    """One that is killed `times` over: at a random moment after a new checkpoint, or after the start of the process.
    How far it got each time."""
    choose, got = random.Random(0), []
    for number in range(times):
        before = step(folder)
        pid = child(lambda: train(recipe, folder))
        while number % 3 and step(folder) <= before:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), f"it was done, or failed, before kill {number}"
            time.sleep(0.001)
        time.sleep(choose.uniform(0.0, span))
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL, f"it was done, or failed, before kill {number}"
        got.append(step(folder))
    whole(recipe, folder)
    return got


def interrupted(recipe: dict, folder: Path) -> dict:
    """Ctrl-C in the middle, by the command line; then on to the end."""
    file, said = folder.with_suffix(".yaml"), folder.with_suffix(".txt")
    file.write_text(json.dumps(recipe))  # JSON is YAML

    def call() -> int:
        os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY), 2)
        return main(["train", str(file), "--out", str(folder)])

    pid, log = child(call), folder / "log.csv"
    while not log.exists() or len(log.read_text().splitlines()) < 4:
        time.sleep(0.002)
    os.kill(pid, signal.SIGINT)
    code, lines = ended(pid), len(log.read_text().splitlines()) - 1
    whole(recipe, folder)
    return {"code": code, "lines": lines, "said": said.read_text()}


if __name__ == "__main__":
    place, recipe = Path(sys.argv[1]), json.loads(sys.argv[2])
    start = time.perf_counter()
    whole(recipe, place / "whole")
    span = 0.05 * (time.perf_counter() - start)
    got = killed(recipe, place / "killed", span)
    print(json.dumps({"got": got, "interrupted": interrupted(recipe, place / "interrupted")}))
