"""A recipe: one readable file that names data, model, objective, optimiser, schedule and budget.

    recipe = read("te-tnp", ["--model.score", "fourier", "--budget.time", "20m"])
    recipe["model"]["width"]                # every setting is there, defaults as well

It is a plain dict of sections, so that what a run folder keeps is what was run. Which settings a section has follows
from what it names: those of `data` from its protocol, those of `model` from its name and size. `start` names the
weights to begin with: a run, a folder of `fillin.save`, or a pretrained model; without it they are random.
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

from fillin.data.curves import PROTOCOLS, Curves, curves, defaults
from fillin.data.function_prior import BroadPrior
from fillin.data.images import Episode, FewShot, Images, LabelledBatch, LabelledImages, LabelledSets
from fillin.data.table_prior import SyntheticTables
from fillin.data.task import Stream, TableBatch
from fillin.errors import InputError, UnknownName, choose
from fillin.models import CLASSIFIERS, Classifier, Process, create, load
from fillin.models.registry import get_entry, list_options
from fillin.objectives import OBJECTIVES
from fillin.train.settings import brief, flat, flow, lists, nested, pairs, parse

FOLDER = Path(__file__).parent / "recipes"
Recipe = dict[str, Any]


@dataclass
class Objective:
    """The objective: one of OBJECTIVES, whose other options follow; `samples` of the latent are for bounds."""

    name: str = "log-likelihood"
    samples: int = 4


@dataclass
class Optimiser:
    """muon, adamw, adam or sgd; `rate` is the highest learning rate, `clip` the longest gradient (0: any)."""

    name: str = "muon"
    rate: float = 2e-3
    decay: float = 0.1
    clip: float = 20.0


@dataclass
class Schedule:
    """cosine, linear or constant, after a linear warm-up over that share of the budget; the first two end at zero."""

    name: str = "cosine"
    warmup: float = 0.02


@dataclass
class Budget:
    """Stop after `steps`, or after a `time` like 20m or 1h30m, whichever comes first."""

    steps: int | None = None
    time: str | int | float | None = None


@dataclass
class Keep:
    """Records of a run: a line of the log each `log` steps, `validations` over the whole run, each on
    `batches` batches of 4 tasks, a checkpoint each `checkpoint` seconds."""

    log: int = 50
    validations: int = 20
    batches: int = 100
    checkpoint: float = 60.0


SECTIONS = {"objective": Objective, "optimiser": Optimiser, "schedule": Schedule, "budget": Budget, "keep": Keep}
DATA: dict[str, Any] = {
    "curves": curves, "broad": BroadPrior, "synthetic": SyntheticTables, "images": Images,
    "labelled-images": LabelledImages, "datapoints": LabelledSets, "few-shot": FewShot,
}  # fmt: skip
# what goes together because its batches are no tasks of points
_APART = {
    TableBatch: ("tables (data.name=synthetic), masked-reconstruction and the model npt", ["synthetic"], ["npt"]),
    LabelledBatch: (
        "labelled images (data.name=labelled-images), classification and a classifier", ["labelled-images"],
        ["classifier"],
    ),
    Episode: (
        "data sets of images (data.name=datapoints or few-shot), by-example and the model npt-images or matching",
        ["datapoints", "few-shot"], ["npt-images", "matching"],
    ),
}  # fmt: skip
CHOICES = {
    "objective.name": list(OBJECTIVES),
    "optimiser.name": ["muon", "adamw", "adam", "sgd"],
    "schedule.name": ["cosine", "linear", "constant"],
}


_NAMES = {"model": "name", "data": "function", "objective": "name"}  # what decides which settings a section has
_NAMED = ("data.name", "data.protocol", "data.function", "model.name", "model.head", "model.size", "objective.name")


def names() -> list[str]:
    """The recipes that ship with fillin."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_recipe(recipe: str | os.PathLike) -> Path:
    """The file of a recipe: a path, or the name of one that ships."""
    path = Path(recipe)
    if str(recipe) not in names() and (path.suffix in (".yaml", ".yml") or path.is_file()):
        return path
    return FOLDER / f"{choose('recipe', str(recipe), names())}.yaml"


