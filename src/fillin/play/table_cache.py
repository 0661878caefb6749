"""Tables that were filled, kept for a while so that their cells can be asked about."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fillin.errors import InputError
from fillin.play import limits

if TYPE_CHECKING:
    from fillin.estimators import TableImputer
    from fillin.filling.prediction import ColumnPrediction
    from fillin.filling.table.plan import TablePlan


@dataclass(frozen=True)
class Remembered:
    plan: "TablePlan"
    model: "TableImputer | None"
    found: "dict[str, ColumnPrediction]"


class Memory:
    """The last few tables, in memory alone; the oldest goes first."""

    def __init__(self, most: int = limits.TABLES):
        self._most, self._lock = most, threading.Lock()
        self._held: OrderedDict[str, Remembered] = OrderedDict()

    def put(self, name: str, table: Remembered) -> None:
        with self._lock:
            self._held[name] = table
            self._held.move_to_end(name)
            while len(self._held) > self._most:
                self._held.popitem(last=False)

    def get(self, name: str) -> Remembered:
        with self._lock:
            if name not in self._held:
                raise InputError(f"id: the table {name} is not remembered any more; send it again")
            self._held.move_to_end(name)
            return self._held[name]
