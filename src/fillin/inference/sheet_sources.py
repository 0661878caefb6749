"""Sources of the columns of a sheet: from which others each is predicted, and what they gain."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.inference.column_groups import group_columns
from fillin.inference.context import level_and_size
from fillin.inference.sheets import to_tensor
from fillin.inference.spatial import Stations
from fillin.inference.stations import krige
from fillin.models.guides import compute_guides, measure_influence
from fillin.models.sheet import median_step

MAX_SOURCES = 3  # columns that are named as sources of another


@dataclass(frozen=True)
class ColumnSources:
    """Sources of a column: the columns with the largest shares, and the root mean square errors of the guides where it
    is queried, in its standard deviations: by interpolation alone, and with the other columns."""

    column: int
    shares: dict[int, float]
    alone: float
    joint: float


@torch.inference_mode()
def find_sources(
    x: Float[ndarray, "n"], y: Float[ndarray, "n d"], queried: Bool[ndarray, "n d"], stations: Stations | None = None
) -> list[ColumnSources]:
    """Return the sources of each column with queries, from the closed-form guides of its group of columns, or of a
    station that is hardly observed from those around it."""
    order, found = np.argsort(x, kind="stable"), []
    kriging = None if stations is None else krige(x[order], y[order], stations)
    few = np.zeros(y.shape[1], dtype=bool) if kriging is None else kriging.few
    u = to_tensor((x[order] - x.min()) / (np.ptp(x) or 1.0))[None, :, None]
    for columns, targets in group_columns(y, None if kriging is None else kriging.correlation):
        part = y[order][:, columns]
        level, size = level_and_size(part)
        seen = torch.from_numpy(~np.isnan(part))
        values = torch.where(seen, to_tensor((part - level) / size), 0)
        std = (values.square().sum(0) / seen.sum(0).clamp_min(1)).sqrt()
        z = values / torch.where(std > 0, std, 1)
        prior = None
        if kriging is not None:
            prior = (to_tensor((kriging.mean[:, columns] - level) / size) / torch.where(std > 0, std, 1))[None]
        guides = compute_guides(u, z[None], seen[None], median_step(u, seen.any(-1)[None]), prior=prior)
        completed = torch.where(seen, z, guides.values[0, ..., -1])
        shares = measure_influence(z, completed, seen).tolist() if len(columns) > 1 else [[0.0]]
        for j, column in enumerate(columns.tolist()):
            cells = torch.from_numpy(queried[order][:, column])
            if column not in targets or few[column] or not cells.any():
                continue
            others = sorted((k for k, share in enumerate(shares[j]) if share), key=lambda k: -shares[j][k])[
                :MAX_SOURCES
            ]
            alone, joint = (float(guides.errors[0, cells, j, k].square().mean().sqrt()) for k in (0, -1))
            found.append(ColumnSources(column, {int(columns[k]): shares[j][k] for k in others}, alone, joint))
    if kriging is not None:
        for column in np.flatnonzero(few & queried.any(0)):
            weights = np.where(few, 0, kriging.correlation[column])
            others = np.argsort(-weights, kind="stable")[:MAX_SOURCES]
            near = {int(k): float(weights[k] / weights.sum()) for k in others if weights[k] > 0}
            joint = kriging.std[queried[order][:, column], column] / kriging.scale[column]
            found.append(ColumnSources(int(column), near, np.inf, float(np.sqrt(np.square(joint).mean()))))
    return sorted(found, key=lambda source: source.column)
