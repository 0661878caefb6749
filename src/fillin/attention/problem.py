"""The interface of a back end: one attention problem, validated, and its result."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.attention.scores import Folded, Score
from fillin.attention.span import Span
from fillin.errors import InputError, InputTypeError, choose

TOLERANCE = 5e-5  # largest error of a logit that is interpolated; the output, an average, has a smaller one


@dataclass(frozen=True)
class AttentionResult:
    """Output of a back end, with the extras that were requested."""

    out: Float[Tensor, "b h n e"]
    lse: Float[Tensor, "b h n"] | None = None  # ln Σ_j exp(logit_ij)
    weights: Float[Tensor, "b h n m"] | None = None


@dataclass(frozen=True)
class AttentionProblem:
    """Queries, keys and values with their locations, and the weighting of a pair. See `attend` for the arguments."""

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
    chunk: int | None = None
    offset: int = 0  # causal position of the first query, where queries are split into chunks
    folded: list[Folded | None] | None = None  # result of `fold_terms`, where dispatch has already computed it

    @property
    def n(self) -> int:
        return (self.q if self.q is not None else self.xq).shape[-2]  # type: ignore[union-attr]

    @property
    def m(self) -> int:
        return self.v.shape[-2]

    @property
    def n_logits(self) -> int:
        """Number of logits: b · h · n · m."""
        return self.v.shape[0] * self.v.shape[1] * self.n * self.m

    @property
    def n_stored(self) -> int:
        """Numbers in memory while all pairs are scored: logits, or hidden units of the score where those are more."""
        traits = self.score.traits
        scored_pairs = self.n * self.m * (1 if self.shared_locations and not traits.mixed else self.v.shape[0])
        return max(self.n_logits, scored_pairs * traits.channels)

    @property
    def shared_locations(self) -> bool:
        """Whether all tasks of the batch share their locations, as the pixels of images do. True for a batch of one and
        for an `expand`. False while compiling or exporting: reading the batch size would fix it."""
        if torch.compiler.is_compiling() or self.xq is None or self.xk is None:
            return False
        return all(len(x) == 1 or x.stride(0) == 0 for x in (self.xq, self.xk))

    @property
    def learned_tensors(self) -> list[Tensor]:
        """Tensors of the score and the span that receive gradients."""
        return [*self.score.learned_tensors(), *(() if self.span is None else self.span.parameters())]

    def displacements(self) -> Float[Tensor, "#b dx n m"] | None:
        """Δ_ij = xq_i − xk_j, one matrix per dimension; computed once for all tasks where locations are shared."""
        if self.xq is None or self.xk is None:
            return None
        xq, xk = (self.xq[:1], self.xk[:1]) if self.shared_locations else (self.xq, self.xk)
        return xq.mT[..., :, None] - xk.mT[..., None, :]

    @property
    def has_pair_mask(self) -> bool:
        """Whether there is a mask that differs between heads or queries, not only between keys."""
        return self.mask is not None and any(size != 1 for size in self.mask.shape[-3:-1])

    def apply_window(
        self, logits: Float[Tensor, "..."], delta: Float[Tensor, "#b dx n m"] | None
    ) -> tuple[Float[Tensor, "..."], Bool[Tensor, "..."] | None]:
        """Modulate logits by the span; return them and the pairs that mask, order and window allow (None: all)."""
        allowed = self.mask
        if self.causal:
            queries = torch.arange(self.offset, self.offset + self.n, device=self.v.device)
            order = queries[:, None] >= torch.arange(self.m, device=self.v.device)
            allowed = order if allowed is None else order & allowed
        if self.span is not None:
            logits, inside = self.span(logits, delta)
            allowed = allowed if inside is None else inside if allowed is None else inside & allowed
        return logits, allowed

    def slice_queries(self, start: int, stop: int) -> "AttentionProblem":
        """Return the problem restricted to queries start … stop − 1."""
        mask = self.mask
        if mask is not None and mask.ndim >= 2 and mask.shape[-2] != 1:
            mask = mask[..., start:stop, :]
        q = None if self.q is None else self.q[:, :, start:stop]
        xq = None if self.xq is None else self.xq[:, start:stop]
        return replace(self, q=q, xq=xq, mask=mask, offset=self.offset + start)

    def validate(self) -> None:
        """Raise an error that names the argument which is wrong and the remedy."""
        if not isinstance(self.score, Score):
            raise InputTypeError(f"attend: score must be a Score such as DotProduct(), got {type(self.score).__name__}")
        lacks_content, lacks_locations = self.q is None or self.k is None, self.xq is None or self.xk is None
        name, traits, span = type(self.score).__name__, self.score.traits, self.span
        if traits.content and lacks_content:
            raise InputError(f"attend: the score {name} compares q and k, but one is None; pass both")
        if (traits.displacement or span is not None) and lacks_locations:
            raise InputError("attend: the score or span needs locations, but xq or xk is None; pass both")
        if lacks_content and lacks_locations:
            raise InputError("attend: there are no queries or no keys; pass q and k, or xq and xk, or all of them")
        b, h, m, _ = _check_tensor("v", self.v, "b h m e")
        for name, tensor, expected in (
            ("q", self.q, (b, h, None, None)),
            ("k", self.k, (b, h, m, self.q.shape[-1] if self.q is not None else None)),
            ("xq", self.xq, (b, self.q.shape[2] if self.q is not None else None, None)),
            ("xk", self.xk, (b, m, self.xq.shape[-1] if self.xq is not None else None)),
        ):
            if tensor is None:
                continue
            shape = _check_tensor(name, tensor, "b h n d" if len(expected) == 4 else "b n dx")
            if any(size is not None and size != s for size, s in zip(expected, shape, strict=True)):
                sizes, v = ", ".join("any" if size is None else str(size) for size in expected), tuple(self.v.shape)
                raise InputError(f"attend: {name} has shape {tuple(shape)}, expected ({sizes}) to fit v {v}")
            if tensor.dtype != self.v.dtype:
                raise InputTypeError(f"attend: {name} is {tensor.dtype} but v is {self.v.dtype}; convert one of them")
        if self.mask is not None:
            _check_mask(self.mask, (b, h, self.n, m))
        if self.causal and self.n != m:
            raise InputError(f"attend: causal order needs as many queries as keys, got {self.n} and {m}; pass a mask")
        if self.xq is not None:
            dim_x = self.xq.shape[-1]
            if span is not None and span.dim_x not in (None, dim_x):
                raise InputError(f"attend: the span is for dim_x={span.dim_x}, but locations have {dim_x} dimensions")
            for term in self.score.terms:
                term.validate(h, dim_x)
        if span is not None and span.heads not in (1, h):
            raise InputError(f"attend: the span has heads={span.heads}, but there are {h}; use 1 or as many")
        choose("normalise", self.normalise, ["softmax", "none"])


def _check_tensor(name: str, tensor: Tensor, axes: str) -> torch.Size:
    """Return the shape of a floating-point tensor with the named axes, or raise an error."""
    if not isinstance(tensor, Tensor):
        raise InputTypeError(f"attend: {name} must be a tensor [{axes}], got {type(tensor).__name__}")
    if tensor.ndim != len(axes.split()):
        raise InputError(f"attend: {name} must be [{axes}], got shape {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise InputTypeError(f"attend: {name} must be floating point, got {tensor.dtype}; use {name}.float()")
    return tensor.shape


def _check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise an error unless the mask is boolean and broadcasts to `shape` = [b h n m]."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputTypeError(f"attend: mask must be boolean, True = may be attended, got {kind}; use mask.bool()")
    # torch.broadcast_shapes would import torch's symbolic shapes, and with them sympy: half a second
    fits = mask.ndim <= len(shape) and all(
        size in (1, expected) for size, expected in zip(mask.shape[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise InputError(
            f"attend: mask {tuple(mask.shape)} does not broadcast to [b h n m] = {shape}; "
            "a mask over keys [b m] is passed as mask[:, None, None, :]"
        )


class Backend(ABC):
    """One way to compute attention. Tests compare every back end with the reference in values, and all but `flex` in
    gradients. `provides` names the results beyond the output that this back end can return: "lse", "weights"."""

    provides: frozenset[str] = frozenset({"lse"})

    def unfit(self, problem: AttentionProblem) -> str | None:
        """Return the reason why this back end cannot solve the problem, or None where it can."""
        return None

    @abstractmethod
    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        """Solve the problem. `want` names the results beyond the output; it is a subset of `provides`."""
