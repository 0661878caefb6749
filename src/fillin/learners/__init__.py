"""Learners behind the table estimators: row networks and NPT, with a Gaussian process beside them."""
