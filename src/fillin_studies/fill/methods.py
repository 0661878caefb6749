"""The methods that are compared: pretrained weights, Gaussian processes, interpolation and a seasonal forecast.

A new method is one more entry of METHODS: a function from observed inputs and values, and target inputs, to a
predictive distribution.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.filling.grid.axes import Axis
from fillin.filling.grid.layout import TILE_CONTEXT_CELLS, make_layout
from fillin.filling.grid.variable import Mask, Variable
from fillin.inference.context import Context
from fillin.models import Process, load
from fillin.predictive import GaussianMixture
from fillin.pretrained import locate, names
from fillin_studies.fill import gaussian_processes as gps
from fillin_studies.fill import interpolation

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

    def load(self) -> None:
        """Load weights beforehand: the time of loading is not counted."""
        if self.weights:
            load_once(self.weights)


@lru_cache
def digest_weights(name: str) -> str:
    return hashlib.sha256((locate(name) / "best" / "model.safetensors").read_bytes()).hexdigest()[:12]


@lru_cache
def load_once(name: str) -> Process:
    return load(name).eval()


def predict_curve(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    return Context(load_once("curve"), x, y[:, None]).predict(xt)[:, 0]


def predict_surface(x: Float[ndarray, "n 2"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 2"]) -> GaussianMixture:
    """Predict as `fillin fill FILE` does: on the grid of the field, in tiles. Cells that are neither observed nor
    targets are land."""
    axes, cells = zip(*(index_grid(column) for column in np.concatenate([x, xt]).T), strict=True)
    observed, targets = np.split(np.stack(cells, 1), [len(x)])
    values, allowed = (np.full(tuple(map(len, axes)), empty) for empty in (np.nan, False))
    values[tuple(observed.T)], allowed[tuple(targets.T)] = y, True
    by_name = {name: Axis(name, axis, axis, frozenset({name})) for name, axis in zip(_FIELD_DIMS, axes, strict=True)}
    variable = Variable("", "the field", _FIELD_DIMS, by_name, values)
    how = make_layout(variable, mask=Mask("the field", _FIELD_DIMS, allowed)).how
    return how.believe(how.known(load_once("surface"), observed, y), targets)


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
    "curve": FillMethod(predict_curve, "fillin's pretrained weights for series, nothing fitted", weights="curve"),
    "surface": FillMethod(
        predict_surface,
        "fillin's pretrained weights for fields, nothing fitted, applied to the overlapping tiles of `fillin fill`, "
        f"{TILE_CONTEXT_CELLS[2]} cells each",
        (2,),
        weights="surface",
    ),
    "GP, RBF + white": FillMethod(
        gps.predict_rbf,
        "scikit-learn; marginal likelihood by L-BFGS, one restart; hyperparameters of a field from 1,000 points, "
        "conditioned on all",
        (1, 2),
        requires="sklearn",
    ),
    "GP, composed": FillMethod(
        gps.predict_composed,
        "scikit-learn; trend + periodic + rational quadratic + white, starting at the period of the periodogram",
        requires="sklearn",
    ),
    "GP, composed, two starts": FillMethod(
        gps.predict_composed_twice,
        "the same from more noise and from less, of which the higher marginal likelihood is kept",
        requires="sklearn",
    ),
    "GPyTorch, RBF": FillMethod(gps.predict_gpytorch_rbf, "exact GP, 100 steps of Adam", requires="gpytorch"),
    "GPyTorch, Matérn-5/2": FillMethod(gps.predict_gpytorch_matern, "exact GP, 100 steps of Adam", requires="gpytorch"),
    "linear": FillMethod(interpolation.predict_linear, "interpolation, intervals from leave-one-out errors", (1, 2)),
    "cubic spline": FillMethod(
        interpolation.predict_cubic,
        "natural spline, of a field Clough–Tocher; intervals from leave-one-out errors",
        (1, 2),
    ),
    "seasonal naive": FillMethod(
        interpolation.predict_seasonal, "the observed value one period away; intervals from its errors"
    ),
}
OURS = {1: "curve", 2: "surface"}  # by input columns
BEST_OF_THREE = ("GP, RBF + white", "GP, composed", "linear")  # the best of which fillin is compared with
TIME_REFERENCE = "GP, composed"
