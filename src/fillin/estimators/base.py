"""Saving and loading of every estimator, and what the three table estimators share."""

import json
import os
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from safetensors import SafetensorError

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("estimators need scikit-learn: pip install 'fillin[fill]'") from error

from fillin.errors import InputError, choose
from fillin.io import read_tensors, write_tensors
from fillin.learners.base import TableLayout, TableLearner, TrainingPlan
from fillin.learners.npt import NPTLearner
from fillin.learners.row_learner import RowLearner
from fillin.predictive import Predictive
from fillin.runtime import progress
from fillin.tabular.schema import Column, Schema

FORMAT = 1
LEARNERS: dict[str, type[TableLearner]] = {learner.name: learner for learner in (RowLearner, NPTLearner)}


def to_floats(name: str, values: Any) -> Float[ndarray, "..."]:
    """Floats with NaN allowed, or scikit-learn's error."""
    options: dict[str, Any] = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "dtype": np.float64, "copy": True}
    return np.asarray(check_array(values, input_name=name, **options))


def check_targets(X: ndarray, y: Any) -> tuple[Float[ndarray, "n t"], bool]:
    """Return the columns of y, and whether it has one dimension."""
    y = to_floats("y", y)
    check_consistent_length(X, y)
    if y.ndim > 2:
        raise InputError(f"y has {y.ndim} dimensions; expected one column, or one for each output")
    columns = y.reshape(len(y), -1)
    for column in np.flatnonzero(np.isnan(columns).all(0)):
        raise InputError(f"y: column {column} has no observed value, all of it is NaN; drop the column")
    return columns, y.ndim == 1


