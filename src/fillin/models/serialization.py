"""A model as a folder: model.safetensors holds the weights and, as its metadata, how to build the model again, so that
the two cannot come apart; config.json is the latter for people to read. Never a pickle."""

import glob
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fillin.errors import InputError
from fillin.models.base import Process
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.few_shot import ByExample
from fillin.models.registry import create
from fillin.pretrained import locate

FORMAT = 1
Model = TypeVar("Model", Process, PixelClassifier, ByExample)
_OLD = 3600.0  # seconds: on a shared disk the numbers of another machine's processes say nothing, their age does


def save(model: Process | Classifier, folder: str | os.PathLike) -> Path:
    """Write the model to a folder. Each file is written beside its place and renamed, so none is ever half-written."""
    folder = Path(folder)
    if not getattr(model, "config", None):
        raise InputError("save: only a model made by fillin.create knows how to be built again")
    try:
        config = json.dumps({"format": FORMAT, **model.config}, indent=2)
    except TypeError as error:
        raise InputError(
            f"save: {error}; give options by name or number, a score as 'mlp', not as a function"
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
        replace_file(folder / "model.safetensors", lambda path: write_tensors(weights, path, {"fillin": config}))
        replace_file(folder / "config.json", lambda path: path.write_text(config + "\n"))
    except (OSError, SafetensorError) as error:
        raise InputError(f"save: cannot write to {folder}: {error}") from error
    return folder


@overload
def load(folder: str | os.PathLike) -> Process: ...
@overload
def load(folder: str | os.PathLike, kind: type[Model]) -> Model: ...
def load(folder: str | os.PathLike, kind: type | None = None) -> Any:
    """The model that `save` wrote there, the best of a run, or pretrained weights by name, with their dtype. Where it
    must be a Process, or a kind of classifier, `kind` says so."""
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
    """The model that a config describes, its weights random."""
    return create(config["model"], config["dim_x"], config["dim_y"], config["size"], **config["options"])


def read_tensors(path: str | os.PathLike, key: str, what: str) -> tuple[Any, dict[str, Tensor]]:
    """The JSON under `key` of the metadata (None where there is none), and all tensors of a safetensors file."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(key, "null"))
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"load: {path} is not a readable {what}: {error}") from error


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """safetensors, readable for whom the umask lets read: save_file leaves it to its owner alone."""
    path.touch()
    mode = path.stat().st_mode & 0o777
    save_file(tensors, path, metadata)
    path.chmod(mode)


def sync(path: Path) -> None:
    """Wait until the file is on the disk: a rename must not get there first. Windows does so for what is open for
    writing, which a folder cannot be."""
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, write: Callable[[Path], object], new: bool = False) -> None:
    """Call write(a path beside), then rename: `path` is whole at any moment, also after a power cut. A `new` file
    replaces none: FileExistsError if another process was quicker. What killed processes left beside it goes."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(beside)
        sync(beside)
        if new:
            _publish(beside, path)
        else:
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        if left.is_file() and _is_dead(left.suffix[1:]) and _age(left) > _OLD:
            left.unlink(missing_ok=True)


def _publish(beside: Path, path: Path) -> None:
    """Give the file its name unless that is taken, in one step where the disk has links."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:
        with path.open("x"):
            pass
        os.replace(beside, path)


def _age(path: Path) -> float:
    """Seconds since it was last written to; none where it has just gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_dead(process: str) -> bool:
    """Whether it is the number of a process that is no more; Windows cannot be asked without harm."""
    if not process.isdecimal() or sys.platform == "win32":
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
