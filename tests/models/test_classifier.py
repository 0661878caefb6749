"""Pixel classifier: invariances, attention windows, training and evaluation."""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.attention_problems import needs_kernel
from support.helpers import distance

import fillin
from fillin.attention import SCORES, fixed_block_mask
from fillin.cli import main
from fillin.data.images import LabelledBatch, LabelledImages
from fillin.errors import FillinError
from fillin.evaluate.classification import open_classifier
from fillin.objectives import classification
from fillin.train import fit, read_recipe

TINY = {"width": 16, "heads": 2, "layers": 2, "hidden": 16}
RECIPE = {
    "data": {"name": "labelled-images", "batch": 8, "shift": 1, "flip": True},
    "model": {"name": "classifier", **TINY, "span": 0.3, "reduce": [1]},
    "objective": {"name": "classification", "smoothing": 0.1, "span_penalty": 0.01},
    "budget": {"steps": 4}, "keep": {"log": 1, "validations": 2, "batches": 1},
}  # fmt: skip


def model(colours=1, dtype=torch.float64, **options):
    """Classifier without dropout, with weights large enough to matter."""
    network = fillin.create("classifier", colours, 3, **{**TINY, "dropout": 0.0, **options}).to(dtype)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return network


def logits_and_gradients(network, images):
    """Logits, and the gradient of a weighted sum of them to every parameter."""
    logits = network(images)
    (logits * torch.linspace(-1, 2, logits.numel()).view_as(logits)).sum().backward()
    return logits, {name: p.grad for name, p in network.named_parameters()}


# ---- values and gradients

WINDOWS = [None, 0.2, {"init": 0.3, "threshold": 0.0}, {"modulate": "scores", "cut": "hard"}]


@pytest.mark.parametrize("span", WINDOWS, ids=str)
@pytest.mark.parametrize("positions", ["siren", "siren-alfons", "sinusoid"])
def test_back_ends_agree_in_double_precision(positions, span):
    """`auto` and `streamed` against the reference, value and gradients."""
    torch.manual_seed(1)
    images, results = torch.rand(2, 5, 6, 1, dtype=torch.float64) - 0.5, []
    reference = model(positions=positions, span=span, backend="reference", reduce=[1])
    for backend in ("auto", "streamed"):
        other = fillin.create("classifier", 1, 3, **{**reference.config["options"], "backend": backend}).double()
        other.load_state_dict(reference.state_dict())
        results.append(logits_and_gradients(other, images))
    expected = logits_and_gradients(reference, images)
    for result in results:
        assert distance(result[0], expected[0]) < 1e-10
        assert all(distance(result[1][name], expected[1][name]) < 1e-10 for name in expected[1])


@needs_kernel
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("positions", ["siren", "siren-alfons", "siren-stable", "sinusoid", "rbf"])
def test_the_native_kernel_agrees_with_the_reference(positions, dims):
    """The kernel in float32 is compared with the reference in float64."""
    torch.manual_seed(2)
    images = torch.rand(2, 12, 12, 1) - 0.5
    native = model(dtype=torch.float32, positions=positions, dims=dims, span=0.2, backend="native")
    reference = fillin.create("classifier", 1, 3, **{**native.config["options"], "backend": "reference"}).double()
    reference.load_state_dict(native.state_dict())
    (logits, gradients), (expected_logits, expected_gradients) = (
        logits_and_gradients(native, images),
        logits_and_gradients(reference, images.double()),
    )
    assert distance(logits.double(), expected_logits) < 1e-4
    assert max(distance(gradients[name].double(), expected_gradients[name], 1e-2) for name in expected_gradients) < 1e-3
    assert max(window.share for window in native.spans(12, 12)) < 0.9  # the window excludes some pairs


@pytest.mark.parametrize("positions", ["siren", "siren-alfons", "siren-stable", "sinusoid", "rbf"])
def test_predictions_depend_on_displacements_only(positions):
    """Predictions are invariant to permutations of pixels with their locations, and to shifts of all locations."""
    network, images = model(positions=positions, span=0.3), torch.rand(3, 4, 5, 1, dtype=torch.float64)
    x, order = network.locations(4, 5).double(), torch.randperm(20)
    expected = network(images)
    permuted, permuted_x = images.flatten(1, 2)[:, order].view_as(images), x.flatten(0, 1)[order].view_as(x)
    assert distance(network(permuted, permuted_x), expected) < 1e-12
    assert distance(network(images, x + 0.25), expected) < 1e-12
    assert distance(network(permuted), expected) > 1e-4  # the location of a pixel matters
    assert distance(network(images[[2, 0, 1]]), expected[[2, 0, 1]]) < 1e-12  # the rest of the batch does not


