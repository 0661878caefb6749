"""The order of the house: who imports whom, what is loaded when, and that the examples in docstrings run."""

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fillin
import fillin_studies

ROOT, STUDIES = Path(fillin.__file__).parent, Path(fillin_studies.__file__).parent
# each part may import those before it, and itself
ORDER = [
    "errors", "runtime", "io", "warp", "predictive", "pretrained", "linear", "attention", "measure", "layers", "heads",
    "metrics", "gp", "tabular", "data", "models", "objectives", "sampling", "onnx_export", "plots", "train", "evaluate",
    "learners", "inference", "estimators", "filling", "play", "fillin_studies", "cli",
]  # fmt: skip
MODULES = sorted(
    module.name
    for package in (fillin, fillin_studies)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
)


def part(module: str) -> str:
    """The part of a dotted module name: `fillin_studies`, or what follows `fillin.`."""
    package, _, rest = module.partition(".")
    return rest.split(".")[0] if package == "fillin" and rest else package


def imported(path: Path) -> list[str]:
    """Names of the modules that a file imports, at its top or in a function."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"fillin.{alias.name}" for alias in node.names] if node.module == "fillin" else [node.module]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith(("fillin.", "fillin_studies"))]


@pytest.mark.parametrize(
    "path", sorted([*ROOT.rglob("*.py"), *STUDIES.rglob("*.py")]), ids=lambda p: str(p.relative_to(ROOT.parent))
)
def test_imports_go_one_way(path):
    here = part(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
    if here in ("__init__", "__main__"):
        return
    assert here in ORDER, f"{here} has no place in the order of imports"
    for name in imported(path):
        if part(name) in ORDER:
            assert ORDER.index(part(name)) <= ORDER.index(here), f"{path} imports {name}"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_fillin_does_not_import_torch():
    assert run("import fillin, sys; print('torch' in sys.modules)").strip() == "False"
    assert run("import fillin, sys; fillin.attend; print('torch' in sys.modules)").strip() == "True"


def test_loading_a_model_imports_what_it_needs():
    """Neither torch's compiler nor what reads tables and draws."""
    code = "import fillin, sys; fillin.load('te-tnp-rbf'); print(*sys.modules)"
    unwanted = {"torch._dynamo", "sympy", "pandas", "scipy", "matplotlib", "sklearn", "xarray", "rich", "yaml"}
    assert not unwanted & set(run(code).split())


def test_public_names_exist_and_are_few():
    assert all(getattr(fillin, name) is not None for name in fillin.__all__)
    assert set(fillin.__all__) <= set(dir(fillin))
    with pytest.raises(AttributeError):
        fillin.nonsense  # noqa: B018


@pytest.mark.parametrize("name", ["fillin", *MODULES])
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs={"torch": importlib.import_module("torch")}).failed == 0


# Names that normalise weights over an axis, and torch's own attention.
SOFTMAX = {
    "softmax", "log_softmax", "Softmax", "LogSoftmax", "scaled_dot_product_attention", "flex_attention",
    "MultiheadAttention",
}  # fmt: skip
# The modules that may use them, and why. Attention over points belongs in a back end: call `attend` elsewhere.
SOFTMAX_ALLOWED = {
    "fillin.attention.backends.flex": "back end",
    "fillin.attention.backends.fused": "back end",
    "fillin.attention.backends.reference": "back end",
    "fillin.attention.backends.streamed": "back end",
    "fillin.data.curves": "posterior weights of hyperparameter settings",
    "fillin.data.functions": "posterior weights of hyperparameter settings",
    "fillin.evaluate.classification": "class probabilities",
    "fillin.evaluate.in_context": "class probabilities",
    "fillin.learners.calibration": "class probabilities",
    "fillin.learners.row_network": "gate over the heads of one row",
    "fillin.measure": "torch's attention is measured beside ours",
    "fillin.models.npt": "class probabilities",
    "fillin.models.kernel_choice": "posterior weights of kernels",
    "fillin.models.processes": "posterior weights of kernels",
    "fillin.objectives": "class probabilities",
}


def test_softmax_over_points_is_taken_by_back_ends_alone():
    """On the syntax tree, so that texts and docstrings do not count; the list has no entry that is not needed."""
    used = set()
    for root in (ROOT, STUDIES):
        for path in root.rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            names |= {node.id for node in nodes if isinstance(node, ast.Name)}
            names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
            names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
            if names & SOFTMAX:
                used.add(".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"))
    assert used == set(SOFTMAX_ALLOWED)
