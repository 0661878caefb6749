"""Where tasks come from."""

from fillin.data.curves import GaussianProcess, posterior
from fillin.data.task import Task

__all__ = ["GaussianProcess", "Task", "posterior"]
