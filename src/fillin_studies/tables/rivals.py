"""What people predict tables with today, at default settings, in one thread; from a seed to an estimator.

All read the same table: classes as one column each, blanks as they are where a method knows what to do with them, else
as the mean or the most common.
"""

from collections.abc import Callable
from typing import Any

Make = Callable[[int], Any]  # from a seed


def prepared(model: Any, blanks: bool = False, scaled: bool = False) -> Any:
    """The model behind what makes numbers of a table; `blanks`: it can do with missing numbers."""
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps = [*([] if blanks else [SimpleImputer(keep_empty_features=True)]), *([StandardScaler()] if scaled else [])]
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    parts = [
        ("numbers", make_pipeline(*steps) if steps else "passthrough", make_column_selector(dtype_include="number")),
        ("words", words, make_column_selector(dtype_exclude="number")),
    ]
    return make_pipeline(ColumnTransformer(parts), model)


def catboost(kind: str) -> Make:
    def make(seed: int) -> Any:
        import catboost

        model = getattr(catboost, f"CatBoost{kind}")
        return prepared(model(thread_count=1, random_seed=seed, verbose=False, allow_writing_files=False), blanks=True)

    return make


def xgboost(kind: str) -> Make:
    def make(seed: int) -> Any:
        import xgboost

        return prepared(getattr(xgboost, f"XGB{kind}")(n_jobs=1, random_state=seed), blanks=True)

    return make


def lightgbm(kind: str) -> Make:
    def make(seed: int) -> Any:
        import lightgbm

        return prepared(getattr(lightgbm, f"LGBM{kind}")(n_jobs=1, random_state=seed, verbose=-1), blanks=True)

    return make


def boosting(kind: str) -> Make:
    def make(seed: int) -> Any:
        from sklearn import ensemble

        return prepared(getattr(ensemble, f"GradientBoosting{kind}")(random_state=seed))

    return make


def forest(kind: str) -> Make:
    def make(seed: int) -> Any:
        from sklearn import ensemble

        return prepared(getattr(ensemble, f"RandomForest{kind}")(n_jobs=1, random_state=seed), blanks=True)

    return make


def perceptron(kind: str) -> Make:
    """On columns of deviation one, and so is the target."""

    def make(seed: int) -> Any:
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.neural_network import MLPClassifier, MLPRegressor
        from sklearn.preprocessing import StandardScaler

        if kind == "Classifier":
            return prepared(MLPClassifier(random_state=seed), scaled=True)
        model = TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
        return prepared(model, scaled=True)

    return make


def neighbours(kind: str) -> Make:
    def make(seed: int) -> Any:
        from sklearn import neighbors

        return prepared(getattr(neighbors, f"KNeighbors{kind}")(n_jobs=1), scaled=True)

    return make


def process(kind: str) -> Make:
    def make(seed: int) -> Any:
        from fillin_studies.tables import gps

        return prepared(getattr(gps, f"Process{kind}")(seed), scaled=True)

    return make
