"""Training data: generators of tasks, their exact predictions, images and tables."""

from fillin.data.broad_prior import BroadPrior
from fillin.data.curves import PROTOCOLS, Curves, Limit, TaskLayout, bayes_limit, curves, oracle_limit
from fillin.data.functions import FUNCTIONS, FunctionPrior, GaussianProcessPrior, MixturePrior
from fillin.data.kernels import KERNELS
from fillin.data.task import Batch, Stream, TableBatch, Task

__all__ = [
    "FUNCTIONS", "KERNELS", "PROTOCOLS", "Batch", "BroadPrior", "Curves", "FunctionPrior", "GaussianProcessPrior",
    "Limit", "MixturePrior", "Stream", "TableBatch", "Task", "TaskLayout", "bayes_limit", "curves", "oracle_limit",
]  # fmt: skip
