"""`fillin bench speed` in miniature: its cases, its ratios, and the page made of them."""

import json
from pathlib import Path

import pytest

from fillin.attention import kernel
from fillin.cli import main
from fillin.layers import MultiHeadAttention
from fillin_studies.bench import speed
from fillin_studies.bench.models import StepSize
from fillin_studies.bench.results_pages import make_speed_page
from fillin_studies.bench.tables import make_tables


@pytest.fixture
def tiny(monkeypatch):
    for name, value in {
        "STEPS": 1, "POINTS": 40, "SIDE": 4, "MIN_SECONDS": 0.0, "THREADS": (1,),
        "LARGE": StepSize(8, 8, batch=1), "SMALL": StepSize(4, 4, batch=2),
    }.items():  # fmt: skip
        monkeypatch.setattr(speed, name, value)
    monkeypatch.setenv("COLUMNS", "250")


def test_command_measures_every_case_and_its_page_has_every_row(tiny, tmp_path, capsys):
    path = tmp_path / "speed.json"
    assert main(["bench", "speed", "--rounds", "1", "--json", str(path)]) == 0
    content = json.loads(path.read_text())
    rows = content["rows"]
    assert content["budget"]["other_load"] is None or 0 <= content["budget"]["other_load"] < 1000
    assert len(rows) == len(speed.list_cases()) == 4 + len({8, 16} & set(kernel.find_builds()))
    for row in rows:
        assert row["ratio"] > 0
        assert row["holds"] == (row["ratio"] >= row["required"] if row["at_least"] else row["ratio"] <= row["required"])
        assert (row["of_limit"] is None) == ("window" not in row["milliseconds"])
        assert (row["gain"] is None) == ("te-tnp" not in row["milliseconds"])
    text = make_speed_page(tmp_path)
    assert text.startswith("# Speed of what users wait for\n\n`fillin bench speed --rounds 1")
    assert all(f"| {row['case']} |" in text for row in rows)
    assert "fillin.fill by curve, 40 points" in capsys.readouterr().out


def test_the_page_in_docs_is_made_of_its_json():
    docs = Path(__file__).parents[2] / "docs" / "results"
    assert (docs / "speed.md").read_text() == make_speed_page(docs)
    assert len(make_tables(json.loads((docs / "speed.json").read_text()))) == 1


def test_the_plain_path_is_that_of_every_layer():
    model = speed.use_reference(speed.make_model("te-tnp", 0, score="rbf"))
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert layers
    assert all(layer.backend == "reference" for layer in layers)
