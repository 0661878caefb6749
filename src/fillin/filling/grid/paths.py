"""Files and folders that hold fields: whether they can be read, and how a folder is written whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

from fillin.errors import InputError
from fillin.filling.write import taken
from fillin.io import write_folder


def check_readable(path: Path, folder: bool = False) -> None:
    """An error that says why not."""
    if not path.exists():
        raise InputError(f"there is no {'folder' if folder else 'file'} {path}; look at its name and folder")
    if folder != path.is_dir():
        what = "is a file, not a folder of Zarr; look at its name" if folder else "is a folder; name a file in it"
        raise InputError(f"{path} {what}")
    try:
        if folder:
            os.listdir(path)
        else:
            with path.open("rb") as file:
                file.read(1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; look at its permissions") from error


def put_folder(path: Path, write: Callable[[Path], object], force: bool) -> None:
    """Call write(a folder beside), then rename: what is at `path` is whole at any moment, and what another run wrote
    there meanwhile goes only with `force`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_folder(path, write, beside, path.with_name(f"{beside.name}.old"), overwrite=force)
    except FileExistsError as error:
        raise taken(path) from error
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; name another place with -o") from error
