"""Gaussian processes of scikit-learn whose time is bounded: hyperparameters are fitted to some of the rows."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

MOST = {"regression": 1000, "classification": 500}  # rows


def some(rows: int, kind: str, seed: int) -> ndarray:
    return np.random.default_rng(seed).permutation(rows)[: MOST[kind]]


class ProcessRegressor(RegressorMixin, BaseEstimator):
    """σ² RBF(ℓ of each column) + white: hyperparameters by the marginal likelihood of some rows, given all."""

    def __init__(self, seed: int = 0):
        self.seed = seed

    def fit(self, X: Float[ndarray, "n d"], y: Float[ndarray, "n"]) -> "ProcessRegressor":
        rows = some(len(X), "regression", self.seed)
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * X.shape[1], (1e-2, 1e3)) + WhiteKernel(0.1, (1e-6, 10))
        self.fitted_ = GaussianProcessRegressor(kernel, normalize_y=True, random_state=self.seed).fit(X[rows], y[rows])
        if len(rows) < len(X):
            known = self.fitted_.kernel_
            self.fitted_ = GaussianProcessRegressor(known, optimizer=None, normalize_y=True).fit(X, y)  # type: ignore[arg-type]
        return self

    def predict(self, X: Float[ndarray, "m d"], return_std: bool = False):
        return self.fitted_.predict(X, return_std=return_std)


class ProcessClassifier(ClassifierMixin, BaseEstimator):
    """σ² RBF(ℓ), Laplace's approximation, one class against the rest, of some rows alone."""

    def __init__(self, seed: int = 0):
        self.seed = seed

    def fit(self, X: Float[ndarray, "n d"], y: Float[ndarray, "n"]) -> "ProcessClassifier":
        rows = some(len(X), "classification", self.seed)
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(X.shape[1] ** 0.5, (1e-2, 1e3))
        self.fitted_ = GaussianProcessClassifier(kernel, random_state=self.seed).fit(X[rows], y[rows])
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X: Float[ndarray, "m d"]) -> Float[ndarray, "m k"]:
        return self.fitted_.predict_proba(X)
