"""The methods that are compared: fillin's estimators, and common ones at default settings on one thread.

A new method is one more entry of METHODS. All except fillin's read the same table of numbers (see `prepare_table`).
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

import fillin
from fillin.metrics import calibration_error, crps
from fillin.predictive import Categorical, GaussianMixture
from fillin.runtime import require
from fillin_studies.tables.data import TableSplit

MIN_PROBABILITY = 1e-6  # of a class, so that one confident mistake does not decide the mean
_FOLDS = 5

TimedPrediction = tuple[GaussianMixture, float]  # with the processor time of fit and predict in seconds


def predict_distribution(model: Any, split: TableSplit) -> TimedPrediction:
    """Fit and predict with an estimator of fillin, which predicts whole distributions."""
    start = time.process_time()
    prediction = model.fit(split.X, split.y)._predict(split.X_test)[0]
    return prediction, time.process_time() - start


def predict_std(model: Any, split: TableSplit) -> TimedPrediction:
    """Fit and predict with an estimator that predicts standard deviations: a Gaussian process."""
    start = time.process_time()
    mean, std = model.fit(split.X, split.y).predict(split.X_test, return_std=True)
    return _make_normal(mean, std, split), time.process_time() - start


def predict_points(model: Any, split: TableSplit) -> TimedPrediction:
    """Fit and predict points: normal distributions with the RMSE of a cross-validation, whose time is not counted."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(_FOLDS, shuffle=True, random_state=0)
    errors = split.y - cross_val_predict(clone(model), split.X, split.y, cv=folds)
    start = time.process_time()
    mean = model.fit(split.X, split.y).predict(split.X_test)
    seconds = time.process_time() - start
    return _make_normal(mean, np.full(len(mean), np.sqrt(np.mean(errors**2))), split), seconds


def _make_normal(mean: Float[ndarray, "m"], std: Float[ndarray, "m"], split: TableSplit) -> GaussianMixture:
    std = np.maximum(std, 1e-6 * (split.y.std() or 1.0))
    return GaussianMixture(np.ones((len(mean), 1)), mean[:, None], std[:, None])


def score_numbers(prediction: GaussianMixture, truth: Float[ndarray, "m"]) -> dict[str, float]:
    """Return means over rows."""
    cdf = prediction.cdf(truth)
    return {
        "rmse": float(np.sqrt(np.mean((prediction.mean - truth) ** 2))),
        "log_likelihood": float(prediction.log_prob(truth).mean()),
        "crps": float(crps(prediction, truth).mean()),
        "covered": float(((cdf >= 0.025) & (cdf <= 0.975)).mean()),
    }


def score_classes(prediction: Categorical, truth: Float[ndarray, "m"]) -> dict[str, float]:
    """Return means over rows. AUROC is the mean over classes of each against the rest."""
    from sklearn.metrics import roc_auc_score

    codes, probabilities = truth.astype(int), prediction.probabilities
    of_truth = probabilities[np.arange(len(codes)), codes]
    return {
        "accuracy": float((prediction.mode == codes).mean()),
        "auroc": float(np.mean([roc_auc_score(codes == k, probabilities[:, k]) for k in np.unique(codes)])),
        "log_likelihood": float(np.log(np.clip(of_truth, MIN_PROBABILITY, 1)).mean()),
        "calibration": calibration_error(prediction, codes),
    }


MakeEstimator = Callable[[int], Any]  # from a seed
MAX_GP_ROWS = {"Regressor": 1000, "Classifier": 500}  # that hyperparameters are fitted to


