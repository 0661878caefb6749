"""Simulated restrictions of Windows: a run is trained, resumed and locked there as elsewhere."""

import fcntl
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support.helpers import SMALL

from fillin import io
from fillin.train import fit, runs
from fillin.train.runs import FolderLocked, lock_folder


class WindowsOs:
    """Module `os` that opens no folder, syncs no read-only file, and moves no memory-mapped file."""

    def __getattr__(self, name: str):
        return getattr(os, name)

    def open(self, path, flags):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied")
        return os.open(path, flags)

    def fsync(self, handle):
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        os.fsync(handle)

    def rename(self, source, target):
        if f"{source}/" in Path("/proc/self/maps").read_text():
            raise PermissionError(13, "Access is denied")
        os.rename(source, target)


def lock_like_windows(handle: int, mode: int, size: int) -> None:
    assert (mode, size) == (2, 1)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error


@pytest.fixture
def windows(monkeypatch):
    msvcrt = ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.locking = 2, lock_like_windows
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    for module in (io, runs):
        monkeypatch.setattr(module, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(io, "os", WindowsOs())


def test_a_run_is_trained_and_resumed(windows, tmp_path):
    fit(SMALL, tmp_path / "run")
    run = fit(folder=tmp_path / "run", resume=True, overrides=["--budget.steps", "6"])
    assert run.state.step == 6


def test_a_folder_is_locked_for_one_process(windows, tmp_path):
    with (
        lock_folder(tmp_path),
        pytest.raises(FolderLocked, match="is being trained by another process"),
        lock_folder(tmp_path),
    ):
        pass
    with lock_folder(tmp_path):  # the lock was released
        pass
