"""Coherent samples: whole functions, not points drawn one without regard to another."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.errors import InputError, choose
from fillin.models.base import LatentProcess, Process
from fillin.models.points import per_entry

METHODS = ["auto", "model", "autoregressive"]


@torch.no_grad()
def sample(
    model: Process,
    xc: Float[Tensor, "b nc dx"],
    yc: Float[Tensor, "b nc dy"],
    xt: Float[Tensor, "b nt dx"],
    n: int = 1,
    *,
    mask_c: Bool[Tensor, "b nc *dy"] | None = None,
    mask_t: Bool[Tensor, "b nt *dy"] | None = None,
    method: str = "auto",
    order: str = "random",
) -> Float[Tensor, "n b nt dy"]:
    """n functions at xt, drawn from torch's random state.

    method="model" asks the model's own joint distribution: a latent variable (a new one for each function), a joint
    Gaussian, or (TNP-A) target after target in the order given, with kept keys and values. "autoregressive" works for
    every model: it draws a target, adds it to the context, and goes on, in random order or order="given". "auto" takes
    the first where the model has it.

    >>> model = __import__("fillin").create("cnp", size="small")
    >>> sample(model, torch.rand(1, 3, 1), torch.rand(1, 3, 1), torch.rand(1, 4, 1), n=2).shape
    torch.Size([2, 1, 4, 1])
    """
    choose("method", method, METHODS)
    choose("order", order, ["random", "given"])
    if n < 1:
        raise InputError(f"sample: n must be at least 1, got {n}")
    own = model.kind != "marginal"
    if method == "model" and not own:
        raise InputError("sample: this model predicts each target on its own; use method='autoregressive'")
    if isinstance(model, LatentProcess) and method != "autoregressive":
        return model.draw(n, xc, yc, xt, mask_c, mask_t)
    if own and method != "autoregressive":
        return model(xc, yc, xt, mask_c, mask_t).sample(torch.Size([n]))
    return _autoregressive(model, xc, yc, xt, n, mask_c, mask_t, order)


def _autoregressive(model, xc, yc, xt, n, mask_c, mask_t, order) -> Float[Tensor, "n b nt dy"]:
    b, nt = xt.shape[:2]
    model.read(xc, yc, xt, mask_c, mask_t)  # complain about the caller's arguments, not about ours
    mask_c = per_entry(mask_c, yc)
    mask_t = per_entry(mask_t, yc.new_zeros(b, nt, yc.shape[-1]))
    steps = torch.randperm(nt) if order == "random" else torch.arange(nt)
    x, y, mask = (t.repeat(n, 1, 1) for t in (xc, yc, mask_c))
    out = yc.new_zeros(n * b, nt, yc.shape[-1])
    for i in steps.tolist():
        here, real = xt[:, i : i + 1].repeat(n, 1, 1), mask_t[:, i : i + 1].repeat(n, 1, 1)
        drawn = _one(model(x, y, here, mask, real))
        out[:, i : i + 1] = drawn
        x, y, mask = torch.cat([x, here], 1), torch.cat([y, drawn], 1), torch.cat([mask, real], 1)
    return out.view(n, b, nt, yc.shape[-1])


def _one(distribution) -> Float[Tensor, "b 1 dy"]:
    marginals = getattr(distribution, "marginals", distribution)  # of one target, so joint is no different
    return marginals.sample()
