"""A model as an ONNX file: what it says of each target, for any number of tasks, known points and targets.

The graph is traced by torch from the model itself. Each task gets one more known point and one more target, which are
masked: while the graph runs there is always some point, and no context at all, or no target, is nothing special to it.
Attention is the reference, in plain operations that every runtime has.
"""

import copy
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, MixtureSameFamily, Normal

import fillin
from fillin.errors import InputError, InputTypeError
from fillin.heads import Autoregressive, CholeskyHead, LatentMixture, LowRankHead, ObservedMixture
from fillin.io import write_file
from fillin.models import Process, load
from fillin.models.base import LatentProcess
from fillin.models.convnp import ConvCNP, ConvNP
from fillin.models.filler import Filler
from fillin.models.normalization import Normalization
from fillin.models.npt import NPT
from fillin.models.points import Points
from fillin.models.pseudo import CMANP

TOLERANCE = 1e-4  # a file that is further from the model is not written
_INPUTS = {
    "xc": ("b nc dx", "places of what is known"),
    "yc": ("b nc dy", "what was observed there; where mask_c is false it is not read"),
    "xt": ("b nt dx", "where to predict"),
    "mask_c": ("b nc dy", "true where a value is there"),
    "error_c": ("b nc dy", "the known standard deviation of each value's error, 0 where none is known"),
}
_OUTPUTS = {
    "weights": ("b nt dy k", "of the normals that the prediction is a mixture of"),
    "means": ("b nt dy k", "their means"),
    "deviations": ("b nt dy k", "their standard deviations"),
    "mean": ("b nt dy", "the expected value"),
    "std": ("b nt dy", "the standard deviation"),
}
_CHECKED = ((1, 0, 3), (2, 1, 2), (1, 9, 5), (2, 40, 7))  # tasks, known points, targets


@dataclass(frozen=True)
class Exported:
    """The written file: shapes by name, and how far onnxruntime was from torch (None where it was not asked)."""

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
    _place(path, force)
    for module in ("onnx", "onnxscript"):
        _need(module)
    if not isinstance(model, Process):
        if not isinstance(model, str | os.PathLike):
            raise InputTypeError(
                f"export: model must be a model, a name or a folder, got {type(model).__name__}; see fillin.load"
            )
        model = load(model)
    plain = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)
    reason = unfit(plain)
    if reason:
        raise InputError(f"export: {_name(model)} cannot become a graph: {reason}")
    graph = _trace(plain)
    content = graph.SerializeToString()
    difference = _difference(plain, content) if check else None
    if difference is not None and not difference < TOLERANCE:
        raise InputError(
            f"export: onnxruntime is {difference:.1e} away from {_name(model)}, more than {TOLERANCE}: nothing was "
            "written; check=False (--no-check) writes it all the same"
        )
    try:
        write_file(path, lambda temporary: temporary.write_bytes(content))
    except OSError as error:
        raise InputError(f"export: cannot write {path}: {error.strerror or error}; name another place") from error
    shapes = [{value.name: _letters(value) for value in side} for side in (graph.graph.input, graph.graph.output)]
    opset = next(one.version for one in graph.opset_import if one.domain in ("", "ai.onnx"))
    return Exported(path, len(content), opset, shapes[0], shapes[1], difference)


def unfit(model: Process) -> str | None:
    """Why the model cannot be exported, as far as its kind tells; None where it may be."""
    if isinstance(model, ConvCNP | ConvNP):
        return "its grid is as large as its points lie apart, which a graph cannot know; export a te-tnp"
    if isinstance(model, NPT):
        return "it orders the columns of its context, which a graph here does not; export a te-tnp"
    if isinstance(model, CMANP) and model.equivariant:
        return "it asks whether any task of a batch has no context, which a graph cannot; export cmanp or te-istnp"
    if model.dim_x is None and not model.config:
        return "it takes any number of columns, and nothing says how many; make it with fillin.create"
    return None


