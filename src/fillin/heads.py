"""Heads: map features at the targets to a predictive distribution.

A marginal head returns distributions of batch [b nt dy]; a joint head of batch [b] over events [nt dy]. `keep` marks
the valid target entries; joint distributions exclude the others from their likelihood.
"""

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
)
from torch.nn.functional import softplus

from fillin.linear import LinearLayer

if TYPE_CHECKING:
    from fillin import predictive

Features = Float[Tensor, "*b nt c"]
Keep = Bool[Tensor, "b nt dy"]


class MarginalHead(nn.Module):
    joint = False  # it predicts every target entry on its own
    separates_noise = False  # whether it also predicts the latent function


class GaussianHead(MarginalHead):
    """Normal(μ, σ) with σ = floor + softplus(s)."""

    def __init__(self, dim: int, dim_y: int, floor: float = 1e-3):
        super().__init__()
        self.out, self.floor = LinearLayer(dim, 2 * dim_y), floor

    def forward(self, features: Features, keep: Keep | None = None) -> Normal:
        mean, raw = self.out(features).chunk(2, -1)
        return Normal(mean, self.floor + softplus(raw), validate_args=False)


class MixtureHead(MarginalHead):
    """Σ_k π_k Normal(μ_k, σ_k) for each entry: predictions may be skewed and multimodal."""

    def __init__(self, dim: int, dim_y: int, components: int = 4, floor: float = 1e-3):
        super().__init__()
        self.out, self.components, self.floor = LinearLayer(dim, 3 * dim_y * components), components, floor

    @torch.no_grad()
    def spread_out(self) -> None:
        """Initialise standard deviations from 0.3 to 100, wide ones with little weight, so that no loss explodes."""
        logits, _, raw = self.out.bias.unflatten(0, (-1, 3, self.components)).unbind(-2)
        wide = torch.logspace(-0.5, 2, self.components)
        raw.copy_(wide + torch.log(-torch.expm1(-wide)))  # softplus⁻¹
        logits.copy_(-wide.log())

    def forward(self, features: Features, keep: Keep | None = None) -> MixtureSameFamily:
        return self.mixture(self.out(features).unflatten(-1, (-1, 3, self.components)))

    def mixture(self, raw: Float[Tensor, "*b 3 k"]) -> MixtureSameFamily:
        """Return the mixture of batch [*b] from logits, means and unconstrained standard deviations."""
        logits, mean, raw = raw.unbind(-2)
        parts = Normal(mean, self.floor + softplus(raw), validate_args=False)
        return MixtureSameFamily(TorchCategorical(logits=logits, validate_args=False), parts, validate_args=False)


class ObservedMixture(MixtureSameFamily):
    """Predictive distribution of an observation, and `noise_free`: that of the latent function."""

    def __init__(self, mixture: TorchCategorical, parts: Normal, noise_free: MixtureSameFamily):
        super().__init__(mixture, parts, validate_args=False)
        self.noise_free = noise_free


class ObservedHead(MarginalHead):
    """One mixture for observations and one for the latent function."""

    separates_noise = True

    def __init__(self, dim: int, dim_y: int, components: int = 4, floor: float = 1e-3):
        super().__init__()
        self.observed = MixtureHead(dim, dim_y, components, floor)
        self.clean = MixtureHead(dim, dim_y, components, floor)
        for part in (self.observed, self.clean):
            part.spread_out()

    def forward(self, features: Features, keep: Keep | None = None) -> ObservedMixture:
        mixture = self.observed(features)
        return ObservedMixture(mixture.mixture_distribution, mixture.component_distribution, self.clean(features))


def rescale(given: Distribution, location: Float[Tensor, "b nt ..."], scale: Float[Tensor, "b 1 ..."]) -> Distribution:
    """Return the distribution of location + scale·y, where y is normal or a mixture of normals."""
    if isinstance(given, Normal):
        return Normal(location + scale * given.mean, scale * given.stddev, validate_args=False)
    assert isinstance(given, MixtureSameFamily)
    normal = rescale(given.component_distribution, location[..., None], scale[..., None])
    if isinstance(given, ObservedMixture):
        return ObservedMixture(given.mixture_distribution, normal, rescale(given.noise_free, location, scale))  # type: ignore[arg-type]
    return MixtureSameFamily(given.mixture_distribution, normal, validate_args=False)


