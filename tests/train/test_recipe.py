"""Recipes: precedence of settings, round trip through YAML, and errors that name the setting and the remedy."""

import pytest
from support.helpers import SMALL
from torch.testing import assert_close

from fillin.cli import main
from fillin.errors import FillinError
from fillin.models import list_options
from fillin.train import dump_recipe, fit, names, read_recipe
from fillin.train.loop import make_objective
from fillin.train.recipe import build_model, make_stream, parse_budget_time


def test_overrides_precede_the_file_and_the_file_precedes_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: {name: te-tnp, size: small}\nbudget: {steps: 10}\noptimiser: {rate: 2.0e-3}\n")
    recipe = read_recipe(path, ["--optimiser.rate", "1e-3", "--data.protocol=te-tnp", "--seed", "7"])
    assert recipe["optimiser"] == {"name": "muon", "rate": 1e-3, "decay": 0.1, "clip": 20.0}
    assert recipe["data"]["target_range"] == [-3.0, 3.0]
    assert recipe["model"]["width"] == 64
    assert recipe["seed"] == 7
    assert set(list_options("te-tnp")) <= set(recipe["model"])


@pytest.mark.parametrize("name", names())
def test_included_recipes_are_complete(name):
    recipe = read_recipe(name)
    stream = make_stream(recipe)
    model = build_model(recipe, stream)
    assert make_objective(recipe)(model, stream.task(0).rows(slice(0, 2))).isfinite().all()