@dataclass(frozen=True)
class TableMethod:
    """`requires`: an optional module; `unlabelled`: the method also learns from rows without a label; `version`: raised
    when its predictions change, so that stored results are measured again."""

    regressor: MakeEstimator
    classifier: MakeEstimator
    about: str
    requires: str = "sklearn"
    predict: Callable[[Any, TableSplit], TimedPrediction] = predict_points
    unlabelled: bool = False
    version: int = 1

    @property
    def missing(self) -> str | None:
        """The reason why the method cannot run, if any."""
        if find_spec(self.requires) is None:
            return f"{self.requires} is not installed (pip install 'fillin[study]')"
        return None

    def evaluate(self, split: TableSplit, seed: int) -> dict[str, float]:
        """Fit on the training rows of a split, on one thread, and score predictions of its test rows."""
        split = split if self.unlabelled else split.labelled
        with require("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an optimiser at its last step, or a hyperparameter at its bound
            if split.n_classes:
                start, model = time.process_time(), self.classifier(seed)
                predicted = model.fit(split.X, split.y).predict_proba(split.X_test)
                seconds = time.process_time() - start
                probabilities = np.zeros((len(predicted), split.n_classes))  # 0 where training rows lack a class
                probabilities[:, model.classes_.astype(int)] = predicted
                return {**score_classes(Categorical(probabilities), split.y_test), "seconds": seconds}
            numbers, seconds = self.predict(self.regressor(seed), split)
            return {**score_numbers(numbers, split.y_test), "seconds": seconds}


def prepare_table(model: Any, handles_missing: bool = False, scaled: bool = False) -> Any:
    """Return the model behind a transformation of the table to numbers."""
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps = [] if handles_missing else [SimpleImputer(keep_empty_features=True)]
    steps += [StandardScaler()] if scaled else []
    text = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    parts = [
        ("numbers", make_pipeline(*steps) if steps else "passthrough", make_column_selector(dtype_include="number")),
        ("text", text, make_column_selector(dtype_exclude="number")),
    ]
    return make_pipeline(ColumnTransformer(parts), model)


MakeOfKind = Callable[[str, int], Any]  # from "Regressor" or "Classifier" and a seed


def baseline(
    make: MakeOfKind, about: str, handles_missing: bool = False, scaled: bool = False, **fields: Any
) -> TableMethod:
    """Return a method from a function that makes its estimators."""
    regressor, classifier = (
        lambda seed, kind=kind: prepare_table(make(kind, seed), handles_missing, scaled)
        for kind in ("Regressor", "Classifier")
    )
    return TableMethod(regressor, classifier, about, **fields)


def named(module: str, name: str, seed_option: str | None = "random_state", **options: Any) -> MakeOfKind:
    """Return a function that makes the estimator of that name; {} in it stands for Regressor or Classifier."""

    def make(kind: str, seed: int) -> Any:
        seeded = {seed_option: seed} if seed_option else {}
        return getattr(import_module(module), name.format(kind))(**options, **seeded)

    return make


def make_mlp(kind: str, seed: int) -> Any:
    """Return scikit-learn's network, that for numbers on a standardised target."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.preprocessing import StandardScaler

    network = named("sklearn.neural_network", "MLP{}")(kind, seed)
    return network if kind == "Classifier" else TransformedTargetRegressor(network, transformer=StandardScaler())


def make_gp(kind: str, seed: int) -> Any:
    """Return scikit-learn's Gaussian process with hyperparameters fitted to at most MAX_GP_ROWS rows: for numbers
    σ² RBF(ℓ of each column) + white noise, conditioned on all rows; for classes σ² RBF(ℓ), on the subset alone."""
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    def subset(X: ndarray) -> ndarray:
        return np.random.default_rng(seed).permutation(len(X))[: MAX_GP_ROWS[kind]]

    class SubsetRegressor(GaussianProcessRegressor):
        def fit(self, X: Float[ndarray, "n d"], y: Float[ndarray, "n"]):
            rows = subset(X)
            kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * X.shape[1], (1e-2, 1e3))
            self.kernel = kernel + WhiteKernel(0.1, (1e-6, 10))
            super().fit(X[rows], y[rows])
            if len(rows) < len(X):
                self.kernel, self.optimizer = self.kernel_, None
                super().fit(X, y)
            return self

    class SubsetClassifier(GaussianProcessClassifier):
        def fit(self, X: Float[ndarray, "n d"], y: Float[ndarray, "n"]):
            rows = subset(X)
            self.kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(X.shape[1] ** 0.5, (1e-2, 1e3))
            return super().fit(X[rows], y[rows])

    regressor = kind == "Regressor"
    return SubsetRegressor(normalize_y=True, random_state=seed) if regressor else SubsetClassifier(random_state=seed)


OURS = "fillin"
METHODS: dict[str, TableMethod] = {
    OURS: TableMethod(
        lambda seed: fillin.TableRegressor(random_state=seed),
        lambda seed: fillin.TableClassifier(random_state=seed),
        "TableRegressor, TableClassifier, trained on the table",
        predict=predict_distribution,
    ),
    "CatBoost": baseline(
        named("catboost", "CatBoost{}", "random_seed", thread_count=1, verbose=False, allow_writing_files=False),
        "1,000 trees", handles_missing=True, requires="catboost",
    ),
    "XGBoost": baseline(named("xgboost", "XGB{}", n_jobs=1), "100 trees", handles_missing=True, requires="xgboost"),
    "LightGBM": baseline(
        named("lightgbm", "LGBM{}", n_jobs=1, verbose=-1), "100 trees", handles_missing=True, requires="lightgbm"
    ),
    "gradient boosting": baseline(named("sklearn.ensemble", "GradientBoosting{}"), "scikit-learn's, 100 trees"),
    "random forest": baseline(
        named("sklearn.ensemble", "RandomForest{}", n_jobs=1), "scikit-learn's, 100 trees", handles_missing=True
    ),
    "MLP": baseline(make_mlp, "scikit-learn's, one layer of 100; columns and target standardised", scaled=True),
    "k-NN": baseline(
        named("sklearn.neighbors", "KNeighbors{}", None, n_jobs=1),
        "scikit-learn's, five neighbours; columns standardised", scaled=True,
    ),
    "Gaussian process": baseline(
        make_gp,
        "scikit-learn's; columns standardised; numbers: an RBF with a length scale for each column and white noise, "
        "hyperparameters from at most 1,000 rows, conditioned on all; classes: one length scale, at most 500 rows",
        scaled=True, predict=predict_std,
    ),
}  # fmt: skip
LABELLED_ONLY = f"{OURS}, labelled rows"
FEW_LABEL_METHODS: dict[str, TableMethod] = {
    OURS: replace(
        METHODS[OURS],
        classifier=lambda seed: fillin.TableClassifier(features=0.5, random_state=seed),
        unlabelled=True,
        about="TableClassifier(features=0.5), given all rows",
    ),
    LABELLED_ONLY: replace(METHODS[OURS], about="TableClassifier, given the labelled rows, as all others"),
    **{name: method for name, method in METHODS.items() if name != OURS},
}


def select_methods(few_labels: int) -> dict[str, TableMethod]:
    """Return the methods for sets with all labels, or with few."""
    return FEW_LABEL_METHODS if few_labels else METHODS
