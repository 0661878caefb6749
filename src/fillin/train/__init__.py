"""Training: a recipe goes in, a run folder comes out."""

from fillin.train.recipe import dump, names, read
from fillin.train.runs import Run, fit, open_run

__all__ = ["Run", "dump", "fit", "names", "open_run", "read"]
