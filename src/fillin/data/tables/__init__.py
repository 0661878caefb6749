"""Tables: rows of the same columns, of numbers and of classes, with cells missing anywhere."""

from fillin.data.tables.prior import SyntheticTables
from fillin.tabular.schema import Column, Schema
from fillin.tabular.table import Table

__all__ = ["Column", "Schema", "SyntheticTables", "Table"]
