"""Tables without an order: networks that are trained on one table, and estimators with scikit-learn's manners."""

from fillin.tables.estimators import TableClassifier, TableImputer, TableRegressor

__all__ = ["TableClassifier", "TableImputer", "TableRegressor"]
