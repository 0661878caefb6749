"""Base of neural processes: an encoder of the context, a decoder at the targets, and a head.

Context and target points are checked once: afterwards there are no NaNs, wrong shapes or bad padding.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal, kl_divergence
from torch.nn.functional import softplus

from fillin.errors import InputError, InputTypeError, choose
from fillin.heads import HEADS, LatentMixture, joint_log_prob

MaskC = Bool[Tensor, "b nc"] | Bool[Tensor, "b nc dy"] | None
MaskT = Bool[Tensor, "b nt"] | Bool[Tensor, "b nt dy"] | None


@dataclass(frozen=True)
class Points:
    """Locations, values (0 where missing), the mask of observed values, and the mask of valid points (None: all)."""

    x: Float[Tensor, "b n dx"]
    y: Float[Tensor, "b n dy"]
    observed: Bool[Tensor, "b n dy"]
    keep: Bool[Tensor, "b n"] | None
    error: Float[Tensor, "b n dy"] | None = None  # known standard deviation of each value, 0 where unknown

    def __len__(self) -> int:
        return self.x.shape[1]

    @property
    def values_and_flags(self) -> Float[Tensor, "b n _"]:
        """[y, flag]: the value of each output and whether it is observed. All zeros at a target."""
        return torch.cat([self.y, self.observed.to(self.y.dtype)], -1)

    def relative_to(self, start: Float[Tensor, "b 1 dx"]) -> "Points":
        return replace(self, x=_shift(self.x, start, self.keep))

    def join(self, other: "Points") -> "Points":
        keep = None if self.keep is None and other.keep is None else torch.cat([self.valid, other.valid], 1)
        x, y, observed = (torch.cat([getattr(self, f), getattr(other, f)], 1) for f in ("x", "y", "observed"))
        if self.error is None and other.error is None:
            return Points(x, y, observed, keep)
        errors = [torch.zeros_like(p.y) if p.error is None else p.error for p in (self, other)]
        return Points(x, y, observed, keep, torch.cat(errors, 1))

    @property
    def valid(self) -> Bool[Tensor, "b n"]:
        return torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device) if self.keep is None else self.keep


@dataclass(frozen=True)
class Targets:
    """Locations to predict at, and the mask of requested entries (None: all)."""

    x: Float[Tensor, "b nt dx"]
    keep: Bool[Tensor, "b nt dy"] | None

    @property
    def valid(self) -> Bool[Tensor, "b nt"] | None:
        return None if self.keep is None else self.keep.any(-1)

    def relative_to(self, start: Float[Tensor, "b 1 dx"]) -> "Targets":
        return replace(self, x=_shift(self.x, start, self.valid))

    def with_values(self, y: Float[Tensor, "b nt dy"]) -> Points:
        """Return the same points with observed values."""
        observed = torch.ones_like(y, dtype=torch.bool) if self.keep is None else self.keep
        return Points(self.x, torch.where(observed, y, 0), observed, self.valid)

    def without_values(self, dim_y: int) -> Points:
        """Return the same points with all values missing."""
        y = self.x.new_zeros(*self.x.shape[:2], dim_y)
        return Points(self.x, y, torch.zeros_like(y, dtype=torch.bool), self.valid)


def _shift(x: Tensor, start: Tensor, keep: Tensor | None) -> Tensor:
    """Return x − start; padding stays at 0, near the other points, which keeps float32 digits where x is large."""
    return x - start if keep is None else torch.where(keep[..., None], x - start, 0)


def per_entry(mask: Tensor | None, y: Float[Tensor, "b n dy"]) -> Bool[Tensor, "b n dy"]:
    """Expand a mask over points, over entries, or None to a mask over entries."""
    if mask is None:
        return torch.ones_like(y, dtype=torch.bool)
    return mask if mask.ndim == 3 else mask[..., None].expand(y.shape)


def check_values(yt, xt: Tensor, mask_t: Tensor | None, dim_y: int) -> None:
    """Raise an error unless yt fits the targets and is finite wherever it is requested."""
    shape = (xt.shape[0], xt.shape[1], dim_y)
    if isinstance(yt, Tensor) and yt.is_floating_point() and tuple(yt.shape) != shape:
        raise InputError(f"yt has shape {tuple(yt.shape)}, expected {shape} to fit xt and dim_y={dim_y}")
    _check_tensor("yt", yt, "b nt dim_y", xt.dtype, "xt")
    _finite("yt", yt, _mask("mask_t", mask_t, shape), "missing values are masked with mask_t")


def _check_tensor(name: str, tensor, letters: str, dtype: torch.dtype, other: str) -> None:
    if not isinstance(tensor, Tensor):
        raise InputTypeError(
            f"{name} must be a floating-point tensor, got {type(tensor).__name__}; use torch.as_tensor({name}).float()"
        )
    if not tensor.is_floating_point():
        raise InputTypeError(f"{name} must be a floating-point tensor, got {tensor.dtype}; use {name}.float()")
    if tensor.dtype != dtype:
        raise InputTypeError(f"{name} is {tensor.dtype} but {other} is {dtype}; convert one of them")
    if tensor.ndim != 3:
        shape = tuple(tensor.shape)
        raise InputError(f"{name} must be [{letters}], got {shape}; one task has b = 1, one column a last axis of 1")


def read(xc, yc, xt, mask_c, mask_t, dim_x: int | None, dim_y: int, dtype: torch.dtype) -> tuple[Points, Targets]:
    """Check the arguments of a model and return context and targets."""
    for name, tensor, letters in (("xc", xc, "b nc dim_x"), ("yc", yc, "b nc dim_y"), ("xt", xt, "b nt dim_x")):
        _check_tensor(name, tensor, letters, dtype, "the model")
    for name, tensor, dim, size in (("xc", xc, "dim_x", dim_x), ("xt", xt, "dim_x", dim_x), ("yc", yc, "dim_y", dim_y)):
        if size is not None and tensor.shape[-1] != size:
            raise InputError(f"{name} has {tensor.shape[-1]} columns, but the model was made with {dim}={size}")
    if xc.shape[-1] != xt.shape[-1]:
        raise InputError(f"xc has {xc.shape[-1]} columns and xt {xt.shape[-1]}; both need the same number of columns")
    if xc.shape[:2] != yc.shape[:2]:
        raise InputError(f"xc {tuple(xc.shape)} and yc {tuple(yc.shape)} must agree in batch and number of points")
    if len(xc) != len(xt):
        raise InputError(f"xc has a batch of {len(xc)} tasks, xt of {len(xt)}; both need the same number of tasks")

    observed = _mask("mask_c", mask_c, (*xc.shape[:2], dim_y))
    keep = None if observed is None else observed.any(-1)
    requested = _mask("mask_t", mask_t, (*xt.shape[:2], dim_y))
    _finite("xc", xc, keep, "drop those points or mask them with mask_c")
    _finite("xt", xt, None if requested is None else requested.any(-1), "drop those points or mask them with mask_t")
    _finite("yc", yc, observed, "missing values are masked with mask_c [b nc dim_y], False where missing")
    if keep is not None:
        xc = torch.where(keep[..., None], xc, 0)
    if requested is not None:
        xt = torch.where(requested.any(-1)[..., None], xt, 0)
    if observed is None:
        observed = torch.ones_like(yc, dtype=torch.bool)
    return Points(xc, torch.where(observed, yc, 0), observed, keep), Targets(xt, requested)


def origin(context: Points, targets: Targets | None = None) -> Float[Tensor, "b 1 dx"]:
    """Return the smallest location of each task's context (of its targets without a context; 0 without both). Relative
    to it a shift of all locations cancels to the last bit of x."""
    smallest = context.x.new_full((len(context.x), 1, context.x.shape[-1]), torch.inf)
    for x, valid in ((context.x, context.keep), *([] if targets is None else [(targets.x, targets.valid)])):
        if x.shape[1]:
            low = (x if valid is None else torch.where(valid[..., None], x, torch.inf)).amin(1, keepdim=True)
            smallest = torch.where(smallest.isinf(), low, smallest)
    return torch.where(smallest.isinf(), 0, smallest)


def _mask(name: str, mask, shape: tuple[int, int, int]) -> Bool[Tensor, "b n dy"] | None:
    """Check a mask over points or entries and expand it to entries; None where all are True."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputTypeError(
            f"{name} must be a boolean tensor, True where a point (or entry) is present, got {kind}; "
            f"use torch.as_tensor({name}).bool()"
        )
    if tuple(mask.shape) not in (shape[:2], shape):
        raise InputError(f"{name} has shape {tuple(mask.shape)}, expected {shape[:2]} (points) or {shape} (entries)")
    if not torch.compiler.is_exporting() and mask.all():
        return None
    return mask if mask.ndim == 3 else mask[..., None].expand(shape)


