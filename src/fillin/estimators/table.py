"""Regression, classification and imputation of tables, with the scikit-learn API."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from sklearn.base import ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from fillin.errors import InputError
from fillin.estimators.base import TableEstimator, TablePredictor, check_targets
from fillin.predictive import MAX_CLASSES, Categorical, check_levels
from fillin.tabular.schema import Column


class TableRegressor(RegressorMixin, TablePredictor):
    """Predict numbers from the other columns of a table, with a full predictive distribution.

    An ensemble of networks is trained on the table itself (a minute or two on a laptop for a thousand rows). They learn
    which rows are similar and attend to the values of those; a Gaussian process beside them counts as much as held-out
    rows support. X may be a data frame or an array with numbers, classes, booleans and dates. Missing features are
    multiply imputed from similar rows, and prediction intervals widen accordingly. NaN in y marks an unlabelled row.

    Parameters
    ----------
    members : int, default=8
        Networks of the ensemble (n_estimators of scikit-learn). Ignored by ``model="npt"``, which trains one.
    steps : int or "auto", default="auto"
        Maximum number of training steps (max_iter of scikit-learn); "auto" takes 500, and more for tables of more than
        2,000 rows.
        Training stops early when held-out rows stop improving.
    kinds : dict of str to str, optional
        Kinds of columns whose values do not show it: ``{"postcode": "class"}``.
    scale : {"standard", "quantile"}, default="standard"
        Transform of numeric outputs; "quantile" suits heavy tails.
    features : float, default=0.0
        Weight of predicting masked cells of X, between 0 and 1 (λ of Kossen et al. 2021), annealed to 0 during
        training. It lets rows without y contribute.
    transductive : bool, default=False
        Let rows that are predicted together attend to one another.
    model : {"rows", "npt"}, default="rows"
        "rows" is the ensemble; "npt" a non-parametric transformer (Kossen et al. 2021).
    random_state : int, RandomState instance or None, default=0
        Seed of training. The same seed gives the same predictions.

    Attributes
    ----------
    schema_ : Schema
        Kinds and levels of the columns of X.
    learner_ : TableLearner
        The fitted learner.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str
        Names of the columns, where X has names.

    See Also
    --------
    TableClassifier : Predict classes.
    TableImputer : Fill every missing cell of a table.

    References
    ----------
    Kossen, J., et al. (2021). Self-attention between datapoints: going beyond individual input-output pairs in deep
    learning. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from fillin import TableRegressor
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = TableRegressor(members=2, steps=20).fit(X, 3 * X[:, 0])
    >>> mean, (low, high) = model.predict(X, quantiles=[0.025, 0.975])
    >>> mean.shape, bool((low < high).all())
    ((40,), True)
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y) -> "TableRegressor":
        """Train on a table.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            The features; cells may be missing.
        y : array-like of shape (n,) or (n, outputs)
            The targets; NaN in rows without a label.

        Returns
        -------
        TableRegressor
            The fitted estimator.

        Raises
        ------
        InputError
            If y is missing, holds text, or has a column without any value.
        """
        inputs = self._encode(X, reset=True)
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        for text in (value for value in np.asarray(y).ravel()[:1] if isinstance(value, str)):
            raise InputError(f"y contains text, such as '{text}'; for classes use TableClassifier")
        targets, self.single_output_ = check_targets(inputs, y)
        columns = tuple(Column(f"y{i}", "number") for i in range(targets.shape[1]))
        self._fit(inputs, targets, columns, self.features)
        return self

    def predict(self, X, return_std: bool = False, quantiles=None):
        """Predict the mean, and on request the standard deviation and quantiles.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows to predict.
        return_std : bool, default=False
            Also return the standard deviation.
        quantiles : float or list of k floats, optional
            Also return the quantiles at these probabilities.

        Returns
        -------
        ndarray or tuple of ndarray
            The mean (m,) or (m, outputs), then the standard deviation, then the quantiles; a list of k quantiles has
            a first axis of k.
        """
        levels = check_levels(quantiles)
        predictions: list[Any] = self._predict(X)[: len(self.target_columns_)]
        results = [self._stack([column.mean for column in predictions])]
        if return_std:
            results.append(self._stack([column.std for column in predictions]))
        if quantiles is not None:
            arrays = [self._stack([column.quantile(level) for column in predictions]) for level in levels]
            results.append(arrays[0] if np.ndim(quantiles) == 0 else np.stack(arrays))
        return results[0] if len(results) == 1 else tuple(results)

    def _log_prob(self, predictions: list[Any], y: ndarray) -> Float[ndarray, "..."]:
        y = np.asarray(y, dtype=float).reshape(len(predictions[0].means), -1)
        return self._stack([column.log_prob(y[:, i]) for i, column in enumerate(predictions)])

    def _to_targets(self, draws: ndarray) -> ndarray:
        return draws[:, 0] if self.single_output_ else draws

    def _extra_state(self) -> dict[str, Any]:
        return {"one": self.single_output_}

    def _set_extra_state(self, state: dict[str, Any]) -> None:
        self.single_output_ = state["one"]

    def _stack(self, columns: list[ndarray]) -> ndarray:
        return columns[0] if self.single_output_ else np.stack(columns, -1)


