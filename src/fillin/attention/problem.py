"""One attention problem, checked: what every back end is given, and what it gives back."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.attention.scores import Score
from fillin.attention.span import Span
from fillin.errors import InputError, InputTypeError, choose

# The largest error of a logit that is read from a table; attention's output, an average, errs by less.
TOLERANCE = 5e-5


@dataclass(frozen=True)
class Result:
    out: Float[Tensor, "b h n e"]
    lse: Float[Tensor, "b h n"] | None = None  # ln Σ_j exp(logit_ij)
    weights: Float[Tensor, "b h n m"] | None = None


@dataclass(frozen=True)
class Problem:
    """Queries, keys and values, where they are, and how a pair is weighed (see `attend`)."""

    q: Float[Tensor, "b h n d"] | None
    k: Float[Tensor, "b h m d"] | None
    v: Float[Tensor, "b h m e"]
    xq: Float[Tensor, "b n dx"] | None
    xk: Float[Tensor, "b m dx"] | None
    score: Score
    span: Span | None = None
    mask: Bool[Tensor, "..."] | None = None
    causal: bool = False
    normalise: str = "softmax"
    tolerance: float = TOLERANCE
    offset: int = 0  # the causal order of the first query, once queries are split into chunks

    @property
    def n(self) -> int:
        return (self.q if self.q is not None else self.xq).shape[-2]  # type: ignore[union-attr]

    @property
    def m(self) -> int:
        return self.v.shape[-2]

    @property
    def pairs(self) -> int:
        """How many logits there are: b · h · n · m."""
        return self.v.shape[0] * self.v.shape[1] * self.n * self.m

    @property
    def held(self) -> int:
        """How many numbers the pairs need while they are scored: logits, or hidden units where those are more."""
        placed = self.n * self.m * (1 if self.shared and not self.score.mixes else self.v.shape[0])
        return max(self.pairs, placed * self.score.channels)

    @property
    def shared(self) -> bool:
        """Whether the places of one task are those of all: an `expand`, as of the pixels of images, or there is one
        task. Whoever compiles or exports for any size would be bound to one by asking."""
        if torch.compiler.is_compiling() or self.xq is None or self.xk is None:
            return False
        return all(len(x) == 1 or x.stride(0) == 0 for x in (self.xq, self.xk))

    def delta(self) -> Float[Tensor, "#b dx n m"] | None:
        """Δ_ij = xq_i − xk_j, one matrix per dimension as the logits have one per head; where places are shared, once
        for all tasks."""
        if self.xq is None or self.xk is None:
            return None
        xq, xk = (self.xq[:1], self.xk[:1]) if self.shared else (self.xq, self.xk)
        return xq.mT[..., :, None] - xk.mT[..., None, :]

    def keep(self) -> Bool[Tensor, "..."] | None:
        """Which pairs may be attended, by mask and causal order; None where all may. Query i sees keys ≤ i."""
        if not self.causal:
            return self.mask
        rows = torch.arange(self.offset, self.offset + self.n, device=self.v.device)
        order = rows[:, None] >= torch.arange(self.m, device=self.v.device)
        return order if self.mask is None else order & self.mask

    def rows(self, start: int, stop: int) -> "Problem":
        """The same problem for queries start … stop − 1."""
        mask = self.mask
        if mask is not None and mask.ndim >= 2 and mask.shape[-2] != 1:
            mask = mask[..., start:stop, :]
        return replace(
            self,
            q=None if self.q is None else self.q[:, :, start:stop],
            xq=None if self.xq is None else self.xq[:, start:stop],
            mask=mask,
            offset=self.offset + start,
        )

    def check(self) -> "Problem":
        """The problem itself, or an error that says which argument is wrong and how to mend it."""
        if not isinstance(self.score, Score):
            raise InputTypeError(f"attend: score must be a Score such as DotProduct(), got {type(self.score).__name__}")
        if self.score.content and (self.q is None or self.k is None):
            raise InputError(
                f"attend: the score {type(self.score).__name__} compares q and k, but one is None; pass both"
            )
        if (self.score.places or self.span is not None) and (self.xq is None or self.xk is None):
            raise InputError(
                "attend: the score or span needs places, but xq or xk is None; pass both, [b n dx] and [b m dx]"
            )
        if (self.q is None or self.k is None) and (self.xq is None or self.xk is None):
            raise InputError("attend: there are no queries or no keys; pass q and k, or xq and xk, or all of them")
        b, h, m, _ = _shape("v", self.v, "b h m e")
        for name, tensor, wanted in (
            ("q", self.q, (b, h, None, None)),
            ("k", self.k, (b, h, m, self.q.shape[-1] if self.q is not None else None)),
            ("xq", self.xq, (b, self.q.shape[2] if self.q is not None else None, None)),
            ("xk", self.xk, (b, m, self.xq.shape[-1] if self.xq is not None else None)),
        ):
            if tensor is None:
                continue
            shape = _shape(name, tensor, "b h n d" if len(wanted) == 4 else "b n dx")
            if any(w is not None and w != s for w, s in zip(wanted, shape, strict=True)):
                want = ", ".join("any" if w is None else str(w) for w in wanted)
                raise InputError(
                    f"attend: {name} has shape {tuple(shape)}, expected ({want}) to fit v {tuple(self.v.shape)}"
                )
            if tensor.dtype != self.v.dtype:
                raise InputTypeError(f"attend: {name} is {tensor.dtype} but v is {self.v.dtype}; convert one of them")
        if self.mask is not None:
            _check_mask(self.mask, (b, h, self.n, m))
        if self.causal and self.n != m:
            raise InputError(
                f"attend: causal order needs as many queries as keys, got {self.n} and {m}; pass a mask instead"
            )
        if self.span is not None and self.xq is not None and self.span.dim_x not in (None, self.xq.shape[-1]):
            raise InputError(
                f"attend: the span is for dim_x={self.span.dim_x}, but places have {self.xq.shape[-1]} dimensions"
            )
        for term in self.score.terms:
            if self.xq is not None:
                term.check(h, self.xq.shape[-1])
        if self.span is not None and self.span.heads not in (1, h):
            raise InputError(f"attend: the span has heads={self.span.heads}, but there are {h}; use 1 or as many")
        choose("normalise", self.normalise, ["softmax", "none"])
        return self


def _shape(name: str, tensor: Tensor, letters: str) -> torch.Size:
    if not isinstance(tensor, Tensor):
        raise InputTypeError(f"attend: {name} must be a tensor [{letters}], got {type(tensor).__name__}")
    if tensor.ndim != len(letters.split()):
        raise InputError(f"attend: {name} must be [{letters}], got shape {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise InputTypeError(f"attend: {name} must be floating point, got {tensor.dtype}; use {name}.float()")
    return tensor.shape


def _check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
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
