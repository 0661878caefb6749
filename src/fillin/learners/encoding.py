"""One table as tensors: input cells in standard units with their joint-Gaussian completion, and output cells."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import one_hot

from fillin.gp import GPTarget
from fillin.learners.base import TableLayout
from fillin.learners.imputation import GaussianImputer
from fillin.learners.row_network import Rows
from fillin.predictive import MAX_CLASSES

_FAR = 3.0  # standard deviations beyond which an input is compressed by a logarithm


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
