"""What reads tables comes with the extra `fill`, and is imported when it is needed."""

from importlib import import_module
from types import ModuleType

from fillin.errors import InputError


def need(module: str) -> ModuleType:
    """The module, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"fill needs {error.name}, which is not installed: pip install 'fillin[fill]'") from error