def read_recipe(recipe: str | os.PathLike | Recipe, overrides: Sequence[str] = ()) -> Recipe:
    """The whole recipe: what the file says, `overrides` like ["--optimiser.rate", "1e-3"], defaults for the rest."""
    given = recipe if isinstance(recipe, dict) else parse(find_recipe(recipe), names())
    where = "recipe" if isinstance(recipe, dict) else str(recipe)
    said = dict(pairs(overrides))
    settings = {**dict(flat(given, ("data", "model", *SECTIONS))), **said}
    parser = _parser(settings, where)
    known = list(vars(parser.get_defaults(skip_validation=True).as_flat()))
    for key in list(settings):
        section = key.partition(".")[0]
        if key not in known and key not in said and f"{section}.{_NAMES.get(section)}" in said:
            del settings[key]  # the file has it of another model, or of another function
        elif key not in known:
            raise UnknownName(f"setting of {'the command line' if key in said else where}", key, known)
    for key, allowed in CHOICES.items():
        if key in settings:
            choose(key, settings[key], allowed)
    try:
        made = deepcopy(parser.parse_object(nested(settings, _whole(parser))).as_dict())  # defaults are the parser's
    except (argparse.ArgumentError, TypeError) as error:
        raise InputError(f"{where}: {brief(str(error))}") from error
    return _check(lists(made), where)


def dump_recipe(recipe: Recipe) -> str:
    """As YAML, sections in the order in which people read them."""
    lines = [f"seed: {recipe['seed']}", f"start: {flow(recipe['start'])}"]
    for section in ("data", "model", *SECTIONS):
        lines += [f"{section}:", *(f"  {key}: {flow(value)}" for key, value in recipe[section].items())]
    return "\n".join(lines) + "\n"


def make_stream(recipe: Recipe, seed: int | None = None) -> Stream:
    """The training data of a recipe."""
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in recipe["data"].items() if k != "name"}
    return DATA[recipe["data"]["name"]](**options, seed=recipe["seed"] if seed is None else seed)


def make_curves(recipe: Recipe, seed: int | None = None) -> Curves:
    """The same where it must be curves, which can be asked for at other places."""
    stream = make_stream(recipe, seed)
    if not isinstance(stream, Curves):
        raise InputError(f"data.name={recipe['data']['name']} cannot be moved to other places; use curves")
    return stream


def build_model(recipe: Recipe, stream: Stream) -> Process | Classifier:
    """A new model of a recipe, its weights random."""
    options = {k: v for k, v in recipe["model"].items() if k not in ("name", "size")}
    try:
        return create(recipe["model"]["name"], stream.dim_x, stream.dim_y, recipe["model"]["size"], **options)
    except TypeError as error:
        raise InputError(f"recipe: no {recipe['model']['name']} can be built of {options}: {error}") from error


def start_from(recipe: Recipe, model: Process | Classifier) -> None:
    """Give a new model the weights that `start` names; they must be of the same model."""
    if recipe["start"] is None:
        return
    try:
        model.load_state_dict(load(recipe["start"]).state_dict())
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise InputError(f"start: the weights in {recipe['start']} are of another model: {why}") from error


