"""Tables: rows of the same columns, of numbers and of classes, with cells missing anywhere."""

from fillin.data.tables.prior import Synthetic
from fillin.data.tables.scaling import Scale
from fillin.data.tables.schema import Column, Schema
from fillin.data.tables.table import Table

__all__ = ["Column", "Scale", "Schema", "Synthetic", "Table"]
