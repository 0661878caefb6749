"""Predictive distributions, their scores and the Gaussian process against scipy, quadrature and Monte Carlo."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from fillin import metrics
from fillin.gp import GPPosterior, conditional
from fillin.predictive import Categorical, GaussianMixture, check_levels
from fillin.warp import BoundsWarp, PiecewiseLinearWarp


def random_mixture(batch: tuple[int, ...] = (5,), components: int = 3, seed: int = 0) -> GaussianMixture:
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(components, 5.0), batch).clip(0.02)  # no component is rare
    shape = (*batch, components)
    return GaussianMixture(
        weights / weights.sum(-1, keepdims=True), random.normal(size=shape), random.uniform(0.2, 1.5, shape)
    )


def to_scipy(mixture: GaussianMixture, i: int):
    """Functions pdf and cdf of row i."""
    weights, means, stds = mixture.weights[i], mixture.means[i], mixture.stds[i]
    return tuple(lambda y, f=f: float((weights * f(y, means, stds)).sum()) for f in (stats.norm.pdf, stats.norm.cdf))


@pytest.fixture
def log_warp() -> PiecewiseLinearWarp:
    return PiecewiseLinearWarp.fit(np.random.default_rng(1).lognormal(size=400), "quantile")


# ---- Gaussian mixtures


def test_moments_density_and_cdf_are_those_of_scipy():
    mixture = random_mixture()
    y = np.linspace(-2, 2, 5)
    for i in range(5):
        pdf, cdf = to_scipy(mixture, i)
        mean = integrate.quad(lambda v, pdf=pdf: v * pdf(v), -20, 20, limit=200)[0]
        variance = integrate.quad(lambda v, pdf=pdf, m=mean: (v - m) ** 2 * pdf(v), -20, 20, limit=200)[0]
        assert mixture.mean[i] == pytest.approx(mean, abs=1e-7)
        assert mixture.std[i] == pytest.approx(variance**0.5, rel=1e-7)
        assert mixture.cdf(y)[i] == pytest.approx(cdf(y[i]), rel=1e-12)
        assert mixture.log_prob(y)[i] == pytest.approx(np.log(pdf(y[i])), rel=1e-10)


def test_log_density_far_in_the_tail_is_finite():
    mixture = random_mixture()
    expected = [
        np.max(np.log(w) + stats.norm.logpdf(1e4, m, s))
        for w, m, s in zip(mixture.weights, mixture.means, mixture.stds, strict=True)
    ]
    np.testing.assert_allclose(mixture.log_prob(np.full(5, 1e4)), expected, rtol=1e-6)


@pytest.mark.parametrize("level", [1e-6, 0.025, 0.5, 0.9, 1 - 1e-6])
def test_quantiles_invert_the_cdf(level, log_warp):
    for mixture in (random_mixture(), random_mixture().transformed(log_warp)):
        np.testing.assert_allclose(mixture.cdf(mixture.quantile(level)), level, rtol=1e-6)
    single = GaussianMixture(np.ones((1, 1)), np.array([[2.0]]), np.array([[3.0]]))
    assert single.quantile(level)[0] == pytest.approx(stats.norm.ppf(level, 2, 3), rel=1e-9)


def test_quantiles_of_several_levels_have_them_first():
    mixture = random_mixture((4, 2))
    levels = np.array([0.1, 0.5, 0.9])
    quantiles = mixture.quantiles(levels)
    assert quantiles.shape == (3, 4, 2)
    np.testing.assert_array_equal(quantiles[1], mixture.quantile(0.5))


def test_samples_follow_the_cdf(log_warp):
    for mixture in (random_mixture(), random_mixture().transformed(log_warp)):
        samples = mixture.sample(4_000, np.random.default_rng(0))
        assert samples.shape == (5, 4_000)
        for i in range(5):
            u = mixture[np.full(4_000, i)].cdf(samples[i])
            assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_rare_components_count_in_the_density_but_not_in_the_moments():
    weights = np.array([[0.999, 0.001]])
    mixture = GaussianMixture(weights, np.array([[0.0, 5.0]]), np.array([[1.0, 100.0]]))
    assert (mixture.mean[0], mixture.std[0]) == (0, pytest.approx(1))
    tail = 0.001 * stats.norm.sf(50, 5, 100)
    assert 1 - mixture.cdf(np.array([50.0]))[0] == pytest.approx(tail, rel=1e-6)
    untrimmed = GaussianMixture(weights, mixture.means, mixture.stds, moment_weights=weights)
    variance = 0.999 * 1 + 0.001 * (100**2 + 25) - 0.005**2
    assert (untrimmed.mean[0], untrimmed.std[0]) == (pytest.approx(0.005), pytest.approx(variance**0.5))


def test_the_standard_deviation_of_tiny_values_does_not_underflow():
    mixture = random_mixture()
    tiny = mixture.rescaled(0.0, 1e-250)
    np.testing.assert_allclose(tiny.std, 1e-250 * mixture.std, rtol=1e-12)


def test_a_transformed_mixture_is_that_of_the_transformed_samples(log_warp):
    """A quantile warp of log-normal values: density, mean and std by quadrature and Monte Carlo."""
    mixture = random_mixture()
    warped = mixture.transformed(log_warp)
    y = np.linspace(0.2, 3, 5)
    step = 1e-6
    slope = (warped.cdf(y + step) - warped.cdf(y - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(warped.log_prob(y)), slope, rtol=1e-4)
    np.testing.assert_allclose(warped.quantile(0.3), log_warp.inverse(mixture.quantile(0.3)))
    samples = warped.sample(200_000, np.random.default_rng(0))
    mean, std = warped.moments()
    np.testing.assert_array_equal((warped.mean, warped.std), (mean, std))
    np.testing.assert_allclose(mean, samples.mean(-1), atol=5 * (samples.std(-1) / 200_000**0.5).max())
    np.testing.assert_allclose(std, samples.std(-1), rtol=0.02)


def test_an_affine_warp_is_a_change_of_units():
    warp = PiecewiseLinearWarp.fit(np.array([10.0, 14.0]))  # mean 12, std 2
    warped, plain = random_mixture().transformed(warp), random_mixture().rescaled(12.0, 2.0)
    y = np.linspace(8, 16, 5)
    for mixture in (warped, warped.unwarped()):
        for name in ("mean", "std"):
            np.testing.assert_allclose(getattr(mixture, name), getattr(plain, name), rtol=1e-12)
        for method in (GaussianMixture.cdf, GaussianMixture.log_prob, metrics.crps):
            np.testing.assert_allclose(method(mixture, y), method(plain, y), rtol=1e-9)


def test_no_quantile_leaves_the_bounds():
    warp = BoundsWarp.fit(np.array([0.1, 0.5, 2.0]), (0.0, None))
    mixture = random_mixture().rescaled(-1.0, 2.0).transformed(warp)
    assert (mixture.quantiles(np.array([1e-6, 0.5, 1 - 1e-6])) >= 0).all()
    assert (mixture.sample(100, np.random.default_rng(0)) >= 0).all()


def test_a_blend_is_the_weighted_mixture():
    parts = [random_mixture(seed=0), random_mixture(seed=1)]
    shares = np.array([np.linspace(0, 1, 5), 1 - np.linspace(0, 1, 5)])
    blend = GaussianMixture.blend(parts, shares)
    y = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(blend.cdf(y), sum(s * p.cdf(y) for s, p in zip(shares, parts, strict=True)))
    mean = sum(s * p.mean for s, p in zip(shares, parts, strict=True))
    second = sum(s * (p.std**2 + p.mean**2) for s, p in zip(shares, parts, strict=True))
    np.testing.assert_allclose(blend.mean, mean, atol=1e-12)
    np.testing.assert_allclose(blend.std, np.sqrt(second - mean**2), rtol=1e-9)


def test_a_small_share_keeps_its_components_in_the_moments():
    """Rare components are trimmed within a part, so a share of 0.5 % still counts."""
    near, far = (GaussianMixture(np.ones((1, 1)), np.full((1, 1), m), np.ones((1, 1))) for m in (0.0, 100.0))
    blend = GaussianMixture.blend([near, far], np.array([[0.995], [0.005]]))
    assert blend.mean[0] == pytest.approx(0.5)


def test_indexing_and_concatenation_are_inverse(log_warp):
    mixture = random_mixture((6,)).transformed(log_warp)
    y = np.linspace(0.5, 2, 6)
    pieces = [mixture[:2], mixture[2:5], mixture[5:]]
    whole = GaussianMixture.concatenate(pieces)
    np.testing.assert_array_equal(whole.log_prob(y), mixture.log_prob(y))
    assert whole.warp is mixture.warp
    np.testing.assert_array_equal(mixture[np.array([4, 0])].mean, mixture.mean[[4, 0]])
    trimmed = GaussianMixture(mixture.weights, mixture.means, mixture.stds, mixture.weights)
    again = GaussianMixture.concatenate([trimmed[:3], trimmed[3:]])
    np.testing.assert_array_equal(again.moment_weights, trimmed.moment_weights)


def test_a_widened_mixture_keeps_its_component_means():
    single = GaussianMixture(np.ones((2, 1)), np.array([[1.0], [2.0]]), np.ones((2, 1)))
    wide = single.widened(3.0)
    np.testing.assert_array_equal((wide.mean, wide.std), ([1, 2], [3, 3]))


# ---- categorical distributions


def test_categorical_modes_probabilities_and_samples():
    probabilities = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]])
    classes = Categorical(probabilities, ("a", "b", "c"))
    assert classes.mode.tolist() == [1, 0]
    assert classes.confidence.tolist() == [0.5, 0.7]
    assert classes.probability_of(["c", "new"]).tolist() == [0.3, 0.0]
    codes = classes.sample(40_000, np.random.default_rng(0))
    for row, expected in zip(codes, probabilities, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 40_000, expected, atol=0.01)
    assert classes[:1].labels == ("a", "b", "c")
    np.testing.assert_array_equal(classes[1:].probabilities, probabilities[1:])


def test_levels_are_probabilities():
    assert check_levels(None) == []
    assert check_levels(0.5) == [0.5]
    for wrong in ([0.0], [1.0], [[0.5]], [], [np.nan]):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            check_levels(wrong)
    with pytest.raises(TypeError, match="must be probabilities"):
        check_levels("half")


# ---- scores


def crps_by_integration(mixture: GaussianMixture, i: int, y: float, low: float, high: float) -> float:
    """∫ (F(z) − 1[y ≤ z])² dz."""
    row = mixture[i : i + 1]
    below, above = np.linspace(low, y, 100_001), np.linspace(y, high, 100_001)  # the integrand jumps at y
    squares = (row.cdf(below) ** 2, below), ((1 - row.cdf(above)) ** 2, above)
    return float(sum(integrate.trapezoid(values, z) for values, z in squares))


@pytest.mark.parametrize("components", [1, 3])
def test_crps_is_its_integral(components):
    mixture = random_mixture(components=components)
    y = np.linspace(-3, 3, 5)
    expected = [crps_by_integration(mixture, i, y[i], -25, 25) for i in range(5)]
    np.testing.assert_allclose(metrics.crps(mixture, y), expected, rtol=1e-5)


def test_crps_through_a_warp_is_its_integral(log_warp):
    mixture = random_mixture().transformed(log_warp)
    y = np.linspace(0.3, 4, 5)
    expected = [crps_by_integration(mixture, i, y[i], -5, 60) for i in range(5)]
    np.testing.assert_allclose(metrics.crps(mixture, y), expected, rtol=0.03)


def test_crps_of_a_certain_prediction_is_the_absolute_error():
    certain = GaussianMixture(np.ones((3, 1)), np.zeros((3, 1)), np.full((3, 1), 1e-12))
    np.testing.assert_allclose(metrics.crps(certain, np.array([-2.0, 0.5, 7.0])), [2, 0.5, 7], rtol=1e-9)


def test_calibrated_predictions_have_uniform_pit_and_nominal_coverage():
    mixture = random_mixture((20_000,))
    u = metrics.pit(mixture, mixture.sample(1, np.random.default_rng(0))[:, 0])
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert metrics.kolmogorov_smirnov(u) == pytest.approx(stats.kstest(u, "uniform").statistic)
    for level, share in metrics.coverage(u).items():
        p = int(level) / 100
        assert share == pytest.approx(p, abs=4 * (p * (1 - p) / len(u)) ** 0.5)
    histogram = metrics.pit_histogram(u)
    assert sum(histogram) == pytest.approx(1)
    np.testing.assert_allclose(histogram, 0.1, atol=0.01)
    narrow = metrics.pit(mixture.widened(0.5), mixture.sample(1, np.random.default_rng(0))[:, 0])
    assert metrics.coverage(narrow)["80"] < 0.75


def test_calibration_error_is_the_gap_of_confidence_and_accuracy():
    n, random = 60_000, np.random.default_rng(0)
    confidence = random.uniform(0.5, 1, n)
    classes = Categorical(np.stack([confidence, 1 - confidence], 1))
    calibrated = (random.random(n) > confidence).astype(int)
    assert metrics.calibration_error(classes, calibrated) < 0.01
    assert metrics.calibration_error(classes, np.zeros(n, int)) == pytest.approx(1 - confidence.mean(), abs=1e-9)


# ---- Gaussian process


@pytest.fixture
def gaussian():
    """Covariance of 9 variables, noise on the first 6, and values of two outputs there."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-2, 2, 9))
    gram = np.exp(-0.5 * (x[:, None] - x) ** 2)
    return gram, 0.1, random.normal(size=(6, 2))


