"""The kernel as torch operations: with shapes for the compiler, and a backward pass."""

from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from fillin.attention.kernel.library import (
    MAX_FORMS,
    FillinForm,
    FillinGradients,
    FillinProblem,
    FillinProcesses,
    FillinRows,
    FillinTable,
    call,
)
from fillin.errors import InputTypeError

# In the order of the enumerations of native/span.h.
_WINDOWS, _CUTS, _SHAPES = ("open", "weights", "scores"), ("hard", "continuous"), ("ball", "box")
FORMS = ("rbf", "gaussian", "laplace", "radial-laplace")


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
    xq: Tensor  # [b n dx]; locations receive gradients through closed forms, without a window
    xk: Tensor
    inverse: Tensor | None = None  # A [h dx dx]
    bias: Tensor | None = None  # table of F [h *nodes]
    g: Tensor | None = None  # [b h n f], multiplied by R
    features: Tensor | None = None  # table of R [h *nodes f]
    forms: tuple[tuple[Tensor, Tensor | None], ...] = ()  # closed forms of F: ln ℓ [h dx or 1], amplitude [h]


_BY_HEAD = [DifferentiableInputs._fields.index(name) for name in ("q", "k", "v", "g")]  # [b h … …]


class FixedInputs(NamedTuple):
    """Tensors without gradients: orders of the locations, masks over keys and pairs, and the axes of the tables."""

    order_q: Tensor | None = None  # int32 [b n]; None: as they come
    order_k: Tensor | None = None
    allowed: Tensor | None = None  # [b m]
    pairs: Tensor | None = None  # [b h n m], by strides
    bias_axes: Tensor | None = None  # [2 dims]: low ends and inverse steps
    features_axes: Tensor | None = None


class KernelSettings(NamedTuple):
    """Numbers that describe a problem. Torch operations take a list of floats."""

    scale: float = 1.0
    causal: float = 0  # 1: yes
    window: float = 0  # index into _WINDOWS, _CUTS, _SHAPES
    cut: float = 0
    shape: float = 0
    threshold: float = 0.0
    full: float = 0  # 1: A has learned entries below its diagonal, even while they are zero
    radial: float = 0  # 1: F is a function of ‖Δ‖
    features_radial: float = 0
    features_exact: float = 0  # 1: every Δ is a node
    forms: tuple[int, ...] = ()  # of the closed forms, indices into FORMS

    def with_span(self, modulate: str, cut: str, shape: str, threshold: float, covariance: str) -> "KernelSettings":
        """Add a window, with the options of `Span`."""
        choices = {"window": _WINDOWS.index(modulate), "cut": _CUTS.index(cut), "shape": _SHAPES.index(shape)}
        return self._replace(threshold=threshold, full=covariance == "full", **choices)

    def flatten(self) -> list[float]:
        return [float(s) for s in (*self[:-1], *self.forms)]

    @classmethod
    def restore(cls, numbers: Sequence[float]) -> "KernelSettings":
        scalars = len(cls._fields) - 1
        return cls(*numbers[:scalars], forms=tuple(int(kind) for kind in numbers[scalars:]))


_MISSING = torch.empty(0)


def flatten(inputs: DifferentiableInputs | FixedInputs) -> list[Tensor]:
    """List the tensors as an operation takes them: torch differentiates lists of tensors, but not lists with None."""
    tensors: Any = inputs
    if isinstance(inputs, DifferentiableInputs):
        tensors = (*inputs[:-1], *(t for form in inputs.forms for t in form))
    return [_MISSING if t is None else t for t in tensors]


def _restore(tensors: Sequence[Tensor]) -> list[Any]:
    return [None if t.ndim == 1 and not t.numel() else t for t in tensors]


def _restore_inputs(tensors: Sequence[Tensor]) -> DifferentiableInputs:
    restored, n = _restore(tensors), len(DifferentiableInputs._fields) - 1
    return DifferentiableInputs(*restored[:n], forms=tuple(zip(restored[n::2], restored[n + 1 :: 2], strict=True)))


