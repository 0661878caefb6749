"""Channels of an image that inform each other where they are missing separately."""

import numpy as np
import pytest
import torch
from PIL import Image

import fillin
from fillin.cli import main
from fillin.errors import FillinError
from fillin.filling.image.channel_regression import complete_channels
from fillin.filling.image.channels import (
    correlate_channels,
    draw_process,
    fit_model,
    krige_channels,
    predict_cells,
)


@pytest.fixture(scope="module")
def surface():
    """A filler with random weights: pixels without any channel are not what these tests are about."""
    torch.manual_seed(0)
    return fillin.create("filler", dim_x=2, size="small", layers=1).eval()


def make_photo(h: int = 20, w: int = 24, seed: int = 0):
    """Colours of three channels that share their edges, in other shares."""
    random = np.random.default_rng(seed)
    grey = np.cumsum(np.cumsum(random.normal(size=(h, w)), 0), 1)
    grey = (grey - grey.min()) / np.ptp(grey)
    tint = np.linspace(0, 0.1, w)[None, :, None] * np.array([1.0, -0.5, 0.3])
    return (0.1 + 0.7 * grey[..., None] * np.array([1.0, 0.9, 0.7]) + tint).clip(0, 1)


def make_bayer(h: int = 20, w: int = 24):
    observed = np.zeros((h, w, 3), bool)
    observed[::2, ::2, 1] = observed[1::2, 1::2, 1] = True
    observed[::2, 1::2, 0] = observed[1::2, ::2, 2] = True
    return observed


def rmse(completed, photo, observed):
    return float(np.sqrt(np.square(completed - photo)[~observed].mean()))


def test_other_channels_inform(surface):
    photo, observed = make_photo(), np.ones((20, 24, 3), bool)
    observed[5:13, 8:16, 0] = False
    joint = fillin.complete(photo, observed=observed, model=surface)
    level = photo[observed[..., 0], 0].mean()
    assert rmse(joint.mean, photo, observed) < 0.1 * rmse(np.full_like(photo, level), photo, observed)
    assert (joint.mean[observed] == photo[observed]).all()
    assert (joint.std[observed] == 0).all()
    assert (joint.std[~observed] > 0).all()


def test_nan_in_a_channel_is_the_same_as_not_observed(surface):
    photo, observed = make_photo(), make_bayer()
    first = fillin.complete(photo, observed=observed, model=surface)
    second = fillin.complete(np.where(observed, photo, np.nan), model=surface)
    assert np.array_equal(first.mean, second.mean)


def test_missing_values_are_never_read():
    photo, observed = make_photo(), make_bayer()
    other = np.where(observed, photo, 0.123)
    first, second = complete_channels(photo, observed), complete_channels(other, observed)
    assert np.array_equal(first.mean, second.mean)


def test_a_permutation_of_channels_permutes_the_result():
    photo, observed = make_photo(), make_bayer()
    order = [2, 0, 1]

    def complete(values, seen):
        out = values.copy()
        prediction = complete_channels(values, seen)
        out[tuple(prediction.cells.T)] = prediction.mean
        return out

    found = complete(photo, observed)[..., order]
    assert np.allclose(complete(photo[..., order], observed[..., order]), found, atol=1e-9)


def test_grey_as_colour_has_equal_channels():
    grey = np.repeat(make_photo()[..., :1], 3, 2)
    observed = np.random.default_rng(0).random(grey.shape) < 0.6
    observed[..., 0] |= ~observed.any(2)
    prediction = complete_channels(grey, observed)
    truth = grey[tuple(prediction.cells.T)]
    assert np.abs(prediction.mean - truth).max() < 0.02  # each pixel shows its grey in one channel


def test_equal_surroundings_have_equal_weights():
    photo, observed = make_photo(), make_bayer()
    model = fit_model(photo, observed, 0.0)
    inside = np.array([[8, 8, 0], [10, 12, 0]])
    image = np.roll(photo, (-2, -4), (0, 1))  # the surroundings of the second cell, moved to the first
    (first, _), (_, second) = (predict_cells(model, part[None], observed, inside)[0][0] for part in (image, photo))
    assert first == pytest.approx(second)
    assert np.ptp(predict_cells(model, photo[None], observed, inside)[1]) < 1e-9


def test_an_observed_value_is_predicted_without_itself():
    photo, observed = make_photo(), np.ones((20, 24, 3), bool)
    model, cell, other = fit_model(photo, observed, 0.0), np.array([[4, 5, 1]]), photo.copy()
    other[4, 5, 1] += 1
    assert np.ptp(predict_cells(model, np.stack([photo, other]), observed, cell)[0]) < 1e-12


