"""`fillin train dates`, `fillin evaluate` of its run, and the code of docs/seq2seq.md."""

import json
import re
from pathlib import Path

import pytest
import torch

import fillin
from fillin import plots
from fillin.cli import main
from fillin.data.sequences import END, Dates, Vocabulary
from fillin.errors import FillinError, InputError
from fillin.evaluate.sequences import SequenceEvaluation, open_sequences
from fillin.models import Seq2Seq, load
from fillin.train import fit, read_recipe

DOCS = Path(__file__).parents[2] / "docs" / "seq2seq.md"
TINY = [f"--{key}={value}" for key, value in {
    "data.batch": 4, "model.size": "small", "model.width": 16, "model.hidden": 16, "model.max_length": 12,
    "budget.steps": 3, "keep.log": 1, "keep.validations": 1, "keep.batches": 1,
}.items()]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run folder of the recipe, in miniature."""
    folder = tmp_path_factory.mktemp("runs") / "dates"
    fit("dates", folder, overrides=TINY)
    return folder


def test_the_recipe_trains_from_the_command_line(tmp_path, capsys):
    assert main(["train", "dates", *TINY, "--model.positions", "relative", "--out", str(tmp_path / "run")]) == 0
    assert "nats per token" in capsys.readouterr().err
    model = load(tmp_path / "run", Seq2Seq)
    assert model.positions == "relative"
    assert model.greedy(Dates(batch=2).task(0).source).shape[0] == 2


def test_training_lowers_the_loss(tmp_path):
    overrides = [*TINY, "--budget.steps=60", "--data.batch=16", "--model.width=32"]
    lines = fit("dates", tmp_path / "run", overrides=overrides).lines
    assert lines[-1].loss < 0.75 * lines[0].loss


def test_evaluation_from_the_command_line(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # a narrow table wraps its words
    assert main(["evaluate", str(run), "--batches", "1", "--json", str(tmp_path / "scores.json")]) == 0
    printed = capsys.readouterr().out
    assert "held-out dates in held-out formats" in printed
    assert "some mistakes" in printed  # three steps teach nothing
    content = json.loads((tmp_path / "scores.json").read_text())
    assert [row["setting"] for row in content["rows"]] == ["held-out dates", "held-out dates in held-out formats"]
    assert content["data"]["name"] == "dates"
    assert [Path(path).name for path in content["pictures"]] == ["attention.png"]
    assert (run / "evaluation" / "attention.png").stat().st_size > 10_000


class Oracle(Seq2Seq):
    """Model that decodes perfectly, except where the year is odd: there it stops one token too early."""

    def greedy(self, source, max_length=None):
        assert self.answers.shape[1] == max_length
        decoded = self.answers.clone()
        odd = (decoded[:, 3] % 2) == 0  # digit d is token d + 3
        decoded[odd, -2:] = torch.tensor([END, 0])
        return decoded


def test_exact_matches_count_sequences_that_are_right_up_to_their_end(monkeypatch):
    stream = Dates()
    model = Oracle(stream.dim_x, stream.dim_y, width=16, heads=2, layers=1, hidden=16)
    task = Dates.task

    def remember(self, step):
        batch = task(self, step)
        model.answers = batch.target
        return batch

    monkeypatch.setattr(Dates, "task", remember)
    scores = SequenceEvaluation(model, stream, batches=3).score()
    for row in scores:
        odd = [mistake for mistake in row.mistakes if int(mistake[2][3]) % 2]
        assert len(odd) == len(row.mistakes) > 0
        assert abs(row.exact - (1 - len(odd) / 96)) < 1e-12
        assert abs(row.tokens - (1 - 2 * len(odd) / (96 * 11))) < 1e-12
        assert all(decoded == target[:-1] for _, decoded, target in row.mistakes)


def test_models_without_their_data_are_refused(tmp_path):
    folder = fillin.save(fillin.create("seq2seq", 5, 4, size="small"), tmp_path / "other")
    with pytest.raises(InputError, match="has 5 source and 4 target symbols, but dates have 99 and 11"):
        open_sequences(folder)
    assert open_sequences(fillin.save(fillin.create("cnp", size="small"), tmp_path / "cnp")) is None
    dates = Dates()
    saved = fillin.save(fillin.create("seq2seq", dates.dim_x, dates.dim_y, size="small"), tmp_path / "dates")
    assert isinstance(open_sequences(saved), SequenceEvaluation)


@pytest.mark.parametrize("setting", ["--model.name=te-tnp", "--objective.name=log-likelihood", "--data.name=curves"])
def test_parts_of_the_recipe_go_together(setting):
    with pytest.raises(FillinError, match="teacher-forcing and the model seq2seq go together"):
        read_recipe("dates", [setting])


def test_alignments_must_fit_their_labels():
    with plots.style():
        _, [[axes]] = plots.panels(1, 1)
        plots.draw_alignment(axes, torch.rand(2, 3), ["a", "b", "c"], ["x", "y"])
        assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
        with pytest.raises(InputError, match=r"weights are \(2, 3\), but there are 3 written and 2 read tokens"):
            plots.draw_alignment(axes, torch.rand(2, 3), ["a", "b"], ["x", "y", "z"])


def test_the_code_of_the_tutorial_runs(tmp_path, monkeypatch):
    """Every block of Python, in order, with three steps of training; values in its comments are true."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL))
    assert code.count("steps = 1000") == 1
    names: dict = {}
    exec(code.replace("steps = 1000", "steps = 3"), names)
    assert 0 <= names["right"] <= 1
    assert (tmp_path / "numeral.png").exists()
    rows = torch.tensor(
        [[1, 0, 0, 0], [0.4750, 0.5250, 0, 0], [0.3322, 0.3672, 0.3006, 0], [0.2138, 0.2363, 0.2612, 0.2887]]
    )
    assert (names["weights"][0, 0] - rows).abs().max() < 1e-4
    assert names["letters"].encode(["XIV", "C"], end=True).tolist() == [[5, 3, 4, 2], [7, 2, 0, 0]]
    assert [names["roman"](n) for n in (1984, 40, 3999)] == ["MCMLXXXIV", "XL", "MMMCMXCIX"]


def test_texts_of_the_tutorial_can_be_read():
    """Its examples of dates consist of known symbols."""
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 3
    vocabularies: tuple[Vocabulary, Vocabulary] = (Dates().source, Dates().target)
    for texts, vocabulary in zip(zip(*rows, strict=True), vocabularies, strict=True):
        assert vocabulary.encode(texts).shape[0] == 3
