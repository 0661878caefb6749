"""Closed-form predictions of every cell of a sheet, which its model refines: interpolation and ridge regression.

Each guide predicts an observed cell as if it were missing in a gap, so that its errors show how far to trust it in gaps
of that size.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

if TYPE_CHECKING:
    from fillin.models.processes import Processes

RIDGES = (1e-3, 0.1, 3.0, 30.0)  # penalties that compete, in observations
PRIOR_RIDGES = (0.1, 3.0, 30.0, 300.0, 1e5)  # the same around a prior prediction, which may be all that is used
_MOST_OWN = 3.0  # of them, for the interpolation of a column and the intercept
_MIN_GAIN = 0.99  # of errors, below which one guide replaces another
FOLDS = 5  # blocks of rows, each predicted from the others
GAPS = (1, 3, 9, 27, 81)  # rows on each side of an observed cell that are treated as missing too
NEIGHBOURS = 6  # observations that an interpolation in several dimensions averages
MIN_ERROR = 1e-3  # of a guide, in standard deviations of the column
_MAX_ENTRIES = 1 << 22  # of the design matrices of the columns that are predicted at once
_INTERCEPT_PENALTY, _NO_TREND = 1e-3, 1e9
_MIN_AVAILABLE = 1 / 3  # share of the missing cells of a column in whose rows another must be observed to predict it
_FEW = 3  # observations below which a column has no errors to learn from
N_GUIDES = 3
ACROSS = 1  # the guide that predicts a column from the others alone


@dataclass(frozen=True)
class Guides:
    """Predictions of every cell and their errors, by interpolation along the column, by ridge regression on the other
    columns, and by ridge regression on both. `distances` are those to the nearest observations of the column, in steps
    (0: none). `processes` are Gaussian processes, by which a model predicts the cells of each of its windows."""

    values: Float[Tensor, "b n d 3"]
    errors: Float[Tensor, "b n d 3"]
    distances: Float[Tensor, "b n d 2"]
    processes: "Processes | None" = None


@torch.no_grad()
def compute_guides(
    x: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    step: Float[Tensor, "b 1 1"],
    trend: Float[Tensor, "b n d"] | float = 0.0,
    prior: Float[Tensor, "b n d"] | None = None,
) -> Guides:
    """Compute the guides of standardised columns y, whose mean is 0, and from which a `trend` was subtracted.

    The regressions run twice: missing cells of other columns are interpolated at first, then predicted by both. They
    are those of y + trend: columns that go together no longer do so when each has lost a trend of its own. `prior`
    predicts each cell without its own value. Regressions of what it leaves compete with the others, column by column:
    their penalty then shrinks towards it instead of 0.
    """
    context = observed.any(-1)
    # rows of the context first, in order, so that the others have no effect on it
    order = torch.where(context, x[..., 0], torch.inf).argsort(dim=1, stable=True)
    back, count = order.argsort(1), context.sum(1)
    parts = (x, torch.where(observed, y, 0), observed, torch.zeros_like(y) + trend)
    x, y, observed, trend = (take_rows(part, order) for part in parts)
    prior = None if prior is None else take_rows(prior, order)
    number = torch.arange(x.shape[1], device=x.device)
    folds = torch.where(number < count[:, None], number * FOLDS // count[:, None].clamp_min(1), FOLDS)
    largest = int(count.max())  # beyond it all gaps are alike: nothing is left to interpolate from
    gaps = [gap for i, gap in enumerate(GAPS) if i == 0 or GAPS[i - 1] < largest]
    neighbours = find_neighbours(x, observed, gaps, step)
    weights = _interpolate_scales(neighbours, observed)
    alone = [near.interpolate(y) for near in neighbours]
    along = alone[0]
    available = find_available(observed)

    def regress_both(completed: Tensor) -> tuple[Tensor, list[Tensor]]:
        completed, target = completed + trend, y + trend
        across, fits = regress(completed, target, observed, available, folds, x=x) - trend, []
        rest = None if prior is None else torch.where(observed, y - prior, 0)
        if prior is not None and rest is not None:
            fit = prior + regress(completed, rest, observed, available, folds, ridges=PRIOR_RIDGES)
            across = _choose_columns(fit, across, y, observed)
        for near, own in zip(neighbours, alone, strict=True):
            # a gap of a missing cell has its own ends; so have the observations of the other columns beside it
            ends = near if near is neighbours[0] else near.select(observed, neighbours[0])
            own, beside = torch.where(observed, own, along) + trend, ends.interpolate_all(completed)
            fits.append(regress(completed, target, observed, available, folds, own, beside, x) - trend)
            if prior is not None and rest is not None:
                own = torch.where(observed, near.interpolate(rest), neighbours[0].interpolate(rest))
                fit = prior + regress(completed, rest, observed, available, folds, own, beside, ridges=PRIOR_RIDGES)
                fits[-1] = _choose_columns(fit, fits[-1], y, observed)
        return across, fits

    across, fits = regress_both(torch.where(observed, y, along))
    if y.shape[-1] > 1:
        across, fits = regress_both(torch.where(observed, y, _mix(fits, weights)))
    both = _mix(fits, weights)
    errors = [
        _mix([_error(own, y, observed).expand_as(y) for own in alone], weights),
        _error(across, y, observed).expand_as(y),
        _mix([_error(fit, y, observed).expand_as(y) for fit in fits], weights),
    ]
    few = observed.sum(1, keepdim=True)[..., None] < _FEW
    error = torch.where(few, 1, torch.stack(errors, -1)).clamp(MIN_ERROR, 3)
    parts = torch.stack([along, across, both], -1), error, neighbours[0].distances
    return Guides(*(take_rows(part, back) for part in parts))


def take_rows(part: Float[Tensor, "b n *c"] | Bool[Tensor, "b n *c"], rows: Int64[Tensor, "b m"]) -> Tensor:
    return part.gather(1, rows.view(*rows.shape, *[1] * (part.ndim - 2)).expand(-1, -1, *part.shape[2:]))


def find_available(observed: Bool[Tensor, "b n d"]) -> Bool[Tensor, "b d d"]:
    """Return which columns (last axis) may predict another: not itself, and not those that are mostly missing in the
    rows of the context where it is missing. A copy that lacks the same cells fits perfectly, and predicts nothing."""
    d = observed.shape[-1]
    missing = (~observed & observed.any(-1, keepdim=True)).to(torch.float32)
    count = missing.sum(1)[..., None]
    seen = missing.mT @ observed.to(torch.float32)
    other = ~torch.eye(d, dtype=torch.bool, device=observed.device)
    return other & ((count == 0) | (seen >= _MIN_AVAILABLE * count))


def _choose_columns(first: Tensor, second: Tensor, y: Tensor, observed: Tensor) -> Float[Tensor, "b n d"]:
    """Return the columns of the first guide where its errors are clearly smaller, else those of the second."""
    return torch.where(_error(first, y, observed) < _MIN_GAIN * _error(second, y, observed), first, second)


def _error(guide: Float[Tensor, "b n d"], y: Tensor, observed: Tensor) -> Float[Tensor, "b 1 d"]:
    """Return the root mean square error of a guide at the observed cells."""
    total = torch.where(observed, guide - y, 0).square().sum(1, keepdim=True)
    return (total / observed.sum(1, keepdim=True).clamp_min(1)).sqrt()


def _mix(parts: list[Tensor], weights: Float[Tensor, "s b n d"]) -> Float[Tensor, "b n d"]:
    return (torch.stack(parts) * weights).sum(0)


@dataclass(frozen=True)
class Neighbours:
    """The k observations of its column from which each cell is interpolated, outside a gap around it: their rows, their
    weights (all 0 where there are none), and the distances of the nearest on each side, or of the two nearest."""

    rows: Int64[Tensor, "b n d k"]
    weights: Float[Tensor, "b n d k"]
    distances: Float[Tensor, "b n d 2"]

    @property
    def size(self) -> Float[Tensor, "b n d"]:
        """Size of the gap, as the variance of a random walk that is observed at its ends: l·r / (l + r)."""
        left, right = self.distances.unbind(-1)
        both = left * right / (left + right).clamp_min(1e-9)
        return torch.where((left > 0) & (right > 0), both, left + right)

    def interpolate(self, y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Interpolate each column from its own observations."""
        b, n, d, k = self.rows.shape
        ends = y.gather(1, self.rows.permute(0, 1, 3, 2).reshape(b, n * k, d)).view(b, n, k, d)
        return (ends.mT * self.weights).sum(-1)

    def interpolate_all(self, y: Float[Tensor, "b n d"]) -> Float[Tensor, "b d n d"]:
        """Interpolate all columns from the rows where the first axis, a column, has its observations."""
        b, n, d, k = self.rows.shape
        index = self.rows.permute(0, 2, 1, 3).reshape(b, d * n * k, 1).expand(-1, -1, d)
        ends = y.gather(1, index).view(b, d, n, k, d)
        return (ends * self.weights.permute(0, 2, 1, 3)[..., None]).sum(3)

    def select(self, cells: Bool[Tensor, "b n d"], other: "Neighbours") -> "Neighbours":
        """Return these neighbours for `cells`, and the other ones elsewhere."""
        parts = [torch.where(cells[..., None], *pair) for pair in (
            (self.rows, other.rows), (self.weights, other.weights), (self.distances, other.distances)
        )]  # fmt: skip
        return Neighbours(*parts)

    def followed_by(self, other: "Neighbours") -> "Neighbours":
        """Return these neighbours for the first rows, and the other ones for the rows after them."""
        n = self.rows.shape[1]
        pairs = ((self.rows, other.rows), (self.weights, other.weights), (self.distances, other.distances))
        return Neighbours(*(torch.cat([first, rest[:, n:]], 1) for first, rest in pairs))


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
    x: Float[Tensor, "b n dx"], observed: Bool[Tensor, "b n d"], gaps: list[int], step: Float[Tensor, "b 1 1"]
) -> list[Neighbours]:
    """Find the observations, at least `gap` rows of the context away, that each cell is interpolated from: linearly
    between the nearest ones before and after, from the first or last one beyond them; in several dimensions with
    weights 1/distance² from the nearest ones. The rows of the context come first, in the order of x."""
    if x.shape[-1] != 1:
        return _find_nearest(x, observed, gaps, step)
    b, n, d = observed.shape
    number = torch.arange(n, device=x.device)
    context = observed.any(-1)
    count = context.sum(1, keepdim=True)
    ordered = torch.where(number < count, x[..., 0], torch.inf)
    place = torch.searchsorted(ordered.contiguous(), x[..., 0].contiguous(), right=True).clamp_max(count)
    # positions in the context just before and just after each row
    before_row, after_row = (torch.where(context, number + shift, place + min(shift, 0)) for shift in (-1, 1))
    index = number[None, :, None].expand(b, n, d)
    last = torch.where(observed, index, -1).cummax(1).values
    following = torch.where(observed, index, n).flip(1).cummin(1).values.flip(1)
    x = x.expand(-1, -1, d)
    found = []
    for gap in gaps:
        low, high = (row[..., None].expand(-1, -1, d) for row in (before_row - (gap - 1), after_row + (gap - 1)))
        before = torch.where(low >= 0, last.gather(1, low.clamp_min(0)), -1)
        after = torch.where(high < n, following.gather(1, high.clamp_max(n - 1)), n)
        has_before, has_after = before >= 0, after < n
        left, right = before.clamp_min(0), after.clamp_max(n - 1)
        x_left, x_right = x.gather(1, left), x.gather(1, right)
        share = torch.where(x_right > x_left, (x - x_left) / (x_right - x_left).clamp_min(1e-12), 0.5)
        share = torch.where(has_before & has_after, share, has_after.to(share.dtype))
        tie = 1e-3 * step  # rows at one location
        distances = [
            torch.where(has, torch.maximum(gap_x, tie) / step, 0)
            for has, gap_x in ((has_before, x - x_left), (has_after, x_right - x))
        ]
        weights = torch.stack([has_before * (1 - share), share], -1)
        found.append(Neighbours(torch.stack([left, right], -1), weights, torch.stack(distances, -1)))
    return found