def test_covariances_of_pairs_are_those_of_a_loop():
    random = np.random.default_rng(0)
    observed = random.random((5, 6, 2)) < 0.7
    values = np.where(observed, random.normal(size=observed.shape), 0)
    distance, pairs, sums = correlate_channels(values, observed)
    at = np.argwhere(np.ones((5, 6), bool))
    apart = np.sqrt(np.square(at[:, None] - at).sum(-1))
    flat, seen = values.reshape(-1, 2), observed.reshape(-1, 2).astype(float)
    for r in (0, 3):
        near = np.isclose(apart, distance[r]).astype(float)
        assert np.allclose(sums[r], np.einsum("pq,pk,ql->kl", near, flat, flat))
        assert np.allclose(pairs[r], np.einsum("pq,pk,ql->kl", near, seen, seen))


def test_draws_have_the_covariance_of_the_model():
    model = fit_model(make_photo(), make_bayer(), 0.5)
    random = np.random.default_rng(0)
    draws = np.stack([draw_process(model, (3, 4, 3), random)[1, 2] for _ in range(1_500)])
    expected = model.covariances[..., 0] + model.noise * np.eye(3)
    assert np.abs(np.cov(draws.T) - expected).max() < 0.15 * expected.max()


def correlate_errors(prediction, first: int, second: int) -> float:
    """Return the correlation of the sampled errors of two channels in the same pixels."""
    error = prediction.samples - prediction.mean
    a, b = (error[:, prediction.cells[:, 2] == channel] for channel in (first, second))
    return np.mean(a * b) / np.sqrt(np.mean(a**2) * np.mean(b**2))


@pytest.mark.parametrize("sign", [1, -1])
def test_samples_of_regressed_channels_go_together_as_what_is_left(sign):
    """Regressions on the first channel leave errors of the others with a correlation of ± .94."""
    random, photo = np.random.default_rng(3), make_mixed(1)
    common = 0.03 * random.normal(size=(28, 36))
    for channel, factor in ((1, 1), (2, sign)):
        photo[..., channel] = 0.2 + 0.6 * photo[..., 0] + factor * common + 0.0075 * random.normal(size=(28, 36))
    observed = np.ones((28, 36, 3), bool)
    observed[:, 18:, 1:] = False
    prediction = complete_channels(photo, observed, n_samples=100)
    assert sign * correlate_errors(prediction, 1, 2) > 0.7


def test_samples_agree_with_the_standard_deviation_and_go_together():
    photo, observed = make_photo(), np.ones((20, 24, 3), bool)
    observed[5:13, 8:16, :2] = False
    _, prediction = krige_channels(photo, observed, n_samples=200)
    error = prediction.samples - prediction.mean
    assert np.median(error.std(0) / prediction.std) == pytest.approx(1, abs=0.15)
    assert correlate_errors(prediction, 0, 1) > 0.3


def test_samples_keep_observed_values(surface):
    photo, observed = make_photo(), make_bayer()
    observed[6:9, 6:9] = False
    completed = fillin.complete(photo, observed=observed, model=surface, samples=2)
    assert np.allclose(completed.samples[:, observed], photo[observed], atol=1e-12)
    assert np.ptp(completed.samples[:, ~observed], 0).max() > 0
    assert np.isfinite(completed.mean).all()


def test_one_observed_value_of_a_channel_is_enough(surface):
    photo, observed = make_photo(), np.ones((20, 24, 3), bool)
    observed[..., 2] = False
    observed[3, 3, 2] = True
    completed = fillin.complete(photo, observed=observed, model=surface)
    assert np.isfinite(completed.mean).all()
    assert abs(completed.mean[3, 4, 2] - photo[3, 3, 2]) < 0.2


def test_an_enlarged_image_uses_all_channels(surface):
    photo = make_photo(8, 8)
    assert fillin.complete(photo, observed=make_bayer(8, 8), scale=2, model=surface).mean.shape == (16, 16, 3)


@pytest.mark.parametrize(
    ("image", "observed", "message"),
    [
        (np.where([True, True, False], make_photo(), np.nan), None, "no value of blue is observed"),
        (np.where([True, True, False], make_photo(), np.nan), make_bayer(), "where observed is True"),
        (2 * make_photo(), make_bayer(), "colours from 0 to 1"),
        (make_photo(), make_bayer()[..., :2], "observed must be True or False"),
    ],
)
def test_bad_channels_are_errors(image, observed, message, surface):
    with pytest.raises(FillinError, match=message):
        fillin.complete(image, observed=observed, model=surface)


