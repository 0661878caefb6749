"""Few-shot tasks: which images they hold, that names of classes mean nothing, and what goes wrong."""

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
    """The class of every image of digits, by its bytes."""
    both = [LabelledImages(part=part).images for part in ("train", "test")]
    return {i.tobytes(): int(k) for one in both for i, k in zip(one.pixels, labels_of(one), strict=True)}


def labels_of(found):
    assert found.labels is not None
    return found.labels


def model(**options):
    made = fillin.create("matching", 1, 3, **{"width": 16, "strides": [1], **options}).double().eval()
    assert isinstance(made, MatchingNetwork)
    return made


@pytest.mark.parametrize("part", ["train", "test", "held-out"])
def test_tasks_hold_what_they_say(part):
    stream = FewShot(ways=3, shots=2, queries=4, batch=5, seed=1, part=part)
    lesson, of = stream.task(3), classes()
    assert (lesson.images.shape, lesson.support) == ((5, 18, 8, 8, 1), 6)
    allowed = {6, 7, 8, 9} if part == "held-out" else set(range(6))
    for images, labels in zip(lesson.images, lesson.labels, strict=True):
        pixels = [one.tobytes() for one in ((images + 0.5) * 255).round().byte().numpy()]
        names = {}
        for one, label in zip(pixels, labels.tolist(), strict=True):
            names.setdefault(label, set()).add(of[one])
        assert set(names) == {0, 1, 2}
        assert all(len(found) == 1 for found in names.values())  # a name is of one class
        assert len(set.union(*names.values())) == 3
        assert set.union(*names.values()) <= allowed
        assert len(set(pixels)) == 18  # no image twice, none both shown and asked about
    assert lesson.labels[0, :6].bincount().tolist() == [2, 2, 2]
    assert lesson.query_labels[0].bincount().tolist() == [4, 4, 4]


def test_names_are_dealt_out_anew():
    of, seen = classes(), set()
    for step in range(12):
        lesson = FewShot(ways=4, batch=4).task(step)
        pixels = ((lesson.images[:, 0] + 0.5) * 255).round().byte().numpy()
        seen |= {of[one.tobytes()] for one in pixels}
    assert seen == set(range(6))  # each class has been called 0


