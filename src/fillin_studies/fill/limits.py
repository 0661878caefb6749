"""`curve` against exact Bayes: on narrow priors of the TNP protocol, and on what of its own prior has a closed form.

Both limits are of one who knows the prior that a task was drawn from; `curve` knows a broad one. What it loses on a
narrow prior is what not knowing that costs, and what it has not learnt; what it loses on its own is the latter alone.
"""

from dataclasses import replace
from typing import Any

from fillin.data import Curves, TaskLayout, curves
from fillin.data.function_prior import gaussian_part
from fillin.evaluate import evaluate
from fillin_studies.base import Told
from fillin_studies.fill.methods import OURS, loaded

NARROW = ("rbf", "matern-5/2")
OWN = "its own prior"
_TASKS = 4  # in a batch
# batches a mask, and settings of hyperparameters: a mixture of many kernels needs more of the latter to settle
_NARROW, _OWN = (5, 256), (1, 1024)


def own_prior() -> Curves:
    """A sample of what `curve` learns from that `fillin.data.bayes_limit` can answer: Gaussian processes of all its
    kernels under Gaussian noise of any size, at the counts and places of the TNP protocol."""
    return Curves(gaussian_part(), TaskLayout())


def stream(name: str) -> Curves:
    return replace(own_prior() if name == OWN else curves(name), batch=_TASKS)


def gap(name: str, masks: int, told: Told) -> dict[str, Any]:
    """Log-likelihood per target of `curve` and of exact Bayes on the same tasks, as many more as there are masks."""
    each, settings = _OWN if name == OWN else _NARROW
    batches = each * masks
    done = iter(range(1, batches + 1))
    found = evaluate(loaded(OURS[1]), stream(name), batches, settings=settings, tick=lambda: told(next(done) / batches))
    numbers = ("log_likelihood", "limit", "gap", "gap_error", "tasks")
    return {"data": name, "group": "limit", **{key: getattr(found, key) for key in numbers}}
