"""The comparisons of the papers, each a command: `fillin study NAME`."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from fillin.errors import InputError, choose
from fillin_studies.base import Cell, Report, Scale, Settings, Study, Work, open_work, work_on

STUDIES = (
    "te-scores", "sizes", "conv-or-transformer", "attention-helps", "dimensions", "fill", "tables", "imputes",
    "uses-rows", "images", "positions-and-span",
)  # fmt: skip

__all__ = ["STUDIES", "Cell", "Report", "Scale", "Study", "Work", "get", "only", "open_work", "work_on"]


def get(name: str, data: Path | None = None, masks: int | None = None) -> Study:
    """The study of that name: the STUDY of a module here; one that reads data is `configured` with their folder."""
    module = import_module(f"fillin_studies.{choose('study', name, STUDIES).replace('-', '_')}")
    if data is None and masks is None:
        return module.STUDY
    if not hasattr(module, "configured"):
        given = "--data" if data is not None else "--masks"
        raise InputError(f"the study {name} reads no data; leave {given} out")
    return module.configured(data, masks)


def only(study: Study, words: Sequence[str]) -> Study:
    """The study without variants that are not named: by their whole name, or what follows a comma in it."""

    def means(word: str, name: str) -> bool:
        return f", {name}".endswith(f", {word}")

    names = dict.fromkeys([*study.variants(True), *study.variants(False)])
    for word in words:
        if not any(means(word, name) for name in names):
            raise InputError(f"the study {study.name} has no variant {word!r}; it has {'; '.join(names)}")

    def variants(quick: bool) -> dict[str, Settings]:
        return {name: own for name, own in study.variants(quick).items() if any(means(w, name) for w in words)}

    return replace(study, variants=variants)
