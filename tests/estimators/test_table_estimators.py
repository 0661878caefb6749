"""Table estimators: the scikit-learn API, invariances and accuracy."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fillin import TableClassifier, TableImputer, TableRegressor
from fillin.errors import InputError

QUICK = {"members": 2, "steps": 30}
# checks that require a score, and so more members and steps
LEARNS = {"check_regressors_train": (1, 300), "check_classifiers_train": (2, 30)}


def numbers(n=60, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * random.normal(size=n)


def mixed(n=50):
    X, y = numbers(n)
    frame = pd.DataFrame({"a": X[:, 0], "fruit": np.where(X[:, 1] > 0, "apple", "pear"), "ripe": X[:, 2] > 0,
                          "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), "D")})  # fmt: skip
    frame.loc[3, "a"] = np.nan
    frame.loc[5, "fruit"] = None
    return frame, y


def checks():
    for kind in (TableRegressor, TableClassifier, TableImputer):
        for estimator, check in estimator_checks_generator(kind(members=1, steps=5)):
            name = check.func.__name__
            if name in LEARNS:
                estimator = kind(members=LEARNS[name][0], steps=LEARNS[name][1])
            # a check that trains for long is repeated for other memory layouts and dtypes
            marks = [pytest.mark.slow] if name in LEARNS and check.keywords else []
            yield pytest.param(estimator, check, id=f"{kind.__name__}-{name}-{len(str(check))}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("kind", [TableRegressor, TableClassifier])
def test_query_rows_do_not_affect_one_another(kind):
    X, y = numbers()
    y = y if kind is TableRegressor else (y > 0).astype(int)
    model = kind(**QUICK).fit(X, y)
    predict = model.predict if kind is TableRegressor else model.predict_proba
    np.testing.assert_allclose(np.concatenate([predict(X[i : i + 1]) for i in range(5)]), predict(X[:5]), atol=1e-5)


def test_predictions_are_invariant_to_the_order_of_training_rows():
    X, y = numbers()
    model = TableRegressor(**QUICK).fit(X, y)
    before = model.predict(X[:5])
    order = np.random.default_rng(0).permutation(len(X))
    model.learner_ = model.learner_.with_rows(model.learner_.inputs[order], model.learner_.outputs[order])
    np.testing.assert_allclose(model.predict(X[:5]), before, atol=1e-5)


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_predictions_are_equivariant_to_units(scale):
    X, y = numbers()
    plain = TableRegressor(**QUICK, scale=scale).fit(X, y)
    rescaled = TableRegressor(**QUICK, scale=scale).fit(1e3 * X - 7, 50 * y + 1e4)
    mean, std = plain.predict(X[:9], return_std=True)
    rescaled_mean, rescaled_std = rescaled.predict(1e3 * X[:9] - 7, return_std=True)
    np.testing.assert_allclose((rescaled_mean - 1e4) / 50, mean, atol=0.02)
    np.testing.assert_allclose(rescaled_std / 50, std, rtol=0.02)


def test_a_seed_determines_the_fit_and_the_global_random_state_is_kept():
    X, y = numbers()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = (TableRegressor(**QUICK, random_state=5).fit(X, y).predict(X) for _ in range(2))
    assert (first == second).all()
    assert torch.equal(state, torch.get_rng_state())
    assert (TableRegressor(**QUICK, random_state=6).fit(X, y).predict(X) != first).any()


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_density_quantiles_and_samples_are_of_one_distribution(scale):
    X, y = numbers()
    model = TableRegressor(**QUICK, scale=scale).fit(X, np.exp(y))
    mixture = model._predict(X[:4])[0]
    at = np.linspace(-30, 60, 60_001)
    for i in range(4):
        density = np.exp(mixture[[i] * len(at)].log_prob(at))
        assert abs(density.sum() * (at[1] - at[0]) - 1) < 0.01
    low, middle, high = (mixture.quantile(q) for q in (0.1, 0.5, 0.9))
    assert ((low < middle) & (middle < high)).all()
    np.testing.assert_allclose(mixture.cdf(middle), 0.5, atol=1e-6)
    drawn = model.sample(X[:4], 4000)
    for i in range(4):
        assert stats.kstest(mixture[[i] * 4000].cdf(drawn[i]), "uniform").pvalue > 1e-3
    np.testing.assert_allclose(drawn.mean(1), mixture.mean, atol=6 * mixture.std.max() / np.sqrt(4000) + 0.05)
    assert model.predict(X, quantiles=[0.1, 0.9])[1].shape == (2, 60)


def test_irrelevant_columns_are_ignored():
    """Accurate and calibrated where four of six columns are noise."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.05 * random.normal(size=300)
    model = TableRegressor(members=2, steps=250).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.85
    _, (low, high) = model.predict(X[200:], quantiles=[0.025, 0.975])
    assert 0.85 < ((low < y[200:]) & (y[200:] < high)).mean() <= 1