class CategoricalHead(MarginalHead):
    """One of dim_y classes; y is one-hot, the mean is the vector of probabilities."""

    def __init__(self, dim: int, dim_y: int):
        super().__init__()
        self.out = LinearLayer(dim, dim_y)

    def forward(self, features: Features, keep: Keep | None = None) -> OneHotCategorical:
        return OneHotCategorical(logits=self.out(features), validate_args=False)


class TargetDistribution(Distribution):
    """Base of distributions over all target entries of a task jointly: batch [b], event [nt dy]."""

    @property
    def arg_constraints(self):  # required by torch; parameters are checked where they are made
        return {}


class JointGaussian(TargetDistribution):
    """Joint normal over all target entries of a task: batch [b], event [nt dy].

    Wraps a torch multivariate normal over the nt·dy entries in which masked entries are independent and standard
    normal; their contribution is subtracted from the log-likelihood.
    """

    def __init__(self, normal: Distribution, shape: tuple[int, int], keep: Keep | None):
        self.normal, self.keep = normal, None if keep is None else keep.flatten(1)
        super().__init__(normal.batch_shape, torch.Size(shape), validate_args=False)

    @property
    def mean(self) -> Float[Tensor, "b nt dy"]:
        return self.normal.mean.unflatten(-1, self.event_shape)

    @property
    def variance(self) -> Float[Tensor, "b nt dy"]:
        return self.normal.variance.unflatten(-1, self.event_shape)

    @property
    def covariance_matrix(self) -> Float[Tensor, "b n n"]:
        """Covariance between the nt·dy entries, ordered by target, then by output."""
        return self.normal.covariance_matrix  # type: ignore[attr-defined]

    def rsample(self, sample_shape=()):
        return self.normal.rsample(torch.Size(sample_shape)).unflatten(-1, self.event_shape)

    def log_prob(self, value: Float[Tensor, "*s b nt dy"]) -> Float[Tensor, "*s b"]:
        value = value.flatten(-2)
        if self.keep is None:
            return self.normal.log_prob(value)
        value = torch.where(self.keep, value, self.normal.mean)
        return self.normal.log_prob(value) + 0.5 * math.log(2 * math.pi) * (~self.keep).sum(-1).to(value.dtype)


class _JointHead(nn.Module):
    """Base of joint heads: mean, std and `rank` covariance features of each target entry."""

    joint = True
    separates_noise = False

    def __init__(self, dim: int, dim_y: int, rank: int = 16, floor: float = 1e-3):
        super().__init__()
        self.rank, self.floor = rank, floor
        self.mean = LinearLayer(dim, dim_y)
        self.spread = LinearLayer(dim, dim_y * (rank + 1))

    def forward(self, features: Features, keep: Keep | None = None, spread: Features | None = None) -> JointGaussian:
        normal = self.normal(*self.parts(features, spread, keep))  # type: ignore[operator]  # of the subclass
        return JointGaussian(normal, (features.shape[-2], self.mean.out_features), keep)

    def normal(self, mean: Tensor, std: Tensor, factor: Tensor) -> Distribution:
        """Return the Gaussian over all targets of a task. Subclasses implement it."""
        raise NotImplementedError

    def parts(self, features: Features, spread: Features | None, keep: Keep | None):
        """Return mean [b n], std [b n] and features [b n r] of the n = nt·dy entries; masked ones are independent."""
        mean = self.mean(features).flatten(-2)
        raw = self.spread(features if spread is None else spread).unflatten(-1, (-1, self.rank + 1)).flatten(-3, -2)
        std, factor = self.floor + softplus(raw[..., 0]), raw[..., 1:] / math.sqrt(self.rank)
        if keep is not None:
            real = keep.flatten(1)
            std, factor = torch.where(real, std, 1), torch.where(real[..., None], factor, 0)
        return mean, std, factor


