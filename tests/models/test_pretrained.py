"""Weights that ship: each loads by name, predicts what it predicted when it was shipped, and beats a fresh model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.helpers import distance

import fillin
from fillin import pretrained
from fillin.data import Curves, curves
from fillin.data.images import Images
from fillin.evaluate import evaluate
from fillin.evaluate.card import CardScores, publish, score_curves, score_images, write_card
from fillin.evaluate.curves import open_curves
from fillin.evaluate.image_completion import open_completion
from fillin.models import create
from fillin.train import fit, open_run, read_recipe
from fillin.train.recipe import make_stream

GOLDEN = Path(__file__).parent / "golden.json"  # python tests/models/test_pretrained.py writes it anew


def stream(name: str) -> Curves | Images:
    """The training data; for a broad prior some curves with an exact limit."""
    found = make_stream(read_recipe(pretrained.FOLDER / name / "recipe.yaml"), seed=11)
    return found if isinstance(found, Curves | Images) else curves(**open_curves(name).data, seed=11)


@torch.no_grad()
def answer(name: str) -> dict[str, list[float]]:
    """What a model says of the first five targets of one task; of pixels, whose first are known, of the furthest."""
    model, data = fillin.load(name), stream(name)
    task = data.task(3).rows(slice(0, 1))
    some = torch.arange(5)
    if isinstance(data, Images):
        some = torch.cdist(task.xt, task.xc)[0].amin(-1).argsort(descending=True, stable=True)[:5]
    prediction = model(*task.inputs)
    return {key: getattr(prediction, key)[0, some].flatten().tolist() for key in ("mean", "stddev")}


@pytest.mark.parametrize("name", pretrained.names())
def test_it_predicts_what_it_did(name):
    wanted = json.loads(GOLDEN.read_text())[name]
    for key, value in answer(name).items():
        assert distance(torch.tensor(value), torch.tensor(wanted[key])) < 1e-4


@pytest.mark.parametrize("name", pretrained.names())
def test_it_has_learnt(name):
    model, data = fillin.load(name), stream(name)
    fresh = create(
        model.config["model"], model.dim_x or 1, model.dim_y, model.config["size"], **model.config["options"]
    )
    scores = [evaluate(some, data, batches=4, settings=0) for some in (model, fresh)]
    assert scores[0].log_likelihood > scores[1].log_likelihood + 0.5


@pytest.mark.parametrize("name", pretrained.names())
def test_its_card_says_what_it_is(name):
    text = (pretrained.FOLDER / name / "card.md").read_text()
    for wanted in (name, "Trained on", "steps of", "fillin evaluate", "Licence", "limit"):
        assert wanted in text
    assert sum(path.stat().st_size for path in (pretrained.FOLDER / name).rglob("*")) < 4_000_000


def test_a_run_can_be_shipped(tmp_path, monkeypatch):
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


def test_a_card_tells_what_its_weights_began_with(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    small = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1", "--model.hidden", "16"]
    small += ["--budget.time", "null", "--keep.batches", "1"]
    fit("te-tnp", tmp_path / "first", overrides=[*small, "--budget.steps", "4"])
    run = fit("te-tnp", tmp_path / "run", overrides=[*small, "--budget.steps", "3", "--start", str(tmp_path / "first")])
    scores = CardScores("curves", "none", [])
    folder = publish(open_run(run.folder), "mine", scores)
    assert "3 steps" in (folder / "card.md").read_text()
    assert "from weights trained for 4 steps" in (folder / "card.md").read_text()
    for name in ("card.md", "recipe.yaml"):
        assert str(tmp_path) not in (folder / name).read_text()
    assert read_recipe(folder / "recipe.yaml")["start"] is None  # so that whoever reads the card can train it
    on = open_run(run.folder)
    text = write_card(replace(on, recipe={**on.recipe, "start": "mine"}), "more", scores)  # weights that ship: no log
    assert "from weights trained for 3 steps, 0 minutes, from weights trained for 4 steps, 0 minutes" in text
    (folder / "card.md").unlink()
    with pytest.raises(fillin.FillinError, match=r"neither a log\.csv nor a card"):
        write_card(replace(on, recipe={**on.recipe, "start": "mine"}), "more", scores)


def test_the_card_of_images_says_whose_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    small = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1", "--model.hidden", "16"]
    small += ["--budget.time", "null", "--budget.steps", "2", "--keep.batches", "1"]
    run = fit("images-te-tnp", tmp_path / "run", overrides=small)
    evaluation = open_completion(run.folder, batches=1)
    scores = score_images(run, "mine", evaluation)
    text = (publish(open_run(run.folder), "mine", scores) / "card.md").read_text()
    assert "CC BY 4.0" in text
    assert "| upper half |" in text
    assert pretrained.about("mine")["learnt_from"].endswith("CC BY 4.0)")
    with pytest.raises(fillin.FillinError, match="if they allow publication"):
        score_images(run, "mine", replace(evaluation, source="mnist"))


def test_a_folder_comes_before_a_name(tmp_path, monkeypatch):
    name = pretrained.names()[0]
    monkeypatch.chdir(tmp_path)
    assert pretrained.locate(name) == pretrained.FOLDER / name
    Path(name).mkdir()
    assert pretrained.locate(name) == Path(name)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: answer(name) for name in pretrained.names()}, indent=1) + "\n")
