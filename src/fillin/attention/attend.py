"""`attend`, the one operation of the library: an average of values weighted by a learned kernel."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.attention.dispatch import check_backend, solve
from fillin.attention.problem import TOLERANCE, AttentionProblem
from fillin.attention.scores import DotProduct, Score
from fillin.attention.span import Span
from fillin.errors import InputError

_records: ContextVar[list["AttentionRecord"] | None] = ContextVar("records", default=None)


class AttentionRecord(NamedTuple):
    """Weights of one call of `attend`, with the locations of its queries and keys (None where it had none)."""

    weights: Float[Tensor, "b h n m"]
    xq: Float[Tensor, "b n dx"] | None
    xk: Float[Tensor, "b m dx"] | None


@contextmanager
def record_weights() -> Iterator[list[AttentionRecord]]:
    """Record the weights per head of every call of `attend` inside the block, in the order of the calls.

    Outside such a block no weights are stored.

    >>> import torch
    >>> with record_weights() as records:
    ...     _ = attend(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4))
    >>> records[0].weights.shape
    torch.Size([1, 2, 3, 5])
    """
    records: list[AttentionRecord] = []
    token = _records.set(records)
    try:
        yield records
    finally:
        _records.reset(token)


def expand_key_mask(mask: Bool[Tensor, "b m"] | None) -> Bool[Tensor, "b 1 1 m"] | None:
    """Expand a mask over keys to the axes of `attend`."""
    return None if mask is None else mask[:, None, None, :]


def combine(
    out: Float[Tensor, "b h n e"],
    lse: Float[Tensor, "b h n"],
    other: Float[Tensor, "b h n e"],
    other_lse: Float[Tensor, "b h n"],
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n"]]:
    """Combine attention to two disjoint sets of keys to attention to their union.

    c = logaddexp(c₁, c₂);  out = e^(c₁ − c)·out₁ + e^(c₂ − c)·out₂, where c is the lse that `attend` returns.

    >>> q, k, v = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 3)
    >>> parts = [attend(q, k[:, :, part], v[:, :, part], return_lse=True) for part in (slice(2), slice(2, 5))]
    >>> torch.allclose(combine(*parts[0], *parts[1])[0], attend(q, k, v), atol=1e-6)
    True
    """
    total = torch.logaddexp(lse, other_lse)
    safe = total.masked_fill(total == -torch.inf, 0)  # no key in either: e^(−∞ − 0) = 0, not NaN
    first, second = (lse - safe).exp()[..., None], (other_lse - safe).exp()[..., None]
    return first * out + second * other, total


def fixed_block_mask(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"], size: float) -> Bool[Tensor, "b 1 n m"]:
    """Restrict attention to fixed blocks of `size`, a baseline: True where ⌊xq/size⌋ = ⌊xk/size⌋.

    >>> x = torch.tensor([[[0.1], [0.9], [1.1]]])
    >>> fixed_block_mask(x, x, 1.0)[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    if not size > 0:
        raise InputError(f"fixed_block_mask: size must be positive, got {size}")
    return ((xq / size).floor()[:, None, :, None] == (xk / size).floor()[:, None, None]).all(-1)


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
    """Average values with weights that depend on content and displacement.

    Parameters
    ----------
    q : Tensor [b h n d] or None
        Queries of b tasks and h heads. None is allowed for a score that reads only locations.
    k : Tensor [b h m d] or None
        Keys.
    v : Tensor [b h m e]
        Values. All tensors have the same floating-point dtype.
    xq : Tensor [b n dx], optional
        Locations of the queries. A score of the displacement and a span need them.
    xk : Tensor [b m dx], optional
        Locations of the keys.
    score : Score, optional
        Logit of a pair, from q_i, k_j and Δ_ij = xq_i − xk_j. The default is `DotProduct()`, q·k/√d.
    span : Span, optional
        Learned window over Δ. Keys outside are dropped.
    mask : bool Tensor, optional
        Mask that broadcasts to [b h n m], True where a query may attend to a key.
    causal : bool, default False
        Restrict query i to keys j ≤ i.
    normalise : {"softmax", "none"}, default "softmax"
        Divide the weights by their sum over keys, or use them as they are (SetConv).
    backend : {"auto", "reference", "fused", "streamed", "native", "flex"}, default "auto"
        Implementation. "auto" chooses the fastest that fits (`fillin.attention.dispatch`).
    chunk : int, optional
        Number of queries that "streamed" computes at a time.
    tolerance : float, default 5e-5
        Largest error of a logit that is interpolated from a table of F(Δ). 0 evaluates F on every pair.
    return_weights : bool, default False
        Return the weights as well.
    return_lse : bool, default False
        Return lse as well.

    Returns
    -------
    Tensor [b h n e], or tuple of Tensors
        The output; then the weights [b h n m] and lse = ln Σ_j exp(logit_ij) [b h n], where they are requested. A query
        without keys has output 0 and gradient 0.

    Raises
    ------
    InputError
        If shapes do not fit, an argument that the score or span needs is missing, or the named back end cannot solve
        the problem or does not return what is requested.
    InputTypeError
        If a tensor is not floating point, the dtypes differ, or the mask is not boolean.

    See Also
    --------
    fillin.attention.record_weights : Record the weights of all calls inside a model.

    Notes
    -----
    With w_ij = exp(logit_ij) over the allowed pairs, the output is

        out_i = Σ_j w_ij v_j / Σ_j w_ij    (normalise="softmax")
        out_i = Σ_j w_ij v_j               (normalise="none")

    A mean (CNP), attention (ANP, TNP), a kernel smoother and SetConv differ only in the score.

    References
    ----------
    Vaswani et al. 2017, "Attention is all you need". Kim et al. 2019, "Attentive neural processes". Ashman et al. 2024,
    "Translation equivariant transformer neural processes". Alfons 2022, master's thesis, VU Amsterdam (learned spans).

    Examples
    --------
    >>> import torch
    >>> from fillin.attention import Gaussian, attend
    >>> v = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1)
    >>> attend(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 2, 4), v).item()
    2.0
    >>> x, xk = torch.tensor([[[0.0]]]), torch.tensor([[[0.0], [9.0]]])
    >>> attend(None, None, v, xq=x, xk=xk, score=Gaussian(init=1.0)).item()  # a kernel smoother
    1.0
    """
    score = DotProduct() if score is None else score
    problem = AttentionProblem(q, k, v, xq, xk, score, span, mask, causal, normalise, tolerance, chunk)
    problem.validate()
    if chunk is not None and (chunk < 1 or backend not in ("auto", "streamed")):
        raise InputError(
            f"attend: chunk must be a positive number of queries, with backend 'streamed' or 'auto', got chunk={chunk} "
            f"with backend={backend!r}"
        )
    if mask is not None and mask.ndim == 0:
        problem = replace(problem, mask=mask[None, None])
    want = ("weights",) * return_weights + ("lse",) * return_lse
    if backend != "auto":
        check_backend(backend, problem, want)

    records = None if torch.compiler.is_exporting() else _records.get()
    result = solve(problem, want if records is None else (*want, "weights"), backend)
    if records is not None and result.weights is not None:
        records.append(AttentionRecord(result.weights.detach(), xq, xk))
    extras = [result.weights] * return_weights + [result.lse] * return_lse
    return (result.out, *extras) if extras else result.out
