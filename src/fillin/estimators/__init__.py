"""Estimators with the scikit-learn API: a pretrained process, and learners of tables."""

from fillin.estimators.table import TableClassifier, TableImputer, TableRegressor

__all__ = ["TableClassifier", "TableImputer", "TableRegressor"]