@pytest.mark.parametrize(
    "overrides",
    [[], ["--model.name", "convnp"], ["--model.span", "{init: 0.7}"], ["--data.noise", "[0.1, 0.2]"],
     ["--budget.time", "90"], ["--data.function", "2 rbf * linear | sawtooth"], ["--budget.steps", "2e4"],
     ["--model.size", "1m"]],
)  # fmt: skip
def test_a_printed_recipe_is_read_back_unchanged(overrides, tmp_path, capsys):
    assert main(["train", "te-tnp", *overrides, "--print-config"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert read_recipe(tmp_path / "printed.yaml") == read_recipe("te-tnp", overrides)
    assert dump_recipe(read_recipe(tmp_path / "printed.yaml")) == dump_recipe(read_recipe("te-tnp", overrides))


def test_notations_of_numbers_and_durations():
    assert read_recipe(SMALL, ["--budget.steps", "2e4"])["budget"]["steps"] == 20_000
    assert read_recipe({**SMALL, "data": None}) == read_recipe({k: v for k, v in SMALL.items() if k != "data"})
    seconds = [parse_budget_time(t) for t in ("90", 90, "90s", "20m", "1h30m", "1m30s", "0.5s", " 1h 1s ", None)]
    assert seconds == [90, 90, 90, 1200, 5400, 90, 0.5, 3601, None]


@pytest.mark.parametrize("text", ["1:30", "1:30:00", "1:30.5", "0:45", "1h30", "1m30", "30m1h", "-5m", "1h:30m"])
def test_ambiguous_durations_are_refused(text, tmp_path):
    """YAML reads 1:30 as the number 90, on the command line and in a file."""
    message = "budget.time: a time is written 90s, 1m30s or 1h30m, got "
    with pytest.raises(FillinError, match=f"recipe: {message}"):
        read_recipe(SMALL, ["--budget.time", text])
    path = tmp_path / "mine.yaml"
    path.write_text(f"model: {{name: cnp}}\nbudget:\n  time: {text}\n")
    with pytest.raises(FillinError, match=rf"mine\.yaml: {message}"):
        read_recipe(path)


WRONG = {
    "a section": (["--modle.name", "cnp"], "'modle.name'; did you mean 'model.name'"),
    "a setting": (["--model.widht", "3"], "'model.widht'; did you mean 'model.width'"),
    "a setting of another model": (["--model.pseudo_tokens", "3"], "unknown setting of the command line"),
    "a model": (["--model.name", "te-tpn"], "did you mean 'te-tnp'"),
    "a size": (["--model.size", "smal"], "did you mean 'small'"),
    "a protocol": (["--data.protocol", "tpn"], "did you mean 'tnp'"),
    "an objective": (["--objective.name", "elbow"], "did you mean 'elbo'"),
    "a schedule": (["--schedule.name", "cosin"], "did you mean 'cosine'"),
    "an optimiser": (["--optimiser.name", "adam-w"], "did you mean 'adamw'"),
    "kinds of data": (["--data.name", "curve"], "did you mean 'curves'"),
    "no end": (["--budget.steps", "null"], "has no budget; add --steps 10000 or --time 20m"),
    "no time": (["--budget.time", "0s"], "a time must be positive"),
    "a time": (["--budget.time", "soon"], "a time is written 90s, 1m30s or 1h30m, got 'soon'"),
    "no steps": (["--budget.steps", "0"], "budget.steps must be at least 1"),
    "half a step": (["--budget.steps", "2.5"], "budget.steps cannot be '2.5'; it must be a whole number"),
    "a rate in words": (["--optimiser.rate", "fast"], "optimiser.rate cannot be 'fast'; it must be a number"),
    "a seed of others": (["--seed", str(2**30)], "seed must be below"),
    "a rate of nothing": (["--optimiser.rate", "0"], "optimiser.rate must be at least"),
    "a rate that is none": (["--optimiser.rate", ".nan"], "optimiser.rate must be at least"),
    "a warm-up of all": (["--schedule.warmup", "1"], "schedule.warmup must be a fraction of the budget below 1"),
    "no lines": (["--keep.log", "0"], "keep.log must be at least 1"),
    "a seed": (["--seed", "-1"], "seed must be at least 0"),
    "no value": (["--model.width"], "--model.width needs a value"),
    "no setting": (["width", "3"], "expected a setting like"),
    "prefixes without a buffer": (["--objective.name", "random-prefixes"], "te-tnp does not have; train it"),
    "a bound without a latent": (["--objective.name", "elbo"], "te-tnp does not have; train it with log-likelihood"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings(case):
    overrides, message = WRONG[case]
    with pytest.raises(FillinError, match=message):
        read_recipe(SMALL, overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [("--data.length=3", "length must be a range"), ("--data.function=rbff", "did you mean 'rbf'"),
     ("--model.head=[1]", "cannot be built|unknown head"), ("--model.width=x", "width must be an even whole number"),
     ("--model.score=furier", "did you mean 'fourier'"), ("--data.shift=far", "shift must be a number")],
)  # fmt: skip
def test_an_invalid_setting_creates_no_folder(override, message, tmp_path, unchecked):
    with pytest.raises(FillinError, match=message):
        fit(SMALL, tmp_path / "run", overrides=[override])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [("model: [", "is not YAML"), ("- 1", "a recipe is a mapping"), ("budget: {steps: 3}", "names no model"),
     ("model: cnp", "names no model"), ("model: {name: cnp}\nbugdet: {steps: 1}", "did you mean 'budget.steps'"),
     (b"\xff\xfe", "cannot read"), ("model: {name: cnp}", "has no budget")],
)  # fmt: skip
def test_files_that_are_not_recipes(text, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FillinError, match=message):
        read_recipe(path)
    with pytest.raises(FillinError, match="cannot read the recipe"):
        read_recipe(tmp_path / "nowhere.yaml")
    with pytest.raises(FillinError, match="unknown recipe 'te-tpn'; did you mean 'te-tnp'"):
        read_recipe("te-tpn")


# ---- weights to start from


def test_a_run_starts_from_the_given_weights(tmp_path):
    first = fit(SMALL, tmp_path / "first", overrides=["--budget.steps", "3"])
    again = fit(SMALL, tmp_path / "again", overrides=["--start", str(tmp_path / "first"), "--optimiser.rate", "1e-12"])
    for name, tensor in first.model().state_dict().items():
        assert_close(again.model("last").state_dict()[name], tensor, rtol=1e-5, atol=1e-7)
    assert read_recipe(tmp_path / "again" / "recipe.yaml")["start"] == str(tmp_path / "first")


@pytest.mark.parametrize(("start", "message"), [("nowhere", "nowhere"), ("te-tnp-rbf", "start: the weights in te")])
def test_unusable_start_weights_create_no_folder(start, message, tmp_path):
    with pytest.raises(FillinError, match=message):
        fit(SMALL, tmp_path / "run", overrides=["--start", start])
    assert not (tmp_path / "run").exists()
