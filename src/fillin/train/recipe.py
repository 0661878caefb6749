"""Recipes: YAML files with data, model, objective, optimiser, schedule and budget.

    recipe = read_recipe("te-tnp", ["--model.score", "fourier", "--budget.time", "20m"])
    recipe["model"]["width"]                # every setting is present, defaults included

A recipe is a plain dict of sections. The settings of a section depend on what it names: those of `data` on its
protocol, those of `model` on its name and size. `start` names initial weights: a run, a folder of `fillin.save`, or a
pretrained model; without it weights are random.
"""

import argparse
import math
import os
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from fillin.data.broad_prior import BroadPrior
from fillin.data.curves import PROTOCOLS, Curves, curves, defaults
from fillin.data.images import Episode, FewShot, Images, LabelledBatch, LabelledImages, LabelledSets
from fillin.data.sequences import Dates, SequenceBatch
from fillin.data.sheet_prior import SheetPrior
from fillin.data.table_prior import SyntheticTables
from fillin.data.task import SheetBatch, Stream, TableBatch
from fillin.errors import InputError, UnknownName, choose
from fillin.models import CLASSIFIERS, SEQUENCE_MODELS, AnyModel, create, load
from fillin.models.registry import get_entry, list_options
from fillin.objectives import OBJECTIVES
from fillin.train.settings import flatten, nest, pairs, parse, shorten_error, to_flow_yaml, tuples_to_lists

FOLDER = Path(__file__).parent / "recipes"
Recipe = dict[str, Any]


@dataclass
class ObjectiveSettings:
    """`name` is one of OBJECTIVES, whose other options follow; `samples` of the latent variable are for bounds."""

    name: str = "log-likelihood"
    samples: int = 4


@dataclass
class OptimiserSettings:
    """muon, adamw, adam or sgd. `rate` is the highest learning rate, `clip` the largest gradient norm (0: no limit)."""

    name: str = "muon"
    rate: float = 2e-3
    decay: float = 0.1
    clip: float = 20.0


@dataclass
class ScheduleSettings:
    """cosine, linear or constant, after a linear warm-up over a fraction of the budget; the first two end at zero."""

    name: str = "cosine"
    warmup: float = 0.02


@dataclass
class BudgetSettings:
    """Stop after `steps`, or after a `time` like 20m or 1h30m, whichever comes first."""

    steps: int | None = None
    time: str | int | float | None = None


@dataclass
class KeepSettings:
    """A line of the log every `log` steps, `validations` over the whole run, each on `batches` batches of 4 tasks, and
    a checkpoint every `checkpoint` seconds."""

    log: int = 50
    validations: int = 20
    batches: int = 100
    checkpoint: float = 60.0


SECTIONS = {
    "objective": ObjectiveSettings, "optimiser": OptimiserSettings, "schedule": ScheduleSettings,
    "budget": BudgetSettings, "keep": KeepSettings,
}  # fmt: skip
DATA: dict[str, Any] = {
    "curves": curves, "broad": BroadPrior, "sheets": SheetPrior, "synthetic": SyntheticTables, "images": Images,
    "labelled-images": LabelledImages, "datapoints": LabelledSets, "few-shot": FewShot, "dates": Dates,
}  # fmt: skip
# data and models whose batches are not tasks of points: they fit one objective alone
_SPECIAL_BATCHES = {
    TableBatch: ("tables (data.name=synthetic), masked-reconstruction and the model npt", ["synthetic"], ["npt"]),
    SheetBatch: ("sheets (data.name=sheets), queried-cells and the model sheet", ["sheets"], ["sheet"]),
    LabelledBatch: (
        "labelled images (data.name=labelled-images), classification and a classifier", ["labelled-images"],
        ["classifier"],
    ),
    Episode: (
        "data sets of images (data.name=datapoints or few-shot), by-example and the model npt-images, few-shot or "
        "matching",
        ["datapoints", "few-shot"], ["npt-images", "few-shot", "matching"],
    ),
    SequenceBatch: ("sequences (data.name=dates), teacher-forcing and the model seq2seq", ["dates"], ["seq2seq"]),
}  # fmt: skip
CHOICES = {
    "objective.name": list(OBJECTIVES),
    "optimiser.name": ["muon", "adamw", "adam", "sgd"],
    "schedule.name": ["cosine", "linear", "constant"],
}
_NAMES = {"model": "name", "data": "function", "objective": "name"}  # settings on which others of a section depend
_NAMED = ("data.name", "data.protocol", "data.function", "model.name", "model.head", "model.size", "objective.name")
_MINIMUM = {
    "budget.steps": 1, "keep.log": 1, "keep.validations": 1, "keep.batches": 1, "keep.checkpoint": 0,
    "optimiser.rate": 1e-12, "optimiser.clip": 0, "optimiser.decay": 0, "schedule.warmup": 0, "objective.samples": 1,
    "seed": 0,
}  # fmt: skip


