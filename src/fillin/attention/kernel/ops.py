"""The kernel as torch operations: with shapes for the compiler, and a backward pass of its own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from fillin.attention.kernel.library import Gradients, Problem, Rows, Table, call
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


def _table(values: Tensor | None, axes: Tensor | None, radial: float, exact: float = 0, wide: bool = False) -> Table:
    if values is None or axes is None:
        return Table()
    size = values.shape[1:-1] if wide else values.shape[1:]
    filled = Table(values.data_ptr(), len(size), int(radial), int(exact))
    for i, (nodes, low, inverse) in enumerate(zip(size, *axes.tolist(), strict=True)):
        filled.size[i], filled.low[i], filled.inverse_step[i] = nodes, low, inverse
    return filled


def _pointer(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _heads_last(b: int, h: int, n: int, e: int, like: Tensor) -> Tensor:
    """An empty [b h n e] whose memory is [b n h e]: what the heads found then is one token without a copy."""
    return like.new_empty(b, n, h, e).transpose(1, 2)


class Given(NamedTuple):
    """What a gradient may be asked for; None where the problem has no such part."""

    q: Tensor | None  # [b h n d], as k
    k: Tensor | None
    v: Tensor  # [b h m e]
    inverse: Tensor | None  # A [h dx dx]
    bias: Tensor | None  # F's table [h *nodes]
    g: Tensor | None  # [b h n f], what meets R
    features: Tensor | None  # R's table [h *nodes f]


class Fixed(NamedTuple):
    """What is only read: places and their orders, which keys may be attended, and where the tables' nodes are."""

    xq: Tensor  # [b n dx]
    xk: Tensor
    order_q: Tensor  # int32 [b n]
    order_k: Tensor
    keep: Tensor | None  # [b m]
    bias_axes: Tensor | None  # [2 dims]: low ends and inverse steps
    features_axes: Tensor | None


_NOTHING = torch.empty(0)


def flat(parts: Given | Fixed) -> list[Tensor]:
    """As an operation takes them: torch knows gradients to lists of tensors, but not to lists with gaps."""
    return [_NOTHING if t is None else t for t in parts]


def _with_gaps(tensors: Sequence[Tensor]) -> list[Any]:
    return [None if t.ndim == 1 else t for t in tensors]


class Settings(NamedTuple):
    """What is said about a problem in numbers."""

    scale: float = 1.0
    causal: float = 0  # 1: yes
    window: float = 0  # index into WINDOWS, CUTS, SHAPES
    cut: float = 0
    shape: float = 0
    threshold: float = 0.0
    radial: float = 0  # 1: the bias is a function of ‖Δ‖
    features_radial: float = 0
    features_exact: float = 0  # 1: every Δ is a node


def _problem(given: Given, fixed: Fixed, s: Settings, out: Tensor, lse: Tensor) -> Problem:
    q, k, v, inverse, bias, g, features = given
    xq, xk, order_q, order_k, keep, bias_axes, features_axes = fixed
    for tensor in (*given, xq, xk):  # the kernel reads addresses, and cannot tell
        if tensor is not None and tensor.dtype != torch.float32:
            raise InputTypeError(
                f"attend: the native kernel takes float32 alone, got {tensor.dtype}; convert all of it"
            )
    full = inverse is not None and bool(inverse.tril(-1).any())
    return Problem(
        v.shape[0], v.shape[1], xq.shape[1], v.shape[2], 0 if q is None else q.shape[-1], v.shape[-1], xq.shape[-1],
        torch.get_num_threads(), _rows(q), _rows(k), _rows(v), _rows(out), lse.data_ptr(), xq.data_ptr(), xk.data_ptr(),
        order_q.data_ptr(), order_k.data_ptr(), _pointer(keep), s.scale, int(s.causal), int(s.window), int(s.cut),
        int(s.shape), full, s.threshold, _pointer(inverse), _table(bias, bias_axes, s.radial), _rows(g),
        _table(features, features_axes, s.features_radial, s.features_exact, wide=True),
        0 if features is None else features.shape[-1],
    )  # fmt: skip


