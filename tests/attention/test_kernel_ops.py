"""The kernel as torch operations: order of points, shapes, compilation, and installations without a kernel."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention_problems import needs_kernel, random_problem, random_span, run
from support.helpers import random_task, tiny
from torch._subclasses import FakeTensorMode

from fillin.attention import attend
from fillin.attention.kernel import library, ops
from fillin.errors import InputError

sanitized = "asan" in os.environ.get("LD_PRELOAD", "")
KINDS = ["", "ties", "nan"]
dims = pytest.mark.parametrize("dim_x", [1, 2, 3])


# the order of points


@settings(max_examples=30)
@given(seed=st.integers(0, 2**16), n=st.integers(0, 200), dim_x=st.integers(1, 3), kind=st.sampled_from(KINDS))
@needs_kernel
def test_the_order_is_a_permutation(seed, n, dim_x, kind):
    torch.manual_seed(seed)
    x = torch.rand(2, n, dim_x)
    if kind == "ties":
        x = (3 * x).round()
    elif kind == "nan":
        x[torch.rand(x.shape) < 0.3] = math.nan
        x[torch.rand(x.shape) < 0.3] = math.inf
    order = ops.spatial_order(x)
    assert order.dtype == torch.int32
    assert torch.equal(order.sort(-1).values, torch.arange(n, dtype=torch.int32).expand(2, n))


@needs_kernel
@dims
def test_the_order_depends_on_locations_alone(dim_x):
    """Groups of four neighbours are the leaves of a kd-tree."""
    x = torch.randperm(1000)[: 3 * 333].view(1, 333, 3)[..., :dim_x].float()
    i = torch.randperm(333)

    def leaves(x):
        return [frozenset(map(tuple, leaf.tolist())) for leaf in x[0, ops.spatial_order(x)[0].long()].split(4)]

    assert leaves(x) == leaves(x[:, i].contiguous())
    ordered = x[0, ops.spatial_order(x)[0].long()]
    assert ordered.diff(dim=0).norm(dim=-1).mean() < 0.5 * x[0].diff(dim=0).norm(dim=-1).mean()


@needs_kernel
def test_the_order_is_cached_until_the_tensor_changes():
    x = torch.rand(1, 50, 2)
    first = ops.spatial_order(x)
    assert ops.spatial_order(x) is first
    x.neg_()
    assert ops.spatial_order(x) is not first
    assert torch.equal(ops.spatial_order(x), ops.spatial_order(x.clone()))
    x.data = torch.rand(1, 80, 2)  # does not change its version
    assert ops.spatial_order(x).shape == (1, 80)


@needs_kernel
def test_a_model_orders_each_set_of_points_once(monkeypatch):
    """Context, targets and both together: three sets, for any number of layers."""
    orders = []
    monkeypatch.setattr(ops, "sort_points", lambda x, sort=ops.sort_points: orders.append(x) or sort(x))
    model = tiny("te-tnp", dim_x=2, dtype=torch.float32, layers=4, span=1.0, backend="native", score="laplace")
    task = random_task(nc=40, nt=30, dim_x=2, dtype=torch.float32)
    model(task.xc, task.yc, task.xt).mean.sum().backward()
    assert len(orders) <= 3


# operations


def arguments(wide=False, tabled=False, **options):
    p = random_problem(1, 2, 9, 12, 2, span=random_span(2, **options))
    leaves = [t.requires_grad_() for t in (p.q, p.k, p.v)]
    table = torch.randn(2, 5, 6, *([3] if wide else []), requires_grad=True) if wide or tabled else None
    bias, features = (None, table) if wide else (table, None)
    g = torch.randn(1, 2, 9, 3, requires_grad=True) if wide else None
    inverse = p.span.inverse(2).detach().requires_grad_()
    inputs = ops.DifferentiableInputs(*leaves, p.xq, p.xk, inverse, bias, g, features)
    axes = torch.tensor([[-2.0, -2.0], [1.0, 1.25]])
    orders = ops.spatial_order(p.xq), ops.spatial_order(p.xk)
    fixed = ops.FixedInputs(*orders, torch.rand(1, 12) > 0.3, None, axes if tabled else None, axes if wide else None)
    settings = ops.KernelSettings(window=1, cut=1, threshold=0.1)
    return ops.flatten(inputs), ops.flatten(fixed), settings.flatten()


@needs_kernel
@pytest.mark.parametrize("options", [{"tabled": True}, {"wide": True}], ids=str)
def test_operations_satisfy_opcheck(options, unchecked):
    torch.library.opcheck(torch.ops.fillin.attend.default, arguments(**options))
    torch.library.opcheck(torch.ops.fillin.order.default, (torch.rand(2, 9, 3),))


@needs_kernel
@pytest.mark.parametrize("options", [{}, {"tabled": True}, {"wide": True}], ids=str)
def test_fake_tensors_have_the_right_shapes_and_strides(options):
    def run(inputs, fixed, settings):
        out, lse = ops.attend_op(inputs, fixed, settings)
        leaves = [t for t in inputs if t.requires_grad]
        return [out, lse, ops.sort_points(inputs[3]), *torch.autograd.grad(out.sum() + lse.sum(), leaves)]

    inputs, fixed, settings = arguments(**options)
    real = run(inputs, fixed, settings)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [[mode.from_tensor(t) for t in tensors] for tensors in (inputs, fixed)]
        fake = run(*fakes, settings)
    assert [(t.shape, t.stride(), t.dtype) for t in fake] == [(t.shape, t.stride(), t.dtype) for t in real]


@pytest.fixture(scope="module")
def compiled():
    """Errors of compiled results, by case."""
    script = Path(__file__).parents[1] / "support" / "compiled_kernel.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


@needs_kernel
@pytest.mark.parametrize(("case", "bound"), [("window", 1e-5), ("score", 5e-5), ("model", 1e-4)])
@pytest.mark.slow
def test_compiled_results_agree(case, bound, compiled):
    assert float(compiled[case]) < bound


@needs_kernel
def test_second_derivatives_are_refused():
    p = random_problem(span=random_span())
    q = p.q.requires_grad_()
    (first,) = torch.autograd.grad(run(p)[0].sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        first.sum().backward()


@needs_kernel
def test_results_without_autograd():
    p = random_problem(span=random_span())
    expected = run(p)[0]
    with torch.inference_mode():
        got, _ = run(replace(p, xq=p.xq.clone(), xk=p.xk.clone()))  # inference tensors have no version
        assert torch.equal(got, expected)
    with torch.no_grad():
        assert torch.equal(run(p)[0], expected)


@needs_kernel
def test_other_dtypes_are_refused():
    p = random_problem(span=random_span())
    with pytest.raises(InputError, match="float32 on the CPU"):
        run(replace(p, **{name: getattr(p, name).double() for name in ("q", "k", "v", "xq", "xk")}))
    with pytest.raises((InputError, RuntimeError)):  # the kernel would read eight bytes as two numbers
        run(replace(p, span=p.span.double()))


# installations without a kernel, or with another

SCRIPT_WITHOUT_KERNEL = """
import torch, warnings
warnings.simplefilter("error")
from fillin.attention import Span, attend
from fillin.attention.kernel import is_available
from fillin.errors import InputError
q, x, span = torch.randn(1, 2, 30, 4, requires_grad=True), torch.rand(1, 30, 2), Span(2, 2)
print(is_available())
for backend in ("auto", "streamed", "reference"):
    out = attend(q, q, q, xq=x, xk=x, span=span, backend=backend)
    out.sum().backward()
    print(round(out.abs().sum().item(), 2) == round(out.detach().abs().sum().item(), 2))
