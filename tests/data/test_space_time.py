"""Fields over space and time: spectra, advection, separability, exact predictions and bad options."""

import math

import pytest
import torch
from support.helpers import distance

from fillin.data import bayes_limit, curves, oracle_limit
from fillin.data.kernels import AdvectionDiffusionKernel, GneitingKernel, SpaceTimeKernel
from fillin.data.space_time import Flow, draw_fields, evolve
from fillin.errors import FillinError

SPACE_TIME = ["space-time", "gneiting", "advection-diffusion"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def covariance(kernel, lag, *displacement, **hyper):
    """k(h, u) of a kernel at the given hyperparameters."""
    theta = torch.tensor([hyper[name] for name in kernel.hyperparameters], dtype=torch.float64)
    at = torch.tensor([[lag, *displacement]], dtype=torch.float64)
    return kernel(at, torch.zeros_like(at), theta)[0, 0].item()


# ---- kernels


@pytest.mark.parametrize("dims", [1, 2])
def test_only_the_separable_covariance_is_a_product_of_space_and_time(dims):
    """k(h, u) k(0, 0) = k(h, 0) k(0, u) characterises separability; the margins do not depend on the interaction."""
    h, nothing = [0.4, -0.3][:dims], [0.0] * dims
    hyper = {"length": 0.5, "memory": 0.7, "scale": 1.3}

    def excess(kernel, **more):
        k = lambda lag, at: covariance(kernel, lag, *at, **hyper, **more)  # noqa: E731
        return k(0.9, h) * k(0.0, nothing) - k(0.0, h) * k(0.9, nothing)

    separable, gneiting = SpaceTimeKernel(), GneitingKernel()
    assert abs(excess(separable)) < 1e-15
    assert abs(excess(gneiting, interaction=1e-12)) < 1e-11
    weak, strong = excess(gneiting, interaction=0.5), excess(gneiting, interaction=1.0)
    assert 0.01 < weak < strong  # with the interaction, values that are far apart in both are more alike
    for lag, at in ((0.9, nothing), (0.0, h)):
        expected = covariance(separable, lag, *at, **hyper)
        assert covariance(gneiting, lag, *at, **hyper, interaction=0.8) == pytest.approx(expected, abs=1e-15)
    moving = {"speed": 0.5, "direction": 0.3, "diffusivity": 0.1}
    assert abs(excess(AdvectionDiffusionKernel(), **moving)) > 0.01


@pytest.mark.parametrize("dims", [1, 2])
def test_without_diffusion_a_field_is_carried_along(dims):
    """k(h + v u, u) = exp(−|u|/memory) k(h, 0), and with diffusion the ridge of the covariance still moves with v."""
    kernel, speed, direction, lag = AdvectionDiffusionKernel(), 0.6, 2.1, 0.8
    velocity = [speed * math.cos(direction), speed * math.sin(direction)][:dims]
    h = [0.2, -0.1][:dims]
    hyper = {"length": 0.4, "memory": 3.0, "scale": 1.0, "speed": speed, "direction": direction}
    moved = [a + v * lag for a, v in zip(h, velocity, strict=True)]
    still = covariance(kernel, 0.0, *h, **hyper, diffusivity=1e-12)
    assert covariance(kernel, lag, *moved, **hyper, diffusivity=1e-12) == pytest.approx(
        math.exp(-lag / 3) * still, rel=1e-9
    )
    at = [v * lag for v in velocity]
    ridge = covariance(kernel, lag, *at, **hyper, diffusivity=0.1)
    shrunk = (0.4**2 / (0.4**2 + 2 * 0.1 * lag)) ** (dims / 2)
    assert ridge == pytest.approx(math.exp(-lag / 3) * shrunk, rel=1e-12)
    for off in (0.05, -0.05):
        assert covariance(kernel, lag, *(a + off for a in at), **hyper, diffusivity=0.1) < ridge


@pytest.mark.parametrize("function", SPACE_TIME)
@pytest.mark.parametrize("dim_x", [2, 3])
def test_draws_have_the_covariance_of_the_kernel(function, dim_x):
    """The sample covariance of 4,000 draws at five points is within four standard errors of the formula."""
    stream = curves(function, dim_x=dim_x, noise=0.0)
    process, number = stream.function, 4000
    x = (2 * torch.rand(1, 5, dim_x, dtype=torch.float64, generator=generator(3)) - 1).expand(number, -1, -1)
    y, theta = process.draw(x, generator(4))
    y = y[..., 0] / theta[:, process.kernel.hyperparameters.index("scale"), None]
    expected = process.kernel(x, x, theta[:, :-1])
    expected = expected / expected[:, :1, :1]
    products = y[:, :, None] * y[:, None] - expected
    assert (products.mean(0).abs() < 4.5 * products.std(0) / number**0.5 + 1e-6).all()


@pytest.mark.parametrize("function", SPACE_TIME)
@pytest.mark.parametrize("dim_x", [2, 3])
def test_the_limit_is_that_of_a_naive_gaussian_process(function, dim_x):
    stream = curves(function, dim_x=dim_x, batch=2, noise=(0.05, 0.2))
    task, theta = stream.draw(1)
    limit = oracle_limit(stream, 1)
    x, y = torch.cat([task.xc, task.xt], 1).double(), torch.cat([task.yc, task.yt], 1).double()
    nc = task.xc.shape[1]
    for b in range(2):
        kernel, noise = stream.function.kernel, theta[b, -1] ** 2
        gram = kernel(x[b], x[b], theta[b, :-1])
        inverse = torch.linalg.inv(gram[:nc, :nc] + noise * torch.eye(nc, dtype=x.dtype))
        mean = gram[nc:, :nc] @ inverse @ y[b, :nc]
        variance = (gram[nc:, nc:] - gram[nc:, :nc] @ inverse @ gram[:nc, nc:]).diagonal() + noise
        expected = torch.distributions.Normal(mean[:, 0], variance.sqrt()).log_prob(y[b, nc:, 0]).mean()
        assert distance(limit.marginal[b], expected) < 1e-6
    bayes = bayes_limit(stream, 1, 64)
    assert bayes.marginal.isfinite().all()


def test_a_separable_process_knows_less_about_a_moving_field():
    """Exact inference with the true kernel beats one that ignores the motion, on the same draws."""
    options = {"dim_x": 2, "batch": 16, "context": (40, 40), "targets": (20, 20), "points": None}
    stream = curves("advection-diffusion", speed=(0.8, 0.8), direction=(0.0, 0.0), **options)
    task, theta = stream.draw(0)
    wrong = theta.clone()
    wrong[:, stream.function.kernel.hyperparameters.index("speed")] = 1e-9
    right, other = (stream.function.true_hypothesis(t, task).marginal.mean() for t in (theta, wrong))
    assert right > other + 0.3


# ---- fields on grids


def test_a_field_moves_by_velocity_times_time():
    """Whole cells are an exact roll in both directions; half a cell forth and back is the field itself."""
    field = draw_fields((12, 16), [0], Flow((0.0, 0.0)), generator(), length=2.0)[0]
    later = evolve(field, [0.0, 1.0, 4.0], Flow((3.0, -2.0)), spacing=1.0)
    for solution, time in zip(later, (0, 1, 4), strict=True):
        assert distance(solution, field.roll((3 * time, -2 * time), (0, 1))) < 1e-12
    there = evolve(field, [0.5], Flow((1.0, 0.0)))[0]
    assert distance(there, field) > 0.01
    back = evolve(there, [0.5], Flow((-1.0, 0.0)))[0]
    assert distance(back, field) < 1e-3  # all but the highest wave, which half a cell does not determine
    fine = evolve(field, [2.0], Flow((0.5, 0.0)), spacing=0.5)[0]
    assert distance(fine, field.roll(2, 0)) < 1e-12  # units of the spacing


def test_diffusion_is_the_closed_form_of_a_wave_and_of_a_pulse():
    """A wave decays by exp(−κk²t); a narrow pulse becomes the Gaussian of variance 2κt."""
    n, kappa, time = 128, 0.8, 5.0
    x = torch.arange(n, dtype=torch.float64)
    k = 2 * math.pi * 3 / n
    wave = evolve((k * x).cos(), [time], Flow((2.0,), kappa, memory=4.0))[0]
    assert distance(wave, math.exp(-kappa * k**2 * time - time / 4) * (k * (x - 2.0 * time)).cos()) < 1e-12
    pulse = torch.zeros(n, dtype=torch.float64)
    pulse[n // 2] = 1.0
    spread = evolve(pulse, [time], Flow((0.0,), kappa))[0]
    gaussian = torch.exp(-((x - n // 2) ** 2) / (4 * kappa * time)) / math.sqrt(4 * math.pi * kappa * time)
    assert distance(spread, gaussian) < 1e-9
    assert distance(spread.sum(), torch.ones(())) < 1e-12  # nothing is lost


def test_solutions_compose():
    """Solving to t₁ and then for t₂ is solving to t₁ + t₂."""
    field, flow = torch.randn(6, 10, generator=generator(), dtype=torch.float64), Flow((0.3, 0.7), 0.2, 9.0)
    half = evolve(evolve(field, [1.3], flow)[0], [0.9], flow)[0]
    whole = evolve(field, [2.2], flow)[0]
    smooth = torch.fft.fftn(half - whole)
    smooth[3, :], smooth[:, 5] = 0, 0  # without the highest waves of even grids, whose direction is undetermined
    assert smooth.abs().max() < 1e-10


def test_forced_fields_have_the_covariance_of_the_kernel_at_every_lag():
    """Spectral draws on a grid much longer than a wave, against the closed form on the plane."""
    flow, length, cells, number = Flow((1.5, -0.5), 0.6, 5.0), 2.0, 32, 300
    fields = torch.stack(
        [draw_fields((cells, cells), [0, 1, 3], flow, generator(seed), length=length) for seed in range(number)]
    )
    kernel = AdvectionDiffusionKernel()
    hyper = {
        "length": length, "scale": 1.0, "memory": 5.0, "speed": math.hypot(1.5, -0.5),
        "direction": math.atan2(-0.5, 1.5), "diffusivity": 0.6,
    }  # fmt: skip
    for first, second, lag in ((0, 0, 0.0), (1, 1, 0.0), (0, 1, 1.0), (1, 2, 2.0), (0, 2, 3.0)):
        for h in ((0, 0), (1, 0), (2, -1), (0, 3), (-2, 0)):
            products = (fields[:, first] * fields[:, second].roll((-h[0], -h[1]), (1, 2))).mean((1, 2))
            error = products.std() / number**0.5
            assert abs(products.mean() - covariance(kernel, lag, *h, **hyper)) < 4.5 * error


def test_the_spectrum_of_draws_stays_when_forced_and_decays_otherwise():
    flow, number, cells, length = Flow((0.4,), 0.5, 20.0), 300, 24, 2.0
    k = 2 * math.pi * torch.fft.fftfreq(cells, dtype=torch.float64)
    spectrum = torch.exp(-0.5 * length**2 * k**2)
    spectrum = spectrum / spectrum.sum()
    for forced in (True, False):
        fields = torch.stack(
            [draw_fields((cells,), [0, 2.0], flow, generator(seed), length, forced=forced) for seed in range(number)]
        )
        power = torch.fft.fft(fields).abs().square() / cells**2  # [draws t k]
        decay = torch.ones(cells) if forced else torch.exp(-2 * 2.0 * (0.5 * k**2 + 1 / 20))
        for now, expected in ((power[:, 0], spectrum), (power[:, 1], spectrum * decay)):
            error = now.std(0) / number**0.5
            inner = torch.arange(cells) != cells // 2
            assert ((now.mean(0) - expected).abs() <= 4.5 * error + 1e-12)[inner].all()


def test_unforced_draws_solve_the_equation():
    flow, times = Flow((0.7, 0.2), 0.3, 8.0), [0, 0.5, 2.0]
    fields = draw_fields((9, 15), times, flow, generator(), length=1.5, forced=False)
    assert distance(fields, evolve(fields[0], times, flow)) < 1e-12
    same = draw_fields((9, 15), times, flow, generator(), length=1.5, forced=False)
    assert torch.equal(fields, same)


# ---- bad options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"flow": Flow((1.0,))}, "velocity must be 2 numbers"), ({"flow": Flow((1.0, math.nan))}, "velocity must be 2"),
     ({"flow": Flow((1.0, 0.0), -0.1)}, "diffusivity must be a number of at least 0"),
     ({"flow": Flow((1.0, 0.0), 0.1, 0.0)}, "memory must be a positive time"),
     ({"times": [0, 2, 1]}, "times must increase"), ({"times": []}, "at least one"), ({"times": [-1.0]}, "at least 0"),
     ({"length": 0.5}, "at least the spacing of the grid"), ({"spacing": 0.0}, "spacing must be a positive number"),
     ({"shape": (4, 0)}, "at least one cell"), ({"shape": ()}, "at least one cell")],
)  # fmt: skip
def test_fields_that_cannot_be_drawn(arguments, message, unchecked):
    valid = {"shape": (8, 8), "times": [0, 1], "flow": Flow((1.0, 0.0)), "random": generator()}
    with pytest.raises(FillinError, match=message):
        draw_fields(**{**valid, **arguments})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"function": "gneiting", "interaction": (0.5, 1.5)}, "interaction must be at most 1"),
     ({"function": "gneiting", "interaction": (0.0, 1.0)}, "0 < low"),
     ({"function": "space-time", "memory": (2.0, 1.0)}, "memory must be a range"),
     ({"function": "advection-diffusion", "direction": (3.0, 1.0)}, "direction must be a range of angles"),
     ({"function": "advection-diffusion", "speed": 1.0}, "speed must be a range"),
     ({"function": "space-time", "speed": (0.1, 1.0)}, "speed")],
)  # fmt: skip
def test_bad_options_of_kernels(options, message, unchecked):
    with pytest.raises(FillinError, match=message):
        curves(dim_x=3, **options)


def test_a_flow_in_three_dimensions_of_space_is_refused():
    with pytest.raises(FillinError, match="use dim_x=2 or dim_x=3"):
        curves("advection-diffusion", dim_x=4).task(0)
    assert curves("gneiting", dim_x=4).task(0).yt.isfinite().all()