@pytest.mark.parametrize("dims", [1, 2])
def test_the_score_of_alfons_is_its_equations(dims):
    """[(q + u)·k + (q + v)·r(Δ)]/√d, where r(Δ) is a network of three linear maps with sin(10 ·) between them, drawn as
    Sitzmann et al. (2020) do, and Δ lies in [−1, 1]."""
    network = model(positions="siren-alfons", dims=dims)
    score, x = network.blocks[0].attention.score, network.locations(3, 4).flatten(0, 1).double()
    q, k = torch.randn(2, 1, 2, 12, 8, dtype=torch.float64)
    delta = x[:, None] - x
    assert (delta.min(), delta.max()) == (-1, 1)
    first, second = score.positions.features.sines
    h = torch.sin(10 * (delta @ first.weight.T + first.bias))
    h = torch.sin(10 * (h @ second.weight.T + second.bias))
    r = torch.stack([h @ weight for weight in score.weight])  # d features for each head, [h n m d]
    content = (q + score.u) @ k.mT
    positional = ((q + score.v)[0, :, :, None] * r).sum(-1)
    assert distance(score(q, k, delta.movedim(-1, 0)[None]), (content + positional) / 8**0.5) < 1e-12
    fresh = fillin.create("classifier", 1, 3, positions="siren-alfons", dims=dims).blocks[0].attention.score
    inner, bound = [layer.weight for layer in fresh.positions.features.sines], (6 / 32) ** 0.5 / 10
    for weight, limit in zip((*inner, fresh.weight), (1 / dims, bound, bound), strict=True):
        assert 0.8 * limit < weight.abs().max() <= limit


@pytest.mark.parametrize(("dims", "side"), [(1, 5), (2, 2), (2, 3), (2, 9)])
def test_fixed_blocks_are_attention_with_their_mask(dims, side):
    """Value and gradient, with blocks that do not tile the image, after halving too, and the share of pairs."""
    images = torch.rand(2, 5, 6, 1, dtype=torch.float64)
    network = model(dims=dims, blocks=side, reduce=[1])
    whole = fillin.create("classifier", 1, 3, **{**network.config["options"], "blocks": None, "dropout": 0.0}).double()
    whole.load_state_dict(network.state_dict())
    shares = []
    for block, (rows, columns) in zip(whole.blocks, whole.layer_sizes(5, 6), strict=True):
        cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()[None] + 0.5
        mask = fixed_block_mask(cells, cells, side)
        shares.append(mask.double().mean().item())
        block.forward = partial(block.forward, mask=mask)
    result, expected = logits_and_gradients(network, images), logits_and_gradients(whole, images)
    assert distance(result[0], expected[0]) < 1e-10
    assert all(distance(result[1][name], expected[1][name]) < 1e-10 for name in expected[1])
    assert [layer.share for layer in network.spans(5, 6)] == pytest.approx(shares)
    with pytest.raises(FillinError, match="leave x out"):
        network(images, network.locations(5, 6))


def test_readouts():
    """With a window of one pixel, the readout "last" depends on the last pixel only."""
    images, other = torch.rand(2, 1, 4, 4, 1, dtype=torch.float64)
    other[:, -1, -1] = images[:, -1, -1]
    networks = {readout: model(span=1e-3, readout=readout) for readout in ("last", "mean")}
    assert torch.equal(networks["last"](images), networks["last"](other))
    assert distance(networks["mean"](images), networks["mean"](other)) > 1e-4


def test_locations_span_the_full_range():
    x = model().locations(3, 4)
    assert x.shape == (3, 4, 2)
    assert x[0, 0].tolist() == [-0.5, -0.5]
    assert x[2, 3].tolist() == [0.5, 0.5]
    row = model(dims=1).locations(3, 4)
    assert row.shape == (1, 12, 1)
    assert row.flatten().diff().allclose(torch.tensor(1 / 11, dtype=torch.float64))
    assert model().locations(1, 1).tolist() == [[[0.0, 0.0]]]


@pytest.mark.parametrize("dims", [1, 2])
def test_resolution_is_halved_between_blocks(dims):
    """Tokens and locations are means of neighbours, with odd edges, down to one pixel."""
    network = model(dims=dims, layers=5, reduce=[1, 2, 3, 4], span=0.5)
    assert network(torch.rand(2, 5, 3, 1, dtype=torch.float64)).isfinite().all()
    halved = network._halved(network.locations(5, 4)[None].double())[0]
    if dims == 1:
        assert halved.shape == (1, 10, 1)
        assert halved[0, 0, 0].item() == pytest.approx(-0.5 + 0.5 / 19)
    else:
        assert halved.shape == (3, 2, 2)
        assert halved[0, 0].tolist() == pytest.approx([-0.375, -0.5 + 1 / 6])
        assert halved[2, 0, 0].item() == 0.5  # alone at the edge


