"""The exact Gaussian process that the learned models of curves are seen beside."""

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal

from fillin.data.kernels import RBFKernel
from fillin.heads import JointGaussian

_LENGTHS = tuple(0.08 * 1.32**i for i in range(12))  # 0.08 … 1.7
_SCALES = 0.3, 0.6, 1.2
_NOISES = 0.005, 0.02, 0.08, 0.3


class ExactGP:
    """y = f(x) + noise, f ~ GP(0, scale² exp(−½ r²/length²)): length, scale and noise are those of a grid under which
    what is known is likeliest, and the rest is algebra (Rasmussen & Williams, 2.22–2.24, 2.30).

    It is called as a process is: `ExactGP()(xc, yc, xt)` is joint over the targets, noise included.

    >>> x = torch.linspace(-1, 1, 9).view(1, 9, 1)
    >>> found = ExactGP()(x, torch.sin(3 * x), x[:, :3] + 0.1)
    >>> found.mean.shape, bool((found.mean - torch.sin(3 * x[:, :3] + 0.3)).abs().max() < 0.05)
    (torch.Size([1, 3, 1]), True)
    """

    kernel = RBFKernel()

    def __call__(
        self, xc: Float[Tensor, "1 nc 1"], yc: Float[Tensor, "1 nc 1"], xt: Float[Tensor, "1 nt 1"]
    ) -> JointGaussian:
        mean, covariance, noise = self.function(xc, yc, xt)
        covariance.diagonal().add_(noise**2)
        normal = MultivariateNormal(mean[None], covariance[None], validate_args=False)
        return JointGaussian(normal, (xt.shape[1], 1), None)

    def draw(self, n: int, xc: Tensor, yc: Tensor, xt: Tensor) -> Float[Tensor, "n 1 nt 1"]:
        """n functions, without the noise, from torch's random state."""
        mean, covariance, _ = self.function(xc, yc, xt)
        normal = torch.randn(n, len(mean), dtype=mean.dtype)
        return (mean + normal @ torch.linalg.cholesky(covariance).mT)[:, None, :, None]

    def function(self, xc: Tensor, yc: Tensor, xt: Tensor) -> tuple[Tensor, Tensor, float]:
        """Mean [nt] and covariance [nt nt] of f itself at xt, and the noise around it."""
        x, y, at = xc[0].double(), yc[0].double(), xt[0].double()
        theta, noise = self.likeliest(x, y)
        factor = torch.linalg.cholesky(_noisy(self.kernel(x, x, theta), noise))
        across = torch.linalg.solve_triangular(factor, self.kernel(x, at, theta), upper=False)
        white = torch.linalg.solve_triangular(factor, y, upper=False)
        covariance = _noisy(self.kernel(at, at, theta) - across.mT @ across, 1e-4)  # or rounding makes it indefinite
        return (across.mT @ white)[:, 0], covariance, float(noise)

    def weights(self, xc: Tensor, yc: Tensor, xt: Tensor) -> Float[Tensor, "nt nc"]:
        """How much each known point counts in the mean: w = k(x, X) (K + noise² I)⁻¹."""
        x, at = xc[0].double(), xt[0].double()
        theta, noise = self.likeliest(x, yc[0].double())
        return torch.linalg.solve(_noisy(self.kernel(x, x, theta), noise), self.kernel(x, at, theta)).mT

    def likeliest(self, x: Float[Tensor, "n 1"], y: Float[Tensor, "n 1"]) -> tuple[Float[Tensor, "2"], Tensor]:
        """(length, scale) and noise of the grid with the largest ln p(y | x); their middle where nothing is known."""
        return self._likeliest(tuple(x[:, 0].tolist()), tuple(y[:, 0].tolist()))

    @lru_cache(maxsize=8)  # noqa: B019 (the class has no state of its own)
    def _likeliest(self, places: tuple[float, ...], values: tuple[float, ...]) -> tuple[Tensor, Tensor]:
        x, y = (torch.tensor(column, dtype=torch.float64)[:, None] for column in (places, values))
        if not len(x):
            return torch.tensor([0.35, 0.5], dtype=x.dtype), torch.tensor(0.02, dtype=x.dtype)
        likelihood = self.likelihoods(x, y)
        length, scale, noise = (int(i) for i in torch.unravel_index(likelihood.argmax(), likelihood.shape))
        return x.new_tensor([_LENGTHS[length], _SCALES[scale]]), x.new_tensor(_NOISES[noise])

    def likelihoods(self, x: Float[Tensor, "n 1"], y: Float[Tensor, "n 1"]) -> Float[Tensor, "lengths scales noises"]:
        """ln p(y | x) all over the grid. Of each length there is one decomposition, K = U diag(λ) Uᵀ: with scale and
        noise the variances along U are v = scale² λ + noise², and ln p = −½ Σ [(Uᵀy)²/v + ln 2πv].
        """
        length, scale, noise = (torch.tensor(axis, dtype=x.dtype) for axis in (_LENGTHS, _SCALES, _NOISES))
        alike = self.kernel.correlation(x[None], x[None], length[:, None, None])
        along, axes = torch.linalg.eigh(alike)
        v = (scale**2)[:, None, None] * along.clamp_min(0)[:, None, None] + (noise**2)[:, None]
        square = (axes.mT @ y).mT[:, None].square()
        return -0.5 * (square / v + (2 * math.pi * v).log()).sum(-1)


def _noisy(gram: Float[Tensor, "*b n n"], noise: Tensor | float) -> Float[Tensor, "*b n n"]:
    gram = gram.clone()
    gram.diagonal(dim1=-2, dim2=-1).add_(noise**2)
    return gram
