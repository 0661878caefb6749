"""The methods that are compared. Another is one more entry: estimators, and how distributions come of what they say."""

import ast
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fillin
from fillin_studies.tables import rivals
from fillin_studies.tables.data import Case
from fillin_studies.tables.forecasts import Forecast, deviations, points, whole
from fillin_studies.tables.rivals import Make


@dataclass(frozen=True)
class Method:
    """`needs`: a module that may not be there; `unlabelled`: it learns from rows without a label, too."""

    regressor: Make
    classifier: Make
    about: str
    needs: str = "sklearn"
    forecast: Callable[[Any, Case], Forecast] = points
    unlabelled: bool = False
    ours: bool = False

    @property
    def missing(self) -> str | None:
        """Why it cannot be asked."""
        return f"{self.needs} is not installed (pip install 'fillin[study]')" if find_spec(self.needs) is None else None

    @property
    def settings(self) -> dict[str, str]:
        """What a result depends on beside the data: ours gets better, and is then measured again."""
        return {"weights": digest()} if self.ours else {}


LEARNING = (  # the files that decide what ours says of a table
    *(f"tables/{name}.py" for name in ("members", "net", "joint", "smooth", "task", "training")),
    *(f"tables/{name}.py" for name in ("said", "widths", "blanks", "ensemble", "fitted")),
    *(f"data/tables/{name}.py" for name in ("schema", "scaling", "values")),
)


@lru_cache
def digest() -> str:
    """Twelve digits that tell the code of our estimators apart, whatever its comments and docstrings say."""
    root = Path(fillin.__file__).parent
    said = hashlib.sha256()
    for name in LEARNING:
        tree = ast.parse((root / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                node.body = [line for line in node.body if not _words(line)]
        said.update(ast.dump(tree).encode())
    return said.hexdigest()[:12]


def _words(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def regressor(seed: int) -> Any:
    return fillin.TableRegressor(random_state=seed)


def classifier(seed: int) -> Any:
    return fillin.TableClassifier(random_state=seed)


def semi_supervised(seed: int) -> Any:
    return fillin.TableClassifier(features=0.5, random_state=seed)


def rival(make: Callable[[str], Make], about: str, **options: Any) -> Method:
    return Method(make("Regressor"), make("Classifier"), about, **options)


OURS = "fillin"
METHODS: dict[str, Method] = {
    OURS: Method(
        regressor, classifier, "TableRegressor, TableClassifier, trained on the table", forecast=whole, ours=True
    ),
    "CatBoost": rival(rivals.catboost, "1,000 trees", needs="catboost"),
    "XGBoost": rival(rivals.xgboost, "100 trees", needs="xgboost"),
    "LightGBM": rival(rivals.lightgbm, "100 trees", needs="lightgbm"),
    "gradient boosting": rival(rivals.boosting, "scikit-learn's, 100 trees"),
    "random forest": rival(rivals.forest, "scikit-learn's, 100 trees"),
    "MLP": rival(rivals.perceptron, "scikit-learn's, one layer of 100; columns and target in deviations"),
    "k-NN": rival(rivals.neighbours, "scikit-learn's, five neighbours; columns in deviations"),
    "Gaussian process": rival(
        rivals.process,
        "scikit-learn's; columns in deviations; numbers: an RBF with a length for each column and white noise, "
        "hyperparameters from at most 1,000 rows, given all; classes: one length, at most 500 rows",
        forecast=deviations,
    ),
}
ALONE = f"{OURS}, labelled rows"
WITH_FEW: dict[str, Method] = {
    OURS: replace(
        METHODS[OURS],
        classifier=semi_supervised,
        unlabelled=True,
        about="TableClassifier(features=0.5), given all rows",
    ),
    ALONE: replace(METHODS[OURS], about="TableClassifier, given the labelled rows, as all others"),
    **{name: one for name, one in METHODS.items() if name != OURS},
}


def of(few: int) -> dict[str, Method]:
    """The methods for sets with all labels, or with few."""
    return WITH_FEW if few else METHODS
