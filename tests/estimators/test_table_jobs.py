"""Table estimators in several processes: scores do not depend on the number of jobs."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from fillin import TableRegressor


@pytest.mark.usefixtures("unchecked")  # shape checks of this test run are not active in other processes
@pytest.mark.slow
def test_cross_validation_scores_do_not_depend_on_n_jobs():
    random = np.random.default_rng(0)
    X = random.normal(size=(24, 2))
    X[3, 1] = np.nan
    y = X[:, 0] + 0.1 * random.normal(size=24)
    model = TableRegressor(members=2, steps=10)
    sequential, parallel = (cross_val_score(model, X, y, cv=2, n_jobs=jobs) for jobs in (1, 2))
    assert np.isfinite(sequential).all()
    assert sequential[0] != sequential[1]
    assert np.array_equal(sequential, parallel)
