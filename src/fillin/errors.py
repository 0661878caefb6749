"""Errors and warnings: each names the location, the value that came, what was expected, and the remedy."""

import shlex
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

_FLAGS = {"kind": "as", "classes": "class", "numbers": "number"}  # where the command line calls it otherwise
_MAX_LISTED = 50  # names in an error


@dataclass(frozen=True)
class Message:
    """A text as the command line spells it (options), and as Python does (arguments)."""

    shell: str
    python: str

    def __str__(self) -> str:
        return self.python


def option(name: str, value: object = None) -> Message:
    """The text to type or to pass: the name alone, or with a value.

    >>> option("kind", "series"), option("na", ["< 1"])
    (Message(shell='--as series', python="kind='series'"), Message(shell="--na '< 1'", python="na=['< 1']"))
    """
    flag = argument(name).shell
    if value is None:
        return Message(flag, f"{name}=")
    values = value if isinstance(value, list) else [value]  # a repeatable option is typed for each
    return Message(" ".join(f"{flag} {shlex.quote(str(part))}" for part in values), f"{name}={value!r}")


def argument(name: str) -> Message:
    """The name of an argument: `y_err`, or `--y-err` on the command line."""
    return Message("--" + _FLAGS.get(name, name).replace("_", "-"), name)


def render(message: str | Message, **fields: object) -> Message:
    """Fill in the fields of a format string, as each kind of caller spells options; without fields return it as it is.

    >>> render("{level} must lie between 0 and 1, got {value}", level=argument("level"), value=7).shell
    '--level must lie between 0 and 1, got 7'
    """
    if isinstance(message, Message):
        return message

    def fill(kind: str) -> str:
        values = {name: getattr(value, kind) if isinstance(value, Message) else value for name, value in fields.items()}
        return message.format(**values) if fields else message

    return Message(fill("shell"), fill("python"))


class FillinError(Exception):
    """Base class of every error that fillin raises on purpose.

    The message is one format string. Fields made by `option` or `argument` are rendered as the caller spells them: as
    arguments in Python (`str(error)`), as options on the command line (`error.shell`). Other fields are values.

    Parameters
    ----------
    message : str or Message
        The format string, or a text that is rendered already.
    **fields : object
        Values of the fields of the format string.

    Examples
    --------
    >>> from fillin.errors import FillinError, argument
    >>> error = FillinError("{level} must lie between 0 and 1, got {value}", level=argument("level"), value=7)
    >>> str(error), error.shell
    ('level must lie between 0 and 1, got 7', '--level must lie between 0 and 1, got 7')
    """

    def __init__(self, message: str | Message = "", **fields: object):
        rendered = render(message, **fields)
        super().__init__(rendered.python)
        self.shell = rendered.shell


class FillinWarning(UserWarning):
    """The input has another plausible reading; the text names it and the remedy."""


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


def nearest(name: object, names: Iterable[str]) -> str | None:
    """The most similar of `names`, ignoring case; None where none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else None


class UnknownName(FillinError, ValueError):
    """An unknown name, with the most similar of those that exist. `what` and `fields` are as for `FillinError`.

    >>> str(UnknownName("model", "te-tpn", ["te-tnp", "cnp"]))
    "unknown model 'te-tpn'; did you mean 'te-tnp'? Available: cnp, te-tnp"
    """

    def __init__(self, what: str | Message, name: object, names: Iterable[str], **fields: object):
        names = sorted(names)
        match = nearest(name, names)
        suggestion = "." if match is None else f"; did you mean '{match}'?"
        listed = ", ".join(names[:_MAX_LISTED]) + (f" … ({len(names):,} in all)" if len(names) > _MAX_LISTED else "")
        message = "unknown {what} {name!r}{suggestion} Available: {listed}"
        super().__init__(message, what=render(what, **fields), name=name, suggestion=suggestion, listed=listed)


def choose(what: str, name: object, names: Iterable[str]) -> str:
    """Return `name` if it is one of `names`, else raise an error that suggests the most similar."""
    names = list(names)
    if name not in names:
        raise UnknownName(what, name, names)
    return str(name)
