"""Estimators of tables in other processes: what they say does not depend on how many work at once."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from fillin import TableRegressor


@pytest.mark.usefixtures("unchecked")  # as it is in processes that do not know of this test run
def test_folds_that_are_done_side_by_side_score_the_same():
    random = np.random.default_rng(0)
    X = random.normal(size=(24, 2))
    X[3, 1] = np.nan
    y = X[:, 0] + 0.1 * random.normal(size=24)
    model = TableRegressor(members=2, steps=10)
    one, two = (cross_val_score(model, X, y, cv=2, n_jobs=jobs) for jobs in (1, 2))
    assert np.isfinite(one).all()
    assert one[0] != one[1]
    assert np.array_equal(one, two)
