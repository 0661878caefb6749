"""Lock that admits one process at a time to a run folder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fillin.errors import InputError


class FolderLocked(InputError):
    """Another process trains in the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder within the block. The lock ends with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error}; choose another folder") from error
    with lock as file:
        try:
            _lock(file)
        except (
            BlockingIOError,
            PermissionError,
        ) as error:  # PermissionError: Windows, and its network shares elsewhere
            raise FolderLocked(f"{folder} is being trained by another process; wait for it, or stop it") from error
        except OSError as error:
            raise InputError(
                f"{folder} cannot be locked ({error.strerror}); choose a folder on another disk"
            ) from error
        yield


def _lock(file: IO) -> None:
    """Lock the file until it is closed, or raise an error at once."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # its first byte, which need not exist
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
