"""One column of observations that a `Sheet` predicts from: in one dimension all of them, and sample paths in any."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from fillin.inference.context import Context, Groups, QueryGroup, Tick
from fillin.inference.sheet_paths import ColumnProcess
from fillin.inference.sheets import MAX_ROWS, SheetContext
from fillin.models import Process
from fillin.models.base import Points
from fillin.models.processes import Processes
from fillin.models.sheet import Sheet
from fillin.predictive import GaussianMixture


class Record(Context):
    """Observations in one dimension. Up to `max_points` are one context; of more, each block of queries sees those
    around it and a thinned sample of all others, with the closed-form guides of all of them."""

    def predict(
        self,
        x: Float[ndarray, "m dx"],
        noise: bool = True,
        tick: Tick = lambda done: None,
        groups: Groups | None = None,
    ) -> GaussianMixture:
        if self.tree is None or not len(x):
            return super().predict(x, noise, tick, groups)
        inside, growth = self.limit_reach(x, self.x)
        rows = np.concatenate([self.x, inside])[:, 0]
        y = np.concatenate([self.y, np.full((len(x), 1), np.nan)])
        error = None if self.error is None else np.concatenate([self.error, np.zeros((len(x), 1))])
        queried = (np.arange(len(rows)) >= len(self.x))[:, None]
        assert isinstance(self.model, Sheet)
        (mixture,) = SheetContext(self.model, rows, y, error).predict(queried, noise, tick)
        assert mixture is not None
        return mixture.widened(growth[:, None])[:, None]


def make_context(
    model: Process,
    x: Float[ndarray, "n dx"],
    y: Float[ndarray, "n dy"],
    error: Float[ndarray, "n dy"] | None = None,
    scale: Float[ndarray, "dx"] | None = None,
) -> Context:
    """Return what a model predicts from."""
    if isinstance(model, Sheet) and x.shape[1] == 1:
        return Record(model, x, y, error, MAX_ROWS, scale)
    return Context(model, x, y, error, scale=scale)


@torch.inference_mode()
def draw_paths(
    context: Context, x: Float[ndarray, "m dx"], n: int, seed: int, tick: Tick = lambda done: None
) -> Float[ndarray, "n m"]:
    """Draw n sample paths of observations at x from a context of a sheet: quantiles of its predictions at normal scores
    that are correlated as the Gaussian process that guides them (`sheet_paths`)."""
    everything = QueryGroup(np.arange(len(x)), np.arange(len(context.x)), (x.min(0) + x.max(0)) / 2)
    parts, _ = context._normalise(x, everything)
    values, seen = torch.from_numpy(parts["yc"])[None].float(), torch.from_numpy(parts["mask_c"])[None]
    error = torch.from_numpy(parts["error_c"])[None].float() if context.error is not None else None
    points = Points(torch.from_numpy(parts["xc"])[None].float(), values, seen, seen.any(-1), error)
    assert isinstance(context.model, Sheet)
    processes = context.processes or context.model.record_guides(points).processes
    assert isinstance(processes, Processes)
    std = float(context.model.units(points).norm.scale)
    at = np.concatenate([parts["xc"], parts["xt"]]) * processes.unit[0].numpy()
    errors = None if error is None else np.append(parts["error_c"][:, 0] / std, np.zeros(len(x)))
    order = np.argsort(at[:, 0], kind="stable")
    is_query = order >= len(context.x)
    process = ColumnProcess(
        at[order], np.flatnonzero(~is_query), np.flatnonzero(is_query), processes.alone.select(0),
        None if errors is None else errors[order],
    )  # fmt: skip
    scores = process.draw(np.random.default_rng(seed).normal(size=(2, n, len(order))), tick)
    back = np.argsort(order[is_query], kind="stable")
    return context.predict(x)[:, 0].draw_at(scores[:, back])
