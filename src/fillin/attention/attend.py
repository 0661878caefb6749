"""The seam: one weighted average, whatever the weights. Nothing else in fillin takes a softmax over points."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.attention.backends import BACKENDS, flex, fused, native, reference, streamed
from fillin.attention.problem import TOLERANCE, Problem, Result
from fillin.attention.scores import DotProduct, Score
from fillin.attention.span import Span
from fillin.attention.tabulate import steps, tabulated
from fillin.errors import InputError, choose

# Logits (or four times as many hidden units of pairs) up to which a call stores its pairs for the backward pass: the
# fastest, as `fillin bench scores` shows. Above it they are made again, a chunk at a time.
_STORE = 1 << 21

# Logits from which on the native kernel is taken, as measured by `fillin bench span crossover` (docs/results/span.md):
# at once where a window spares it most pairs; where it must go through all of them, once a table of F(Δ) is small
# beside them: soon in one dimension, late in more, and there never for a score that is cheap on every pair.
_NATIVE_CUT, _NATIVE_ALL, _NATIVE_ALL_WIDE = 1 << 14, 1 << 20, 1 << 24

_watcher: ContextVar[list["Seen"] | None] = ContextVar("watcher", default=None)


class Seen(NamedTuple):
    """The weights of one call of attend(), and the places they join (None where the call had no places)."""

    weights: Float[Tensor, "b h n m"]
    xq: Float[Tensor, "b n dx"] | None
    xk: Float[Tensor, "b m dx"] | None


@contextmanager
def watch() -> Iterator[list[Seen]]:
    """Collect the weights per head of every attention call inside the block, first layer first.

    Outside such a block no weights are ever stored.

    >>> import torch
    >>> with watch() as seen:
    ...     _ = attend(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4))
    >>> seen[0].weights.shape
    torch.Size([1, 2, 3, 5])
    """
    seen: list[Seen] = []
    token = _watcher.set(seen)
    try:
        yield seen
    finally:
        _watcher.reset(token)


def attend(
    q: Float[Tensor, "b h n d"] | None,
    k: Float[Tensor, "b h m d"] | None,
    v: Float[Tensor, "b h m e"],
    *,
    xq: Float[Tensor, "b n dx"] | None = None,
    xk: Float[Tensor, "b m dx"] | None = None,
    score: Score | None = None,
    span: Span | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    normalise: Literal["softmax", "none"] = "softmax",
    backend: str = "auto",
    chunk: int | None = None,
    tolerance: float = TOLERANCE,
    return_weights: bool = False,
    return_lse: bool = False,
) -> Any:
    """out_i = Σ_j w_ij v_j with w_ij = exp(logit_ij), divided by Σ_j w_ij where normalise="softmax".

    - `score` gives the logit of a pair from (q_i, k_j, Δ_ij = xq_i − xk_j); the default is q·k/√d. q and k may be
      None for a score that reads only places.
    - `span` is a learned window over Δ.
    - `mask` broadcasts to [b h n m], True = may be attended; `causal` lets query i see keys j ≤ i.
    - A query that may attend to nothing returns zeros and zero gradient.
    - `backend` is "reference", "fused", "streamed", "native", "flex" or "auto"; `chunk` sets the queries at a time of
      "streamed".
    - `tolerance` is the largest error of a logit that may be read from a table of F(Δ); 0 evaluates F on every pair.

    Returns out [b h n e]; with `return_weights` also w [b h n m], with `return_lse` also ln Σ_j exp(logit) [b h n].

    >>> import torch
    >>> v = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1)
    >>> attend(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 2, 4), v).item()
    2.0
    """
    problem = Problem(
        q, k, v, xq, xk, DotProduct() if score is None else score, span, mask, causal, normalise, tolerance
    )
    problem.check()
    if chunk is not None and (chunk < 1 or backend not in ("auto", "streamed")):
        raise InputError(f"attend: chunk={chunk} with backend={backend!r}; it is a count of queries, for 'streamed'")
    if mask is not None and mask.ndim == 0:
        problem = replace(problem, mask=mask[None, None])
    if backend != "auto":
        choose("backend", backend, BACKENDS)
        reason = BACKENDS[backend].unfit(problem)
        if backend == "fused" and (return_weights or return_lse):
            reason = "fused attention returns neither weights nor sums"
        if reason:
            raise InputError(f"attend: backend {backend!r} cannot do this: {reason}; use backend='auto'")
        if backend in ("streamed", "native", "flex") and return_weights:
            raise InputError(
                f"attend: backend {backend!r} never holds all weights; use 'reference' or 'auto' to see them"
            )

    watcher = None if torch.compiler.is_exporting() else _watcher.get()
    result = _solve(problem, backend, chunk, return_weights or watcher is not None, return_lse)
    if watcher is not None and result.weights is not None:
        watcher.append(Seen(result.weights.detach(), xq, xk))
    extras = [result.weights] * return_weights + [result.lse] * return_lse
    return (result.out, *extras) if extras else result.out


def _nothing(p: Problem) -> Result:
    """No queries, or nothing to attend to: zeros, a sum of nothing, no weights."""
    b, h, m, e = p.v.shape
    return Result(p.v.new_zeros(b, h, p.n, e), p.v.new_full((b, h, p.n), -torch.inf), p.v.new_zeros(b, h, p.n, m))


def _solve(p: Problem, backend: str, chunk: int | None, weights: bool, lse: bool) -> Result:
    """Weights are kept only when asked for. What folds goes to `fused`; many pairs that do not, to `native` (on a GPU
    to `flex`), and what those cannot take to `streamed`."""
    if p.n == 0 or p.m == 0:
        return _nothing(p)
    if weights or backend == "reference":
        return reference.run(p, lse)
    if backend == "streamed" or chunk is not None:
        return streamed.run(p, chunk, lse)
    if backend == "fused":
        return fused.run(p)
    if backend in ("native", "flex"):
        return BACKENDS[backend].run(p, lse)
    if not lse and p.span is None and fused.unfit(p) is None:
        folded = fused.folds(p)
        if None not in folded:
            return fused.run(p, folded)
    cuts = p.span is not None and p.span.threshold > 0
    if p.pairs >= _native_from(p, cuts) and native.unfit(p) is None and not native.learns_places(p):
        return native.run(p, lse)
    if cuts and p.v.is_cuda and flex.unfit(p) is None:
        return flex.run(p, lse)
    p = tabulated(p)
    stored = p.pairs <= _STORE and p.held <= 4 * _STORE
    return reference.run(p, lse) if stored else streamed.run(p, None, lse)


def _native_from(p: Problem, cuts: bool) -> float:
    """The number of logits from which on the kernel is the fastest."""
    if cuts:
        return _NATIVE_CUT
    terms: list[Any] = [term for term in p.score.terms if term.places]
    if p.xq is not None and p.xk is not None and any(getattr(term, "few", False) for term in terms):
        return _NATIVE_ALL if p.shared and steps(p.xq, p.xk) is not None else math.inf  # every Δ a node, or none
    if p.xq is None or p.xq.shape[-1] == 1 or all(term.radial for term in terms):
        return _NATIVE_ALL
    return _NATIVE_ALL_WIDE if all(getattr(term, "tabulates", True) for term in terms) else math.inf
