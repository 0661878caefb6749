"""Attention between images: invariances, dependence on labelled images, training and evaluation."""

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
    network = fillin.create("npt-images", colours, 3, **{**TINY, **options}).double().eval()
    assert isinstance(network, NPTImages)
    return network


def draw_images(b=2, n=9, side=6, colours=1):
    return torch.rand(b, n, side, side, colours, dtype=torch.float64) - 0.5, torch.randint(0, 3, (b, 5))


@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_predictions_do_not_depend_on_the_order_of_images(embedding):
    """Predictions are invariant to the order of support images and equivariant to that of queries."""
    network, (images, labels) = model(embedding=embedding), draw_images()
    expected = network(images, labels)
    assert expected.shape == (2, 4, 3)
    support_order, query_order = torch.randperm(5), torch.randperm(4)
    permuted = torch.cat([images[:, support_order], images[:, 5 + query_order]], 1)
    assert distance(network(permuted, labels[:, support_order]), expected[:, query_order]) < 1e-12
    assert (
        distance(network(permuted, labels), expected[:, query_order]) > 1e-4
    )  # the pairing of images and labels matters


@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_predictions_depend_on_the_support_but_not_on_other_queries(embedding):
    network, (images, labels) = model(embedding=embedding), draw_images()
    expected = network(images, labels)
    alone = torch.cat([images[:, :5], images[:, 7:8]], 1)
    assert distance(network(alone, labels)[:, 0], expected[:, 2]) < 1e-12
    other = images.clone()
    other[:, 1] += 0.3
    assert distance(network(other, labels), expected) > 1e-5
    assert distance(network(images, (labels + 1) % 3), expected) > 1e-4
    assert network(images, labels[:, :0]).isfinite().all()  # the support set can be empty


@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_any_resolution_is_valid_and_every_parameter_has_a_gradient(embedding):
    network = model(3, embedding=embedding).train()
    for height, width in ((5, 9), (1, 1), (8, 8)):
        assert (
            network(torch.rand(1, 4, height, width, 3, dtype=torch.float64), torch.zeros(1, 2).long()).isfinite().all()
        )
    images, _ = draw_images(1, 12, 8, 3)
    labels = torch.arange(12)[None] % 3
    by_example(network, Episode(images, labels, 7), 0.1).mean().neg().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_objective_is_the_log_likelihood_of_queries():
    network, (images, _) = model(), draw_images(2, 7)
    labels = torch.randint(0, 3, (2, 7))
    probabilities = network(images, labels[:, :5]).softmax(-1)
    expected = probabilities.gather(2, labels[:, 5:, None]).log().mean((1, 2))
    assert distance(by_example(network, Episode(images, labels, 5)), expected) < 1e-12


# ---- data


def test_batches_are_a_function_of_seed_and_step():
    stream, again, other = (LabelledSets(context=3, asked=4, batch=2, seed=seed, shift=1) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(stream.task(9).parts[:2], again.task(9).parts[:2], strict=True))
    assert not torch.equal(stream.task(9).images, other.task(9).images)
    assert not torch.equal(stream.task(8).images, stream.task(9).images)
    assert (stream.task(0).images.shape, stream.task(0).support) == ((2, 7, 8, 8, 1), 3)


def test_validation_queries_are_held_out_and_their_support_is_not():
    validation = LabelledSets(context=30, asked=20, seed=5).validation_stream(7)
    episode = validation.task(2)
    pixels_of_part = {
        part: {image.tobytes() for image in LabelledImages(part=part).images.pixels} for part in ("train", "test")
    }
    pixels = ((episode.images[0] + 0.5) * 255).round().byte().numpy()
    assert all(image.tobytes() in pixels_of_part["train"] for image in pixels[:30])
    assert all(image.tobytes() in pixels_of_part["test"] for image in pixels[30:])
    assert len({image.tobytes() for image in pixels[:30]}) == 30
    held_out = LabelledImages(part="test").images
    assert held_out.labels is not None
    label_of = {image.tobytes(): int(label) for image, label in zip(held_out.pixels, held_out.labels, strict=True)}
    assert episode.query_labels[0].tolist() == [label_of[image.tobytes()] for image in pixels[30:]]


# ---- training


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(RECIPE, tmp_path_factory.mktemp("runs") / "run")


