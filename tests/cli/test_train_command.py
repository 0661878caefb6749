"""`fillin train`: settings in any position, errors that name the setting, and progress messages."""

import pytest
from support.helpers import SMALL, recipe_arguments

from fillin.cli import main
from fillin.train import dump_recipe, names, read_recipe
from fillin.train.log import read_log


def test_train_lists_included_recipes(capsys):
    assert main(["train"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in names())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["te-tpn"], "unknown recipe 'te-tpn'; did you mean 'te-tnp'"), (["te-tnp", "--steps", "x"], "budget.steps"),
     (["te-tnp", "--tiem", "5m"], "did you mean '--time'"),
     (["te-tnp", "--time", "1:30"], "a time is written 90s, 1m30s or 1h30m, got '1:30'"),
     (["te-tnp", "--model.widht", "3"], "did you mean 'model.width'"), (["--resume", "nowhere"], "is not a run"),
     (["te-tnp", "--resume", "x"], "already has a recipe"), (["--print-config"], "no recipe given"),
     (["te-tnp", "--devices", "x"], "whole number"), (["te-tnp", "--model.score"], "--model.score needs a value"),
     (["te-tnp", "--strategy", "dpp", "--steps", "1"], "strategy='dpp'"), (["te-tnp", "cnp"], "expected a setting")],
)  # fmt: skip
def test_wrong_usage(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_settings_can_be_in_any_position(capsys):
    """argparse would take the value of an unknown option for the recipe."""
    printed = []
    for arguments in (["te-tnp", "--model.width", "32", "--time", "5m"], ["--model.width=32", "--time", "5m", "te-tnp"],
                      ["--time", "5m", "--model.width", "32", "te-tnp"]):  # fmt: skip
        assert main(["train", *arguments, "--print-config"]) == 0
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1
    assert "width: 32" in printed[0]
    assert "time: 5m" in printed[0]


def test_one_kind_of_budget_replaces_the_other(capsys):
    for arguments, budget in (
        (["--steps", "7"], {"steps": 7, "time": None}),
        (["--time", "7m"], {"steps": None, "time": "7m"}),
        (["--time", "7m", "--steps", "7"], {"steps": 7, "time": "7m"}),
        (["--budget.steps", "7"], {"steps": 7, "time": "7m"}),
    ):
        assert main(["train", "te-tnp", *arguments, "--print-config"]) == 0
        assert dump_recipe({**read_recipe("te-tnp"), "budget": budget}) == capsys.readouterr().out


def test_a_run_prints_its_progress_and_its_folder(tmp_path, capsys):
    out = tmp_path / "a [long] name"
    assert main(["train", "te-tnp", *recipe_arguments(SMALL), "--steps", "6", "--out", str(out)]) == 0
    printed = capsys.readouterr().err
    assert "100%  step 6" in printed
    assert f"{out}: 6 steps" in printed
    assert f"weights: {out}/best" in printed
    assert main(["train", "te-tnp", "--out", str(out)]) == 2
    assert f"already holds a run; continue it with --resume {out}" in capsys.readouterr().err
    assert main(["train", "--resume", str(out), "--print-config"]) == 0
    assert capsys.readouterr().out == (out / "recipe.yaml").read_text()
    assert main(["train", "--resume", str(out), "--steps", "8", "--keep.log", "1"]) == 0
    assert [line.step for line in read_log(out)] == [2, 3, 4, 6, 7, 8]


def test_a_run_on_tables_does_not_recommend_what_evaluate_refuses(tmp_path, capsys):
    options = ["--model.width=16", "--model.heads=2", "--model.layers=1", "--keep.batches=1"]
    assert main(["train", "table", "--steps", "1", "--out", str(tmp_path / "run"), *options]) == 0
    err = capsys.readouterr().err
    assert "weights: " in err
    assert "fillin evaluate" not in err
    assert main(["evaluate", str(tmp_path / "run")]) == 2
