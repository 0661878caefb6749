"""Images as points: locations do not depend on the resolution, patterns select observed pixels, files are read."""

import gzip
import json

import numpy as np
import pytest
import torch
from PIL import Image

from fillin.cli import main
from fillin.data.images import PATTERNS, Images, Pattern, pixel_locations, read_images, to_colours, to_pixels
from fillin.errors import FillinError, InputError
from fillin.evaluate.image_completion import OBSERVED


def make_rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def batch():
    return torch.rand(3, 12, 8, 2, generator=make_rng())


def test_locations_do_not_depend_on_the_resolution():
    fine, small = pixel_locations(24, 16).view(12, 2, 8, 2, 2), pixel_locations(12, 8).view(12, 8, 2)
    torch.testing.assert_close(fine.mean((1, 3)), small)
    torch.testing.assert_close(pixel_locations(12, 8, shape=(24, 16)), small.view(-1, 2))
    assert float(pixel_locations(100, 50).abs().max()) == pytest.approx(2 - 2 / 100)  # half a pixel from the edge at 2
    steps = pixel_locations(5, 9).view(5, 9, 2)
    torch.testing.assert_close(steps[1, 0] - steps[0, 0], (steps[0, 1] - steps[0, 0]).flip(0))  # pixels are square


def test_colours_round_trip():
    values = np.arange(256, dtype=np.uint8)[:, None]
    assert (to_pixels(to_colours(values)) == values).all()
    assert to_pixels(torch.tensor([[-9.0], [9.0]])).ravel().tolist() == [0, 255]


@pytest.mark.parametrize("name", PATTERNS)
def test_observed_values_are_the_pixels_at_their_locations(name, batch):
    x, y = Pattern.read(name)(batch, make_rng())
    if name == "coarse":
        torch.testing.assert_close(y[:, 0], batch[:, :4, :4].mean((1, 2)))
        torch.testing.assert_close(x[0, 0], pixel_locations(12, 8).view(12, 8, 2)[:4, :4].mean((0, 1)))
        assert x.shape == (3, 6, 2)
        return
    indices = (x[:, :, None] - pixel_locations(12, 8)).abs().sum(-1).argmin(-1)
    torch.testing.assert_close(pixel_locations(12, 8)[indices], x)
    torch.testing.assert_close(
        torch.stack([image.flatten(0, 1)[i] for image, i in zip(batch, indices, strict=True)]), y
    )
    assert all(len(set(row.tolist())) == len(row) for row in indices)


@pytest.mark.parametrize(
    ("text", "count"),
    [("random 0.25", 24), ("top", 48), ("bottom 0.25", 24), ("left", 48), ("right 1", 96), ("block", 24), ("hole", 72),
     ("grid 4", 6), ("grid 2", 24), ("coarse 2", 24)],
)  # fmt: skip
def test_patterns_observe_the_declared_share(text, count, batch):
    assert Pattern.read(text)(batch, make_rng())[0].shape[1] == count


def test_side_patterns_observe_the_named_side(batch):
    for name, axis, sign in [("top", 0, -1), ("bottom", 0, 1), ("left", 1, -1), ("right", 1, 1)]:
        x, _ = Pattern.read(name)(batch, make_rng())
        assert (sign * x[..., axis] > 0).all(), name


@pytest.mark.parametrize(
    "text", ["nothing", "random 2", "random 0", "grid 0.5", "line 3", "top x", "top 0.1 0.2", "grid nan"]
)
def test_invalid_patterns(text):
    with pytest.raises(FillinError):
        Pattern.read(text)


@pytest.mark.parametrize("text", ["", "top |", "-1 top", "inf top", "2"])
def test_invalid_mixtures_of_patterns(text):
    with pytest.raises(InputError):
        Images(patterns=text)


def test_a_stream_is_a_function_of_seed_and_step():
    stream, again = (Images(patterns="every", targets=9, batch=3, seed=4) for _ in range(2))
    for step in range(8):
        for a, b in zip(stream.task(step).parts, again.task(step).parts, strict=True):
            assert a is b is None or torch.equal(a, b)
    assert not torch.equal(stream.task(0).yt, stream.task(1).yt)
    assert len({stream.task(step).xc.shape[1] for step in range(12)}) > 3  # patterns differ
    assert stream.task(0).xt.shape == (3, 9, 2)
    assert Images(targets=0).task(0).xt.shape == (16, 64, 2)


def test_validation_uses_other_images():
    train, test = Images().images, Images().validation_stream(7).images
    assert len(train) + len(test) == 1797
    assert not {image.tobytes() for image in test.pixels} & {image.tobytes() for image in train.pixels}


@pytest.fixture
def shades():
    return np.random.default_rng(0).integers(0, 256, (20, 6, 5), dtype=np.uint8)


def encode_idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files(tmp_path, shades, packed):
    ending, pack = (".gz", gzip.compress) if packed else ("", bytes)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte{ending}").write_bytes(pack(encode_idx(shades)))
        (tmp_path / f"{part}-labels-idx1-ubyte{ending}").write_bytes(pack(encode_idx(np.arange(20, dtype=np.uint8))))
    images = read_images(tmp_path, "test")
    assert (images.pixels[..., 0] == shades).all()
    assert images.labels is not None
    assert (images.labels == np.arange(20)).all()


