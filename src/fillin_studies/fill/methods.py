"""The methods that are compared: pretrained weights, Gaussian processes, interpolation, a seasonal naive.

A new method is one more entry of METHODS: a function from observed inputs and values, and target inputs, to a
predictive distribution.
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.filling.grid.layout import TILE_CONTEXT_CELLS, make_layout
from fillin.filling.grid.variable import Axis, Mask, Variable
from fillin.inference.context import Context
from fillin.inference.sheets import SheetContext
from fillin.models import Process, load
from fillin.models.sheet import Sheet
from fillin.predictive import GaussianMixture
from fillin.pretrained import locate, names
from fillin_studies.fill import interpolation
from fillin_studies.fill.interpolation import MIN_STD, find_period, make_normal, robust_std

_MAX_FITTED_POINTS = 1000  # for hyperparameters; the process is conditioned on all points
_ADAM_STEPS, _ADAM_RATE = 100, 0.1


def predict_rbf(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], xt: Float[ndarray, "m dx"]) -> GaussianMixture:
    """σ² RBF(ℓ of each column) + white noise, by L-BFGS from the usual start and from one random start."""
    return _predict_sklearn([make_rbf(x)], x, y, xt, restarts=1)


def make_rbf(x: Float[ndarray, "n dx"], length: float = 0.1) -> Any:
    """Return the kernel of scikit-learn with its initial hyperparameters, for x in units of its width."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    lengths = RBF([length] * x.shape[1], (1e-3, 1e2))
    return ConstantKernel(1.0, (1e-3, 1e3)) * lengths + WhiteKernel(0.1, (1e-6, 1e1))


def predict_composed(
    x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"], noises: Sequence[float] = (0.1,)
) -> GaussianMixture:
    """Trend (a long RBF) + periodic + rational quadratic + white noise, from a start for each initial noise variance,
    and from the peak of the periodogram: from other starts L-BFGS hardly ever finds the period."""
    return _predict_sklearn([compose_kernel(x, y, noise) for noise in noises], x, y, xt, restarts=0)


def compose_kernel(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], noise: float) -> Any:
    """Return the composed kernel of scikit-learn with its initial hyperparameters, for x in units of its width."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, RationalQuadratic, WhiteKernel

    period = (find_period(x[:, 0], y) or np.ptp(x) / 4 or 1.0) / (np.ptp(x) or 1.0)
    return (
        ConstantKernel(1.0, (1e-3, 1e3)) * RBF(1.0, (0.1, 1e2))
        + ConstantKernel(1.0, (1e-3, 1e3)) * ExpSineSquared(1.0, period, (1e-1, 1e2), (period / 2, 2 * period))
        + ConstantKernel(0.1, (1e-3, 1e3)) * RationalQuadratic(0.1, 1.0, (1e-3, 1e1), (1e-2, 1e3))
        + WhiteKernel(noise, (1e-6, 1e1))
    )


def _predict_sklearn(kernels: Sequence, x, y, xt, restarts: int) -> GaussianMixture:
    """Return the prediction of the start with the highest marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    u, v, w, mean, std = standardise_series(x, y, xt)
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


def predict_gpytorch(x, y, xt, kernel: str, **options: Any) -> GaussianMixture:
    """An exact GP with a constant mean; marginal likelihood by Adam."""
    import gpytorch
    import torch

    u, v, w, mean, std = standardise_series(x, y, xt)
    inputs, values, targets = (torch.from_numpy(np.ascontiguousarray(part)) for part in (u, v, w))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    covariance = gpytorch.kernels.ScaleKernel(getattr(gpytorch.kernels, kernel)(**options))
    likelihood.initialize(noise=0.1)
    covariance.base_kernel.initialize(lengthscale=0.1)

    class ConstantMeanGP(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(inputs, values, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), covariance

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # added jitter
        model = ConstantMeanGP().double()
        marginal_likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        adam = torch.optim.Adam(model.parameters(), _ADAM_RATE)
        for _ in range(_ADAM_STEPS):
            adam.zero_grad()
            (-marginal_likelihood(model(inputs), values)).backward()  # type: ignore[operator]
            adam.step()
        model.eval()
        with torch.no_grad():
            predicted = likelihood(model(targets))
            predicted_std = predicted.variance.clamp_min(MIN_STD**2).sqrt()
    return make_normal(mean + std * predicted.mean.numpy(), std * predicted_std.numpy())


def standardise_series(x, y, xt):
    """Return x and xt in units of the width of x, y with mean 0 and standard deviation 1, and that mean and std."""
    width = np.ptp(x, 0)
    unit = np.where(width > 0, width, 1)
    low, mean, std = x.min(0), float(y.mean()), robust_std(y)
    return (x - low) / unit, (y - mean) / std, (xt - low) / unit, mean, std


Predict = Callable[[Float[ndarray, "n dx"], Float[ndarray, "n"], Float[ndarray, "m dx"]], GaussianMixture]
_FIELD_DIMS = ("lat", "lon")  # a longitude that covers 360° is periodic, as in a file


@dataclass(frozen=True)
class FillMethod:
    """`dims`: numbers of input columns that it accepts; `requires`: an optional module; `weights`: pretrained weights;
    `version`: raised when its predictions change, so that stored results are measured again."""

    predict: Predict
    about: str
    dims: tuple[int, ...] = (1,)
    requires: str | None = None
    weights: str | None = None
    version: int = 1

    @property
    def missing(self) -> str | None:
        """The reason why the method cannot run, if any."""
        if self.requires and find_spec(self.requires) is None:
            return f"{self.requires} is not installed (pip install 'fillin[study]')"
        if self.weights and self.weights not in names():
            return f"this version ships no weights {self.weights!r}"
        return None

    @property
    def stamp(self) -> str:
        """The version, and a digest of the weights: retrained weights are measured again."""
        return f"{self.version}, weights {digest_weights(self.weights)}" if self.weights else str(self.version)


@lru_cache
def digest_weights(name: str) -> str:
    folder = locate(name)
    folder = folder / "best" if (folder / "best").exists() else folder  # a run, or a saved model
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12]