def _find_nearest(x: Tensor, observed: Tensor, gaps: list[int], step: Tensor) -> list[Neighbours]:
    _, n, d = observed.shape
    context = max(int(observed.any(-1).sum(1).max()), 1)
    squares = (x[:, :, None] - x[:, None, :context]).square().sum(-1) / step.square()
    own = torch.eye(n, context, dtype=torch.bool, device=x.device)
    k, found = min(NEIGHBOURS, context), []
    for gap in gaps:
        # beyond a gap of one, only cells of the context are interpolated: their errors are those of the guides
        part = squares if gap == 1 else squares[:, :context]
        near = own if gap == 1 else part < (gap - 0.5) ** 2
        parts = []
        for j in range(d):
            distances, rows = part.masked_fill(near | ~observed[:, None, :context, j], torch.inf).topk(k, largest=False)
            weights = 1 / distances.clamp_min(1e-6)
            weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-30)
            first = distances[..., :2] if k > 1 else distances.expand(*distances.shape[:2], 2)
            parts.append((rows, weights, torch.where(first.isfinite(), first.sqrt().clamp_min(1e-3), 0)))
        neighbours = Neighbours(*(torch.stack(column, 2) for column in zip(*parts, strict=True)))
        found.append(neighbours if not found else neighbours.followed_by(found[0]))
    return found