def names() -> list[str]:
    """Return the names of the shipped recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_recipe(recipe: str | os.PathLike) -> Path:
    """Return the file of a recipe, given as a path or as the name of a shipped one."""
    path = Path(recipe)
    if str(recipe) not in names() and (path.suffix in (".yaml", ".yml") or path.is_file()):
        return path
    return FOLDER / f"{choose('recipe', str(recipe), names())}.yaml"


def read_recipe(recipe: str | os.PathLike | Recipe, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply `overrides` like ["--optimiser.rate", "1e-3"]; other settings have their defaults."""
    content = recipe if isinstance(recipe, dict) else parse(find_recipe(recipe), names())
    where = "recipe" if isinstance(recipe, dict) else str(recipe)
    overriding = dict(pairs(overrides))
    settings = {**dict(flatten(content, ("data", "model", *SECTIONS))), **overriding}
    parser = _make_parser(settings, where)
    valid_keys = list(vars(parser.get_defaults(skip_validation=True).as_flat()))
    for key in list(settings):
        section = key.partition(".")[0]
        if key not in valid_keys and key not in overriding and f"{section}.{_NAMES.get(section)}" in overriding:
            del settings[key]  # an option of the model or function that was overridden
        elif key not in valid_keys:
            raise UnknownName(f"setting of {'the command line' if key in overriding else where}", key, valid_keys)
    for key, allowed in CHOICES.items():
        if key in settings:
            choose(key, settings[key], allowed)
    integers = {action.dest for action in parser._actions if action.type is int} | {"budget.steps"}
    try:
        whole = deepcopy(parser.parse_object(nest(settings, integers)).as_dict())  # defaults are the parser's
    except (argparse.ArgumentError, TypeError) as error:
        raise InputError(f"{where}: {shorten_error(str(error))}") from error
    return _check(tuples_to_lists(whole), where)