def _place(path: Path, force: bool) -> None:
    if path.is_dir():
        raise InputError(f"export: {path} is a folder; name a file in it")
    if path.exists() and not force:
        raise InputError(f"export: {path} exists; replace it with force=True (--force), or name another file")
    if not path.parent.is_dir():
        raise InputError(f"export: there is no folder {path.parent}; make it, or name another file")


def _need(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"export needs {error.name}, which is not installed: pip install 'fillin[export]'") from error


def _name(model: Process) -> str:
    return str(model.config.get("model", type(model).__name__))


class Graph(nn.Module):
    """A model as a function of tensors alone: (xc, yc, xt, mask_c[, error_c]) → the tensors of its prediction."""

    def __init__(self, model: Process):
        super().__init__()
        self.model = model

    def forward(self, xc: Tensor, yc: Tensor, xt: Tensor, mask_c: Tensor, error_c: Tensor | None = None):
        given = {} if error_c is None else {"error_c": _one_more(error_c)}
        asked = torch.ones(*xt.shape[:2], self.model.dim_y, dtype=torch.bool)
        found = self.model(_one_more(xc), _one_more(yc), _one_more(xt), _one_more(mask_c), _one_more(asked), **given)
        return tuple(tensor[:, :-1] for tensor in tensors(found).values())


def _one_more(values: Tensor) -> Tensor:
    """Another point, all zeros: a mask says that it is not there."""
    return torch.cat([values, values.new_zeros(values.shape[0], 1, values.shape[2])], 1)


def tensors(found: Distribution) -> dict[str, Tensor]:
    """A prediction by name: of a mixture its parts, of any its mean and deviation; those of `clean` begin with it."""
    if isinstance(found, Autoregressive):
        found = found._marginals()
    named = {"mean": found.mean, "std": found.variance.sqrt()}
    if isinstance(found, LatentMixture) and isinstance(found.given, Normal):
        means, deviations = found.given.loc.movedim(0, -1), found.given.scale.movedim(0, -1)
        named = {
            "weights": torch.full_like(means, 1 / means.shape[-1]),
            "means": means,
            "deviations": deviations,
        } | named
    if isinstance(found, MixtureSameFamily):
        parts: Any = found.component_distribution
        weights = found.mixture_distribution.probs
        named = {"weights": weights, "means": parts.loc, "deviations": parts.scale} | named
    if isinstance(found, ObservedMixture):
        named |= {f"clean_{name}": tensor for name, tensor in tensors(found.clean).items()}
    return named


def _columns(model: Process) -> int:
    return model.dim_x or model.config["dim_x"]


def _task(model: Process, b: int, nc: int, nt: int, seed: int = 0) -> dict[str, Tensor]:
    """A random one, some of whose values are missing."""
    random = torch.Generator().manual_seed(seed)
    dx, dy = _columns(model), model.dim_y
    task = {
        name: torch.randn(b, n, d, generator=random) for name, n, d in (("xc", nc, dx), ("yc", nc, dy), ("xt", nt, dx))
    }
    task["mask_c"] = torch.rand(b, nc, dy, generator=random) < 0.8
    if isinstance(model, Filler):
        task["error_c"] = torch.rand(b, nc, dy, generator=random)
    return task


@torch.no_grad()
def _trace(model: Process):
    """The model as an ONNX graph, its inputs and outputs named."""
    from torch._dynamo.exc import TorchDynamoException  # slow to come

    task = _task(model, 3, 11, 6)
    names = list(tensors(model(**task)))
    dims = {letter: torch.export.Dim(letter, min=0) for letter in ("b", "nc", "nt")}
    shapes = {name: {0: dims["b"], 1: dims[_INPUTS[name][0].split()[1]]} for name in task}
    graph = Graph(_traceable(model, task))
    try:
        with _quiet():
            program = torch.export.export(graph, (), task, dynamic_shapes=shapes, strict=True)
            made: Any = torch.onnx.export(program, verbose=False, dynamo=True)
    except (TorchDynamoException, torch.onnx.errors.OnnxExporterError) as error:
        raise InputError(
            f"export: {_name(model)} does something that ONNX has no word for: {_reason(error)}"
        ) from error
    return _tidy(made.model_proto, model, list(task), names)


