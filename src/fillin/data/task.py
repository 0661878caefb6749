"""The one batch type."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, repr=False)
class Task:
    """Given (xc, yc), predict yt at xt: a batch of tasks, padded where counts differ.

    Masks are [b n], or [b n dy] where parts of y are missing; True = there, None = all there.
    """

    xc: Float[Tensor, "b nc dx"]
    yc: Float[Tensor, "b nc dy"]
    xt: Float[Tensor, "b nt dx"]
    yt: Float[Tensor, "b nt dy"]
    mask_c: Bool[Tensor, "b nc *dy"] | None = None
    mask_t: Bool[Tensor, "b nt *dy"] | None = None

    def __repr__(self) -> str:
        shapes = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return f"Task({', '.join(f'{k}={list(v.shape)}' for k, v in shapes.items() if v is not None)})"

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """What a model is called with: model(*task.inputs)."""
        return self.xc, self.yc, self.xt, self.mask_c, self.mask_t

    def rows(self, index) -> "Task":
        """Some of its tasks: task.rows(slice(0, 4))."""
        return self._each(lambda part: part[index])

    def to(self, device) -> "Task":
        """The same on another device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Task":
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return replace(self, **{name: change(part) for name, part in parts.items() if part is not None})
