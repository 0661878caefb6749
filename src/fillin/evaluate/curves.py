"""Evaluation on curves: the training distribution, shifted inputs, extrapolation, other functions, context sizes."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from fillin import plots
from fillin.data import Curves, FunctionPrior, GaussianProcessPrior, MixturePrior, Task, curves
from fillin.data.curves import defaults
from fillin.errors import InputError
from fillin.evaluate import Likelihood, Scores, evaluate
from fillin.evaluate.scores import Evaluation, ResultTable, check_dimensions, find_run, to_test_stream
from fillin.metrics import COVERAGE_LEVELS, PIT_BINS
from fillin.models import Process, load
from fillin.plots import BLUE, COLOURS, FAINT, GREEN, INK, ORANGE, panels, save, style
from fillin.pretrained import locate, names
from fillin.runtime import progress
from fillin.sampling import sample

FUNCTIONS = ("rbf", "matern-5/2", "periodic")
# Tasks per batch, whatever a model was trained with: all models see the same tasks. Few, because the tasks of a batch
# share their numbers of points.
BATCH = 4
_DASHED = (0, (4, 3))
_SAMPLE_PATHS = 5
_HELD_OUT_POINTS = 40


@dataclass(frozen=True)
class Condition:
    """The property that distinguishes some tasks from others: "beyond" has all targets to the right of the context.

    >>> Condition("shift", 4.0).label, Condition("context", 8).label
    ('shifted by 4', '8 points')
    """

    kind: str  # "training", "shift", "beyond", "function" or "context"
    value: str | float | int  # the function, the distance or the number of points

    @property
    def label(self) -> str:
        labels = {"training": "training: {}", "shift": "shifted by {:g}", "beyond": "beyond the context"}
        if self.kind == "context":
            return f"{self.value} point{'s' * (self.value != 1)}"
        return labels.get(self.kind, "{}").format(self.value)


@dataclass(frozen=True)
class ConditionTasks(Condition):
    """A condition and its tasks."""

    stream: Curves


@dataclass(frozen=True)
class ConditionScores(Condition):
    """A condition and the scores on its tasks."""

    scores: Scores


@dataclass(frozen=True)
class CurveEvaluation(Evaluation):
    """A model and the conditions that it is scored under. `data` are the arguments of `fillin.data.curves` for the
    first of them, `limit_samples` the number of hyperparameter settings that the Bayes limit averages over."""

    model: Process
    data: dict[str, Any]
    conditions: Sequence[ConditionTasks]
    batches: int = 160
    seed: int = 0
    limit_samples: int = 256
    autoregressive: bool = False  # adds the joint likelihood of a marginal model on an eighth of the batches

    @property
    def joint_batches(self) -> int:
        return max(1, self.batches // 8) if self.autoregressive else 0

    def describe(self) -> dict[str, Any]:
        budget = {"batches": self.batches, "batch": BATCH, "settings": self.limit_samples}
        return {"data": self.data, "budget": {**budget, "autoregressive": self.joint_batches}}

    def score(self, show_progress: bool = False) -> list[ConditionScores]:
        options = {"limit_samples": self.limit_samples, "autoregressive": self.joint_batches}
        with progress("evaluate", len(self.conditions) * max(1, self.batches), show_progress) as tick:
            return [
                ConditionScores(
                    s.kind, s.value, evaluate(self.model, s.stream, self.batches, self.seed, tick=tick, **options)
                )
                for s in self.conditions
            ]

    def draw(self, folder: Path, scores: Sequence[ConditionScores]) -> list[Path]:
        stream = self.conditions[0].stream
        paths = [draw_predictions(folder / "curves.png", self.model, stream, self.seed)] if stream.dim_x == 1 else []
        if calibrated := [row for row in scores if row.kind != "context" and row.scores.pit is not None]:
            paths.append(draw_calibration(folder / "calibration.png", calibrated))
        if contexts := [row for row in scores if row.kind == "context"]:
            paths.append(draw_context_sizes(folder / "context.png", contexts))
        if plots.find_spans(self.model):
            paths.append(save(plots.draw_windows(self.model), folder / "windows.png"))
        return paths

    def tables(self, name: str, scores: Sequence[ConditionScores]) -> list[ResultTable]:
        columns = ("setting", "log-likelihood", "limit", "gap", "known")
        marginal = ResultTable(
            f"{name}: marginal predictions, {scores[0].scores.tasks} tasks per setting",
            (*columns, "RMSE", "CRPS", "50 %", "80 %", "95 %", "KS"),
            [(row.label, *row.scores.likelihood_cells, *row.scores.marginal_cells) for row in scores],
            "Nats per target, ± one standard error. limit: exact inference, given the prior of the hyperparameters; "
            "known: given the hyperparameters; –: no closed form, or --limit too small. gap: limit − log-likelihood. "
            "50 %: coverage of the central 50 % interval. KS: Kolmogorov–Smirnov distance of the PIT from uniform.",
        )
        joint = [(row.label, row.scores.joint) for row in scores if row.scores.joint is not None]
        if not joint:
            return [marginal]
        factors = "each target given the previous ones" if self.model.kind == "marginal" else self.model.kind
        title = f"{name}: joint prediction of all targets, {factors}, {joint[0][1].tasks} tasks per setting"
        rows = [(label, *likelihood.likelihood_cells) for label, likelihood in joint]
        return [marginal, ResultTable(title, columns, rows)]


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
    """Open the best model of a run with the data of its recipe, or a saved model with the named data. Further options
    are those of `make_conditions`, and other fields of `CurveEvaluation`."""
    path = locate(folder)
    run = find_run(path)
    if run is None and not (path / "model.safetensors").exists():
        raise InputError(
            f"{path} is neither a run (fillin train makes one), nor a saved model (fillin.save), nor pretrained: "
            f"{', '.join(names())}"
        )
    model, recipe = load(path), {} if run is None else run.recipe["data"]
    trained = recipe.get("name") == "curves"
    if trained:
        if function or protocol:
            raise InputError(f"{path} is a run and has its data; drop function and protocol, or use {path}/best")
        data = {key: value for key, value in recipe.items() if key not in ("name", "batch")}
    elif recipe.get("name", "broad") in (
        "broad",
        "sheets",
    ):  # has no closed-form limit: it is evaluated on curves, which have one
        data = {"function": function or "rbf", "protocol": protocol or "tnp", "dim_x": model.dim_x or 1}
        if recipe.get("dim_x", 1) > 1:  # the few points and short lengths of a protocol for curves would show nothing
            data |= {"dim_x": min(recipe["dim_x"], 3), "context": (3, 200), "points": None, "length": (0.4, 2.0)}
    else:
        raise InputError(
            f"{path} was trained on {recipe['name']}, but runs are evaluated on curves and images; learning.png in it "
            "shows its validation scores"
        )
    conditions = make_conditions(model, data, functions, shift, contexts, trained=trained)
    return CurveEvaluation(model, data, conditions, **budget)


def make_conditions(
    model: Process,
    data: dict[str, Any],
    functions: Sequence[str] | None = None,
    shift: float = 4.0,
    contexts: Sequence[int] | None = None,
    *,
    trained: bool = True,
) -> list[ConditionTasks]:
    """Make the conditions of a report, by default with those of FUNCTIONS that fit the model, and six context sizes
    over the range of the data. shift=0 omits shifted inputs. `trained`: `data` is the training distribution."""
    stream = _make_stream(data)
    check_dimensions(model, stream)
    conditions = [ConditionTasks("training" if trained else "function", data["function"], stream)]
    if shift:
        conditions.append(ConditionTasks("shift", shift, stream.at(shift=stream.layout.shift + shift)))
    low, high = stream.layout.range
    conditions.append(ConditionTasks("beyond", high - low, stream.at(target_range=(high, 2 * high - low))))
    for function in FUNCTIONS if functions is None else functions:
        other = _make_stream({**data, "function": function})
        if functions is not None:
            check_dimensions(model, other)
        if function != data["function"] and other.dim_y == stream.dim_y:
            conditions.append(ConditionTasks("function", function, other))
    if contexts is None:  # six or fewer, in about a geometric progression
        low, high = (size + 1 for size in stream.layout.context)
        step = math.log(high / low) / 5
        contexts = [round(low * math.exp(i * step)) - 1 for i in range(6)]
    for size in sorted(set(contexts)):
        conditions.append(ConditionTasks("context", size, stream.at(context=(size, size), points=None)))
    return conditions


def _make_stream(data: dict[str, Any]) -> Curves:
    """Make the stream, with those of the given hyperparameters that its function has."""
    accepted = {"function", "protocol", *defaults(data.get("protocol", "tnp"), data["function"])}
    return curves(**{key: value for key, value in data.items() if key in accepted}, batch=BATCH)


@torch.no_grad()
def draw_predictions(path: Path, model: Process, stream: Curves, seed: int = 0) -> Path:
    """Draw predictions from few to many context points, and below them the exact posterior given the hyperparameters,
    where there is one. Both have 50 % and 95 % intervals and five sample paths."""
    low, high = stream.layout.target_range or stream.layout.range
    fine, coarse = (torch.linspace(low, high, n).view(1, n, 1) + stream.layout.shift for n in (241, 41))
    min_size, max_size = stream.layout.context
    sizes = sorted({max(min_size, round(max_size * share)) for share in (0.08, 0.25, 0.6)})
    device, training = next(model.parameters()).device, model.training
    model.eval()
    held_out = to_test_stream(replace(stream, batch=1), seed).at(targets=(_HELD_OUT_POINTS,) * 2, points=None)
    draws = [held_out.at(context=(size, size)).draw(size) for size in sizes]  # tasks and their hyperparameters
    with style(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # a model that samples targets in the given order was trained on random order, not from left to right
        coarse = coarse[:, torch.randperm(coarse.shape[1])]
        posteriors: list[Any] = [
            [_exact_posterior(stream.function, parameters, task, x) for x in (fine, coarse)]
            for task, parameters in draws
        ]
        exact = all(posterior for posterior, _ in posteriors)
        figure, axes = panels(1 + exact, len(sizes), width=9, height=2.1, sharex=True, sharey="col")
        for column, (task, _), (posterior, paths) in zip(axes.T, draws, posteriors, strict=True):
            xc, yc, xt, few = (t.to(device) for t in (task.xc, task.yc, fine, coarse))
            plots.draw_intervals(column[0], xt, model(xc, yc, xt), xc, yc)
            plots.draw_samples(column[0], few, sample(model, xc, yc, few, n=_SAMPLE_PATHS))
            column[0].set_title(Condition("context", task.xc.shape[1]).label)
            if exact:
                marginals = Normal(posterior.mean[..., None], posterior.stddev[..., None], validate_args=False)
                plots.draw_intervals(column[1], fine, marginals, task.xc, task.yc, colour=GREEN)
                samples = paths.sample(torch.Size([_SAMPLE_PATHS]))[..., None]
                plots.draw_samples(column[1], coarse, samples, colour=GREEN)
            for panel in column:
                panel.plot(task.xt[0, :, 0], task.yt[0, :, 0], "o", color=ORANGE, markersize=1.6, label="held out")
        axes[0, 0].set_ylabel("model")
        if exact:
            axes[1, 0].set_ylabel("exact posterior,\ngiven hyperparameters")
        axes[0, 0].plot([], [], color=BLUE, linewidth=0.6, alpha=0.55, label="samples")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    model.train(training)
    return save(figure, path)


def _exact_posterior(
    function: FunctionPrior, parameters: Any, task: Task, xt: Float[Tensor, "1 n 1"]
) -> MultivariateNormal | None:
    """Return the posterior of the one task at xt; None where there is no closed form."""
    if isinstance(function, MixturePrior):
        [(_, member, member_parameters)] = parameters
        return _exact_posterior(member, member_parameters, task, xt)
    return function.posterior(task.xc, task.yc, xt, parameters) if isinstance(function, GaussianProcessPrior) else None


def draw_calibration(path: Path, rows: Sequence[ConditionScores]) -> Path:
    """Draw the coverage of central intervals against their level (left) and the PIT of each setting (right), which is
    ∪-shaped for an overconfident model and ∩-shaped for an underconfident one."""
    across = (len(rows) + 1) // 2
    edges = [i / PIT_BINS for i in range(PIT_BINS + 1)]
    with style():
        figure, _ = panels(1, 1, width=3.6 + 1.9 * across, height=3.6)
        figure.clear()
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(3.6, 1.9 * across))[0]
        axes = left.subplots()
        axes.plot([0, 100], [0, 100], color=FAINT, linewidth=0.8, linestyle=_DASHED)
        grid = right.subplots(2, across, squeeze=False, sharex=True, sharey=True).flat
        tallest = max(max(row.scores.pit or ()) for row in rows)
        for number, (row, panel) in enumerate(zip(rows, grid, strict=False)):
            colour, scores = COLOURS[number % len(COLOURS)], row.scores
            assert scores.pit is not None
            assert scores.coverage is not None
            coverage = [0, *(100 * scores.coverage[str(level)] for level in COVERAGE_LEVELS), 100]
            width = 1.2 if number else 3.5  # the line of an equivariant model on shifted inputs would hide the first
            dash = "-" if number < len(COLOURS) else "--"
            axes.plot([0, *COVERAGE_LEVELS, 100], coverage, dash, color=colour, linewidth=width, label=row.label)
            panel.stairs([PIT_BINS * share for share in scores.pit], edges, fill=True, color=colour, alpha=0.55)
            panel.axhline(1, color=INK, linewidth=0.7, linestyle=_DASHED)
            panel.set_title(f"{row.label}\nKS {scores.ks:.3f}", fontsize=8)
            panel.set(xlim=(0, 1), ylim=(0, 1.05 * max(PIT_BINS * tallest, 1.2)), xticks=[0, 0.5, 1])
        for panel in grid:
            panel.set_visible(False)
        axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal", xlabel="central interval, %", ylabel="coverage, %")
        axes.legend(loc="upper left", fontsize=7)
        right.supxlabel("PIT: P(Y ≤ y)", fontsize=9)
        right.supylabel("density", fontsize=9)
    return save(figure, path)


def draw_context_sizes(path: Path, rows: Sequence[ConditionScores]) -> Path:
    """Draw log-likelihoods, ± two standard errors, and their limits against the number of context points."""
    kinds: list[tuple[str, list[Likelihood]]] = [("marginal", [row.scores for row in rows])]
    if joint := [row.scores.joint for row in rows if row.scores.joint is not None]:
        kinds.append(("joint", joint))
    sizes = [row.value for row in rows]
    limits = (("known", FAINT, (0, (1, 1.5)), "given hyperparameters"), ("limit", INK, _DASHED, "Bayes limit"))
    with style():
        figure, [line] = panels(1, len(kinds), width=1.0 + 4.2 * len(kinds), height=3.2, sharey=True)
        for axes, (title, scores) in zip(line, kinds, strict=True):
            for name, colour, dash, label in limits:
                values = [getattr(likelihood, name) for likelihood in scores]
                points = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
                if points:
                    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1, linestyle=dash, label=label)
            axes.errorbar(
                sizes, [likelihood.log_likelihood for likelihood in scores],
                [2 * likelihood.standard_error for likelihood in scores],
                fmt="o-", color=BLUE, markersize=3.5, linewidth=1.4, elinewidth=1, label="model",
            )  # fmt: skip
            axes.set(title=title, xlabel="context points")
            axes.margins(x=0.04)
            axes.xaxis.get_major_locator().set_params(integer=True)
        line[0].set_ylabel("log-likelihood per target")
        handles, labels = line[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return save(figure, path)
