"""Gaussian processes whose hyperparameters are fitted to each series: those of scikit-learn and of GPyTorch.

All are given places between 0 and 1 and values of deviation one, which is what their usual starting points are for.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.predictive import GaussianMixture
from fillin_studies.fill.lines import FLOOR, normal, spread
from fillin_studies.fill.season import period

_MOST = 1000  # points that hyperparameters are fitted to; all that are known are conditioned on
_STEPS, _RATE = 100, 0.1  # of Adam


def rbf(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], asked: Float[ndarray, "m dx"]) -> GaussianMixture:
    """σ² RBF(ℓ of each column) + white, L-BFGS from the usual start and once more from elsewhere."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    lengths = RBF([0.1] * x.shape[1], (1e-3, 1e2))
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * lengths + WhiteKernel(0.1, (1e-6, 1e1))
    return _scikit([kernel], x, y, asked, restarts=1)


def composed(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 1"]) -> GaussianMixture:
    """Trend (a long RBF) + periodic + rational quadratic + white, from one start, as most people fit it. The period
    starts at the strongest of the periodogram: from anywhere else L-BFGS hardly ever finds it."""
    return _composed(x, y, asked, (0.1,))


def composed_twice(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 1"]) -> GaussianMixture:
    """The same, with the noise starting at a tenth and at a hundredth of the variance: from the first alone a weak
    season may end as noise, from the second alone noise as a function."""
    return _composed(x, y, asked, (0.1, 0.01))


def _composed(x, y, asked, starts: Sequence[float]) -> GaussianMixture:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, RationalQuadratic, WhiteKernel

    length = (period(x[:, 0], y) or np.ptp(x) / 4 or 1.0) / (np.ptp(x) or 1.0)
    kernel = (
        ConstantKernel(1.0, (1e-3, 1e3)) * RBF(1.0, (0.1, 1e2))
        + ConstantKernel(1.0, (1e-3, 1e3)) * ExpSineSquared(1.0, length, (1e-1, 1e2), (length / 2, 2 * length))
        + ConstantKernel(0.1, (1e-3, 1e3)) * RationalQuadratic(0.1, 1.0, (1e-3, 1e1), (1e-2, 1e3))
    )
    return _scikit([kernel + WhiteKernel(noise, (1e-6, 1e1)) for noise in starts], x, y, asked, restarts=0)


def _scikit(kernels: Sequence, x, y, asked, restarts: int) -> GaussianMixture:
    """The best of several starts by its marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    u, v, w, mean, size = _standard(x, y, asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a hyperparameter is at its bound, or L-BFGS at its last step
        some = np.random.default_rng(0).permutation(len(u))[:_MOST]
        starts = [
            GaussianProcessRegressor(kernel, alpha=1e-9, n_restarts_optimizer=restarts, random_state=0)
            for kernel in kernels
        ]
        fitted = max((one.fit(u[some], v[some]) for one in starts), key=lambda one: one.log_marginal_likelihood_value_)
        if len(some) < len(u):
            fitted = GaussianProcessRegressor(fitted.kernel_, alpha=1e-9, optimizer=None).fit(u, v)  # type: ignore[arg-type]
        found, deviation = fitted.predict(w, return_std=True)
    return normal(mean + size * found, size * np.maximum(deviation, FLOOR))


def gpytorch_rbf(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], asked: Float[ndarray, "m dx"]) -> GaussianMixture:
    from gpytorch.kernels import RBFKernel

    return _gpytorch(RBFKernel, x, y, asked)


def gpytorch_matern(
    x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], asked: Float[ndarray, "m dx"]
) -> GaussianMixture:
    from gpytorch.kernels import MaternKernel

    return _gpytorch(lambda: MaternKernel(nu=2.5), x, y, asked)


def _gpytorch(make: Callable, x, y, asked) -> GaussianMixture:
    """An exact GP with a constant mean; its marginal likelihood by Adam."""
    import gpytorch
    import torch

    u, v, w, mean, size = _standard(x, y, asked)
    inputs, values, places = (torch.from_numpy(np.ascontiguousarray(part)) for part in (u, v, w))

    likelihood, kernel = gpytorch.likelihoods.GaussianLikelihood(), gpytorch.kernels.ScaleKernel(make())
    likelihood.initialize(noise=0.1)
    kernel.base_kernel.initialize(lengthscale=0.1)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(inputs, values, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), kernel

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jitter that was added
        model = Exact().double()
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        adam = torch.optim.Adam(model.parameters(), _RATE)
        for _ in range(_STEPS):
            adam.zero_grad()
            loss = -bound(model(inputs), values)  # type: ignore[operator]
            loss.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            found = likelihood(model(places))
            deviation = found.variance.clamp_min(FLOOR**2).sqrt()
    return normal(mean + size * found.mean.numpy(), size * deviation.numpy())


def _standard(x, y, asked):
    """x and asked in units of the width of x, y of mean 0 and deviation 1; and that mean and deviation."""
    width = np.ptp(x, 0)
    unit = np.where(width > 0, width, 1)
    low, mean, size = x.min(0), float(y.mean()), spread(y)
    return (x - low) / unit, (y - mean) / size, (asked - low) / unit, mean, size
