"""Train in a child process, kill it at a random moment and resume, repeatedly: a script that test_resume.py runs.

    python tests/support/kill_and_resume.py FOLDER '{"model": …}' KILLS

Imports take seconds, so they are done once and children are forked. This is safe because the parent has only one
thread: torch uses one, and those of a run (data, TensorBoard) start in the child.

On a busy machine the parent may wake up after the child has finished. The attempt is then repeated in an empty folder.
"""

import json
import os
import random
import shutil
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
ATTEMPTS = 20


def fork_child(call) -> int:
    """Fork a child whose exit code is the result of `call`, and return its process id."""
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


def wait_for_exit(pid: int) -> int:
    """Wait for a child, and return its exit code or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_running(pid: int) -> bool:
    """Whether the child has not ended. Its exit code is left to `wait_for_exit`."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def train(recipe: dict | None, folder: Path) -> None:
    started = (folder / "recipe.yaml").exists()
    fit(None if started else recipe, folder, resume=started)


def train_uninterrupted(recipe: dict, folder: Path) -> None:
    """Train to the end without interruption."""
    assert wait_for_exit(fork_child(lambda: train(recipe, folder))) == 0


def last_step(folder: Path) -> int:
    """Step of the last checkpoint, 0 without one."""
    try:
        return json.loads((folder / "last" / "trainer.json").read_text())["step"]
    except OSError:  # there is none yet, or it is between two renames
        return 0


def train_with_kills(recipe: dict, folder: Path, span: float, times: int) -> list[int]:
    """Train with `times` kills, at a random moment after a new checkpoint or after the start of the process.

    Returns the step of the last checkpoint at each kill.
    """
    for attempt in range(ATTEMPTS):
        rng, steps = random.Random(attempt), []
        for number in range(times):
            before = last_step(folder)
            pid = fork_child(lambda: train(recipe, folder))
            while number % 3 and last_step(folder) <= before and is_running(pid):
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, span / (1 + attempt)))
            os.kill(pid, signal.SIGKILL)
            code = wait_for_exit(pid)
            assert code in (0, -signal.SIGKILL), f"training failed before kill {number}"
            if code == 0:  # it finished before the kill
                break
            steps.append(last_step(folder))
        else:
            train_uninterrupted(recipe, folder)
            return steps
        shutil.rmtree(folder)
    raise AssertionError(f"training finished before the last kill in each of {ATTEMPTS} attempts")


def train_with_interrupt(recipe: dict, folder: Path) -> dict:
    """Interrupt `fillin train` by SIGINT, then resume to the end."""
    recipe_path, stderr_path = folder.with_suffix(".yaml"), folder.with_suffix(".txt")
    recipe_path.write_text(json.dumps(recipe))  # JSON is YAML

    def call() -> int:
        os.dup2(os.open(stderr_path, os.O_CREAT | os.O_WRONLY), 2)
        return main(["train", str(recipe_path), "--out", str(folder)])

    log = folder / "log.csv"
    for _ in range(ATTEMPTS):
        pid = fork_child(call)
        while is_running(pid) and not (log.exists() and len(log.read_text().splitlines()) >= 4):
            time.sleep(0.002)
        os.kill(pid, signal.SIGINT)
        code, lines = wait_for_exit(pid), len(log.read_text().splitlines()) - 1
        if code != 0:
            train_uninterrupted(recipe, folder)
            return {"code": code, "lines": lines, "stderr": stderr_path.read_text()}
        shutil.rmtree(folder)  # it finished before the signal
    raise AssertionError(f"training finished before the signal in each of {ATTEMPTS} attempts")


if __name__ == "__main__":
    folder, recipe = Path(sys.argv[1]), json.loads(sys.argv[2])
    start = time.perf_counter()
    train_uninterrupted(recipe, folder / "whole")
    span = 0.05 * (time.perf_counter() - start)
    steps = train_with_kills(recipe, folder / "killed", span, times=int(sys.argv[3]))
    print(json.dumps({"steps": steps, "interrupted": train_with_interrupt(recipe, folder / "interrupted")}))