def test_archives_and_arrays(tmp_path, shades):
    colour = np.stack([shades] * 3, -1)
    np.savez(tmp_path / "set.npz", x_train=colour, y_train=np.arange(20)[:, None], x_test=colour[:3])
    images = read_images(tmp_path / "set.npz")
    assert (images.pixels == colour).all()
    assert images.labels is not None
    assert images.labels.tolist() == list(range(20))
    assert len(read_images(tmp_path / "set.npz", "test")) == 3
    np.save(tmp_path / "set.npy", shades / 255)
    parts = [read_images(tmp_path / "set.npy", part) for part in ("train", "test")]
    assert [len(part) for part in parts] == [18, 2]
    assert (parts[1].pixels[..., 0] == shades[[9, 19]]).all()


def test_folders_of_images(tmp_path, shades):
    for number, shade in enumerate(shades[:4]):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.fromarray(shade).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    images = read_images(tmp_path)
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert (images.pixels[..., 0] == shades[[0, 2, 1, 3]]).all()
    Image.fromarray(np.stack([shades[0]] * 3, -1)).save(tmp_path / "b" / "9.png")  # one RGB image makes all RGB
    assert read_images(tmp_path / "b").shape == (6, 5, 3)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_images_of_every_mode(tmp_path, shades, mode):
    ending = ".jpg" if mode == "CMYK" else ".png"
    picture = Image.fromarray(shades[0])
    picture = Image.fromarray(shades[0].astype(np.uint16) * 257) if mode == "I;16" else picture.convert(mode)
    picture.save(tmp_path / f"one{ending}")
    images = read_images(tmp_path / f"one{ending}")
    assert images.shape == (6, 5, 1 if mode in ("1", "L", "LA", "I;16") else 3)
    if mode not in ("1", "CMYK"):
        assert (images.pixels[0, ..., 0] == shades[0]).all()


def test_transparent_pixels_are_white(tmp_path):
    Image.new("RGBA", (2, 2), (9, 9, 9, 0)).save(tmp_path / "clear.png")
    assert (read_images(tmp_path / "clear.png").pixels == 255).all()


def write_bad_files(tmp_path, shades):
    picture = tmp_path / "whole.png"
    Image.fromarray(shades[0]).save(picture)
    raw = picture.read_bytes()
    contents = {"cut.png": raw[:60], "no.png": b"hello", "cut.npz": b"PK\3\4", "no.npy": b"", "set.tiff": raw}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "far.npy", shades * 2.0)
    np.save(tmp_path / "flat.npy", shades[0])
    np.save(tmp_path / "none.npy", shades[:0])
    np.savez(tmp_path / "other.npz", a=shades, b=shades)
    np.savez(tmp_path / "labels.npz", x_train=shades, y_train=[1])
    (tmp_path / "empty").mkdir()
    (tmp_path / "sizes").mkdir()
    for n in (3, 3, 4):
        Image.new("L", (n, 3)).save(tmp_path / "sizes" / f"{len(list((tmp_path / 'sizes').iterdir()))}.png")
    for name, content in {
        "short": encode_idx(shades)[:-5],
        "words": b"MNIST!!!",
        "huge": b"\0\0\x08\3" + b"\xff" * 12,
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train-images-idx3-ubyte").write_bytes(content)
    return [*contents, "objects.npy", "far.npy", "flat.npy", "none.npy", "other.npz", "labels.npz", "empty", "sizes",
            "short", "words", "huge", "missing.png"]  # fmt: skip


def test_files_that_cannot_be_read_are_named(tmp_path, shades):
    for name in write_bad_files(tmp_path, shades):
        with pytest.raises(InputError, match=name.split(".")[0]):
            read_images(tmp_path / name)


@pytest.mark.parametrize("side", [3_500, 5_000, 9_000])
def test_a_too_large_image_is_not_decoded(tmp_path, side):
    Image.new("1", (20_000, side)).save(tmp_path / "large.png")
    with pytest.raises(InputError, match=r"large.png .*pixels"):
        read_images(tmp_path / "large.png")


def test_a_run_on_images_is_evaluated_on_every_pattern(tmp_path, capsys):
    tiny = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1", "--model.hidden", "16"]
    options = ["--steps", "1", "--data.batch", "2", "--keep.batches", "1", "--threads", "1"]
    run = tmp_path / "run"
    assert main(["train", "images-te-tnp", *options, *tiny, "--out", str(run)]) == 0
    assert main(["evaluate", str(run), "--batches", "1", "--json", str(tmp_path / "scores.json")]) == 0
    printed = capsys.readouterr().out
    assert all(title in printed for title in OBSERVED)
    [scores] = json.loads((tmp_path / "scores.json").read_text())["rows"]
    likelihoods = [kind["log_likelihood"] for kind in scores["kinds"].values()]
    assert scores["log_likelihood"] == pytest.approx(sum(likelihoods) / len(OBSERVED))
    assert scores["moved"] < 1e-5
    with Image.open(run / "evaluation" / "completions.png") as picture:
        assert min(picture.size) > 300
    Image.new("RGB", (8, 8)).save(tmp_path / "colours.png")
    assert main(["evaluate", str(run), "--source", str(tmp_path / "colours.png")]) == 2
    assert "3 colours, but the model has 1" in capsys.readouterr().err