def test_the_log_likelihood_is_that_of_a_multivariate_normal(gaussian):
    gram, noise, y = gaussian
    covariance = gram[:6, :6] + noise * np.eye(6)
    posterior = GPPosterior.condition(torch.from_numpy(gram[:6, :6]), noise, torch.from_numpy(y))
    expected = sum(stats.multivariate_normal(np.zeros(6), covariance).logpdf(y[:, k]) for k in range(2))
    assert float(posterior.log_likelihood.sum()) == pytest.approx(expected, rel=1e-10)
    first = sum(stats.multivariate_normal(np.zeros(4), covariance[:4, :4]).logpdf(y[:4, k]) for k in range(2))
    assert float(posterior.log_likelihood[:4].sum()) == pytest.approx(first, rel=1e-10)  # chain rule


def test_the_posterior_is_the_conditional_of_a_multivariate_normal(gaussian):
    gram, noise, y = gaussian
    gain = gram[6:, :6] @ np.linalg.inv(gram[:6, :6] + noise * np.eye(6))
    mean, covariance = gain @ y, gram[6:, 6:] - gain @ gram[:6, 6:]
    posterior = GPPosterior.condition(torch.from_numpy(gram[:6, :6]), noise, torch.from_numpy(y))
    cross, prior = torch.from_numpy(gram[:6, 6:].copy()), torch.from_numpy(gram[6:, 6:].copy())
    joint_mean, joint_covariance = posterior.predict_jointly(cross, prior)
    marginal_mean, variance = posterior.predict(cross, prior.diagonal())
    for result, expected in (
        (joint_mean, mean), (marginal_mean, mean), (joint_covariance, covariance), (variance, covariance.diagonal()),
        (posterior.weights(cross), gain),
    ):  # fmt: skip
        np.testing.assert_allclose(result, expected, atol=1e-10)
    noisy = gram + np.diag([noise] * 6 + [1e-9] * 3)
    mean_of_last, factor = conditional(torch.from_numpy(noisy), torch.from_numpy(y))
    np.testing.assert_allclose(mean_of_last, mean, atol=1e-8)
    np.testing.assert_allclose(factor @ factor.mT, covariance, atol=1e-7)


