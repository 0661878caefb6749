"""Training of models from recipes, in run folders."""

from fillin.train.recipe import dump_recipe, names, read_recipe
from fillin.train.runs import Run, fit, open_run

__all__ = ["Run", "dump_recipe", "fit", "names", "open_run", "read_recipe"]
