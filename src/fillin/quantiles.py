"""Probabilities that a user asks for, checked."""

import numpy as np

from fillin.errors import InputError, InputTypeError


def levels(quantiles) -> list[float]:
    """One probability or several as a list; None is none."""
    if quantiles is None:
        return []
    try:
        found = np.atleast_1d(np.asarray(quantiles, dtype=float))
    except (TypeError, ValueError):
        raise InputTypeError(f"quantiles must be probabilities such as [0.025, 0.975], got {quantiles!r}") from None
    if found.ndim > 1 or not len(found) or not ((found > 0) & (found < 1)).all():
        raise InputError(f"quantiles must lie between 0 and 1, without them, such as [0.025, 0.975]; got {quantiles!r}")
    return found.tolist()