def test_leave_one_out_equals_conditioning_on_the_other_rows(gaussian):
    gram, noise, y = gaussian
    covariance = gram[:6, :6] + noise * np.eye(6)
    residual, std = GPPosterior.from_covariance(torch.from_numpy(covariance), torch.from_numpy(y)).leave_one_out()
    for i in range(6):
        rest = np.arange(6) != i
        gain = covariance[i, rest] @ np.linalg.inv(covariance[np.ix_(rest, rest)])
        np.testing.assert_allclose(residual[i], y[i] - gain @ y[rest], atol=1e-10)
        assert float(std[i]) == pytest.approx((covariance[i, i] - gain @ covariance[rest, i]) ** 0.5, rel=1e-10)


def test_trimmed_moments_leave_out_far_components_of_little_weight():
    weights = np.array([[0.95, 0.05], [0.6, 0.4]])
    means, stds = np.array([[1.0, 500.0], [1.0, 500.0]]), np.ones((2, 2))
    mixture = GaussianMixture(weights, means, stds)
    trimmed = mixture.trimmed()
    assert np.allclose(trimmed.mean, [1.0, 200.6])
    assert np.allclose(trimmed.std[0], 1.0)
    assert np.allclose(trimmed.cdf(np.full(2, 3.0)), mixture.cdf(np.full(2, 3.0)))
    near = GaussianMixture(weights, np.array([[1.0, 2.0], [1.0, 2.0]]), stds)
    assert np.allclose(near.trimmed().mean, near.mean)
