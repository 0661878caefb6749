"""Masks over pairs of queries and keys: True where a query may attend to a key."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.errors import InputError, InputTypeError


def expand_key_mask(mask: Bool[Tensor, "b m"] | None) -> Bool[Tensor, "b 1 1 m"] | None:
    """Expand a mask over keys to the axes of `attend`."""
    return None if mask is None else mask[:, None, None, :]


def is_key_mask(mask: Bool[Tensor, "..."]) -> bool:
    """Return whether the mask is the same for all heads and queries."""
    return mask.ndim <= 1 or (mask.shape[-2] == 1 and (mask.ndim < 3 or mask.shape[-3] == 1))


def fixed_block_mask(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"], size: float) -> Bool[Tensor, "b 1 n m"]:
    """Restrict attention to fixed blocks of `size`, a baseline: True where ⌊xq/size⌋ = ⌊xk/size⌋.

    >>> x = torch.tensor([[[0.1], [0.9], [1.1]]])
    >>> fixed_block_mask(x, x, 1.0)[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    if not size > 0:
        raise InputError(f"fixed_block_mask: size must be positive, got {size}")
    return ((xq / size).floor()[:, None, :, None] == (xk / size).floor()[:, None, None]).all(-1)


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise an error unless the mask is boolean and broadcasts to `shape` = [b h n m]."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputTypeError(f"attend: mask must be boolean, True = may be attended, got {kind}; use mask.bool()")
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == torch.Size(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"attend: mask {tuple(mask.shape)} does not broadcast to [b h n m] = {shape}; "
            "a mask over keys [b m] is passed as mask[:, None, None, :]"
        )
