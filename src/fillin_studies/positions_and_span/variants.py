"""What is compared: how positions are told, how windows modulate and cut, and what a penalty on them buys."""

from typing import Any, NamedTuple

from fillin_studies.base import Settings

INIT, THRESHOLD = 0.3, 0.1  # σ at first, and where a window is cut, as in document 004


class Way(NamedTuple):
    """One classifier: its positions, in 1 or 2 dimensions, and the arguments of its windows (None: none)."""

    name: str
    dims: int
    positions: str = "siren"
    window: dict[str, Any] | None = None

    @property
    def cuts(self) -> bool:
        return self.window is not None and self.window["threshold"] > 0


def _window(modulate: str, cut: str | None = None) -> dict[str, Any]:
    """Cut as it says, or (None) not at all. The thesis's own is a box that multiplies scores and is cut hard."""
    found: dict[str, Any] = {"init": INIT, "threshold": THRESHOLD if cut else 0.0, "modulate": modulate}
    if cut:
        found |= {"cut": cut, "shape": "box" if (modulate, cut) == ("scores", "hard") else "ball"}
    return found


SINUSOID, SIREN = "sinusoid", "siren"
FADED, FADED_SCORES = "window on weights", "window on scores"
CUT, CUT_HARD = "window on weights, continuous cut", "window on weights, hard cut"
CUT_SCORES, THESIS = "window on scores, continuous cut", "window on scores, hard cut"
PENALTIES = {"continuous cut, penalty 0.1": 0.1, "continuous cut, penalty 1": 1.0}

_WINDOWS = {
    FADED: _window("weights"), FADED_SCORES: _window("scores"), CUT: _window("weights", "continuous"),
    CUT_HARD: _window("weights", "hard"), CUT_SCORES: _window("scores", "continuous"),
    THESIS: _window("scores", "hard"), **dict.fromkeys(PENALTIES, _window("weights", "continuous")),
}  # fmt: skip
_IN_A_ROW = (FADED, FADED_SCORES, CUT, THESIS)  # of the windows, those that are tried in one dimension too

WAYS = (
    Way(SINUSOID, 1, SINUSOID),
    Way(SIREN, 1),
    *(Way(name, 1, window=_WINDOWS[name]) for name in _IN_A_ROW),
    Way(SINUSOID, 2, SINUSOID),
    Way(SIREN, 2),
    *(Way(name, 2, window=window) for name, window in _WINDOWS.items()),
)

_SMALL: Settings = {
    "model.width": 32, "model.heads": 2, "model.hidden": 64, "model.dropout": 0.0, "data.batch": 16,
    "optimiser.rate": 0.01,
    "keep.validations": 1,  # after the last step: nothing is chosen by what is asked for
}  # fmt: skip
DIGITS: Settings = {
    **_SMALL, "model.layers": 2, "model.side": 8, "data.source": "digits", "data.shift": 1, "objective.smoothing": 0.1,
    "keep.batches": 6,
}  # fmt: skip
IMAGES: Settings = {**_SMALL, "model.layers": 3, "model.side": 32, "data.limit": 10_000, "keep.batches": 20}
REDUCE = {1: [1, 2], 2: [1]}  # of larger images: a row is halved twice where a plane is halved along both sides


def named(data: str, way: Way) -> str:
    return f"{data}, {way.dims}-D, {way.name}"
