"""What can go wrong at the edge: each error names the place, what came, what was expected, and the remedy."""

import shlex
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

_FLAGS = {"kind": "as", "classes": "class", "numbers": "number"}  # where the command line calls it otherwise
_SHOWN = 50  # names of a list


@dataclass(frozen=True)
class Words:
    """A message for two kinds of callers: who types options, and who passes arguments. Text may be added on both sides.

    >>> "name another with " + option("x") + " or leave it out"
    Words(shell='name another with --x or leave it out', python='name another with x= or leave it out')
    """

    shell: str
    python: str

    def __add__(self, other: "str | Words") -> "Words":
        other = both(other)
        return Words(self.shell + other.shell, self.python + other.python)

    def __radd__(self, other: str) -> "Words":
        return Words(other + self.shell, other + self.python)

    def __str__(self) -> str:
        return self.python


def both(text: str | Words) -> Words:
    """Words that are the same to everyone, unless they are told apart already."""
    return text if isinstance(text, Words) else Words(text, text)


def option(name: str, value: object = None) -> Words:
    """What to type, or to pass: the name alone, or with a value.

    >>> option("kind", "series"), option("na", ["< 1"])
    (Words(shell='--as series', python="kind='series'"), Words(shell="--na '< 1'", python="na=['< 1']"))
    """
    flag = argument(name).shell
    if value is None:
        return Words(flag, f"{name}=")
    values = value if isinstance(value, list) else [value]  # an option that takes several is typed for each
    return Words(" ".join(f"{flag} {shlex.quote(str(one))}" for one in values), f"{name}={value!r}")


def argument(name: str) -> Words:
    """What it is called, to say something of it.

    >>> argument("y_err") + " must be a column"
    Words(shell='--y-err must be a column', python='y_err must be a column')
    """
    return Words("--" + _FLAGS.get(name, name).replace("_", "-"), name)


def render(message: str | Words, **fields: object) -> Words:
    """Fill in the fields of a format string, as each kind of caller spells options; without fields return it as it is.

    >>> render("{level} must lie between 0 and 1, got {value}", level=argument("level"), value=7).shell
    '--level must lie between 0 and 1, got 7'
    """
    words = both(message)
    if not fields:
        return words

    def fill(template: str, kind: str) -> str:
        values = {name: getattr(value, kind) if isinstance(value, Words) else value for name, value in fields.items()}
        return template.format(**values)

    return Words(fill(words.shell, "shell"), fill(words.python, "python"))


class FillinError(Exception):
    """Base class of every error that fillin raises on purpose.

    The message is one format string. Fields made by `option` or `argument` are rendered as the caller spells them: as
    arguments in Python (`str(error)`), as options on the command line (`error.shell`). Other fields are values.

    >>> error = FillinError("{level} must lie between 0 and 1, got {value}", level=argument("level"), value=7)
    >>> str(error), error.shell
    ('level must lie between 0 and 1, got 7', '--level must lie between 0 and 1, got 7')
    """

    def __init__(self, message: str | Words = "", **fields: object):
        words = render(message, **fields)
        super().__init__(words.python)
        self.shell = words.shell


class FillinWarning(UserWarning):
    """Something was understood in a way that may not have been meant: what it was, and how to say it otherwise."""


def warn(message: str) -> None:
    """Emit a `FillinWarning` at the line of the code that called fillin."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("fillin", "jaxtyping"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, FillinWarning, stacklevel=level)


class InputError(FillinError, ValueError):
    """An argument has the wrong value or shape."""


class InputTypeError(FillinError, TypeError):
    """An argument has the wrong type."""


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is most like it, whatever its capitals; None where none is."""
    spelled = {one.lower(): one for one in known}
    near = get_close_matches(str(name).lower(), spelled, n=1, cutoff=0.5)
    return spelled[near[0]] if near else None


class UnknownName(FillinError, ValueError):
    """A name that is not known, with the nearest that is.

    >>> str(UnknownName("model", "te-tpn", ["te-tnp", "cnp"]))
    "unknown model 'te-tpn'; did you mean 'te-tnp'? Known: cnp, te-tnp"
    """

    def __init__(self, what: str | Words, name: object, known: Iterable[str]):
        known = sorted(known)
        near = nearest(name, known)
        guess = "." if near is None else f"; did you mean '{near}'?"
        some = ", ".join(known[:_SHOWN]) + (f" … ({len(known):,} in all)" if len(known) > _SHOWN else "")
        super().__init__("unknown " + both(what) + f" {name!r}{guess} Known: {some}")


def choose(what: str, name: object, known: Iterable[str]) -> str:
    """`name` if it is one of `known`, else an error that suggests the nearest."""
    known = list(known)
    if name not in known:
        raise UnknownName(what, name, known)
    return str(name)