def measure_influence(
    y: Float[Tensor, "n d"], completed: Float[Tensor, "n d"], observed: Tensor
) -> Float[Tensor, "d d"]:
    """Return the share of each column (second axis) in the prediction of another (first): the size of its slope in a
    ridge regression on all that `find_available` returns, over the sum of all."""
    d, rows, available = y.shape[1], completed.double(), find_available(observed[None])[0]
    slopes = rows.new_zeros(d, d)
    for j, others in enumerate(available):
        design = rows[observed[:, j]][:, others]
        penalty = torch.eye(design.shape[1], dtype=rows.dtype, device=y.device)
        slopes[j, others] = torch.linalg.solve(design.mT @ design + penalty, design.mT @ y[observed[:, j], j].double())
    sizes = slopes.abs() * rows.std(0)
    return sizes / sizes.sum(1, keepdim=True).clamp_min(1e-12)


def regress(
    completed: Float[Tensor, "b n d"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    available: Bool[Tensor, "b d d"],
    folds: Int64[Tensor, "b n"],
    own: Float[Tensor, "b n d"] | None = None,
    beside: Float[Tensor, "b d n d"] | None = None,
    x: Float[Tensor, "b n dx"] | None = None,
    ridges: tuple[float, ...] = RIDGES,
) -> Float[Tensor, "b n d"]:
    """Predict each column by ridge regression on the `available` other columns, `completed`. With `own`, an
    interpolation of the column, also on that, and on the differences of the other columns from their interpolations
    `beside`; with `x` also, or not, on the location.

    Rows are divided into `folds`, successive blocks, and observed cells are predicted from the other folds: neighbours
    are alike, and leaving out one row alone would flatter. Penalties are chosen by these errors, per column.
    """
    d = y.shape[-1]
    at_once = max(1, _MAX_ENTRIES // max(1, FOLDS * completed.numel()))
    # in double precision: nearly collinear columns, and residuals of a thousandth of a standard deviation
    parts = []
    for columns in torch.arange(d, device=y.device).split(at_once):
        other = available[:, columns, None]  # [b c 1 d]
        features = completed.double()[:, None]
        design = [features * other]
        if own is not None and beside is not None:
            design += [(features - beside[:, columns].double()) * other, own.double().mT[:, columns, :, None]]
        if x is not None:
            design += [x.double()[:, None].expand(-1, len(columns), -1, -1)]
        design += [torch.ones_like(design[0][..., :1])]
        target, seen = y.double()[..., columns].mT, observed[..., columns].mT
        joined = torch.cat(design, -1)
        most = torch.full(joined.shape[-1:], torch.inf, dtype=joined.dtype, device=y.device)
        if ridges is PRIOR_RIDGES:  # the penalty of the other columns is high where the prior is all that is used
            most[joined.shape[-1] - (1 if own is None else 2) :] = _MOST_OWN
        strengths = _penalties(ridges, joined, 0 if x is None else x.shape[-1]).minimum(most)
        parts.append(_regress(joined, target, seen, folds, strengths))
    return torch.cat(parts, 1).mT.to(y.dtype)


def _penalties(ridges: tuple[float, ...], design: Float[Tensor, "b c n p"], locations: int) -> Float[Tensor, "r p"]:
    """Return the penalties that compete. The last columns of the design are `locations`, with and without which
    regressions compete, and the intercept."""
    penalty = design.new_ones(design.shape[-1])
    penalty[-1] = _INTERCEPT_PENALTY
    rows = design.new_tensor(ridges)[:, None] * penalty
    if not locations:
        return rows
    without = rows.clone()
    rows[:, -1 - locations : -1], without[:, -1 - locations : -1] = _INTERCEPT_PENALTY, _NO_TREND
    return torch.cat([rows, without])


def _regress(
    design: Float[Tensor, "b c n p"],
    y: Float[Tensor, "b c n"],
    observed: Bool[Tensor, "b c n"],
    folds: Int64[Tensor, "b n"],
    strengths: Float[Tensor, "r p"],
) -> Float[Tensor, "b c n"]:
    n = design.shape[2]
    members = observed[:, :, None] & (folds[:, None] == torch.arange(FOLDS, device=y.device)[:, None])[:, None]
    weighted = design[:, :, None] * members[..., None]  # [b c f n p]
    grams, moments = weighted.mT @ design[:, :, None], weighted.mT @ y[:, :, None, :, None]
    gram, moment = grams.sum(2, keepdim=True), moments.sum(2, keepdim=True)
    grams, moments = torch.cat([gram - grams, gram], 2), torch.cat([moment - moments, moment], 2)  # the last: all rows
    slopes = torch.linalg.solve(grams[:, :, :, None] + torch.diag_embed(strengths), moments[:, :, :, None])[..., 0]
    fits = (slopes.flatten(2, 3) @ design.mT).unflatten(2, (FOLDS + 1, -1))  # [b c f+1 r n]
    fold = torch.where(observed, folds[:, None], FOLDS)[:, :, None, None]
    predicted = fits.gather(2, fold.expand(-1, -1, -1, len(strengths), -1))[:, :, 0]  # [b c r n]
    error = torch.where(observed[:, :, None], predicted - y[:, :, None], 0).square().sum(-1)
    return predicted.gather(2, error.argmin(2)[..., None, None].expand(-1, -1, 1, n))[:, :, 0]
