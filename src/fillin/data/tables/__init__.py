"""The prior over tables that pretrained models are trained on."""

from fillin.data.tables.prior import SyntheticTables

__all__ = ["SyntheticTables"]
