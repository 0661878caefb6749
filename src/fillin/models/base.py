"""Base of neural processes: an encoder of the context, a decoder at the targets, and a head."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal, kl_divergence
from torch.nn.functional import softplus

from fillin.errors import InputError, choose
from fillin.heads import HEADS, LatentMixture, joint_log_prob
from fillin.models.points import Points, Targets, origin, read

MaskC = Bool[Tensor, "b nc"] | Bool[Tensor, "b nc dy"] | None
MaskT = Bool[Tensor, "b nt"] | Bool[Tensor, "b nt dy"] | None


class Process(nn.Module, ABC):
    """Neural process: `model(xc, yc, xt)` returns the predictive distribution of yt.

    `kind` of the distribution is "marginal", "joint", "latent" or "autoregressive" (see NOTATION.md). An `equivariant`
    model sees locations relative to the context only. `dim_x` is None where any number is allowed. A subclass
    names its options in its constructor and passes the others on; those that remain here are options of the head, which
    reads `features` (0: `width`) numbers at each target.
    """

    kind = "marginal"
    equivariant = False

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
