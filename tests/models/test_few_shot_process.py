"""A process with a categorical head on images: equivariance to classes, invariances, learning, errors."""

from dataclasses import replace

import pytest
import torch
from support.helpers import distance
from torch import nn

import fillin
from fillin.cli import main
from fillin.data.images import Episode, FewShot
from fillin.errors import FillinError
from fillin.evaluate.classification import open_classifier
from fillin.evaluate.in_context import InContextEvaluation
from fillin.models import FewShotProcess
from fillin.models.base import Points, Targets
from fillin.objectives import by_example
from fillin.train import fit, read_recipe

TINY = {"width": 16, "heads": 2, "layers": 2, "hidden": 16, "channels": 16}
PROCESSES = ["tnp-d", "te-tnp", "canp", "cnp"]
RECIPE = {
    "data": {"name": "few-shot", "ways": 3, "shots": [1, 3], "queries": 3, "batch": 4, "shift": 1, "held_out": 3,
             "validation": 3},
    "model": {"name": "few-shot", **TINY, "strides": [2], "dropout": 0.1},
    "objective": {"name": "by-example"},
    "budget": {"steps": 4}, "keep": {"log": 1, "validations": 2, "batches": 1},
}  # fmt: skip


def model(colours=1, noise=0.1, **options):
    """A model with weights large enough to matter."""
    network = fillin.create("few-shot", colours, 3, **{**TINY, "strides": [2], **options}).double().eval()
    assert isinstance(network, FewShotProcess)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return network


def draw_images(b=2, n=9, side=6, colours=1):
    return torch.rand(b, n, side, side, colours, dtype=torch.float64) - 0.5


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_predictions_are_equivariant_to_classes_and_invariant_to_order(process, embedding):
    network, images = model(process=process, embedding=embedding), draw_images()
    labels, rename = torch.tensor([[0, 1, 2, 0, 2], [1, 1, 0, 2, 2]]), torch.tensor([2, 0, 1])
    expected = network(images, labels)
    assert expected.shape == (2, 4, 3)
    assert distance(network(images, rename[labels])[..., rename], expected) < 1e-12
    support_order, query_order = torch.randperm(5), torch.randperm(4)
    permuted = torch.cat([images[:, support_order], images[:, 5 + query_order]], 1)
    assert distance(network(permuted, labels[:, support_order]), expected[:, query_order]) < 1e-12
    alone = torch.cat([images[:, :5], images[:, 7:8]], 1)
    assert distance(network(alone, labels)[:, 0], expected[:, 2]) < 1e-12  # queries do not see one another
    assert distance(network(images, labels.flip(1)), expected) > 1e-4  # the pairing of images and labels matters


@pytest.mark.parametrize("process", PROCESSES)
def test_any_number_of_classes(process):
    """Further classes without images do not change the odds of the others; those are equal among themselves."""
    network, images = model(process=process), draw_images()
    labels = torch.tensor([[0, 1, 2, 0, 2]] * 2)
    expected, more = network(images, labels), network(images, labels, classes=6)
    assert more.shape == (2, 4, 6)
    assert distance(more[..., :3], expected) < 1e-12
    assert distance(more[..., 3:], more[..., 3:4].expand(-1, -1, 3)) < 1e-12
    with pytest.raises(FillinError, match="pass classes=3"):
        network(images, labels, classes=2)
    with pytest.raises(FillinError, match="classes must be a whole number"):
        network(images, labels, classes=0)


@pytest.mark.parametrize("process", PROCESSES)
def test_without_a_support_set_all_classes_are_equally_likely(process):
    images = draw_images()
    probabilities = model(process=process)(images, torch.zeros(2, 0).long()).softmax(-1)
    assert distance(probabilities, torch.full((2, 9, 3), 1 / 3, dtype=torch.float64)) < 1e-12


def test_the_translation_equivariant_process_reads_distances_of_embeddings_alone():
    """Shifts and rotations of all embeddings change nothing; without the radial process they do."""
    h, labels = torch.randn(2, 9, 16, dtype=torch.float64), torch.tensor([[0, 1, 2, 0, 2]] * 2)
    rotation = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64)).Q
    moved = h @ rotation + torch.randn(16, dtype=torch.float64)
    for process, same in (("te-tnp", True), ("tnp-d", False)):
        network = model(process=process)
        network.norm = nn.Identity()
        change = distance(network.predict(moved, labels), network.predict(h, labels))
        assert change < 1e-10 if same else change > 1e-3


