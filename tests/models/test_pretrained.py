"""Pretrained weights: loading by name, unchanged predictions, and better scores than random weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.helpers import distance

import fillin
from fillin import pretrained
from fillin.data import Curves, curves
from fillin.data.images import Images
from fillin.evaluate import evaluate
from fillin.evaluate.card import CardScores, publish, score_curves, score_few_shot, score_images, write_card
from fillin.evaluate.classification import open_classifier
from fillin.evaluate.curves import open_curves
from fillin.evaluate.image_completion import open_completion
from fillin.evaluate.in_context import InContextEvaluation
from fillin.models import Classifier, InContextClassifier, Process, create
from fillin.models.sheet import Sheet
from fillin.objectives import by_example, queried_cells
from fillin.train import fit, open_run, read_recipe
from fillin.train.recipe import make_stream

GOLDEN = Path(__file__).parent / "golden.json"  # updated by PYTHONPATH=tests python tests/models/test_pretrained.py


def make_data(name: str) -> Curves | Images:
    """Training data; for a broad prior curves with an exact limit."""
    data = make_stream(read_recipe(pretrained.FOLDER / name / "recipe.yaml"), seed=11)
    return data if isinstance(data, Curves | Images) else curves(**open_curves(name).data, seed=11)


@torch.no_grad()
def predict_targets(name: str) -> dict[str, list[float]]:
    """Predictions of the first five targets of a task; of an image, of the five pixels furthest from the context; of
    classes, their probabilities for five images of noise, which no version of a font changes."""
    model: Any = fillin.load(name)
    if isinstance(model, InContextClassifier):
        images = torch.rand(1, 10, 24, 24, 1, generator=torch.Generator().manual_seed(0)) - 0.5
        return {"probabilities": model(images, torch.arange(5)[None]).softmax(-1).flatten().tolist()}
    data = make_data(name)
    task = data.task(3).rows(slice(0, 1))
    selected = torch.arange(5)
    if isinstance(data, Images):
        selected = torch.cdist(task.xt, task.xc)[0].amin(-1).argsort(descending=True, stable=True)[:5]
    prediction = model(*task.inputs)
    return {key: getattr(prediction, key)[0, selected].flatten().tolist() for key in ("mean", "stddev")}


@pytest.mark.parametrize("name", pretrained.names())
def test_predictions_are_unchanged(name):
    expected = json.loads(GOLDEN.read_text())[name]
    for key, value in predict_targets(name).items():
        assert distance(torch.tensor(value), torch.tensor(expected[key])) < 1e-4


@torch.no_grad()
def score(model: Process | Classifier, name: str) -> float:
    """Log-likelihood on held-out data; of sheets on their prior, where single smooth curves are a small part; of
    few-shot tasks on held-out classes."""
    if isinstance(model, InContextClassifier):
        stream: Any = make_stream(read_recipe(pretrained.FOLDER / name / "recipe.yaml"), seed=11)
        held_out = replace(stream, part="held-out")
        return sum(by_example(model, held_out.task(step)).mean().item() for step in range(4)) / 4
    if not isinstance(model, Sheet):
        return evaluate(model, make_data(name), batches=4, limit_samples=0).log_likelihood
    stream = make_stream(read_recipe(pretrained.FOLDER / name / "recipe.yaml")).validation_stream(seed=11)
    return sum(queried_cells(model, stream.task(step)).mean().item() for step in range(8)) / 8


@pytest.mark.parametrize("name", pretrained.names())
def test_pretrained_weights_beat_random_weights(name):
    model = fillin.load(name)
    untrained = create(
        model.config["model"], model.dim_x or 1, model.dim_y, model.config["size"], **model.config["options"]
    )
    assert score(model, name) > score(untrained, name) + 0.5


@pytest.mark.parametrize("name", pretrained.names())
def test_the_card_of_a_model_is_complete(name):
    text = (pretrained.FOLDER / name / "card.md").read_text()
    for phrase in (name, "Trained on", "steps of", "fillin evaluate", "Licence", "limit"):
        assert phrase in text
    assert sum(path.stat().st_size for path in (pretrained.FOLDER / name).rglob("*")) < 4_000_000


def test_a_run_can_be_published(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    options = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1", "--model.hidden", "16"]
    run = fit(
        "te-tnp",
        tmp_path / "run",
        overrides=[*options, "--budget.time", "null", "--budget.steps", "3", "--keep.batches", "1"],
    )
    scores = score_curves(run, "mine", 2, 8)
    folder = publish(open_run(run.folder), "mine", scores)
    assert pretrained.names() == ["mine"]
    assert (folder / "card.md").read_text() == write_card(run, "mine", scores)
    for a, b in zip(fillin.load("mine").parameters(), run.model().parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_card_names_the_training_of_its_start_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    overrides = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1", "--model.hidden", "16"]
    overrides += ["--budget.time", "null", "--keep.batches", "1"]
    fit("te-tnp", tmp_path / "first", overrides=[*overrides, "--budget.steps", "4"])
    run = fit(
        "te-tnp", tmp_path / "run", overrides=[*overrides, "--budget.steps", "3", "--start", str(tmp_path / "first")]
    )
    scores = CardScores("curves", "none", [])
    folder = publish(open_run(run.folder), "mine", scores)
    assert "3 steps" in (folder / "card.md").read_text()
    assert "from weights trained for 4 steps" in (folder / "card.md").read_text()
    for name in ("card.md", "recipe.yaml"):
        assert str(tmp_path) not in (folder / name).read_text()
    assert read_recipe(folder / "recipe.yaml")["start"] is None  # so that readers of the card can train the model
    opened = open_run(run.folder)
    text = write_card(
        replace(opened, recipe={**opened.recipe, "start": "mine"}), "more", scores
    )  # pretrained weights have no log
    assert "from weights trained for 3 steps, 0 minutes, from weights trained for 4 steps, 0 minutes" in text
    (folder / "card.md").unlink()
    with pytest.raises(fillin.FillinError, match=r"neither a log\.csv nor a card"):
        write_card(replace(opened, recipe={**opened.recipe, "start": "mine"}), "more", scores)


def test_few_shot_weights_beat_every_baseline_on_held_out_alphabets():
    """At 1 and at 5 shots, by more than four standard errors of the paired difference at least over what needs no
    training; and every baseline is below the model."""
    evaluation = open_classifier("few-shot-glyphs")
    assert isinstance(evaluation, InContextEvaluation)
    for result in replace(evaluation, tasks=80).score():
        for name, baseline in result.baselines.items():
            assert baseline.gain > 0, name
            if name != "nearest centroid, embedding":  # which training has made good as well
                assert baseline.gain > max(0.05, 4 * baseline.gain_error), name


def test_the_card_of_a_few_shot_model(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    options = [
        "--data.source=digits",
        "--data.ways=2",
        "--data.held_out=3",
        "--data.validation=2",
        "--model.size=small",
    ]
    run = fit(
        "fewshot-glyphs", tmp_path / "run",
        overrides=[*options, "--budget.time=null", "--budget.steps=2", "--keep.batches=1"],
    )  # fmt: skip
    evaluation = open_classifier(run.folder)
    assert isinstance(evaluation, InContextEvaluation)
    scores = score_few_shot(run, "mine", replace(evaluation, tasks=8))
    text = (publish(open_run(run.folder), "mine", scores) / "card.md").read_text()
    assert "CC BY 4.0" in text
    assert "2-way 1-shot" in text
    assert "| random weights |" in text
    assert "Standard deviations" not in text  # there are none
    assert "the last 3 classes" in pretrained.about("mine")["trained_on"]


def test_the_card_of_an_image_model_names_the_licence(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    overrides = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1", "--model.hidden", "16"]
    overrides += ["--budget.time", "null", "--budget.steps", "2", "--keep.batches", "1"]
    run = fit("images-te-tnp", tmp_path / "run", overrides=overrides)
    evaluation = open_completion(run.folder, batches=1)
    scores = score_images(run, "mine", evaluation)
    text = (publish(open_run(run.folder), "mine", scores) / "card.md").read_text()
    assert "CC BY 4.0" in text
    assert "| upper half |" in text
    assert pretrained.about("mine")["trained_on"].endswith("CC BY 4.0)")
    with pytest.raises(fillin.FillinError, match="if they allow publication"):
        score_images(run, "mine", replace(evaluation, source="mnist"))


def test_a_folder_precedes_a_pretrained_name(tmp_path, monkeypatch):
    name = pretrained.names()[0]
    monkeypatch.chdir(tmp_path)
    assert pretrained.locate(name) == pretrained.FOLDER / name
    Path(name).mkdir()
    assert pretrained.locate(name) == Path(name)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: predict_targets(name) for name in pretrained.names()}, indent=1) + "\n")
