"""Few-shot tasks: their images and labels, invariance to class names, and errors."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.helpers import distance

import fillin
from fillin.cli import main
from fillin.data.images import Episode, FewShot, LabelledImages
from fillin.errors import FillinError
from fillin.evaluate.classification import open_classifier
from fillin.models import MatchingNetwork
from fillin.objectives import by_example
from fillin.train import fit, read_recipe

RECIPE = {
    "data": {"name": "few-shot", "ways": 3, "shots": 2, "queries": 3, "batch": 4, "laid": 0.5, "shift": 1},
    "model": {"name": "matching", "width": 16, "strides": [2], "dropout": 0.1},
    "objective": {"name": "by-example"},
    "budget": {"steps": 4}, "keep": {"log": 1, "validations": 2, "batches": 1},
}  # fmt: skip


def classes():
    """Class of every image of digits, by its bytes."""
    both = [LabelledImages(part=part).images for part in ("train", "test")]
    return {i.tobytes(): int(k) for images in both for i, k in zip(images.pixels, require_labels(images), strict=True)}


def require_labels(images):
    assert images.labels is not None
    return images.labels


def model(**options):
    network = fillin.create("matching", 1, 3, **{"width": 16, "strides": [1], **options}).double().eval()
    assert isinstance(network, MatchingNetwork)
    return network


@pytest.mark.parametrize("part", ["train", "test", "held-out"])
def test_tasks_have_the_declared_classes_and_counts(part):
    stream = FewShot(ways=3, shots=2, queries=4, batch=5, seed=1, part=part)
    episode, class_of = stream.task(3), classes()
    assert (episode.images.shape, episode.support) == ((5, 18, 8, 8, 1), 6)
    allowed = {6, 7, 8, 9} if part == "held-out" else set(range(6))
    for images, labels in zip(episode.images, episode.labels, strict=True):
        pixels = [image.tobytes() for image in ((images + 0.5) * 255).round().byte().numpy()]
        names = {}
        for image, label in zip(pixels, labels.tolist(), strict=True):
            names.setdefault(label, set()).add(class_of[image])
        assert set(names) == {0, 1, 2}
        assert all(len(members) == 1 for members in names.values())  # one class per name
        assert len(set.union(*names.values())) == 3
        assert set.union(*names.values()) <= allowed
        assert len(set(pixels)) == 18  # no image twice, none in both support and queries
    assert episode.labels[0, :6].bincount().tolist() == [2, 2, 2]
    assert episode.query_labels[0].bincount().tolist() == [4, 4, 4]


def test_parts_have_disjoint_classes():
    """held_out=3 and validation=2 of ten digits: 0–4 train, 5 and 6 validate, 7–9 are held out."""
    class_of = classes()
    expected = {"train": set(range(5)), "test": {5, 6}, "held-out": {7, 8, 9}}
    for part, allowed in expected.items():
        stream = FewShot(ways=2, queries=3, held_out=3, validation=2, batch=8, part=part)
        seen = set()
        for step in range(6):
            pixels = ((stream.task(step).images.flatten(0, 1) + 0.5) * 255).round().byte().numpy()
            seen |= {class_of[image.tobytes()] for image in pixels}
        assert seen == allowed
    assert FewShot(held_out=3, validation=2, ways=2).dim_y == 2


def test_the_number_of_shots_varies_between_batches():
    stream, counts = FewShot(shots=(1, 3), ways=3), set()
    for step in range(12):
        episode = stream.task(step)
        shots = episode.support // 3
        assert episode.labels[0, : episode.support].bincount().tolist() == [shots] * 3
        assert episode.query_labels[0].bincount().tolist() == [5] * 3
        assert torch.equal(episode.images, FewShot(shots=(1, 3), ways=3).task(step).images)
        counts.add(shots)
    assert counts == {1, 2, 3}


def test_labels_are_permuted_in_every_task():
    class_of, seen = classes(), set()
    for step in range(12):
        episode = FewShot(ways=4, batch=4).task(step)
        pixels = ((episode.images[:, 0] + 0.5) * 255).round().byte().numpy()
        seen |= {class_of[image.tobytes()] for image in pixels}
    assert seen == set(range(6))  # every class has had the label 0


def test_batches_are_a_function_of_seed_and_step():
    stream, again, other = (FewShot(laid=0.5, shift=1, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(stream.task(9).images, again.task(9).images)
    assert not torch.equal(stream.task(9).images, other.task(9).images)
    assert not torch.equal(stream.task(9).images, stream.task(8).images)
    assert stream.validation_stream(2).part == "test"


def test_overlaid_classes():
    """With laid=1 no image of a task is in the set and images are brighter; held-out tasks are not augmented."""
    episode, class_of = FewShot(laid=1.0, seed=2).task(0), classes()
    pixels = ((episode.images.flatten(0, 1) + 0.5) * 255).round().byte().numpy()
    assert sum(image.tobytes() in class_of for image in pixels) == 0
    plain = FewShot(seed=2).task(0)
    assert episode.images.mean() > plain.images.mean() + 0.05
    assert torch.equal(*(FewShot(laid=laid, seed=2, part="held-out").task(0).images for laid in (0.0, 1.0)))


def test_rotated_classes_are_new_classes():
    """All images of a class share one of the eight symmetries of the square; held-out tasks are not augmented."""
    class_of, seen = classes(), set()
    for step in range(8):
        episode = FewShot(turned=True, ways=3, shots=1, queries=2, batch=4, seed=1).task(step)
        pixels = ((episode.images + 0.5) * 255).round().byte().numpy()[..., 0]
        for images, labels in zip(pixels, episode.labels, strict=True):
            for name in range(3):
                symmetries = [find_symmetries(image, class_of) for image in images[labels.numpy() == name]]
                assert set.intersection(*symmetries)
                seen |= set.intersection(*symmetries)
    assert len(seen) == 8
    assert torch.equal(*(FewShot(turned=turned, part="held-out").task(0).images for turned in (False, True)))


def find_symmetries(image, class_of):
    """Symmetries of the square that map the image to an image of the set."""
    transformed = {(k, mirror): np.rot90(image[:, ::-1] if mirror else image, k) for k in range(4) for mirror in (0, 1)}
    return {
        symmetry for symmetry, original in transformed.items() if np.ascontiguousarray(original).tobytes() in class_of
    }


def test_predictions_are_equivariant_to_labels_and_invariant_to_order():
    network = model()
    images, labels = torch.rand(2, 9, 6, 6, 1, dtype=torch.float64) - 0.5, torch.tensor([[0, 1, 2, 0, 2]] * 2)
    expected, rename = network(images, labels), torch.tensor([2, 0, 1])
    assert distance(network(images, rename[labels])[..., rename], expected) < 1e-12
    support_order, query_order = torch.randperm(5), torch.randperm(4)
    permuted = torch.cat([images[:, support_order], images[:, 5 + query_order]], 1)
    assert distance(network(permuted, labels[:, support_order]), expected[:, query_order]) < 1e-12
    assert distance(expected.exp().sum(-1), torch.ones(2, 4, dtype=torch.float64)) < 1e-12
    repeated = network(torch.cat([images[:, :5], images[:, :5]], 1), labels)  # an image is most similar to itself
    assert torch.equal(repeated.argmax(-1)[:, 1], labels[:, 1])


def test_every_weight_has_a_gradient_and_an_absent_class_is_finite():
    network = model().train()
    episode = Episode(torch.rand(1, 6, 6, 6, 1, dtype=torch.float64), torch.tensor([[0, 1, 0, 1, 0, 2]]), 4)
    log_probs = by_example(network, episode)
    assert log_probs.isfinite().all()
    log_probs.mean().neg().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    by_example(network, Episode(episode.images, episode.labels.clamp(max=1), 4)).mean().neg().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(RECIPE, tmp_path_factory.mktemp("runs") / "run")


def test_held_out_classes_are_scored_beside_the_nearest_centroid(run):
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    assert evaluation.stream.part == "held-out"
    [scores] = replace(evaluation, tasks=24).score()
    assert (scores.tasks, scores.support_images, scores.model.images) == (24, 6, 24 * 9)
    correct, centroid_accuracies = [], []
    for step in range(6):
        episode = evaluation.stream.task(step)
        with torch.no_grad():
            correct.append(
                (evaluation.model.eval()(*episode.inputs).argmax(-1) == episode.query_labels).double().mean(1)
            )
        x = episode.images.flatten(2)
        centroids = x[:, :6].view(4, 3, 2, -1).mean(2)
        nearest = (x[:, 6:, None] - centroids[:, None]).square().sum(-1).argmin(-1)
        centroid_accuracies.append((nearest == episode.query_labels).double().mean())
    correct = torch.cat(correct)
    assert scores.model.accuracy == pytest.approx(correct.mean().item())
    assert scores.model.accuracy_error == pytest.approx(correct.std(unbiased=False).item() / 24**0.5)
    centroid = scores.baselines["nearest centroid, pixels"]
    assert centroid.accuracy == pytest.approx(torch.stack(centroid_accuracies).mean().item())
    assert centroid.gain == pytest.approx(scores.model.accuracy - centroid.accuracy)
    assert scores.baselines["shuffled support labels"].gain > 0.2  # predictions depend on the labels


def test_baselines_with_random_weights_do_not_depend_on_training(run):
    """The scores of random weights are those of a new model of the same seed, at every number of shots."""
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    stream = replace(evaluation.stream, shots=(1, 3))
    scores = replace(evaluation, stream=stream, tasks=8).score()
    assert [result.support_images for result in scores] == [3, 9]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        new = fillin.create("matching", 1, 3, width=16, strides=[2], dropout=0.1).eval()
    other = replace(evaluation, model=new, stream=stream, tasks=8).score()
    for result, expected in zip(scores, other, strict=True):
        assert result.baselines["random weights"].accuracy == pytest.approx(expected.model.accuracy)
        same = expected.baselines["random weights"]
        assert (same.gain, same.gain_error) == (0, 0)
        baseline = result.baselines["nearest centroid, random embedding"].accuracy
        assert baseline == expected.baselines["nearest centroid, embedding"].accuracy


def test_the_command_line_reports_scores(run, tmp_path, capsys):
    assert main(["evaluate", str(run.folder), "--json", str(tmp_path / "scores.json")]) == 0
    assert "nearest centroid, pixels" in capsys.readouterr().out
    row = json.loads((tmp_path / "scores.json").read_text())["rows"][0]
    assert (row["tasks"], row["support_images"]) == (600, 6)
    assert (run.folder / "evaluation" / "tasks.png").stat().st_size > 5000
    assert main(["evaluate", str(run.folder / "best"), "--source", "digits"]) == 2
    assert "without a recipe" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ways": 5}, "ways is 5, but digits has 4 classes that are held out"),
     ({"ways": 7, "held_out": (9,)}, "has 1 classes that are held out"),
     ({"held_out": (10,)}, "no images of the class 10"),
     ({"held_out": tuple(range(10))}, "0 classes that are not held"),
     ({"shots": 170}, "images of class 0 in the part 'train', but a task takes 170 shots and 5 queries"),
     ({"queries": 12}, "10 images of class 1 in the part 'test'"), ({"ways": 1}, "ways"), ({"shots": 0}, "shots"),
     ({"laid": 2}, "laid must be a share"), ({"turned": 1}, "turned must be"), ({"held_out": ()}, "held_out must be"),
     ({"held_out": 0}, "held_out must be a list"),
     ({"held_out": 3, "validation": 2}, "2 classes that are for validation; use fewer ways, or validate on more"),
     ({"held_out": 4, "validation": 4, "ways": 3}, "2 classes that are for training; use fewer ways, or validate"),
     ({"validation": -1}, "validation"), ({"shots": (3, 1)}, "shots must be two whole numbers"),
     ({"batch": 0}, "batch")],
)  # fmt: skip
def test_tasks_that_cannot_be_drawn(options, message, unchecked):
    with pytest.raises(FillinError, match=message):
        _ = FewShot(**options).dim_y


def test_a_class_with_one_image_is_an_error(tmp_path, capsys, unchecked):
    labels = np.array([0] * 9 + [1] * 9 + [2] * 9 + [3])
    pixels = np.random.default_rng(0).integers(0, 255, (28, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "few.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    arguments = [
        "--data.source",
        str(tmp_path / "few.npz"),
        "--data.ways=2",
        "--data.held_out=[2, 3]",
        "--data.shots=1",
    ]
    assert main(["train", "fewshot-digits", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert "2 images of class 3 in the part 'held-out'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_matching_network_needs_support_images(unchecked):
    with pytest.raises(FillinError, match="give at least one labelled image"):
        model()(torch.rand(1, 2, 4, 4, 1, dtype=torch.float64), torch.zeros(1, 0).long())


def test_the_included_recipe():
    recipe = read_recipe("fewshot-digits")
    assert recipe["model"]["name"] == "matching"
    assert replace(FewShot(), held_out=tuple(recipe["data"]["held_out"])).dim_y == 4