def test_the_logit_of_a_class_is_that_of_the_process_on_its_column():
    """Class by class, through the public parts of a process."""
    network, images = model(), draw_images(1)
    labels = torch.tensor([[0, 1, 2, 0, 2]])
    x = network.norm(network.embed_images(images))
    logits = []
    for k in range(3):
        y = (labels == k).double()[..., None]
        context = Points(x[:, :5], y, torch.ones_like(y, dtype=torch.bool), None)
        targets = Targets(x[:, 5:], None)
        features = network.process.decode(network.process.encode(context, targets), targets)
        logits.append(network.process.head.out(features)[..., 0])
    assert distance(network(images, labels), torch.stack(logits, -1)) < 1e-12


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("embedding", ["cnn", "patches"])
def test_every_parameter_has_a_gradient(process, embedding):
    labels = torch.arange(48).expand(4, 48) % 3
    images = draw_images(4, 48, 8, 3) * 4 * torch.randn(4, 48, 1, 1, 3, dtype=torch.float64)
    without = []
    for noise in (0.0, 0.1, 0.3, 1.0):  # a bias cancels where the same units are active for every class
        network = model(3, noise, process=process, embedding=embedding).train()
        by_example(network, Episode(images, labels, 24)).mean().neg().backward()
        without.append({name for name, p in network.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12})
    constant = {"process.head.out.bias"}  # the same for all classes: it cancels in their softmax
    if process == "te-tnp":
        constant.add("norm.bias")  # a shift of all embeddings, to which the process is invariant
    assert set.intersection(*without) <= constant
    for shape in ((5, 9), (1, 1)):
        assert network(torch.rand(1, 4, *shape, 3, dtype=torch.float64), labels[:1, :2]).isfinite().all()


def test_classes_are_learned_from_the_support_alone():
    """Bright and dark images, labelled at random in every task: the brightness says nothing without the support."""
    torch.manual_seed(0)
    network = fillin.create("few-shot", 1, 2, **{**TINY, "width": 32, "strides": [2]}).train()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)

    def draw_episode(seed, b=32):
        rng = torch.Generator().manual_seed(seed)
        bright = torch.arange(8).expand(b, 8) % 2
        images = 0.2 * torch.rand(b, 8, 4, 4, 1, generator=rng) + 0.5 * bright[..., None, None, None] - 0.5
        return Episode(images, bright ^ torch.randint(0, 2, (b, 1), generator=rng), 4)

    for step in range(100):
        optimiser.zero_grad()
        by_example(network, draw_episode(step)).mean().neg().backward()
        optimiser.step()
    episode = draw_episode(10**6)
    with torch.no_grad():
        predicted = network(*episode.inputs).argmax(-1)
        inverted = network(episode.images, 1 - episode.inputs[1]).argmax(-1)
    assert (predicted == episode.query_labels).double().mean() > 0.95
    assert (inverted == episode.query_labels).double().mean() < 0.05


# ---- from the command line


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(RECIPE, tmp_path_factory.mktemp("runs") / "run")


def test_a_run_is_repeated_byte_by_byte_and_evaluated(run, tmp_path):
    fit(RECIPE, tmp_path / "again")
    for name in ("best/model.safetensors", "last/model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (run.folder / name).read_bytes()
    evaluation = open_classifier(run.folder)
    assert isinstance(evaluation, InContextEvaluation)
    evaluation = replace(evaluation, tasks=8)
    scores = evaluation.score()
    assert [(result.tasks, result.support_images) for result in scores] == [(8, 3), (8, 9)]  # fewest and most shots
    for table in evaluation.tables("run", scores):
        labels = [row[0] for row in table.rows]
        assert labels[0] == "model"
        assert {"shuffled support labels", "nearest centroid, pixels", "random weights"} < set(labels)
    (picture,) = evaluation.draw(tmp_path, scores)
    assert picture.stat().st_size > 5000


def test_another_source_has_new_classes_alone(run):
    evaluation = open_classifier(run.folder, "glyphs")
    assert evaluation is not None
    assert len(evaluation.stream.members) > 400
    evaluation = open_classifier(run.folder)
    assert evaluation is not None
    assert len(evaluation.stream.members) == 3


def test_its_weights_fill_nothing_and_are_not_exported(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("t,v\n1,2\n2,\n3,4\n4,5\n")
    assert main(["fill", str(tmp_path / "a.csv"), "--model", "few-shot-glyphs"]) == 2
    assert "few-shot-glyphs is not a model that fills gaps" in capsys.readouterr().err
    assert main(["export", "few-shot-glyphs", str(tmp_path / "a.onnx")]) == 2
    assert "holds the model few-shot, which is no Process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [({"process": "tnp"}, "did you mean 'tnp-d'"), ({"embedding": "cnnn"}, "did you mean 'cnn'"),
     ({"dropout": 1}, "dropout"), ({"strides": [0]}, "strides"), ({"channels": 0}, "channels must be an even"),
     ({"heads": 0}, "heads"), ({"embedding": "patches", "patch": 0}, "side of a patch")],
)  # fmt: skip
def test_bad_options(options, message, unchecked):
    with pytest.raises(FillinError, match=message):
        fillin.create("few-shot", 1, 3, **{**TINY, **options})


def test_the_included_recipe():
    recipe = read_recipe("fewshot-glyphs")
    data = {key: tuple(v) if isinstance(v, list) else v for key, v in recipe["data"].items() if key != "name"}
    assert FewShot(**data).dim_y == 5
    assert recipe["model"]["name"] == "few-shot"
