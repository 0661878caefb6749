"""Tables without an order: networks that are trained on one table, and estimators with scikit-learn's manners."""
