"""Registry of models, and their saving and loading as folders.

An entry here adds a model to the tests, the benchmarks and the command line. In a folder model.safetensors holds the
weights and, as metadata, the arguments of `create`; config.json repeats the arguments for people to read. No pickles.
"""

import inspect
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from safetensors import SafetensorError

from fillin.attention import BACKENDS
from fillin.errors import InputError, UnknownName, choose
from fillin.heads import HEADS
from fillin.io import read_tensors, write_tensors, write_text
from fillin.models.base import Process
from fillin.models.cached import BufferedTNP, IncTNP
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.cnp import ANP, CANP, CNP, NP, PooledCNP
from fillin.models.convnp import ConvCNP, ConvNP
from fillin.models.few_shot import FewShotProcess, InContextClassifier, MatchingNetwork, NPTImages
from fillin.models.filler import Filler
from fillin.models.gridded import GriddedTNP
from fillin.models.npt import NPT
from fillin.models.pseudo import CMANP, ISTNP, LBANP
from fillin.models.seq2seq import Seq2Seq
from fillin.models.sheet import Sheet
from fillin.models.tnp import TNP, AutoregressiveTNP, JointTNP
from fillin.pretrained import locate

FORMAT = 1
Model = TypeVar("Model", Process, PixelClassifier, InContextClassifier, Seq2Seq)
AnyModel = Process | Classifier | Seq2Seq


def _make_sizes(*rows: tuple[int, int, int, int]) -> dict[str, dict[str, int]]:
    """Return the options of the three sizes from their width, heads, layers and feed-forward width."""
    names: tuple[str, ...] = ("width", "heads", "layers", "hidden")
    sizes: tuple[str, ...] = ("small", "base", "1m")
    return {size: dict(zip(names, row, strict=True)) for size, row in zip(sizes, rows, strict=True)}


# equal for all transformers, with heads of dimension 16, so that models compare
SIZES = _make_sizes((64, 4, 4, 128), (128, 8, 5, 128), (160, 10, 5, 320))


@dataclass(frozen=True)
class ModelEntry:
    """A model by its class, one line of description and the paper that introduced it.

    `options` are arguments of the class that this name fixes, as `te-tnp` fixes `equivariant`; a caller of `create` may
    override those that `list_options` names. `sizes` maps each size to the options that it sets.
    """

    model_class: type[Process] | type[Classifier] | type[Seq2Seq]
    description: str
    paper: str
    options: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=lambda: SIZES)


_TE = {"equivariant": True, "score": "rbf"}  # trains fastest of all scores: docs/results/te-scores/report.md
_NG, _ASHMAN = "Nguyen & Grover 2022", "Ashman et al. 2024"
_HASSAN, _MORTIMER = "Hassan et al. 2026", "Mortimer et al. 2026"

