"""What is measured of one trained classifier: how often it is right, how far it looks, and what it costs."""

import math
from typing import Any

from torch import nn

from fillin.data.images import LabelledImages
from fillin.evaluate.classification import Classified, judge
from fillin.models import PixelClassifier
from fillin.train.recipe import Recipe
from fillin_studies.positions_and_span import costs
from fillin_studies.positions_and_span.variants import CUT, PENALTIES, WAYS

_MOST = 4_000  # images that are asked for at full budget
_TIMED = {CUT, *PENALTIES}


def measure(model: nn.Module, recipe: Recipe, quick: bool) -> dict[str, Any]:
    """Of the first seed of some, time and memory too."""
    assert isinstance(model, PixelClassifier)
    stream = LabelledImages(recipe["data"]["source"], part="test")
    scores = judge(Classified(model, stream), most=0 if quick else _MOST, batch=32)
    height, width, _ = stream.images.shape
    found: dict[str, Any] = {
        "images": scores.images, "accuracy": scores.accuracy, "accuracy_error": scores.accuracy_error,
        "log_likelihood": scores.log_likelihood, "standard_error": scores.standard_error,
        "sigma": [one.sigma for one in scores.layers], "shares": [one.share for one in scores.layers],
        "pairs": computed(model, height, width), "side": height,
    }  # fmt: skip
    way = _name(recipe)
    if recipe["seed"] == 0 and recipe["model"]["dims"] == 2 and way in _TIMED:
        sides = {height: recipe["data"]["batch"], **({costs.LEARNED: 1} if height < costs.LEARNED else {})}
        found["learned"] = [costs.learned(model, side, batch, rounds=3) for side, batch in sides.items()]
        if way == CUT:
            found["narrow"] = costs.every_narrow()
    return found


def computed(model: PixelClassifier, height: int, width: int) -> float:
    """The share of the pairs of all layers that are computed; a layer of fewer pixels has fewer of them."""
    sizes, pairs = ((height, width) if model.dims == 2 else (1, height * width)), []
    for number in range(1, len(model.spans(1, 1)) + 1):
        pairs.append(math.prod(sizes) ** 2)
        if number in model.reduce:
            sizes = tuple(math.ceil(size / 2) for size in sizes)
    inside = sum(one.share * of for one, of in zip(model.spans(height, width), pairs, strict=True))
    return inside / sum(pairs)


def _name(recipe: Recipe) -> str:
    """Which way of `WAYS` a recipe is."""
    own, penalty = recipe["model"], recipe["objective"]["span_penalty"]
    asked = own["dims"], own["positions"], own["span"], penalty
    return next(w.name for w in WAYS if (w.dims, w.positions, w.window, PENALTIES.get(w.name, 0.0)) == asked)
