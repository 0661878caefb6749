"""The interface of a table learner, the layout of the columns that it reads and predicts, and the training loop."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn

from fillin.learners.calibration import Calibration
from fillin.predictive import Categorical, Predictive
from fillin.runtime import Tick
from fillin.warp import PiecewiseLinearWarp

Learner = TypeVar("Learner", bound="TableLearner")


@dataclass(frozen=True)
class TableLayout:
    """Layout of input and output columns: the number of classes of each, 0 for numbers.

    `input_of_output` is the position of an output column among the inputs (−1: it is no input), so that a cell is never
    predicted from itself. `feature_weight` is λ, the weight of outputs that are also inputs, when training starts.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_of_output: tuple[int, ...]
    feature_weight: float = 1.0

    @property
    def numeric_inputs(self) -> list[int]:
        return [i for i, classes in enumerate(self.inputs) if not classes]

    @property
    def numeric_features(self) -> list[int]:
        """Positions of the numeric inputs that are outputs too."""
        pairs = zip(self.input_of_output, self.outputs, strict=True)
        return [position for position, classes in pairs if position >= 0 and not classes]

    @property
    def has_features(self) -> bool:
        """Whether any output column is also an input."""
        return max(self.input_of_output) >= 0

    @property
    def has_targets(self) -> bool:
        """Whether any output column is a target only."""
        return min(self.input_of_output) < 0

    def labelled(self, outputs: Float[ndarray, "n t"]) -> Bool[Tensor, "n"]:
        """Rows with a value in a target column; all rows where there is no target."""
        targets = outputs[:, [position < 0 for position in self.input_of_output]]
        return torch.as_tensor(~np.isnan(targets).all(1) if targets.shape[1] else np.ones(len(outputs), bool))

    def output_weights(self, progress: float) -> Float[Tensor, "t"]:
        """1 − λ shared by the targets, λ by the features, annealed to 0 by a cosine; without targets all are equal."""
        is_feature = torch.tensor([position >= 0 for position in self.input_of_output])
        if is_feature.all():
            return torch.ones(len(is_feature)) / len(is_feature)
        weight = self.feature_weight * (0.5 + 0.5 * np.cos(np.pi * progress)) if is_feature.any() else 0.0
        features, targets = max(1, int(is_feature.sum())), int((~is_feature).sum())
        return torch.where(is_feature, weight / features, (1 - weight) / targets)

    def to_dict(self) -> dict[str, Any]:
        """The layout as saved files have it."""
        return {
            "reads": self.inputs, "tells": self.outputs, "shared": self.input_of_output,
            "features": self.feature_weight,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TableLayout":
        inputs, outputs, input_of_output = (tuple(data[key]) for key in ("reads", "tells", "shared"))
        return cls(inputs, outputs, input_of_output, data["features"])


@dataclass(frozen=True)
class TrainingPlan:
    """Length and settings of training: `steps` of `batch` query rows, which see at most `memory` rows of the table.
    Every `every` steps the held-out rows are scored; training stops after `patience` scores without improvement."""

    steps: int = 500
    batch: int = 256
    memory: int = 2048
    rate: float = 2e-3
    decay: float = 1e-3
    held_out: float = 0.15
    every: int = 20
    patience: int = 8
    hide: float = 0.3  # share of cells that are masked, in columns that are both input and output

    def train(
        self, net: nn.Module, loss: Callable[[float], Tensor], score: Callable[[int], Float[Tensor, "m"]], tick: Tick,
        max_gradient: float, members: int = 1, fused: bool | None = None,
        ignore_patience: Callable[[float], bool] = lambda progress: False,
    ) -> None:  # fmt: skip
        """Minimise `loss(share of steps done)`, and leave in each member the weights with its best `score(step)`.
        `ignore_patience(share)` is True while a score without improvement does not count against the patience."""
        optimiser = torch.optim.AdamW(net.parameters(), self.rate, weight_decay=self.decay, fused=fused)
        best, state, rounds_since = torch.full((members,), -torch.inf), copy.deepcopy(net.state_dict()), 0
        for step in range(self.steps):
            cosine = 0.5 + 0.5 * np.cos(np.pi * step / self.steps)
            for group in optimiser.param_groups:
                group["lr"] = self.rate * min(1, (step + 1) / 20) * cosine + 1e-5  # after a short warm-up
            net.train()
            loss(step / self.steps).backward()
            nn.utils.clip_grad_norm_(net.parameters(), max_gradient)
            optimiser.step()
            optimiser.zero_grad()
            tick(1)
            if (step + 1) % self.every and step + 1 < self.steps:
                continue
            net.eval()
            current = score(step)
            improved = current > best
            best = torch.where(improved, current, best)
            rounds_since = 0 if improved.any() or ignore_patience(step / self.steps) else rounds_since + 1
            for name, value in net.state_dict().items():
                shape = members, value.numel() // members  # some have a first axis of members × columns
                state[name].view(shape)[improved] = value.reshape(shape)[improved]
            if rounds_since >= self.patience:
                break
        net.load_state_dict(state)
        net.eval()


class TableLearner(ABC):
    """A model of one table: `fit`, then `predict` of new rows. `inputs` [n d] and `outputs` [n t] hold numbers and
    class codes, NaN where a cell is missing. `scales` are the warps of numeric outputs, None for classes."""

    name: ClassVar[str]
    net: Any  # an nn.Module, whose class is the learner's
    table: Any

    def __init__(
        self, layout: TableLayout, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"],
        scales: Sequence[PiecewiseLinearWarp | None], net_options: Mapping[str, Any],
    ):  # fmt: skip
        self.layout, self.inputs, self.outputs = layout, inputs, outputs
        self.scales, self.net_options = list(scales), dict(net_options)
        self.calibrations = [Calibration() for _ in layout.outputs]
        self._build()

    @classmethod
    def fit(
        cls: type[Learner], layout: TableLayout, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"],
        scale: str, seed: int, plan: TrainingPlan, net_options: Mapping[str, Any], tick: Tick,
    ) -> Learner:  # fmt: skip
        """Train on the rows of the table; numeric outputs are scaled by the method `scale`."""
        columns = zip(layout.outputs, outputs.T, strict=True)
        scales = [None if classes else PiecewiseLinearWarp.fit(column, scale) for classes, column in columns]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            learner = cls(layout, inputs, outputs, scales, net_options)
            learner._train(plan, tick)
        return learner

    @abstractmethod
    def _build(self) -> None:
        """Make the network `net` and the encoded `table`."""

    @abstractmethod
    def _encode(self, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"]) -> Any:
        """Rows as the network reads them."""

    @abstractmethod
    def _train(self, plan: TrainingPlan, tick: Tick) -> None:
        """Train the network, and calibrate its predictions."""

    @abstractmethod
    def predict(self, inputs: Float[ndarray, "n d"], transductive: bool = False) -> list[Predictive]:
        """The distribution of each output column; `transductive`: query rows also attend to one another."""

    def with_rows(self: Learner, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"]) -> Learner:
        """The same network, attending to other rows."""
        other = copy.copy(self)
        other.inputs, other.outputs, other.table = inputs, outputs, self._encode(inputs, outputs)
        return other

    @classmethod
    def network_options(cls, members: int) -> dict[str, Any]:
        """The options of the network that an estimator sets."""
        return {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON metadata from which `from_state` builds the learner again."""
        tensors = {f"net.{name}": t.detach() for name, t in self.net.state_dict().items()}
        tensors |= {"reads": torch.tensor(self.inputs), "tells": torch.tensor(self.outputs)}  # some are read-only
        return tensors, {
            "question": self.layout.to_dict(), "net": self.net_options,
            "scales": [None if scale is None else scale.to_dict() for scale in self.scales],
            "widths": [calibration.to_dict() for calibration in self.calibrations],
        }  # fmt: skip

    @classmethod
    def from_state(cls: type[Learner], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Learner:
        """The learner whose `state` this is."""
        layout = TableLayout.from_dict(metadata["question"])
        scales = [None if scale is None else PiecewiseLinearWarp.from_dict(scale) for scale in metadata["scales"]]
        learner = cls(layout, tensors["reads"].numpy(), tensors["tells"].numpy(), scales, metadata["net"])
        weights = {name.removeprefix("net."): t for name, t in tensors.items() if name.startswith("net.")}
        learner.net.load_state_dict(weights)
        learner.calibrations = [Calibration.from_dict(data) for data in metadata["widths"]]
        return learner

    def _combine(
        self, members: Sequence[Predictive], gp_predictions: Sequence[Float[ndarray, "n g"] | None]
    ) -> list[Predictive]:
        """Calibrated predictions in the units of each column, from those of all members [m n …] and of a GP."""
        result: list[Predictive] = []
        columns = zip(members, self.scales, self.calibrations, gp_predictions, strict=True)
        for prediction, scale, calibration, gp_prediction in columns:
            if isinstance(prediction, Categorical):
                result.append(Categorical(calibration.probabilities(prediction.probabilities, gp_prediction)))
            else:
                assert scale is not None
                result.append(calibration.mixture(prediction, gp_prediction).transformed(scale))
        return result
