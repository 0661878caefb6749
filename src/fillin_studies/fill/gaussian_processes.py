"""Gaussian processes of scikit-learn and GPyTorch, with hyperparameters fitted to each series.

Inputs are scaled to [0, 1] and values to standard deviation one, for which the usual starting points are meant.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.predictive import GaussianMixture
from fillin_studies.fill.interpolation import MIN_STD, find_period, make_normal, robust_std

_MAX_FITTED_POINTS = 1000  # for hyperparameters; the process is conditioned on all points
_ADAM_STEPS, _ADAM_RATE = 100, 0.1


def predict_rbf(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], xt: Float[ndarray, "m dx"]) -> GaussianMixture:
    """σ² RBF(ℓ of each column) + white noise, by L-BFGS from the usual start and from one random start."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    lengths = RBF([0.1] * x.shape[1], (1e-3, 1e2))
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * lengths + WhiteKernel(0.1, (1e-6, 1e1))
    return _predict_sklearn([kernel], x, y, xt, restarts=1)


def predict_composed(
    x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"], noises: Sequence[float] = (0.1,)
) -> GaussianMixture:
    """Trend (a long RBF) + periodic + rational quadratic + white noise, from a start for each initial noise variance.

    The period starts at the peak of the periodogram: from other starts L-BFGS hardly ever finds it.
    """
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, RationalQuadratic, WhiteKernel

    period = (find_period(x[:, 0], y) or np.ptp(x) / 4 or 1.0) / (np.ptp(x) or 1.0)
    kernel = (
        ConstantKernel(1.0, (1e-3, 1e3)) * RBF(1.0, (0.1, 1e2))
        + ConstantKernel(1.0, (1e-3, 1e3)) * ExpSineSquared(1.0, period, (1e-1, 1e2), (period / 2, 2 * period))
        + ConstantKernel(0.1, (1e-3, 1e3)) * RationalQuadratic(0.1, 1.0, (1e-3, 1e1), (1e-2, 1e3))
    )
    return _predict_sklearn([kernel + WhiteKernel(noise, (1e-6, 1e1)) for noise in noises], x, y, xt, restarts=0)


def predict_composed_twice(
    x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]
) -> GaussianMixture:
    """The same with the noise starting at a tenth and at a hundredth of the variance.

    From the first start alone a weak season may end as noise, from the second alone noise as a function.
    """
    return predict_composed(x, y, xt, (0.1, 0.01))


def _predict_sklearn(kernels: Sequence, x, y, xt, restarts: int) -> GaussianMixture:
    """Return the prediction of the start with the highest marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    u, v, w, mean, std = _standardise(x, y, xt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hyperparameter at its bound, or L-BFGS at its last step
        rows = np.random.default_rng(0).permutation(len(u))[:_MAX_FITTED_POINTS]
        starts = [
            GaussianProcessRegressor(kernel, alpha=1e-9, n_restarts_optimizer=restarts, random_state=0)
            for kernel in kernels
        ]
        best = max((gp.fit(u[rows], v[rows]) for gp in starts), key=lambda gp: gp.log_marginal_likelihood_value_)
        if len(rows) < len(u):
            best = GaussianProcessRegressor(best.kernel_, alpha=1e-9, optimizer=None).fit(u, v)  # type: ignore[arg-type]
        predicted, predicted_std = best.predict(w, return_std=True)
    return make_normal(mean + std * predicted, std * np.maximum(predicted_std, MIN_STD))


def predict_gpytorch_rbf(
    x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], xt: Float[ndarray, "m dx"]
) -> GaussianMixture:
    from gpytorch.kernels import RBFKernel

    return _predict_gpytorch(RBFKernel, x, y, xt)


def predict_gpytorch_matern(
    x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], xt: Float[ndarray, "m dx"]
) -> GaussianMixture:
    from gpytorch.kernels import MaternKernel

    return _predict_gpytorch(lambda: MaternKernel(nu=2.5), x, y, xt)


def _predict_gpytorch(make_kernel: Callable, x, y, xt) -> GaussianMixture:
    """An exact GP with a constant mean; marginal likelihood by Adam."""
    import gpytorch
    import torch

    u, v, w, mean, std = _standardise(x, y, xt)
    inputs, values, targets = (torch.from_numpy(np.ascontiguousarray(part)) for part in (u, v, w))

    likelihood, kernel = gpytorch.likelihoods.GaussianLikelihood(), gpytorch.kernels.ScaleKernel(make_kernel())
    likelihood.initialize(noise=0.1)
    kernel.base_kernel.initialize(lengthscale=0.1)

    class ConstantMeanGP(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(inputs, values, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), kernel

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # added jitter
        model = ConstantMeanGP().double()
        marginal_likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        adam = torch.optim.Adam(model.parameters(), _ADAM_RATE)
        for _ in range(_ADAM_STEPS):
            adam.zero_grad()
            loss = -marginal_likelihood(model(inputs), values)  # type: ignore[operator]
            loss.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            predicted = likelihood(model(targets))
            predicted_std = predicted.variance.clamp_min(MIN_STD**2).sqrt()
    return make_normal(mean + std * predicted.mean.numpy(), std * predicted_std.numpy())


def _standardise(x, y, xt):
    """Return x and xt in units of the width of x, y with mean 0 and standard deviation 1, and that mean and std."""
    width = np.ptp(x, 0)
    unit = np.where(width > 0, width, 1)
    low, mean, std = x.min(0), float(y.mean()), robust_std(y)
    return (x - low) / unit, (y - mean) / std, (xt - low) / unit, mean, std
