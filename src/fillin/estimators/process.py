"""Regression by a pretrained process, with the API of scikit-learn's GaussianProcessRegressor."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fillin.errors import InputError, InputTypeError, UnknownName
from fillin.estimators.base import SavedEstimator, check_targets, to_floats
from fillin.inference.anisotropy import fit_units
from fillin.inference.context import default_weights
from fillin.inference.finetune import MAX_STEPS as FINETUNE_STEPS
from fillin.inference.finetune import MIN_POINTS, finetune
from fillin.inference.length_scales import MAX_STEPS as LENGTH_SCALE_STEPS
from fillin.inference.length_scales import fit_length_scales
from fillin.inference.record import make_context
from fillin.inference.sample_paths import COVARIANCE_PATHS, covariance, sample_paths
from fillin.models import Process, load
from fillin.models.registry import create_from_config
from fillin.models.sheet import Sheet
from fillin.predictive import check_levels
from fillin.pretrained import names
from fillin.runtime import progress

_PROGRESS_QUERIES = 20_000  # locations from which on a progress bar is shown
_PROGRESS_DRAWS = 2_000  # values of sample paths
MAX_COVARIANCE_POINTS = 256
MAX_DISTANCE = 1e12  # widths of the observations beyond which nothing is predicted
_STORED = ("X", "y", "y_err", "scales")


class ProcessRegressor(RegressorMixin, SavedEstimator):
    """Predict y at any x from a few observations, with error bars, by a pretrained neural process.

    Where `GaussianProcessRegressor` needs a kernel and optimises its parameters, this evaluates a model that was
    trained on many kinds of functions and noise. The units of x and y do not matter. Columns of y are predicted
    independently; NaN in y is a missing value.

    Parameters
    ----------
    model : str, os.PathLike or Process, default="auto"
        "auto" takes the weights "sheet" for one column of X, "sheet-2d" for two and "radial" for more; or a name of
        pretrained weights, a folder that `fillin.save` wrote, or a process with one output. A sheet of two columns
        measures distances in units that `fit` estimates from 32 observations or more. A radial model sees distances
        alone, so `fit` searches for the length scale of each column for some seconds (`scales_`).
    adapt : bool, default=False
        Fine-tune a copy of the model on the observations, for at most a minute, where there are 100 or more. The gain
        on held-out points is `gain_`, in nats per point; a loss is never kept.
    random_state : int, RandomState instance or None, default=0
        Seed of fine-tuning, and of the sample paths that a covariance is estimated from. The same seed gives the same
        predictions, as long as the minute of fine-tuning suffices.

    Attributes
    ----------
    model_ : Process
        The model that predicts.
    X_train_, y_train_, y_err_ : ndarray
        The observations.
    scales_ : ndarray of shape (outputs, dx) or None
        Length scales of the columns of X for a radial model, or a sheet of two columns.
    gain_ : float
        Gain of fine-tuning.

    See Also
    --------
    TableRegressor : Regression on tables without locations.
    fillin.fill : Fill the gaps of a file or data frame.

    Examples
    --------
    >>> import fillin
    >>> import numpy as np
    >>> model = fillin.create("filler", size="small", layers=1)  # random weights; "auto" has trained ones
    >>> X, y = np.linspace(0, 1, 20)[:, None], np.linspace(5, 9, 20)
    >>> regressor = fillin.ProcessRegressor(model).fit(X, y)
    >>> mean, (low, high) = regressor.predict([[0.5], [1.5]], quantiles=[0.05, 0.95])
    >>> mean.shape, bool((low < high).all())
    ((2,), True)
    """

    _file_key = "fillin.regressor"

    def __init__(self, model: "str | os.PathLike | Process" = "auto", adapt: bool = False, random_state=0):
        self.model = model
        self.adapt = adapt
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, y_err=None) -> "ProcessRegressor":
        """Store the observations.

        Parameters
        ----------
        X : array-like of shape (n, dx)
            Locations.
        y : array-like of shape (n,) or (n, outputs)
            Observed values; NaN where missing.
        y_err : float or array-like of the shape of y, optional
            Known standard errors of y; 0 or NaN where unknown.

        Returns
        -------
        ProcessRegressor
            The fitted estimator.

        Raises
        ------
        InputError
            If a column of y has no value, or the model does not fit the data.
        """
        X = self._validate_locations(X, y=None if y is None else "no_validation", copy=True)
        columns, _ = check_targets(X, y)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31))
        model = _load_model(self.model, X.shape[1])
        self._set_context(model, X, columns, _check_errors(y_err, columns), self._fit_scales(model, X, columns))
        self.gain_ = 0.0
        if self.adapt:
            self._finetune()
        return self

    def _fit_scales(self, model: Process, X: ndarray, y: Float[ndarray, "n dy"]) -> Float[ndarray, "dy dx"] | None:
        """Length scales of the columns of X for each output; None unless the model is radial or a sheet."""
        if X.shape[1] < 2 or not (model.dim_x is None or isinstance(model, Sheet)):
            return None
        observed = ~np.isnan(y)
        if isinstance(model, Sheet):
            return np.stack([fit_units(X[rows], y[rows, i]) for i, rows in enumerate(observed.T)])
        with progress("length scales", LENGTH_SCALE_STEPS * y.shape[1]) as tick:
            scales = [
                fit_length_scales(model, X[rows], y[rows, i], self.seed_, tick) for i, rows in enumerate(observed.T)
            ]
        return np.stack(scales)

    def _validate_locations(self, X, **options: Any) -> Float[ndarray, "n dx"]:
        return np.asarray(validate_data(self, X, dtype=np.float64, **options))

    def _validate_queries(self, X) -> Float[ndarray, "m dx"]:
        """Query locations; squares of distances must not overflow."""
        check_is_fitted(self)
        X = self._validate_locations(X, reset=False)
        for context in self.contexts_:
            distance = np.maximum(context.x.min(0) - X, X - context.x.max(0))
            for row, column in np.argwhere(distance > MAX_DISTANCE * context.unit):
                x = context.x[:, column]
                raise InputError(
                    f"X[{row}, {column}] is {X[row, column]:g}, but the observations lie between {x.min():g} and "
                    f"{x.max():g}: it is more than {MAX_DISTANCE:g} times their width away; check its units"
                )
        return X

    def _set_context(
        self, model: Process, X: ndarray, y: Float[ndarray, "n dy"], error: ndarray | None, scales: ndarray | None
    ) -> None:
        if error is not None and not model.any_units:
            raise InputError(
                "y_err: this model does not read errors; use one that does, such as 'sheet', or leave y_err out"
            )
        self.model_, self.X_train_, self.y_train_, self.y_err_, self.scales_ = model, X, y, error, scales
        # models compute in float32, where 1e6 + sin x is nearly constant: the middle of the range is subtracted
        low, high = np.nanmin(y, 0), np.nanmax(y, 0)
        self.centre_ = np.where(high - low > 1e-12 * np.maximum(abs(low), abs(high)), low / 2 + high / 2, 0)
        self.contexts_ = [
            make_context(
                model,
                X[rows],
                (y - self.centre_)[rows][:, [i]],
                None if error is None else error[rows][:, [i]],
                None if scales is None else scales[i],
            )
            for i, rows in enumerate(~np.isnan(y).T)
        ]

    def _finetune(self) -> None:
        large = [context for context in self.contexts_ if len(context.x) >= MIN_POINTS]
        if not large:
            most = max(len(context.x) for context in self.contexts_)
            warnings.warn(
                f"adapt=True needs {MIN_POINTS} observations, there are {most}: the model is not fine-tuned",
                stacklevel=3,
            )
            return
        with progress("fine-tuning", FINETUNE_STEPS) as tick:
            model, self.gain_ = finetune(self.model_, large, self.seed_, tick)
        self._set_context(model, self.X_train_, self.y_train_, self.y_err_, self.scales_)

    def predict(self, X, return_std: bool = False, return_cov: bool = False, quantiles=None, noise: bool = True):
        """Predict the mean, and on request standard deviation or covariance, and quantiles.

        Parameters
        ----------
        X : array-like of shape (m, dx)
            Query locations.
        return_std : bool, default=False
            Also return the standard deviation.
        return_cov : bool, default=False
            Also return the covariance between locations, at most 256 of them: exact standard deviations with the
            correlation of 128 sample paths.
        quantiles : float or list of k floats, optional
            Also return the quantiles at these probabilities.
        noise : bool, default=True
            Predict observations; False predicts the latent function without noise.

        Returns
        -------
        ndarray or tuple of ndarray
            The mean (m,) or (m, outputs); then the standard deviation of the same shape, or the covariance (m, m) or
            (m, m, outputs); then the quantiles, where a list of k has a first axis of k.

        Raises
        ------
        InputError
            If both `return_std` and `return_cov` are requested, or the model cannot separate the noise.
        """
        X = self._validate_queries(X)
        levels = check_levels(quantiles)
        if return_std and return_cov:
            raise InputError(
                "give return_std or return_cov, not both; the diagonal of the covariance holds the variances"
            )
        if return_cov and len(X) > MAX_COVARIANCE_POINTS:
            raise InputError(
                f"return_cov: {len(X)} locations are too many; give at most {MAX_COVARIANCE_POINTS}, or use sample_y"
            )
        if not noise and not self.model_.head.separates_noise:
            raise InputError("noise=False: this model does not separate the function from its noise; leave noise=True")
        with progress("predict", len(X) * len(self.contexts_), len(X) > _PROGRESS_QUERIES) as tick:
            mixtures = [context.predict(X, noise, tick)[:, 0] for context in self.contexts_]
        results = [self._squeeze(np.stack([mixture.mean for mixture in mixtures], -1) + self.centre_)]
        if return_std:
            results.append(self._squeeze(np.stack([mixture.std for mixture in mixtures], -1)))
        if return_cov:
            total = len(X) * COVARIANCE_PATHS
            with progress("covariance", total * len(self.contexts_), total > _PROGRESS_DRAWS) as tick:
                matrices = [covariance(context, X, noise, self.seed_, tick) for context in self.contexts_]
            results.append(self._squeeze(np.stack(matrices, -1)))
        if quantiles is not None:
            arrays = [
                self._squeeze(np.stack([mixture.quantile(level) for mixture in mixtures], -1) + self.centre_)
                for level in levels
            ]
            results.append(arrays[0] if np.ndim(quantiles) == 0 else np.stack(arrays))
        return results[0] if len(results) == 1 else tuple(results)

    def sample_y(self, X, n_samples: int = 1, random_state=0) -> ndarray:
        """Draw sample paths of observations, each value given all that were drawn before it.

        Parameters
        ----------
        X : array-like of shape (m, dx)
            Query locations.
        n_samples : int, default=1
            Number of paths.
        random_state : int, RandomState instance or None, default=0
            Seed of the draws.

        Returns
        -------
        ndarray of shape (m, n_samples) or (m, outputs, n_samples)
            The paths. Without noise, draw from a normal distribution with `predict(X, return_cov=True, noise=False)`.
        """
        X = self._validate_queries(X)
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise InputError(f"sample_y: n_samples must be a whole number of at least 1, got {n_samples!r}")
        seeds = check_random_state(random_state).randint(2**31, size=len(self.contexts_))
        n_values = len(X) * int(n_samples)
        with progress("sample", n_values * len(self.contexts_), n_values > _PROGRESS_DRAWS) as tick:
            paths = [
                sample_paths(context, X, int(n_samples), int(seed), tick)
                for context, seed in zip(self.contexts_, seeds, strict=True)
            ]
        return np.moveaxis(self._squeeze(np.stack(paths, -1) + self.centre_), 0, -1)

    def _squeeze(self, values: Float[ndarray, "*m dy"]) -> ndarray:
        """Drop the output axis for a single output, as GaussianProcessRegressor does."""
        return values[..., 0] if len(self.contexts_) == 1 else values

    def _state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        if not self.model_.config:
            raise InputError("save: only a model made by fillin.create can be saved")
        tensors = {f"model.{name}": t for name, t in self.model_.state_dict().items()}
        arrays = {"X": self.X_train_, "y": self.y_train_, "y_err": self.y_err_, "scales": self.scales_}
        tensors |= {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in arrays.items() if v is not None}
        return tensors, {
            "model": self.model_.config, "seed": self.seed_, "gain": self.gain_,
            "name": None if isinstance(self.model, Process) else str(self.model), "adapt": bool(self.adapt),
            "random_state": int(self.random_state) if isinstance(self.random_state, int | np.integer) else None,
        }  # fmt: skip

    @classmethod
    def _from_state(cls, tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> "ProcessRegressor":
        """The estimator; its parameter `model` is the name it had, or else the model itself."""
        arrays = {name: tensors[name].numpy() for name in _STORED if name in tensors}
        model = create_from_config(metadata["model"])
        model.load_state_dict({k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")})
        estimator = cls(metadata["name"] or model, metadata["adapt"], metadata["random_state"])
        estimator.seed_, estimator.gain_ = metadata["seed"], metadata["gain"]
        setattr(estimator, "n_features_in_", arrays["X"].shape[1])  # noqa: B010 (as scikit-learn names it)
        estimator._set_context(model, arrays["X"], arrays["y"], arrays.get("y_err"), arrays.get("scales"))
        return estimator


def _load_model(model: Any, dims: int) -> Process:
    """The process for X of `dims` columns, or an error that names one that fits."""
    if isinstance(model, Process):
        loaded = model
    elif not isinstance(model, str | os.PathLike):
        raise InputTypeError(f"model must be a name, a folder or a process, got {type(model).__name__}")
    elif str(model) == "auto":
        name = default_weights(dims)
        if name not in names():
            shipped = [other for other in map(default_weights, (1, 2, 3)) if other in names()]
            raise InputError(
                f"X has {dims} column{'s' * (dims > 1)}: the pretrained model for that is {name!r}, which does not "
                f"ship yet (there is {', '.join(shipped) or 'none of its kind'}); give model= a folder that "
                f"fillin.save wrote, or fillin.create('filler', dim_x={dims}), once trained"
            )
        loaded = load(name)
    elif not Path(model).exists() and str(model) not in names():
        raise UnknownName("model", str(model), ["auto", *names()])
    else:
        loaded = load(model, Process)
    if loaded.dim_y != 1:
        raise InputError(
            f"model has dim_y={loaded.dim_y}; columns of y are predicted independently: use one of dim_y=1"
        )
    if loaded.dim_x not in (None, dims):
        raise InputError(f"X has {dims} columns, but the model was made with dim_x={loaded.dim_x}")
    return loaded


def _check_errors(y_err, y: Float[ndarray, "n dy"]) -> Float[ndarray, "n dy"] | None:
    """Known standard errors of each entry of y, 0 where there is none."""
    if y_err is None:
        return None
    error = to_floats("y_err", np.atleast_1d(y_err))
    error = error[:, None] if error.ndim == 1 else error
    if error.shape not in ((1, 1), (len(y), 1), y.shape):
        raise InputError(
            f"y_err has shape {np.shape(y_err)}; expected one number, one for each row, or the shape of y {y.shape}"
        )
    if (error < 0).any():
        row, column = np.argwhere(error < 0)[0]
        raise InputError(f"y_err is {error[row, column]:g} in row {row}; standard errors are at least 0 (0: unknown)")
    return np.ascontiguousarray(np.broadcast_to(np.nan_to_num(error), y.shape))
