"""Attention between images: what an answer may depend on, that others are looked at, and that it learns."""

import json

import numpy as np
import pytest
import torch
from support.helpers import distance

import fillin
from fillin.cli import main
from fillin.data.images import Episode, LabelledImages, LabelledSets
from fillin.errors import FillinError
from fillin.evaluate.classification import open_classifier
from fillin.models import NPTImages
from fillin.objectives import by_example
from fillin.train import fit, read_recipe

TINY = {"width": 16, "heads": 2, "layers": 2, "hidden": 16}
RECIPE = {
    "data": {"name": "datapoints", "context": 12, "asked": 20, "shift": 1},
    "model": {"name": "npt-images", **TINY, "strides": [2], "dropout": 0.1},
    "objective": {"name": "by-example", "smoothing": 0.1},
    "budget": {"steps": 4}, "keep": {"log": 1, "validations": 2, "batches": 1},
}  # fmt: skip


def model(colours=1, **options):
    made = fillin.create("npt-images", colours, 3, **{**TINY, **options}).double().eval()
    assert isinstance(made, NPTImages)
    return made


def some(b=2, n=9, side=6, colours=1):
    return torch.rand(b, n, side, side, colours, dtype=torch.float64) - 0.5, torch.randint(0, 3, (b, 5))


@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_datapoints_have_no_order(embedding):
    """Shown images in another order change nothing, those asked about in another order come out in that order."""
    one, (images, labels) = model(embedding=embedding), some()
    wanted = one(images, labels)
    assert wanted.shape == (2, 4, 3)
    shown, asked = torch.randperm(5), torch.randperm(4)
    mixed = torch.cat([images[:, shown], images[:, 5 + asked]], 1)
    assert distance(one(mixed, labels[:, shown]), wanted[:, asked]) < 1e-12
    assert distance(one(mixed, labels), wanted[:, asked]) > 1e-4  # but which image has which label does


@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_what_is_asked_is_not_seen_and_what_is_shown_is(embedding):
    one, (images, labels) = model(embedding=embedding), some()
    wanted = one(images, labels)
    alone = torch.cat([images[:, :5], images[:, 7:8]], 1)
    assert distance(one(alone, labels)[:, 0], wanted[:, 2]) < 1e-12
    other = images.clone()
    other[:, 1] += 0.3
    assert distance(one(other, labels), wanted) > 1e-5
    assert distance(one(images, (labels + 1) % 3), wanted) > 1e-4
    assert one(images, labels[:, :0]).isfinite().all()  # nothing need be shown


@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_any_resolution_and_every_weight_learns(embedding):
    one = model(3, embedding=embedding).train()
    for height, width in ((5, 9), (1, 1), (8, 8)):
        assert one(torch.rand(1, 4, height, width, 3, dtype=torch.float64), torch.zeros(1, 2).long()).isfinite().all()
    images, _ = some(1, 12, 8, 3)
    labels = torch.arange(12)[None] % 3
    by_example(one, Episode(images, labels, 7), 0.1).mean().neg().backward()
    assert [name for name, p in one.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_objective_is_that_of_what_is_asked():
    one, (images, _) = model(), some(2, 7)
    labels = torch.randint(0, 3, (2, 7))
    each = one(images, labels[:, :5]).softmax(-1)
    wanted = each.gather(2, labels[:, 5:, None]).log().mean((1, 2))
    assert distance(by_example(one, Episode(images, labels, 5)), wanted) < 1e-12


# ---- data


def test_batches_are_a_function_of_seed_and_step():
    one, again, other = (LabelledSets(context=3, asked=4, batch=2, seed=seed, shift=1) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one.task(9).parts[:2], again.task(9).parts[:2], strict=True))
    assert not torch.equal(one.task(9).images, other.task(9).images)
    assert not torch.equal(one.task(8).images, one.task(9).images)
    assert (one.task(0).images.shape, one.task(0).support) == ((2, 7, 8, 8, 1), 3)


def test_in_testing_images_for_training_are_shown():
    held = LabelledSets(context=30, asked=20, seed=5).validation_stream(7)
    lesson = held.task(2)
    found = {part: {image.tobytes() for image in LabelledImages(part=part).images.pixels} for part in ("train", "test")}
    pixels = ((lesson.images[0] + 0.5) * 255).round().byte().numpy()
    assert all(image.tobytes() in found["train"] for image in pixels[:30])
    assert all(image.tobytes() in found["test"] for image in pixels[30:])
    assert len({image.tobytes() for image in pixels[:30]}) == 30
    truth = LabelledImages(part="test").images
    assert truth.labels is not None
    of = {image.tobytes(): int(label) for image, label in zip(truth.pixels, truth.labels, strict=True)}
    assert lesson.query_labels[0].tolist() == [of[image.tobytes()] for image in pixels[30:]]


# ---- training


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(RECIPE, tmp_path_factory.mktemp("runs") / "run")


