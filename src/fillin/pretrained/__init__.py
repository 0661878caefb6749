"""Weights that ship with fillin. Each is a folder: best/ (the model), recipe.yaml (how it was trained), card.md (on
what, how long, how good, under which licence).

>>> "te-tnp-rbf" in names()
True
"""

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """What there is."""
    return sorted(path.parent.name for path in FOLDER.glob("*/recipe.yaml"))


def locate(folder: str | os.PathLike) -> Path:
    """A folder as it is, or where the weights of that name are."""
    path = Path(folder)
    return FOLDER / str(folder) if not path.exists() and str(folder) in names() else path


def about(name: str) -> dict[str, Any]:
    """What the weights of that name are: of which model, for how many columns of x (None: any), learnt from what."""
    folder = FOLDER / name
    config, card = json.loads((folder / "best" / "config.json").read_text()), (folder / "card.md").read_text()
    learnt = card.partition("Learnt from ")[2].partition(".\n")[0].partition(", made as it trained")[0]
    return {
        "weights": name,
        "model": config["model"],
        "dim_x": None if config["options"].get("radial") else config["dim_x"],
        "learnt_from": learnt,
        "megabytes": round((folder / "best" / "model.safetensors").stat().st_size / 1e6, 2),
        "card": card,
    }
