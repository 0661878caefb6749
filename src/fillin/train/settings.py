"""Settings as text: a file of YAML, words of a command line, and what goes wrong with them in one line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from fillin.errors import InputError


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without its numbers to the base 60: 1:30 is text, which is no time, and not silently 90."""

    def resolve(self, kind, value, implicit) -> str:
        tag = super().resolve(kind, value, implicit)
        return self.DEFAULT_SCALAR_TAG if tag.endswith((":int", ":float")) and ":" in value else tag


def parse(path: Path, shipped: Sequence[str]) -> dict[str, Any]:
    """A file of settings; `shipped` are the names of those there are."""
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
    """["--a.b", "1", "--c.d=2"] → ("a.b", 1), ("c.d", 2), values as in YAML."""
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
        yield key, _value(value)


def _value(text: str) -> Any:
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError:
        return text
    return value


def flat(content: dict[str, Any], sections: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """{"a": {"b": 1}} → ("a.b", 1). One level: an option of a model may be a mapping itself."""
    for section, settings in content.items():
        if isinstance(settings, dict):
            yield from ((f"{section}.{key}", value) for key, value in settings.items())
        elif settings is not None or section not in sections:  # an empty section says nothing
            yield str(section), settings


def nested(flat: dict[str, Any], whole: set[str]) -> dict[str, Any]:
    """The other way round; those of `whole` are whole numbers."""
    out: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (out.setdefault(section, {}) if section else out)[name] = _float(value, key in whole)
    return out


def _float(value: Any, whole: bool) -> Any:
    """YAML 1.1 reads 1e-3 as text; people mean a number, and by 2e4 steps a whole one."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?e[-+]?\d+", value, re.IGNORECASE):
        value = float(value)
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value


def lists(value: Any) -> Any:
    """Tuples as lists, as YAML has them: a recipe equals itself read from a file."""
    if isinstance(value, dict):
        return {key: lists(part) for key, part in value.items()}
    return [lists(part) for part in value] if isinstance(value, tuple | list) else value


def brief(text: str) -> str:
    """Message of jsonargparse on one line: the key and the value that was given."""
    key = re.search(r'[Pp]arser key "([^"]+)"', text)
    value = re.search(r"G(?:iven|ot) value: (.*)", text)
    if key and value:
        wanted = re.search(r"Expected an? <class '(\w+)'>", text)
        kind = {"int": "; it is a whole number", "float": "; it is a number"}.get(wanted[1] if wanted else "", "")
        return f"{key[1]} cannot be {value[1]!r}{kind}"
    return " ".join(text.split())


def flow(value: Any) -> str:
    """A value on one line of YAML."""
    value = list(value) if isinstance(value, tuple) else value
    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6).removesuffix("\n...\n").strip()
    )
