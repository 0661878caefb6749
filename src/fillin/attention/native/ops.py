"""The kernel as torch operations: with shapes for the compiler, and a backward pass of its own."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from fillin.attention.native.library import Gradients, Problem, Rows, Table, call
from fillin.errors import InputTypeError

WINDOWS, CUTS, SHAPES = ("open", "weights", "scores"), ("hard", "continuous"), ("ball", "box")


@torch.library.custom_op("fillin::order", mutates_args=())
def order(x: Tensor) -> Tensor:
    """[b n dx] → int32 [b n]: the points of each set, neighbours next to one another."""
    x = x.detach().contiguous()
    found = torch.empty(x.shape[:2], dtype=torch.int32)
    call("order", x.data_ptr(), *x.shape, torch.get_num_threads(), found.data_ptr())
    return found


@order.register_fake
def _(x):
    return x.new_empty(x.shape[:2], dtype=torch.int32)


_orders: Any = WeakIdKeyDictionary()


def order_of(x: Float[Tensor, "b n dx"]) -> Int32[Tensor, "b n"]:
    """The order of a set of places, found once: every layer, head and step that shows the same tensor shares it."""
    if torch.compiler.is_compiling() or x.is_inference():  # no versions to tell whether it has changed
        return order(x)
    known = _orders.get(x)
    if known is None or known[0] != x._version or known[1].shape != x.shape[:2]:
        known = _orders[x] = (x._version, order(x))
    return known[1]


def _rows(t: Tensor | None) -> Rows:
    if t is None or t.numel() == 0:
        return Rows()
    return Rows(t.data_ptr(), *t.stride()[:3])


def _dense(t: Any) -> Any:
    """A tensor, or None: rows must lie in one piece; what is around them may have any stride."""
    return t if t is None or t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def _table(values: Tensor | None, axes: Tensor, radial: bool, wide: bool = False) -> Table:
    if values is None:
        return Table()
    size = values.shape[1:-1] if wide else values.shape[1:]
    filled = Table(values.data_ptr(), len(size), int(radial))
    for i, (nodes, low, inverse) in enumerate(zip(size, *axes.tolist(), strict=True)):
        filled.size[i], filled.low[i], filled.inverse_step[i] = nodes, low, inverse
    return filled


def _pointer(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _heads_last(b: int, h: int, n: int, e: int, like: Tensor) -> Tensor:
    """An empty [b h n e] whose memory is [b n h e]: what the heads found then is one token without a copy."""
    return like.new_empty(b, n, h, e).transpose(1, 2)


class Settings(NamedTuple):
    """What is said about a problem in numbers, in the order in which the operations take them."""

    scale: float = 1.0
    causal: float = 0  # 1: yes
    window: float = 0  # index into WINDOWS, CUTS, SHAPES
    cut: float = 0
    shape: float = 0
    threshold: float = 0.0
    radial: float = 0  # 1: the bias is a function of ‖Δ‖
    features_radial: float = 0


def _problem(
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor,
    places: list[Tensor],
    keep: Tensor | None,
    inverse: Tensor | None,
    bias: Tensor | None,
    g: Tensor | None,
    features: Tensor | None,
    axes: list[Tensor],
    settings: list[float],
    out: Tensor,
    lse: Tensor,
) -> Problem:
    s = Settings(*settings)
    xq, xk, order_q, order_k = places
    for tensor in (q, k, v, xq, xk, inverse, bias, g, features):  # the kernel reads addresses, and cannot tell
        if tensor is not None and tensor.dtype != torch.float32:
            raise InputTypeError(
                f"attend: the native kernel takes float32 alone, got {tensor.dtype}; convert all of it"
            )
    full = inverse is not None and bool(inverse.tril(-1).any())
    return Problem(
        v.shape[0], v.shape[1], xq.shape[1], v.shape[2], 0 if q is None else q.shape[-1], v.shape[-1], xq.shape[-1],
        torch.get_num_threads(), _rows(q), _rows(k), _rows(v), _rows(out), lse.data_ptr(), xq.data_ptr(), xk.data_ptr(),
        order_q.data_ptr(), order_k.data_ptr(), _pointer(keep), s.scale, int(s.causal), int(s.window), int(s.cut),
        int(s.shape), full, s.threshold, _pointer(inverse), _table(bias, axes[0], bool(s.radial)), _rows(g),
        _table(features, axes[1], bool(s.features_radial), wide=True), 0 if features is None else features.shape[-1],
    )  # fmt: skip


@torch.library.custom_op("fillin::attend", mutates_args=())
def attend_native(
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor,
    places: list[Tensor],
    keep: Tensor | None,
    inverse: Tensor | None,
    bias: Tensor | None,
    g: Tensor | None,
    features: Tensor | None,
    axes: list[Tensor],
    settings: list[float],
) -> tuple[Tensor, Tensor]:
    """(out [b h n e], lse [b h n]) of native/span.h.

    q, k [b h _ d] and v [b h m e]; `places` are xq, xk and their orders; `keep` is over keys [b m]; `inverse` is
    A [h dx dx]; `bias` and `features` are tables [h *nodes] and [h *nodes f], `axes` their low ends and inverse steps
    [2 dims], and g [b h n f] is what meets the features.
    """
    out, lse = _result(v, places[0])
    q, k, v, g = (_dense(t) for t in (q, k, v, g))  # kept by name: the kernel sees addresses, which keep nothing alive
    call("forward", _problem(q, k, v, places, keep, inverse, bias, g, features, axes, settings, out, lse))
    return out, lse


def _result(v: Tensor, xq: Tensor) -> tuple[Tensor, Tensor]:
    b, h, _, e = v.shape
    return _heads_last(b, h, xq.shape[1], e, v), v.new_empty(b, h, xq.shape[1])


@attend_native.register_fake
def _(q, k, v, places, keep, inverse, bias, g, features, axes, settings):
    return _result(v, places[0])


@torch.library.custom_op("fillin::attend_backward", mutates_args=())
def attend_backward(
    d_out: Tensor,
    d_lse: Tensor,
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor,
    places: list[Tensor],
    keep: Tensor | None,
    inverse: Tensor | None,
    bias: Tensor | None,
    g: Tensor | None,
    features: Tensor | None,
    axes: list[Tensor],
    settings: list[float],
    out: Tensor,
    lse: Tensor,
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients to q, k, v, inverse, bias, g and features, each empty where there is none (or it is not `wanted`)."""
    q, k, v, g, d_out, d_lse = *(_dense(t) for t in (q, k, v, g, d_out)), d_lse.contiguous()
    problem = _problem(q, k, v, places, keep, inverse, bias, g, features, axes, settings, out, lse)
    found = _gradients(q, k, v, inverse, bias, g, features, wanted)
    d_q, d_k, d_v, d_inverse, d_bias, d_g, d_features = found
    gradients = Gradients(
        _rows(d_out), d_lse.data_ptr(), _rows(d_q), _rows(d_k), _rows(d_v), _rows(d_g),
        *(_pointer(t) if t.numel() else None for t in (d_inverse, d_bias, d_features)),
    )  # fmt: skip
    call("backward", problem, gradients)
    return found


