"""The bounds of columns, as options and arguments give them."""

from collections.abc import Mapping

import numpy as np

from fillin.errors import InputError, UnknownName
from fillin.warp import Bounds


def parse_bounds(text: str) -> tuple[str, Bounds]:
    """(column or "", (low, high)) of what was written on a command line.

    >>> parse_bounds("0:"), parse_bounds("share=0:1")
    (('', (0.0, None)), ('share', (0.0, 1.0)))
    """
    name, _, limits = text.rpartition("=")
    low, colon, high = limits.partition(":")
    try:
        found = float(low) if low.strip() else None, float(high) if high.strip() else None
    except ValueError:
        colon, found = "", (None, None)
    if not colon or found == (None, None) or any(limit != limit for limit in found):
        raise InputError(f"--bounds: {text!r} is no range; write 0: or 0:1 or :100, for one column NAME=0:1")
    return name.strip(), found


def bounds_of(columns: list[str], bounds: Bounds | Mapping[str, Bounds] | None) -> dict[str, Bounds]:
    """Bounds of each column, from one pair for all or a pair for each name ("": all others)."""
    if bounds is None:
        return {}
    named = bounds if isinstance(bounds, Mapping) else {"": bounds}
    for name, pair in named.items():
        if name and name not in columns:
            raise UnknownName("column to fill, in bounds,", name, columns)
        low, high = _pair(pair)
        if low is not None and high is not None and not low < high:
            raise InputError(f"bounds: the lower must be below the upper, got {low:g}:{high:g}")
    found = {column: named.get(column, named.get("")) for column in columns}
    return {column: _pair(pair) for column, pair in found.items() if pair is not None}


def _pair(pair: Bounds) -> Bounds:
    try:
        low, high = (None if limit is None or np.isinf(limit) else float(limit) for limit in pair)
        if low != low or high != high:  # NaN is no bound, and no lack of one
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"bounds must be a pair such as (0, None) or (0, 1), got {pair!r}") from None
    return low, high
