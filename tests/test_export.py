"""ONNX files: onnxruntime says of every model what torch says, for any number of points, or it is refused in words.

Tracing is not done here but in processes of their own: torch cannot trace the shape checks of the test run.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import distance, tiny

import fillin
from fillin import exporting
from fillin.cli import main
from fillin.errors import InputError, InputTypeError
from fillin.models import names

GROUPS = {  # a process each
    "means": ["cnp", "np", "canp", "anp", "cmanp"],
    "transformers": ["tnp-d", "tnp-a", "tnp-nd", "lbanp", "istnp"],
    "equivariant": ["te-tnp", "te-tnp-a", "te-tnp-nd", "te-lbanp", "te-istnp"],
    "fillers": ["filler"],
}
DOCS = Path(__file__).parent.parent / "docs" / "export.md"
REFUSED = ["convcnp", "convnp", "te-cmanp"]
SIZES = [(1, 0, 4), (3, 1, 2), (2, 2, 1), (1, 3, 5), (2, 4, 0), (2, 7, 6), (1, 300, 40)]  # tasks, known points, targets


def exported(folder, models: dict) -> dict:
    """Each model as a function of arrays: saved here, exported by a process that knows it by its folder."""
    for name, model in models.items():
        fillin.save(model, folder / name)
    code = "import fillin, sys\nfor one in sys.argv[1:]: fillin.export(one, one + '.onnx', check=False)"
    folders = [str(folder / name) for name in models]
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return {name: exporting.session(f"{path}.onnx") for name, path in zip(models, folders, strict=True)}


def small(name: str, dim_x: int = 1, dim_y: int = 2):
    torch.manual_seed(0)
    layers = {"layers": 1} if "layers" in fillin.models.options_of(name) else {}
    return tiny(name, dim_x, dim_y, torch.float32, **layers).eval()


def task(model, b: int, nc: int, nt: int) -> dict[str, torch.Tensor]:
    dx, dy = model.dim_x, model.dim_y
    given = {"xc": torch.randn(b, nc, dx), "yc": torch.randn(b, nc, dy), "xt": torch.randn(b, nt, dx)}
    given["mask_c"] = torch.rand(b, nc, dy) < 0.8
    return given | ({"error_c": torch.rand(b, nc, dy)} if model.config["model"] == "filler" else {})


@torch.no_grad()
def agree(run, model, given: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    found = run({name: tensor.numpy() for name, tensor in given.items()})
    prediction = model(**given)
    wanted = exporting.tensors(prediction)
    assert torch.equal(wanted["mean"], prediction.mean)
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        assert found[name].shape == tensor.shape
        assert distance(torch.from_numpy(found[name]), tensor) < tolerance, name


@pytest.mark.parametrize("group", GROUPS)
def test_every_model_says_what_torch_says(group, tmp_path, unchecked):
    models = {name: small(name) for name in GROUPS[group]}
    if group == "fillers":
        models = {"curve": small("filler", dim_y=1), "two-dimensional": small("filler", dim_x=2)}
    for name, run in exported(tmp_path, models).items():
        torch.manual_seed(1)
        for sizes in SIZES:
            agree(run, models[name], task(models[name], *sizes))
        if group == "fillers":
            units_do_not_matter(run, models[name])
    if group == "fillers":
        the_example_runs(tmp_path)


def units_do_not_matter(run, model) -> None:
    for shift, stretch, level, scale in ((1e4, 1.0, 0.0, 1.0), (-7e5, 3e5, 1e4, 1.0), (0.0, 1e-6, -3e-4, 1e-6)):
        for n in (1, 3, 50):
            given = task(model, 2, n, 5)
            given |= {name: shift + stretch * given[name] for name in ("xc", "xt")}
            given |= {"yc": level + scale * given["yc"], "error_c": scale * given["error_c"]}
            agree(run, model, given)


def the_example_runs(folder) -> None:
    example = DOCS.read_text().split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("±") == 2


def test_every_model_is_in_a_group_or_refused():
    assert sorted(REFUSED + [name for group in GROUPS.values() for name in group]) == sorted(names())


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_graph_is_refused_in_words(name, tmp_path):
    with pytest.raises(InputError, match=f"{name} cannot become a graph: .*export "):
        fillin.export(small(name), tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_file_that_explains_itself(tmp_path):
    import onnx

    fillin.save(small("cnp"), tmp_path / "mine")
    command = [sys.executable, "-m", "fillin", "export", "mine", "out.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote out.onnx" in done.stdout
    assert "opset" in done.stdout
    assert "differ by at most" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out.onnx"]
    made = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert not made.functions
    assert {node.domain for node in made.graph.node} == {""}
    facts = {fact.key: fact.value for fact in made.metadata_props}
    assert facts["xc"].startswith("[b nc dx] ")
    assert facts["mean"].startswith("[b nt dy] ")
    assert str(fillin.__file__).encode() not in (tmp_path / "out.onnx").read_bytes()
    shape = made.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in shape] == ["b", "nc", 1]


def test_bad_input(tmp_path, monkeypatch, capsys, unchecked):
    there = tmp_path / "there.onnx"
    there.write_text("mine")
    model = small("cnp")
    for path, match in (
        (there, "exists; .*force"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "o.onnx", "no folder"),
    ):
        with pytest.raises(InputError, match=match):
            fillin.export(model, path)
    with pytest.raises(InputTypeError, match="got int"):
        fillin.export(3, tmp_path / "out.onnx")
    assert main(["export", "nonsense", str(tmp_path / "out.onnx")]) == 2
    assert "nonsense" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"onnxscript.*pip install 'fillin\[export\]'"):
        fillin.export(model, tmp_path / "out.onnx")
    assert there.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [there]


def test_what_disagrees_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(
        exporting, "_trace", lambda model: type("Nothing", (), {"SerializeToString": lambda self: b""})()
    )
    monkeypatch.setattr(exporting, "_difference", lambda model, content: float("nan"))
    with pytest.raises(InputError, match="nothing was written"):
        fillin.export(small("cnp"), tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
