"""The methods that are compared. Another is one more entry: a function from known places and values, and places that
are asked for, to an `GaussianMixture`."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from jaxtyping import Float
from numpy import ndarray

from fillin.filling.grid.layout import TILE_CONTEXT_CELLS
from fillin.inference.context import Context
from fillin.models import Process, load
from fillin.predictive import GaussianMixture
from fillin.pretrained import locate, names
from fillin_studies.fill import gps, lines
from fillin_studies.fill.fields import by_tiles

Fill = Callable[[Float[ndarray, "n dx"], Float[ndarray, "n"], Float[ndarray, "m dx"]], GaussianMixture]


@dataclass(frozen=True)
class Method:
    """`dims`: numbers of input columns that it is asked for; `needs`: a module that may not be there; `weights`:
    pretrained ones that may not be there."""

    fill: Fill
    about: str
    dims: tuple[int, ...] = (1,)
    needs: str | None = None
    weights: str | None = None
    asked: str = ""  # how, where weights can be asked in several ways

    @property
    def missing(self) -> str | None:
        """Why it cannot be asked."""
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed (pip install 'fillin[study]')"
        if self.weights and self.weights not in names():
            return f"this version ships no weights {self.weights!r}"
        return None

    @property
    def settings(self) -> dict[str, str]:
        """What a result depends on beside the data: weights get better, and then are others; so does how they are
        asked."""
        return {"weights": digest(self.weights) + self.asked} if self.weights else {}

    def ready(self) -> None:
        """Load what takes time to load once: it is no part of the time a fill takes."""
        if self.weights:
            loaded(self.weights)


def digest(name: str) -> str:
    """Twelve digits that tell weights apart."""
    return hashlib.sha256((locate(name) / "best" / "model.safetensors").read_bytes()).hexdigest()[:12]


@lru_cache
def loaded(name: str) -> Process:
    return load(name).eval()


def curve(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 1"]) -> GaussianMixture:
    return Context(loaded("curve"), x, y[:, None]).predict(asked)


def surface(x: Float[ndarray, "n 2"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 2"]) -> GaussianMixture:
    return by_tiles(loaded("surface"), x, y, asked)


METHODS: dict[str, Method] = {
    "curve": Method(curve, "fillin's pretrained weights for series, nothing fitted", weights="curve"),
    "surface": Method(
        surface,
        "fillin's pretrained weights for fields, nothing fitted, asked by the tiles of `fillin fill`",
        (2,),
        weights="surface",
        asked=f", overlapping tiles, {TILE_CONTEXT_CELLS[2]} cells each",
    ),
    "GP, RBF + white": Method(
        gps.rbf,
        "scikit-learn; marginal likelihood by L-BFGS, one restart; of a field by 1,000 points, given all",
        (1, 2),
        needs="sklearn",
    ),
    "GP, composed": Method(
        gps.composed,
        "scikit-learn; trend + periodic + rational quadratic + white, from the period of the periodogram",
        needs="sklearn",
    ),
    "GP, composed, two starts": Method(
        gps.composed_twice,
        "the same from more noise and from less, of which the higher marginal likelihood is kept",
        needs="sklearn",
    ),
    "GPyTorch, RBF": Method(gps.gpytorch_rbf, "exact GP, 100 steps of Adam", needs="gpytorch"),
    "GPyTorch, Matérn-5/2": Method(gps.gpytorch_matern, "exact GP, 100 steps of Adam", needs="gpytorch"),
    "linear": Method(lines.linear, "interpolation, bands from leave-one-out misses", (1, 2)),
    "cubic spline": Method(
        lines.cubic, "natural spline, of a field Clough and Tocher's; bands from leave-one-out misses", (1, 2)
    ),
    "seasonal naive": Method(lines.seasonal, "what is known one period away; bands from its misses on known points"),
}
OURS = {1: "curve", 2: "surface"}  # by input columns
THREE = ("GP, RBF + white", "GP, composed", "linear")  # the best of which is to be reached
REFERENCE = "GP, composed"  # whose time is the measure
