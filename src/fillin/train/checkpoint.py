"""Checkpoints: folders with model.safetensors, config.json, and for resuming trainer.safetensors and trainer.json.

A checkpoint is written to a temporary folder and renamed, so that a process killed at any moment leaves either the old
checkpoint or the new one. No pickles.
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
from fillin.models import AnyModel, load, save

_FILES = ("model.safetensors", "trainer.safetensors")


class TrainingState(NamedTuple):
    """Progress of a run. `best` is the highest validation score so far, `seconds` the training time, `validating` the
    part of it spent on validation, `pending` the (loss, gradient norm) of steps since the last line of the log."""

    step: int
    seconds: float
    best: float | None
    pending: list[list[float]]
    validating: float
    recipe: str  # digest of the settings that must not change within a run


def write(folder: Path, model: AnyModel, optimiser: Optimizer, state: TrainingState) -> None:
    """Replace the checkpoint in `folder`; the previous one stays until the new one is complete."""

    def write_files(new: Path) -> None:
        save(model, new)
        tensors, numbers = _flatten(optimiser)
        write_tensors(new / "trainer.safetensors", tensors)
        digests = {name: _digest(new / name) for name in _FILES}
        header = {**state._asdict(), "optimiser": numbers, "sha256": digests}
        write_text(new / "trainer.json", json.dumps({**header, "seal": _digest(header)}, indent=2) + "\n")
        sync(new)

    try:
        write_folder(folder, write_files, folder.with_name(folder.name + ".new"), _old(folder))
    except (OSError, SafetensorError, InputError) as error:
        previous = "the previous checkpoint is unchanged" if folder.exists() else "there is no previous checkpoint"
        raise InputError(
            f"cannot write a checkpoint to {folder}: {error}; {previous}. Free disk space, or make the folder "
            "writable, and continue with --resume"
        ) from error


def recover(folder: Path) -> None:
    """Put back the checkpoint of a process that was killed between the two renames."""
    restore_folder(folder, _old(folder))


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def read(folder: Path, model: AnyModel, optimiser: Optimizer | None, recipe: str) -> TrainingState:
    """Load weights and optimiser state from `folder`. Raises an error where the checkpoint is damaged or foreign."""
    state, header = read_header(folder)
    try:
        for name in _FILES:
            if _digest(folder / name) != header["sha256"][name]:
                raise InputError(f"{folder / name} is damaged: its content differs from what was written")
        tensors = load_file(folder / "trainer.safetensors")
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise _unreadable(folder, error) from error
    if state.recipe != recipe:
        raise InputError(
            f"the checkpoint in {folder} belongs to another recipe or another version of fillin and was not loaded; "
            "start a new run. fillin.load still reads its weights"
        )
    model.load_state_dict(load(folder).state_dict())
    if optimiser is not None:
        _restore(optimiser, tensors, header["optimiser"])
    return state


def read_header(folder: Path) -> tuple[TrainingState, dict[str, Any]]:
    """Read the training state and the whole header of a checkpoint."""
    try:
        header = json.loads((folder / "trainer.json").read_text())
        if header.pop("seal") != _digest(header):
            raise InputError(f"{folder / 'trainer.json'} is damaged: its content differs from what was written")
        return TrainingState(**{name: header[name] for name in TrainingState._fields}), header
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{folder} is not a checkpoint of fillin: {Path(error.filename).name} is missing")
    return InputError(f"the checkpoint in {folder} is damaged: {error}")


def _flatten(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state of each parameter as "3.exp_avg": tensors for one file, numbers for the other."""
    state = optimiser.state_dict()["state"].items()
    entries = {f"{index}.{key}": value for index, values in state for key, value in values.items()}
    tensors = {name: value.detach().contiguous() for name, value in entries.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in entries.items() if name not in tensors}


def _restore(optimiser: Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Restore the state from copies: loaded tensors are views of the file, which the next checkpoint replaces."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**{name: tensor.clone() for name, tensor in tensors.items()}, **numbers}.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _digest(content: Path | dict[str, Any]) -> str:
    """Return the digest of a file, or of the content of trainer.json, which is stored in it."""
    data = content.read_bytes() if isinstance(content, Path) else json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()