def run_attention(
    inputs: DifferentiableInputs, fixed: FixedInputs, settings: KernelSettings
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n"]]:
    """Return the normalised output and lse (native/span.h)."""
    arguments = flatten(inputs), flatten(fixed), settings.flatten()
    if torch.compiler.is_compiling():
        return attend_op(*arguments)
    # the same without the dispatch of an operation, which takes longer than a small problem
    return _Attention.apply(*arguments[1:], *arguments[0])  # type: ignore[return-value]


def _fill_problem(
    inputs: DifferentiableInputs, fixed: FixedInputs, s: KernelSettings, out: Tensor, lse: Tensor
) -> FillinProblem:
    q, k, v, xq, xk, inverse, bias, g, features, forms = inputs
    order_q, order_k, allowed, pairs, bias_axes, features_axes = fixed
    for tensor in inputs[:-1]:  # the kernel receives addresses without a dtype
        if tensor is not None and tensor.dtype != torch.float32:
            raise InputTypeError(f"attend: the native kernel takes float32, got {tensor.dtype}; convert all tensors")
    strides = (0, 0, 0) if pairs is None else pairs.stride()[:3]
    closed = [
        FillinForm(kind, log_scale.shape[1], log_scale.data_ptr(), _pointer(amplitude))
        for kind, (log_scale, amplitude) in zip(s.forms, forms, strict=True)
    ]
    return FillinProblem(
        v.shape[0], v.shape[1], xq.shape[1], v.shape[2], 0 if q is None else q.shape[-1], v.shape[-1], xq.shape[-1],
        torch.get_num_threads(), _rows(q), _rows(k), _rows(v), _rows(out), lse.data_ptr(), xq.data_ptr(), xk.data_ptr(),
        _pointer(order_q), _pointer(order_k), _pointer(allowed), _pointer(pairs), *strides, s.scale, int(s.causal),
        int(s.window), int(s.cut), int(s.shape), int(s.full), s.threshold, _pointer(inverse), len(closed),
        (FillinForm * MAX_FORMS)(*closed), _table(bias, bias_axes, s.radial), _rows(g),
        _table(features, features_axes, s.features_radial, s.features_exact, features=True),
        0 if features is None else features.shape[-1],
    )  # fmt: skip


def _with_dense_rows(inputs: DifferentiableInputs) -> DifferentiableInputs:
    """Copy what is not dense. The caller must hold the result: the kernel sees addresses, which keep nothing alive."""
    return inputs._replace(
        q=_dense(inputs.q), k=_dense(inputs.k), v=_dense(inputs.v), g=_dense(inputs.g),
        xq=inputs.xq.contiguous(), xk=inputs.xk.contiguous(),
    )  # fmt: skip


def _heads_last(make: Any, b: int, h: int, n: int, e: int) -> Tensor:
    """A tensor [b h n e] whose memory is [b n h e], so that joining the heads of a token needs no copy."""
    return make(b, n, h, e).transpose(1, 2)


def _empty_outputs(inputs: DifferentiableInputs) -> tuple[Tensor, Tensor]:
    (b, h, _, e), n = inputs.v.shape, inputs.xq.shape[1]
    return _heads_last(inputs.v.new_empty, b, h, n, e), inputs.v.new_empty(b, h, n)


def _run_forward(inputs: Sequence[Tensor], fixed: Sequence[Tensor], settings: Sequence[float]) -> tuple[Tensor, Tensor]:
    dense = _with_dense_rows(_restore_inputs(inputs))
    out, lse = _empty_outputs(dense)
    call("forward", _fill_problem(dense, FixedInputs(*_restore(fixed)), KernelSettings.restore(settings), out, lse))
    return out, lse


def _run_backward(
    gradients: Sequence[Tensor], inputs: Sequence[Tensor], fixed: Sequence[Tensor], settings: Sequence[float],
    results: Sequence[Tensor], needs_grad: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    d_out, d_lse = _dense(gradients[0]), gradients[1].contiguous()
    dense = _with_dense_rows(_restore_inputs(inputs))
    grads = _empty_gradients(inputs, needs_grad)
    to = _restore_inputs(grads)
    rows = (_rows(t) for t in (to.q, to.k, to.v, to.g))
    scales, amplitudes = ([_pointer(form[i]) for form in to.forms] for i in (0, 1))
    structure = FillinGradients(
        _rows(d_out), _pointer(d_lse), *rows, *map(_pointer, (to.inverse, to.bias, to.features, to.xq, to.xk)),
        (c_void_p * MAX_FORMS)(*scales), (c_void_p * MAX_FORMS)(*amplitudes),
    )  # fmt: skip
    problem = _fill_problem(dense, FixedInputs(*_restore(fixed)), KernelSettings.restore(settings), *results)
    call("backward", problem, structure)
    return grads


def _empty_gradients(inputs: Sequence[Tensor], needs_grad: Sequence[bool]) -> list[Tensor]:
    def empty(i: int, t: Tensor, needed: bool) -> Tensor:
        if not needed or (t.ndim == 1 and not t.numel()):
            return t.new_empty(0)
        return _heads_last(t.new_empty, *t.shape) if i in _BY_HEAD else t.new_zeros(t.shape)

    return [empty(i, *pair) for i, pair in enumerate(zip(inputs, needs_grad, strict=True))]


class _Attention(torch.autograd.Function):
    """(out, lse) of flattened `FixedInputs`, `KernelSettings` and `DifferentiableInputs`."""

    @staticmethod
    def forward(ctx, fixed, settings, *inputs):
        out, lse = _run_forward(inputs, fixed, settings)
        ctx.save_for_backward(*inputs, *fixed, out, lse)
        ctx.settings, ctx.count = settings, len(inputs)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, d_out, d_lse):  # pyright: ignore[reportIncompatibleMethodOverride]
        saved, n = ctx.saved_tensors, ctx.count
        d_out = torch.zeros_like(saved[-2]) if d_out is None else d_out
        d_lse = _MISSING if d_lse is None else d_lse
        # with create_graph, the operation: it refuses to be differentiated again
        run = torch.ops.fillin.attend_backward if torch.is_grad_enabled() else _run_backward
        grads = run([d_out, d_lse], saved[:n], saved[n:-2], ctx.settings, saved[-2:], ctx.needs_input_grad[2:])
        return None, None, *(t if t.numel() else None for t in grads)


@torch.library.custom_op("fillin::attend", mutates_args=())
def attend_op(inputs: list[Tensor], fixed: list[Tensor], settings: list[float]) -> tuple[Tensor, Tensor]:
    """(out [b h n e], lse [b h n]) from flattened `DifferentiableInputs`, `FixedInputs` and `KernelSettings`."""
    return _run_forward(inputs, fixed, settings)


@attend_op.register_fake
def _(inputs, fixed, settings):
    return _empty_outputs(_restore_inputs(inputs))


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
    return _run_backward(gradients, inputs, fixed, settings, results, needs_grad)


@attend_backward_op.register_fake
def _(gradients, inputs, fixed, settings, results, needs_grad):
    return _empty_gradients(inputs, needs_grad)


def _save_for_backward(ctx, inputs, output) -> None:
    differentiable, fixed, ctx.settings = inputs
    ctx.save_for_backward(*differentiable, *fixed, *output)
    ctx.needs_grad = [t.requires_grad for t in differentiable]


def _backward(ctx, d_out, d_lse):
    saved, n = ctx.saved_tensors, len(ctx.needs_grad)
    inputs, fixed, (out, lse) = saved[:n], saved[n:-2], saved[-2:]
    gradients = [torch.zeros_like(result) if d is None else d for d, result in ((d_out, out), (d_lse, lse))]
    grads = torch.ops.fillin.attend_backward(gradients, inputs, fixed, ctx.settings, [out, lse], ctx.needs_grad)
    return [t if t.numel() else None for t in grads], [None] * len(fixed), None


torch.library.register_autograd("fillin::attend", _backward, setup_context=_save_for_backward)


def run_processes(
    name: str,
    theta: Float[Tensor, "c g 7"],
    period: Float[Tensor, "c"],
    distance: Float[Tensor, "c mq m"],
    y: Float[Tensor, "c m"],
    line: Float[Tensor, "c mq"] | None,
    error: Float[Tensor, "c m"],
    there: Bool[Tensor, "c m"],
    trend: Float[Tensor, "c mq m"],
    fixed: Float[Tensor, "c"],
    prior: tuple[float, float, float],
) -> Float[Tensor, "c _"] | Float[Tensor, "c 3 mq"]:
    """Run `evidence` or `predict` of native/processes.h in double precision: log likelihoods of the kernels [c g] up to
    a constant, or the sums over the kernels of means, second moments and variances of the noise [c 3 mq]."""
    wave = None
    if bool((theta[..., 3] > 0).any()):
        wave = half_wave(distance, period)
    given = (distance, wave, trend, y, error.square(), line)
    parts = [None if part is None else part.double().contiguous() for part in given]
    present, theta = there.to(torch.uint8).contiguous(), theta.double().contiguous()
    (c, g, _), (rows, m) = theta.shape, distance.shape[1:]
    out = theta.new_zeros((c, g) if name == "evidence" else (c, 3, rows))
    fixed = fixed.double().contiguous()
    addresses = [None if part is None else part.data_ptr() for part in (*parts, present, theta, fixed)]
    sizes = (c, g, m, rows - m, torch.get_num_threads())
    call(name, FillinProcesses(*sizes, *addresses, *prior, out.data_ptr()))
    return out


def half_wave(distance: Float[Tensor, "c n m"], period: Float[Tensor, "c"]) -> Float[Tensor, "c n m"]:
    """Return sin² of half the difference in phase at these distances; 0 without a period."""
    if not bool((period > 0).any()):
        return torch.zeros_like(distance)
    frequency = torch.where(period > 0, 1 / period, 0)[:, None, None]
    return torch.sin(torch.pi * frequency * distance).square()


def run_correlate(
    theta: Float[Tensor, "c 7"], period: Float[Tensor, "c"], distance: Float[Tensor, "c n m"]
) -> Float[Tensor, "c n m"]:
    """Correlations at these distances by a Gaussian process kernel for each column (native/processes.h)."""
    wave = None
    if bool((theta[:, 3] > 0).any()):
        wave = half_wave(distance, period)
    distance, theta, out = distance.contiguous(), theta.contiguous(), torch.empty_like(distance)
    sizes = (len(distance), 1, 1, distance[0].numel() - 1, torch.get_num_threads())  # one row of all distances
    addresses = [distance.data_ptr(), None if wave is None else wave.data_ptr(), *[None] * 5, theta.data_ptr(), None]
    call("correlate", FillinProcesses(*sizes, *addresses, *[0.0] * 3, out.data_ptr()))
    return out