def test_classes_are_learned_and_probabilities_sum_to_one():
    random = np.random.default_rng(0)
    X = random.normal(size=(240, 2))
    y = np.array(["in", "out", "far"])[np.digitize(np.hypot(*X.T), [0.8, 1.6])]
    model = TableClassifier(members=2, steps=150).fit(X[:160], y[:160])
    probabilities = model.predict_proba(X[160:])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert model.score(X[160:], y[160:]) > 0.85
    assert np.isfinite(model.log_prob(X[160:], y[160:])).all()
    assert (model.log_prob(X[:2], ["in", "nowhere"]) == -np.inf).tolist() == [False, True]
    assert set(model.sample(X[:5], 50).ravel()) <= set(model.classes_)


def test_missing_cells_are_filled_from_correlated_columns():
    random = np.random.default_rng(0)
    a = random.normal(size=200)
    X = np.stack([a, 2 * a + 0.05 * random.normal(size=200), random.normal(size=200)], 1)
    holes = X.copy()
    holes[random.random(200) < 0.2, 1] = np.nan
    imputer = TableImputer(members=2, steps=150).fit(holes)
    filled, std = imputer.fill(holes)
    missing = np.isnan(holes)
    assert (filled[~missing] == holes[~missing]).all()
    assert (std[~missing] == 0).all()
    assert (std[missing] > 0).all()
    assert np.sqrt(((filled - X)[missing] ** 2).mean()) < 0.5 * X[missing].std()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_columns_of_every_kind(make):
    frame, y = mixed()
    data = make(frame) if make is pd.DataFrame else pl.from_pandas(frame)
    model = TableRegressor(**QUICK).fit(data, y)
    assert model.predict(data).shape == (50,)
    assert [column.kind for column in model.schema_.columns] == ["number", "class", "boolean", "date"]
    changed = frame.assign(fruit="plum")[["day", "ripe", "fruit", "a"]]  # a new class, and another order
    if make is pd.DataFrame:
        with pytest.raises(ValueError, match="feature names"):
            model.predict(changed)
        assert np.isfinite(model.predict(changed[frame.columns])).all()
    filled = TableImputer(**QUICK).fit(data).transform(data)
    assert filled.shape == (50, 4)
    assert filled[5, 1] in ("apple", "pear", None)


def test_unlabelled_rows_are_accepted():
    X, y = numbers(80)
    y[20:] = np.nan
    model = TableRegressor(**QUICK, features=0.5).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(TableRegressor(**QUICK).fit(X, y).predict(X)).all()
    labels = np.where(np.isnan(y), None, np.where(np.nan_to_num(y) > 0, "up", "down"))
    assert set(TableClassifier(**QUICK, features=0.5).fit(X, labels).predict(X)) <= {"up", "down"}


@pytest.mark.parametrize("kind", [TableRegressor, TableClassifier, TableImputer])
def test_a_loaded_model_predicts_the_same(kind, tmp_path):
    frame, y = mixed()
    model = kind(**QUICK).fit(frame, (y > 0) if kind is TableClassifier else y)
    again = kind.load(model.save(tmp_path / "deep" / "model.safetensors"))
    predict = (lambda m: m.fill(frame)[0]) if kind is TableImputer else (lambda m: m.predict(frame))
    np.testing.assert_array_equal(predict(again), predict(model))
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(predict(pickle.loads(pickle.dumps(model))), predict(model))
    with pytest.raises(InputError, match="is not a"):
        (TableImputer if kind is TableRegressor else TableRegressor).load(tmp_path / "deep" / "model.safetensors")