@pytest.mark.parametrize(
    "positions",
    ["siren", "siren-alfons", "siren-stable", "sinusoid", *(s for s in SCORES if s not in ("siren", "uniform"))],
)
def test_every_parameter_has_a_gradient(positions):
    network = model(2, positions=positions, span=0.4, dtype=torch.float32)
    batch = LabelledBatch(torch.rand(4, 4, 4, 2) - 0.5, torch.tensor([0, 1, 2, 1]))
    classification(network, batch, 0.1, 0.1).mean().neg().backward()
    untrained = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert untrained == []


# ---- windows


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("span", [{"init": 0.2}, {"init": 0.3, "shape": "box"}, {"init": 0.2, "covariance": "full"}])
def test_window_shares_equal_those_of_all_pairs(span, dims):
    network = model(dims=dims, span=span, reduce=[1])
    x = network.locations(6, 4)[None].double()
    for window, block in zip(network.spans(6, 4), network.blocks, strict=True):
        coordinates = x.flatten(1, 2).mT
        delta = coordinates[..., :, None] - coordinates[..., None, :]
        _, inside = block.attention.span(torch.zeros(()), delta)
        assert window.share == pytest.approx(inside.double().mean().item(), abs=1e-6)
        assert window.sigma.shape == (2, dims)
        x = network._halved(x)
    assert [window.share for window in model(span={"threshold": 0.0}).spans(4, 4)] == [1, 1]
    assert model().spans(4, 4)[0] == (None, 1)


def test_a_penalty_narrows_windows():
    network = model(span=0.3)
    before = [window.share for window in network.spans(8, 8)]
    batch = LabelledBatch(torch.zeros(1, 8, 8, 1, dtype=torch.float64), torch.tensor([0]))
    plain, penalised = (classification(network, batch, 0.0, penalty) for penalty in (0.0, 2.0))
    assert (plain - penalised).item() == pytest.approx(2 * network.openness(8, 8).item())
    network.openness(8, 8).backward()
    with torch.no_grad():
        for block in network.blocks:
            block.attention.span.log_sigma -= 2 * block.attention.span.log_sigma.grad.sign()
    assert all(now.share < then for now, then in zip(network.spans(8, 8), before, strict=True))
    with pytest.raises(FillinError, match="needs a model with windows"):
        classification(model(), batch, 0.0, 1.0)


# ---- data


def test_batches_are_a_function_of_seed_and_step():
    stream, again, other = (LabelledImages(batch=4, seed=seed, shift=1, flip=True) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(stream.task(500).parts, again.task(500).parts, strict=True))
    assert not torch.equal(stream.task(500).images, other.task(500).images)
    validation = stream.validation_stream(9)
    assert validation.part == "test"
    assert (stream.dim_x, stream.dim_y) == (1, 10)


def test_an_epoch_has_each_image_once_and_the_seed_draws_the_limit():
    stream = LabelledImages(batch=4, limit=10, seed=1)
    images = torch.cat([stream.task(step).images for step in range(5)]).flatten(1)
    counts = torch.unique(images, dim=0, return_counts=True)[1]
    assert counts.tolist() == [2] * 10  # twenty images are two epochs
    assert len(stream.images) == 10
    assert len(stream.validation_stream(0).images) == 179  # all held-out images of 1,797
    assert not np.array_equal(stream.images.pixels, LabelledImages(limit=10, seed=2).images.pixels)


def test_images_are_averaged_to_a_size(tmp_path):
    stream = LabelledImages(batch=3, size=4, limit=20, seed=1)
    whole = replace(stream, size=0)
    means = whole.images.pixels.reshape(20, 4, 2, 4, 2, 1).mean((2, 4))
    assert np.abs(stream.images.pixels - means).max() <= 0.5
    assert np.array_equal(stream.images.labels, whole.images.labels)
    assert stream.task(0).images.shape == (3, 4, 4, 1)
    assert stream.validation_stream(0).images.shape == (4, 4, 1)
    trained = fit(RECIPE, tmp_path / "run", overrides=["--data.size=5", "--budget.steps=1"])
    assert open_classifier(trained.folder).stream.images.shape == (5, 5, 1)  # evaluation is at the size of training
    with pytest.raises(FillinError, match="size is 9, but the images of digits have 8 × 8 pixels"):
        LabelledImages(size=9).task(0)