def _finite(name: str, values: Tensor, mask: Tensor | None, remedy: str) -> None:
    if torch.compiler.is_compiling():
        return
    bad = ~values.isfinite()
    if mask is not None:
        bad &= mask if mask.ndim == 3 else mask[..., None]
    if bad.any():
        task, point, column = bad.nonzero()[0].tolist()
        value = values[task, point, column].item()
        raise InputError(f"{name}[{task}, {point}, {column}] is {value} ({int(bad.sum())} such in all); {remedy}")


class Process(nn.Module, ABC):
    """Neural process: `model(xc, yc, xt)` returns the predictive distribution of yt.

    `kind` of the distribution is "marginal", "joint", "latent" or "autoregressive" (see NOTATION.md). An `equivariant`
    model sees locations relative to the context only; the predictions of one of `any_units` do not depend on those of x
    and y; those of one with an `ordered_context` depend on the order of the context points. `dim_x` is None where any
    number is allowed. A subclass names its options in its constructor and passes the others on; those that remain here
    are options of the head, which reads `features` (0: `width`) numbers at each target.
    """

    kind = "marginal"
    equivariant = False
    any_units = False
    ordered_context = False

    def __init__(
        self,
        dim_x: int | None = 1,
        dim_y: int = 1,
        head: str = "gaussian",
        width: int = 128,
        features: int = 0,
        **options,
    ):
        super().__init__()
        self.config: dict[str, Any] = {}  # arguments of `create`
        self.dim_x, self.dim_y, self.width = dim_x, dim_y, width
        self.head = HEADS[choose("head", head, HEADS)](features or width, dim_y, **options)
        if self.head.joint and self.kind in ("latent", "autoregressive"):
            raise InputError(f"head={head!r} is joint; this model needs a marginal head, for example 'gaussian'")
        if self.kind == "joint" and not self.head.joint:
            raise InputError(f"head={head!r} is marginal; a *-nd model needs 'lowrank' or 'cholesky'")
        if self.head.joint:
            self.kind = "joint"

    def forward(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc dy"],
        xt: Float[Tensor, "b nt dx"],
        mask_c: MaskC = None,
        mask_t: MaskT = None,
    ) -> Distribution:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        return self.head(self.decode(self.encode(context, targets), targets), targets.keep)

    def read(self, xc, yc, xt, mask_c=None, mask_t=None) -> tuple[Points, Targets]:
        """Check the arguments; locations become relative to the context where the model is equivariant."""
        dtype = next(self.parameters()).dtype
        context, targets = read(xc, yc, xt, mask_c, mask_t, self.dim_x, self.dim_y, dtype)
        if not self.equivariant:
            return context, targets
        start = origin(context, targets)
        return context.relative_to(start), targets.relative_to(start)

    @abstractmethod
    def encode(self, context: Points, targets: Targets) -> Any:
        """Encode the context."""

    @abstractmethod
    def decode(self, encoded: Any, targets: Targets) -> Float[Tensor, "b nt c"]:
        """Return features at the targets."""


