"""A checkpoint is a folder: model.safetensors, config.json, and for resuming trainer.safetensors and trainer.json.

The whole folder is written beside its place and renamed, so that a process killed at any moment leaves either the old
checkpoint or the new one. Never a pickle.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from fillin.errors import InputError
from fillin.io import restore_folder, sync, write_folder, write_tensors, write_text
from fillin.models import Classifier, Process
from fillin.models.serialization import load, save

_FILES = ("model.safetensors", "trainer.safetensors")


class State(NamedTuple):
    """Where a run is. `best` is the highest validation so far, `seconds` all the time that was spent, `validating` how
    much of it on validation, `pending` the (loss, gradient) of steps that no line of the log has told of yet."""

    step: int
    seconds: float
    best: float | None
    pending: list[list[float]]
    validating: float
    recipe: str  # a digest of what must not change on the way


def write(folder: Path, model: Process | Classifier, optimiser: Optimizer, state: State) -> None:
    """Replace the checkpoint in `folder`; the one before stays until the new one is whole."""

    def write_files(new: Path) -> None:
        save(model, new)
        tensors, numbers = _flatten(optimiser)
        write_tensors(new / "trainer.safetensors", tensors)
        digests = {name: _digest(new / name) for name in _FILES}
        header = {**state._asdict(), "optimiser": numbers, "sha256": digests}
        write_text(new / "trainer.json", json.dumps({**header, "seal": _seal(header)}, indent=2) + "\n")
        sync(new)

    try:
        write_folder(folder, write_files, folder.with_name(folder.name + ".new"), _old(folder))
    except (OSError, SafetensorError, InputError) as error:
        reason = "the one before is as it was" if folder.exists() else "there is none yet"
        raise InputError(
            f"cannot write a checkpoint to {folder}: {error}; {reason}. Make room, or see to it that the folder can be "
            "written to, and go on with --resume"
        ) from error


def recover(folder: Path) -> None:
    """Put back the checkpoint of a process that was killed between the two renames."""
    restore_folder(folder, _old(folder))


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def peek(folder: Path) -> State:
    """Where the run was when it wrote this checkpoint."""
    return _about(folder)[0]


def read(folder: Path, model: Process | Classifier, optimiser: Optimizer | None, recipe: str) -> State:
    """Load weights and optimiser from `folder`, or say what is wrong with it and leave it alone."""
    state, about = _about(folder)
    try:
        for name in _FILES:
            if _digest(folder / name) != about["sha256"][name]:
                raise InputError(f"{folder / name} is damaged: its content is not what was written")
        tensors = load_file(folder / "trainer.safetensors")
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise _unreadable(folder, error) from error
    if state.recipe != recipe:
        raise InputError(
            f"the checkpoint in {folder} belongs to another recipe, or to another version of fillin; it was "
            "not loaded. Start a new run; its weights still load with fillin.load"
        )
    model.load_state_dict(load(folder).state_dict())
    if optimiser is not None:
        _restore(optimiser, tensors, about["optimiser"])
    return state


def _about(folder: Path) -> tuple[State, dict[str, Any]]:
    try:
        about = json.loads((folder / "trainer.json").read_text())
        if about.pop("seal") != _seal(about):
            raise InputError(f"{folder / 'trainer.json'} is damaged: its content is not what was written")
        return State(**{name: about[name] for name in State._fields}), about
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{folder} is not a checkpoint of fillin: {Path(error.filename).name} is missing")
    return InputError(f"the checkpoint in {folder} is damaged: {error}")


def _flatten(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """State by parameter, as "3.exp_avg": tensors for one file, numbers for the other."""
    tensors, numbers = {}, {}
    for index, entries in optimiser.state_dict()["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{key}"] = value.detach().contiguous()
            else:
                numbers[f"{index}.{key}"] = value
    return tensors, numbers


def _restore(optimiser: Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Copies: what is loaded is a view of the file, which would have to stay while the next checkpoint replaces it."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**{name: tensor.clone() for name, tensor in tensors.items()}, **numbers}.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _seal(about: dict[str, Any]) -> str:
    """A digest of what trainer.json says, kept in it."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