REGISTRY: dict[str, ModelEntry] = {
    "cnp": ModelEntry(CNP, "the context as one mean vector", "Garnelo et al. 2018a"),
    "cnp-pma": ModelEntry(PooledCNP, "the context pooled by attention of a few seeds", "Lee et al. 2019"),
    "np": ModelEntry(NP, "a latent variable; coherent function samples", "Garnelo et al. 2018b"),
    "canp": ModelEntry(CANP, "each target attends to the context", "Kim et al. 2019"),
    "anp": ModelEntry(ANP, "attention and a latent variable", "Kim et al. 2019"),
    "convcnp": ModelEntry(ConvCNP, "convolutions on a grid; translation equivariant", "Gordon et al. 2020"),
    "convnp": ModelEntry(ConvNP, "convolutions with a latent function", "Foong et al. 2020"),
    "tnp-d": ModelEntry(TNP, "transformer; independent targets", _NG),
    "tnp-a": ModelEntry(AutoregressiveTNP, "transformer; target after target", _NG),
    "tnp-nd": ModelEntry(JointTNP, "transformer; joint Gaussian over targets", _NG),
    "te-tnp": ModelEntry(TNP, "translation-equivariant transformer", _ASHMAN, _TE),
    "te-tnp-a": ModelEntry(AutoregressiveTNP, "translation equivariant, target after target", _ASHMAN, _TE),
    "te-tnp-nd": ModelEntry(JointTNP, "translation equivariant, joint Gaussian", _ASHMAN, _TE),
    "tnp-buffer": ModelEntry(
        BufferedTNP, "transformer; targets in a causal buffer beside a context that is encoded once", _HASSAN
    ),
    "te-tnp-buffer": ModelEntry(BufferedTNP, "a causal buffer of targets, translation equivariant", _HASSAN, _TE),
    "inctnp": ModelEntry(IncTNP, "transformer for streams: adds an observation in O(n); ordered context", _MORTIMER),
    "te-inctnp": ModelEntry(IncTNP, "for streams, translation equivariant; ordered context", _MORTIMER, _TE),
    "filler": ModelEntry(Filler, "te-tnp-a normalised by its context, with separate noise: fills gaps", "fillin", _TE),
    "sheet": ModelEntry(Sheet, "attention between rows by location and between columns: fills sheets", "fillin", _TE),
    "lbanp": ModelEntry(LBANP, "latents attend to the context and to one another", "Feng et al. 2023a"),
    "te-lbanp": ModelEntry(
        LBANP, "latents with locations attend to the context; translation equivariant", _ASHMAN, _TE
    ),
    "istnp": ModelEntry(ISTNP, "induced set attention", "Lee et al. 2019"),
    "te-istnp": ModelEntry(ISTNP, "induced set attention, translation equivariant", _ASHMAN, _TE),
    "cmanp": ModelEntry(CMANP, "constant memory: the context may be processed in chunks", "Feng et al. 2023b"),
    "gridded-tnp": ModelEntry(
        GriddedTNP, "a grid of pseudo-tokens with local attention between points and targets", "Ashman et al. 2024b"
    ),
    "npt": ModelEntry(NPT, "tables: attention between columns and between rows", "Kossen et al. 2021"),
    "te-cmanp": ModelEntry(CMANP, "constant memory, translation equivariant", "Feng et al. 2023b", _TE),
}

# Classifiers of images. Size "base" of `classifier` is that of Alfons 2022.
CLASSIFIERS: dict[str, ModelEntry] = {
    "classifier": ModelEntry(
        PixelClassifier, "image classifier: pixels with learned positions and windows", "Alfons 2022",
        sizes=_make_sizes((32, 4, 4, 64), (64, 8, 6, 128), (160, 10, 6, 320)),
    ),
    "npt-images": ModelEntry(
        NPTImages, "image classifier: attention to labelled images", "Kossen et al. 2021",
        sizes=_make_sizes((64, 4, 1, 128), (128, 8, 2, 256), (192, 12, 3, 384)),
    ),
    "few-shot": ModelEntry(
        FewShotProcess, "few-shot: a process with a categorical head on embedded images", "Garnelo et al. 2018a",
        sizes={
            "small": {"width": 32, "heads": 4, "layers": 2, "hidden": 64, "channels": 64},
            "base": {"width": 64, "heads": 4, "layers": 3, "hidden": 128, "channels": 128},
            "1m": {"width": 128, "heads": 8, "layers": 5, "hidden": 256, "channels": 192},
        },
    ),
    "matching": ModelEntry(
        MatchingNetwork, "few-shot: the class whose labelled images are most similar", "Vinyals et al. 2016",
        sizes={"small": {"width": 32}, "base": {"width": 64}, "1m": {"width": 448}},
    ),
}  # fmt: skip

# Models of sequences of tokens.
SEQUENCE_MODELS: dict[str, ModelEntry] = {
    "seq2seq": ModelEntry(
        Seq2Seq, "encoder–decoder transformer: sequences of tokens to sequences of tokens", "Vaswani et al. 2017",
        sizes=_make_sizes((32, 4, 1, 64), (64, 4, 2, 128), (128, 8, 3, 256)),
    ),
}  # fmt: skip


def names() -> list[str]:
    """Return the names of the processes."""
    return list(REGISTRY)


def get_entry(name: str) -> ModelEntry:
    """Return the entry of a process, a classifier or a model of sequences."""
    entries = {**REGISTRY, **CLASSIFIERS, **SEQUENCE_MODELS}
    return entries[choose("model", name, entries)]


