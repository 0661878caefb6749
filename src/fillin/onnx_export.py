"""Export of models as ONNX files, for any number of tasks, context points and targets.

torch traces the graph from the model. Each task gets one additional context point and one additional target, which are
masked, so that an empty context and an empty set of targets need no special case. Attention uses the reference back
end, whose operations every runtime has.
"""

import copy
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, MixtureSameFamily, Normal

import fillin
from fillin.errors import InputError, InputTypeError
from fillin.heads import Autoregressive, CholeskyHead, LatentMixture, LowRankHead, MarginalHead, ObservedMixture
from fillin.io import write_file
from fillin.models import Process, load
from fillin.models.base import LatentProcess
from fillin.models.convnp import ConvProcess
from fillin.models.filler import Filler
from fillin.models.gridded import GriddedTNP
from fillin.models.npt import NPT
from fillin.models.pseudo import CMANP
from fillin.models.sheet import Sheet
from fillin.runtime import require

TOLERANCE = 1e-4  # largest relative difference from the model at which a file is written
_INPUTS = {
    "xc": ("b nc dx", "locations of the context points"),
    "yc": ("b nc dy", "observed values; ignored where mask_c is false"),
    "xt": ("b nt dx", "locations to predict at"),
    "mask_c": ("b nc dy", "true where a value is observed"),
    "error_c": ("b nc dy", "known standard deviation of the error of each value, 0 where unknown"),
}
_OUTPUTS = {
    "weights": ("b nt dy k", "weights of the mixture components"),
    "means": ("b nt dy k", "means of the mixture components"),
    "deviations": ("b nt dy k", "standard deviations of the mixture components"),
    "mean": ("b nt dy", "mean of the prediction"),
    "std": ("b nt dy", "standard deviation of the prediction"),
}
_CHECKED = ((1, 0, 3), (2, 1, 2), (1, 9, 5), (2, 40, 7))  # tasks, context points, targets


@dataclass(frozen=True)
class Exported:
    """Exported file: shapes by name, and the difference of onnxruntime from torch (None without a check)."""

    path: Path
    size: int
    opset: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    difference: float | None


