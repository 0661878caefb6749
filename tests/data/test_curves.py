"""A batch of curves is a function of (seed, step) alone, at the locations and counts of its protocol."""

import math

import pytest
import torch

from fillin.data import FUNCTIONS, PROTOCOLS, curves
from fillin.errors import FillinError

MIXTURES = ["rbf + periodic", "rbf * linear + matern-1/2", "2 rbf | matern-5/2 | rbf * periodic | 0.5 sawtooth"]
TEXTS = [*FUNCTIONS, *MIXTURES]


# ---- streams


def equal_tasks(a, b) -> bool:
    return a.xc.shape == b.xc.shape and all(map(torch.equal, a.inputs[:3], b.inputs[:3])) and torch.equal(a.yt, b.yt)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_batch_depends_on_seed_and_step_only(text, dim_x):
    if text == "predator-prey" and dim_x > 1:
        with pytest.raises(FillinError, match="1 input dimension, got dim_x="):
            curves(text, dim_x=dim_x)
        return
    stream = curves(text, batch=3, seed=1, dim_x=dim_x)
    first = stream.task(5)
    torch.rand(3)
    stream.task(6)
    assert equal_tasks(curves(text, batch=3, seed=1, dim_x=dim_x).task(5), first)
    assert not equal_tasks(curves(text, batch=3, seed=2, dim_x=dim_x).task(5), first)
    assert not equal_tasks(stream.task(6), first)
    dim_y = 2 if text == "predator-prey" else 1
    assert (stream.dim_x, stream.dim_y) == (dim_x, dim_y)
    for x, y in ((first.xc, first.yc), (first.xt, first.yt)):
        assert x.shape[::2] == (3, dim_x)
        assert y.shape == (3, x.shape[1], dim_y)
        assert x.dtype == y.dtype == torch.float32
        assert x.isfinite().all()
        assert y.isfinite().all()


def test_distant_steps_and_seeds_give_different_streams():
    first_inputs = [
        curves(seed=seed, batch=1).task(step).xc[0, 0].item() for seed in (0, 1, 2**31, 2**40) for step in (0, 1, 2**31)
    ]
    assert len(set(first_inputs)) == 12


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_covariances_without_noise_have_a_cholesky_factor(noise):
    for text in ("rbf", "periodic", "linear", "rational-quadratic"):
        assert curves(text, noise=noise, length=(2.0, 4.0), batch=8).task(0).yt.isfinite().all()


def test_noise_can_be_a_range():
    """Every task draws its noise: the spread around a constant is between 0.5 and 2."""
    for text in ("linear", "sawtooth", "square-wave"):
        options = {"length": (1e6, 1e6), "scale": (1e-6, 1e-6)} if text == "linear" else {"frequency": (1e-9, 1e-9)}
        stream = curves(text, noise=(0.5, 2.0), context=(1, 1), targets=(500, 500), points=None, **options)
        spread = stream.task(0).yt.std(1)
        assert 0.4 < spread.min() < 0.9
        assert 1.5 < spread.max() < 2.2


# ---- locations and counts


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
def test_counts_and_locations_follow_the_layout(protocol):
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


def test_shifted_streams_have_the_same_functions():
    stream = curves("rbf", batch=2)
    here, there = stream.task(3), stream.at(shift=4.0).task(3)
    assert torch.allclose(here.xc + 4, there.xc)
    assert torch.allclose(here.yc, there.yc, atol=1e-4)  # an RBF kernel depends on differences only


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
    "a sum of what is no kernel": (("rbf + sawtooth",), {}, "sawtooth is not a kernel.*mix it with |"),
    "outputs that differ": (("rbf | predator-prey",), {}, "same number of outputs"),
    "a number": ((3,), {}, "unknown function '3'"),
    "a protocol": (("rbf", "tpn"), {}, "unknown protocol 'tpn'; did you mean 'tnp'"),
    "an option": (("rbf",), {"lenght": (1, 2)}, "unknown option of 'rbf' 'lenght'; did you mean 'length'"),
    "a reversed range": (("rbf",), {"length": (2, 1)}, r"RBFKernel: length must be a range.*got \(2, 1\)"),
    "a range from 0": (("rbf",), {"scale": (0, 1)}, "scale must be a range"),
    "a range of three": (("rbf",), {"length": (1, 2, 3)}, "length must be a range"),
    "a range of words": (("rbf",), {"length": "ab"}, "length must be a range"),
    "no range": (("sawtooth",), {"frequency": 3.0}, "Sawtooth: frequency must be a range"),
    "an infinite range": (("periodic",), {"period": (1, math.inf)}, "period must be a range"),
    "noise below 0": (("rbf",), {"noise": -0.1}, "noise must be a standard deviation"),
    "noise in words": (("sawtooth",), {"noise": "much"}, "Sawtooth: noise must be a standard deviation"),
    "a reversed range of noise": (("sawtooth",), {"noise": (2, 1)}, "noise must be a range"),
    "perhaps": (("rbf",), {"logarithmic": "perhaps"}, "logarithmic must be True or False"),
    "reversed locations": (("rbf",), {"range": (2, -2)}, r"range must be two locations \(low, high\) with low < high"),
    "no locations": (("rbf",), {"range": None}, "range must be two locations"),
    "one location": (("rbf",), {"target_range": 3}, "target_range must be two locations"),
    "no targets": (("rbf",), {"targets": (0, 3)}, "targets must be two whole numbers, 1 ≤"),
    "half a point": (("rbf",), {"context": (0.5, 3)}, "context must be two whole numbers"),
    "one count": (("rbf",), {"context": 3}, "context must be two whole numbers"),
    "points too few": (("rbf",), {"points": 6}, r"points=6 must exceed .* 3 \+ 3"),
    "points in words": (("rbf",), {"points": "many"}, "points must be a whole number"),
    "a shift in words": (("rbf",), {"shift": "far"}, "shift must be a number"),
    "no dimension": (("rbf",), {"dim_x": 0}, "dim_x must be a whole number of at least 1"),
    "half a dimension": (("rbf",), {"dim_x": 1.5}, "dim_x must be a whole number"),
    "an empty batch": (("rbf",), {"batch": 0}, "batch must be a whole number of at least 1"),
    "a seed below 0": (("rbf",), {"seed": -1}, "seed must be a whole number of at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_input(case, unchecked):
    arguments, options, message = WRONG[case]
    with pytest.raises(FillinError, match=message):
        curves(*arguments, **options)


def test_an_option_of_another_function_is_an_error():
    for function, option in (("sawtooth", "length"), ("rbf", "period"), ("predator-prey", "noise")):
        with pytest.raises(ValueError, match=f"option of .* '{option}'"):
            curves(function, **{option: (0.1, 0.2)})
