"""The classifiers that are compared: encodings of positions, windows and their cuts, and penalties on the span."""

from typing import Any, NamedTuple

INIT, THRESHOLD = 0.3, 0.1  # initial σ, and G(Δ) below which a pair is dropped, as in Alfons 2022

SINUSOID, SIREN = "sinusoid", "siren"
FADED, FADED_SCORES = "window on weights", "window on scores"
CUT, CUT_HARD = "window on weights, continuous cut", "window on weights, hard cut"
CUT_SCORES, ALFONS = "window on scores, continuous cut", "window on scores, hard cut"
PENALTIES = {"continuous cut, penalty 0.1": 0.1, "continuous cut, penalty 1": 1.0}


class ClassifierVariant(NamedTuple):
    """Positions in 1 or 2 dimensions, and the arguments of the windows (None: no windows)."""

    name: str
    dims: int
    positions: str = SIREN
    window: dict[str, Any] | None = None

    @property
    def cuts(self) -> bool:
        return self.window is not None and self.window["threshold"] > 0

    @property
    def penalty(self) -> float:
        return PENALTIES.get(self.name, 0.0)

    def on(self, data: str) -> str:
        """Return the name of the variant on an image set."""
        return f"{data}, {self.dims}-D, {self.name}"


def _make_window(modulate: str, cut: str | None = None) -> dict[str, Any]:
    """Return a window with that cut (None: none). That of Alfons 2022 is a box that multiplies scores, cut hard."""
    window: dict[str, Any] = {"init": INIT, "threshold": THRESHOLD if cut else 0.0, "modulate": modulate}
    if cut:
        window |= {"cut": cut, "shape": "box" if (modulate, cut) == ("scores", "hard") else "ball"}
    return window


_WINDOWS = {
    FADED: _make_window("weights"), FADED_SCORES: _make_window("scores"), CUT: _make_window("weights", "continuous"),
    CUT_HARD: _make_window("weights", "hard"), CUT_SCORES: _make_window("scores", "continuous"),
    ALFONS: _make_window("scores", "hard"), **dict.fromkeys(PENALTIES, _make_window("weights", "continuous")),
}  # fmt: skip
_WINDOWS_1D = (FADED, FADED_SCORES, CUT, ALFONS)

VARIANTS = (
    ClassifierVariant(SINUSOID, 1, SINUSOID),
    ClassifierVariant(SIREN, 1),
    *(ClassifierVariant(name, 1, window=_WINDOWS[name]) for name in _WINDOWS_1D),
    ClassifierVariant(SINUSOID, 2, SINUSOID),
    ClassifierVariant(SIREN, 2),
    *(ClassifierVariant(name, 2, window=window) for name, window in _WINDOWS.items()),
)