def _dense_rows(given: Given) -> Given:
    """Kept by name where it is used: the kernel sees addresses, which keep nothing alive."""
    return given._replace(q=_dense(given.q), k=_dense(given.k), v=_dense(given.v), g=_dense(given.g))


def _result(given: Given, fixed: Fixed) -> tuple[Tensor, Tensor]:
    (b, h, _, e), n = given.v.shape, fixed.xq.shape[1]
    return _heads_last(b, h, n, e, given.v), given.v.new_empty(b, h, n)


@torch.library.custom_op("fillin::attend", mutates_args=())
def attend_native(given: list[Tensor], fixed: list[Tensor], settings: list[float]) -> tuple[Tensor, Tensor]:
    """(out [b h n e], lse [b h n]) of native/span.h, from a `Given`, a `Fixed` and `Settings`."""
    dense, places = _dense_rows(Given(*_with_gaps(given))), Fixed(*_with_gaps(fixed))
    out, lse = _result(dense, places)
    call("forward", _problem(dense, places, Settings(*settings), out, lse))
    return out, lse


@attend_native.register_fake
def _(given, fixed, settings):
    return _result(Given(*_with_gaps(given)), Fixed(*_with_gaps(fixed)))


@torch.library.custom_op("fillin::attend_backward", mutates_args=())
def attend_backward(
    gradients: list[Tensor],
    given: list[Tensor],
    fixed: list[Tensor],
    settings: list[float],
    results: list[Tensor],
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients to all that is `given`, each empty where there is none (or it is not `wanted`)."""
    d_out, d_lse = _dense(gradients[0]), gradients[1].contiguous()
    dense, found = _dense_rows(Given(*_with_gaps(given))), _gradients(Given(*_with_gaps(given)), wanted)
    to: Any = Given(*found)
    asked = Gradients(
        _rows(d_out), d_lse.data_ptr(), _rows(to.q), _rows(to.k), _rows(to.v), _rows(to.g),
        *(_pointer(t) if t.numel() else None for t in (to.inverse, to.bias, to.features)),
    )  # fmt: skip
    call("backward", _problem(dense, Fixed(*_with_gaps(fixed)), Settings(*settings), *results), asked)
    return found


def _gradients(given: Given, wanted: list[bool]) -> list[Tensor]:
    def empty(name: str, t: Tensor | None, want: bool) -> Tensor:
        if t is None:
            return given.v.new_empty(0)
        if name in ("inverse", "bias", "features"):
            return t.new_zeros(t.shape) if want else t.new_empty(0)
        b, h, n, d = t.shape  # zeros: keys that are masked are never met
        return t.new_zeros(b, n, h, d).transpose(1, 2)

    return [empty(*each) for each in zip(Given._fields, given, wanted, strict=True)]


@attend_backward.register_fake
def _(gradients, given, fixed, settings, results, wanted):
    return _gradients(Given(*_with_gaps(given)), wanted)


def _remember(ctx, inputs, output) -> None:
    given, fixed, ctx.settings = inputs
    ctx.save_for_backward(*given, *fixed, *output)
    ctx.wanted = [t.requires_grad for t in given]


def _backward(ctx, d_out, d_lse):
    saved, n = ctx.saved_tensors, len(Given._fields)
    given, fixed, (out, lse) = saved[:n], saved[n:-2], saved[-2:]
    gradients = [torch.zeros_like(of) if d is None else d for d, of in ((d_out, out), (d_lse, lse))]
    found = torch.ops.fillin.attend_backward(gradients, given, fixed, ctx.settings, [out, lse], ctx.wanted)
    return [t if t.numel() else None for t in found], [None] * len(fixed), None


torch.library.register_autograd("fillin::attend", _backward, setup_context=_remember)