class _LowRank(LowRankMultivariateNormal):
    """Low-rank normal with a stable log density.

    torch computes xᵀ(D + HHᵀ)⁻¹x as a difference of two numbers that may be a million times as large. Here it is a sum
    of squares, of the explained part and of the residual:

        rᵀD⁻¹r + cᵀc,    c = (I + HᵀD⁻¹H)⁻¹ HᵀD⁻¹x,    r = x − Hc
    """

    def log_prob(self, value: Float[Tensor, "*s b n"]) -> Float[Tensor, "*s b"]:
        x = value - self.loc
        factor, diagonal, lower = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        projected = ((x / diagonal)[..., None, :] @ factor).mT  # HᵀD⁻¹x
        c = torch.cholesky_solve(projected, lower.expand(*projected.shape[:-2], -1, -1))
        r = x - (factor @ c)[..., 0]
        square = (r.square() / diagonal).sum(-1) + c.square().sum((-1, -2))
        log_det = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1) + diagonal.log().sum(-1)
        return -0.5 * (x.shape[-1] * math.log(2 * math.pi) + log_det + square)


class LowRankHead(_JointHead):
    """Normal(μ, diag(σ²) + H Hᵀ): permutation equivariant, with cost linear in the number of targets."""

    def normal(self, mean: Tensor, std: Tensor, factor: Tensor) -> Distribution:
        return _LowRank(mean, factor, std.square(), validate_args=False)


class CholeskyHead(_JointHead):
    """Normal(μ, L Lᵀ) with L = diag(σ) + strictly lower part of H Hᵀ. Depends on the order of the targets."""

    def normal(self, mean: Tensor, std: Tensor, factor: Tensor) -> Distribution:
        lower = (factor @ factor.mT).tril(-1) + torch.diag_embed(std)
        return MultivariateNormal(mean, scale_tril=lower, validate_args=False)


class LatentMixture(TargetDistribution):
    """(1/K) Σ_k Π_i p(y_i | z_k): batch [b], event [nt dy]. Each sample has one z, so it is a coherent function."""

    def __init__(self, given: Distribution, keep: Keep | None):
        """`given` is p(y | z_k), a marginal distribution of batch [K b nt dy]."""
        self.given, self.keep = given, keep
        shape = given.mean.shape
        super().__init__(shape[1:2], shape[2:], validate_args=False)

    @property
    def mean(self) -> Float[Tensor, "b nt dy"]:
        return self.given.mean.mean(0)

    @property
    def variance(self) -> Float[Tensor, "b nt dy"]:
        means = self.given.mean
        return self.given.variance.mean(0) + (means - means.mean(0)).square().mean(0)

    def log_prob(self, value: Float[Tensor, "*s b nt dy"]) -> Float[Tensor, "*s b"]:
        log_prob = joint_log_prob(self.given, value[..., None, :, :, :], self.keep)  # [… K b]
        return log_prob.logsumexp(-2) - math.log(log_prob.shape[-2])

    def sample(self, sample_shape=()):
        sample_shape = torch.Size(sample_shape)
        draws = self.given.sample(sample_shape)  # [… K b nt dy]
        chosen = torch.randint(len(self.given.mean), (*sample_shape, 1, *self.batch_shape, 1, 1), device=draws.device)
        index = chosen.expand(*sample_shape, 1, *self.batch_shape, *self.event_shape)
        return draws.gather(len(sample_shape), index).squeeze(len(sample_shape))


