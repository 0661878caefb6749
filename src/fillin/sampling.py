"""Coherent function samples: targets are drawn jointly."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution

from fillin.errors import InputError, choose
from fillin.heads import marginal_of
from fillin.models.base import LatentProcess, Process, per_entry


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
    """Draw n function samples at xt, from torch's random state.

    Parameters
    ----------
    model : Process
        The model.
    xc : Tensor of shape (b, nc, dx)
        Locations of the context.
    yc : Tensor of shape (b, nc, dy)
        Observed values of the context.
    xt : Tensor of shape (b, nt, dx)
        Locations of the targets.
    n : int, default=1
        Number of samples.
    mask_c : Tensor of shape (b, nc) or (b, nc, dy), optional
        True where a context value is present.
    mask_t : Tensor of shape (b, nt) or (b, nt, dy), optional
        True where a target is present.
    method : {"auto", "model", "autoregressive"}, default="auto"
        "model" samples the joint distribution of the model: a latent variable (a new one for each sample), a joint
        Gaussian, or (TNP-A, a buffer, incTNP) one target after another in the given order, with cached keys and values.
        "autoregressive" works for every model: it draws a target, adds it to the context, which is encoded again, and
        goes on. "auto" takes "model" where the model has it.
    order : {"random", "given"}, default="random"
        The order of targets of "autoregressive".

    Returns
    -------
    Tensor of shape (n, b, nt, dy)
        The samples, coherent between targets.

    Examples
    --------
    >>> import torch
    >>> import fillin
    >>> model = fillin.create("cnp", size="small")
    >>> fillin.sample(model, torch.rand(1, 3, 1), torch.rand(1, 3, 1), torch.rand(1, 4, 1), n=2).shape
    torch.Size([2, 1, 4, 1])
    """
    choose("method", method, ["auto", "model", "autoregressive"])
    choose("order", order, ["random", "given"])
    if n < 1:
        raise InputError(f"sample: n must be at least 1, got {n}")
    joint = model.kind != "marginal"
    if method == "model" and not joint:
        raise InputError("sample: this model predicts each target separately; use method='autoregressive'")
    if isinstance(model, LatentProcess) and method != "autoregressive":
        return model.draw(n, xc, yc, xt, mask_c, mask_t)
    if joint and method != "autoregressive":
        return model(xc, yc, xt, mask_c, mask_t).sample(torch.Size([n]))
    return _autoregressive(model, xc, yc, xt, n, mask_c, mask_t, order)


@torch.no_grad()
def sample_curve(
    model: Process,
    xc: Float[Tensor, "1 nc dx"],
    yc: Float[Tensor, "1 nc dy"],
    xt: Float[Tensor, "1 nt dx"],
    n: int = 1,
    every: int = 6,
    prediction: Distribution | None = None,
) -> Float[Tensor, "n 1 nt dy"]:
    """Draw n function samples at targets along a line, in three passes of any model with a marginal std.

    Of every `every`-th target each fourth is drawn first, then those halfway between given these, then those halfway
    between again: autoregression of many targets at a time, coherent where targets 4 · `every` apart are nearly
    independent. All others are mean + std · z, where z = (y − mean)/std is interpolated smoothly. `prediction` is
    model(xc, yc, xt), where it is already computed.

    >>> model = __import__("fillin").create("cnp", size="small")
    >>> xt = torch.linspace(-1, 1, 25).view(1, 25, 1)
    >>> sample_curve(model, torch.rand(1, 3, 1), torch.rand(1, 3, 1), xt, n=2).shape
    torch.Size([2, 1, 25, 1])
    """
    marginals = model(xc, yc, xt) if prediction is None else prediction
    mean, std = marginals.mean, marginals.stddev
    last = xt.shape[1] - 1
    sites = torch.arange(0, last + every, every).clamp_max(last)
    z = mean.new_zeros(n, len(sites), mean.shape[-1])
    x, y = xc.repeat(n, 1, 1), yc.repeat(n, 1, 1)
    for step, first in ((4, 0), (4, 2), (2, 1)):
        level = torch.arange(len(sites))[first::step]
        index = sites[level]
        here, marginal = xt[:, index].repeat(n, 1, 1), (mean[:, index], std[:, index])
        if first and len(level):
            conditional = model(x, y, here)
            marginal = conditional.mean, conditional.stddev
        drawn = marginal[0] + marginal[1] * torch.randn(n, len(level), mean.shape[-1])
        x, y = torch.cat([x, here], 1), torch.cat([y, drawn], 1)
        z[:, level] = ((drawn - mean[:, index]) / std[:, index]).clamp(-3, 3)
    left = (torch.arange(last + 1) // every).clamp_max(len(sites) - 1)
    right = (left + 1).clamp_max(len(sites) - 1)
    weight = ((torch.arange(last + 1) - sites[left]) / (sites[right] - sites[left]).clamp_min(1))[:, None]
    weight = weight.square() * (3 - 2 * weight)
    return (mean + std * ((1 - weight) * z[:, left] + weight * z[:, right]))[:, None]


def _autoregressive(model, xc, yc, xt, n, mask_c, mask_t, order) -> Float[Tensor, "n b nt dy"]:
    b, nt = xt.shape[:2]
    model.read(xc, yc, xt, mask_c, mask_t)  # errors name the caller's arguments
    mask_c = per_entry(mask_c, yc)
    mask_t = per_entry(mask_t, yc.new_zeros(b, nt, yc.shape[-1]))
    steps = torch.randperm(nt) if order == "random" else torch.arange(nt)
    x, y, mask = (t.repeat(n, 1, 1) for t in (xc, yc, mask_c))
    out = yc.new_zeros(n * b, nt, yc.shape[-1])
    for i in steps.tolist():
        here, valid = xt[:, i : i + 1].repeat(n, 1, 1), mask_t[:, i : i + 1].repeat(n, 1, 1)
        distribution = model(x, y, here, mask, valid)  # of a single target, where joint and marginal agree
        drawn = marginal_of(distribution).sample()
        out[:, i : i + 1] = drawn
        x, y, mask = torch.cat([x, here], 1), torch.cat([y, drawn], 1), torch.cat([mask, valid], 1)
    return out.view(n, b, nt, yc.shape[-1])