def export(
    model: Process | str | os.PathLike, path: str | os.PathLike, force: bool = False, check: bool = True
) -> Exported:
    """Write a model as an ONNX file, which runs without Python.

    Parameters
    ----------
    model : Process, str or os.PathLike
        A model, a name of pretrained weights, or a folder.
    path : str or os.PathLike
        The file to write, ending in .onnx.
    force : bool, default=False
        Overwrite an existing file.
    check : bool, default=True
        Run the graph on random tasks first, where onnxruntime is installed, and refuse to write it where it disagrees
        with the model.

    Returns
    -------
    Exported
        The file, its inputs and outputs, and the largest difference from the model; docs/export.md has an example.

    Raises
    ------
    InputError
        If the model cannot be exported.

    Examples
    --------
    >>> import fillin
    >>> fillin.export("te-tnp-rbf", "te-tnp.onnx")  # doctest: +SKIP
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"export: {path} is a folder; name a file in it")
    if path.exists() and not force:
        raise InputError(f"export: {path} exists; replace it with force=True (--force), or name another file")
    if not path.parent.is_dir():
        raise InputError(f"export: there is no folder {path.parent}; make it, or name another file")
    for module in ("onnx", "onnxscript"):
        require(module)
    if not isinstance(model, Process):
        if not isinstance(model, str | os.PathLike):
            raise InputTypeError(
                f"export: model must be a model, a name or a folder, got {type(model).__name__}; see fillin.load"
            )
        model = load(model, Process)
    plain = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)
    reason = find_obstacle(plain)
    if reason:
        raise InputError(f"export: {_name(model)} cannot be exported: {reason}")
    graph = _trace(plain)
    content = graph.SerializeToString()
    difference = _difference(plain, content) if check else None
    if difference is not None and not difference < TOLERANCE:
        raise InputError(
            f"export: onnxruntime differs from {_name(model)} by {difference:.1e}, more than {TOLERANCE}; nothing was "
            "written. check=False (--no-check) skips the comparison"
        )
    try:
        write_file(path, lambda temporary: temporary.write_bytes(content))
    except OSError as error:
        raise InputError(f"export: cannot write {path}: {error.strerror or error}; name another file") from error
    sides = graph.graph.input, graph.graph.output
    shapes = [{value.name: f"[{_describe(value.name)[0]}]" for value in side} for side in sides]
    opset = next(entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx"))
    return Exported(path, len(content), opset, shapes[0], shapes[1], difference)


def find_obstacle(model: Process) -> str | None:
    """Return the reason why this kind of model cannot be exported, or None."""
    if isinstance(model, ConvProcess):
        return "the size of its grid depends on the locations of the points; export a te-tnp"
    if isinstance(model, GriddedTNP):
        return "the size of its tensors depends on the number of points in the fullest cell; export lbanp"
    if isinstance(model, Sheet):
        return "its closed-form guides solve systems of equations, which ONNX cannot; export filler"
    if isinstance(model, NPT):
        return "it sorts the columns of its context, which the graph does not support; export a te-tnp"
    if isinstance(model, CMANP) and model.equivariant:
        return "its computation depends on whether a task has no context; export cmanp or te-istnp"
    if model.dim_x is None and not model.config:
        return "it takes any number of columns, and its config does not fix the number; create it with fillin.create"
    return None


def _name(model: Process) -> str:
    return str(model.config.get("model", type(model).__name__))


class TensorModel(nn.Module):
    """Model as a function of tensors: (xc, yc, xt, mask_c[, error_c]) → the tensors of its prediction."""

    def __init__(self, model: Process):
        super().__init__()
        self.model = model

    def forward(self, xc: Tensor, yc: Tensor, xt: Tensor, mask_c: Tensor, error_c: Tensor | None = None):
        errors = {} if error_c is None else {"error_c": _append_masked(error_c)}
        mask_t = torch.ones(*xt.shape[:2], self.model.dim_y, dtype=torch.bool)
        prediction = self.model(*map(_append_masked, (xc, yc, xt, mask_c, mask_t)), **errors)
        return tuple(tensor[:, :-1] for tensor in tensors(prediction).values())


def _append_masked(values: Tensor) -> Tensor:
    """Append a point of zeros, which is masked."""
    return torch.cat([values, values.new_zeros(values.shape[0], 1, values.shape[2])], 1)


def tensors(prediction: Distribution) -> dict[str, Tensor]:
    """Return the tensors of a prediction by name; those of the latent function begin with clean_."""
    if isinstance(prediction, Autoregressive):
        prediction = prediction._marginals()  # `marginal_of` reads a cached property, which torch cannot trace
    named = {"mean": prediction.mean, "std": prediction.variance.sqrt()}
    if isinstance(prediction, LatentMixture) and isinstance(prediction.given, Normal):
        means, stds = prediction.given.loc.movedim(0, -1), prediction.given.scale.movedim(0, -1)
        named = {"weights": torch.full_like(means, 1 / means.shape[-1]), "means": means, "deviations": stds} | named
    if isinstance(prediction, MixtureSameFamily):
        parts: Any = prediction.component_distribution
        weights = prediction.mixture_distribution.probs
        named = {"weights": weights, "means": parts.loc, "deviations": parts.scale} | named
    if isinstance(prediction, ObservedMixture):
        named |= {f"clean_{name}": tensor for name, tensor in tensors(prediction.noise_free).items()}
    return named


def _task(model: Process, b: int, nc: int, nt: int, seed: int = 0) -> dict[str, Tensor]:
    """Return a random task with some values missing."""
    random = torch.Generator().manual_seed(seed)
    dx, dy = model.dim_x or model.config["dim_x"], model.dim_y
    sizes = {"xc": (b, nc, dx), "yc": (b, nc, dy), "xt": (b, nt, dx)}
    task = {name: torch.randn(size, generator=random) for name, size in sizes.items()}
    task["mask_c"] = torch.rand(b, nc, dy, generator=random) < 0.8
    if isinstance(model, Filler):
        task["error_c"] = torch.rand(b, nc, dy, generator=random)
    return task


@torch.no_grad()
def _trace(model: Process):
    """Trace the model to an ONNX graph with named inputs and outputs."""
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    task = _task(model, 3, 11, 6)
    names = list(tensors(model(**task)))
    dims = {letter: torch.export.Dim(letter, min=0) for letter in ("b", "nc", "nt")}
    shapes = {name: {0: dims["b"], 1: dims[_INPUTS[name][0].split()[1]]} for name in task}
    graph = TensorModel(_traceable(model, task))
    try:
        with _quiet():
            program = torch.export.export(graph, (), task, dynamic_shapes=shapes, strict=True)
            exported: Any = torch.onnx.export(program, verbose=False, dynamo=True)
    except (TorchDynamoException, torch.onnx.errors.OnnxExporterError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise InputError(f"export: {_name(model)} uses an operation that ONNX does not support: {reason}") from error
    return _tidy(exported.model_proto, model, list(task), names)


def _traceable(model: Process, task: dict[str, Tensor]) -> Process:
    """Return a copy without value-dependent steps: checks of values, and the random noise of a latent variable."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "backend"):
            module.backend = "reference"  # type: ignore[assignment]
    if isinstance(model, Filler):  # without checks of the errors

        def read_errors(error_c: Any, context: Any, units: Any) -> Tensor:
            return torch.where(context.observed, error_c, 0) / units.scale

        model._errors = read_errors
    if isinstance(model.head, LowRankHead | CholeskyHead):
        model.head = _DiagonalHead(model.head)
    if isinstance(model, LatentProcess):
        recorded: list[Tensor] = []
        draw = model.noise
        model.noise = lambda posterior, encoded: recorded.append(draw(posterior, encoded)) or recorded[0]
        model(**task)
        model.noise = lambda posterior, encoded: recorded[0]
    return model


