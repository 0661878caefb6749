"""Points as a model reads them, checked once at the edge: after this no model meets a NaN, a bad shape or padding."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.errors import InputError, InputTypeError


@dataclass(frozen=True)
class Points:
    """Places, values (0 where not known), which values are known, and which points there are (None: all)."""

    x: Float[Tensor, "b n dx"]
    y: Float[Tensor, "b n dy"]
    seen: Bool[Tensor, "b n dy"]
    keep: Bool[Tensor, "b n"] | None
    error: Float[Tensor, "b n dy"] | None = None  # the known deviation of each value, 0 where none is known

    def __len__(self) -> int:
        return self.x.shape[1]

    @property
    def known(self) -> Float[Tensor, "b n _"]:
        """[y, flag]: the value of each output, and whether there is one. All zeros at a target."""
        return torch.cat([self.y, self.seen.to(self.y.dtype)], -1)

    def relative_to(self, place: Float[Tensor, "b 1 dx"]) -> "Points":
        return replace(self, x=_moved(self.x, place, self.keep))

    def followed_by(self, other: "Points") -> "Points":
        keep = None if self.keep is None and other.keep is None else torch.cat([self.real, other.real], 1)
        x, y, seen = (torch.cat([getattr(self, f), getattr(other, f)], 1) for f in ("x", "y", "seen"))
        if self.error is None and other.error is None:
            return Points(x, y, seen, keep)
        errors = [torch.zeros_like(p.y) if p.error is None else p.error for p in (self, other)]
        return Points(x, y, seen, keep, torch.cat(errors, 1))

    @property
    def real(self) -> Bool[Tensor, "b n"]:
        return torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device) if self.keep is None else self.keep


@dataclass(frozen=True)
class Targets:
    """Where to predict, and which entries are asked for (None: all)."""

    x: Float[Tensor, "b nt dx"]
    keep: Bool[Tensor, "b nt dy"] | None

    @property
    def real(self) -> Bool[Tensor, "b nt"] | None:
        return None if self.keep is None else self.keep.any(-1)

    def relative_to(self, place: Float[Tensor, "b 1 dx"]) -> "Targets":
        return replace(self, x=_moved(self.x, place, self.real))

    def given(self, y: Float[Tensor, "b nt dy"]) -> Points:
        """The same points with their values known."""
        seen = torch.ones_like(y, dtype=torch.bool) if self.keep is None else self.keep
        return Points(self.x, torch.where(seen, y, 0), seen, self.real)

    def unknown(self, dim_y: int) -> Points:
        """The same points with nothing known about them."""
        y = self.x.new_zeros(*self.x.shape[:2], dim_y)
        return Points(self.x, y, torch.zeros_like(y, dtype=torch.bool), self.real)


def _moved(x: Tensor, place: Tensor, keep: Tensor | None) -> Tensor:
    """x − place; what is padding stays at 0, near the others, or it would cost them digits where x is large."""
    return x - place if keep is None else torch.where(keep[..., None], x - place, 0)


def per_entry(mask: Tensor | None, y: Float[Tensor, "b n dy"]) -> Bool[Tensor, "b n dy"]:
    """A mask over points, over entries or of nothing, as one over entries."""
    if mask is None:
        return torch.ones_like(y, dtype=torch.bool)
    return mask if mask.ndim == 3 else mask[..., None].expand(y.shape)


def check_values(yt, xt: Tensor, mask_t: Tensor | None, dim_y: int) -> None:
    """An error unless yt fits the targets and is finite wherever it is asked for."""
    if not isinstance(yt, Tensor) or not yt.is_floating_point():
        kind = yt.dtype if isinstance(yt, Tensor) else type(yt).__name__
        raise InputTypeError(f"yt must be a floating-point tensor, got {kind}; use yt.float()")
    if tuple(yt.shape) != (*xt.shape[:2], dim_y):
        raise InputError(
            f"yt has shape {tuple(yt.shape)}, expected {(*xt.shape[:2], dim_y)} to fit xt and dim_y={dim_y}"
        )
    if yt.dtype != xt.dtype:
        raise InputTypeError(f"yt is {yt.dtype} but xt is {xt.dtype}; convert one of them")
    b, nt = xt.shape[:2]
    _finite("yt", yt, _mask("mask_t", mask_t, (b, nt, dim_y)), "missing values are masked with mask_t")


def read(xc, yc, xt, mask_c, mask_t, dim_x: int | None, dim_y: int, dtype: torch.dtype) -> tuple[Points, Targets]:
    """Context and targets, or an error that names the argument, what came, what was expected, and the remedy."""
    for name, tensor in (("xc", xc), ("yc", yc), ("xt", xt)):
        if not isinstance(tensor, Tensor):
            raise InputTypeError(
                f"{name} must be a torch tensor, got {type(tensor).__name__}; use torch.as_tensor(...)"
            )
        if not tensor.is_floating_point():
            raise InputTypeError(f"{name} must be floating point, got {tensor.dtype}; use {name}.float()")
        if tensor.dtype != dtype:
            raise InputTypeError(f"{name} is {tensor.dtype} but the model is {dtype}; convert one of them")
        if tensor.ndim != 3:
            letters = {"xc": "b nc dim_x", "yc": "b nc dim_y", "xt": "b nt dim_x"}[name]
            shape = tuple(tensor.shape)
            raise InputError(
                f"{name} must be [{letters}], got {shape}; one task has b = 1, one column a last axis of 1"
            )
    for name, tensor, width, what in (
        ("xc", xc, dim_x, "dim_x"),
        ("xt", xt, dim_x, "dim_x"),
        ("yc", yc, dim_y, "dim_y"),
    ):
        if width is not None and tensor.shape[-1] != width:
            raise InputError(f"{name} has {tensor.shape[-1]} columns, but the model was made with {what}={width}")
    if xc.shape[-1] != xt.shape[-1]:
        raise InputError(f"xc has {xc.shape[-1]} columns and xt {xt.shape[-1]}; places of both must have as many")
    if xc.shape[:2] != yc.shape[:2]:
        raise InputError(f"xc {tuple(xc.shape)} and yc {tuple(yc.shape)} must agree in batch and number of points")
    if len(xc) != len(xt):
        raise InputError(f"xc has a batch of {len(xc)} tasks, xt of {len(xt)}; they must be the same tasks")

    seen = _mask("mask_c", mask_c, (*xc.shape[:2], dim_y))
    keep = None if seen is None else seen.any(-1)
    asked = _mask("mask_t", mask_t, (*xt.shape[:2], dim_y))
    _finite("xc", xc, keep, "drop those points or mask them with mask_c")
    _finite("xt", xt, None if asked is None else asked.any(-1), "drop those points or mask them with mask_t")
    _finite("yc", yc, seen, "missing values are masked with mask_c [b nc dim_y], False where missing")
    if keep is not None:
        xc = torch.where(keep[..., None], xc, 0)
    if asked is not None:
        xt = torch.where(asked.any(-1)[..., None], xt, 0)
    if seen is None:
        seen = torch.ones_like(yc, dtype=torch.bool)
    return Points(xc, torch.where(seen, yc, 0), seen, keep), Targets(xt, asked)


def origin(context: Points, targets: Targets | None = None) -> Float[Tensor, "b 1 dx"]:
    """The smallest place of each task's context (of its targets, where it has no context; 0 where it has neither).

    Relative to it equal shifts of all places cancel to the last bit that x itself holds.
    """
    least = context.x.new_full((len(context.x), 1, context.x.shape[-1]), torch.inf)
    for x, real in ((context.x, context.keep), *([] if targets is None else [(targets.x, targets.real)])):
        if x.shape[1]:
            low = (x if real is None else torch.where(real[..., None], x, torch.inf)).amin(1, keepdim=True)
            least = torch.where(least.isinf(), low, least)
    return torch.where(least.isinf(), 0, least)


def _mask(name: str, mask, shape: tuple[int, int, int]) -> Bool[Tensor, "b n dy"] | None:
    """A mask over points or entries as one over entries; None where it leaves everything in."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputTypeError(
            f"{name} must be a boolean tensor, True = this point (or entry) is there, got {kind}; "
            f"use torch.as_tensor({name}).bool()"
        )
    if tuple(mask.shape) not in (shape[:2], shape):
        raise InputError(f"{name} has shape {tuple(mask.shape)}, expected {shape[:2]} (points) or {shape} (entries)")
    if not torch.compiler.is_exporting() and mask.all():
        return None
    return mask if mask.ndim == 3 else mask[..., None].expand(shape)


def _finite(name: str, values: Tensor, mask: Tensor | None, remedy: str) -> None:
    if torch.compiler.is_compiling():
        return
    bad = ~values.isfinite()
    if mask is not None:
        bad &= mask if mask.ndim == 3 else mask[..., None]
    if bad.any():
        task, point, column = bad.nonzero()[0].tolist()
        value = values[task, point, column].item()
        raise InputError(f"{name}[{task}, {point}, {column}] is {value} ({int(bad.sum())} such in all); {remedy}")