class SavedEstimator(BaseEstimator):
    """An estimator that is saved as one safetensors file, and never with pickle."""

    _file_key: ClassVar[str]

    def save(self, path: str | os.PathLike) -> Path:
        """Write weights, data and settings to one safetensors file, atomically.

        Parameters
        ----------
        path : str or os.PathLike
            The file to write. Missing folders are created.

        Returns
        -------
        pathlib.Path
            The file that was written.
        """
        check_is_fitted(self)
        path = Path(path)
        tensors, metadata = self._state()
        metadata |= {"format": FORMAT, "features": [str(name) for name in getattr(self, "feature_names_in_", [])]}
        tensors = {name: t.detach().contiguous() for name, t in tensors.items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors, {self._file_key: json.dumps(metadata)})
        except (OSError, TypeError, SafetensorError) as error:
            raise InputError(f"save: cannot write {path}: {error}") from error
        return path

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SavedEstimator":
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or os.PathLike
            A file that `save` wrote.

        Returns
        -------
        SavedEstimator
            The fitted estimator.
        """
        metadata, tensors = read_tensors(path, cls._file_key, cls._file_key.removeprefix("fillin."))
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT or not cls._can_load(metadata):
            raise InputError(f"load: {path} is not a {cls.__name__} of format {FORMAT}; fillin.load reads models")
        try:
            estimator = cls._from_state(tensors, metadata)
            if metadata["features"]:
                setattr(estimator, "feature_names_in_", np.array(metadata["features"], dtype=object))  # noqa: B010
        except (KeyError, TypeError, RuntimeError) as error:
            raise InputError(f"load: the parts of {path} do not fit together: {error}") from error
        return estimator

    @classmethod
    def _can_load(cls, metadata: dict[str, Any]) -> bool:
        return True

    @abstractmethod
    def _state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and JSON metadata of the fitted estimator."""

    @classmethod
    @abstractmethod
    def _from_state(cls, tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> "SavedEstimator":
        """The estimator whose `_state` this is."""


class TableEstimator(SavedEstimator):
    """Base of `TableRegressor`, `TableClassifier` and `TableImputer`."""

    _file_key = "fillin.table"

    def __init__(
        self, members=8, steps="auto", kinds=None, scale="standard", transductive=False, model="rows", random_state=0
    ):
        self.members = members
        self.steps = steps
        self.kinds = kinds
        self.scale = scale
        self.transductive = transductive
        self.model = model
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.non_deterministic = False
        return tags

    def _encode(self, X, reset: bool) -> Float[ndarray, "n d"]:
        """X as numbers and class codes; `reset` infers the schema."""
        if not hasattr(X, "columns"):
            options: dict[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan", "estimator": self}
            X = check_array(X, input_name="X", **options)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if not reset:
            return self.schema_.encode(X)
        self.schema_, values = Schema.infer_encode(X, self.kinds)
        return values

    def _fit(
        self, inputs: Float[ndarray, "n d"], targets: Float[ndarray, "n t"], target_columns: tuple[Column, ...],
        feature_weight: float,
    ) -> None:  # fmt: skip
        """Fit the targets, and with weight `feature_weight` the inputs; without targets the inputs alone."""
        steps = self.steps
        if isinstance(steps, str) and steps == "auto":
            steps = int(500 * min(max(len(inputs) / 2_000, 1), 25) ** 0.5)
        for name, value in (("members", self.members), ("steps", steps)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not 0 <= feature_weight <= 1:
            raise InputError(f"features is a weight from 0 to 1, got {feature_weight!r}")
        learner = LEARNERS[choose("model", self.model, LEARNERS)]
        columns, input_of_output, outputs = target_columns, (-1,) * len(target_columns), targets
        if feature_weight:
            columns = (*target_columns, *self.schema_.columns)
            input_of_output = (*input_of_output, *range(inputs.shape[1]))
            outputs = np.concatenate([targets, inputs], 1)
        classes = tuple(column.n_codes for column in self.schema_.columns)
        layout = TableLayout(classes, tuple(column.n_codes for column in columns), input_of_output, feature_weight)
        seed = int(check_random_state(self.random_state).randint(2**31))
        with progress(f"training on {len(inputs):,} rows", int(steps)) as tick:
            self.learner_ = learner.fit(
                layout, inputs, outputs, self.scale, seed, TrainingPlan(steps=int(steps)),
                learner.network_options(int(self.members)), tick,
            )  # fmt: skip
        self.target_columns_ = target_columns

    def _predict(self, X) -> list[Predictive]:
        check_is_fitted(self)
        return self.learner_.predict(self._encode(X, reset=False), self.transductive)

    def _extra_state(self) -> dict[str, Any]:
        """JSON metadata of one kind of estimator."""
        return {}

    def _set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore `_extra_state`."""
        assert not state

    def _state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        tensors, metadata = self.learner_.state()
        parameters = {k: int(v) if isinstance(v, np.integer) else v for k, v in self.get_params(deep=False).items()}
        if not isinstance(self.random_state, int | np.integer):  # JSON has no random states
            parameters["random_state"] = None
        return tensors, metadata | {
            "kind": type(self).__name__, "parameters": parameters, "own": self._extra_state(),
            "schema": self.schema_.to_dict(), "told": Schema(self.target_columns_).to_dict(),
        }  # fmt: skip

    @classmethod
    def _can_load(cls, metadata: dict[str, Any]) -> bool:
        return metadata.get("kind") == cls.__name__

    @classmethod
    def _from_state(cls, tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> "TableEstimator":
        estimator = cls(**metadata["parameters"])
        estimator.schema_ = Schema.from_dict(metadata["schema"])
        estimator.target_columns_ = Schema.from_dict(metadata["told"]).columns
        estimator.learner_ = LEARNERS[estimator.model].from_state(tensors, metadata)
        setattr(estimator, "n_features_in_", estimator.learner_.inputs.shape[1])  # noqa: B010 (as scikit-learn names it)
        estimator._set_extra_state(metadata["own"])
        return estimator


class TablePredictor(TableEstimator):
    """Base of `TableRegressor` and `TableClassifier`: estimators with targets."""

    def __init__(
        self, members=8, steps="auto", kinds=None, scale="standard", features=0.0, transductive=False, model="rows",
        random_state=0,
    ):  # fmt: skip
        super().__init__(members, steps, kinds, scale, transductive, model, random_state)
        self.features = features

    def sample(self, X, n_samples: int = 1, random_state=0) -> ndarray:
        """Draw values of y from the predictive distribution of each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows to predict.
        n_samples : int, default=1
            Draws per row.
        random_state : int, RandomState instance or None, default=0
            Seed of the draws.

        Returns
        -------
        ndarray of shape (m, n_samples) or (m, outputs, n_samples)
            Numbers or class labels.
        """
        random = np.random.default_rng(check_random_state(random_state).randint(2**31))
        predictions = self._predict(X)[: len(self.target_columns_)]
        return self._to_targets(np.stack([column.sample(n_samples, random) for column in predictions], 1))

    def log_prob(self, X, y) -> Float[ndarray, "..."]:
        """Return ln p(y | x) of each row and output.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows to predict.
        y : array-like of shape (m,) or (m, outputs)
            Observed values or labels.

        Returns
        -------
        ndarray of shape (m,) or (m, outputs)
            Log densities of numbers, log probabilities of labels; −∞ for a label that `fit` did not see.
        """
        return self._log_prob(self._predict(X)[: len(self.target_columns_)], np.asarray(y))

    @abstractmethod
    def _log_prob(self, predictions: list[Any], y: ndarray) -> Float[ndarray, "..."]:
        """ln p of y under the predictions of the targets."""

    @abstractmethod
    def _to_targets(self, draws: ndarray) -> ndarray:
        """Values of y from draws [m outputs n_samples] of the predictive distributions."""
