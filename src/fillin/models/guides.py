"""Closed-form predictions of every cell of a sheet, which its model refines: interpolation and ridge regression.

Each guide predicts an observed cell as if it were missing in a gap, so that its errors show how far to trust it in gaps
of that size.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

RIDGES = (0.1, 1.0, 10.0, 100.0)  # penalties that compete, in observations
GAPS = (1, 3, 9, 27, 81)  # rows on each side of an observed cell that are treated as missing too
NEIGHBOURS = 6  # observations that an interpolation in several dimensions averages
MIN_ERROR = 1e-3  # of a guide, in standard deviations of the column
_MAX_LEVERAGE = 0.9
_MAX_ENTRIES = 1 << 22  # of the design matrices of the columns that are predicted at once
_INTERCEPT_PENALTY = 1e-3
_FEW = 3  # observations below which a column has no errors to learn from
N_GUIDES = 3


@dataclass(frozen=True)
class Guides:
    """Predictions of every cell and their errors, by interpolation along the column, by ridge regression on the other
    columns, and by ridge regression on both. `distances` are those to the nearest observations of the column, in steps
    (0: none)."""

    values: Float[Tensor, "b n d 3"]
    errors: Float[Tensor, "b n d 3"]
    distances: Float[Tensor, "b n d 2"]


@torch.no_grad()
def compute_guides(
    x: Float[Tensor, "b n dx"], y: Float[Tensor, "b n d"], observed: Bool[Tensor, "b n d"], step: Float[Tensor, "b 1 1"]
) -> Guides:
    """Compute the guides of standardised columns y, whose mean is 0.

    The regressions run twice: missing cells of other columns are interpolated at first, then predicted by both.
    """
    y = torch.where(observed, y, 0)
    neighbours = find_neighbours(x, y, observed, [gap for gap in GAPS if gap == 1 or 4 * gap <= x.shape[1]], step)
    weights = _interpolate_scales(neighbours, observed)
    along = neighbours[0].values
    completed = torch.where(observed, y, along)
    rounds = 2 if y.shape[-1] > 1 else 1
    for _ in range(rounds):
        across = regress(completed[..., None], y, observed)
        fits = []
        for near in neighbours:
            own = torch.where(observed, near.values, along)
            fits.append(regress(torch.stack([completed, completed - near.values], -1), y, observed, own))
        both = _mix(fits, weights)
        completed = torch.where(observed, y, both)
    errors = [
        _mix([_error(near.values, y, observed).expand_as(y) for near in neighbours], weights),
        _error(across, y, observed).expand_as(y),
        _mix([_error(fit, y, observed).expand_as(y) for fit in fits], weights),
    ]
    few = observed.sum(1, keepdim=True)[..., None] < _FEW
    error = torch.where(few, 1, torch.stack(errors, -1)).clamp(MIN_ERROR, 3)
    return Guides(torch.stack([along, across, both], -1), error, neighbours[0].distances)


def _error(guide: Float[Tensor, "b n d"], y: Tensor, observed: Tensor) -> Float[Tensor, "b 1 d"]:
    """Return the root mean square error of a guide at the observed cells."""
    total = torch.where(observed, guide - y, 0).square().sum(1, keepdim=True)
    return (total / observed.sum(1, keepdim=True).clamp_min(1)).sqrt()


def _mix(parts: list[Tensor], weights: Float[Tensor, "s b n d"]) -> Float[Tensor, "b n d"]:
    return (torch.stack(parts) * weights).sum(0)


@dataclass(frozen=True)
class Neighbours:
    """Interpolation from the nearest observations outside a gap around each cell, their distances, and the size of the
    gap as the variance of a random walk that is observed there: l·r / (l + r)."""

    values: Float[Tensor, "b n d"]
    distances: Float[Tensor, "b n d 2"]

    @property
    def size(self) -> Float[Tensor, "b n d"]:
        left, right = self.distances.unbind(-1)
        both = left * right / (left + right).clamp_min(1e-9)
        return torch.where((left > 0) & (right > 0), both, left + right)


def _interpolate_scales(neighbours: list[Neighbours], observed: Tensor) -> Float[Tensor, "s b n d"]:
    """Return the weight of each gap in the prediction of each cell: linear in the logarithm of the size of its gap."""
    count = observed.sum(1, keepdim=True).clamp_min(1)
    sizes = [torch.where(observed, near.size, 0).sum(1, keepdim=True) / count for near in neighbours]  # [b 1 d]
    logs = torch.stack(sizes).clamp_min(1e-6).log().cummax(0).values
    cell = neighbours[0].size.clamp_min(1e-6).log()
    if len(neighbours) == 1:
        return torch.ones_like(cell)[None]
    weights = [torch.zeros_like(cell) for _ in neighbours]
    rest = torch.ones_like(cell)
    for i in range(len(neighbours) - 1):
        low, high = logs[i], logs[i + 1]
        share = ((cell - low) / (high - low).clamp_min(1e-6)).clamp(0, 1)  # beyond this gap
        weights[i] = rest * (1 - share)
        rest = rest * share
    weights[-1] = rest
    return torch.stack(weights)


def find_neighbours(
    x: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    gaps: list[int],
    step: Float[Tensor, "b 1 1"],
) -> list[Neighbours]:
    """Interpolate each column from observations at least `gap` rows away: linearly between the nearest ones before and
    after, constant beyond the first and last; in several dimensions as a weighted mean of the nearest ones."""
    if x.shape[-1] != 1:
        return [_average_neighbours(x, y, observed, gap, step) for gap in gaps]
    b, n, d = y.shape
    order = x[..., 0].argsort(dim=1, stable=True)
    index, back = (rows[..., None].expand(-1, -1, d) for rows in (order, order.argsort(1)))
    xs = x[..., 0].gather(1, order)[..., None].expand(-1, -1, d)
    ys, seen = y.gather(1, index), observed.gather(1, index)
    number = torch.arange(n, device=x.device)[None, :, None].expand(b, n, d)
    last = torch.where(seen, number, -1).cummax(1).values
    following = torch.where(seen, number, n).flip(1).cummin(1).values.flip(1)
    found = []
    for gap in gaps:
        size = min(gap, n)
        before = torch.cat([last.new_full((b, size, d), -1), last[:, : n - size]], 1)
        after = torch.cat([following[:, size:], following.new_full((b, size, d), n)], 1)
        has_before, has_after = before >= 0, after < n
        left, right = before.clamp_min(0), after.clamp_max(n - 1)
        x_left, x_right, y_left, y_right = (v.gather(1, i) for v in (xs, ys) for i in (left, right))
        share = torch.where(x_right > x_left, (xs - x_left) / (x_right - x_left).clamp_min(1e-12), 0.5)
        value = torch.where(has_before, torch.where(has_after, y_left + share * (y_right - y_left), y_left), y_right)
        value = torch.where(has_before | has_after, value, 0)
        tie = 1e-3 * step  # rows at one location
        distances = [
            torch.where(has, torch.maximum(gap_x, tie) / step, 0)
            for has, gap_x in ((has_before, xs - x_left), (has_after, x_right - xs))
        ]
        found.append(Neighbours(value.gather(1, back), torch.stack([t.gather(1, back) for t in distances], -1)))
    return found


def _average_neighbours(x: Tensor, y: Tensor, observed: Tensor, gap: int, step: Tensor) -> Neighbours:
    """Average the nearest observations with weights 1/distance²; distances are those of the first two."""
    b, n, d = y.shape
    squares = (x[:, :, None] - x[:, None]).square().sum(-1) / step.square()
    near_rows = squares < (gap - 0.5) ** 2 if gap > 1 else torch.zeros_like(squares, dtype=torch.bool)
    near_rows = near_rows | torch.eye(n, dtype=torch.bool, device=x.device)
    k = min(NEIGHBOURS, n)
    values, distances = [], []
    for j in range(d):
        hidden = near_rows | ~observed[:, None, :, j]
        near, rows = squares.masked_fill(hidden, torch.inf).topk(k, largest=False)
        weights = 1 / near.clamp_min(1e-6)
        total = weights.sum(-1)
        mean = (weights * y[..., j][:, None].expand(b, n, n).gather(2, rows)).sum(-1)
        values.append(torch.where(total > 0, mean / total.clamp_min(1e-30), 0))
        first = near[..., :2] if k > 1 else near.expand(b, n, 2)
        distances.append(torch.where(first.isfinite(), first.sqrt().clamp_min(1e-3), 0))
    return Neighbours(torch.stack(values, -1), torch.stack(distances, 2))


def regress(
    features: Float[Tensor, "b n d f"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    own: Float[Tensor, "b n d"] | None = None,
) -> Float[Tensor, "b n d"]:
    """Predict each column by ridge regression on the features of the other columns, and on `own`, of its own column.

    Observed cells are predicted by the closed form of leave-one-out; the penalty is chosen by that error, per column.
    """
    d = y.shape[-1]
    at_once = max(1, _MAX_ENTRIES // max(1, features.numel()))
    # in double precision: nearly collinear columns, and residuals of a thousandth of a standard deviation
    features, targets = features.double().flatten(2), y.double()
    parts = []
    for columns in torch.arange(d, device=y.device).split(at_once):
        one = None if own is None else own[..., columns].double()
        parts.append(_regress_columns(features, targets[..., columns], observed[..., columns], one, columns, d))
    return torch.cat(parts, -1).to(y.dtype)


def _regress_columns(
    features: Float[Tensor, "b n p"],
    y: Float[Tensor, "b n c"],
    observed: Bool[Tensor, "b n c"],
    own: Float[Tensor, "b n c"] | None,
    columns: Int64[Tensor, "c"],
    d: int,
) -> Float[Tensor, "b n c"]:
    other = (torch.arange(d, device=y.device) != columns[:, None]).repeat_interleave(features.shape[-1] // d, 1)  # [c p]
    parts = [features[:, None] * other[None, :, None]]
    parts += [] if own is None else [own.mT[..., None]]
    design = torch.cat([*parts, y.new_ones(y.mT.shape)[..., None]], -1)  # [b c n p + 1 or 2]
    target, seen = y.mT[..., None], observed.mT[..., None]  # [b c n 1]
    weighted = design * seen
    gram, moment = weighted.mT @ design, weighted.mT @ target
    penalty = torch.ones(design.shape[-1], dtype=gram.dtype, device=y.device)
    penalty[-1] = _INTERCEPT_PENALTY
    best, smallest = y.new_zeros(target.shape), y.new_full((*target.shape[:2], 1, 1), torch.inf)
    for ridge in RIDGES:
        inverse = torch.linalg.inv(gram + ridge * torch.diag(penalty))
        fit = design @ (inverse @ moment)
        leverage = ((design @ inverse) * design).sum(-1, keepdim=True).clamp_max(_MAX_LEVERAGE)
        left_out = torch.where(seen, (fit - leverage * target) / (1 - leverage), fit)
        error = torch.where(seen, left_out - target, 0).square().sum(2, keepdim=True)
        best, smallest = torch.where(error < smallest, left_out, best), torch.minimum(error, smallest)
    return best[..., 0].mT