def parse_duration(text: str | float | None) -> float | None:
    """90, "90s", "20m", "1m30s", "1h30m" → seconds. Where one number has a unit, each does: 1h30 could mean either.

    >>> parse_duration("1h30m")
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
        raise InputError(f"a time must be longer than nothing, got {text!r}")
    return total


def budget_fraction(recipe: Recipe, steps: int, elapsed: float) -> float:
    """How much of the budget is gone after so many steps and seconds; 1 and more: all."""
    budget = recipe["budget"]
    return max(steps / (budget["steps"] or math.inf), elapsed / (parse_duration(budget["time"]) or math.inf))


def _parser(settings: dict[str, Any], where: str) -> ArgumentParser:
    """Every setting with its default, given what the recipe names. It takes a while, and a study reads hundreds."""
    if "model.name" not in settings:
        raise InputError(f"{where}: names no model; add `model: {{name: te-tnp}}`, or --model.name te-tnp")
    named = {key: value for key, value in settings.items() if key in _NAMED}
    words = all(isinstance(value, str) for value in named.values())
    return (_parser_of if words else _parser_of.__wrapped__)(tuple(sorted(named.items())))


@lru_cache(maxsize=128)
def _parser_of(named: tuple[tuple[str, Any], ...]) -> ArgumentParser:
    flat, parser = dict(named), ArgumentParser(exit_on_error=False)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=str | None, default=None)
    parser.add_argument("--data.name", default="curves")
    if choose("data.name", flat.get("data.name", "curves"), DATA) == "curves":
        protocol = choose("data.protocol", flat.get("data.protocol", "tnp"), PROTOCOLS)
        parser.add_function_arguments(curves, "data", skip={"seed"})
        for key, value in defaults(protocol, flat.get("data.function", "rbf")).items():
            parser.add_argument(f"--data.{key}", type=Any, default=value)
    else:
        for option in fields(DATA[flat["data.name"]]):
            if option.name not in ("seed", "dim_y", "part"):
                parser.add_argument(f"--data.{option.name}", type=Any, default=option.default)
    parser.add_argument("--model.name", type=str)
    parser.add_argument("--model.size", default="base")
    head = flat.get("model.head")
    options = list_options(flat["model.name"], head if head is None else str(head))
    sizes = get_entry(flat["model.name"]).sizes
    size = choose("model.size", flat.get("model.size", "base"), sizes)
    for key, value in {**options, **{k: v for k, v in sizes[size].items() if k in options}}.items():
        parser.add_argument(f"--model.{key}", type=Any, default=value)
    for section, kind in SECTIONS.items():
        parser.add_class_arguments(kind, section)
    aim = OBJECTIVES.get(flat.get("objective.name", "log-likelihood"))
    for key, value in ({} if aim is None else aim.options).items():
        if key != "samples":
            parser.add_argument(f"--objective.{key}", type=type(value), default=value)
    return parser


def _check(recipe: Recipe, where: str) -> Recipe:
    steps = recipe["budget"]["steps"]
    try:
        time = parse_duration(recipe["budget"]["time"])
    except InputError as error:
        raise InputError(f"{where}: budget.time: {error}") from error
    if time is None and steps is None:
        raise InputError(f"{where}: has no end; add --steps 10000 or --time 20m")
    least = {
        "budget.steps": (steps, 1), "keep.log": (recipe["keep"]["log"], 1),
        "keep.validations": (recipe["keep"]["validations"], 1), "keep.batches": (recipe["keep"]["batches"], 1),
        "keep.checkpoint": (recipe["keep"]["checkpoint"], 0), "optimiser.rate": (recipe["optimiser"]["rate"], 1e-12),
        "optimiser.clip": (recipe["optimiser"]["clip"], 0), "optimiser.decay": (recipe["optimiser"]["decay"], 0),
        "schedule.warmup": (recipe["schedule"]["warmup"], 0), "objective.samples": (recipe["objective"]["samples"], 1),
        "seed": (recipe["seed"], 0),
    }  # fmt: skip
    for key, (value, smallest) in least.items():
        if value is not None and not smallest <= value < math.inf:
            raise InputError(f"{where}: {key} must be at least {smallest}, got {value}")
    if recipe["seed"] >= 2**30:
        raise InputError(
            f"{where}: seed must be below 2³⁰ (those above are of validation and evaluation), got {recipe['seed']}"
        )
    if recipe["schedule"]["warmup"] >= 1:
        raise InputError(
            f"{where}: schedule.warmup is a share of the budget, below 1, got {recipe['schedule']['warmup']}"
        )
    kind, objective = get_entry(recipe["model"]["name"]).build.kind, recipe["objective"]["name"]
    if objective in ("elbo", "importance-weighted") and kind != "latent":
        raise InputError(
            f"{where}: objective.name={objective} bounds over a latent variable, and {recipe['model']['name']} has "
            "none; train it with log-likelihood"
        )
    _check_kinds(recipe, where)
    return recipe


def _check_kinds(recipe: Recipe, where: str) -> None:
    """Data, objective and model take batches of the same kind."""
    data, objective, model = (recipe[section]["name"] for section in ("data", "objective", "model"))
    for batch, (together, sources, models) in _APART.items():
        alone = model in models and model in CLASSIFIERS  # npt, a process, takes tasks of points as well
        apart = data in sources or OBJECTIVES[objective].batch is batch or alone
        whole = data in sources and OBJECTIVES[objective].batch is batch and model in models
        if apart and not whole:
            raise InputError(f"{where}: {together} go together; this has {data}, {objective} and {model}")


def _whole(parser: ArgumentParser) -> set[str]:
    """The settings that are whole numbers."""
    return {action.dest for action in parser._actions if action.type is int} | {"budget.steps"}