def test_read_only_arrays_are_saved(tmp_path):
    """pandas returns such arrays."""
    X, y = numbers()
    y.flags.writeable = False
    model = TableRegressor(members=1, steps=2).fit(X, y)
    assert TableRegressor.load(model.save(tmp_path / "model.safetensors")).predict(X).shape == y.shape


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, lambda columns: np.array([*columns.values()], object).T])
def test_a_new_class_is_kept(make):
    soil = ["clay", "loam", "sand"] * 8
    imputer = TableImputer(members=1, steps=2).fit(make({"soil": soil, "depth": [1.0, 2.0, 3.0] * 8}))
    filled = imputer.transform(make({"soil": ["peat", "clay", None], "depth": [1.0, None, 2.0]}))
    assert filled[:2, 0].tolist() == ["peat", "clay"]
    assert filled[2, 0] in soil
    assert filled[1, 1] > 0


def test_pipelines_cross_validation_and_clones():
    X, y = numbers()
    scores = cross_val_score(make_pipeline(StandardScaler(), TableRegressor(**QUICK)), X, y, cv=2)
    assert np.isfinite(scores).all()
    assert clone(TableClassifier(members=3)).members == 3


@pytest.mark.parametrize("n", [1, 2, 3, 5, 20])
def test_few_rows(n):
    X, y = numbers(n)
    mean, std = TableRegressor(**QUICK).fit(X, y).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize(
    ("column", "y"), [("constant", None), ("missing", None), ("many", None), (None, "constant")], ids=str
)
def test_odd_columns(column, y):
    X, target = numbers(40)
    frame = pd.DataFrame(X, columns=list("abc"))
    odd = {"constant": 7.0, "missing": np.nan, "many": [f"id{i}" for i in range(40)]}
    if column:
        frame["odd"] = odd[column]
    model = TableRegressor(**QUICK).fit(frame, np.full(40, 3.0) if y else target)
    assert np.isfinite(model.predict(frame)).all()
    if y:
        np.testing.assert_allclose(model.predict(frame), 3.0, rtol=0.5)


def test_a_single_class_is_predicted():
    X, _ = numbers(30)
    model = TableClassifier(**QUICK).fit(X, ["only"] * 30)
    assert (model.predict(X) == "only").all()
    np.testing.assert_allclose(model.predict_proba(X), 1)


@pytest.mark.parametrize(
    ("options", "X", "y", "match"),
    [
        ({"members": 0}, [[1.0], [2]], [1.0, 2], "members"),
        ({"steps": 1.5}, [[1.0], [2]], [1.0, 2], "steps"),
        ({"features": 2.0}, [[1.0], [2]], [1.0, 2], "features"),
        ({"scale": "log"}, [[1.0], [2]], [1.0, 2], "scale"),
        ({"kinds": {"x7": "class"}}, [[1.0], [2]], [1.0, 2], "x7"),
        ({}, [[1.0], [2]], [np.nan, np.nan], "column 0"),
        ({}, [[1.0], [np.inf]], [1.0, 2], "inf"),
        ({}, [[1.0], [2]], [1.0, 2, 3], "inconsistent"),
    ],
)
def test_bad_input(options, X, y, match):
    with pytest.raises(ValueError, match=match):
        TableRegressor(**{**QUICK, **options}).fit(X, y)


def test_bad_queries():
    X, y = numbers(30)
    model = TableRegressor(**QUICK).fit(pd.DataFrame(X, columns=list("abc")), y)
    with pytest.raises(ValueError, match="c"):
        model.predict(pd.DataFrame(X[:, :2], columns=list("ab")))
    with pytest.raises(InputError, match="between 0 and 1"):
        model.predict(pd.DataFrame(X, columns=list("abc")), quantiles=[0, 1])
    with pytest.raises(InputError, match="no row has a label"):
        TableClassifier(**QUICK).fit(X, [None] * 30)
