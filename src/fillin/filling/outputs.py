"""Output files of the command line: beside the input, nothing replaced without `--force`, every write atomic."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fillin.errors import InputError
from fillin.io import write_file, write_folder


@dataclass(frozen=True)
class Outputs:
    """Paths to write: the filled data, and further files by name ("figure", "report")."""

    data: Path
    extra: dict[str, Path]
    force: bool = False

    @classmethod
    def choose(
        cls, sources: Sequence[Path], out: str | None, default: Path, extra: Mapping[str, str], force: bool = False
    ) -> "Outputs":
        """Return the paths, checked before any slow work begins.

        The data go to `out`, or else to `default`, whose suffix they have in any case. A file of `extra` has the name
        of the data with the given suffix. Files and folders of `sources` are never written to.
        """
        if out is not None and not out.strip():
            raise InputError("-o: the name of the output is empty; name a file or leave out -o")
        data = Path(out) if out else default
        if not data.suffix and default.suffix == ".png":
            data = data.with_name(f"{data.name}.png")
        if data.suffix.lower() != default.suffix.lower():
            raise InputError(f"-o {data}: the output is written as {default.suffix}; its name must end in that")
        outputs = cls(data, {name: data.with_suffix(suffix) for name, suffix in extra.items()}, force)
        for path in outputs.paths:
            outputs._check(path, sources)
        if not data.parent.is_dir():
            raise InputError(f"there is no folder {data.parent}; create it or name another file with -o")
        return outputs

    @property
    def paths(self) -> list[Path]:
        return [self.data, *self.extra.values()]

    def _check(self, path: Path, sources: Sequence[Path]) -> None:
        for source in sources:
            if path.exists() and source.exists() and path.samefile(source):
                raise InputError(f"-o {path} is the input, which is never overwritten; name another file")
            if source.is_dir() and source.resolve() in path.resolve().parents:
                raise InputError(f"-o {path} lies inside the input, which is never changed; name another folder")
        if path.is_dir() and not (path == self.data and _is_zarr(path) and sources[0].is_dir()):
            raise InputError(f"{path} is a folder; name a file with -o")
        if path.exists() and not self.force:
            raise InputError(f"{path} exists; replace it with --force or name another file with -o")

    def write(self, path: Path, write: Callable[[Path], object], folder: bool = False) -> None:
        """Call `write(temporary path)` for a file or a folder, then rename it to `path`."""
        try:
            if folder:
                temporary = path.with_name(f".{path.name}.{os.getpid()}")
                write_folder(path, write, temporary, path.with_name(f"{temporary.name}.old"), overwrite=self.force)
            else:
                write_file(path, write, overwrite=self.force)
        except FileExistsError as error:
            raise InputError(
                f"{path} was meanwhile written by another run and is kept; replace it with --force or name another "
                "file with -o"
            ) from error
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}; name another place with -o") from error


def _is_zarr(path: Path) -> bool:
    """Test for a Zarr folder, which another one may replace."""
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))
