"""Where tasks come from."""

from fillin.data.curves import FUNCTIONS, PROTOCOLS, Curves, Layout, curves
from fillin.data.function_prior import Broad
from fillin.data.functions import Function, GaussianProcess, Mixture
from fillin.data.kernels import KERNELS
from fillin.data.limits import Limit, bayes, known
from fillin.data.task import Stream, Task

__all__ = [
    "FUNCTIONS",
    "KERNELS",
    "PROTOCOLS",
    "Broad",
    "Curves",
    "Function",
    "GaussianProcess",
    "Layout",
    "Limit",
    "Mixture",
    "Stream",
    "Task",
    "bayes",
    "curves",
    "known",
]
