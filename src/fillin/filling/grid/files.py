"""Which reader a field wants, by its ending."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fillin.filling.grid.mask import Mask
from fillin.filling.grid.plan import FieldPlan
from fillin.filling.grid.variable import Variable


@runtime_checkable
class FieldFile(Protocol):
    """A file that was opened: its variable (None: nothing has gaps), and how its like is written."""

    @property
    def variable(self) -> Variable | None: ...

    @property
    def ending(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def mask(self, text: str) -> Mask: ...

    def write(self, path: Path, plan: FieldPlan, found: Any, force: bool) -> Any:
        """Write filled, std, low and high; what was written of the first two, to draw."""
        ...

    def close(self) -> None: ...


def open_field(path: Path, var: str | None = None, chunks: dict[str, int] | None = None) -> FieldFile:
    if path.suffix.lower() in (".npy", ".npz"):
        from fillin.filling.grid.arrays import open_arrays

        return open_arrays(path, var)
    from fillin.filling.grid.datasets import open_dataset

    return open_dataset(path, var, chunks)
