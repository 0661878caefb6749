"""The comparisons of the papers, each a command: `fillin study NAME`."""

from importlib import import_module
from pathlib import Path

from fillin.errors import InputError, choose
from fillin.studies.base import Cell, Report, Scale, Study, Work, open_work, work_on

STUDIES = (
    "te-scores", "sizes", "conv-or-transformer", "attention-helps", "dimensions", "fill", "tables", "imputes",
    "uses-rows", "images", "positions-and-span",
)  # fmt: skip

__all__ = ["STUDIES", "Cell", "Report", "Scale", "Study", "Work", "get", "open_work", "work_on"]


def get(name: str, data: Path | None = None, masks: int | None = None) -> Study:
    """The study of that name: the STUDY of a module here; one that reads data is `configured` with their folder."""
    module = import_module(f"fillin.studies.{choose('study', name, STUDIES).replace('-', '_')}")
    if data is None and masks is None:
        return module.STUDY
    if not hasattr(module, "configured"):
        given = "--data" if data is not None else "--masks"
        raise InputError(f"the study {name} reads no data; leave {given} out")
    return module.configured(data, masks)