def test_batches_are_a_function_of_seed_and_step():
    one, again, other = (FewShot(laid=0.5, shift=1, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.task(9).images, again.task(9).images)
    assert not torch.equal(one.task(9).images, other.task(9).images)
    assert not torch.equal(one.task(9).images, one.task(8).images)
    assert one.validation_stream(2).part == "test"


def test_classes_laid_over_one_another():
    """All of them: no image of a task is one of the set, all are lighter than one; in testing there are none."""
    lesson, of = FewShot(laid=1.0, seed=2).task(0), classes()
    pixels = ((lesson.images.flatten(0, 1) + 0.5) * 255).round().byte().numpy()
    assert sum(one.tobytes() in of for one in pixels) == 0
    plain = FewShot(seed=2).task(0)
    assert lesson.images.mean() > plain.images.mean() + 0.05
    assert torch.equal(*(FewShot(laid=laid, seed=2, part="held-out").task(0).images for laid in (0.0, 1.0)))


def test_a_class_that_is_turned_is_another():
    """All images of a class are turned alike, and turned back each is one of the set; all eight ways occur, in training
    alone."""
    of, seen = classes(), set()
    for step in range(8):
        lesson = FewShot(turned=True, ways=3, shots=1, queries=2, batch=4, seed=1).task(step)
        pixels = ((lesson.images + 0.5) * 255).round().byte().numpy()[..., 0]
        for images, labels in zip(pixels, lesson.labels, strict=True):
            for name in range(3):
                same = [ways_back(one, of) for one in images[labels.numpy() == name]]
                assert set.intersection(*same)
                seen |= set.intersection(*same)
    assert len(seen) == 8
    assert torch.equal(*(FewShot(turned=turned, part="held-out").task(0).images for turned in (False, True)))


def ways_back(image, of):
    """By which symmetries of a square it is an image of the set."""
    ways = {(k, mirror): np.rot90(image[:, ::-1] if mirror else image, k) for k in range(4) for mirror in (0, 1)}
    return {way for way, back in ways.items() if np.ascontiguousarray(back).tobytes() in of}


def test_names_of_classes_mean_nothing():
    one = model()
    images, labels = torch.rand(2, 9, 6, 6, 1, dtype=torch.float64) - 0.5, torch.tensor([[0, 1, 2, 0, 2]] * 2)
    wanted, rename = one(images, labels), torch.tensor([2, 0, 1])
    assert distance(one(images, rename[labels])[..., rename], wanted) < 1e-12
    shown, asked = torch.randperm(5), torch.randperm(4)
    mixed = torch.cat([images[:, shown], images[:, 5 + asked]], 1)
    assert distance(one(mixed, labels[:, shown]), wanted[:, asked]) < 1e-12
    assert distance(wanted.exp().sum(-1), torch.ones(2, 4, dtype=torch.float64)) < 1e-12
    sure = one(torch.cat([images[:, :5], images[:, :5]], 1), labels)  # an image that is shown is most like itself
    assert torch.equal(sure.argmax(-1)[:, 1], labels[:, 1])


def test_every_weight_learns_and_a_class_that_is_not_shown_is_finite():
    one = model().train()
    lesson = Episode(torch.rand(1, 6, 6, 6, 1, dtype=torch.float64), torch.tensor([[0, 1, 0, 1, 0, 2]]), 4)
    found = by_example(one, lesson)
    assert found.isfinite().all()
    found.mean().neg().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in one.parameters())
    by_example(one, Episode(lesson.images, lesson.labels.clamp(max=1), 4)).mean().neg().backward()
    assert [name for name, p in one.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(RECIPE, tmp_path_factory.mktemp("runs") / "run")


def test_classes_held_out_are_told_beside_the_nearest_centroid(run):
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    assert evaluation.stream.part == "held-out"
    scores = replace(evaluation, tasks=24).score()
    assert (scores.tasks, scores.shown, scores.found.images) == (24, 6, 24 * 9)
    right, means = [], []
    for step in range(6):
        lesson = evaluation.stream.task(step)
        with torch.no_grad():
            right.append((evaluation.model.eval()(*lesson.inputs).argmax(-1) == lesson.query_labels).double().mean(1))
        x = lesson.images.flatten(2)
        centres = x[:, :6].view(4, 3, 2, -1).mean(2)
        nearest = (x[:, 6:, None] - centres[:, None]).square().sum(-1).argmin(-1)
        means.append((nearest == lesson.query_labels).double().mean())
    right = torch.cat(right)
    assert scores.found.accuracy == pytest.approx(right.mean().item())
    assert scores.found.accuracy_error == pytest.approx(right.std(unbiased=False).item() / 24**0.5)
    assert scores.centroid_pixels == pytest.approx(torch.stack(means).mean().item())
    assert scores.shuffled < scores.found.accuracy - 0.2  # it reads the labels


def test_the_command_line_tells_how_good_it_is(run, tmp_path, capsys):
    assert main(["evaluate", str(run.folder), "--json", str(tmp_path / "found.json")]) == 0
    assert "nearest centroid, pixels" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())["rows"][0]
    assert (found["tasks"], found["shown"]) == (600, 6)
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
     ({"held_out": 6}, "held_out must be a list"), ({"batch": 0}, "batch")],
)  # fmt: skip
def test_tasks_that_cannot_be_drawn(options, message, unchecked):
    with pytest.raises(FillinError, match=message):
        _ = FewShot(**options).dim_y


def test_one_image_of_a_class(tmp_path, capsys, unchecked):
    labels = np.array([0] * 9 + [1] * 9 + [2] * 9 + [3])
    pixels = np.random.default_rng(0).integers(0, 255, (28, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "few.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    said = ["--data.source", str(tmp_path / "few.npz"), "--data.ways=2", "--data.held_out=[2, 3]", "--data.shots=1"]
    assert main(["train", "fewshot-digits", *said, "--out", str(tmp_path / "run")]) == 2
    assert "2 images of class 3 in the part 'held-out'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_matching_model_must_be_shown_something(unchecked):
    with pytest.raises(FillinError, match="give at least one labelled image"):
        model()(torch.rand(1, 2, 4, 4, 1, dtype=torch.float64), torch.zeros(1, 0).long())


def test_the_recipe_that_ships():
    recipe = read_recipe("fewshot-digits")
    assert recipe["model"]["name"] == "matching"
    assert replace(FewShot(), held_out=tuple(recipe["data"]["held_out"])).dim_y == 4