class _DiagonalHead(MarginalHead):
    """Marginals of a joint head: the diagonal of its covariance, which needs no factorisation."""

    def __init__(self, head: LowRankHead | CholeskyHead):
        super().__init__()
        self.head = head

    def forward(self, features: Tensor, keep: Tensor | None = None, spread: Tensor | None = None) -> Normal:
        mean, std, factor = self.head.parts(features, spread, keep)
        if isinstance(self.head, CholeskyHead):
            factor = (factor @ factor.mT).tril(-1)
        std = (std.square() + factor.square().sum(-1)).sqrt()
        mean, std = (entries.unflatten(-1, (-1, self.head.mean.out_features)) for entries in (mean, std))
        return Normal(mean, std, validate_args=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and logs of the exporter; failures are raised as errors."""
    loggers = {logging.getLogger(name): logging.getLogger(name).level for name in ("torch.onnx", "onnxscript")}
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in loggers.items():
            logger.setLevel(level)


def _tidy(proto, model: Process, inputs: list[str], outputs: list[str]):
    """Name inputs, outputs and axes, add their documentation, and remove traces of the source code."""
    graph = proto.graph
    edges = zip((*graph.input, *graph.output), (*inputs, *outputs), strict=True)
    names = {name: f"inner_{name}" for name in (*inputs, *outputs)} | {value.name: name for value, name in edges}
    for node in graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    graph.ClearField("value_info")
    graph.ClearField("metadata_props")
    proto.ClearField("metadata_props")
    facts = {"fillin": fillin.__version__, "model": json.dumps(model.config)}
    for value in (*graph.input, *graph.output):
        value.name = names[value.name]
        value.ClearField("metadata_props")
        letters, line = _describe(value.name)
        for dim, letter in zip(value.type.tensor_type.shape.dim, letters.split(), strict=True):
            if letter in ("b", "nc", "nt"):
                dim.dim_param = letter
        value.doc_string = f"[{letters}] {line}"
        facts[value.name] = value.doc_string
    for key, text in facts.items():
        proto.metadata_props.add(key=key, value=text)
    graph.name, proto.producer_name, proto.doc_string = _name(model), "fillin", "prediction at xt, given yc at xc"
    return proto


def _describe(name: str) -> tuple[str, str]:
    """Return the shape and the meaning of an input or output."""
    if name in _INPUTS:
        return _INPUTS[name]
    letters, line = _OUTPUTS[name.removeprefix("clean_")]
    return letters, f"{line}, of the latent function" if name.startswith("clean_") else line


@torch.no_grad()
def _difference(model: Process, content: bytes) -> float | None:
    """Return the largest relative difference from torch over tasks of several sizes; None without onnxruntime."""
    try:
        run = session(content)
    except ModuleNotFoundError:
        return None
    largest = 0.0
    for seed, sizes in enumerate(_CHECKED):
        task = _task(model, *sizes, seed)
        outputs = run({name: tensor.numpy() for name, tensor in task.items()})
        for name, expected in tensors(model(**task)).items():
            difference = (torch.from_numpy(outputs[name]) - expected).abs().max()
            largest = max(largest, float(difference / expected.abs().max().clamp_min(1e-3)))
    return largest


def session(content: bytes | str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that runs an ONNX graph on arrays by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in made.get_outputs()]
    return lambda task: dict(zip(names, made.run(None, task), strict=True))
