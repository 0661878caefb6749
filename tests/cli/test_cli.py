"""The command line: its output and errors, and help without importing torch."""

import json
import os
import subprocess
import sys

import pytest

import fillin
from fillin import pretrained
from fillin.cli import main, make_parser
from fillin.models import CLASSIFIERS, SEQUENCE_MODELS, SIZES, names

COMMANDS = [[], ["models"], ["bench"], ["bench", "models"], ["bench", "scores"], ["bench", "span"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_describes_and_gives_examples(command, capsys):
    assert main([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: fillin")
    assert "examples:" in out
    assert " ".join(["fillin", *command]) in out


@pytest.mark.parametrize("command", [["--help"], ["bench", "--help"], ["bench", "models", "--help"], ["--version"], []])
def test_help_does_not_import_torch(command):
    code = "import sys; from fillin.cli import main; code = main(); assert 'torch' not in sys.modules; sys.exit(code)"
    assert subprocess.run([sys.executable, "-c", code, *command], capture_output=True).returncode == 0


def test_import_fillin_does_not_import_torch():
    subprocess.run([sys.executable, "-c", "import fillin, sys; assert 'torch' not in sys.modules"], check=True)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"fillin {fillin.__version__}"


@pytest.mark.parametrize("command", [[], ["bench"]])
def test_without_a_command_help_is_shown(command, capsys):
    assert main(command) == 0
    assert "examples:" in capsys.readouterr().out


def test_models_lists_every_model(capsys):
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name in names())
    assert "autoregressive" in out
    assert "Garnelo" in out


def test_models_lists_pretrained_weights(capsys):
    assert main(["models", "--pretrained", "--json"]) == 0
    rows = {row["weights"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(pretrained.names())
    assert (rows["curve"]["dim_x"], rows["sheet-2d"]["dim_x"], rows["radial"]["dim_x"]) == (1, 2, None)
    assert all(row["trained_on"] and 0 < row["megabytes"] < 4 for row in rows.values())
    assert main(["models", "--pretrained"]) == 0
    assert "fillin.load" in capsys.readouterr().out
    assert main(["models", "--pretrained", "curve"]) == 0
    assert "Licence" in capsys.readouterr().out
    assert main(["models", "--pretrained", "curv"]) == 2
    assert "curve" in capsys.readouterr().err


def test_models_json(capsys):
    assert main(["models", "--json"]) == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [*names(), *CLASSIFIERS, *SEQUENCE_MODELS]
    assert rows["te-tnp"]["translation_equivariant"]
    assert not rows["tnp-d"]["translation_equivariant"]
    kinds = {"cnp": "marginal", "np": "latent", "tnp-a": "autoregressive", "tnp-nd": "joint"}
    assert {name: rows[name]["kind"] for name in kinds} == kinds


@pytest.mark.parametrize("name", [*names(), *CLASSIFIERS, *SEQUENCE_MODELS])
def test_the_registry_agrees_with_the_built_model(name, capsys):
    """The list is read from the classes without building a model; the built model must agree."""
    main(["models", name, "--json"])
    description, model = json.loads(capsys.readouterr().out), fillin.create(name, size="small")
    assert (description["kind"], description["translation_equivariant"]) == (model.kind, model.equivariant)
    assert description["sizes"]["small"]["parameters"] == sum(p.numel() for p in model.parameters())


def test_one_model_shows_options_and_sizes(capsys):
    assert main(["models", "te-tnp"]) == 0
    out = capsys.readouterr().out
    assert "score" in out
    assert "rbf" in out
    assert all(size in out for size in SIZES)


@pytest.mark.parametrize(
    "command", [["models", "te-tpn"], ["bench", "models", "te-tpn"], ["bench", "models", "--peers", "te-tpn"]]
)
def test_unknown_model_suggests_the_nearest(command, capsys):
    assert main(command) == 2
    captured = capsys.readouterr()
    assert "did you mean 'te-tnp'?" in captured.err
    assert not captured.out
    assert "Traceback" not in captured.err


def test_peers_of_a_model_without_peers(capsys):
    assert main(["bench", "models", "--peers", "cnp"]) == 2
    assert "peers of anp, canp" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["bench", "models", "--threads", "0"], ["bench", "models", "--repeats", "x"]]
)
def test_wrong_usage_is_exit_2(arguments, capsys):
    assert main(arguments) == 2
    assert "usage:" in capsys.readouterr().err


def test_an_unwritable_json_file_is_refused_before_measuring(tmp_path, capsys):
    assert main(["bench", "models", "cnp", "--json", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_interrupt_is_exit_130(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("fillin.cli.models._list_models", interrupted)
    assert main(["models"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [["models"], ["models", "--json"], ["--help"]])
def test_a_closed_pipe_is_no_traceback(command):
    code = "import sys; from fillin.cli import main; sys.exit(main())"
    read, write = os.pipe()
    os.close(read)
    try:
        process = subprocess.run([sys.executable, "-c", code, *command], stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert process.stderr == b""
    assert process.returncode in (0, 141)  # argparse swallows the error where output is not buffered


@pytest.mark.parametrize(
    ("flags", "filled"), [([], False), (["--keep-always-missing"], False), (["--fill-always-missing"], True)]
)
def test_cells_that_are_always_missing_are_kept_by_default(flags, filled):
    assert make_parser("fill").parse_args(["fill", "sst.nc", *flags]).fill_always_missing is filled
