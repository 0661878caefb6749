"""Image completion: observed pixels are kept, predictions are translation equivariant, and errors."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import ndtri

import fillin
from fillin.cli import main
from fillin.errors import FillinError, InputError
from fillin.filling.image.completion import ColourAxes, clip_moments
from fillin.filling.image.figures import attention_weights
from fillin.filling.image.pixel_context import PixelContext
from fillin.filling.image.read import read_file
from fillin.inference.tiles import split_into_tiles


def smooth_image(h=12, w=10, c=3):
    """Smooth image of bytes."""
    y, x = np.mgrid[0:h, 0:w]
    waves = np.stack([np.sin(x / 3 + k) + np.cos(y / 4 - k) for k in range(c)], -1)
    return np.round(127.5 + 60 * waves).astype(np.uint8)


def random_mask(shape, share=0.4, seed=0):
    return np.random.default_rng(seed).random(shape) < share


@pytest.fixture(scope="module")
def fields():
    return fillin.load("sheet-2d")


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(smooth_image()).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def run(*arguments):
    return main(["complete", *map(str, arguments), "--samples", "0"])


def test_observed_pixels_are_kept_and_others_beat_the_mean_colour(fields):
    image, observed = smooth_image(), random_mask((12, 10))
    result = fillin.complete(image, observed, samples=2, model=fields)
    truth = image / 255
    assert (result.mean[observed] == truth[observed]).all()
    assert (result.samples[:, observed] == truth[observed]).all()
    assert (result.std[observed] == 0).all()
    assert (result.std[~observed] > 0).all()
    flat = np.abs(truth[observed].mean(0) - truth[~observed]).mean()
    assert np.abs(result.mean - truth)[~observed].mean() < 0.4 * flat
    for part in (result.mean, result.std, result.samples):
        assert part.min() >= 0
        assert part.max() <= 1
    assert result.samples.shape == (2, 12, 10, 3)
    few = fillin.complete(image, random_mask((12, 10), 0.15), samples=2, model=fields)
    for completed in (result, few):
        apart = np.abs(completed.samples[0] - completed.samples[1]).max()
        assert apart > completed.std[completed.std > 0].mean()
    assert apart > 0.01


def test_shares_of_tiles_sum_to_one_and_change_smoothly():
    cells = np.argwhere(np.ones((40, 40), bool))
    total, count = np.zeros(len(cells)), 0
    weights = {}
    for number, tile in enumerate(split_into_tiles((cells + 0.5 - np.array([3, 5])) / 12 - 0.5, 1 / 3)):
        total[tile.rows] += tile.share
        count += len(tile.rows)
        weights[number] = np.zeros((40, 40))
        weights[number][tuple(cells[tile.rows].T)] = tile.share
    np.testing.assert_allclose(total, 1)
    assert count < 2 * len(cells)  # few cells are predicted twice
    assert max(np.abs(np.diff(share, axis=0)).max() for share in weights.values()) < 0.5


@pytest.mark.parametrize("scale", [1, 2])
def test_completion_is_translation_equivariant(fields, scale):
    """Tiles move with the observed pixels."""
    observed = np.zeros((30, 30), bool)
    observed[4:18, 3:17] = random_mask((14, 14), 0.7)
    moved = np.roll(observed, (7, 9), (0, 1))
    image = smooth_image(30, 30, 1)[..., 0] / 255
    there = fillin.complete(image, observed, scale, model=fields)
    here = fillin.complete(np.roll(image, (7, 9), (0, 1)), moved, scale, model=fields)
    assert observed.sum() > PixelContext(fields, (30, 30), 1, np.zeros((1, 2)), np.zeros((1, 1, 1))).n_context
    cut, to = (
        np.s_[4 * scale : 18 * scale, 3 * scale : 17 * scale],
        np.s_[11 * scale : 25 * scale, 12 * scale : 26 * scale],
    )
    np.testing.assert_allclose(here.mean[to], there.mean[cut], atol=2e-4)
    np.testing.assert_allclose(here.std[to], there.std[cut], atol=2e-4)


@pytest.mark.parametrize("name", ["te-tnp", "convcnp"])
def test_translation_equivariant_models_ignore_absolute_locations(name):
    torch.manual_seed(1)
    model = fillin.create(name, dim_x=2, dim_y=1, size="small")
    image, observed = np.zeros((16, 16)), np.zeros((16, 16), bool)
    observed[2:8, 3:9] = random_mask((6, 6), 0.6)
    image[2:8, 3:9] = smooth_image(6, 6, 1)[..., 0] / 255
    there = fillin.complete(image, observed, model=model)
    here = fillin.complete(np.roll(image, (5, 4), (0, 1)), np.roll(observed, (5, 4), (0, 1)), model=model)
    np.testing.assert_allclose(here.mean[7:13, 7:13], there.mean[2:8, 3:9], atol=1e-4)


@pytest.mark.parametrize(("dim_y", "c"), [(1, 3), (3, 1), (3, 3), (1, 1)])
def test_grey_and_colour_images_work_with_any_number_of_outputs(dim_y, c):
    model = fillin.create("te-tnp", dim_x=2, dim_y=dim_y, size="small")
    result = fillin.complete(smooth_image(6, 5, c), random_mask((6, 5)), scale=2, model=model)
    assert result.mean.shape == result.std.shape == (12, 10, c)


@pytest.mark.parametrize("name", ["anp", "te-tnp-a", "tnp-nd"])
def test_samples_differ_and_are_determined_by_the_seed(name):
    model = fillin.create(name, dim_x=2, dim_y=1, size="small")

    def draw(seed):
        return fillin.complete(smooth_image(6, 6, 1), random_mask((6, 6)), samples=2, model=model, seed=seed).samples

    first = draw(0)
    assert (first == draw(0)).all()
    assert (first != draw(1)).any()
    assert (first[0] != first[1]).any()


def test_samples_are_coherent(fields):
    """Neighbours deviate from the mean to the same side, unlike independently drawn pixels."""
    observed = np.ones((20, 20), bool)
    observed[4:16, 4:16] = False
    result = fillin.complete(smooth_image(20, 20, 1), observed, samples=6, model=fields)
    residuals = ((result.samples - result.mean) / np.maximum(result.std, 1e-6))[:, 4:16, 4:16, 0]
    near = (residuals[:, 1:] * residuals[:, :-1]).mean() / (residuals**2).mean()
    assert near > 0.4


@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.1), (-0.2, 0.5), (1.3, 1.0), (1.0, 0.01), (0.3, 0.0)])
def test_clipped_moments_equal_those_of_clipped_values(mean, std):
    nodes = (np.arange(200_000) + 0.5) / 200_000
    y = (mean + std * ndtri(nodes)).clip(0, 1)
    moments = clip_moments(np.array([mean]), np.array([std]))
    np.testing.assert_allclose(np.ravel(moments), [y.mean(), y.std()], atol=1e-4)


def test_a_gap_in_a_constant_image_has_its_colour(fields):
    """All layers of tiles agree everywhere in a wide gap."""
    observed = np.ones((24, 24), bool)
    observed[4:, 5:20] = False
    result = fillin.complete(np.full((24, 24), 0.7), observed, model=fields)
    np.testing.assert_allclose(result.mean, 0.7, atol=0.01)


def test_rotation_of_colours_is_inverted():
    y = np.random.default_rng(0).random((50, 1)) + 0.05 * np.random.default_rng(1).random((50, 3))
    axes = ColourAxes.principal(y)
    np.testing.assert_allclose(axes.rotate_back(axes.rotate(y)), y)
    assert abs(np.corrcoef(axes.rotate(y).T) - np.eye(3)).max() < 0.01
    np.testing.assert_allclose(ColourAxes.channels(3).channel_std(y), y)
    np.testing.assert_allclose(axes.channel_std(np.ones((1, 3))), 1)  # equal along all axes is equal in all channels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": np.zeros((4, 4, 2))}, "h × w × 3"),
        ({"image": "x.png"}, "array of numbers"),
        ({"image": np.full((4, 4), 2.0)}, "from 0 to 1"),
        ({"observed": np.zeros((4, 4), bool)}, "nothing to complete from"),
        ({"observed": np.ones((4, 5), bool)}, "4 × 4 pixels"),
        ({"observed": np.ones((4, 4))}, "True or False"),
        ({"image": np.full((4, 4), np.nan), "observed": np.ones((4, 4), bool)}, "NaN at row 0"),
        ({"scale": 0}, "scale must be"),
        ({"scale": 1.5}, "scale must be"),
        ({"scale": 1000}, "smaller scale"),
        ({"samples": -1}, "samples must be"),
        ({"model": "sheet2d"}, "no model 'sheet2d'.* or 'sheet-2d'"),
        ({"model": "te-tnp-digit"}, "no model 'te-tnp-digit'.* or 'te-tnp-digits'"),
        ({"model": "curve"}, "dim_x=1"),
    ],
)
def test_bad_arguments(arguments, message, unchecked):
    with pytest.raises(FillinError, match=message):
        fillin.complete(**{"image": np.zeros((4, 4)), "observed": np.eye(4, dtype=bool), "scale": 1, **arguments})


def test_nan_pixels_are_missing():
    image = np.linspace(0, 1, 36).reshape(6, 6)
    observed = random_mask((6, 6))
    a, b = fillin.complete(np.where(observed, image, np.nan)), fillin.complete(image, observed)
    assert (a.mean == b.mean).all()


def test_old_names_of_the_observed_pixels(photo):
    image, observed = np.linspace(0, 1, 36).reshape(6, 6), random_mask((6, 6))
    with pytest.warns(DeprecationWarning, match="called observed"):
        old = fillin.complete(image, known=observed)
    assert (old.mean == fillin.complete(image, observed=observed).mean).all()
    written = []
    for name in ("--know", "--observed"):
        assert run(photo, name, "grid 3", "-o", photo.with_name("out.png"), "--force") == 0
        written.append(photo.with_name("out.png").read_bytes())
    assert written[0] == written[1]


def test_output_files(photo, capsys):
    before = photo.read_bytes()
    assert main(["complete", str(photo), "--keep", "0.4", "--samples", "2"]) == 0
    assert {p.name for p in photo.parent.iterdir()} == {
        "photo.png", "photo.completed.png", "photo.completed.std.png", "photo.completed.samples.png",
        "photo.completed.sheet.png",
    }  # fmt: skip
    assert photo.read_bytes() == before
    written = np.array(Image.open(photo.with_name("photo.completed.png")))
    same = (written == smooth_image()).all(2).mean()
    assert 0.4 <= same < 1
    assert np.array(Image.open(photo.with_name("photo.completed.samples.png"))).shape == (12, 2 * 10 + 4, 3)
    assert "RMSE" in capsys.readouterr().out
    assert run(photo, "--keep", "0.4") == 2
    assert "exists; replace it with --force" in capsys.readouterr().err
    assert run(photo, "--keep", "0.4", "--force") == 0


def test_attention_weights_sum_to_one_and_are_drawn(photo, fields, capsys):
    """Softmax weights of the context points of one pixel."""
    part = read_file(photo, 0.4, None, None, None, 1, 0)
    x, layers = attention_weights(fields, part, (5, 5))
    assert len(layers) == 6
    for weights in layers:
        assert weights.shape == (4, len(x))
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-4)
    with pytest.raises(InputError, match="no attention"):
        attention_weights(fillin.create("convcnp", dim_x=2, dim_y=3, size="small"), part, (5, 5))
    assert run(photo, "--keep", "0.4", "--attend", "5,5") == 0
    assert photo.with_name("photo.completed.attend.png").stat().st_size > 10_000
    for bad in ("5", "a,b", "12,0"):
        assert run(photo, "--keep", "0.4", "--force", "--attend", bad) == 2
        assert "--attend" in capsys.readouterr().err


def test_transparent_pixels_are_missing(tmp_path):
    alpha = np.full((12, 10, 1), 255, np.uint8)
    alpha[3:6, 3:6] = 0
    Image.fromarray(np.concatenate([smooth_image(), alpha], 2)).save(tmp_path / "a.png")
    assert run(tmp_path / "a.png") == 0
    written = np.array(Image.open(tmp_path / "a.completed.png"))
    same = (written == smooth_image()).all(2)
    assert same[alpha[..., 0] == 255].all()
    assert np.abs(written.astype(int) - smooth_image())[alpha[..., 0] == 0].mean() < 20  # white would be off by 90


@pytest.mark.parametrize(
    "options",
    [["--hide", "bottom"], ["--observed", "coarse 2"], ["--observed", "grid 3"], ["--scale", "2"], ["--mask", "m.png"]],
)
def test_options_that_select_observed_pixels(options, photo, monkeypatch):
    monkeypatch.chdir(photo.parent)
    mask = random_mask((12, 10))
    Image.fromarray(np.where(mask, 200, 20).astype(np.uint8)).save("m.png")
    assert run(photo, *options, "-o", "out") == 0
    written = np.array(Image.open("out.png"))
    if options[0] == "--scale":
        assert written.shape == (24, 20, 3)
        means = written.reshape(12, 2, 10, 2, 3).mean((1, 3))
        assert np.abs(means - smooth_image()).mean() < 6
        return
    observed = {"--hide": np.arange(12)[:, None] < 6, "--mask": mask}.get(options[0])
    if observed is not None:
        assert (written == smooth_image()).all(2)[np.broadcast_to(observed, (12, 10))].all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing is missing"),
        (["--keep", "1.5"], "between 0 and 1"),
        (["--hide", "botom"], "did you mean 'bottom'"),
        (["--observed", "girds 4"], "unknown pattern"),
        (["--observed", " "], "is empty"),
        (["--keep", "0.1", "--hide", "top"], "leave one out"),
        (["--scale", "0"], "--scale must be"),
        (["--scale", "999"], "--scale"),
        (["--keep", "0.3", "--samples", "-2"], "--samples must be"),
        (["--keep", "0.3", "--model", "nothing"], "no model 'nothing'"),
        (["--keep", "0.3", "--model", "curve"], "dim_x=1"),
        (["--keep", "0.3", "-o", "away/out.png"], "there is no folder"),
        (["--keep", "0.3", "-o", "photo.png", "--force"], "never overwritten"),
        (["--keep", "0.3", "-o", "out.jpg"], "written as .png"),
        (["--mask", "black.png"], "nothing to complete from"),
        (["--mask", "small.png"], "they must have the same size"),
        (["--mask", "broken.png"], "cannot be read"),
        (["--mask", "none.png"], "cannot be read"),
    ],
)
def test_bad_options(options, message, photo, monkeypatch, capsys):
    monkeypatch.chdir(photo.parent)
    Image.new("L", (10, 12)).save("black.png")
    Image.new("L", (5, 5)).save("small.png")
    photo.with_name("broken.png").write_bytes(photo.read_bytes()[:90])
    there = set(photo.parent.iterdir())
    options = options if "--samples" in options else [*options, "--samples", "0"]
    assert main(["complete", "photo.png", *options]) == 2
    assert message in capsys.readouterr().err
    assert set(photo.parent.iterdir()) == there


def test_a_mask_without_missing_pixels(photo, capsys):
    Image.new("L", (10, 12), 255).save(photo.with_name("white.png"))
    assert run(photo, "--mask", photo.with_name("white.png")) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert len(list(photo.parent.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_files_that_are_not_images(content, tmp_path, capsys):
    (tmp_path / "x.png").write_bytes(content)
    assert run(tmp_path / "x.png", "--keep", "0.1") == 2
    assert "cannot be read as PNG or JPEG" in capsys.readouterr().err


def test_a_too_large_image_is_refused(tmp_path, capsys):
    Image.new("L", (2100, 2000)).save(tmp_path / "x.png")
    assert run(tmp_path / "x.png", "--keep", "0.1") == 2
    assert "make the image smaller" in capsys.readouterr().err
    with pytest.raises(InputError, match="more than"):
        fillin.complete(np.zeros((3000, 3000)), np.eye(3000, dtype=bool))
