"""Filler: equivariance to units, periods, and observed and noise-free variances."""

import math

import pytest
import torch
from torch.testing import assert_close

import fillin
from fillin.data import BroadPrior, Curves, Task
from fillin.data.broad_prior import gaussian_part
from fillin.data.curves import TaskLayout
from fillin.errors import InputError
from fillin.heads import ObservedMixture
from fillin.models.base import Points
from fillin.models.filler import Normalization
from fillin.objectives import observed_and_clean


def filler(dim_x=1, **options):
    torch.manual_seed(0)
    return fillin.create("filler", dim_x=dim_x, size="small", layers=2, **options).double().eval()


def draw_points(n=30, dim_x=1, b=2):
    torch.manual_seed(1)
    return torch.rand(b, n, dim_x).double(), torch.randn(b, n, 1).double(), torch.rand(b, 7, dim_x).double()


def points(x, y):
    return Points(x, y, torch.ones_like(y, dtype=torch.bool), None)


@pytest.mark.parametrize(("dim_x", "spacing"), [(1, False), (1, True), (2, False), (3, False)])
def test_predictions_are_equivariant_to_units_of_x_and_y(dim_x, spacing):
    xc, yc, xt = draw_points(dim_x=dim_x)
    model = filler(dim_x, spacing=spacing)
    here = model(xc, yc, xt)
    there = model(1e4 * xc - 77, 300 * yc + 5e3, 1e4 * xt - 77)
    assert_close(there.mean, 300 * here.mean + 5e3, rtol=1e-7, atol=1e-4)
    assert_close(there.stddev, 300 * here.stddev, rtol=1e-6, atol=1e-6)
    yt = torch.randn(2, 7, 1).double()
    assert_close(there.log_prob(300 * yt + 5e3), here.log_prob(yt) - 7 * math.log(300), rtol=1e-6, atol=1e-6)


