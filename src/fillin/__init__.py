"""Neural processes that predict missing values, with calibrated uncertainty.

>>> import torch, fillin
>>> model = fillin.create("te-tnp", dim_x=1, dim_y=1, size="small")
>>> xc, yc, xt = torch.rand(1, 5, 1), torch.rand(1, 5, 1), torch.rand(1, 7, 1)
>>> model(xc, yc, xt).mean.shape
torch.Size([1, 7, 1])

The names below are imported when they are first used, so that `import fillin` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "attend": "fillin.attention",
    "create": "fillin.models",
    "load": "fillin.models",
    "save": "fillin.models",
    "sample": "fillin.sampling",
    "fill": "fillin.filling",
    "complete": "fillin.filling.image",
    "export": "fillin.onnx_export",
    "Task": "fillin.data",
    "ProcessRegressor": "fillin.estimators.process",
    "TableClassifier": "fillin.estimators",
    "TableImputer": "fillin.estimators",
    "TableRegressor": "fillin.estimators",
    "FillinError": "fillin.errors",
    "attention": None,
    "layers": None,
    "heads": None,
    "models": None,
    "objectives": None,
    "data": None,
    "plots": None,
    "train": None,
    "evaluate": None,
    "estimators": None,
}
__all__ = [
    "FillinError", "ProcessRegressor", "TableClassifier", "TableImputer", "TableRegressor", "Task", "attend",
    "complete", "create", "export", "fill", "load", "sample", "save",
]  # fmt: skip

if TYPE_CHECKING:
    from fillin.attention import attend
    from fillin.data import Task
    from fillin.errors import FillinError
    from fillin.estimators import TableClassifier, TableImputer, TableRegressor
    from fillin.estimators.process import ProcessRegressor
    from fillin.filling import fill
    from fillin.filling.image import complete
    from fillin.models import create, load, save
    from fillin.onnx_export import export
    from fillin.sampling import sample


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'fillin' has no attribute {name!r}")
    home = _HOME[name]
    return import_module(f"fillin.{name}") if home is None else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
