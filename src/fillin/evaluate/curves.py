"""Evaluation on curves: the training distribution, shifted inputs, extrapolation, other functions, context sizes."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fillin.data import Curves, curves
from fillin.data.curves import defaults
from fillin.errors import InputError
from fillin.evaluate.evaluation import (
    Evaluation,
    ResultTable,
    find_run,
    format_estimate,
    format_percent,
    format_score,
)
from fillin.evaluate.scores import Likelihood, Scores, check_dimensions, evaluate
from fillin.models import Process, load
from fillin.pretrained import locate, names
from fillin.runtime import progress

FUNCTIONS = ("rbf", "matern-5/2", "periodic")
# Tasks per batch, whatever a model was trained with: all models see the same tasks. Few, because the tasks of a batch
# share their numbers of points.
BATCH = 4


@dataclass(frozen=True)
class Condition:
    """The property that distinguishes the tasks of a setting.

    `kind` is "training", "shift", "beyond" (all targets to the right of the context), "function" or "context"; `value`
    is the function, the distance or the number of points.

    >>> Condition("shift", 4.0).label, Condition("context", 8).label
    ('shifted by 4', '8 points')
    """

    kind: str
    value: str | float | int

    @property
    def label(self) -> str:
        labels = {"training": "training: {}", "shift": "shifted by {:g}", "beyond": "beyond the context"}
        if self.kind == "context":
            return f"{self.value} point{'s' * (self.value != 1)}"
        return labels.get(self.kind, "{}").format(self.value)


@dataclass(frozen=True)
class Setting(Condition):
    """A condition and its tasks."""

    stream: Curves


@dataclass(frozen=True)
class SettingScores(Condition):
    """A condition and the scores on its tasks."""

    scores: Scores


@dataclass(frozen=True)
class CurveEvaluation(Evaluation):
    """A model and its settings. `data` are the arguments of `fillin.data.curves` for the first of them.

    `limit` hyperparameter settings are averaged for the Bayes limit. `autoregressive` adds the joint likelihood of a
    marginal model on an eighth of the batches.
    """

    model: Process
    data: dict[str, Any]
    settings: Sequence[Setting]
    batches: int = 160
    seed: int = 0
    limit: int = 256
    autoregressive: bool = False

    @property
    def joint_batches(self) -> int:
        return max(1, self.batches // 8) if self.autoregressive else 0

    def describe(self) -> dict[str, Any]:
        budget = {"batches": self.batches, "batch": BATCH, "settings": self.limit, "autoregressive": self.joint_batches}
        return {"data": self.data, "budget": budget}

    def score(self, show_progress: bool = False) -> list[SettingScores]:
        options = {"settings": self.limit, "autoregressive": self.joint_batches}
        with progress("evaluate", len(self.settings) * max(1, self.batches), show_progress) as tick:
            return [
                SettingScores(
                    setting.kind,
                    setting.value,
                    evaluate(self.model, setting.stream, self.batches, self.seed, tick=tick, **options),
                )
                for setting in self.settings
            ]

    def draw(self, folder: Path, scores: Sequence[SettingScores]) -> list[Path]:
        from fillin.evaluate.curve_figures import draw_all  # matplotlib is slow to import

        return draw_all(folder, self.model, self.settings[0].stream, scores, self.seed)

    def tables(self, name: str, scores: Sequence[SettingScores]) -> list[ResultTable]:
        columns = ("setting", "log-likelihood", "limit", "gap", "known")
        marginal = ResultTable(
            f"{name}: marginal predictions, {scores[0].scores.tasks} tasks per setting",
            (*columns, "RMSE", "CRPS", "50 %", "80 %", "95 %", "KS"),
            [(row.label, *_likelihood_cells(row.scores), *_marginal_cells(row.scores)) for row in scores],
            "Nats per target, ± one standard error. limit: exact inference, given the prior of the hyperparameters; "
            "known: given the hyperparameters; –: no closed form, or --limit too small. gap: limit − log-likelihood. "
            "50 %: coverage of the central 50 % interval. KS: Kolmogorov–Smirnov distance of the PIT from uniform.",
        )
        joint = [(row.label, row.scores.joint) for row in scores if row.scores.joint is not None]
        if not joint:
            return [marginal]
        factors = "each target given the previous ones" if self.model.kind == "marginal" else self.model.kind
        title = f"{name}: joint prediction of all targets, {factors}, {joint[0][1].tasks} tasks per setting"
        return [marginal, ResultTable(title, columns, [(label, *_likelihood_cells(each)) for label, each in joint])]


def _likelihood_cells(scores: Likelihood) -> tuple[str, ...]:
    gap = "–" if scores.gap is None or scores.gap_error is None else format_estimate(scores.gap, scores.gap_error)
    value = format_estimate(scores.log_likelihood, scores.standard_error)
    return value, format_score(scores.limit), gap, format_score(scores.known)


def _marginal_cells(scores: Scores) -> tuple[str, ...]:
    coverage = (format_percent((scores.coverage or {}).get(level)) for level in ("50", "80", "95"))
    return format_score(scores.rmse), format_score(scores.crps), *coverage, format_score(scores.ks)


def open_curves(
    folder: str | os.PathLike,
    function: str | None = None,
    protocol: str | None = None,
    *,
    functions: Sequence[str] | None = None,
    shift: float = 4.0,
    contexts: Sequence[int] | None = None,
    **budget: Any,
) -> CurveEvaluation:
    """Open the best model of a run with the data of its recipe, or a saved model with the named data.

    `budget` are further fields of `CurveEvaluation`; the other options are those of `make_settings`.
    """
    path = locate(folder)
    run = find_run(path)
    if run is None and not (path / "model.safetensors").exists():
        raise InputError(
            f"{path} is neither a run (fillin train makes one), nor a saved model (fillin.save), nor pretrained: "
            f"{', '.join(names())}"
        )
    model, recipe = load(path), {} if run is None else run.recipe["data"]
    if recipe.get("name") == "curves":
        if function or protocol:
            raise InputError(f"{path} is a run and has its data; drop function and protocol, or use {path}/best")
        data = {key: value for key, value in recipe.items() if key not in ("name", "batch")}
    elif recipe.get("name", "broad") == "broad":  # has no closed-form limit: it is evaluated on curves, which have one
        data = {"function": function or "rbf", "protocol": protocol or "tnp", "dim_x": model.dim_x or 1}
        if recipe.get("dim_x", 1) > 1:  # the few points and short lengths of a protocol for curves would show nothing
            data |= {"dim_x": min(recipe["dim_x"], 3), "context": (3, 200), "points": None, "length": (0.4, 2.0)}
    else:
        raise InputError(
            f"{path} was trained on {recipe['name']}, but runs are evaluated on curves and images; learning.png in it "
            "shows its validation scores"
        )
    trained = recipe.get("name") == "curves"
    settings = make_settings(model, data, functions, shift, contexts, trained=trained)
    return CurveEvaluation(model, data, settings, **budget)


def make_settings(
    model: Process,
    data: dict[str, Any],
    functions: Sequence[str] | None = None,
    shift: float = 4.0,
    contexts: Sequence[int] | None = None,
    *,
    trained: bool = True,
) -> list[Setting]:
    """Make the settings of a report.

    By default the functions are those of FUNCTIONS that fit the model, and the context sizes six over the range of the
    data. shift=0 omits the shifted inputs. `trained` says that `data` is the training distribution.
    """
    stream = _make_stream(data)
    check_dimensions(model, stream)
    settings = [Setting("training" if trained else "function", data["function"], stream)]
    if shift:
        settings.append(Setting("shift", shift, stream.at(shift=stream.layout.shift + shift)))
    low, high = stream.layout.range
    settings.append(Setting("beyond", high - low, stream.at(target_range=(high, 2 * high - low))))
    for function in FUNCTIONS if functions is None else functions:
        other = _make_stream({**data, "function": function})
        if functions is not None:
            check_dimensions(model, other)
        if function != data["function"] and other.dim_y == stream.dim_y:
            settings.append(Setting("function", function, other))
    for size in _context_sizes(*stream.layout.context) if contexts is None else sorted(set(contexts)):
        settings.append(Setting("context", size, stream.at(context=(size, size), points=None)))
    return settings


def _make_stream(data: dict[str, Any]) -> Curves:
    """Make the stream, with those of the given hyperparameters that its function has."""
    accepted = {"function", "protocol", *defaults(data.get("protocol", "tnp"), data["function"])}
    return curves(**{key: value for key, value in data.items() if key in accepted}, batch=BATCH)


def _context_sizes(low: int, high: int, number: int = 6) -> list[int]:
    """Return integers from low to high in about a geometric progression."""
    step = math.log((high + 1) / (low + 1)) / (number - 1)
    return sorted({round((low + 1) * math.exp(i * step)) - 1 for i in range(number)})