def test_what_only_others_can_tell_is_learnt_from_them(tmp_path):
    """Bright and dark images, whose names are dealt out anew in each data set: without shown labels it is a coin."""
    torch.manual_seed(0)
    made = fillin.create("npt-images", 1, 2, **{**TINY, "width": 32, "strides": [2]}).train()
    optimiser = torch.optim.Adam(made.parameters(), 3e-3)

    def lesson(seed, b=32):
        numbers = torch.Generator().manual_seed(seed)
        bright = torch.arange(12).expand(b, 12) % 2
        images = 0.2 * torch.rand(b, 12, 4, 4, 1, generator=numbers) + 0.5 * bright[..., None, None, None] - 0.5
        return Episode(images, bright ^ torch.randint(0, 2, (b, 1), generator=numbers), 8)

    for step in range(150):
        optimiser.zero_grad()
        by_example(made, lesson(step)).mean().neg().backward()
        optimiser.step()
    told = lesson(10**6)
    with torch.no_grad():
        assert (made(*told.inputs).argmax(-1) == told.query_labels).double().mean() > 0.95
        assert (made(told.images, 1 - told.inputs[1]).argmax(-1) == told.query_labels).double().mean() < 0.05


def test_a_run_is_resumed_saved_and_evaluated(run, tmp_path, capsys):
    fit(RECIPE, tmp_path / "half", overrides=["--budget.steps=4"])
    for name in ("best/model.safetensors", "last/model.safetensors"):
        assert (tmp_path / "half" / name).read_bytes() == (run.folder / name).read_bytes()
    assert main(["evaluate", str(run.folder), "--json", str(tmp_path / "found.json")]) == 0
    out = capsys.readouterr().out
    assert "shuffled" in out
    assert "nearest centroid" in out
    found = json.loads((tmp_path / "found.json").read_text())["rows"][0]
    assert (found["found"]["images"], found["shown"]) == (179, 1024)
    assert (run.folder / "evaluation" / "confusion.png").stat().st_size > 5000
    assert main(["evaluate", str(run.folder / "best"), "--source", "digits"]) == 0
    assert main(["evaluate", str(run.folder / "best")]) == 2
    assert "--source" in capsys.readouterr().err


def test_scores_are_what_they_say(run):
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    scores, stream = evaluation.score(), evaluation.stream
    lesson = stream.task(0)
    with torch.no_grad():
        right = evaluation.model.eval()(*lesson.inputs).argmax(-1) == lesson.query_labels
    assert scores.found.accuracy == pytest.approx(right.double().mean().item())
    x, y = lesson.images[0].flatten(1), lesson.labels[0]
    means = torch.stack([x[:1024][y[:1024] == k].mean(0) for k in range(10)])
    nearest = torch.stack([(x[1024:] - mean).square().sum(1) for mean in means], 1).argmin(1)
    assert scores.centroid_pixels == pytest.approx((nearest == y[1024:]).double().mean().item())
    assert scores.centroid_pixels > 0.8


# ---- what goes wrong


def test_what_will_not_do(tmp_path, unchecked):
    images, labels = torch.rand(2, 6, 4, 4, 1), torch.zeros(2, 3).long()
    one = model().float()
    for given, message in (
        ((images[0], labels), r"must be \[b n h w 1\]"), ((images, labels[0]), r"\[b support\]"),
        ((images, torch.zeros(2, 7).long()), r"\[b support\]"), ((images, labels + 3), "has 3 classes, 0 to 2"),
        ((images.byte(), labels), "floating point"),
    ):  # fmt: skip
        with pytest.raises(FillinError, match=message):
            one(*given)
    for options, message in (
        ({"embedding": "cnnn"}, "did you mean 'cnn'"), ({"dropout": 1}, "dropout"), ({"strides": []}, "strides"),
        ({"strides": [0]}, "strides"), ({"heads": 0}, "heads"),
        ({"embedding": "patches", "patch": 0}, "side of a patch"),
    ):  # fmt: skip
        with pytest.raises(FillinError, match=message):
            fillin.create("npt-images", 1, 3, **{**TINY, **options})
    for said, message in (
        (["--data.context=5000"], "context is 5,000, but digits has 1,618"), (["--data.asked=0"], "asked"),
        (["--model.name=classifier"], "go together|unknown setting"),
        (["--objective.name=classification"], "go together"), (["--data.source=nowhere"], "no such file"),
    ):  # fmt: skip
        with pytest.raises(FillinError, match=message):
            fit(RECIPE, tmp_path / "run", overrides=said)
        assert not (tmp_path / "run").exists()
    pixels = np.zeros((12, 4, 4), np.uint8)
    np.savez(tmp_path / "plain.npz", x=pixels)
    with pytest.raises(FillinError, match="has no labels"):
        fit(RECIPE, tmp_path / "run", overrides=[f"--data.source={tmp_path / 'plain.npz'}"])


@pytest.mark.parametrize("name", ["npt-digits", "npt-images"])
def test_recipes_that_ship(name):
    assert read_recipe(name)["objective"]["name"] == "by-example"
