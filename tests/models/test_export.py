"""ONNX files: onnxruntime and torch predict the same for any number of points, or the export is refused.

Models are traced by the command in other processes, because torch cannot trace the shape checks of the test run.
Tracing takes seconds per model, so graphs are kept in pytest's cache. Their key is a hash of the code of models and of
exporting, of the weights, and of the versions of the exporter.
"""

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from support.helpers import distance, tiny

import fillin
from fillin import onnx_export as exporting
from fillin.cli import main
from fillin.errors import InputError, InputTypeError
from fillin.models import names

GROUPS = {  # one process per group
    "each task apart": [
        "cnp", "cnp-pma", "np", "canp", "anp", "cmanp", "tnp-d", "tnp-a", "tnp-nd", "tnp-buffer", "inctnp", "lbanp",
        "istnp",
    ],
    "equivariant": [
        "te-tnp", "te-tnp-a", "te-tnp-nd", "te-tnp-buffer", "te-inctnp", "te-lbanp", "te-istnp", "filler", "sheet-2d",
    ],
}  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs" / "export.md"
REFUSED = ["convcnp", "convnp", "te-cmanp", "gridded-tnp", "npt", "sheet"]
SIZES = [
    (1, 0, 4),
    (3, 1, 2),
    (2, 2, 1),
    (1, 3, 5),
    (2, 4, 0),
    (2, 7, 6),
    (1, 300, 40),
]  # tasks, context points, targets
CODE = """
import contextlib, gc, shutil, sys
from fillin.cli import main
gc.disable()  # tracing leaves little, and is faster so
kept, *names = sys.argv[1:]
for name in names:
    with open("text.txt", "w") as text, contextlib.redirect_stdout(text):
        assert main(["export", name, "made.onnx", "--force"]) == 0
    for made in ("text.txt", "made.onnx"):  # the second file shows that both are there
        shutil.move(made, f"{kept}/{name}.new")
        shutil.move(f"{kept}/{name}.new", f"{kept}/{name}.{made[5:]}")
"""


@pytest.fixture
def exported(pytestconfig, tmp_path):
    """Return `exported(names)`, the folder with NAME.onnx and the command's output NAME.txt of small models."""
    root = Path(fillin.__file__).parent
    parts = [root / "onnx_export.py", root / "heads.py", root / "cli" / "export.py"]
    parts += [path for part in ("attention", "layers", "models") for path in (root / part).rglob("*.py")]
    parts += [Path(__file__), Path(__file__).parents[1] / "support" / "helpers.py"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(parts)))
    digest.update(" ".join(version(name) for name in ("torch", "onnx", "onnxscript")).encode())
    cache = pytestconfig.cache.mkdir("fillin-onnx")
    folder = cache / digest.hexdigest()[:16]
    for old in cache.iterdir():
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(exist_ok=True)

    def export(requested: list[str]) -> Path:
        missing = [name for name in requested if not (folder / f"{name}.onnx").exists()]
        for name in missing:
            fillin.save(small(name), tmp_path / name)
        if missing:
            command = [sys.executable, "-W", "error", "-c", CODE, str(folder), *missing]
            process = subprocess.run(command, capture_output=True, cwd=tmp_path)
            assert process.returncode == 0, process.stderr.decode()
            assert not process.stderr
        return folder

    return export


def small(name: str):
    """Small model of one layer and two outputs; fillers have one output, or two inputs and two outputs."""
    torch.manual_seed(0)
    kind, dims = {"filler": ("filler", (1, 1)), "sheet-2d": ("filler", (2, 2))}.get(name, (name, (1, 2)))
    layers = {"layers": 1} if "layers" in fillin.models.list_options(kind) else {}
    return tiny(kind, *dims, torch.float32, **layers).eval()


def draw_inputs(model, b: int, nc: int, nt: int) -> dict[str, torch.Tensor]:
    dx, dy = model.dim_x, model.dim_y
    inputs = {"xc": torch.randn(b, nc, dx), "yc": torch.randn(b, nc, dy), "xt": torch.randn(b, nt, dx)}
    inputs["mask_c"] = torch.rand(b, nc, dy) < 0.8
    return inputs | ({"error_c": torch.rand(b, nc, dy)} if model.config["model"] == "filler" else {})


