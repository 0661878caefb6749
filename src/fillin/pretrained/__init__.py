"""Weights that ship with fillin. Each is a folder: best/ (the model), recipe.yaml (how it was trained), card.md (on
what, how long, how good, under which licence).

>>> "te-tnp-rbf" in names()
True
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """What there is."""
    return sorted(path.parent.name for path in FOLDER.glob("*/recipe.yaml"))


def locate(folder: str | os.PathLike) -> Path:
    """A folder as it is, or where the weights of that name are."""
    path = Path(folder)
    return FOLDER / str(folder) if not path.exists() and str(folder) in names() else path