_FIXED = ("self", "dim_x", "dim_y", "features", "equivariant")
_LOCATION_OPTIONS = ("score", "span", "radial", "offsets")  # options of models whose attention depends on locations


def list_options(name: str, head: str | None = None) -> dict[str, Any]:
    """Return the options of a model and of its head with their defaults (of size="base")."""
    entry = get_entry(name)
    options: dict[str, Any] = {}
    for ancestor in reversed(entry.model_class.__mro__):  # constructors pass **options upwards
        if issubclass(ancestor, AnyModel):
            options |= _keywords(ancestor)
    unused = _FIXED if name in CLASSIFIERS or entry.options.get("equivariant") else (*_FIXED, *_LOCATION_OPTIONS)
    options = {k: v for k, v in options.items() if k not in unused}
    head = head or options.get("head")
    if head in HEADS:
        options |= {k: v for k, v in _keywords(HEADS[head]).items() if k not in ("self", "dim", "dim_y")}
    return {**options, **{k: v for k, v in {**entry.sizes["base"], **entry.options}.items() if k in options}}


def _keywords(owner: type) -> dict[str, Any]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(owner.__init__).parameters.values()
    return {p.name: None if p.default is p.empty else p.default for p in parameters if p.kind in named}


_COUNTS = {
    "heads", "head_dim", "layers", "hidden", "dim_z", "samples", "pseudo_tokens", "depth", "components", "rank", "clip",
    "max_length", "buffer", "cells", "window", "nearest",
}  # fmt: skip
_OPTIONAL = {"head_dim", "hidden", "dim_z", "cells"}  # None: chosen by the model


def _check_option(name: str, option: str, value) -> None:
    """Raise an error where a number is outside the range of the option."""
    if option == "backend":
        choose("backend", value, ["auto", *BACKENDS])
    if option in _OPTIONAL and value is None:
        return
    whole, number = type(value) is int, isinstance(value, int | float)  # `whole` excludes True
    for options, valid, expected in (
        (_COUNTS, whole and value >= 1, "a whole number of at least 1"),
        ({"width", "channels"}, whole and value >= 2 and value % 2 == 0, "an even whole number"),
        ({"kernel"}, whole and value >= 1 and value % 2, "an odd whole number"),
        ({"self_attention", "seed"}, whole and value >= 0, "a whole number of at least 0"),
        ({"points_per_unit", "length"}, number and 0 < value < math.inf, "a positive number"),
        ({"floor"}, number and value >= 0, "a number of at least 0"),
    ):
        if option in options and not valid:
            raise InputError(f"{name}: {option} must be {expected}, got {value!r}")


@overload
def create(  # pyright: ignore[reportOverlappingOverload]
    name: Literal["classifier"], dim_x: int = 1, dim_y: int = 1, size: str = "base", **options: Any
) -> PixelClassifier: ...
@overload
def create(  # pyright: ignore[reportOverlappingOverload]
    name: Literal["npt-images", "few-shot", "matching"],
    dim_x: int = 1,
    dim_y: int = 1,
    size: str = "base",
    **options: Any,
) -> InContextClassifier: ...
@overload
def create(  # pyright: ignore[reportOverlappingOverload]
    name: Literal["seq2seq"], dim_x: int = 1, dim_y: int = 1, size: str = "base", **options: Any
) -> Seq2Seq: ...
@overload
def create(name: str, dim_x: int = 1, dim_y: int = 1, size: str = "base", **options: Any) -> Process: ...
def create(name: str, dim_x: int = 1, dim_y: int = 1, size: str = "base", **options: Any) -> AnyModel:
    """Create a model with random weights.

    Parameters
    ----------
    name : str
        A name of `fillin models`, such as "te-tnp".
    dim_x : int, default=1
        Input dimensions; for a classifier of images the colour channels of a pixel, for seq2seq the symbols of sources.
    dim_y : int, default=1
        Output dimensions; for a classifier the number of classes, for seq2seq the symbols of targets.
    size : {"small", "base", "1m"}, default="base"
        Width, heads and layers.
    **options : dict
        Options of the model, as `fillin models NAME` lists them.

    Returns
    -------
    Process, Classifier or Seq2Seq
        The model.

    Raises
    ------
    UnknownName
        If there is no such model, size or option.

    Examples
    --------
    >>> import fillin
    >>> fillin.create("te-tnp", dim_x=2, size="small", score="mlp").dim_x
    2
    """
    entry = get_entry(name)
    for what, value in (("dim_x", dim_x), ("dim_y", dim_y)):
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{what} must be a whole number of at least 1, got {value!r}")
    choose("size", size, entry.sizes)
    valid_options = list_options(name, options.get("head"))
    for option in options:
        if option not in valid_options:
            raise UnknownName(f"option of {name}", option, [*valid_options, "dim_x", "dim_y", "size"])
    arguments = {**{k: v for k, v in entry.sizes[size].items() if k in valid_options}, **entry.options, **options}
    for option, value in arguments.items():
        _check_option(name, option, value)
    model = entry.model_class(dim_x=dim_x, dim_y=dim_y, **arguments)
    model.config = {"model": name, "dim_x": dim_x, "dim_y": dim_y, "size": size, "options": options}
    return model


