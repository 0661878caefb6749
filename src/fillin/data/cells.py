"""A table as a model reads it: cells, which of them are known, and which are asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int64
from torch import Tensor


@dataclass(frozen=True, repr=False)
class Cells:
    """A batch of tables of n rows and d columns.

    A column has `classes` > 0 where its values are codes 0 … classes − 1, and 0 where they are numbers. Of the rows the
    first `context` may be looked at by others (None: all of them); the rest only ask. The last `targets` columns are
    what the table is for, the others features.
    """

    values: Float[Tensor, "b n d"]  # anything where not seen and not asked for
    seen: Bool[Tensor, "b n d"]
    asked: Bool[Tensor, "b n d"]
    classes: Int64[Tensor, "b d"]
    context: int | None = None
    real: Bool[Tensor, "b n"] | None = None  # which rows there are (None: all)
    targets: int = 1

    def __repr__(self) -> str:
        return f"Cells({list(self.values.shape)}, {self.context} rows of context)"

    @property
    def parts(self) -> tuple[Any, ...]:
        """All of it: Cells(*cells.parts) is the same again."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self, index) -> "Cells":
        """Some of the tables of the batch."""
        return self._each(lambda part: part[index])

    def to(self, device) -> "Cells":
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Cells":
        return Cells(*(change(part) if isinstance(part, Tensor) else part for part in self.parts))  # type: ignore[arg-type]