def dump_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with the sections in a fixed order."""
    lines = [f"seed: {recipe['seed']}", f"start: {to_flow_yaml(recipe['start'])}"]
    for section in ("data", "model", *SECTIONS):
        lines += [f"{section}:", *(f"  {key}: {to_flow_yaml(value)}" for key, value in recipe[section].items())]
    return "\n".join(lines) + "\n"


def make_stream(recipe: Recipe, seed: int | None = None) -> Stream:
    """Return the training data of a recipe."""
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in recipe["data"].items() if k != "name"}
    return DATA[recipe["data"]["name"]](**options, seed=recipe["seed"] if seed is None else seed)


def make_curves(recipe: Recipe, seed: int | None = None) -> Curves:
    """Return the training data of a recipe, which must be curves: they can be evaluated at other locations."""
    stream = make_stream(recipe, seed)
    if not isinstance(stream, Curves):
        raise InputError(f"data.name={recipe['data']['name']} cannot be evaluated at other locations; use curves")
    return stream


def build_model(recipe: Recipe, stream: Stream) -> AnyModel:
    """Return a new model of a recipe with random weights."""
    options = {k: v for k, v in recipe["model"].items() if k not in ("name", "size")}
    try:
        return create(recipe["model"]["name"], stream.dim_x, stream.dim_y, recipe["model"]["size"], **options)
    except TypeError as error:
        name = recipe["model"]["name"]
        raise InputError(f"recipe: {name} cannot be built with the options {options}: {error}") from error


def start_from(recipe: Recipe, model: AnyModel) -> None:
    """Load the initial weights that `start` names; they must be of the same model."""
    if recipe["start"] is None:
        return
    try:
        model.load_state_dict(load(recipe["start"]).state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"start: the weights in {recipe['start']} are of another model: {reason}") from error


def parse_budget_time(text: str | float | None) -> float | None:
    """Parse 90, "90s", "20m", "1m30s", "1h30m" to seconds. Either all numbers have a unit or none: 1h30 is ambiguous.

    >>> parse_budget_time("1h30m")
    5400.0
    """
    if text is None:
        return None
    match = re.fullmatch(r"(?:([\d.]+)h)?\s*(?:([\d.]+)m)?\s*(?:([\d.]+)s)?|([\d.]+)", str(text).strip())
    try:
        hours, minutes, rest, plain = (float(part or 0) for part in match.groups())  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        raise InputError(f"a time is written 90s, 1m30s or 1h30m, got {text!r}") from None
    total = 3600 * hours + 60 * minutes + rest + plain
    if not 0 < total < math.inf:
        raise InputError(f"a time must be positive, got {text!r}")
    return total


def budget_fraction(recipe: Recipe, steps: int, elapsed: float) -> float:
    """Return the fraction of the budget that is spent; at least 1 when it is exhausted."""
    budget = recipe["budget"]
    return max(steps / (budget["steps"] or math.inf), elapsed / (parse_budget_time(budget["time"]) or math.inf))


def _make_parser(settings: dict[str, Any], where: str) -> ArgumentParser:
    """Return a parser of every setting with its default. It is slow to build, and a study reads hundreds: cached."""
    if "model.name" not in settings:
        raise InputError(f"{where} names no model; add `model: {{name: te-tnp}}`, or --model.name te-tnp")
    named = {key: value for key, value in settings.items() if key in _NAMED}
    hashable = all(isinstance(value, str) for value in named.values())
    return (_cached_parser if hashable else _cached_parser.__wrapped__)(tuple(sorted(named.items())))


@lru_cache(maxsize=128)
def _cached_parser(named: tuple[tuple[str, Any], ...]) -> ArgumentParser:
    settings, parser = dict(named), ArgumentParser(exit_on_error=False)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=str | None, default=None)
    parser.add_argument("--data.name", default="curves")
    if choose("data.name", settings.get("data.name", "curves"), DATA) == "curves":
        protocol = choose("data.protocol", settings.get("data.protocol", "tnp"), PROTOCOLS)
        parser.add_function_arguments(curves, "data", skip={"seed"})
        for key, value in defaults(protocol, settings.get("data.function", "rbf")).items():
            parser.add_argument(f"--data.{key}", type=Any, default=value)
    else:
        for option in fields(DATA[settings["data.name"]]):
            if option.name not in ("seed", "dim_y", "part"):
                parser.add_argument(f"--data.{option.name}", type=Any, default=option.default)
    parser.add_argument("--model.name", type=str)
    parser.add_argument("--model.size", default="base")
    head = settings.get("model.head")
    options = list_options(settings["model.name"], head if head is None else str(head))
    sizes = get_entry(settings["model.name"]).sizes
    size = choose("model.size", settings.get("model.size", "base"), sizes)
    for key, value in {**options, **{k: v for k, v in sizes[size].items() if k in options}}.items():
        parser.add_argument(f"--model.{key}", type=Any, default=value)
    for section, kind in SECTIONS.items():
        parser.add_class_arguments(kind, section)
    objective = OBJECTIVES.get(settings.get("objective.name", "log-likelihood"))
    for key, value in ({} if objective is None else objective.options).items():
        if key != "samples":
            parser.add_argument(f"--objective.{key}", type=type(value), default=value)
    return parser


def _check(recipe: Recipe, where: str) -> Recipe:
    """Raise an error unless numbers are in range, and data, objective and model take the same kind of batches."""
    try:
        time = parse_budget_time(recipe["budget"]["time"])
    except InputError as error:
        raise InputError(f"{where}: budget.time: {error}") from error
    if time is None and recipe["budget"]["steps"] is None:
        raise InputError(f"{where} has no budget; add --steps 10000 or --time 20m")
    for key, smallest in _MINIMUM.items():
        section, _, name = key.rpartition(".")
        value = (recipe[section] if section else recipe)[name]
        if value is not None and not smallest <= value < math.inf:
            raise InputError(f"{where}: {key} must be at least {smallest}, got {value}")
    if (seed := recipe["seed"]) >= 2**30:
        raise InputError(f"{where}: seed must be below 2³⁰ (larger ones serve validation and evaluation), got {seed}")
    if (warmup := recipe["schedule"]["warmup"]) >= 1:
        raise InputError(f"{where}: schedule.warmup must be a fraction of the budget below 1, got {warmup}")
    data, objective, model = (recipe[section]["name"] for section in ("data", "objective", "model"))
    if objective in ("elbo", "importance-weighted") and get_entry(model).model_class.kind != "latent":
        raise InputError(
            f"{where}: objective.name={objective} needs a latent variable, which {model} does not have; train it with "
            "log-likelihood"
        )
    if objective == "random-prefixes" and "buffer" not in list_options(model):
        raise InputError(
            f"{where}: objective.name=random-prefixes needs a buffer of targets, which {model} does not have; train "
            "it with log-likelihood"
        )
    for batch, (together, sources, models) in _SPECIAL_BATCHES.items():
        special = model in models and model in (*CLASSIFIERS, *SEQUENCE_MODELS)  # npt takes tasks of points as well
        concerned = data in sources or OBJECTIVES[objective].batch is batch or special
        consistent = data in sources and OBJECTIVES[objective].batch is batch and model in models
        if concerned and not consistent:
            raise InputError(f"{where}: {together} go together; this recipe has {data}, {objective} and {model}")
    return recipe