def make_posterior(raw: Tensor, dim: int) -> Normal:
    """Return q(z) from its means and unconstrained standard deviations, the two halves of `raw` along `dim`."""
    mean, std = raw.chunk(2, dim)
    return Normal(mean, 0.01 + 0.99 * softplus(std), validate_args=False)


class LatentProcess(Process):
    """Process with a latent variable z: p(yt) = E_z Π_i p(yt_i | z), one z per function.

    The predictive distribution is a mixture over `samples` latents. Their noise is drawn from `seed` and shared by all
    tasks, so that a prediction depends neither on other tasks of the batch nor on earlier calls.
    """

    kind = "latent"
    samples: int
    seed: int

    @abstractmethod
    def posterior(self, points: Points, encoded: Any) -> Normal:
        """Return q(z | points), batch [b …]."""

    @abstractmethod
    def decode_latent(self, encoded: Any, z: Float[Tensor, "k b ..."], targets: Targets) -> Float[Tensor, "k b nt c"]:
        """Return features at the targets for each of k latents."""

    def decode(self, encoded, targets):
        posterior = self.posterior(encoded.context, encoded)
        return self.decode_latent(encoded, posterior.loc + posterior.scale * self.noise(posterior, encoded), targets)

    def noise(self, posterior: Normal, encoded: Any) -> Float[Tensor, "k #b ..."]:
        """Draw K values of ε from the seed of the model, the same for every task."""
        random = torch.Generator(device=posterior.loc.device).manual_seed(self.seed)
        shape = (self.samples, 1, *posterior.loc.shape[1:])
        return torch.randn(shape, generator=random, dtype=posterior.loc.dtype, device=posterior.loc.device)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None) -> LatentMixture:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        return LatentMixture(self.head(self.decode(self.encode(context, targets), targets)), targets.keep)

    def draw(self, n: int, xc, yc, xt, mask_c=None, mask_t=None) -> Float[Tensor, "n b nt dy"]:
        """Draw n functions, each with a new z ~ q(z | context), from torch's random state."""
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        encoded = self.encode(context, targets)
        z = self.posterior(context, encoded).sample(torch.Size([n]))
        return self.head(self.decode_latent(encoded, z, targets)).sample()

    def bound(self, xc, yc, xt, yt, mask_c=None, mask_t=None, samples=1, weighted=False) -> Float[Tensor, "b"]:
        """Return a lower bound on ln p(yt | context) with z ~ q(z | context and targets), from torch's random state.

        ELBO:                E_q[ln p(yt | z)] − KL(q(z | all) ‖ q(z | context))
        importance-weighted: ln (1/K) Σ_k p(yt | z_k) q(z_k | context) / q(z_k | all)
        """
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        encoded = self.encode(context, targets)
        prior = self.posterior(context, encoded)
        posterior = self.posterior(context.join(targets.with_values(yt)), encoded)
        z = posterior.rsample(torch.Size([samples]))
        log_prob = joint_log_prob(self.head(self.decode_latent(encoded, z, targets)), yt, targets.keep)  # [k b]
        joint = [Independent(q, q.loc.ndim - 1, validate_args=False) for q in (prior, posterior)]
        if not weighted:
            return log_prob.mean(0) - kl_divergence(joint[1], joint[0])
        weights = log_prob + joint[0].log_prob(z) - joint[1].log_prob(z)
        return weights.logsumexp(0) - torch.log(torch.tensor(float(samples), dtype=weights.dtype))
