"""Pretrained weights. Each is a folder with best/ (the model), recipe.yaml (its training) and card.md (data, training
time, scores and licence).

>>> "te-tnp-rbf" in names()
True
"""

import json
import os
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all pretrained weights."""
    return sorted(path.parent.name for path in FOLDER.glob("*/recipe.yaml"))


def locate(folder: str | os.PathLike) -> Path:
    """Return the path of a folder that exists, or of the pretrained weights of that name."""
    path = Path(folder)
    return FOLDER / str(folder) if not path.exists() and str(folder) in names() else path


def about(name: str) -> dict[str, Any]:
    """Describe pretrained weights: the model, the number of columns of x (None: any), the training data, the card."""
    folder = FOLDER / name
    config, card = json.loads((folder / "best" / "config.json").read_text()), (folder / "card.md").read_text()
    data = re.search(r"parameters\. Trained on (.*?)(?:, generated during training)?\.\n", card)
    return {
        "weights": name,
        "model": config["model"],
        "dim_x": None if config["options"].get("radial") else config["dim_x"],
        "trained_on": data.group(1) if data else "",
        "megabytes": round((folder / "best" / "model.safetensors").stat().st_size / 1e6, 2),
        "card": card,
    }
