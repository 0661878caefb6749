"""Parsing of settings in YAML files and on the command line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from fillin.errors import InputError


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without sexagesimal numbers: 1:30 is text, not 90."""

    def resolve(self, kind, value, implicit) -> str:
        tag = super().resolve(kind, value, implicit)
        return self.DEFAULT_SCALAR_TAG if tag.endswith((":int", ":float")) and ":" in value else tag


def parse(path: Path, shipped: Sequence[str]) -> dict[str, Any]:
    """Read a file of settings; `shipped` are the names of the shipped recipes, for the error message."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the recipe {path}: {error}; shipped ones: {', '.join(shipped)}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: a recipe is a mapping with the sections data, model, budget, …")
    return content


def pairs(overrides: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Parse ["--a.b", "1", "--c.d=2"] to ("a.b", 1), ("c.d", 2), with values as in YAML."""
    words = list(overrides)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise InputError(f"expected a setting like --optimiser.rate 1e-3, got {word!r}")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not words or words[0].startswith("--"):
                raise InputError(f"--{key} needs a value, like --{key} 1")
            value = words.pop(0)
        with suppress(yaml.YAMLError):  # otherwise it is text
            value = yaml.load(value, _Loader)
        yield key, value


def flatten(content: dict[str, Any], sections: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Flatten {"a": {"b": 1}} to ("a.b", 1), one level deep: an option of a model may be a mapping."""
    for section, settings in content.items():
        if isinstance(settings, dict):
            yield from ((f"{section}.{key}", value) for key, value in settings.items())
        elif settings is not None or section not in sections:  # an empty section sets nothing
            yield str(section), settings


def nest(settings: dict[str, Any], integers: set[str]) -> dict[str, Any]:
    """Undo `flatten`; the settings named in `integers` are whole numbers."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?e[-+]?\d+", value, re.IGNORECASE):
            value = float(value)  # 1e-3, which is text in YAML 1.1
        if key in integers and isinstance(value, float) and value.is_integer():
            value = int(value)
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return nested


def tuples_to_lists(value: Any) -> Any:
    """Convert tuples to lists, as in YAML: a recipe equals itself read from a file."""
    if isinstance(value, dict):
        return {key: tuples_to_lists(part) for key, part in value.items()}
    return [tuples_to_lists(part) for part in value] if isinstance(value, tuple | list) else value


def shorten_error(text: str) -> str:
    """Shorten an error of jsonargparse to one line: the key and the value."""
    key = re.search(r'[Pp]arser key "([^"]+)"', text)
    value = re.search(r"G(?:iven|ot) value: (.*)", text)
    if key and value:
        expected = re.search(r"Expected an? <class '(\w+)'>", text)
        names = {"int": "; it must be a whole number", "float": "; it must be a number"}
        return f"{key[1]} cannot be {value[1]!r}{names.get(expected[1] if expected else '', '')}"
    return " ".join(text.split())


def to_flow_yaml(value: Any) -> str:
    """Write a value on one line of YAML."""
    value = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n...\n").strip()
