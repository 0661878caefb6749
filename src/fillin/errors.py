"""What can go wrong at the edge: each error names the place, what came, what was expected, and the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches


class FillinError(Exception):
    """The base of every error that fillin raises on purpose."""


class InputError(FillinError, ValueError):
    """An argument has the wrong value or shape."""


class InputTypeError(FillinError, TypeError):
    """An argument has the wrong type."""


class UnknownName(FillinError, ValueError):
    """A name that is not known, with the nearest that is.

    >>> str(UnknownName("model", "te-tpn", ["te-tnp", "cnp"]))
    "unknown model 'te-tpn'; did you mean 'te-tnp'? Known: cnp, te-tnp"
    """

    def __init__(self, what: str, name: object, known: Iterable[str]):
        known = sorted(known)
        near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
        guess = f"; did you mean '{near[0]}'?" if near else "."
        super().__init__(f"unknown {what} {name!r}{guess} Known: {', '.join(known)}")


def choose(what: str, name: object, known: Iterable[str]) -> str:
    """`name` if it is one of `known`, else an error that suggests the nearest."""
    known = list(known)
    if name not in known:
        raise UnknownName(what, name, known)
    return str(name)
