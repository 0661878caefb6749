"""The comparisons of the papers, each a command: `fillin study NAME`."""

from importlib import import_module

from fillin.errors import choose
from fillin.studies.base import Cell, Report, Scale, Study, Work, open_work, work_on

STUDIES = ("te-scores", "sizes", "conv-or-transformer", "attention-helps", "dimensions")

__all__ = ["STUDIES", "Cell", "Report", "Scale", "Study", "Work", "get", "open_work", "work_on"]


def get(name: str) -> Study:
    """The study of that name: the STUDY of a module here."""
    return import_module(f"fillin.studies.{choose('study', name, STUDIES).replace('-', '_')}").STUDY