def test_labels_of_the_support_are_used(tmp_path):
    """Labels of bright and dark images are permuted in every data set: only the support labels are informative."""
    torch.manual_seed(0)
    network = fillin.create("npt-images", 1, 2, **{**TINY, "width": 32, "strides": [2]}).train()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)

    def draw_episode(seed, b=32):
        rng = torch.Generator().manual_seed(seed)
        bright = torch.arange(12).expand(b, 12) % 2
        images = 0.2 * torch.rand(b, 12, 4, 4, 1, generator=rng) + 0.5 * bright[..., None, None, None] - 0.5
        return Episode(images, bright ^ torch.randint(0, 2, (b, 1), generator=rng), 8)

    for step in range(150):
        optimiser.zero_grad()
        by_example(network, draw_episode(step)).mean().neg().backward()
        optimiser.step()
    test_episode = draw_episode(10**6)
    with torch.no_grad():
        assert (network(*test_episode.inputs).argmax(-1) == test_episode.query_labels).double().mean() > 0.95
        assert (
            network(test_episode.images, 1 - test_episode.inputs[1]).argmax(-1) == test_episode.query_labels
        ).double().mean() < 0.05


def test_a_run_is_resumed_saved_and_evaluated(run, tmp_path, capsys):
    fit(RECIPE, tmp_path / "half", overrides=["--budget.steps=4"])
    for name in ("best/model.safetensors", "last/model.safetensors"):
        assert (tmp_path / "half" / name).read_bytes() == (run.folder / name).read_bytes()
    assert main(["evaluate", str(run.folder), "--json", str(tmp_path / "scores.json")]) == 0
    out = capsys.readouterr().out
    assert "shuffled" in out
    assert "nearest centroid" in out
    row = json.loads((tmp_path / "scores.json").read_text())["rows"][0]
    assert (row["model"]["images"], row["support_images"]) == (179, 1024)
    assert (run.folder / "evaluation" / "confusion.png").stat().st_size > 5000
    assert main(["evaluate", str(run.folder / "best"), "--source", "digits"]) == 0
    assert main(["evaluate", str(run.folder / "best")]) == 2
    assert "--source" in capsys.readouterr().err


def test_scores_equal_their_definitions(run):
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    [scores], stream = evaluation.score(), evaluation.stream
    episode = stream.task(0)
    with torch.no_grad():
        correct = evaluation.model.eval()(*episode.inputs).argmax(-1) == episode.query_labels
    assert scores.model.accuracy == pytest.approx(correct.double().mean().item())
    x, y = episode.images[0].flatten(1), episode.labels[0]
    centroids = torch.stack([x[:1024][y[:1024] == k].mean(0) for k in range(10)])
    nearest = torch.stack([(x[1024:] - centroid).square().sum(1) for centroid in centroids], 1).argmin(1)
    centroid = scores.baselines["nearest centroid, pixels"].accuracy
    assert centroid == pytest.approx((nearest == y[1024:]).double().mean().item())
    assert centroid > 0.8


# ---- errors


def test_bad_input(tmp_path, unchecked):
    images, labels = torch.rand(2, 6, 4, 4, 1), torch.zeros(2, 3).long()
    network = model().float()
    for inputs, message in (
        ((images[0], labels), r"must be \[b n h w 1\]"), ((images, labels[0]), r"\[b support\]"),
        ((images, torch.zeros(2, 7).long()), r"\[b support\]"), ((images, labels + 3), "has 3 classes, 0 to 2"),
        ((images.byte(), labels), "floating point"),
    ):  # fmt: skip
        with pytest.raises(FillinError, match=message):
            network(*inputs)
    for options, message in (
        ({"embedding": "cnnn"}, "did you mean 'cnn'"), ({"dropout": 1}, "dropout"), ({"strides": []}, "strides"),
        ({"strides": [0]}, "strides"), ({"heads": 0}, "heads"),
        ({"embedding": "patches", "patch": 0}, "side of a patch"),
    ):  # fmt: skip
        with pytest.raises(FillinError, match=message):
            fillin.create("npt-images", 1, 3, **{**TINY, **options})
    for overrides, message in (
        (["--data.context=5000"], "context is 5,000, but digits has 1,618"), (["--data.asked=0"], "asked"),
        (["--model.name=classifier"], "go together|unknown setting"),
        (["--objective.name=classification"], "go together"), (["--data.source=nowhere"], "no such file"),
    ):  # fmt: skip
        with pytest.raises(FillinError, match=message):
            fit(RECIPE, tmp_path / "run", overrides=overrides)
        assert not (tmp_path / "run").exists()
    pixels = np.zeros((12, 4, 4), np.uint8)
    np.savez(tmp_path / "plain.npz", x=pixels)
    with pytest.raises(FillinError, match="has no labels"):
        fit(RECIPE, tmp_path / "run", overrides=[f"--data.source={tmp_path / 'plain.npz'}"])


@pytest.mark.parametrize("name", ["npt-digits", "npt-images"])
def test_included_recipes(name):
    assert read_recipe(name)["objective"]["name"] == "by-example"