class TableClassifier(ClassifierMixin, TablePredictor):
    """Predict a class from the other columns of a table, with a calibrated probability for each.

    Works as `TableRegressor` does. None or NaN in y marks an unlabelled row.

    Parameters
    ----------
    members : int, default=8
        Networks of the ensemble (n_estimators of scikit-learn). Ignored by ``model="npt"``, which trains one.
    steps : int or "auto", default="auto"
        Maximum number of training steps (max_iter of scikit-learn); "auto" takes 500, and more for tables of more than
        2,000 rows.
    kinds : dict of str to str, optional
        Kinds of columns whose values do not show it: ``{"postcode": "class"}``.
    scale : {"standard", "quantile"}, default="standard"
        Transform of numeric columns that are predicted (with `features`).
    features : float, default=0.0
        The weight of predicting masked cells of X, annealed to 0 during training (λ of Kossen et al. 2021).
    transductive : bool, default=False
        Let rows that are predicted together attend to one another.
    model : {"rows", "npt"}, default="rows"
        "rows" is the ensemble; "npt" a non-parametric transformer, for at most 10 classes.
    random_state : int, RandomState instance or None, default=0
        Seed of training.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        The class labels.
    schema_ : Schema
        Kinds and levels of the columns of X.
    learner_ : TableLearner
        The fitted learner.

    See Also
    --------
    TableRegressor : Predict numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fillin import TableClassifier
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = TableClassifier(members=2, steps=20).fit(X, np.where(X[:, 0] > 0.5, "high", "low"))
    >>> model.classes_.tolist(), model.predict_proba(X).shape
    (['high', 'low'], (40, 2))
    """

    def fit(self, X, y) -> "TableClassifier":
        """Train on a table.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            The features; cells may be missing.
        y : array-like of shape (n,)
            Class labels; None or NaN in rows without one.

        Returns
        -------
        TableClassifier
            The fitted estimator.

        Raises
        ------
        InputError
            If no label is given, or there are more than 100 classes.
        """
        inputs = self._encode(X, reset=True)
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_consistent_length(inputs, y)
        labelled = np.array([label is not None and label == label for label in y.tolist()])
        if not labelled.any():
            raise InputError("y: no row has a label; label some rows")
        check_classification_targets(y[labelled])
        self.classes_, codes = np.unique(y[labelled], return_inverse=True)
        if len(self.classes_) > MAX_CLASSES:
            raise InputError(f"y has {len(self.classes_)} classes; at most {MAX_CLASSES} are supported")
        targets = np.full((len(y), 1), np.nan)
        targets[labelled, 0] = codes
        self._fit(inputs, targets, (Column("y", "class", tuple(range(len(self.classes_) - 1))),), self.features)
        return self

    def predict_proba(self, X) -> Float[ndarray, "n k"]:
        """Predict the probability of each class.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows to predict.

        Returns
        -------
        ndarray of shape (m, k)
            Probabilities, in the order of `classes_`.
        """
        prediction = self._predict(X)[0]
        assert isinstance(prediction, Categorical)
        return prediction.probabilities

    def predict(self, X) -> ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows to predict.

        Returns
        -------
        ndarray of shape (m,)
            Class labels.
        """
        codes = self.predict_proba(X).argmax(-1)  # first: raises an error before fit
        return self.classes_[codes]

    def _log_prob(self, predictions: list[Any], y: ndarray) -> Float[ndarray, "n"]:
        code = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        with np.errstate(divide="ignore"):
            log_prob = np.log(predictions[0].probabilities[np.arange(len(y)), code])
        return np.where(self.classes_[code] == y, log_prob, -np.inf)

    def _to_targets(self, draws: ndarray) -> ndarray:
        return self.classes_[draws[:, 0]]

    def _extra_state(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str}

    def _set_extra_state(self, state: dict[str, Any]) -> None:
        self.classes_ = np.array(state["classes"], dtype=state["dtype"])


class TableImputer(TransformerMixin, TableEstimator):
    """Fill every missing cell of a table from the other cells of its row, and from similar rows.

    `transform` returns the mean of a number and the most probable class; `fill` also returns their uncertainty.

    Parameters
    ----------
    members : int, default=8
        Networks of the ensemble (n_estimators of scikit-learn). Ignored by ``model="npt"``, which trains one.
    steps : int or "auto", default="auto"
        Maximum number of training steps (max_iter of scikit-learn); "auto" takes 500, and more for tables of more than
        2,000 rows.
    kinds : dict of str to str, optional
        Kinds of columns whose values do not show it: ``{"postcode": "class"}``.
    scale : {"standard", "quantile"}, default="standard"
        Transform of numeric columns; "quantile" suits heavy tails.
    transductive : bool, default=False
        Let rows that are filled together attend to one another.
    model : {"rows", "npt"}, default="rows"
        "rows" is the ensemble; "npt" a non-parametric transformer, for at most 10 classes a column.
    random_state : int, RandomState instance or None, default=0
        Seed of training.

    Attributes
    ----------
    schema_ : Schema
        Kinds and levels of the columns.
    learner_ : TableLearner
        The fitted learner.

    See Also
    --------
    fillin.fill : Fill a file or a data frame in one call.

    Examples
    --------
    >>> import numpy as np
    >>> from fillin import TableImputer
    >>> X = np.stack([np.linspace(0, 1, 40), np.linspace(2, 4, 40)], 1)
    >>> X[7, 1] = np.nan
    >>> TableImputer(members=2, steps=20).fit_transform(X).shape
    (40, 2)
    """

    def fit(self, X, y=None) -> "TableImputer":
        """Train on a table with missing cells.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            The table.
        y : None
            Ignored; part of the scikit-learn API.

        Returns
        -------
        TableImputer
            The fitted estimator.
        """
        inputs = self._encode(X, reset=True)
        self._fit(inputs, np.empty((len(inputs), 0)), (), 1.0)
        return self

    def fill(self, X) -> tuple[Float[ndarray, "n d"], Float[ndarray, "n d"]]:
        """Fill missing cells, with their uncertainty.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows with missing cells.

        Returns
        -------
        values : ndarray of shape (m, d)
            Numbers and class codes without missing cells.
        uncertainty : ndarray of shape (m, d)
            The standard deviation of a filled number, the probability of another class for a filled class, and 0 for
            observed cells.
        """
        check_is_fitted(self)
        values = self._encode(X, reset=False)
        missing = np.isnan(values)
        filled, uncertainty = values.copy(), np.zeros_like(values)
        incomplete = np.flatnonzero(missing.any(1))
        if len(incomplete):
            for j, prediction in enumerate(self.learner_.predict(values[incomplete], self.transductive)):
                is_missing = missing[incomplete, j]
                if isinstance(prediction, Categorical):
                    column, cell_uncertainty = prediction.mode, 1 - prediction.confidence
                else:
                    column, cell_uncertainty = prediction.moments()
                filled[incomplete[is_missing], j] = column[is_missing]
                uncertainty[incomplete[is_missing], j] = cell_uncertainty[is_missing]
        return filled, uncertainty

    def transform(self, X) -> ndarray:
        """Fill missing cells.

        Parameters
        ----------
        X : DataFrame or array-like of shape (m, d)
            Rows with missing cells.

        Returns
        -------
        ndarray of shape (m, d)
            Numbers, or objects where columns hold classes or dates. A class that `fit` did not see stays as it is.
        """
        filled, _ = self.fill(X)
        if all(column.kind == "number" for column in self.schema_.columns):
            return filled
        columns = []
        for j, column in enumerate(self.schema_.columns):
            decoded = column.decode(filled[:, j]).astype(object)
            unseen = np.array([value is None for value in decoded])
            if unseen.any():
                original = X[column.name] if hasattr(X, "columns") else np.asarray(X, dtype=object)[:, j]
                decoded[unseen] = np.asarray(original, dtype=object)[unseen]
            columns.append(decoded)
        return np.stack(columns, 1)

    def get_feature_names_out(self, input_features=None) -> ndarray:
        """Return the names of the columns.

        Parameters
        ----------
        input_features : None
            Ignored; part of the scikit-learn API.

        Returns
        -------
        ndarray of str
            Column names.
        """
        check_is_fitted(self)
        return np.array(self.schema_.names, dtype=object)