def test_images_are_shifted_and_mirrored(tmp_path):
    pixels = np.zeros((1, 5, 5), np.uint8)
    pixels[0, 2, 1] = 255
    np.savez(tmp_path / "one.npz", x_train=pixels, y_train=[0], x_test=pixels, y_test=[1])
    source = str(tmp_path / "one.npz")
    positions = set()
    for step in range(40):
        image = LabelledImages(source, batch=1, shift=1, flip=True).task(step).images[0, :, :, 0]
        positions.add(tuple((image == 0.5).nonzero()[0].tolist()))
        assert (image == 0.5).sum() == 1
    assert {row for row, _ in positions} == {1, 2, 3}
    assert {column for _, column in positions} == {0, 1, 2, 3, 4}  # 1 ± 1, and 3 ± 1 if mirrored
    assert LabelledImages(source, batch=1, shift=1, flip=True, part="test").task(3).images[0, 2, 1] == 0.5


# ---- training


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(RECIPE, tmp_path_factory.mktemp("runs") / "run")


def test_a_resumed_run_ends_with_the_same_bytes(run, tmp_path):
    """Training continues from the checkpoint after two of four steps."""

    def stop(step, *_):
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(RECIPE, tmp_path / "run", overrides=["--keep.checkpoint=0"], watch=stop)
    assert json.loads((tmp_path / "run" / "last" / "trainer.json").read_text())["step"] == 2
    fit(folder=tmp_path / "run", resume=True)
    for name in ("best/model.safetensors", "last/model.safetensors", "last/trainer.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (run.folder / name).read_bytes()
    assert [line.step for line in run.lines] == [1, 2, 3, 4]


def test_a_loaded_classifier_predicts_the_same(run, tmp_path):
    images = torch.rand(2, 8, 8, 1)
    network = run.model().eval()
    loaded = fillin.load(fillin.save(network, tmp_path / "saved")).eval()
    assert torch.equal(loaded(images), network(images))
    assert loaded.config == network.config
    with pytest.raises(FillinError, match="holds the model classifier, which is no Process"):
        fillin.load(tmp_path / "saved", fillin.models.Process)


def test_separable_classes_are_learned(tmp_path):
    """Classes of dark and bright images with overlapping intensities."""
    labels = np.arange(64) % 2
    pixels = np.random.default_rng(0).integers(0, 200, (64, 4, 4)).astype(np.uint8)
    pixels[labels == 1] += 55
    np.savez(tmp_path / "two.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    overrides = [f"--data.source={tmp_path / 'two.npz'}", "--data.shift=0", "--data.flip=false", "--data.batch=32"]
    overrides += ["--optimiser.rate=0.01", "--objective.smoothing=0", "--model.dropout=0", "--keep.batches=2"]
    trained = fit(RECIPE, tmp_path / "run", overrides=[*overrides, "--budget.steps=40"])
    evaluation = open_classifier(trained.folder)
    assert evaluation is not None
    scores = evaluation.score()
    assert scores.accuracy > 0.95
    assert scores.log_likelihood > -0.5
    assert np.sum(scores.confusion, 1).tolist() == [32, 32]


def test_scores_equal_their_definitions(run):
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    scores, held_out = replace(evaluation, batch=50).score(), evaluation.stream.images
    images = torch.from_numpy(held_out.pixels).float() / 255 - 0.5
    with torch.no_grad():
        probabilities = evaluation.model(images).double().softmax(-1)
    labels = torch.from_numpy(held_out.labels)
    correct = (probabilities.argmax(1) == labels).double()
    assert scores.images == len(labels) == 179
    assert scores.accuracy == pytest.approx(correct.mean().item())
    assert scores.accuracy_error == pytest.approx(correct.std(unbiased=False).item() / 179**0.5)
    assert scores.log_likelihood == pytest.approx(probabilities[range(179), labels].log().mean().item(), abs=1e-5)
    assert np.sum(scores.confusion) == 179
    assert np.trace(scores.confusion) == correct.sum()
    assert np.sum(scores.confusion, 1).tolist() == np.bincount(labels).tolist()
    bins = [(probabilities.max(1).values * 15).long() == i for i in range(15)]
    gaps = [abs((probabilities[i].max(1).values - correct[i]).sum().item()) for i in bins]
    assert scores.calibration_error == pytest.approx(sum(gaps) / 179, abs=1e-5)


def test_the_command_line_reports_scores(run, tmp_path, capsys):
    assert main(["evaluate", str(run.folder), "--json", str(tmp_path / "scores.json")]) == 0
    out = capsys.readouterr().out
    assert "accuracy" in out
    assert "pairs inside" in out
    report = json.loads((tmp_path / "scores.json").read_text())
    assert report["rows"][0]["images"] == 179
    assert len(report["rows"][0]["layers"]) == 2
    for name in ("confusion.png", "windows.png"):
        assert (run.folder / "evaluation" / name).stat().st_size > 5000


# ---- errors


def save_labelled(tmp_path, **arrays):
    np.savez(tmp_path / "some.npz", **arrays)
    return str(tmp_path / "some.npz")


def test_images_and_labels_of_wrong_shape_or_range(unchecked):
    network = model(3, dtype=torch.float32)
    for images, message in (
        (torch.rand(2, 4, 4, 1), r"\[b h w 3\].*dim_x=3.*got \[2, 4, 4, 1\]"),
        (torch.rand(4, 4, 3), "must be"),
        (torch.zeros(2, 4, 4, 3, dtype=torch.uint8), "floating point, got torch.uint8"),
    ):
        with pytest.raises(FillinError, match=message):
            network(images)
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(FillinError, match="has 3 classes, 0 to 2"):
            classification(network, LabelledBatch(torch.rand(2, 4, 4, 3), torch.tensor(labels)))


def test_invalid_sources(tmp_path, unchecked):
    pixels = np.zeros((12, 4, 4), np.uint8)
    for arrays, message in (
        ({"x": pixels}, "has no labels; give a folder with a subfolder for each class"),
        ({"x_train": pixels, "y_train": [0] * 12, "x_test": pixels, "y_test": [0] * 12}, "has a single class"),
        ({"x_train": pixels, "y_train": [0, 1] * 6, "x_test": pixels, "y_test": [0, 2] * 6}, "the label 2"),
        ({"x_train": pixels, "y_train": [-1, 1] * 6, "x_test": pixels, "y_test": [0, 1] * 6}, "the label -1"),
    ):
        with pytest.raises(FillinError, match=message):
            fit(RECIPE, tmp_path / "run", overrides=[f"--data.source={save_labelled(tmp_path, **arrays)}"])
        assert not (tmp_path / "run").exists()
    with pytest.raises(FillinError, match="limit is 5,000"):
        LabelledImages(limit=5000).task(0)
    for options, message in (({"batch": 0}, "batch"), ({"shift": -1}, "shift"), ({"flip": 1}, "flip must be true")):
        with pytest.raises(FillinError, match=message):
            LabelledImages(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dims": 3}, "dims must be 1"), ({"dropout": 1.0}, "dropout"), ({"reduce": [2]}, "reduce must list blocks"),
     ({"reduce": 1}, "reduce must list blocks"), ({"blocks": 0}, "blocks must be a side of at least 1 pixel"),
     ({"blocks": 2, "span": 0.3}, "exclude each other"), ({"readout": "first"}, "unknown readout"),
     ({"span": "wide"}, "span"),
     ({"positions": "sirene"}, "did you mean 'siren'"), ({"score": "rbf"}, "unknown option of classifier"),
     ({"size": "huge"}, "unknown size"), ({"heads": 0}, "heads")],
)  # fmt: skip
def test_invalid_options(options, message, unchecked):
    with pytest.raises(FillinError, match=message):
        fillin.create("classifier", 1, 3, **{**TINY, **options})


def test_recipes_with_incompatible_parts():
    for overrides, message in (
        (
            ["--model.name=cnp"],
            "labelled images .* go together; this recipe has labelled-images, classification and cnp",
        ),
        (["--objective.name=log-likelihood"], "go together"),
        (["--data.name=images"], "go together|unknown setting"),
        (["--objective.name=masked-reconstruction"], "go together"),
        (["--objective.smoothing=much"], "objective.smoothing cannot be"),
    ):
        with pytest.raises(FillinError, match=message):
            read_recipe(RECIPE, overrides)
    with pytest.raises(FillinError, match="go together"):
        read_recipe({"model": {"name": "classifier"}, "budget": {"steps": 1}})
    assert "smoothing" not in read_recipe("te-tnp")["objective"]  # so that older runs can be resumed


def test_evaluation_errors(run, tmp_path, capsys):
    saved = shutil.copytree(run.folder / "best", tmp_path / "saved")
    assert main(["evaluate", str(saved)]) == 2
    assert "--source" in capsys.readouterr().err
    pixels = np.zeros((4, 4, 4, 3), np.uint8)
    source = save_labelled(tmp_path, x_train=pixels, y_train=[0, 1] * 2, x_test=pixels, y_test=[0, 1] * 2)
    assert main(["evaluate", str(saved), "--source", source]) == 2
    assert "3 colours and 2 classes" in capsys.readouterr().err
