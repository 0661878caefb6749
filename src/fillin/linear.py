"""Linear layers, by the library that multiplies fastest on this processor.

PyTorch multiplies float32 matrices by MKL, which uses half the width of the vectors of AMD's processors with AVX-512.
oneDNN, which comes with PyTorch as well, uses all of it: on an AMD EPYC (Zen 5) it is 2.3 times as fast from some
hundred rows on (`fillin bench speed`). Its products differ from those of MKL by rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.runtime import read_vendor

# Multiplications from which on oneDNN is faster; fewer do not repay the cost of its call.
MIN_PRODUCTS = 1 << 20

# Rows beyond which the gradient of narrow weights, a product over all rows, is faster by MKL.
_MAX_NARROW_ROWS, _NARROW = 1 << 13, 64

_plain: ContextVar[bool] = ContextVar("plain", default=False)


def prefers_onednn(vendor: str | None, capability: str) -> bool:
    """Whether oneDNN multiplies faster than MKL on such a processor."""
    return vendor == "AuthenticAMD" and capability == "AVX512"


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


_ONEDNN = prefers_onednn(read_vendor(), torch.backends.cpu.get_cpu_capability()) and _has_onednn()


@contextmanager
def plain_products() -> Iterator[None]:
    """Multiply by the library that PyTorch chooses, as the reference."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def linear(
    x: Float[Tensor, "*b i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*b o"]:
    """x Wᵀ + b."""
    if not _is_fast(x, weight):
        return nn.functional.linear(x, weight, bias)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return _Linear.apply(x, weight, bias)
    return _multiply(x, weight, bias)


def _is_fast(x: Tensor, weight: Tensor) -> bool:
    return (
        _ONEDNN
        and not torch.compiler.is_compiling()  # first: sizes may be symbols, of which a comparison makes a condition
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() * len(weight) >= MIN_PRODUCTS
        and not _plain.get()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
    )


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias).detach()  # no view, so that an activation may replace it

    @staticmethod
    def backward(ctx, *grad_outputs):
        (grad,) = grad_outputs
        x, weight = ctx.saved_tensors
        multiply = nn.functional.linear if torch.is_grad_enabled() else _multiply  # differentiable for create_graph
        for_x, for_weight, for_bias = ctx.needs_input_grad
        grad_x = multiply(grad, weight.mT) if for_x else None
        grad, x = grad.flatten(0, -2), x.flatten(0, -2)
        grad_weight = None
        if for_weight:
            narrow = len(x) > _MAX_NARROW_ROWS and min(weight.shape) <= _NARROW
            product = nn.functional.linear if narrow else multiply
            grad_weight = product(x.mT, grad.mT).mT if len(weight) > weight.shape[1] else product(grad.mT, x.mT)
        return grad_x, grad_weight, grad.sum(0) if for_bias else None


class LinearLayer(nn.Linear):
    """x Wᵀ + b."""

    def forward(self, input: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        return linear(input, self.weight, self.bias)