def _gradients(q, k, v, inverse, bias, g, features, wanted) -> list[Tensor]:
    def rows(t: Tensor | None) -> Tensor:
        if t is None:
            return v.new_empty(0)
        b, h, n, d = t.shape  # zeros: keys that are masked are never met
        return t.new_zeros(b, n, h, d).transpose(1, 2)

    def like(t: Tensor | None, want: bool) -> Tensor:
        return t.new_zeros(t.shape) if t is not None and want else v.new_empty(0)

    return [rows(q), rows(k), rows(v), like(inverse, wanted[0]), like(bias, wanted[1]), rows(g), like(features, True)]


@attend_backward.register_fake
def _(d_out, d_lse, q, k, v, places, keep, inverse, bias, g, features, axes, settings, out, lse, wanted):
    return _gradients(q, k, v, inverse, bias, g, features, wanted)


def _remember(ctx, inputs, output) -> None:
    q, k, v, places, keep, inverse, bias, g, features, axes, settings = inputs
    ctx.save_for_backward(q, k, v, *places, keep, inverse, bias, g, features, *axes, *output)
    ctx.settings = settings
    ctx.wanted = [t is not None and t.requires_grad for t in (inverse, bias)]


def _backward(ctx, d_out, d_lse):
    q, k, v, xq, xk, order_q, order_k, keep, inverse, bias, g, features, *axes, out, lse = ctx.saved_tensors
    places = [xq, xk, order_q, order_k]
    if d_lse is None:
        d_lse = torch.zeros_like(lse)
    if d_out is None:
        d_out = torch.zeros_like(out)
    found = torch.ops.fillin.attend_backward(
        d_out, d_lse, q, k, v, places, keep, inverse, bias, g, features, axes, ctx.settings, out, lse, ctx.wanted
    )
    d_q, d_k, d_v, d_inverse, d_bias, d_g, d_features = (t if t.numel() else None for t in found)
    return d_q, d_k, d_v, [None] * 4, None, d_inverse, d_bias, d_g, d_features, [None] * 2, None


torch.library.register_autograd("fillin::attend", _backward, setup_context=_remember)