def _traceable(model: Process, task: dict[str, Tensor]) -> Process:
    """A copy without what asks for values: checks that a graph cannot make, and the noise of a latent variable."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "backend"):
            module.backend = "reference"  # type: ignore[assignment]
    if isinstance(model, Filler):
        model._errors = _unchecked_errors
    if isinstance(model.head, LowRankHead | CholeskyHead):
        model.head = _Apart(model.head)
    if isinstance(model, LatentProcess):
        heard: list[Tensor] = []
        draw = model.noise
        model.noise = lambda belief, encoded: heard.append(draw(belief, encoded)) or heard[0]
        model(**task)
        model.noise = lambda belief, encoded: heard[0]
    return model


def _unchecked_errors(given: Any, context: Points, units: Normalization) -> Tensor:
    """A filler's known errors in units of its context, whatever they are."""
    return torch.where(context.seen, given, 0) / units.scale


def _reason(error: BaseException) -> str:
    """The first line of what went wrong first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class _Apart(nn.Module):
    """Each target of a joint head on its own: the diagonal of its covariance, which needs no factorisation."""

    joint = False

    def __init__(self, head: LowRankHead | CholeskyHead):
        super().__init__()
        self.head = head

    def forward(self, features: Tensor, keep: Tensor | None = None, spread: Tensor | None = None) -> Normal:
        mean, deviation, factor = self.head.parts(features, spread, keep)
        if isinstance(self.head, CholeskyHead):
            factor = (factor @ factor.mT).tril(-1)
        whole = (deviation.square() + factor.square().sum(-1)).sqrt()
        mean, whole = (entries.unflatten(-1, (-1, self.head.mean.out_features)) for entries in (mean, whole))
        return Normal(mean, whole, validate_args=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch talks to itself about what it may not find; what matters comes as an error."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _tidy(proto, model: Process, inputs: list[str], outputs: list[str]):
    """Names that people know, shapes in letters, and what all of it means; nothing of where it was made."""
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
        letters, line = _about(value.name)
        for dim, letter in zip(value.type.tensor_type.shape.dim, letters.split(), strict=True):
            if letter in ("b", "nc", "nt"):
                dim.dim_param = letter
        value.doc_string = f"[{letters}] {line}"
        facts[value.name] = value.doc_string
    for key, text in facts.items():
        proto.metadata_props.add(key=key, value=text)
    graph.name, proto.producer_name, proto.doc_string = _name(model), "fillin", "what belongs at xt, given yc at xc"
    return proto


def _about(name: str) -> tuple[str, str]:
    """Shape and meaning of an input or output."""
    if name in _INPUTS:
        return _INPUTS[name]
    letters, line = _OUTPUTS[name.removeprefix("clean_")]
    return letters, f"{line}, of the function without noise" if name.startswith("clean_") else line


def _letters(value) -> str:
    return f"[{_about(value.name)[0]}]"


@torch.no_grad()
def _difference(model: Process, content: bytes) -> float | None:
    """The largest over tasks of all sizes, as a share of the largest number of its kind; None without onnxruntime."""
    try:
        run = session(content)
    except ModuleNotFoundError:
        return None
    worst = 0.0
    for seed, sizes in enumerate(_CHECKED):
        task = _task(model, *sizes, seed)
        found = run({name: tensor.numpy() for name, tensor in task.items()})
        for name, wanted in tensors(model(**task)).items():
            off = (torch.from_numpy(found[name]) - wanted).abs().max()
            worst = max(worst, float(off / wanted.abs().max().clamp_min(1e-3)))
    return worst


def session(content: bytes | str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An ONNX graph as a function of arrays by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in made.get_outputs()]
    return lambda task: dict(zip(names, made.run(None, task), strict=True))
