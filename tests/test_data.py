"""Curves: covariances are what they say, a batch is a function of (seed, step) alone, and the limits are exact."""

import math

import pytest
import torch
from helpers import distance
from hypothesis import given
from hypothesis import strategies as st

from fillin.data import FUNCTIONS, KERNELS, PROTOCOLS, GaussianProcess, Mixture, bayes, curves, known
from fillin.data.functions import PredatorPrey, Sawtooth
from fillin.data.kernels import RBF, Linear, Periodic, within
from fillin.errors import FillinError

MIXTURES = ["rbf + periodic", "rbf * linear + matern-1/2", "2 rbf | matern-5/2 | rbf * periodic | 0.5 sawtooth"]
TEXTS = [*FUNCTIONS, *MIXTURES]


def points(b: int, n: int, dim_x: int) -> torch.Tensor:
    return 4 * torch.rand(b, n, dim_x, dtype=torch.float64) - 2


# ---- kernels

FORMULAS = {  # of Δ [n m dx] and the hyperparameters, at scale 1
    "rbf": lambda d, h: torch.exp(-(d**2).sum(-1) / (2 * h["length"] ** 2)),
    "matern-1/2": lambda d, h: torch.exp(-d.norm(dim=-1) / h["length"]),
    "matern-3/2": lambda d, h: (
        (1 + 3**0.5 * d.norm(dim=-1) / h["length"]) * torch.exp(-(3**0.5) * d.norm(dim=-1) / h["length"])
    ),
    "matern-5/2": lambda d, h: (
        (1 + 5**0.5 * d.norm(dim=-1) / h["length"] + 5 * (d**2).sum(-1) / (3 * h["length"] ** 2))
        * torch.exp(-(5**0.5) * d.norm(dim=-1) / h["length"])
    ),
    "periodic": lambda d, h: torch.exp(-2 * (torch.sin(math.pi * d / h["period"]) ** 2).sum(-1) / h["length"] ** 2),
    "weakly-periodic": lambda d, h: FORMULAS["periodic"](d, h) * torch.exp(-(d**2).sum(-1) / (2 * h["drift"] ** 2)),
    "rational-quadratic": lambda d, h: (1 + (d**2).sum(-1) / (2 * h["mix"] * h["length"] ** 2)) ** -h["mix"],
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_kernel_is_symmetric_positive_definite_and_its_formula(name, dim_x):
    kernel, x = KERNELS[name](), points(4, 20, dim_x)
    theta = kernel.hyper(torch.rand(4, kernel.size, dtype=torch.float64))
    gram = kernel(x, x, theta)
    assert distance(gram, gram.mT) < 1e-15
    assert torch.linalg.eigvalsh(gram).min() > -1e-10 * gram.max()
    assert distance(kernel(x, x[:, :7], theta), gram[..., :7]) < 1e-12
    for x_, g, row in zip(x, gram, theta, strict=True):
        hyper = dict(zip(kernel.hyperparameters, row, strict=True))
        delta = x_[:, None] - x_[None]
        wanted = 1 + x_ @ x_.T / hyper["length"] ** 2 if name == "linear" else FORMULAS[name](delta, hyper)
        assert distance(g, hyper["scale"] ** 2 * wanted) < 1e-10


@pytest.mark.parametrize("dim_x", [1, 3])
def test_sums_and_products_of_kernels(dim_x):
    a, b, c = RBF(), Periodic(), Linear()
    both, x = (a + b) * c, points(3, 9, dim_x)
    theta = both.hyper(torch.rand(3, both.size, dtype=torch.float64))
    of_a, of_b, of_c = theta.split([a.size, b.size, c.size], -1)
    wanted = (a(x, x, of_a) + b(x, x, of_b)) * c(x, x, of_c)
    assert distance(both(x, x, theta), wanted) < 1e-12
    words = curves("rbf + periodic * linear").function.kernel  # * binds more tightly
    split = words.hyper(torch.rand(3, words.size, dtype=torch.float64))
    of_a, of_b, of_c = split.split([a.size, b.size, c.size], -1)
    assert distance(words(x, x, split), a(x, x, of_a) + b(x, x, of_b) * c(x, x, of_c)) < 1e-12


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_hyperparameters_fill_their_ranges(name, logarithmic):
    kernel = KERNELS[name](length=(0.2, 5.0), scale=(0.5, 2.0), logarithmic=logarithmic)
    theta = kernel.hyper(torch.rand(4000, kernel.size, dtype=torch.float64))
    for column, hyper in zip(theta.T, kernel.hyperparameters, strict=True):
        low, high = getattr(kernel, hyper)
        assert low <= column.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < column.max() <= high
        middle = math.sqrt(low * high) if logarithmic and hyper != "scale" else (low + high) / 2
        assert abs((column < middle).double().mean() - 0.5) < 0.04


@given(st.floats(0.01, 10), st.floats(1, 100), st.floats(0, 1), st.booleans())
def test_within_stays_within(low, ratio, u, logarithmic):
    value = within(torch.tensor(u, dtype=torch.float64), (low, low * ratio), logarithmic)
    assert low * (1 - 1e-12) <= value <= low * ratio * (1 + 1e-12)


# ---- streams


def same(a, b) -> bool:
    return a.xc.shape == b.xc.shape and all(map(torch.equal, a.inputs[:3], b.inputs[:3])) and torch.equal(a.yt, b.yt)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_batch_depends_on_seed_and_step_and_on_nothing_else(text, dim_x):
    if text == "predator-prey" and dim_x > 1:
        with pytest.raises(FillinError, match="1 input dimension, got dim_x="):
            curves(text, dim_x=dim_x)
        return
    stream = curves(text, batch=3, seed=1, dim_x=dim_x)
    first = stream.task(5)
    torch.rand(3)
    stream.task(6)
    assert same(curves(text, batch=3, seed=1, dim_x=dim_x).task(5), first)
    assert not same(curves(text, batch=3, seed=2, dim_x=dim_x).task(5), first)
    assert not same(stream.task(6), first)
    dim_y = 2 if text == "predator-prey" else 1
    assert (stream.dim_x, stream.dim_y) == (dim_x, dim_y)
    for x, y in ((first.xc, first.yc), (first.xt, first.yt)):
        assert x.shape[::2] == (3, dim_x)
        assert y.shape == (3, x.shape[1], dim_y)
        assert x.dtype == y.dtype == torch.float32
        assert x.isfinite().all()
        assert y.isfinite().all()


def test_steps_and_seeds_far_away_are_streams_of_their_own():
    found = [
        curves(seed=seed, batch=1).task(step).xc[0, 0].item() for seed in (0, 1, 2**31, 2**40) for step in (0, 1, 2**31)
    ]
    assert len(set(found)) == 12


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_without_noise_a_covariance_still_has_a_factor(noise):
    for text in ("rbf", "periodic", "linear", "rational-quadratic"):
        assert curves(text, noise=noise, length=(2.0, 4.0), batch=8).task(0).yt.isfinite().all()


def test_noise_may_be_a_range():
    """Of each task its own: between 0.5 and 2 the spread around a constant is."""
    for text in ("linear", "sawtooth", "square-wave"):
        options = {"length": (1e6, 1e6), "scale": (1e-6, 1e-6)} if text == "linear" else {"frequency": (1e-9, 1e-9)}
        stream = curves(text, noise=(0.5, 2.0), context=(1, 1), targets=(500, 500), points=None, **options)
        spread = stream.task(0).yt.std(1)
        assert 0.4 < spread.min() < 0.9
        assert 1.5 < spread.max() < 2.2


def test_shares_of_a_mixture():
    stream = curves(
        "3 rbf | sawtooth", noise=0.0, scale=(10.0, 10.0), batch=2000, points=8, context=(1, 1), targets=(6, 6)
    )
    _, unknowns = stream.draw(0)
    counts = {type(member).__name__: len(rows) for rows, member, _ in unknowns}
    assert sum(counts.values()) == 2000
    assert abs(counts["GaussianProcess"] - 1500) < 4 * math.sqrt(2000 * 0.75 * 0.25)
    teeth = next(rows for rows, member, _ in unknowns if isinstance(member, Sawtooth))
    assert stream.task(0).yt[teeth].min() >= 0
    assert stream.task(0).yt[teeth].max() < 1


# ---- places and counts


def test_the_protocol_of_tnp():
    """Nc ~ U[3, 47), Nt ~ U[3, 50 − Nc), x in [−2, 2]."""
    counts = []
    for step in range(400):
        task = curves(batch=1).task(step)
        nc, nt = task.xc.shape[1], task.xt.shape[1]
        counts.append((nc, nt))
        assert 3 <= nc < 47
        assert 3 <= nt < max(4, 50 - nc)
        assert max(task.xc.abs().max(), task.xt.abs().max()) <= 2
    assert {min(nc for nc, _ in counts), max(nc for nc, _ in counts)} == {3, 46}
    assert abs(sum(nc for nc, _ in counts) / 400 - 24.5) < 4 * 12.7 / 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_counts_and_places_are_those_of_the_layout(protocol):
    stream = curves(protocol=protocol, batch=1)
    layout = stream.layout
    for step in range(100):
        task = stream.at(shift=10.0).task(step)
        for x, (low, high), counts in (
            (task.xc, layout.range, layout.context),
            (task.xt, layout.target_range or layout.range, layout.targets),
        ):
            assert counts[0] <= x.shape[1] <= counts[1]
            if x.numel():
                assert low + 10 <= x.min() <= x.max() <= high + 10


def test_the_same_functions_at_other_places():
    stream = curves("rbf", batch=2)
    here, there = stream.task(3), stream.at(shift=4.0).task(3)
    assert torch.allclose(here.xc + 4, there.xc)
    assert torch.allclose(here.yc, there.yc, atol=1e-4)  # an RBF sees differences alone


# ---- functions without a kernel


def test_a_sawtooth_is_in_0_1_and_as_steep_as_its_frequency():
    wave, x = Sawtooth((2.0, 4.0)), torch.linspace(-2, 2, 40_001, dtype=torch.float64).view(1, -1, 1)
    for seed in range(20):
        y = wave.draw(x, torch.Generator().manual_seed(seed))[0]
        assert 0 <= y.min() <= y.max() < 1
        slope = (y.diff(dim=1) / 1e-4).flatten()
        steep = slope.abs().median()
        assert 2 <= steep <= 4
        smooth = slope[slope.abs() < 5]
        assert torch.allclose(smooth, smooth.median().expand_as(smooth), atol=1e-3)
        assert abs(len(slope) - len(smooth) - 4 * steep) <= 1  # a jump each turn


def test_a_sawtooth_stays_below_1_in_float32():
    turns = torch.tensor([-1e-18, 1 - 1e-12, -1e-9, 3.0], dtype=torch.float64)
    assert Sawtooth()._wave(turns).float().tolist() == [1 - 2**-24, 1 - 2**-24, 1 - 2**-24, 0]


def test_a_square_wave_has_two_values():
    task = curves("square-wave", protocol="sawtooth").task(1)
    assert sorted(set(task.yt.flatten().tolist())) == [0, 1]
    assert 0.4 < task.yt.mean() < 0.6


def test_predators_follow_prey():
    x = torch.linspace(-2, 2, 1001, dtype=torch.float64).view(1, -1, 1).expand(8, -1, 1)
    y, _ = PredatorPrey().draw(x, torch.Generator().manual_seed(0))
    assert y.shape == (8, 1001, 2)
    assert y.min() > 0
    again = PredatorPrey().draw(x[:, ::10], torch.Generator().manual_seed(0))[0]
    assert torch.allclose(again, y[:, ::10])  # places do not change the path
    flat = 0.01 + (y.amax(1) / y.amin(1)).log()
    assert (flat > 0.5).all()  # both populations go up and down


# ---- limits


def normal(kernel, x, theta, y):
    """ln p(y) by torch's own multivariate normal; y [n], θ with the noise last."""
    covariance = kernel(x[None], x[None], theta[None, :-1])[0] + theta[-1] ** 2 * torch.eye(len(x), dtype=x.dtype)
    return torch.distributions.MultivariateNormal(torch.zeros(len(x), dtype=x.dtype), covariance).log_prob(y)


@pytest.mark.parametrize("text", ["rbf", "matern-3/2 + periodic", "rbf | linear"])
@pytest.mark.parametrize("dim_x", [1, 2])
def test_known_is_a_conditional_of_the_joint(text, dim_x):
    """p(yt | yc) = p(yc, yt)/p(yc) by torch's normal, and the log_prob of `posterior`."""
    stream = curves(text, batch=3, noise=(0.1, 0.3), dim_x=dim_x)
    task, unknowns = stream.draw(2)
    if not isinstance(stream.function, Mixture):
        unknowns = [(torch.arange(3), stream.function, unknowns)]
    x, y = torch.cat([task.xc, task.xt], 1).double(), torch.cat([task.yc, task.yt], 1)[..., 0].double()
    nc, nt = task.xc.shape[1], task.xt.shape[1]
    found = known(stream, 2)
    for rows, process, theta in unknowns:
        exact = process.posterior(task.xc[rows], task.yc[rows], task.xt[rows], theta)
        joint = torch.stack(
            [
                normal(process.kernel, x[r], t, y[r]) - normal(process.kernel, x[r, :nc], t, y[r, :nc])
                for r, t in zip(rows, theta, strict=True)
            ]
        )
        marginal = torch.distributions.Normal(exact.mean, exact.stddev).log_prob(y[rows, nc:]).mean(-1)
        assert distance(found.joint[rows], joint / nt) < 1e-6
        assert distance(found.joint[rows], exact.log_prob(y[rows, nc:]) / nt) < 1e-6
        assert distance(found.marginal[rows], marginal) < 1e-6


def test_what_has_no_closed_form_has_no_limit():
    for text in ("sawtooth", "predator-prey", "rbf | sawtooth"):
        assert known(curves(text, batch=8), 0) is None
        assert bayes(curves(text, batch=8), 0, 4) is None


@pytest.mark.parametrize("text", ["rbf", "rbf | rbf", "periodic * rbf"])
def test_with_nothing_unknown_bayes_is_known(text):
    options = {"length": (0.3, 0.3), "scale": (0.7, 0.7)} | ({"period": (0.4, 0.4)} if "periodic" in text else {})
    stream = curves(text, batch=4, **options)
    for a, b in zip(bayes(stream, 0, 8), known(stream, 0), strict=True):
        assert distance(a, b) < 1e-9


def test_bayes_converges():
    stream = curves("rbf", batch=1)
    errors = {32: [], 256: []}
    for step in range(20):
        best = bayes(stream, step, 1024)
        for number, error in errors.items():
            error.append((bayes(stream, step, number).joint - best.joint).abs().item())
    assert sum(errors[256]) / 20 < 0.01
    assert sum(errors[256]) < sum(errors[32])


@pytest.mark.parametrize(
    ("text", "wanted"), [("rbf", (1.509, 1.806, 1.445, 1.771)), ("matern-5/2", (1.151, 1.408, 1.106, 1.380))]
)
def test_limits_on_the_protocol_of_tnp(text, wanted):
    """As measured on 600 other tasks, with a standard error of 0.03 each."""
    stream = curves(text, batch=1, seed=1)
    found = torch.stack(
        [torch.cat([*known(stream, step), *bayes(stream, step, 128)]) for step in range(150)]
    )  # [150 4]: each told, then not told
    error = (found.var(0) / len(found) + 0.03**2).sqrt()
    assert ((found.mean(0) - torch.tensor(wanted)).abs() < 4 * error).all()
    assert (found[:, :2] - found[:, 2:]).mean(0).min() > 0  # who is told more does better


# ---- bad input

WRONG = {
    "a name": (("rbff",), {}, "unknown function 'rbff'; did you mean 'rbf'"),
    "a name in a sum": (("rbf + perodic",), {}, "did you mean 'periodic'"),
    "no name": (("",), {}, "a function is missing"),
    "an operator at the end": (("rbf +",), {}, "a function is missing"),
    "an operator at the start": (("* rbf",), {}, "a function is missing"),
    "a bar at the end": (("rbf |",), {}, "a function is missing"),
    "a weight of 0": (("0 rbf | linear",), {}, "a weight must be a positive number, got 0"),
    "a weight below 0": (("-1 rbf | linear",), {}, "a weight must be a positive number, got -1"),
    "a weight that is none": (("nan rbf | linear",), {}, "a weight must be a positive number"),
    "a sum of what is no kernel": (("rbf + sawtooth",), {}, "sawtooth is no kernel.*mix it with |"),
    "outputs that differ": (("rbf | predator-prey",), {}, "same number of outputs"),
    "a number": ((3,), {}, "unknown function '3'"),
    "a protocol": (("rbf", "tpn"), {}, "unknown protocol 'tpn'; did you mean 'tnp'"),
    "an option": (("rbf",), {"lenght": (1, 2)}, "unknown option of 'rbf' 'lenght'; did you mean 'length'"),
    "a reversed range": (("rbf",), {"length": (2, 1)}, r"RBF: length must be a range.*got \(2, 1\)"),
    "a range from 0": (("rbf",), {"scale": (0, 1)}, "scale must be a range"),
    "a range of three": (("rbf",), {"length": (1, 2, 3)}, "length must be a range"),
    "a range of words": (("rbf",), {"length": "ab"}, "length must be a range"),
    "no range": (("sawtooth",), {"frequency": 3.0}, "Sawtooth: frequency must be a range"),
    "an infinite range": (("periodic",), {"period": (1, math.inf)}, "period must be a range"),
    "noise below 0": (("rbf",), {"noise": -0.1}, "noise is a standard deviation"),
    "noise in words": (("sawtooth",), {"noise": "much"}, "Sawtooth: noise is a standard deviation"),
    "a reversed range of noise": (("sawtooth",), {"noise": (2, 1)}, "noise must be a range"),
    "perhaps": (("rbf",), {"logarithmic": "perhaps"}, "logarithmic must be True or False"),
    "reversed places": (("rbf",), {"range": (2, -2)}, r"range must be places \(low, high\) with low < high"),
    "no places": (("rbf",), {"range": None}, "range must be places"),
    "one place": (("rbf",), {"target_range": 3}, "target_range must be places"),
    "no targets": (("rbf",), {"targets": (0, 3)}, "targets must be two whole numbers, 1 ≤"),
    "half a point": (("rbf",), {"context": (0.5, 3)}, "context must be two whole numbers"),
    "one count": (("rbf",), {"context": 3}, "context must be two whole numbers"),
    "points too few": (("rbf",), {"points": 6}, r"points=6 leaves no room for 3 \+ 3"),
    "points in words": (("rbf",), {"points": "many"}, "points must be a whole number"),
    "a shift in words": (("rbf",), {"shift": "far"}, "shift must be a number"),
    "no dimension": (("rbf",), {"dim_x": 0}, "dim_x must be a whole number of at least 1"),
    "half a dimension": (("rbf",), {"dim_x": 1.5}, "dim_x must be a whole number"),
    "an empty batch": (("rbf",), {"batch": 0}, "batch must be a whole number of at least 1"),
    "a seed below 0": (("rbf",), {"seed": -1}, "seed must be a whole number of at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_input(case):
    import jaxtyping

    arguments, options, message = WRONG[case]
    jaxtyping.config.update("jaxtyping_disable", True)  # as users have it
    try:
        with pytest.raises(FillinError, match=message):
            curves(*arguments, **options)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_weights_of_a_mixture():
    with pytest.raises(FillinError, match="a positive weight for each of 2"):
        Mixture((GaussianProcess(), GaussianProcess()), (1.0, 0.0))


def test_no_context_at_all_has_a_limit():
    stream = curves("rbf", context=(0, 0), targets=(3, 3), batch=2)
    limit = bayes(stream, 0, 64)
    assert limit.joint.isfinite().all()
    assert (limit.marginal < 0.5).all()  # nothing is known but the scale


def test_an_option_that_the_function_does_not_have():
    for function, option in (("sawtooth", "length"), ("rbf", "period"), ("predator-prey", "noise")):
        with pytest.raises(ValueError, match=f"option of .* '{option}'"):
            curves(function, **{option: (0.1, 0.2)})


def test_predators_and_prey_live_everywhere():
    for places in ({"shift": 4.0}, {"target_range": (2.0, 6.0)}):
        assert curves("predator-prey").at(**places).task(0).yt.std(1).min() > 0.01