def test_masks_in_colour_are_read(tmp_path, surface, capsys):
    fillin.save(surface, tmp_path / "model")
    photo, observed = make_photo(10, 12), make_bayer(10, 12)
    Image.fromarray((255 * photo).astype(np.uint8)).save(tmp_path / "raw.png")
    Image.fromarray((255 * observed).astype(np.uint8)).save(tmp_path / "bayer.png")
    options = ["--mask", str(tmp_path / "bayer.png"), "--samples", "0", "--model", str(tmp_path / "model")]
    assert main(["complete", str(tmp_path / "raw.png"), *options]) == 0
    assert "120 pixels lack some channels" in capsys.readouterr().out
    completed = np.asarray(Image.open(tmp_path / "raw.completed.png"))
    assert (completed[observed] == (255 * photo).astype(np.uint8)[observed]).all()


def test_arrays_are_read(tmp_path, surface, capsys):
    fillin.save(surface, tmp_path / "model")
    photo, observed = make_photo(10, 12), make_bayer(10, 12)
    np.save(tmp_path / "array.npy", np.where(observed, photo, np.nan))
    np.save(tmp_path / "whole.npy", photo)
    options = ["--samples", "0", "--model", str(tmp_path / "model")]
    assert main(["complete", str(tmp_path / "array.npy"), *options]) == 0
    completed = np.asarray(Image.open(tmp_path / "array.completed.png"))
    assert np.abs(completed[observed] / 255 - photo[observed]).max() < 0.003
    capsys.readouterr()
    assert main(["complete", str(tmp_path / "array.npy"), "--keep", "0.5", *options]) == 2
    assert "--keep is for PNG and JPEG" in capsys.readouterr().err
    assert main(["complete", str(tmp_path / "whole.npy"), *options]) == 2
    assert "no value is NaN" in capsys.readouterr().err
    (tmp_path / "word.npy").write_text("no array")
    assert main(["complete", str(tmp_path / "word.npy"), *options]) == 2
    assert "is no array of NumPy" in capsys.readouterr().err


def test_attention_needs_a_whole_pixel(tmp_path, surface, capsys):
    fillin.save(surface, tmp_path / "model")
    np.save(tmp_path / "array.npy", np.where(make_bayer(), make_photo(), np.nan))
    arguments = ["complete", str(tmp_path / "array.npy"), "--attend", "3,3", "--model", str(tmp_path / "model")]
    assert main(arguments) == 2
    assert "no pixel is observed in all channels" in capsys.readouterr().err


def make_mixed(seed: int, noise: float = 0.01):
    """Two smooth channels that are unrelated, and a third that is a sum of both."""
    random = np.random.default_rng(seed)
    waves = np.linspace(0, 5, 36)[None, :, None] * random.uniform(0.5, 1.5, (1, 1, 2))
    waves = waves + np.linspace(0, 4, 28)[:, None, None] * random.uniform(-1.5, 1.5, (1, 1, 2))
    both = 0.5 + 0.2 * np.sin(waves + random.uniform(0, 6, 2))
    third = 0.1 + both @ np.array([0.7, 0.5]) + noise * random.normal(size=both.shape[:2])
    return np.concatenate([both, third[..., None]], 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_channel_is_predicted_far_from_its_observed_values(seed):
    photo, observed = make_mixed(seed), np.ones((28, 36, 3), bool)
    observed[:, 18:, 2] = False
    prediction = complete_channels(photo, observed, n_samples=100)
    truth = photo[tuple(prediction.cells.T)]
    error = prediction.mean - truth
    assert np.sqrt(np.square(error).mean()) < 0.02  # the noise is .01, the standard deviation of the channel .17
    assert 0.8 < (np.abs(error) < 1.96 * prediction.std).mean() <= 1
    ratio = prediction.samples.std(0) / prediction.std
    assert 0.8 < np.median(ratio) < 1.2


def test_unrelated_channels_are_not_regressed():
    random = np.random.default_rng(0)
    photo, observed = make_mixed(0), np.ones((28, 36, 3), bool)
    photo[..., 2] = 0.5 + 0.2 * np.sin(np.linspace(0, 7, 28))[:, None] + 0.001 * random.normal(size=(28, 36))
    observed[8:12, 8:12, 2] = False
    _, kriged = krige_channels(photo, observed)
    prediction = complete_channels(photo, observed)
    truth = photo[tuple(prediction.cells.T)]
    assert np.abs(prediction.mean - truth).mean() <= 1.05 * np.abs(kriged.mean - truth).mean() + 1e-3
