"""One table as tensors, and the imputation of its missing inputs.

Numbers are completed by a joint Gaussian, which the networks start from; a row with unusually many missing cells is
completed by similar rows, the hot deck.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import one_hot

from fillin.gp import GPTarget
from fillin.learners.base import TableLayout
from fillin.learners.calibration import untrimmed
from fillin.predictive import MAX_CLASSES, Categorical, Predictive

_FAR = 3.0  # standard deviations beyond which an input is compressed by a logarithm
_EM_ROUNDS = 30
_EM_ROWS = 5_000
_MAX_GAUSSIAN_COLUMNS = 64  # the time of a row grows with their cube; beyond, columns are independent
_ROWS_AT_ONCE = 4_096

DONORS = 24  # similar rows that complete a row
_MIN_MISSING, _MIN_MISSING_SHARE = 10, 0.05  # missing cells of a column that suffice to learn from
_USUAL_SHARE = 0.98  # of the rows have at most `max_missing` missing cells
_DECK_ROWS = 2_000
_DIFFERENCES_AT_ONCE = 1 << 24
_CLASS_DISTANCE, _MAX_DISTANCE, _UNKNOWN_DISTANCE = 4.0, 25.0, 2.0  # squared, in standard deviations


@dataclass(frozen=True)
class InputScale:
    """Mean and standard deviation of each numeric input; a class column has 0 and 1, and at most MAX_CLASSES codes."""

    mean: Float[ndarray, "d"]
    std: Float[ndarray, "d"]
    classes: tuple[int, ...]

    @classmethod
    def fit(cls, values: Float[ndarray, "n d"], classes: tuple[int, ...]) -> "InputScale":
        observed = ~np.isnan(values)
        count = observed.sum(0).clip(1)
        mean = np.where(observed, values, 0).sum(0) / count
        std = np.sqrt((np.where(observed, values - mean, 0) ** 2).sum(0) / count)
        std = np.where(std > 1e-9 * np.abs(mean), std, np.where(mean == 0, 1.0, np.abs(mean)))
        is_class = np.array(classes) > 0
        return cls(np.where(is_class, 0, mean), np.where(is_class, 1, std), tuple(min(k, MAX_CLASSES) for k in classes))

    def transform(self, values: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Standard units; the rarest classes share the last code."""
        last_code = np.array([k - 1 if k else np.inf for k in self.classes])
        return np.minimum((values - self.mean) / self.std, last_code)

    def compress(self, z: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Bring numbers far from the mean nearer, by a logarithm."""
        compressed = np.sign(z) * (_FAR + np.log1p(np.maximum(np.abs(z) - _FAR, 0)))
        return np.where((np.abs(z) <= _FAR) | (np.array(self.classes) > 0), z, compressed)


@dataclass(frozen=True)
class GaussianImputer:
    """All numeric columns as one Gaussian: the missing cells of a row given its observed cells.

        E[x | x_o] = μ + Σ_·o Σ_oo⁻¹ (x_o − μ_o)        Var = diag(Σ − Σ_·o Σ_oo⁻¹ Σ_o·)

    A linear prediction that networks start from. μ and Σ are fitted by expectation maximisation over rows with missing
    cells (Dempster et al. 1977); Σ is shrunk towards its diagonal where rows are few.
    """

    mean: Float[Tensor, "d"]
    covariance: Float[Tensor, "d d"]

    @classmethod
    @torch.no_grad()
    def fit(cls, x: Float[Tensor, "n d"], observed: Bool[Tensor, "n d"]) -> "GaussianImputer":
        step = max(1, len(x) // _EM_ROWS)
        x, observed = x[::step].double(), observed[::step]
        n, d = x.shape
        count = observed.sum(0).clamp_min(1)
        mean = torch.where(observed, x, 0).sum(0) / count
        variance = (torch.where(observed, x - mean, 0).square().sum(0) / count).clamp_min(1e-6)
        gaussian = cls(mean, torch.diag(variance))
        if d > _MAX_GAUSSIAN_COLUMNS:
            return gaussian
        for _ in range(_EM_ROUNDS if not observed.all() else 1):
            pieces = zip(x.split(_ROWS_AT_ONCE), observed.split(_ROWS_AT_ONCE), strict=True)
            parts = [gaussian._condition(*piece) for piece in pieces]
            completed = torch.cat([rows for rows, _ in parts])
            mean = completed.mean(0)
            residual = sum(covariance.sum(0) for _, covariance in parts)
            scatter = ((completed - mean).mT @ (completed - mean) + residual) / n
            diagonal = torch.diag(scatter.diagonal())
            gaussian = cls(mean, (n * scatter + d * diagonal) / (n + d) + 1e-6 * torch.eye(d, dtype=x.dtype))
        return gaussian

    def predict(
        self, x: Float[Tensor, "*b d"], observed: Bool[Tensor, "*b d"]
    ) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"]]:
        """Mean and standard deviation of every cell; an observed cell keeps its value, with standard deviation 0."""
        if observed.all():  # also where there is no numeric column
            return x, torch.zeros_like(x)
        flat, is_observed = x.reshape(-1, x.shape[-1]), observed.reshape(-1, x.shape[-1])
        mean, std = flat.clone(), torch.zeros_like(flat)
        incomplete = (~is_observed).any(-1).nonzero()[:, 0]
        for rows in incomplete.split(_ROWS_AT_ONCE):
            completed, covariance = self._condition(flat[rows].double(), is_observed[rows])
            mean[rows] = completed.to(x.dtype)
            std[rows] = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt().to(x.dtype)
        return mean.view_as(x), std.view_as(x)

    def _condition(
        self, x: Float[Tensor, "n d"], observed: Bool[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d d"]]:
        """Completed rows, and the covariance of their missing cells. Missing cells are made independent of all others,
        with variance 1, so that one batched factorisation serves every pattern."""
        observed_weight = observed.to(x.dtype)
        both = observed_weight[:, :, None] * observed_weight[:, None]
        factor = torch.linalg.cholesky(self.covariance * both + torch.diag_embed(1 - observed_weight))
        cross = self.covariance * observed_weight[:, :, None]  # Σ_o·, with zeros in missing rows
        half = torch.linalg.solve_triangular(factor, cross, upper=False)  # L⁻¹ Σ_o·
        offset = torch.linalg.solve_triangular(factor, ((x - self.mean) * observed_weight)[..., None], upper=False)
        mean = self.mean + (half.mT @ offset)[..., 0]
        missing = (1 - observed_weight)[:, :, None] * (1 - observed_weight)[:, None]
        return torch.where(observed, x, mean), (self.covariance - half.mT @ half) * missing


@dataclass(frozen=True)
class Rows:
    """Rows for each member: input cells, missing ones completed with a standard deviation, and output cells (0 where
    missing)."""

    inputs: Float[Tensor, "m n d"]
    input_std: Float[Tensor, "m n d"]
    observed: Bool[Tensor, "m n d"]
    outputs: Float[Tensor, "m n t"]
    output_observed: Bool[Tensor, "m n t"]


@dataclass(frozen=True)
class EncodedTable:
    """The rows of a table as tensors. `completed` holds the inputs with missing numbers predicted by `gaussian`, and
    the standard deviations of these predictions."""

    inputs: Float[Tensor, "n d"]
    input_observed: Bool[Tensor, "n d"]
    outputs: Float[Tensor, "n t"]
    output_observed: Bool[Tensor, "n t"]
    layout: TableLayout
    gaussian: GaussianImputer
    completed: tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]

    @classmethod
    def encode(
        cls, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"], scale: InputScale, layout: TableLayout,
        gaussian: GaussianImputer | None = None,
    ) -> "EncodedTable":  # fmt: skip
        """Encode inputs in their own units and outputs in standard units; the Gaussian is fitted unless it is given."""
        z = scale.transform(inputs)
        observed, output_observed = torch.as_tensor(~np.isnan(z)), ~np.isnan(outputs)
        cells = torch.as_tensor(np.where(np.isnan(z), 0, scale.compress(z)), dtype=torch.float32)
        targets = torch.as_tensor(np.where(output_observed, outputs, 0), dtype=torch.float32)
        numeric = layout.numeric_inputs
        gaussian = gaussian or GaussianImputer.fit(cells[:, numeric], observed[:, numeric])
        completed = _complete(gaussian, numeric, cells, observed)
        return cls(cells, observed, targets, torch.as_tensor(output_observed), layout, gaussian, completed)

    def __len__(self) -> int:
        return len(self.inputs)

    def double(self) -> "EncodedTable":
        """The same table in double precision."""
        cells, std = (part.double() for part in self.completed)
        return replace(self, inputs=self.inputs.double(), outputs=self.outputs.double(), completed=(cells, std))

    def append(self, other: "EncodedTable") -> "EncodedTable":
        """The rows of both tables."""
        names = ("inputs", "input_observed", "outputs", "output_observed")
        parts = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in names}
        cells, std = (torch.cat(pair) for pair in zip(self.completed, other.completed, strict=True))
        return replace(self, completed=(cells, std), **parts)

    @property
    def features(self) -> Float[Tensor, "n f"]:
        """Rows as points for a Gaussian process: completed numbers, and an indicator of each class."""
        observed, cells = self.input_observed, self.inputs
        indicators = [
            one_hot(torch.where(observed[:, i], cells[:, i], 0).long(), k) * observed[:, i, None]
            for i, k in enumerate(self.layout.inputs)
            if k
        ]
        return torch.cat([self.completed[0][:, self.layout.numeric_inputs], *indicators], 1)

    @property
    def gp_targets(self) -> list[GPTarget | None]:
        """The values of outputs that are no inputs, one column per class; None for the others."""
        columns = zip(
            self.outputs.T, self.output_observed.T, self.layout.outputs, self.layout.input_of_output, strict=True
        )
        return [
            GPTarget(one_hot(y.long(), k) - 1 / k if k else y[:, None], observed) if position < 0 else None
            for y, observed, k, position in columns
        ]

    def rows(self, index: Int64[Tensor, "m k"]) -> Rows:
        """The rows of each member."""
        cells, std = self.completed
        return Rows(
            cells[index], std[index], self.input_observed[index], self.outputs[index], self.output_observed[index]
        )

    def masked_rows(self, index: Int64[Tensor, "m k"], share: float) -> tuple[Rows, Bool[Tensor, "m k t"]]:
        """The rows of each member with output cells masked, and which cells are to be predicted: all of a target
        column, and a share of a column that is also an input."""
        rows = self.rows(index)
        queried, observed = rows.output_observed.clone(), rows.observed.clone()
        for j, position in enumerate(self.layout.input_of_output):
            if position >= 0:
                masked = torch.rand(index.shape) < share
                queried[..., j] &= masked
                observed[..., position] &= ~masked
        cells, std = rows.inputs, rows.input_std
        if self.layout.has_features:
            cells, std = _complete(self.gaussian, self.layout.numeric_inputs, self.inputs[index], observed)
        return Rows(cells, std, observed, rows.outputs, rows.output_observed), queried


def _complete(
    gaussian: GaussianImputer, numeric: list[int], cells: Float[Tensor, "*b d"], observed: Bool[Tensor, "*b d"]
) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"]]:
    """Cells with missing numbers predicted, and the standard deviations of the predictions."""
    mean, std = gaussian.predict(cells[..., numeric], observed[..., numeric])
    completed, uncertainty = torch.where(observed, cells, 0), torch.zeros_like(cells)
    completed[..., numeric], uncertainty[..., numeric] = mean, std
    return completed, uncertainty


@dataclass(frozen=True)
class HotDeck:
    """Multiple imputation of a row from the rows most similar in its observed cells (a hot deck; Rubin 1987).

        p(y | observed) = ∫ p(y | observed, missing) p(missing | observed) ≈ 1/K Σ_k p(y | observed, cells of donor k)

    Prediction intervals widen accordingly. A row without any observed cell is completed by arbitrary rows. A network
    can also learn from missing cells, and must where missingness is informative: held-out rows decide, and
    `max_missing` is the number of missing cells up to which a row is left to the network.
    """

    rows: Float[ndarray, "r d"]  # in random order
    scale: Float[ndarray, "d"]
    is_class: Bool[ndarray, "d"]
    has_enough_missing: Bool[ndarray, "d"]  # columns with enough missing cells to learn from
    max_missing: int

    @classmethod
    def from_rows(
        cls, rows: Float[ndarray, "n d"], scale: Float[ndarray, "d"], is_class: Bool[ndarray, "d"]
    ) -> "HotDeck":
        missing = np.isnan(rows)
        has_enough_missing = missing.sum(0) >= np.maximum(_MIN_MISSING, _MIN_MISSING_SHARE * len(rows))
        order = np.random.default_rng(0).permutation(len(rows))[:_DECK_ROWS]
        return cls(rows[order], scale, is_class, has_enough_missing, int(np.quantile(missing.sum(1), _USUAL_SHARE)))

    def needs_donors(self, values: Float[ndarray, "n d"]) -> Bool[ndarray, "n"]:
        """Rows with more missing cells than usual, or one in a column that hardly ever missed any."""
        missing = np.isnan(values)
        unusual = (missing & ~self.has_enough_missing).any(1) & (self.max_missing < len(self.has_enough_missing))
        return (missing.sum(1) > self.max_missing) | unusual

    def complete(self, values: Float[ndarray, "n d"], donors: int = DONORS) -> Float[ndarray, "n k d"]:
        """Each row with its missing cells taken from each of its donors."""
        at_once = max(1, _DIFFERENCES_AT_ONCE // max(1, self.rows.size))
        nearest = [self._nearest(values[i : i + at_once])[:, :donors] for i in range(0, len(values), at_once)]
        return np.where(np.isnan(values)[:, None], self.rows[np.concatenate(nearest)], values[:, None])

    def _nearest(self, values: Float[ndarray, "n d"]) -> Int[ndarray, "n r"]:
        """Row numbers, the most similar first. A row that has the missing cells comes before one that has not."""
        missing = np.isnan(values)[:, None]
        difference = (values[:, None] - self.rows) / self.scale
        distance = np.where(
            self.is_class, _CLASS_DISTANCE * (difference != 0), np.minimum(difference**2, _MAX_DISTANCE)
        )
        distance = np.where(np.isnan(difference), _UNKNOWN_DISTANCE, distance)
        total = np.where(missing, _MAX_DISTANCE * np.isnan(self.rows), distance).sum(-1)
        return np.argsort(total, axis=1, kind="stable")


def merge_completions(prediction: Predictive, completed: Bool[ndarray, "n"], donors: int) -> Predictive:
    """Predictions in the order of the rows, from those of complete rows followed by `donors` for each other row."""
    kept = len(completed) - int(completed.sum())
    if isinstance(prediction, Categorical):
        probabilities = prediction.probabilities
        mean = probabilities[kept:].reshape(-1, donors, probabilities.shape[1]).mean(1)
        return replace(prediction, probabilities=_interleave(probabilities[:kept], mean, completed))
    parts = prediction.weights, prediction.means, prediction.stds
    components = prediction.weights.shape[1]
    weights, means, stds = (part[kept:].reshape(-1, donors * components) for part in parts)
    reduced = reduce_components(weights / donors, means, stds, components)
    merged = (_interleave(part[:kept], few, completed) for part, few in zip(parts, reduced, strict=True))
    return replace(untrimmed(*merged), warp=prediction.warp)


def reduce_components(
    weights: Float[ndarray, "n m"], means: Float[ndarray, "n m"], stds: Float[ndarray, "n m"], components: int
) -> tuple[Float[ndarray, "n p"], Float[ndarray, "n p"], Float[ndarray, "n p"]]:
    """A mixture of fewer components with the same mean and variance: components of neighbouring means are merged."""
    order = np.argsort(means, axis=1)
    weights, means, stds = (np.take_along_axis(part, order, 1) for part in (weights, means, stds))
    group = np.minimum(((weights.cumsum(1) - weights / 2) * components).astype(int), components - 1)
    flat = (group + components * np.arange(len(group))[:, None]).ravel()

    def total(values: Float[ndarray, "n m"]) -> Float[ndarray, "n p"]:
        return np.bincount(flat, values.ravel(), components * len(group)).reshape(-1, components)

    weight = total(weights)
    divisor = np.where(weight > 0, weight, 1.0)
    mean = total(weights * means) / divisor
    offset = means - np.take_along_axis(mean, group, 1)
    std = np.sqrt(total(weights * (stds**2 + offset**2)) / divisor)
    return weight, mean, np.where(weight > 0, std, 1.0)


def _interleave(where_false: ndarray, where_true: ndarray, mask: Bool[ndarray, "n"]) -> ndarray:
    """Rows of two arrays, put back in the order of the mask."""
    result = np.empty((len(mask), *where_false.shape[1:]))
    result[~mask], result[mask] = where_false, where_true
    return result