try:
    attend(q, q, q, xq=x, xk=x, span=span, backend="native")
except InputError as error:
    print("cannot solve this problem" in str(error))
"""


def test_everything_else_works_without_the_kernel():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT_WITHOUT_KERNEL], env={**os.environ, "FILLIN_LANES": "0"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["False", "True", "True", "True", "True"]


@pytest.fixture
def reloaded():
    """Load the library again in the test, and once more afterwards."""
    library.load_selected.cache_clear()
    yield
    library.load_selected.cache_clear()


def test_a_missing_kernel_warns_once(reloaded, monkeypatch, recwarn):
    monkeypatch.delenv("FILLIN_LANES", raising=False)
    monkeypatch.setattr(library, "find_builds", dict)
    with pytest.warns(UserWarning, match="without its native kernel"):
        assert not library.is_available()
    assert not library.is_available()  # no second warning, which would be an error here
    p = random_problem(span=random_span())
    assert attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, span=p.span).isfinite().all()
    with pytest.raises(InputError, match="without a C\\+\\+ compiler"):
        attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, span=p.span, backend="native")
    with pytest.raises(InputError, match="is not available"):
        ops.spatial_order(torch.rand(1, 9, 2))


def test_builds_are_found_in_the_named_folder(monkeypatch, tmp_path):
    (tmp_path / "span4.so").touch()
    monkeypatch.setenv("FILLIN_NATIVE", str(tmp_path))
    assert library.find_builds() == {4: tmp_path / "span4.so"}


@pytest.mark.parametrize("lanes", ["5", "many", ""])
def test_unavailable_lanes_are_refused(lanes, reloaded, monkeypatch):
    monkeypatch.setenv("FILLIN_LANES", lanes)
    with pytest.raises(InputError, match="FILLIN_LANES="):
        library.load_library()


@needs_kernel
def test_a_library_of_another_version_is_refused(monkeypatch):
    class Longer(library.FillinProblem):
        _fields_ = (("more", library.c_int32),)

    monkeypatch.setattr(library, "FillinProblem", Longer)
    with pytest.raises(ImportError, match="another version"):
        library.open_library(next(iter(library.find_builds().values())))


def test_a_failure_of_the_kernel_is_an_error(monkeypatch):
    full = SimpleNamespace(fillin_order=lambda *arguments: 1)
    monkeypatch.setattr(library, "load_library", lambda: full)
    with pytest.raises(MemoryError, match="order"):
        ops.spatial_order(torch.rand(1, 9, 2))


@needs_kernel
@pytest.mark.skipif(sanitized, reason="the sanitizer ends the process when memory runs out")
def test_out_of_memory_is_reported_and_leaves_the_output_untouched():
    """2¹⁷ keys with 2³⁰ values each fit no machine."""
    keys, out = 1 << 17, torch.full((1,), 7.0)
    x, v = torch.zeros(1, keys, 1), torch.zeros(1)
    order, first = ops.spatial_order(x), torch.zeros(1, 1, dtype=torch.int32)
    row, none = library.FillinRows(v.data_ptr(), 0, 0, 0), library.FillinRows()
    problem = library.FillinProblem(
        1, 1, 1, keys, 0, 1 << 30, 1, 1, none, none, row, library.FillinRows(out.data_ptr(), 0, 0, 0), out.data_ptr(),
        x.data_ptr(), x.data_ptr(), first.data_ptr(), order.data_ptr(), None, None, 0, 0, 0, 1.0,
    )  # fmt: skip
    assert library.load_library().fillin_forward(problem) == 1
    assert out.item() == 7
