"""Exact Gaussian process beside which the page shows the learned models of curves."""

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal

from fillin.data.kernels import RBFKernel
from fillin.gp import GPPosterior, add_noise
from fillin.heads import JointGaussian

LENGTH_SCALES = tuple(0.08 * 1.32**i for i in range(12))  # 0.08 … 1.7
AMPLITUDES = 0.3, 0.6, 1.2
NOISE_STDS = 0.005, 0.02, 0.08, 0.3
_JITTER_VARIANCE = 1e-8  # or rounding makes the posterior covariance indefinite


class ExactGP:
    """Gaussian process y = f(x) + noise, f ~ GP(0, amplitude² exp(−½ r²/length²)).

    Length scale, amplitude and noise maximise the marginal likelihood over a grid; the posterior is exact (Rasmussen &
    Williams 2006, eq. 2.22–2.24 and 2.30). A call, `ExactGP()(xc, yc, xt)`, is that of a neural process: it returns the
    joint predictive distribution at the targets, noise included.

    >>> x = torch.linspace(-1, 1, 9).view(1, 9, 1)
    >>> prediction = ExactGP()(x, torch.sin(3 * x), x[:, :3] + 0.1)
    >>> prediction.mean.shape, bool((prediction.mean - torch.sin(3 * x[:, :3] + 0.3)).abs().max() < 0.05)
    (torch.Size([1, 3, 1]), True)
    """

    kernel = RBFKernel()

    def __call__(
        self, xc: Float[Tensor, "1 nc 1"], yc: Float[Tensor, "1 nc 1"], xt: Float[Tensor, "1 nt 1"]
    ) -> JointGaussian:
        mean, covariance, noise = self.posterior(xc, yc, xt)
        covariance.diagonal().add_(noise**2)
        normal = MultivariateNormal(mean[None], covariance[None], validate_args=False)
        return JointGaussian(normal, (xt.shape[1], 1), None)

    def sample(self, n: int, xc: Tensor, yc: Tensor, xt: Tensor) -> Float[Tensor, "n 1 nt 1"]:
        """Draw n noise-free functions with torch's random state."""
        mean, covariance, _ = self.posterior(xc, yc, xt)
        normal = torch.randn(n, len(mean), dtype=mean.dtype)
        return (mean + normal @ torch.linalg.cholesky(covariance).mT)[:, None, :, None]

    def posterior(self, xc: Tensor, yc: Tensor, xt: Tensor) -> tuple[Tensor, Tensor, float]:
        """Mean [nt] and covariance [nt nt] of f at xt, and the standard deviation of the noise."""
        x, y, targets = xc[0].double(), yc[0].double(), xt[0].double()
        theta, noise = self.fit(x, y)
        posterior = GPPosterior.condition(self.kernel(x, x, theta), noise**2, y)
        prior = self.kernel(targets, targets, theta)
        mean, covariance = posterior.predict_jointly(self.kernel(x, targets, theta), prior)
        return mean[:, 0], add_noise(covariance, _JITTER_VARIANCE), float(noise)

    def weights(self, xc: Tensor, yc: Tensor, xt: Tensor) -> Float[Tensor, "nt nc"]:
        """Weight of each context point in the mean: w = k(x, X) (K + noise² I)⁻¹."""
        x, y, targets = xc[0].double(), yc[0].double(), xt[0].double()
        theta, noise = self.fit(x, y)
        return GPPosterior.condition(self.kernel(x, x, theta), noise**2, y).weights(self.kernel(x, targets, theta))

    def fit(self, x: Float[Tensor, "n 1"], y: Float[Tensor, "n 1"]) -> tuple[Float[Tensor, "2"], Tensor]:
        """(length scale, amplitude) and noise that maximise the marginal likelihood; defaults for no data."""
        return self._fit(tuple(x[:, 0].tolist()), tuple(y[:, 0].tolist()))

    @lru_cache(maxsize=8)  # noqa: B019 (the class has no state of its own)
    def _fit(self, x_values: tuple[float, ...], y_values: tuple[float, ...]) -> tuple[Tensor, Tensor]:
        x, y = (torch.tensor(values, dtype=torch.float64)[:, None] for values in (x_values, y_values))
        if not len(x):
            return torch.tensor([0.35, 0.5], dtype=x.dtype), torch.tensor(0.02, dtype=x.dtype)
        likelihoods = self.log_marginal_likelihoods(x, y)
        length, amplitude, noise = (int(i) for i in torch.unravel_index(likelihoods.argmax(), likelihoods.shape))
        return x.new_tensor([LENGTH_SCALES[length], AMPLITUDES[amplitude]]), x.new_tensor(NOISE_STDS[noise])

    def log_marginal_likelihoods(
        self, x: Float[Tensor, "n 1"], y: Float[Tensor, "n 1"]
    ) -> Float[Tensor, "lengths amplitudes noises"]:
        """ln p(y | x) over the grid, with one eigendecomposition K = U diag(λ) Uᵀ per length scale.

        The variances along U are v = amplitude² λ + noise², and ln p = −½ Σ [(Uᵀy)²/v + ln 2πv].
        """
        lengths, amplitudes, noises = (
            torch.tensor(axis, dtype=x.dtype) for axis in (LENGTH_SCALES, AMPLITUDES, NOISE_STDS)
        )
        correlation = self.kernel.correlation(x[None], x[None], lengths[:, None, None])
        eigenvalues, eigenvectors = torch.linalg.eigh(correlation)
        v = (amplitudes**2)[:, None, None] * eigenvalues.clamp_min(0)[:, None, None] + (noises**2)[:, None]
        squares = (eigenvectors.mT @ y).mT[:, None].square()
        return -0.5 * (squares / v + (2 * math.pi * v).log()).sum(-1)
