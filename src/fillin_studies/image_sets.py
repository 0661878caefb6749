"""Sets of images below the folder of `--data`."""

from collections.abc import Sequence
from pathlib import Path

from fillin.errors import InputError

PLACES = {"mnist": "mnist", "fashion_mnist": "fashion_mnist", "cifar10": "cifar10/cifar10_batch1_plus_test.npz"}


def find(data: Path | None, names: Sequence[str] = tuple(PLACES)) -> dict[str, Path]:
    """Those of these names that are there; without a folder none."""
    if data is None:
        return {}
    found = {name: data / PLACES[name] for name in names if (data / PLACES[name]).exists()}
    if not found:
        places = ", ".join(PLACES[name] for name in names)
        raise InputError(f"{data} holds none of {places}; --data is the folder that they are in")
    return found
