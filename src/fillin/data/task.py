"""The one batch type, and where batches come from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
    error_c: Float[Tensor, "b nc dy"] | None = None  # known deviations of yc, 0 where none is known
    noise_free_t: Float[Tensor, "b nt dy"] | None = None  # yt without its noise, where that is known

    def __repr__(self) -> str:
        shapes = dict(zip(self.__dataclass_fields__, self.parts, strict=True))
        return f"Task({', '.join(f'{k}={list(v.shape)}' for k, v in shapes.items() if v is not None)})"

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """What a model is called with: model(*task.inputs)."""
        common = (self.xc, self.yc, self.xt, self.mask_c, self.mask_t)
        return common if self.error_c is None else (*common, self.error_c)

    @property
    def parts(self) -> tuple[Tensor | None, ...]:
        """All of it: Task(*task.parts) is the task again."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self, index) -> "Task":
        """Some of its tasks: task.rows(slice(0, 4))."""
        return self._each(lambda part: part[index])

    def to(self, device) -> "Task":
        """The same on another device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Task":
        return Task(*(None if part is None else change(part) for part in self.parts))  # type: ignore[arg-type]


@runtime_checkable
class Batches(Protocol):
    """Batch s is a function of s alone."""

    def task(self, step: int) -> Task: ...


@runtime_checkable
class Stream(Batches, Protocol):
    """What a model learns from: batch s is a function of (seed, s) alone."""

    @property
    def batch(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def dim_x(self) -> int: ...

    @property
    def dim_y(self) -> int: ...

    def validation_stream(self, seed: int) -> "Stream":
        """The same from another seed, for validation: tasks of a batch share their counts, so the same number of tasks
        in small batches says more."""
        ...
