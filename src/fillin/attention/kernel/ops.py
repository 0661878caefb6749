"""The kernel as torch operations: with shapes for the compiler, and a backward pass."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from fillin.attention.kernel.library import FillinGradients, FillinProblem, FillinRows, FillinTable, call
from fillin.errors import InputTypeError

# In the order of the enumerations of native/span.h.
_WINDOWS, _CUTS, _SHAPES = ("open", "weights", "scores"), ("hard", "continuous"), ("ball", "box")


@torch.library.custom_op("fillin::order", mutates_args=())
def sort_points(x: Tensor) -> Tensor:
    """[b n dx] → int32 [b n]: an order of the points of each set in which neighbours in space are close."""
    x = x.detach().contiguous()
    order = torch.empty(x.shape[:2], dtype=torch.int32)
    call("order", x.data_ptr(), *x.shape, torch.get_num_threads(), order.data_ptr())
    return order


@sort_points.register_fake
def _(x):
    return x.new_empty(x.shape[:2], dtype=torch.int32)


_orders: Any = WeakIdKeyDictionary()


def spatial_order(x: Float[Tensor, "b n dx"]) -> Int32[Tensor, "b n"]:
    """`sort_points`, computed once per tensor and shared by all layers, heads and steps that pass the same tensor."""
    if torch.compiler.is_compiling() or x.is_inference():  # such tensors have no version that shows a change
        return sort_points(x)
    cached = _orders.get(x)
    if cached is None or cached[0] != x._version or cached[1].shape != x.shape[:2]:
        cached = _orders[x] = (x._version, sort_points(x))
    return cached[1]


def _rows(t: Tensor | None) -> FillinRows:
    return FillinRows() if t is None or t.numel() == 0 else FillinRows(t.data_ptr(), *t.stride()[:3])


def _dense(t: Any) -> Any:
    """A tensor (or None) whose rows are contiguous; the other axes may have any stride."""
    return t if t is None or t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def _table(
    values: Tensor | None, axes: Tensor | None, radial: float, exact: float = 0, features: bool = False
) -> FillinTable:
    if values is None or axes is None:
        return FillinTable()
    size = values.shape[1:-1] if features else values.shape[1:]
    table = FillinTable(values.data_ptr(), len(size), int(radial), int(exact))
    for i, (nodes, low, inverse) in enumerate(zip(size, *axes.tolist(), strict=True)):
        table.size[i], table.low[i], table.inverse_step[i] = nodes, low, inverse
    return table


def _pointer(t: Tensor | None) -> int | None:
    return t.data_ptr() if t is not None and t.numel() else None


class DifferentiableInputs(NamedTuple):
    """Tensors that may receive a gradient; None where the problem has no such part."""

    q: Tensor | None  # [b h n d], as k
    k: Tensor | None
    v: Tensor  # [b h m e]
    inverse: Tensor | None  # A [h dx dx]
    bias: Tensor | None  # table of F [h *nodes]
    g: Tensor | None  # [b h n f], multiplied by R
    features: Tensor | None  # table of R [h *nodes f]


class FixedInputs(NamedTuple):
    """Tensors without gradients: locations and their orders, the mask over keys, and the axes of the tables."""

    xq: Tensor  # [b n dx]
    xk: Tensor
    order_q: Tensor  # int32 [b n]
    order_k: Tensor
    allowed: Tensor | None  # [b m]
    bias_axes: Tensor | None  # [2 dims]: low ends and inverse steps
    features_axes: Tensor | None


class KernelSettings(NamedTuple):
    """Numbers that describe a problem. Torch operations take a list of floats."""

    scale: float = 1.0
    causal: float = 0  # 1: yes
    window: float = 0  # index into _WINDOWS, _CUTS, _SHAPES
    cut: float = 0
    shape: float = 0
    threshold: float = 0.0
    radial: float = 0  # 1: F is a function of ‖Δ‖
    features_radial: float = 0
    features_exact: float = 0  # 1: every Δ is a node

    def with_span(self, modulate: str, cut: str, shape: str, threshold: float) -> "KernelSettings":
        """Add a window, with the options of `Span`."""
        choices = {"window": _WINDOWS.index(modulate), "cut": _CUTS.index(cut), "shape": _SHAPES.index(shape)}
        return self._replace(threshold=threshold, **choices)


_MISSING = torch.empty(0)


def flatten(inputs: DifferentiableInputs | FixedInputs) -> list[Tensor]:
    """List the tensors as an operation takes them: torch differentiates lists of tensors, but not lists with None."""
    return [_MISSING if t is None else t for t in inputs]


def _restore(tensors: Sequence[Tensor]) -> Iterator[Any]:
    return (None if t.ndim == 1 else t for t in tensors)


def run_attention(
    inputs: DifferentiableInputs, fixed: FixedInputs, settings: KernelSettings
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n"]]:
    """Return the normalised output and lse (native/span.h)."""
    return attend_op(flatten(inputs), flatten(fixed), [float(s) for s in settings])


def _fill_problem(
    inputs: DifferentiableInputs, fixed: FixedInputs, s: KernelSettings, out: Tensor, lse: Tensor
) -> FillinProblem:
    q, k, v, inverse, bias, g, features = inputs
    xq, xk, order_q, order_k, allowed, bias_axes, features_axes = fixed
    for tensor in (*inputs, xq, xk):  # the kernel receives addresses without a dtype
        if tensor is not None and tensor.dtype != torch.float32:
            raise InputTypeError(f"attend: the native kernel takes float32, got {tensor.dtype}; convert all tensors")
    full = inverse is not None and bool(inverse.tril(-1).any())
    return FillinProblem(
        v.shape[0], v.shape[1], xq.shape[1], v.shape[2], 0 if q is None else q.shape[-1], v.shape[-1], xq.shape[-1],
        torch.get_num_threads(), _rows(q), _rows(k), _rows(v), _rows(out), lse.data_ptr(), xq.data_ptr(), xk.data_ptr(),
        order_q.data_ptr(), order_k.data_ptr(), _pointer(allowed), s.scale, int(s.causal), int(s.window), int(s.cut),
        int(s.shape), full, s.threshold, _pointer(inverse), _table(bias, bias_axes, s.radial), _rows(g),
        _table(features, features_axes, s.features_radial, s.features_exact, features=True),
        0 if features is None else features.shape[-1],
    )  # fmt: skip


def _with_dense_rows(inputs: DifferentiableInputs) -> DifferentiableInputs:
    """Copy what is not dense. The caller must hold the result: the kernel sees addresses, which keep nothing alive."""
    return inputs._replace(q=_dense(inputs.q), k=_dense(inputs.k), v=_dense(inputs.v), g=_dense(inputs.g))


def _heads_last(make: Any, b: int, h: int, n: int, e: int) -> Tensor:
    """A tensor [b h n e] whose memory is [b n h e], so that joining the heads of a token needs no copy."""
    return make(b, n, h, e).transpose(1, 2)


def _empty_outputs(inputs: DifferentiableInputs, fixed: FixedInputs) -> tuple[Tensor, Tensor]:
    (b, h, _, e), n = inputs.v.shape, fixed.xq.shape[1]
    return _heads_last(inputs.v.new_empty, b, h, n, e), inputs.v.new_empty(b, h, n)


@torch.library.custom_op("fillin::attend", mutates_args=())
def attend_op(inputs: list[Tensor], fixed: list[Tensor], settings: list[float]) -> tuple[Tensor, Tensor]:
    """(out [b h n e], lse [b h n]) from flattened `DifferentiableInputs`, `FixedInputs` and `KernelSettings`."""
    dense, constants = _with_dense_rows(DifferentiableInputs(*_restore(inputs))), FixedInputs(*_restore(fixed))
    out, lse = _empty_outputs(dense, constants)
    call("forward", _fill_problem(dense, constants, KernelSettings(*settings), out, lse))
    return out, lse


@attend_op.register_fake
def _(inputs, fixed, settings):
    return _empty_outputs(DifferentiableInputs(*_restore(inputs)), FixedInputs(*_restore(fixed)))


@torch.library.custom_op("fillin::attend_backward", mutates_args=())
def attend_backward_op(
    gradients: list[Tensor],
    inputs: list[Tensor],
    fixed: list[Tensor],
    settings: list[float],
    results: list[Tensor],
    needs_grad: list[bool],
) -> list[Tensor]:
    """Gradients to all differentiable inputs, each empty where there is none (or it is not needed)."""
    d_out, d_lse = _dense(gradients[0]), gradients[1].contiguous()
    differentiable = DifferentiableInputs(*_restore(inputs))
    dense, grads = _with_dense_rows(differentiable), _empty_gradients(differentiable, needs_grad)
    to: Any = DifferentiableInputs(*grads)
    structure = FillinGradients(
        _rows(d_out), d_lse.data_ptr(), _rows(to.q), _rows(to.k), _rows(to.v), _rows(to.g),
        *map(_pointer, (to.inverse, to.bias, to.features)),
    )  # fmt: skip
    problem = _fill_problem(dense, FixedInputs(*_restore(fixed)), KernelSettings(*settings), *results)
    call("backward", problem, structure)
    return grads


def _empty_gradients(inputs: DifferentiableInputs, needs_grad: list[bool]) -> list[Tensor]:
    def empty(name: str, t: Tensor | None, needed: bool) -> Tensor:
        if t is None:
            return inputs.v.new_empty(0)
        if name in ("inverse", "bias", "features"):
            return t.new_zeros(t.shape) if needed else t.new_empty(0)
        return _heads_last(t.new_zeros, *t.shape)  # zeros: the kernel never visits masked keys

    return [empty(*field) for field in zip(DifferentiableInputs._fields, inputs, needs_grad, strict=True)]


@attend_backward_op.register_fake
def _(gradients, inputs, fixed, settings, results, needs_grad):
    return _empty_gradients(DifferentiableInputs(*_restore(inputs)), needs_grad)


def _save_for_backward(ctx, inputs, output) -> None:
    differentiable, fixed, ctx.settings = inputs
    ctx.save_for_backward(*differentiable, *fixed, *output)
    ctx.needs_grad = [t.requires_grad for t in differentiable]


def _backward(ctx, d_out, d_lse):
    saved, n = ctx.saved_tensors, len(DifferentiableInputs._fields)
    inputs, fixed, (out, lse) = saved[:n], saved[n:-2], saved[-2:]
    gradients = [torch.zeros_like(result) if d is None else d for d, result in ((d_out, out), (d_lse, lse))]
    grads = torch.ops.fillin.attend_backward(gradients, inputs, fixed, ctx.settings, [out, lse], ctx.needs_grad)
    return [t if t.numel() else None for t in grads], [None] * len(fixed), None


torch.library.register_autograd("fillin::attend", _backward, setup_context=_save_for_backward)
