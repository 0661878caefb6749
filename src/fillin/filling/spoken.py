"""Errors tell remedies as words of a command line; to a caller in Python they name arguments."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fillin.errors import InputError

_WAYS = (
    (r"say which: --date-format '([^']*)' or '([^']*)'", r"read it with pandas.to_datetime, format='\1' or '\2'"),
    (r"--as (\w+) --x (\w+)", r"kind='\1', x='\2'"),
    (r"--as (\w+)", r"kind='\1'"),
    (r"--na ('[^']*')", r"na=[\1]"),
    (r"--(x|by) '?([\w ]+?)'?(?=[;.,]|$)", r"\1='\2'"),
    (r"--([a-z]+):", r"\1:"),
    (r"--y-err", "y_err="),
    (r"--bounds (?=\S*:)", "bounds "),
    (r"--([a-z]+)", r"\1="),
)


def in_python(message: str) -> str:
    """What a caller in Python can do.

    >>> in_python("if a column orders the rows, say which: --as series --x t; name another with --x")
    "if a column orders the rows, say which: kind='series', x='t'; name another with x="
    """
    for way, other in _WAYS:
        message = re.sub(way, other, message)
    return message


@contextmanager
def spoken_in_python() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(in_python(str(error))) from error.__cause__
