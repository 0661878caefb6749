"""fillin: given these points, what belongs there?

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
    "complete": "fillin.completing",
    "export": "fillin.exporting",
    "Task": "fillin.data",
    "ProcessRegressor": "fillin.regressor",
    "TableClassifier": "fillin.tables",
    "TableImputer": "fillin.tables",
    "TableRegressor": "fillin.tables",
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
    "studies": None,
    "tables": None,
}
__all__ = [
    "FillinError", "ProcessRegressor", "TableClassifier", "TableImputer", "TableRegressor", "Task", "attend",
    "complete", "create", "export", "fill", "load", "sample", "save",
]  # fmt: skip

if TYPE_CHECKING:
    from fillin.attention import attend
    from fillin.completing import complete
    from fillin.data import Task
    from fillin.errors import FillinError
    from fillin.exporting import export
    from fillin.filling import fill
    from fillin.models import create, load, save
    from fillin.regressor import ProcessRegressor
    from fillin.sampling import sample
    from fillin.tables import TableClassifier, TableImputer, TableRegressor


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'fillin' has no attribute {name!r}")
    home = _HOME[name]
    return import_module(f"fillin.{name}") if home is None else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
