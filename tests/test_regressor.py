"""The regressor: scikit-learn's manners, the model's own numbers, covariances against a process known exactly."""

import io
import pickle

import joblib
import numpy as np
import pytest
import torch
from helpers import ExactProcess, tiny
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator
from torch.distributions import Categorical, MixtureSameFamily, Normal

import fillin
from fillin import ProcessRegressor
from fillin.errors import FillinError, InputError
from fillin.filling import adapt, joint
from fillin.heads import Observed, ObservedHead
from fillin.models.filler import Filler


def filler(dim_x: int = 1, **options) -> Filler:
    torch.manual_seed(0)
    return tiny("filler", dim_x, dtype=torch.float32, **options)


def some(n: int = 30, dim_x: int = 1, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.uniform(0, 5, (n, dim_x))
    return X, np.sin(2 * X).sum(1) + 0.1 * random.standard_normal(n)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """The search for scales has tests of its own."""
    monkeypatch.setattr("fillin.filling.scales.STEPS", 2)


X, Y = some()
Q = np.linspace(-1, 7, 9)[:, None]


@pytest.fixture(scope="module")
def fitted():
    return ProcessRegressor(filler()).fit(X, Y)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package that ships `names`, each a small model with random weights."""
    monkeypatch.setattr("fillin.pretrained.FOLDER", tmp_path)

    def ship(**models):
        for name, model in models.items():
            fillin.save(model, tmp_path / name / "best")
            (tmp_path / name / "recipe.yaml").touch()
        return tmp_path

    return ship


class ExactlyBoth(ExactProcess):
    """Told from its noise, each value on its own; its chain of single values is the exact joint posterior."""

    def __init__(self):
        super().__init__(length=0.3, scale=1.0, noise=0.3)
        self.head = ObservedHead(1, 1)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        found = super().forward(xc, yc, xt, mask_c, mask_t)
        one = Categorical(torch.ones(*found.mean.shape, 1))
        clean = Normal(found.mean[..., None], (found.variance - 0.3**2).clamp_min(1e-8).sqrt()[..., None])
        seen = Normal(found.mean[..., None], found.stddev[..., None])
        return Observed(one, seen, MixtureSameFamily(one, clean))

    def exactly(self, X, y, Q, noise: bool):
        known, values, asked = (torch.from_numpy(np.asarray(a, dtype=float))[None] for a in (X, y[:, None], Q))
        return self.joint(known, values, asked).covariance_matrix[0].numpy() - (not noise) * 0.09 * np.eye(len(Q))


def unit_data():
    """Points over [0, 1] with values up to 1: what a model that knows no units sees as it is."""
    x = np.array([0.0, 0.15, 0.2, 0.8, 1.0])[:, None]
    return x, np.array([0.3, -1.0, -0.2, 1.0, 0.6])


# manners


def test_scikit_learn_finds_nothing_to_complain_about(shipped, unchecked):
    """As it is after installation, but for weights that nobody trained."""
    small = {"width": 16, "heads": 2, "layers": 1, "hidden": 16}
    shipped(
        curve=fillin.create("filler", 1, **small),
        surface=fillin.create("filler", 2, **small),
        radial=fillin.create("filler", 1, radial=True, **small),
    )
    results = check_estimator(ProcessRegressor(), on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 40


def test_the_number_of_columns_chooses_the_model(shipped):
    with pytest.raises(InputError, match=r"'curve', which does not ship yet \(there is none of its kind\).*dim_x=1"):
        ProcessRegressor().fit(X, Y)
    shipped(curve=filler(1))
    assert ProcessRegressor().fit(X, Y).model_.dim_x == 1
    for columns, name in ((2, "surface"), (3, "radial"), (7, "radial")):
        with pytest.raises(InputError, match=rf"X has {columns} columns.*'{name}'.*there is curve"):
            ProcessRegressor().fit(*some(dim_x=columns))
    shipped(surface=filler(2), radial=filler(1, radial=True))
    assert ProcessRegressor().fit(*some(dim_x=2)).model_.dim_x == 2
    for columns in (3, 7):
        assert ProcessRegressor().fit(*some(dim_x=columns)).model_.dim_x is None


def test_a_model_is_a_name_a_folder_or_itself(shipped):
    model = filler()
    folder = shipped(mine=model)
    wanted = ProcessRegressor(model).fit(X, Y).predict(Q)
    for given in ("mine", str(folder / "mine"), folder / "mine" / "best"):
        assert np.array_equal(ProcessRegressor(given).fit(X, Y).predict(Q), wanted)


def test_clones_pickles_and_searches(fitted):
    assert fitted.get_params() == {"model": fitted.model, "adapt": False, "random_state": 0}
    assert_allclose(clone(fitted).fit(X, Y).predict(Q), fitted.predict(Q))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(Q)
    with pytest.raises(NotFittedError):
        clone(fitted).sample_y(Q)
    assert_allclose(pickle.loads(pickle.dumps(fitted)).predict(Q), fitted.predict(Q))
    both = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(fitted.predict)(Q) for _ in range(2))
    assert all(np.array_equal(one, fitted.predict(Q)) for one in both)
    search = GridSearchCV(ProcessRegressor(fitted.model), {"random_state": [0, 1]}, cv=2).fit(X, Y)
    assert np.isfinite(search.best_score_)


# numbers


def test_it_says_what_the_model_says(fitted):
    xc, yc, xt = (torch.from_numpy(a).float()[None] for a in (X, Y[:, None], Q))
    with torch.no_grad():
        wanted = fitted.model(xc, yc, xt).marginals
    for noise, found in ((True, wanted), (False, wanted.clean)):
        mean, std = fitted.predict(Q, return_std=True, noise=noise)
        likely = Categorical(found.mixture_distribution.probs * (found.mixture_distribution.probs > 0.01))
        likely = MixtureSameFamily(likely, found.component_distribution)
        assert_allclose(mean, likely.mean[0, :, 0], rtol=1e-3, atol=1e-4)
        assert_allclose(std, likely.stddev[0, :, 0], rtol=1e-3)
        low, high = fitted.predict(Q, quantiles=[0.1, 0.9], noise=noise)[1]
        for level, value in ((0.1, low), (0.9, high)):
            assert_allclose(found.cdf(torch.from_numpy(value).float()[None, :, None])[0, :, 0], level, atol=1e-3)
    assert not np.allclose(fitted.predict(Q), fitted.predict(Q, noise=False))


def test_what_comes_back_and_in_which_order(fitted):
    two = ProcessRegressor(fitted.model).fit(X, np.stack([Y, Y**2], 1))
    for regressor, shape in ((fitted, (9,)), (two, (9, 2))):
        mean, std, quantiles = regressor.predict(Q, return_std=True, quantiles=(0.05, 0.5, 0.95))
        assert mean.shape == std.shape == shape
        assert quantiles.shape == (3, *shape)
        assert (np.diff(quantiles, axis=0) > 0).all()
        mean, median = regressor.predict(Q, quantiles=0.5)
        assert np.array_equal(median, quantiles[1])
        mean, cov, median = regressor.predict(Q[:3], return_cov=True, quantiles=[0.5])
        assert cov.shape == (3, 3, *shape[1:])
        assert median.shape == (1, 3, *shape[1:])
        assert regressor.sample_y(Q, 4).shape == (*shape, 4)
        assert np.isfinite(regressor.score(X, regressor.y_train_))


def test_what_happens_to_the_arrays_later_does_not_matter(fitted):
    x, y = X.copy(), Y.copy()
    regressor = ProcessRegressor(fitted.model).fit(x, y)
    x[:], y[:] = 0, 0
    assert np.array_equal(regressor.X_train_, X)
    assert np.array_equal(regressor.predict(Q), fitted.predict(Q))


def test_outputs_stand_alone_and_missing_values_are_not_known(fitted):
    y = np.stack([Y, np.cos(X[:, 0])], 1)
    gone = np.random.default_rng(1).random(y.shape) < 0.3
    holes = np.where(gone, np.nan, y)
    mean, std = ProcessRegressor(fitted.model).fit(X, holes).predict(Q, return_std=True)
    for i in range(2):
        alone = ProcessRegressor(fitted.model).fit(X[~gone[:, i]], y[~gone[:, i], i])
        for one, other in zip((mean[:, i], std[:, i]), alone.predict(Q, return_std=True), strict=True):
            assert np.array_equal(one, other)
    assert np.array_equal(ProcessRegressor(fitted.model).fit(X, Y[:, None]).predict(Q), fitted.predict(Q))


@pytest.mark.parametrize("unit", [1e30, 1e-30])
def test_units_do_not_matter(fitted, unit):
    wanted = fitted.predict(Q, return_std=True, quantiles=[0.3])
    there = ProcessRegressor(fitted.model).fit(X / unit, unit * Y)
    for found, value in zip(there.predict(Q / unit, return_std=True, quantiles=[0.3]), wanted, strict=True):
        assert_allclose(found, unit * value, rtol=1e-3, atol=1e-4 * unit)
    drawn = fitted.sample_y(Q, 3)
    assert_allclose(there.sample_y(Q / unit, 3), unit * drawn, rtol=1e-2, atol=1e-2 * unit)


@pytest.mark.parametrize("level", [1e6, -3e9])
def test_nor_does_a_large_offset(fitted, level):
    """In float32, which the model reckons in, these values are all the same."""
    there = ProcessRegressor(fitted.model).fit(X + level, np.stack([Y, Y + level], 1))
    found = there.predict(Q + level, return_std=True, quantiles=0.5)
    wanted = fitted.predict(Q, return_std=True, quantiles=0.5)
    for one, other, moved in zip(found, wanted, (level, 0, level), strict=True):
        assert_allclose(one[:, 0], other, rtol=1e-3, atol=1e-4)
        assert_allclose(one[:, 1] - moved, other, rtol=1e-3, atol=1e-4)
    drawn = there.sample_y(Q + level, 30)
    assert_allclose(np.median(drawn, (0, 2)), [0, level], atol=10)


@pytest.mark.parametrize(
    "y",
    [np.array([3.0]), np.full(6, 7.0), np.zeros(4), np.arange(5)],
    ids=["one point", "constant", "zeros", "integers"],
)
def test_few_and_simple_points_have_an_answer(fitted, y):
    regressor = ProcessRegressor(fitted.model).fit(np.arange(len(y))[:, None], y)
    mean, std = regressor.predict([[0], [2], [40]], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.isfinite(regressor.sample_y([[0], [2], [2]], 2)).all()
    assert np.isfinite(regressor.predict([[0], [2], [2]], return_cov=True)[1]).all()


def test_the_same_place_may_have_several_values(fitted):
    twice = np.repeat(X, 2, 0), np.repeat(Y, 2) + np.tile([-0.5, 0.5], 30)
    mean, std = ProcessRegressor(fitted.model).fit(*twice).predict(X[[0, 0]], return_std=True)
    assert_allclose(mean[0], mean[1], rtol=1e-4)
    assert (std > 0).all()
    order = np.random.default_rng(0).permutation(60)
    again = ProcessRegressor(fitted.model).fit(*(part[order] for part in twice)).predict(X[[0, 0]])
    assert_allclose(again, mean, rtol=1e-3)
    for first in (0, 1):  # both count
        assert not np.allclose(ProcessRegressor(fitted.model).fit(X, twice[1][first::2]).predict(X[[0]]), mean[0])


def test_known_errors_matter(fitted):
    def predict(error):
        return ProcessRegressor(fitted.model).fit(X, Y, y_err=error).predict(Q)

    assert_allclose(predict(0.0), fitted.predict(Q), rtol=1e-5)
    assert not np.allclose(predict(0.5), fitted.predict(Q), rtol=1e-3)
    assert np.array_equal(predict(0.5), predict(np.full(30, 0.5)))
    assert np.array_equal(predict(0.5), predict(np.full((30, 1), 0.5)))
    some_known = np.where(np.arange(30) < 10, 0.5, 0)
    assert np.array_equal(predict(some_known), predict(np.where(some_known, some_known, np.nan)))
    regressor = ProcessRegressor(fitted.model).fit(X, Y, y_err=0.5)
    assert not np.allclose(regressor.sample_y(Q), fitted.sample_y(Q), rtol=1e-3)


def test_a_frame_is_known_by_its_names(fitted):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"time": X[:, 0]})
    regressor = ProcessRegressor(fitted.model).fit(frame, pandas.Series(Y))
    assert list(regressor.feature_names_in_) == ["time"]
    assert np.array_equal(regressor.predict(pandas.DataFrame({"time": Q[:, 0]})), fitted.predict(Q))
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(pandas.DataFrame({"place": Q[:, 0]}))


def test_one_set_of_radial_weights_serves_any_number_of_columns():
    model = filler(1, radial=True)
    for columns in (1, 2, 5):
        x, y = some(40, columns)
        other = np.random.default_rng(2).permutation(columns)
        found = ProcessRegressor(model).fit(x, y).predict(x[:7] + 0.1)
        assert_allclose(ProcessRegressor(model).fit(x[:, other], y).predict(x[:7, other] + 0.1), found, rtol=1e-3)


# places together


@pytest.mark.parametrize("noise", [True, False])
def test_the_covariance_is_that_of_an_exact_process(noise):
    x, y = unit_data()
    model = ExactlyBoth()
    asked = np.linspace(0, 1, 12)[:, None]
    exact = model.exactly(x, y, asked, noise)
    regressor = ProcessRegressor(model).fit(x, y)
    _, std = regressor.predict(asked, return_std=True, noise=noise)
    _, cov = regressor.predict(asked, return_cov=True, noise=noise)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    assert np.linalg.eigvalsh(cov).min() > 0
    assert_allclose(cov, cov.T)
    correlation, wanted = (c / np.sqrt(np.outer(np.diag(c), np.diag(c))) for c in (cov, exact))
    off = ~np.eye(12, dtype=bool)
    assert np.abs(correlation - wanted)[off].mean() < (0.1 if noise else 0.2)  # of 128 draws it is 0.09 with noise
    assert np.corrcoef(correlation[off], wanted[off])[0, 1] > 0.9


def test_drawn_in_pieces_or_at_once_a_function_is_a_function(monkeypatch):
    """Pieces that ignored one another would have no covariance between neighbours of two pieces."""
    x, y = unit_data()
    model = ExactlyBoth()
    asked = np.random.default_rng(0).permutation(np.linspace(0, 1, 24))[:, None]
    exact = model.exactly(x, y, asked, noise=True)
    regressor = ProcessRegressor(model).fit(x, y)
    monkeypatch.setattr(joint, "PIECE", 6)
    monkeypatch.setattr(joint, "TOKENS", 2000)  # and not all functions at once
    drawn = regressor.sample_y(asked, 400)
    assert_allclose(drawn.mean(1), regressor.predict(asked), atol=0.2)
    found = np.cov(drawn)
    assert_allclose(np.diag(found), np.diag(exact), rtol=0.35)
    off = ~np.eye(24, dtype=bool)
    assert np.abs(found - exact)[off].mean() < 0.04
    assert np.corrcoef(found[off], exact[off])[0, 1] > 0.93


def test_many_known_points_are_drawn_from_those_around(fitted):
    x = np.linspace(0, 100, 2000)[:, None]
    regressor = ProcessRegressor(fitted.model).fit(x, np.sin(x[:, 0]))
    drawn = regressor.sample_y(np.linspace(0, 100, 12)[:, None], 2)
    assert drawn.shape == (12, 2)
    assert np.isfinite(drawn).all()
    sizes = [len(g) for g in joint._groups(regressor.known_[0], x[::10], np.random.default_rng(0))]
    assert sum(sizes) == 200
    assert max(sizes) < 30


def test_the_same_seed_the_same_numbers(fitted):
    state = torch.get_rng_state()
    assert np.array_equal(fitted.sample_y(Q, 3, random_state=5), fitted.sample_y(Q, 3, random_state=5))
    assert not np.allclose(fitted.sample_y(Q, 3, random_state=5), fitted.sample_y(Q, 3, random_state=6))
    covs = [
        ProcessRegressor(fitted.model, random_state=seed).fit(X, Y).predict(Q, return_cov=True)[1] for seed in (0, 0, 1)
    ]
    assert np.array_equal(covs[0], covs[1])
    assert not np.array_equal(covs[0], covs[2])
    assert np.array_equal(covs[0], fitted.predict(Q, return_cov=True)[1])
    assert torch.equal(state, torch.get_rng_state())


def test_many_places_are_answered_under_a_bar(fitted, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    many = np.random.default_rng(0).uniform(0, 5, (20_001, 1))
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    found = fitted.predict(many)
    assert "predict" in terminal.getvalue()
    terminal.truncate(0)
    few = fitted.predict(many[:50])
    assert not terminal.getvalue().strip("\0")
    assert_allclose(found[:50], few, rtol=1e-4, atol=1e-5)
    fitted.sample_y(many[:21], 100)
    assert "sample" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


# going on learning


def test_adapting_needs_points(fitted):
    regressor = ProcessRegressor(fitted.model, adapt=True)
    with pytest.warns(UserWarning, match="needs 100 known points, there are 30"):
        regressor.fit(X, Y)
    assert regressor.model_ is fitted.model
    assert np.array_equal(regressor.predict(Q), fitted.predict(Q))


def test_adapting_gains_on_points_held_out(monkeypatch):
    monkeypatch.setattr(adapt, "STEPS", 24)
    monkeypatch.setattr(adapt, "_EVERY", 8)
    model = filler()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = some(120)
    one, two = (ProcessRegressor(model, adapt=True, random_state=seed).fit(x, y, y_err=0.1) for seed in (3, 3))
    assert one.gain_ > 0.1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert one.gain_ == two.gain_
    assert np.array_equal(one.predict(Q), two.predict(Q))
    plain = ProcessRegressor(model).fit(x, y, y_err=0.1)
    new = some(200, seed=9)
    scores = [r.known_[0].at(new[0]).log_prob(new[1][:, None]).mean() for r in (one, plain)]
    assert scores[0] > scores[1] + 0.1


def test_adapting_never_keeps_what_lost(monkeypatch):
    monkeypatch.setattr(adapt, "_RATE", 1e4)
    monkeypatch.setattr(adapt, "_EVERY", 2)
    model = filler()
    regressor = ProcessRegressor(model, adapt=True).fit(*some(120))
    assert regressor.gain_ == 0
    assert np.array_equal(regressor.predict(Q), ProcessRegressor(model).fit(*some(120)).predict(Q))


def test_any_process_may_adapt(monkeypatch):
    monkeypatch.setattr(adapt, "STEPS", 20)
    assert ProcessRegressor(tiny("te-tnp", dtype=torch.float32), adapt=True).fit(*some(700)).gain_ > 0


# on disk


def test_saved_and_loaded_it_says_the_same(fitted, tmp_path, shipped):
    pandas = pytest.importorskip("pandas")
    shipped(mine=filler())
    y = np.stack([Y, np.where(np.arange(30) % 3, Y**2, np.nan)], 1)
    regressor = ProcessRegressor("mine", random_state=4).fit(pandas.DataFrame({"t": X[:, 0]}), y, y_err=0.2)
    asked = pandas.DataFrame({"t": Q[:, 0]})
    for folder in ("a", "a"):  # the second time over the first
        path = regressor.save(tmp_path / folder / "some.safetensors")
    again = ProcessRegressor.load(path)
    assert again.get_params() == regressor.get_params()
    for one, other in zip(
        again.predict(asked, return_cov=True), regressor.predict(asked, return_cov=True), strict=True
    ):
        assert np.array_equal(one, other)
    assert np.array_equal(again.sample_y(asked, 2), regressor.sample_y(asked, 2))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(asked.rename(columns={"t": "u"}))
    assert [p.name for p in path.parent.iterdir()] == ["some.safetensors"]
    alone = ProcessRegressor.load(fitted.save(tmp_path / "alone"))
    assert np.array_equal(alone.predict(Q), fitted.predict(Q))
    assert np.array_equal(clone(alone).fit(X, Y).predict(Q), fitted.predict(Q))


def test_what_cannot_be_saved_or_loaded_says_why(fitted, tmp_path):
    (tmp_path / "text").write_text("no tensors")
    fillin.save(fitted.model, tmp_path / "model")
    cases = {
        "nothing": "not a readable regressor",
        "text": "not a readable regressor",
        "model/model.safetensors": r"not a ProcessRegressor.*fillin\.load",
    }
    for name, message in cases.items():
        with pytest.raises(InputError, match=message):
            ProcessRegressor.load(tmp_path / name)
    with pytest.raises(InputError, match="cannot write"):
        fitted.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "text"]
    with pytest.raises(InputError, match=r"made by fillin\.create"):
        ProcessRegressor(ExactProcess()).fit(*unit_data()).save(tmp_path / "exact")


# bad input

CASES = {
    "no rows": (lambda r: r.fit(X[:0], Y[:0]), "0 sample"),
    "other lengths": (lambda r: r.fit(X, Y[:-1]), "inconsistent numbers of samples"),
    "nothing known": (lambda r: r.fit(X, Y * np.nan), "nothing is known in column 0"),
    "a column of nothing": (lambda r: r.fit(X, np.stack([Y, Y * np.nan], 1)), "nothing is known in column 1"),
    "infinite y": (lambda r: r.fit(X, Y + np.inf), "Input y contains infinity"),
    "text in y": (lambda r: r.fit(X, ["a"] * 30), "could not convert string to float"),
    "three axes": (lambda r: r.fit(X, Y[:, None, None]), "dim 3|3 dimensions"),
    "NaN in X": (lambda r: r.fit(X * np.nan, Y), "Input X contains NaN"),
    "one axis": (lambda r: r.fit(X[:, 0], Y), "Reshape your data"),
    "other columns": (lambda r: r.fit(X, Y).predict(np.ones((3, 2))), "2 features, but.*expecting 1"),
    "columns of another model": (lambda r: r.fit(np.ones((3, 2)), Y[:3]), "X has 2 columns.*dim_x=1"),
    "a negative error": (lambda r: r.fit(X, Y, np.where(np.arange(30) == 7, -1, 1)), r"y_err is -1 in row 7"),
    "an infinite error": (lambda r: r.fit(X, Y, np.inf), "y_err contains infinity"),
    "errors of other length": (lambda r: r.fit(X, Y, np.ones(4)), r"y_err has shape \(4,\).*\(30, 1\)"),
    "a probability of one": (lambda r: r.fit(X, Y).predict(Q, quantiles=[0.5, 1]), r"between 0 and 1.*\[0\.5, 1\]"),
    "a probability of zero": (lambda r: r.fit(X, Y).predict(Q, quantiles=0), "between 0 and 1"),
    "no probabilities": (lambda r: r.fit(X, Y).predict(Q, quantiles=[]), "between 0 and 1"),
    "a NaN for a probability": (lambda r: r.fit(X, Y).predict(Q, quantiles=np.nan), "between 0 and 1"),
    "std and cov": (lambda r: r.fit(X, Y).predict(Q, True, True), "ask for one"),
    "a large covariance": (lambda r: r.fit(X, Y).predict(np.ones((257, 1)), return_cov=True), "at most 256.*sample_y"),
    "a place in other units": (
        lambda r: r.fit(X, Y).predict([[2.0], [1e30]]),
        r"X\[1, 0\] is 1e\+30, but.*between 0\..* and 4\..*other units",
    ),
    "no samples": (lambda r: r.fit(X, Y).sample_y(Q, 0), "n_samples must be"),
    "an unknown name": (lambda r: r.set_params(model="curv").fit(X, Y), "unknown model 'curv'"),
    "two outputs at once": (lambda r: r.set_params(model=tiny("filler", 1, 2)).fit(X, Y), "dim_y=2.*on its own"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        call(ProcessRegressor(filler()))


def test_bad_types_and_what_a_model_cannot_do(unchecked):
    with pytest.raises(TypeError, match="a name, a folder or a process, got int"):
        ProcessRegressor(3).fit(X, Y)
    with pytest.raises(TypeError, match="probabilities"):
        ProcessRegressor(filler()).fit(X, Y).predict(Q, quantiles="median")
    plain = ProcessRegressor(tiny("te-tnp", dtype=torch.float32))
    assert plain.fit(X, Y).sample_y(Q, 2).shape == (9, 2)
    with pytest.raises(FillinError, match="does not tell the function from its noise"):
        plain.predict(Q, noise=False)
    with pytest.raises(FillinError, match="does not read errors"):
        plain.fit(X, Y, 0.1)
