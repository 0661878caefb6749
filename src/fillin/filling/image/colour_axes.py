"""Along which axes colours are asked for: the channels, or those along which the known colours vary independently."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray


@dataclass(frozen=True)
class ColourAxes:
    """y = known colours · turn, an orthogonal matrix.

    Red, green and blue mostly rise and fall together. Asked one by one, they would be drawn without regard to one
    another, and samples would be full of rainbows; the principal axes of what is known have no correlation.
    """

    turn: Float[ndarray, "c c"]

    @classmethod
    def channels(cls, c: int) -> "ColourAxes":
        return cls(np.eye(c))

    @classmethod
    def of(cls, colours: Float[ndarray, "n c"]) -> "ColourAxes":
        """The principal axes of known colours."""
        c = colours.shape[1]
        if c == 1 or len(colours) < 2:
            return cls.channels(c)
        return cls(np.linalg.eigh(np.cov(colours.T) + 1e-9 * np.eye(c))[1])

    def to(self, colours: Float[ndarray, "*n c"]) -> Float[ndarray, "*n c"]:
        return colours @ self.turn

    def back(self, y: Float[ndarray, "*n c"]) -> Float[ndarray, "*n c"]:
        return y @ self.turn.T

    def deviations(self, std: Float[ndarray, "*n c"]) -> Float[ndarray, "*n c"]:
        """Of the channels, from those along the axes."""
        return np.sqrt(std**2 @ (self.turn.T**2))
