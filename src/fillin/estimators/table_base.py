"""What the three estimators share: how tables come in, how they are learnt, how they are saved."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from safetensors import SafetensorError

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("estimators of tables need scikit-learn: pip install 'fillin[fill]'") from error

from fillin.data.tables import Column, Scale, Schema
from fillin.errors import InputError, choose
from fillin.io import read_tensors, write_tensors
from fillin.learners.calibration import Widths
from fillin.learners.gp import Settings
from fillin.learners.npt import NPTFitted
from fillin.learners.row_learner import Fitted, Question
from fillin.learners.training import Plan, enough_steps
from fillin.runtime import progress

FORMAT = 1
_MODELS: dict[str, type[Fitted] | type[NPTFitted]] = {"rows": Fitted, "npt": NPTFitted}


class TableEstimator(BaseEstimator):
    """Parameters of all: `members` networks are trained together for at most `steps` steps ("auto": 500, more where
    there are more than 2,000 rows), each on all rows but those that it holds out to know when to stop; `kinds` says
    what columns are where it cannot be told from their values, {"postcode": "class"}; `scale` is "standard", or
    "quantile" where numbers have heavy tails; rows that are asked for together do not see each other, unless
    `transductive`; `model` is "rows", networks of a row and of rows like it, or "npt", one non-parametric transformer
    (whatever `members` says); `random_state` makes a fit exact, number for number."""

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

    def _columns(self, X, reset: bool) -> Float[ndarray, "n d"]:
        """X as numbers and codes; its schema is learnt where `reset`."""
        if not hasattr(X, "columns"):
            options: dict[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan", "estimator": self}
            X = check_array(X, input_name="X", **options)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            self.schema_ = Schema.infer(X, self.kinds)
        return self.schema_.encode(X)

    def _learn(
        self, reads: Float[ndarray, "n d"], targets: Float[ndarray, "n t"], told: tuple[Column, ...], features: float
    ) -> None:
        """Targets, and with a weight of `features` the columns that are read; without targets those alone."""
        steps = enough_steps(len(reads)) if isinstance(self.steps, str) and self.steps == "auto" else self.steps
        for name, value in (("members", self.members), ("steps", steps)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not 0 <= features <= 1:
            raise InputError(f"features is a weight from 0 to 1, got {features!r}")
        learner = _MODELS[choose("model", self.model, _MODELS)]
        columns, shared, tells = told, (-1,) * len(told), targets
        if features:
            columns = (*told, *self.schema_.columns)
            shared, tells = (*shared, *range(reads.shape[1])), np.concatenate([targets, reads], 1)
        own = tuple(column.classes for column in self.schema_.columns)
        question = Question(own, tuple(column.classes for column in columns), shared, features)
        seed = int(check_random_state(self.random_state).randint(2**31))
        with progress(f"learning {len(reads):,} rows", int(steps)) as tick:
            self.fitted_ = learner.learn(
                question,
                reads,
                tells,
                self.scale,
                seed,
                Plan(steps=int(steps)),
                {"members": int(self.members)} if learner is Fitted else {},
                tick,
            )
        self.told_ = told

    def _told(self, X):
        check_is_fitted(self)
        return self.fitted_.tell(self._columns(X, reset=False), self.transductive)

    def save(self, path: str | os.PathLike) -> Path:
        """Write all of it to one safetensors file: weights, rows, settings. It is never half-written."""
        check_is_fitted(self)
        path, fitted = Path(path), self.fitted_
        tensors = {f"net.{name}": t.detach().contiguous() for name, t in fitted.net.state_dict().items()}
        tensors |= {"reads": torch.tensor(fitted.reads), "tells": torch.tensor(fitted.tells)}  # some are read-only
        for j, settings in enumerate(fitted.settings):
            tensors |= {f"smooth.{j}.{name}": t for name, t in vars(settings).items()} if settings else {}
        about = {
            "format": FORMAT, "kind": type(self).__name__, "parameters": self._plain(), "own": self._own(),
            "schema": self.schema_.to_dict(), "told": Schema(self.told_).to_dict(),
            "question": vars(fitted.question), "net": fitted.net_options,
            "scales": [None if scale is None else scale.to_dict() for scale in fitted.scales],
            "widths": [vars(widths) for widths in fitted.widths], "blanks": fitted.most_blanks,
            "features": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }  # fmt: skip
        tensors = {name: t.contiguous() for name, t in tensors.items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors, {"fillin.table": json.dumps(about)})
        except (OSError, TypeError, SafetensorError) as error:
            raise InputError(f"save: cannot write {path}: {error}") from error
        return path

    def _plain(self) -> dict[str, Any]:
        """Parameters as JSON has them; a random state that is no number is not kept."""
        whole = {k: int(v) if isinstance(v, np.integer) else v for k, v in self.get_params(deep=False).items()}
        return {k: v if k != "random_state" or isinstance(v, int) else None for k, v in whole.items()}

    def _own(self) -> dict[str, Any]:
        """What one kind of estimator knows besides."""
        return {}

    def _restore(self, own: dict[str, Any]) -> None:
        pass

    @classmethod
    def load(cls, path: str | os.PathLike) -> "TableEstimator":
        """What `save` wrote."""
        about, tensors = read_tensors(path, "fillin.table", "table")
        if not isinstance(about, dict) or (about.get("format"), about.get("kind")) != (FORMAT, cls.__name__):
            raise InputError(f"load: {path} is not a {cls.__name__} of format {FORMAT}")
        try:
            made = cls(**about["parameters"])
            made.schema_, made.told_ = Schema.from_dict(about["schema"]), Schema.from_dict(about["told"]).columns
            asked = about["question"]
            reads, tells, shared = (tuple(asked[k]) for k in ("reads", "tells", "shared"))
            question = Question(reads, tells, shared, asked["features"])
            scales = [None if scale is None else Scale.from_dict(scale) for scale in about["scales"]]
            known = tensors["reads"].numpy()
            fitted = _MODELS[made.model](question, known, tensors["tells"].numpy(), scales, about["net"])
            weights = {k.removeprefix("net."): t for k, t in tensors.items() if k.startswith("net.")}
            fitted.net.load_state_dict(weights)
            fitted.widths = [Widths(**widths) for widths in about["widths"]]
            fitted.guessing_by([_settings(tensors, f"smooth.{j}.") for j in range(len(tells))])
            fitted.leave_blanks(int(about.get("blanks", 0)))
            made.fitted_ = fitted
            setattr(made, "n_features_in_", known.shape[1])  # noqa: B010 (scikit-learn's own attributes)
            if about["features"]:
                setattr(made, "feature_names_in_", np.array(about["features"], dtype=object))  # noqa: B010
            made._restore(about["own"])
        except (KeyError, TypeError, RuntimeError) as error:
            raise InputError(f"load: the parts of {path} do not fit together: {error}") from error
        return made


def _settings(tensors: dict[str, torch.Tensor], start: str) -> Settings | None:
    found = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
    return Settings(**found) if found else None
