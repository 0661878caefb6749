"""A pretrained process where scikit-learn has a Gaussian one: fit remembers the points, predict asks the model."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from safetensors import SafetensorError

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("ProcessRegressor needs scikit-learn: pip install 'fillin[fill]'") from error

from fillin.errors import InputError, InputTypeError, UnknownName
from fillin.heads import ObservedHead
from fillin.inference.context import Known
from fillin.inference.finetune import ENOUGH, STEPS, adapt
from fillin.inference.length_scales import STEPS as STEPS_OF_SCALES
from fillin.inference.length_scales import column_scales
from fillin.inference.sample_paths import DRAWS, covariance, draw
from fillin.inference.weights import model_for
from fillin.io import read_tensors, write_tensors
from fillin.models import Process, load
from fillin.models.filler import Filler
from fillin.models.serialization import build
from fillin.predictive import check_levels
from fillin.pretrained import names
from fillin.runtime import progress

FORMAT = 1
MANY = 20_000  # places from which on a bar shows how far it is
MANY_DRAWN = 2_000  # values, of all functions that are drawn
TOGETHER = 256  # places that a covariance may have
FAR = 1e12  # widths of the known points, beyond which nothing is asked
_CONTEXT = ("X", "y", "y_err", "scales")


class ProcessRegressor(RegressorMixin, BaseEstimator):
    """y at any x from a few known points, with error bars, by a model that has learnt to: nothing is trained.

    Where `GaussianProcessRegressor` wants a kernel and searches its parameters, this asks a pretrained process, which
    has seen many kinds of functions and noise. Units of x and y do not matter. Several columns of y are filled each on
    its own; a NaN in y is a value that is not known.

    Parameters
    ----------
    model : "auto", a name of pretrained weights, a folder that `fillin.save` wrote, or a process of one output.
        "auto" takes "curve" for one column of X, "surface" for two, "radial" for more. A radial model sees
        distances alone, so `fit` searches for the scale of each column (`scales_`) for some seconds.
    adapt : go on training a copy of the model on the points themselves, for a minute at most, where there are 100 or
        more. What it gained on points held out is `gain_`, in nats a point; it never keeps what lost.
    random_state : of `adapt`, and of the functions that `predict` draws for a covariance. The same, the same numbers
        (as long as the minute of `adapt` suffices).

    >>> model = __import__("fillin").create("filler", size="small", layers=1)  # as it was born; "auto" has learnt
    >>> X, y = np.linspace(0, 1, 20)[:, None], np.linspace(5, 9, 20)
    >>> mean, (low, high) = ProcessRegressor(model).fit(X, y).predict([[0.5], [1.5]], quantiles=[0.05, 0.95])
    >>> mean.shape, bool((low < high).all())
    ((2,), True)
    """

    def __init__(self, model: "str | os.PathLike | Process" = "auto", adapt: bool = False, random_state=0):
        self.model = model
        self.adapt = adapt
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, y_err=None) -> "ProcessRegressor":
        """Remember what is known: X [n dx], y [n] or [n dy], NaN where it is not; y_err their known deviations, a
        number or as many as y (0 or NaN: not known)."""
        X = self._places(X, y=None if y is None else "no_validation", copy=True)
        y = _values("y", y)
        check_consistent_length(X, y)
        if y.ndim > 2:
            raise InputError(f"y has {y.ndim} dimensions; it is one column, or one for each output")
        columns = y.reshape(len(y), -1)
        for column in np.flatnonzero(np.isnan(columns).all(0)):
            raise InputError(f"y: nothing is known in column {column}, all of it is NaN; drop the column")
        self.seed_ = int(check_random_state(self.random_state).randint(2**31))
        model = _model(self.model, X.shape[1])
        self._remember(model, X, columns, _errors(y_err, columns), self._scales(model, X, columns))
        self.gain_ = 0.0
        if self.adapt:
            self._adapt()
        return self

    def _scales(self, model: Process, X: ndarray, y: Float[ndarray, "n dy"]) -> Float[ndarray, "dy dx"] | None:
        """Of each column of X, for each output; None where the model has its own."""
        if model.dim_x is not None or X.shape[1] < 2:
            return None
        with progress("scales", STEPS_OF_SCALES * y.shape[1], shown=True) as tick:
            seen = ~np.isnan(y)
            each = [column_scales(model, X[s], y[s, i], self.seed_, tick) for i, s in enumerate(seen.T)]
        return np.stack(each)

    def _places(self, X, **options: Any) -> Float[ndarray, "n dx"]:
        return np.asarray(validate_data(self, X, dtype=np.float64, **options))

    def _asked(self, X) -> Float[ndarray, "m dx"]:
        """Places, checked: where squares of distances overflow, no model has anything to say."""
        check_is_fitted(self)
        X = self._places(X, reset=False)
        for known in self.known_:
            far = np.maximum(known.x.min(0) - X, X - known.x.max(0)) > FAR * known.unit
            for row, column in np.argwhere(far):
                own = known.x[:, column]
                raise InputError(
                    f"X[{row}, {column}] is {X[row, column]:g}, but what is known lies between {own.min():g} and "
                    f"{own.max():g}: more than {FAR:g} times as far away as that is wide; is it in other units?"
                )
        return X

    def _remember(
        self, model: Process, X: ndarray, y: Float[ndarray, "n dy"], error: ndarray | None, scales: ndarray | None
    ) -> None:
        if error is not None and not isinstance(model, Filler):
            raise InputError("y_err: this model does not read errors; use a 'filler', or leave y_err out")
        self.model_, self.X_train_, self.y_train_, self.y_err_, self.scales_ = model, X, y, error, scales
        # models reckon in float32, where 1e6 + sin x is as good as constant: y is told from the middle of its range
        low, high = np.nanmin(y, 0), np.nanmax(y, 0)
        self.centre_ = np.where(high - low > 1e-12 * np.maximum(abs(low), abs(high)), low / 2 + high / 2, 0)
        self.known_ = [
            Known(
                model,
                X[rows],
                (y - self.centre_)[rows][:, [i]],
                None if error is None else error[rows][:, [i]],
                scale=None if scales is None else scales[i],
            )
            for i, rows in enumerate(~np.isnan(y).T)
        ]

    def _adapt(self) -> None:
        enough = [known for known in self.known_ if len(known.x) >= ENOUGH]
        if not enough:
            most = max(len(known.x) for known in self.known_)
            warnings.warn(
                f"adapt=True needs {ENOUGH} known points, there are {most}: the model stays as it is", stacklevel=3
            )
            return
        with progress("adapt", STEPS, shown=True) as tick:
            model, self.gain_ = adapt(self.model_, enough, self.seed_, tick)
        self._remember(model, self.X_train_, self.y_train_, self.y_err_, self.scales_)

    def predict(self, X, return_std: bool = False, return_cov: bool = False, quantiles=None, noise: bool = True):
        """The mean at X; after it, as asked for, the deviation or the covariance, then the quantiles.

        `noise=True` is what would be observed, `noise=False` the function itself. Each result is [m], with several
        outputs [m dy]; the covariance [m m] or [m m dy], of at most 256 places, from exact deviations and the
        correlation of 128 drawn functions (`inference.sample_paths.covariance`); `quantiles`, one probability or a
        list of k, adds an axis of k in front, so that `mean, (low, high) = predict(X, quantiles=[0.025, 0.975])`.
        """
        X = self._asked(X)
        wanted = check_levels(quantiles)
        if return_std and return_cov:
            raise InputError("return_std and return_cov: ask for one; the deviations are the root of cov's diagonal")
        if return_cov and len(X) > TOGETHER:
            raise InputError(f"return_cov: {len(X)} places; ask for at most {TOGETHER} at once, or draw with sample_y")
        if not noise and not isinstance(self.model_.head, ObservedHead):
            raise InputError("noise=False: this model does not tell the function from its noise; leave noise=True")
        with progress("predict", len(X) * len(self.known_), len(X) > MANY) as tick:
            answers = [known.at(X, noise, tick) for known in self.known_]
        found = [self._flat(np.stack([a.mean[:, 0] for a in answers], -1) + self.centre_)]
        if return_std:
            found.append(self._flat(np.stack([a.std[:, 0] for a in answers], -1)))
        if return_cov:
            with progress("covariance", len(X) * DRAWS * len(self.known_), len(X) * DRAWS > MANY_DRAWN) as tick:
                each = [covariance(known, X, noise, self.seed_, tick) for known in self.known_]
            found.append(self._flat(np.stack(each, -1)))
        if quantiles is not None:
            each = [self._flat(np.stack([a.quantile(q)[:, 0] for a in answers], -1) + self.centre_) for q in wanted]
            found.append(each[0] if np.ndim(quantiles) == 0 else np.stack(each))
        return found[0] if len(found) == 1 else tuple(found)

    def sample_y(self, X, n_samples: int = 1, random_state=0) -> ndarray:
        """Whole functions at X as they would be observed, each value given all that were drawn before it: [m n], with
        several outputs [m dy n]. (Without noise: draw normal ones from `predict(X, return_cov=True, noise=False)`.)"""
        X = self._asked(X)
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise InputError(f"sample_y: n_samples must be a whole number of at least 1, got {n_samples!r}")
        seeds = check_random_state(random_state).randint(2**31, size=len(self.known_))
        values = len(X) * int(n_samples)
        with progress("sample", values * len(self.known_), values > MANY_DRAWN) as tick:
            drawn = [draw(k, X, int(n_samples), int(s), tick) for k, s in zip(self.known_, seeds, strict=True)]
        return np.moveaxis(self._flat(np.stack(drawn, -1) + self.centre_), 0, -1)

    def _flat(self, values: Float[ndarray, "*m dy"]) -> ndarray:
        """One output has no axis of its own, as in GaussianProcessRegressor."""
        return values[..., 0] if len(self.known_) == 1 else values

    def save(self, path: str | os.PathLike) -> Path:
        """Write all of it to one safetensors file: weights, points, settings. It is never half-written."""
        check_is_fitted(self)
        if not self.model_.config:
            raise InputError("save: only a model made by fillin.create knows how to be built again")
        path = Path(path)
        tensors = {f"model.{name}": t.detach().contiguous() for name, t in self.model_.state_dict().items()}
        context = {"X": self.X_train_, "y": self.y_train_, "y_err": self.y_err_, "scales": self.scales_}
        tensors |= {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in context.items() if v is not None}
        about = {
            "format": FORMAT, "model": self.model_.config, "seed": self.seed_, "gain": self.gain_,
            "name": None if isinstance(self.model, Process) else str(self.model), "adapt": bool(self.adapt),
            "random_state": int(self.random_state) if isinstance(self.random_state, int | np.integer) else None,
            "features": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }  # fmt: skip
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors, {"fillin.regressor": json.dumps(about)})
        except (OSError, TypeError, SafetensorError) as error:
            raise InputError(f"save: cannot write {path}: {error}") from error
        return path

    @classmethod
    def load(cls, path: str | os.PathLike) -> "ProcessRegressor":
        """What `save` wrote. Its `model` is the name it had, or else the model itself."""
        about, tensors = read_tensors(path, "fillin.regressor", "regressor")
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InputError(f"load: {path} is not a ProcessRegressor of format {FORMAT}; fillin.load reads models")
        try:
            config, context = about["model"], {k: tensors[k].numpy() for k in _CONTEXT if k in tensors}
            model = build(config)
            model.load_state_dict({k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")})
            made = cls(about["name"] or model, about["adapt"], about["random_state"])
            made.seed_, made.gain_ = about["seed"], about["gain"]
            setattr(made, "n_features_in_", context["X"].shape[1])  # noqa: B010 (scikit-learn's own attributes)
            if about["features"]:
                setattr(made, "feature_names_in_", np.array(about["features"], dtype=object))  # noqa: B010
            made._remember(model, context["X"], context["y"], context.get("y_err"), context.get("scales"))
        except (KeyError, TypeError, RuntimeError) as error:
            raise InputError(f"load: the parts of {path} do not fit together: {error}") from error
        return made


def _model(given: Any, columns: int) -> Process:
    """The model that is meant, or an error that says which would do."""
    if isinstance(given, Process):
        model = given
    elif not isinstance(given, str | os.PathLike):
        raise InputTypeError(f"model must be a name, a folder or a process, got {type(given).__name__}")
    elif str(given) == "auto":
        model = load(_name(columns))
    elif not Path(given).exists() and str(given) not in names():
        raise UnknownName("model", str(given), ["auto", *names()])
    else:
        model = load(given)
    if model.dim_y != 1:
        raise InputError(f"model has dim_y={model.dim_y}; each column of y is filled on its own: use one of dim_y=1")
    if model.dim_x not in (None, columns):
        raise InputError(f"X has {columns} columns, but the model was made with dim_x={model.dim_x}")
    return model


def _name(columns: int) -> str:
    """Of the pretrained model for so many columns of X."""
    own = model_for(columns)
    if own in names():
        return own
    there = [name for name in map(model_for, (1, 2, 3)) if name in names()]
    raise InputError(
        f"X has {columns} column{'s' * (columns > 1)}: the pretrained model for that is {own!r}, which does not ship "
        f"yet (there is {', '.join(there) or 'none of its kind'}); give model= a folder that fillin.save wrote, or "
        f"fillin.create('filler', dim_x={columns}), once trained"
    )


def _values(name: str, given) -> Float[ndarray, "..."]:
    """Numbers, NaN among them, or scikit-learn's error."""
    options: dict[str, Any] = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "dtype": np.float64, "copy": True}
    return np.asarray(check_array(given, input_name=name, **options))


def _errors(given, y: Float[ndarray, "n dy"]) -> Float[ndarray, "n dy"] | None:
    """Known deviations for each entry of y, 0 where there is none."""
    if given is None:
        return None
    error = _values("y_err", np.atleast_1d(given))
    error = error[:, None] if error.ndim == 1 else error
    if error.shape not in ((1, 1), (len(y), 1), y.shape):
        raise InputError(f"y_err has shape {np.shape(given)}; it is one number, one for each row, or as y {y.shape}")
    if (error < 0).any():
        row, column = np.argwhere(error < 0)[0]
        raise InputError(f"y_err is {error[row, column]:g} in row {row}; deviations are at least 0 (0: not known)")
    return np.ascontiguousarray(np.broadcast_to(np.nan_to_num(error), y.shape))