@torch.no_grad()
def assert_same_predictions(run, model, inputs: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    outputs = run({name: tensor.numpy() for name, tensor in inputs.items()})
    prediction = model(**inputs)
    expected = exporting.tensors(prediction)
    assert torch.equal(expected["mean"], prediction.mean)
    assert list(outputs) == list(expected)
    for name, tensor in expected.items():
        assert outputs[name].shape == tensor.shape
        assert distance(torch.from_numpy(outputs[name]), tensor) < tolerance, name


@pytest.mark.parametrize(
    "models",
    [["cnp"], *(pytest.param(group, marks=pytest.mark.slow) for group in GROUPS.values())],
    ids=["cnp", *GROUPS],
)
def test_every_exported_model_agrees_with_torch(models, exported, unchecked):
    folder = exported(models)
    for name in models:
        model, run = small(name), exporting.session(str(folder / f"{name}.onnx"))
        torch.manual_seed(1)
        for sizes in SIZES:
            assert_same_predictions(run, model, draw_inputs(model, *sizes))
        if model.config["model"] == "filler":
            assert_equivariant_to_units(run, model)


@pytest.mark.slow
def test_the_example_runs(exported, tmp_path):
    shutil.copy(exported(["filler"]) / "filler.onnx", tmp_path / "curve.onnx")
    example = DOCS.read_text().split("```python\n")[1].split("```")[0]
    process = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("±") == 2


def assert_equivariant_to_units(run, model) -> None:
    for shift, stretch, level, scale in ((1e4, 1.0, 0.0, 1.0), (-7e5, 3e5, 1e4, 1.0), (0.0, 1e-6, -3e-4, 1e-6)):
        for n in (1, 3, 50):
            inputs = draw_inputs(model, 2, n, 5)
            inputs |= {name: shift + stretch * inputs[name] for name in ("xc", "xt")}
            inputs |= {"yc": level + scale * inputs["yc"], "error_c": scale * inputs["error_c"]}
            assert_same_predictions(run, model, inputs)


def test_every_model_is_exported_or_refused():
    assert sorted(REFUSED + [name for group in GROUPS.values() for name in group]) == sorted([*names(), "sheet-2d"])


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_exported_are_refused(name, tmp_path):
    with pytest.raises(InputError, match=f"{name} cannot be exported: .*export "):
        fillin.export(small(name), tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_file_with_metadata(exported):
    import onnx

    folder = exported(["cnp"])
    printed = (folder / "cnp.txt").read_text()
    assert "wrote made.onnx" in printed
    assert "opset" in printed
    assert "differ by at most" in printed
    exported_model = onnx.load(folder / "cnp.onnx")
    onnx.checker.check_model(exported_model, full_check=True)
    assert not exported_model.functions
    assert {node.domain for node in exported_model.graph.node} == {""}
    metadata = {entry.key: entry.value for entry in exported_model.metadata_props}
    assert metadata["xc"].startswith("[b nc dx] ")
    assert metadata["mean"].startswith("[b nt dy] ")
    assert str(fillin.__file__).encode() not in (folder / "cnp.onnx").read_bytes()
    shape = exported_model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in shape] == ["b", "nc", 1]


def test_bad_input(tmp_path, monkeypatch, capsys, unchecked):
    existing = tmp_path / "there.onnx"
    existing.write_text("mine")
    model = small("cnp")
    for path, match in (
        (existing, "exists; .*force"),
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
    assert existing.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [existing]


def test_a_graph_that_disagrees_with_torch_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(
        exporting, "_trace", lambda model: type("Nothing", (), {"SerializeToString": lambda self: b""})()
    )
    monkeypatch.setattr(exporting, "_difference", lambda model, content: float("nan"))
    with pytest.raises(InputError, match="nothing was written"):
        fillin.export(small("cnp"), tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
