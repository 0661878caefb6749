"""Regression, classification and imputation of tables, with scikit-learn's manners."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from sklearn.base import ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from fillin.data.tables import Column
from fillin.errors import InputError
from fillin.estimators.table_base import TableEstimator
from fillin.learners.encoding import MOST
from fillin.learners.predictions import Classes, Numbers
from fillin.predictive import levels


class TableRegressor(RegressorMixin, TableEstimator):
    """Numbers from the other columns of a table, each with its whole distribution.

    Networks are trained on the table itself (a minute or two on a laptop for a thousand rows): they learn which rows
    are alike, and look up what those hold. X may be a frame or an array, with numbers, classes, booleans and dates, and
    cells missing anywhere; a NaN in y is a row whose value is not known.

    `features` is the weight of telling hidden cells of X as well, which falls to nothing as training goes on (λ of
    Kossen et al. 2021): it lets rows without y teach how columns hang together.

    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = TableRegressor(members=2, steps=20).fit(X, 3 * X[:, 0])
    >>> mean, (low, high) = model.predict(X, quantiles=[0.025, 0.975])
    >>> mean.shape, bool((low < high).all())
    ((40,), True)
    """

    def __init__(
        self, members=8, steps="auto", kinds=None, scale="standard", features=0.0, transductive=False, model="rows",
        random_state=0,
    ):  # fmt: skip
        super().__init__(members, steps, kinds, scale, transductive, model, random_state)
        self.features = features

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y) -> "TableRegressor":
        reads = self._columns(X, reset=True)
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        options: dict[str, Any] = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "dtype": np.float64}
        for word in (value for value in np.asarray(y).ravel()[:1] if isinstance(value, str)):
            raise InputError(f"y holds words, such as '{word}'; for classes use TableClassifier")
        y = np.asarray(check_array(y, input_name="y", **options))
        check_consistent_length(reads, y)
        if y.ndim > 2:
            raise InputError(f"y has {y.ndim} dimensions; it is one column, or one for each output")
        self.one_ = y.ndim == 1
        tells = y.reshape(len(y), -1)
        for column in np.flatnonzero(np.isnan(tells).all(0)):
            raise InputError(f"y: nothing is known in column {column}, all of it is NaN; drop the column")
        told = tuple(Column(f"y{i}", "number") for i in range(tells.shape[1]))
        self._learn(reads, tells, told, self.features)
        return self

    def predict(self, X, return_std: bool = False, quantiles=None):
        """The mean; after it, as asked for, the deviation and the quantiles (one probability, or k of them, which add
        an axis of k in front)."""
        wanted = levels(quantiles)
        told = self._targets(X)
        found = [self._flat([column.mean for column in told])]
        if return_std:
            found.append(self._flat([column.std for column in told]))
        if quantiles is not None:
            each = [self._flat([column.quantile(q) for column in told]) for q in wanted]
            found.append(each[0] if np.ndim(quantiles) == 0 else np.stack(each))
        return found[0] if len(found) == 1 else tuple(found)

    def log_prob(self, X, y) -> Float[ndarray, "..."]:
        """ln p(y | x) of each row (and output): how well it told not only where y is, but how surely."""
        told = self._targets(X)
        y = np.asarray(y, dtype=float).reshape(len(told[0].mean), -1)
        return self._flat([column.log_prob(y[:, i]) for i, column in enumerate(told)])

    def sample(self, X, n_samples: int = 1, random_state=0) -> Float[ndarray, "..."]:
        """Values that y may have: [n s], with several outputs [n outputs s]."""
        random = np.random.default_rng(check_random_state(random_state).randint(2**31))
        drawn = np.stack([column.sample(n_samples, random) for column in self._targets(X)], 1)
        return drawn[:, 0] if self.one_ else drawn

    def _targets(self, X) -> list[Numbers]:
        return [column for column in self._told(X)[: len(self.told_)] if isinstance(column, Numbers)]

    def _own(self) -> dict[str, Any]:
        return {"one": self.one_}

    def _restore(self, own: dict[str, Any]) -> None:
        self.one_ = own["one"]

    def _flat(self, columns: list[ndarray]) -> ndarray:
        return columns[0] if self.one_ else np.stack(columns, -1)


class TableClassifier(ClassifierMixin, TableEstimator):
    """A class from the other columns of a table, with a probability for each; otherwise as `TableRegressor`.

    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = TableClassifier(members=2, steps=20).fit(X, np.where(X[:, 0] > 0.5, "high", "low"))
    >>> model.classes_.tolist(), model.predict_proba(X).shape
    (['high', 'low'], (40, 2))
    """

    def __init__(
        self, members=8, steps="auto", kinds=None, scale="standard", features=0.0, transductive=False, model="rows",
        random_state=0,
    ):  # fmt: skip
        super().__init__(members, steps, kinds, scale, transductive, model, random_state)
        self.features = features

    def fit(self, X, y) -> "TableClassifier":
        """y are labels; None or NaN where one is not known."""
        reads = self._columns(X, reset=True)
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_consistent_length(reads, y)
        known = np.array([label is not None and label == label for label in y.tolist()])
        if not known.any():
            raise InputError("y: no label is known; give some")
        check_classification_targets(y[known])
        self.classes_, codes = np.unique(y[known], return_inverse=True)
        if len(self.classes_) > MOST:
            raise InputError(f"y has {len(self.classes_)} classes; at most {MOST} can be told apart")
        targets = np.full((len(y), 1), np.nan)
        targets[known, 0] = codes
        self._learn(reads, targets, (Column("y", "class", tuple(range(len(self.classes_) - 1))),), self.features)
        return self

    def predict_proba(self, X) -> Float[ndarray, "n k"]:
        told = self._told(X)[0]
        assert isinstance(told, Classes)
        return told.chances

    def predict(self, X) -> ndarray:
        chances = self.predict_proba(X)
        return self.classes_[chances.argmax(-1)]

    def log_prob(self, X, y) -> Float[ndarray, "n"]:
        """ln p of each label; −∞ for one that was not seen at fit."""
        chances, y = self.predict_proba(X), np.asarray(y)
        code = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        with np.errstate(divide="ignore"):
            return np.where(self.classes_[code] == y, np.log(chances[np.arange(len(y)), code]), -np.inf)

    def sample(self, X, n_samples: int = 1, random_state=0) -> ndarray:
        """Labels that each row may have: [n s]."""
        random = np.random.default_rng(check_random_state(random_state).randint(2**31))
        return self.classes_[Classes(self.predict_proba(X)).sample(n_samples, random)]

    def _own(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str}

    def _restore(self, own: dict[str, Any]) -> None:
        self.classes_ = np.array(own["classes"], dtype=own["dtype"])


class TableImputer(TransformerMixin, TableEstimator):
    """Every missing cell from the other cells of its row, and from rows that are like it.

    `transform` puts in the mean of a number and the likeliest class; `fill` says how surely.

    >>> X = np.stack([np.linspace(0, 1, 40), np.linspace(2, 4, 40)], 1)
    >>> X[7, 1] = np.nan
    >>> TableImputer(members=2, steps=20).fit_transform(X).shape
    (40, 2)
    """

    def __init__(
        self, members=8, steps="auto", kinds=None, scale="standard", transductive=False, model="rows", random_state=0
    ):
        super().__init__(members, steps, kinds, scale, transductive, model, random_state)

    def fit(self, X, y=None) -> "TableImputer":
        reads = self._columns(X, reset=True)
        self._learn(reads, np.empty((len(reads), 0)), (), 1.0)
        return self

    def fill(self, X) -> tuple[Float[ndarray, "n d"], Float[ndarray, "n d"]]:
        """Numbers and codes with no cell missing; and for each that was filled its deviation, of a class the
        probability of being another (0 where it was known)."""
        check_is_fitted(self)
        values = self._columns(X, reset=False)
        missing = np.isnan(values)
        filled, unsure = values.copy(), np.zeros_like(values)
        rows = missing.any(1)
        if rows.any():
            for j, told in enumerate(self.fitted_.tell(values[rows], self.transductive)):
                here = missing[rows, j]
                column, doubt = (
                    (told.mean, told.std) if isinstance(told, Numbers) else (told.likeliest, 1 - told.chances.max(-1))
                )
                filled[np.flatnonzero(rows)[here], j] = column[here]
                unsure[np.flatnonzero(rows)[here], j] = doubt[here]
        return filled, unsure

    def transform(self, X) -> ndarray:
        """As an array: of numbers, or of objects where columns hold classes or dates. A class that was not there at fit
        stays what it is."""
        filled, _ = self.fill(X)
        if all(column.kind == "number" for column in self.schema_.columns):
            return filled
        columns = []
        for j, column in enumerate(self.schema_.columns):
            found = column.decode(filled[:, j]).astype(object)
            new = np.array([value is None for value in found])
            if new.any():
                own = X[column.name] if hasattr(X, "columns") else np.asarray(X, dtype=object)[:, j]
                found[new] = np.asarray(own, dtype=object)[new]
            columns.append(found)
        return np.stack(columns, 1)

    def get_feature_names_out(self, input_features=None) -> ndarray:
        check_is_fitted(self)
        return np.array(self.schema_.names, dtype=object)
