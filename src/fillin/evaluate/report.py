"""What is evaluated, and on what: where it learnt, elsewhere, on other functions, and from few points to many."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fillin.data import Curves, curves
from fillin.data.curves import defaults
from fillin.errors import InputError
from fillin.evaluate.scores import Scores, evaluate, fits
from fillin.models import Process, load
from fillin.pretrained import locate, names
from fillin.train import open_run

FUNCTIONS = ("rbf", "matern-5/2", "periodic")
# Whatever a model was trained with: all are asked the same tasks. Few, because those of a batch share their counts.
BATCH = 4


class Subject(NamedTuple):
    """A model, and what `curves` is called with for the data it learnt from, or (`learnt` is False) is asked for."""

    model: Process
    data: dict[str, Any]
    learnt: bool = True


@dataclass(frozen=True)
class Setting:
    """`kind` is "training", "shift", "beyond" (all targets to the right of the context), "function" or "context", and
    `value` which function, how far, or how many points."""

    kind: str
    value: str | float | int
    stream: Curves

    @property
    def label(self) -> str:
        return label(self.kind, self.value)


@dataclass(frozen=True)
class Row:
    """The scores of one setting."""

    kind: str
    value: str | float | int
    scores: Scores

    @property
    def label(self) -> str:
        return label(self.kind, self.value)


def label(kind: str, value: str | float | int) -> str:
    """In words.

    >>> label("shift", 4.0), label("context", 8)
    ('shifted by 4', '8 points')
    """
    if kind == "shift":
        return f"shifted by {value:g}"
    if kind == "beyond":
        return "beyond the context"
    return {"training": f"training: {value}", "context": f"{value} point{'s' * (value != 1)}"}.get(kind, str(value))


def subject(folder: str | os.PathLike, function: str | None = None, protocol: str | None = None) -> Subject:
    """The best model of a run with the data of its recipe, or a saved model with the data that are named."""
    folder = locate(folder)
    if (folder / "recipe.yaml").exists():
        run = open_run(folder)
        if not (folder / "best").exists():
            raise InputError(f"{folder} has no weights yet; go on with: fillin train --resume {folder}")
        if run.recipe["data"]["name"] not in ("curves", "broad"):
            raise InputError(
                f"{folder} learnt {run.recipe['data']['name']}, and runs are evaluated on curves and images; "
                "learning.png in it tells how its validation went"
            )
        if run.recipe["data"]["name"] != "curves":  # a broad prior has no limit: it is judged on curves that have one
            return _asked(run.model(), function, protocol, _wide(run.recipe["data"]["dim_x"]))
        if function or protocol:
            raise InputError(f"{folder} is a run and has its data; drop function and protocol, or take {folder}/best")
        options = {key: value for key, value in run.recipe["data"].items() if key not in ("name", "batch")}
        return Subject(run.model(), options)
    if not (folder / "model.safetensors").exists():
        raise InputError(
            f"{folder} is neither a run (fillin train makes one), nor a saved model (fillin.save), nor pretrained: "
            f"{', '.join(names())}"
        )
    return _asked(load(folder), function, protocol)


def _asked(
    model: Process, function: str | None, protocol: str | None, options: dict[str, Any] | None = None
) -> Subject:
    data = {"function": function or "rbf", "protocol": protocol or "tnp", "dim_x": model.dim_x or 1, **(options or {})}
    return Subject(model, data, learnt=False)


def _wide(dim_x: int) -> dict[str, Any]:
    """In more than one dimension the few points and short lengths of a protocol for curves would tell nothing."""
    if dim_x == 1:
        return {}
    return {"dim_x": min(dim_x, 3), "context": (3, 200), "points": None, "length": (0.4, 2.0)}


def settings(
    about: Subject,
    functions: Sequence[str] | None = None,
    shift: float = 4.0,
    contexts: Sequence[int] | None = None,
) -> list[Setting]:
    """All settings of a report, checked. Without `functions`, those of FUNCTIONS that the model can be asked for;
    without `contexts`, six sizes over the range of training; shift=0 leaves that one out."""
    learnt = about.data["function"]
    train = _stream(about.data)
    fits(about.model, train)
    found = [Setting("training" if about.learnt else "function", learnt, train)]
    if shift:
        found.append(Setting("shift", shift, train.at(shift=train.layout.shift + shift)))
    low, high = train.layout.range
    found.append(Setting("beyond", high - low, train.at(target_range=(high, 2 * high - low))))
    for function in FUNCTIONS if functions is None else functions:
        other = _stream({**about.data, "function": function})
        if functions is not None:
            fits(about.model, other)
        if function != learnt and other.dim_y == train.dim_y:
            found.append(Setting("function", function, other))
    for number in _sizes(*train.layout.context) if contexts is None else sorted(set(contexts)):
        found.append(Setting("context", number, train.at(context=(number, number), points=None)))
    return found


def measure(
    model: Process,
    asked: Sequence[Setting],
    batches: int = 160,
    seed: int = 0,
    *,
    tick: Callable[[], object] = lambda: None,
    **options: Any,
) -> list[Row]:
    """The scores of each setting; `options` are those of `evaluate`."""
    return [
        Row(setting.kind, setting.value, evaluate(model, setting.stream, batches, seed, tick=tick, **options))
        for setting in asked
    ]


def _stream(data: dict[str, Any]) -> Curves:
    """What is said of hyperparameters holds for those that the function has."""
    known = {"function", "protocol", *defaults(data.get("protocol", "tnp"), data["function"])}
    return curves(**{key: value for key, value in data.items() if key in known}, batch=BATCH)


def _sizes(low: int, high: int, number: int = 6) -> list[int]:
    """Whole numbers from low to high, each about as many times the one before."""
    step = math.log((high + 1) / (low + 1)) / (number - 1)
    return sorted({round((low + 1) * math.exp(i * step)) - 1 for i in range(number)})


def three(value: float | None) -> str:
    """With three decimals, or a dash for what is not known."""
    return "–" if value is None else f"{value:.3f}"