def test_the_normalisation_removes_a_linear_trend():
    """Residuals do not change if a line is added, up to the ridge penalty."""
    xc, yc, _ = draw_points(200)
    plain, tilted = (Normalization.of(points(xc, yc + slope * xc)) for slope in (0, 3.0))
    assert_close(tilted.scale, plain.scale, rtol=0.02, atol=0)
    assert_close(tilted.trend(xc) - plain.trend(xc), 3 * xc, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("cycles", [2.3, 7.0, 31.7])
def test_the_period_is_estimated(cycles):
    torch.manual_seed(0)
    x = torch.rand(3, 120, 1).double()
    x[:, 0], x[:, -1] = 0, 1  # cycles are counted per width of the context
    wave = torch.sin(2 * math.pi * cycles * x) + 0.4 * torch.sin(4 * math.pi * cycles * x + 1)
    units = Normalization.of(points(x, wave + 0.2 * torch.randn(x.shape) + x), seasons=True)
    assert_close(units.cycles.flatten(), torch.full((3,), cycles).double(), atol=0.05, rtol=0)
    assert (units.season > 0.9).all()
    noise = Normalization.of(points(x, torch.randn(x.shape).double()), seasons=True)
    assert noise.season.mean() < 0.3


def test_points_one_period_apart_are_near():
    x = torch.linspace(0, 10, 101).double().view(1, -1, 1)
    units = Normalization.of(points(x, torch.sin(2 * math.pi * x)), seasons=True)
    periodic_location = units.location(x)[..., 1:]
    assert_close(periodic_location[:, :-10], periodic_location[:, 10:], atol=0.02, rtol=0)
    assert (periodic_location[:, 0] - periodic_location[:, 5]).norm() > 1.5


def test_steps_are_counted_in_context_points():
    """In a longer series of the same density, the distance in steps of two points is the same."""
    for n in (21, 41, 81):
        x = torch.linspace(0, n, n).double().view(1, -1, 1)
        location = Normalization.of(points(x, torch.randn(x.shape).double()), spacing=True).location(x)
        assert_close(location[0, 2, 1] - location[0, 0, 1], torch.tensor(0.2 * n / (n - 1)).double())
    assert location.shape[-1] == 2
    observed = torch.arange(n) % 2 == 0
    context = Points(x, torch.randn(x.shape).double(), observed.view(1, -1, 1), None)
    assert Normalization.of(context, spacing=True).density.item() == observed.sum() / 10


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("value", [0.0, 5.0, -1e-20, 1e20])
def test_few_and_constant_points_give_finite_predictions(n, value):
    xc, _, xt = draw_points(n)
    prediction = filler()(xc, torch.full((2, n, 1), value).double(), xt)
    assert prediction.mean.isfinite().all()
    assert (prediction.stddev > 0).all()
    if n > 2 and abs(value) > 1e-9:
        assert (prediction.stddev < 10 * abs(value)).all()


def test_masked_points_are_ignored():
    xc, yc, xt = draw_points()
    observed = torch.rand(2, 30) > 0.3
    observed[1] = observed[0]
    model = filler()
    masked, without = model(xc, yc, xt, observed), model(xc[:, observed[0]], yc[:, observed[0]], xt)
    assert_close(masked.mean, without.mean)


def test_observed_and_noise_free_values_are_predicted():
    xc, yc, xt = draw_points()
    marginals = filler()(xc, yc, xt).marginals
    assert isinstance(marginals, ObservedMixture)
    assert marginals.noise_free.mean.shape == marginals.mean.shape
    task = Task(xc, yc, xt, torch.randn(2, 7, 1).double())
    with pytest.raises(InputError, match="broad"):
        observed_and_clean(filler(), task)
    with_noise_free = Task(*task.parts[:-1], noise_free_t=task.yt)
    conditioned = filler()(xc, yc, xt).given(task.yt)
    parts = conditioned.log_prob(task.yt).clamp_min(-100) + conditioned.noise_free.log_prob(task.yt).clamp_min(-100)
    assert_close(observed_and_clean(filler(), with_noise_free), parts.mean((1, 2)))


def test_measurement_errors_are_used_and_checked():
    xc, yc, xt = draw_points()
    model = filler()
    plain, zero_errors = model(xc, yc, xt), model(xc, yc, xt, error_c=torch.zeros_like(yc))
    assert_close(plain.mean, zero_errors.mean)
    assert not torch.allclose(model(xc, yc, xt, error_c=torch.ones_like(yc)).mean, plain.mean)
    for errors in (torch.ones(2, 3, 1).double(), -torch.ones_like(yc), torch.full_like(yc, torch.nan)):
        with pytest.raises(InputError, match="error_c"):
            model(xc, yc, xt, error_c=errors)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_the_broad_prior_is_a_function_of_seed_and_step(dim_x):
    stream = BroadPrior(dim_x=dim_x, points=(6, 60), pairs=20_000, seed=3)
    sizes = set()
    for step in range(12):
        task, again = stream.task(step), stream.task(step)
        for tensor, repeated in zip(task.parts, again.parts, strict=True):
            assert tensor is None or torch.equal(tensor, repeated)
        assert all(part is None or part.isfinite().all() for part in task.parts)
        assert task.xc.shape[1] + task.xt.shape[1] <= 60
        sizes.add(task.xc.shape[1])
    assert len(sizes) > 5
    assert not torch.equal(stream.task(0).xt, stream.validation_stream(4).task(0).xt)


def test_a_radial_prior_has_columns_of_unequal_weight():
    stream = BroadPrior(dim_x=5, columns=True, points=(40, 60), pairs=100_000, seed=1)
    tasks = [stream.task(step) for step in range(20)]
    assert {task.xc.shape[-1] for task in tasks} == {1, 2, 3, 4, 5}
    for task in tasks:
        widest = torch.cat([task.xc, task.xt], 1).abs().amax(1)  # [b dx]
        assert widest.amax() <= 2
        assert (widest.norm(dim=1) > 1.5).all()
        assert task.xc.shape[-1] == 1 or widest.amin() < 0.5


def test_plain_tasks_follow_the_protocol():
    """Plain tasks have the noise of the protocol and no measurement errors."""
    task = BroadPrior(points=(200, 200), pairs=10**6, plain=1.0, seed=2).task(0)
    assert ((task.yt - task.noise_free_t).std() / 0.02 - 1).abs() < 0.1
    assert not task.error_c.any()
    broad = BroadPrior(points=(200, 200), pairs=10**6, plain=0.0, seed=2).task(0)
    assert (broad.yt - broad.noise_free_t).std(1).max() > 0.1
    for plain in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match="plain"):
            BroadPrior(plain=plain)


def test_the_gaussian_part_of_the_prior_has_an_exact_posterior():
    """On its tasks the exact posterior beats that of a prior with nearly only plain tasks."""
    stream = Curves(gaussian_part(), TaskLayout(context=(12, 12), targets=(5, 5), points=None), batch=8, seed=3)
    exact = stream.function.hypotheses(stream.task(0), 64)
    other = gaussian_part(plain=1 - 1e-9).hypotheses(stream.task(0), 64)
    exact, other = (
        (hypotheses.evidence.log_softmax(0) + hypotheses.joint).logsumexp(0).mean()
        for hypotheses in (exact, other)
        if hypotheses
    )
    assert exact > other + 0.1


def test_points_are_held_out_at_random_in_blocks_and_at_ends():
    from fillin.data.broad_prior import order_context_first

    rng = torch.Generator().manual_seed(0)
    x = torch.linspace(-2, 2, 100).double().view(1, -1, 1).expand(400, -1, -1)
    order = order_context_first(x, 70, rng)
    assert torch.equal(order.sort(1).values, torch.arange(100).expand(400, -1))
    held_out = order[:, 70:].sort(1).values
    runs = (held_out.diff(dim=1) > 1).sum(1) + 1  # contiguous runs of held-out points
    assert (runs <= 4).double().mean() > 0.25
    assert (runs > 12).double().mean() > 0.4
    ends = ((runs == 1) & ((held_out[:, -1] == 99) | (held_out[:, 0] == 0))).double().mean()
    assert ends > 0.05
