"""Saving and loading of models as folders.

model.safetensors holds the weights and, as metadata, the arguments of `create`; config.json repeats the arguments for
people to read. No pickles.
"""

import json
import os
from pathlib import Path
from typing import Any, TypeVar, overload

from safetensors import SafetensorError

from fillin.errors import InputError
from fillin.io import read_tensors, write_tensors, write_text
from fillin.models.base import Process
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.few_shot import InContextClassifier
from fillin.models.registry import create
from fillin.pretrained import locate

FORMAT = 1
Model = TypeVar("Model", Process, PixelClassifier, InContextClassifier)


def save(model: Process | Classifier, folder: str | os.PathLike) -> Path:
    """Write a model to a folder, atomically.

    Parameters
    ----------
    model : Process or Classifier
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
    Process or Classifier
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
        model = build(config)
        dtype = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
        if len(dtype) == 1:
            model.to(dtype.pop())
        model.load_state_dict(weights)
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"load: the weights in {path} do not fit the model they name: {error}") from error
    if kind is not None and not isinstance(model, kind):
        raise InputError(f"load: {path} holds the model {config['model']}, which is no {kind.__name__}; name another")
    return model


def build(config: dict[str, Any]) -> Any:
    """Return the model of a config with random weights."""
    return create(config["model"], config["dim_x"], config["dim_y"], config["size"], **config["options"])