class Autoregressive(TargetDistribution):
    """Π_i p(y_i | context, y_1 … y_{i−1}) (Nguyen & Grover 2022): batch [b], event [nt dy]. Mean and variance are those
    of the marginals p(y_i | context), which do not depend on the order."""

    def __init__(self, shape: torch.Size, keep: Keep | None, marginals, conditionals, draw):
        """`marginals()` and `conditionals(y)` have batch [b nt dy]; `draw(n)` returns samples [n b nt dy]. `given(y)`
        is p(y_i | context, y_1 … y_{i−1}) for every i."""
        self.keep, self._marginals, self.given, self._draw = keep, marginals, conditionals, draw
        super().__init__(shape[:1], shape[1:], validate_args=False)

    @cached_property
    def marginals(self) -> Distribution:
        return self._marginals()

    @property
    def mean(self) -> Float[Tensor, "b nt dy"]:
        return self.marginals.mean

    @property
    def variance(self) -> Float[Tensor, "b nt dy"]:
        return self.marginals.variance

    def log_prob(self, value: Float[Tensor, "*s b nt dy"]) -> Float[Tensor, "*s b"]:
        if value.ndim > 3:  # each sample is a separate sequence
            log_probs = [self.log_prob(sample) for sample in value.flatten(0, -4)]
            return torch.stack(log_probs).unflatten(0, value.shape[:-3])
        return joint_log_prob(self.given(value), value, self.keep)

    @torch.no_grad()
    def sample(self, sample_shape=()):
        sample_shape = torch.Size(sample_shape)
        return self._draw(sample_shape.numel()).view(*sample_shape, *self.batch_shape, *self.event_shape)


def marginal_of(prediction: Distribution, noise: bool = True) -> Distribution:
    """Return the marginals of an autoregressive prediction, any other as it is; with noise=False those of the latent
    function, where the head predicts it."""
    marginal = prediction.marginals if isinstance(prediction, Autoregressive) else prediction
    return marginal.noise_free if isinstance(marginal, ObservedMixture) and not noise else marginal


def joint_log_prob(given: Distribution, value: Float[Tensor, "*s nt dy"], keep: Keep | None) -> Tensor:
    """Return ln p(y) of each task [… b]; of a marginal distribution the sum over valid target entries."""
    if len(given.event_shape) == 2:
        return given.log_prob(value)
    categorical = bool(given.event_shape)  # one probability for all entries of a target
    if keep is not None:
        value = torch.where(keep, value, 0)
    log_prob = given.log_prob(value)
    if keep is not None:
        log_prob = torch.where(keep.any(-1) if categorical else keep, log_prob, 0)
    return log_prob.sum(-1 if categorical else (-2, -1))


HEADS = {
    "gaussian": GaussianHead,
    "mixture": MixtureHead,
    "observed": ObservedHead,
    "categorical": CategoricalHead,
    "lowrank": LowRankHead,
    "cholesky": CholeskyHead,
}


def to_predictive(prediction: Distribution) -> "predictive.Predictive":
    """The marginal of every target entry as float64 arrays: a mixture [*b k], or probabilities of classes [*b k]."""
    from fillin import predictive  # with scipy, which loading a model does not need

    marginal = marginal_of(prediction)
    if isinstance(marginal, LatentMixture):
        given = to_predictive(marginal.given)  # [K b nt dy k]
        if isinstance(given, predictive.Categorical):
            return predictive.Categorical(given.probabilities.mean(0))
        arrays = (given.weights / len(given.weights), given.means, given.stds)
        weights, means, stds = (np.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], -1) for a in arrays)
        return predictive.GaussianMixture(weights, means, stds)
    if isinstance(marginal, TorchCategorical | OneHotCategorical):
        return predictive.Categorical(marginal.probs.detach().double().cpu().numpy())
    if isinstance(marginal, MixtureSameFamily):
        components, weights = marginal.component_distribution, marginal.mixture_distribution.probs
        mean, std = components.mean, components.stddev
    else:
        mean, std = marginal.mean[..., None], marginal.stddev[..., None]
        weights = torch.ones_like(mean)
    weights, mean, std = (part.detach().double().cpu().numpy() for part in (weights, mean, std))
    return predictive.GaussianMixture(weights / weights.sum(-1, keepdims=True), mean, std)  # float32 sums miss 1
