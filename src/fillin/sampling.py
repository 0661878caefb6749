"""Coherent samples: whole functions, not points drawn one without regard to another."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.distributions import Distribution

from fillin.errors import InputError, choose
from fillin.models.base import LatentProcess, Process
from fillin.models.points import per_entry

METHODS = ["auto", "model", "autoregressive"]
ORDERS = ["random", "given", "coarse"]
_COARSEST = 8  # targets from one of the first level to the next


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
    every model: it draws a target, adds it to the context, and goes on, in random order or order="given". Of targets
    that lie along a line order="coarse" draws every eighth at once, then those halfway between, and so on: a few passes
    instead of one for each target, and coherent as long as targets eight apart tell little of one another. "auto" takes
    the first method where the model has it.

    >>> model = __import__("fillin").create("cnp", size="small")
    >>> sample(model, torch.rand(1, 3, 1), torch.rand(1, 3, 1), torch.rand(1, 4, 1), n=2).shape
    torch.Size([2, 1, 4, 1])
    """
    choose("method", method, METHODS)
    choose("order", order, ORDERS)
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


@torch.no_grad()
def functions_between(
    model: Process,
    xc: Float[Tensor, "b nc dx"],
    yc: Float[Tensor, "b nc dy"],
    xt: Float[Tensor, "b nt dx"],
    n: int = 1,
    every: int = 5,
    prediction: Distribution | None = None,
) -> Float[Tensor, "n b nt dy"]:
    """n functions at targets along a line, in a few passes of any model that tells each target's deviation.

    Every so many targets are drawn from coarse to fine (`sample`, order="coarse"), in deviations z = (y − mean)/std;
    those between are mean + std · z, with z as a line between the drawn ones. `prediction` is model(xc, yc, xt), if it
    is there already.

    >>> model = __import__("fillin").create("cnp", size="small")
    >>> xt = torch.linspace(-1, 1, 21).view(1, 21, 1)
    >>> functions_between(model, torch.rand(1, 3, 1), torch.rand(1, 3, 1), xt, n=2).shape
    torch.Size([2, 1, 21, 1])
    """
    found = model(xc, yc, xt) if prediction is None else prediction
    mean, std = found.mean, found.stddev
    sites = torch.arange(0, xt.shape[1] + every - 1, every).clamp_max(max(0, xt.shape[1] - 1)).unique()
    drawn = sample(model, xc, yc, xt[:, sites], n, method="autoregressive", order="coarse")
    z = ((drawn - mean[:, sites]) / std[:, sites]).clamp(-3, 3)
    left = torch.arange(xt.shape[1]).div(every, rounding_mode="floor").clamp_max(max(0, len(sites) - 2))
    right = (left + 1).clamp_max(len(sites) - 1)
    share = ((torch.arange(xt.shape[1]) - sites[left]) / (sites[right] - sites[left]).clamp_min(1))[:, None]
    return mean + std * ((1 - share) * z[:, :, left] + share * z[:, :, right])


def _autoregressive(model, xc, yc, xt, n, mask_c, mask_t, order) -> Float[Tensor, "n b nt dy"]:
    b, nt = xt.shape[:2]
    model.read(xc, yc, xt, mask_c, mask_t)  # complain about the caller's arguments, not about ours
    mask_c = per_entry(mask_c, yc)
    mask_t = per_entry(mask_t, yc.new_zeros(b, nt, yc.shape[-1]))
    steps = (
        _levels(nt) if order == "coarse" else (torch.randperm(nt) if order == "random" else torch.arange(nt))[:, None]
    )
    x, y, mask = (t.repeat(n, 1, 1) for t in (xc, yc, mask_c))
    out = yc.new_zeros(n * b, nt, yc.shape[-1])
    for some in steps:
        here, real = xt[:, some].repeat(n, 1, 1), mask_t[:, some].repeat(n, 1, 1)
        drawn = _at_once(model(x, y, here, mask, real))
        out[:, some] = drawn
        x, y, mask = torch.cat([x, here], 1), torch.cat([y, drawn], 1), torch.cat([mask, real], 1)
    return out.view(n, b, nt, yc.shape[-1])


def _levels(nt: int) -> list[Int64[Tensor, "_"]]:
    """Numbers that are multiples of eight, of the others those of four, and so on.

    >>> [level.tolist() for level in _levels(10)]
    [[0, 8], [4], [2, 6], [1, 3, 5, 7, 9]]
    """
    number, levels, step = torch.arange(nt), [], _COARSEST
    while step:
        level = number[number % step == 0] if step == _COARSEST else number[number % (2 * step) == step]
        levels += [level] if len(level) else []
        step //= 2
    return levels


def _at_once(distribution) -> Float[Tensor, "b k dy"]:
    marginals = getattr(distribution, "marginals", distribution)  # of an autoregressive model, which has no others here
    return marginals.sample()
