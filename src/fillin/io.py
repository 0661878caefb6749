"""Atomic writing of files and folders: a reader sees the old content or the new, never a part, also after a kill.

Every file is written under a temporary name beside its destination, flushed to the disk and renamed.
"""

import glob
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fillin.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_STALE_SECONDS = 3600.0  # on a shared disk a process id of another machine means nothing, the age of a file does


def write_file(path: Path, write: Callable[[Path], object], overwrite: bool = True) -> None:
    """Call `write(temporary path)`, then rename the file to `path`.

    Without `overwrite`, raises FileExistsError where `path` exists by then. Also removes temporary files that killed
    processes left for the same `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        write(temporary)
        sync(temporary)
        if overwrite:
            os.replace(temporary, path)
        else:
            _rename_to_new(temporary, path)
    finally:
        with suppress(OSError):  # where the parent is no folder, the error that says so is already raised
            temporary.unlink(missing_ok=True)
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*"):
        with suppress(FileNotFoundError):
            is_stale = leftover.is_file() and time.time() - leftover.stat().st_mtime > _STALE_SECONDS
            if is_stale and _is_dead(leftover.suffix[1:].partition("-")[0]):
                leftover.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_tensors(path: Path, tensors: "dict[str, Tensor]", metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file, atomically, with the permissions of the umask (save_file allows its owner alone)."""
    from safetensors.torch import save_file

    def write(temporary: Path) -> None:
        temporary.touch()
        mode = temporary.stat().st_mode & 0o777
        save_file(tensors, temporary, metadata)
        temporary.chmod(mode)

    write_file(path, write)


def read_tensors(path: str | os.PathLike, key: str, content: str) -> "tuple[Any, dict[str, Tensor]]":
    """Return the JSON under `key` of the metadata (None where missing) and all tensors of a safetensors file.

    `content` names the expected content in the error message.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get(key, "null"))
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"load: {path} is not a readable {content}: {error}") from error


def write_folder(
    folder: Path, write: Callable[[Path], object], temporary: Path, old: Path, overwrite: bool = True
) -> None:
    """Call `write(temporary)`, then rename that folder to `folder`; the previous one is `old` between two renames.

    A process killed between the renames leaves `old`, which `restore_folder` puts back. Without `overwrite`, raises
    FileExistsError where `folder` exists by then.
    """
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        write(temporary)
        restore_folder(folder, old)
        if folder.exists():
            if not overwrite:
                raise FileExistsError(folder)
            shutil.rmtree(old, ignore_errors=True)
            os.rename(folder, old)
        os.rename(temporary, folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            restore_folder(folder, old)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)


def restore_folder(folder: Path, old: Path) -> None:
    """Undo the first of the two renames of `write_folder` where the second did not happen."""
    if old.exists() and not folder.exists():
        os.rename(old, folder)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that no rename gets there first.

    Windows syncs only what is open for writing, which a folder cannot be.
    """
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Rename a file unless `path` exists, in one step where the file system has hard links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        with path.open("x"):
            pass
        os.replace(temporary, path)


def _is_dead(process: str) -> bool:
    """Test whether `process` is the id of a process that has ended. On Windows the test would end it: always False."""
    if not process.isdecimal() or sys.platform == "win32":
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass
    return False