@lru_cache
def load_once(name: str) -> Process:
    return load(name).eval()


def predict_sheet(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    """Predict as `fillin fill FILE` does for a column by itself: targets are missing cells among the observed ones."""
    model = load_once("sheet")
    assert isinstance(model, Sheet)
    values = np.concatenate([y, np.full(len(xt), np.nan)])[:, None]
    [prediction] = SheetContext(model, np.concatenate([x, xt])[:, 0], values).predict(np.isnan(values))
    assert prediction is not None
    return prediction


def predict_curve(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    return Context(load_once("curve"), x, y[:, None]).predict(xt)[:, 0]


def predict_field(x: Float[ndarray, "n 2"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 2"]) -> GaussianMixture:
    """Predict as `fillin fill FILE` does: on the grid of the field, in tiles. Cells that are neither observed nor
    targets are land."""
    axes, cells = zip(*(index_grid(column) for column in np.concatenate([x, xt]).T), strict=True)
    observed, targets = np.split(np.stack(cells, 1), [len(x)])
    values, allowed = (np.full(tuple(map(len, axes)), empty) for empty in (np.nan, False))
    values[tuple(observed.T)], allowed[tuple(targets.T)] = y, True
    by_name = {name: Axis(name, axis, axis, frozenset({name})) for name, axis in zip(_FIELD_DIMS, axes, strict=True)}
    variable = Variable("", "the field", _FIELD_DIMS, by_name, values)
    settings = make_layout(variable, mask=Mask("the field", _FIELD_DIMS, allowed)).settings
    return settings.predict(settings.context(load_once("sheet-2d"), observed, y), targets)


def index_grid(coordinates: Float[ndarray, "n"]) -> tuple[Float[ndarray, "r"], Int[ndarray, "n"]]:
    """Return the rows of a field along one axis, and the row of each coordinate.

    Rows without any value are put back, at the most frequent step.

    >>> index_grid(np.array([3.0, 0.0, 1.0, 5.0, 4.0]))
    (array([0., 1., 2., 3., 4., 5.]), array([3, 0, 1, 5, 4]))
    """
    rows, inverse = np.unique(coordinates, return_inverse=True)
    steps = np.diff(rows)
    number = np.concatenate(
        [[0], np.cumsum(np.maximum(1, np.round(steps / np.median(steps))))] if len(steps) else [[0]]
    )
    return np.interp(np.arange(number[-1] + 1), number, rows), number.astype(int)[inverse]


METHODS: dict[str, FillMethod] = {
    "sheet": FillMethod(
        predict_sheet, "fillin's pretrained weights for columns, the default for series, nothing fitted",
        weights="sheet",
    ),
    "curve": FillMethod(
        predict_curve, "fillin's earlier weights for series (`--model curve`), nothing fitted", weights="curve"
    ),
    "sheet-2d": FillMethod(
        predict_field,
        "fillin's pretrained weights for fields, nothing fitted, applied to the overlapping tiles of `fillin fill`, "
        f"{TILE_CONTEXT_CELLS[2]} cells each", (2,), weights="sheet-2d",
    ),
    "GP, RBF + white": FillMethod(
        predict_rbf,
        "scikit-learn; marginal likelihood by L-BFGS, one restart; hyperparameters of a field from 1,000 points, "
        "conditioned on all", (1, 2), requires="sklearn",
    ),
    "GP, composed": FillMethod(
        partial(predict_composed, noises=(0.1, 0.01)), requires="sklearn",
        about="scikit-learn; trend + periodic + rational quadratic + white, from the period of the periodogram and two "
        "starts, of more noise and of less, of which the higher marginal likelihood is kept",
    ),
    **{
        f"GPyTorch, {name}": FillMethod(
            partial(predict_gpytorch, **kernel), "exact GP, 100 steps of Adam", requires="gpytorch"
        )
        for name, kernel in (("RBF", {"kernel": "RBFKernel"}), ("Matérn-5/2", {"kernel": "MaternKernel", "nu": 2.5}))
    },
    "linear": FillMethod(interpolation.predict_linear, "interpolation, intervals from leave-one-out errors", (1, 2)),
    "cubic spline": FillMethod(
        partial(interpolation.add_intervals, interpolation.interpolate_cubic),
        "natural spline, of a field Clough–Tocher; intervals from leave-one-out errors", (1, 2),
    ),
    "seasonal naive": FillMethod(
        interpolation.predict_seasonal, "the observed value one period away; intervals from its errors"
    ),
}  # fmt: skip
OURS = {1: "sheet", 2: "sheet-2d"}  # by input columns, as `fillin fill` chooses
EARLIER = "curve"
BEST_OF_THREE = ("GP, RBF + white", "GP, composed", "linear")  # the best of which fillin is compared with