def save(model: AnyModel, folder: str | os.PathLike) -> Path:
    """Write a model to a folder, atomically.

    Parameters
    ----------
    model : Process, Classifier or Seq2Seq
        A model made by `fillin.create`.
    folder : str or os.PathLike
        The folder, which is created: `model.safetensors` and `config.json`.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    InputError
        If the model was not made by `create`, or the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import fillin
    >>> folder = fillin.save(fillin.create("cnp", size="small"), tempfile.mkdtemp())
    >>> type(fillin.load(folder)).__name__
    'CNP'
    """
    folder = Path(folder)
    if not getattr(model, "config", None):
        raise InputError("save: the model has no config; only models made by fillin.create can be saved")
    try:
        config = json.dumps({"format": FORMAT, **model.config}, indent=2)
    except TypeError as error:
        raise InputError(f"save: {error}; give options by name or number: a score as 'mlp', no function") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
        write_tensors(folder / "model.safetensors", weights, {"fillin": config})
        write_text(folder / "config.json", config + "\n")
    except (OSError, SafetensorError) as error:
        raise InputError(f"save: cannot write to {folder}: {error}") from error
    return folder


@overload
def load(folder: str | os.PathLike) -> Process: ...
@overload
def load(folder: str | os.PathLike, kind: type[Model]) -> Model: ...
def load(folder: str | os.PathLike, kind: type | None = None) -> Any:
    """Load a model with its weights and dtype.

    Parameters
    ----------
    folder : str or os.PathLike
        A folder that `fillin.save` wrote, a run folder (its best weights), or the name of pretrained weights.
    kind : type, optional
        The class that the model must have; by default `Process`.

    Returns
    -------
    Process, Classifier or Seq2Seq
        The model, in evaluation mode.

    Raises
    ------
    InputError
        If the folder holds no such model.

    Examples
    --------
    >>> import fillin
    >>> fillin.load("te-tnp-rbf").dim_x
    1
    """
    path = locate(folder)
    if path.is_file():
        raise InputError(
            f"load: {path} is a file, and models are folders; what TableRegressor, TableClassifier or TableImputer "
            "saved is read by their own load: fillin.TableRegressor.load(…)"
        )
    path = (path / "best" if (path / "recipe.yaml").exists() else path) / "model.safetensors"
    config, weights = read_tensors(path, "fillin", "model")
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(f"load: {path} is not a fillin model of format {FORMAT}; another program or version wrote it")
    try:
        model = create_from_config(config)
        dtype = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
        if len(dtype) == 1:
            model.to(dtype.pop())
        model.load_state_dict(weights)
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"load: the weights in {path} do not fit the model they name: {error}") from error
    if kind is not None and not isinstance(model, kind):
        raise InputError(f"load: {path} holds the model {config['model']}, which is no {kind.__name__}; name another")
    return model


def create_from_config(config: dict[str, Any]) -> Any:
    """Return the model of a config with random weights."""
    return create(config["model"], config["dim_x"], config["dim_y"], config["size"], **config["options"])
