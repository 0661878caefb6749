"""The benchmark of the window compares equal workloads and reports them. No test depends on speed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.helpers import distance

from fillin import measure
from fillin.attention import attend, fixed_block_mask, kernel
from fillin.cli import main
from fillin.measure import BIAS, BLOCKS, FUSED, HARD, NATIVE, REFERENCE, sample_locations
from fillin_studies.bench import span
from fillin_studies.bench.models import StepSize
from fillin_studies.bench.results_pages import draw_span, make_core_page, make_span_page
from fillin_studies.bench.span import SpanPlan, WindowCase, check_requirements
from fillin_studies.bench.tables import make_tables

pytestmark = pytest.mark.skipif(not kernel.is_available(), reason="the kernel is not built here")
TINY = SpanPlan(
    grids=(4,), scattered=(20, 40), spans=(0.05,), growth=(32, 64), neighbours=10, function=96, large=(40, 60),
    crossover=(8, 16),
    models=StepSize(3, 4, batch=2, rounds=1), max_bias_points=20, max_reference_points=20, max_fused_points=30,
    rounds=1, min_seconds=0.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """Memory is weighed a hundred times here, and each time begins with collecting garbage."""
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)


def test_a_grid_and_scattered_points_fill_the_unit_square():
    grid = sample_locations("grid", 2, 16)
    assert grid.shape == (1, 16, 2)
    assert sorted(set(grid.flatten().tolist())) == [0.125, 0.375, 0.625, 0.875]
    assert sample_locations("scattered", 3, 7).shape == (1, 7, 3)
    assert torch.equal(sample_locations("scattered", 2, 9, seed=4), sample_locations("scattered", 2, 9, seed=4))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_window_holds_the_requested_share_of_pairs(dim):
    x, r = sample_locations("scattered", dim, 2000), measure.ball_radius(0.02, dim)
    share = measure.fraction_inside(x, r)
    assert 0.6 * 0.02 < share < 1.05 * 0.02  # near an edge less of the ball has points
    delta = (x.mT[..., :, None] - x.mT[..., None, :])[:, :, :50]
    for cut in ("continuous", "hard"):
        _, within = measure.span_of_radius(r, dim, cut)(torch.zeros(1, 1, 50, 2000), delta)
        assert within is not None
        assert within.float().mean().item() == pytest.approx(measure.fraction_inside(x, r), rel=0.3)
    assert 2000 * measure.fraction_inside(x, measure.neighbour_radius(x, 30)) == pytest.approx(30, rel=0.1)


def test_all_candidates_with_a_window_compute_the_same():
    data, window = measure.AttentionInputs(sample_locations("scattered", 2, 60)), measure.span_of_radius(0.3, 2)
    native, bias, truth = data.attend("native", window)(), data.bias(window)(), data.attend("reference", window)()
    for gradients in (native, bias):
        assert all(distance(a, b) < 1e-5 for a, b in zip(gradients, truth, strict=True))
    assert len(truth) == 4  # q, k, v and σ


@pytest.mark.parametrize(("layout", "dim", "share"), [("grid", 2, 0.05), ("scattered", 1, 0.2), ("scattered", 3, 0.01)])
def test_fixed_blocks_are_attention_with_their_mask(layout, dim, share):
    """Value and gradients, with blocks of equal and of unequal size, some of a single point, some empty."""
    x = sample_locations(layout, dim, 64)
    data, side = measure.AttentionInputs(x), measure.block_side(share, dim)
    assert 0.5 * share < side**dim < 2 * share
    mask = fixed_block_mask(x, x, side)
    masked = data.run(lambda: attend(data.q, data.k, data.v, mask=mask, backend="reference"))()
    assert all(distance(a, b) < 1e-5 for a, b in zip(data.blocks(share)(), masked, strict=True))
    free = data.run(lambda: attend(data.q, data.k, data.v, backend="reference"))()
    assert distance(data.blocks(share)()[2], free[2]) > 1e-2


@pytest.mark.parametrize("kind", span.PROBLEMS, ids=str)
def test_all_back_ends_of_the_crossover_compute_the_same(kind):
    runs = span.make_candidates(*kind, 40)
    assert set(runs) == {"native", "streamed", "reference", "fused"}
    truth = runs["reference"]()
    for name, run in runs.items():
        assert all(distance(one, other) < 1e-3 for one, other in zip(run(), truth, strict=True)), name


def test_what_would_need_gigabytes_is_left_out():
    everyone, few = (
        span.select_candidates(WindowCase("grid", 2, 20, 0.05), TINY),
        span.select_candidates(WindowCase("grid", 2, 40, 0.05), TINY),
    )
    assert everyone == [NATIVE, HARD, FUSED, BLOCKS, BIAS, REFERENCE]
    assert few == [NATIVE, HARD, BLOCKS]
    assert set(span.make_candidates(1, None, "mlp", 2048)) == {"native", "streamed", "reference"}
    assert WindowCase("scattered", 2, 65536, 0.2) not in span.FULL.cases
    assert WindowCase("scattered", 2, 65536, 0.05) in span.FULL.cases


def test_everything_is_measured_and_ticks_as_announced():
    ticked = []
    results = span.measure_span(TINY, tick=lambda: ticked.append(1))
    assert len(ticked) == span.count_span_ticks(TINY)
    first = [(row["layout"], row["dim"], row["points"]) for row in results["table"]][:2]
    assert first == [("grid", 2, 16), ("scattered", 1, 20)]
    assert len(results["table"]) == 7
    for row in results["table"]:
        assert set(row["faster"]) == set(row["figures"]) - {NATIVE}
        assert (row["of_limit"] is None) == (row["points"] > TINY.max_fused_points)
    assert [row["dim"] for row in results["growth"]] == [1, 2, 3]
    assert [row["score"] for row in results["models"]] == ["tnp-d", "mlp"]
    assert results["function"][0]["error"] < 1e-4
    assert [(row["dim"], row["context"], row["targets"]) for row in results["large"]] == [(1, 40, 60), (2, 40, 60)]
    assert len(results["crossover"]) == 8
    lines = check_requirements(results)
    assert len(lines) == 16
    measured = [line["what"].partition(",")[0] for line in lines if line["measured"] is not None]
    assert set(measured) == {"te-tnp with an MLP score"}


def test_the_kernel_pays_from_where_it_stays_the_fastest():
    def times(*first: str):
        return [{name: 1.0 if name == one else 2.0 for name in (NATIVE, "fused")} for one in first]

    assert span.find_crossover([8, 16, 32], times(NATIVE, "fused", NATIVE)) == 4 * 32 * 32
    assert span.find_crossover([8, 16, 32], times(NATIVE, NATIVE, NATIVE)) == 4 * 8 * 8
    assert span.find_crossover([8, 16, 32], times(NATIVE, NATIVE, "fused")) is None


def test_requirements_are_compared_with_the_worst_figure():
    costs = {NATIVE: (10, 5), HARD: (7, 5), FUSED: (90, 7), BIAS: (900, 600)}
    figures = {name: {"milliseconds": ms, "megabytes": mb} for name, (ms, mb) in costs.items()}
    faster = {HARD: 0.7, FUSED: 9.0, BIAS: 90.0}
    row = {"layout": "grid", "dim": 2, "points": 4096, "span": 0.05, "figures": figures, "faster": faster}
    many = [{**row, "points": 16384, "faster": {**faster, FUSED: ratio}} for ratio in (12.0, 9.0)]
    requirements = check_requirements({"table": [row, *many]})
    lines = {(line["what"], line["unit"]): (line["measured"], line["holds"]) for line in requirements}
    pixels = "fused attention without a window, 64×64 pixels, 5 %"
    assert lines[pixels, "× faster"] == (9, True)
    assert lines[f"{pixels}, hard cut", "× faster"] == (pytest.approx(9 / 0.7), True)
    assert lines["the same, 16,384 points in 2-D, 5 %", "× faster"] == (9, False)  # the worse of the two
    assert lines["the same, 16,384 points in 2-D, 1 %", "× faster"] == (None, None)
    assert lines["the window as a bias, 64×64 pixels, 5 %", "× faster"] == (90, False)
    assert lines["the window as a bias, 64×64 pixels, 5 %", "× less memory"] == (120, True)


def test_memory_that_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "_CLEAR", tmp_path / "missing" / "clear_refs")
    results = span.measure_span(TINY, ["table", "growth", "function"])
    content = {"benchmark": "span", "budget": {"threads": 1}, "rows": [], **span.describe_parts(results)}
    assert results["growth"][0]["beyond"] is None
    assert results["function"][0]["less_memory"] is None
    assert any("–" in cell for table in make_tables(content) for row in table.rows for cell in row)
    assert draw_span(content, tmp_path).exists()


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(span, "FULL", TINY)
    monkeypatch.setattr(span, "QUICK", replace(TINY, grids=()))
    monkeypatch.setenv("COLUMNS", "160")  # wide enough that no cell is broken into lines


def test_command_prints_tables_writes_a_file_and_draws(tiny, tmp_path, capsys):
    path = tmp_path / "new" / "span.json"
    words = ["bench", "span", "--rounds", "1", "--threads", "1", "--seed", "3"]
    assert main([*words, "--json", str(path), "--out", str(path.parent)]) == 0
    out = capsys.readouterr().out
    assert all(
        word in out
        for word in ("4×4 pixels", "40 in 3-D", "exponent", "tnp-d", "Requirements", "1 thread", "fixed blocks")
    )
    content = json.loads(path.read_text())
    assert content["benchmark"] == "span"
    assert content["command"] == ["fillin", *words, "--json", str(path), "--out", str(path.parent)]
    assert content["budget"]["threads"] == 1
    assert content["budget"]["lanes"] in (4, 8, 16)
    assert set(content) > {"rows", "growth", "models", "function", "crossover", "asked"}
    assert sorted(p.name for p in path.parent.iterdir()) == ["span.json", "span.png"]
    assert (path.parent / "span.png").read_bytes().startswith(b"\x89PNG")

    text = make_span_page(path.parent)
    assert text.startswith("# Savings of a learned window\n\n`fillin bench span")
    assert all(f"## {table.title}" in text for table in make_tables(content))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == sum(2 + len(table.rows) for table in make_tables(content))


def test_the_page_of_the_core_has_every_row():
    docs = Path(__file__).parents[2] / "docs" / "results"
    names = ("models", "scores-1-thread", "scores-2-threads", "peers")
    text = make_core_page(docs)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == sum(2 + len(json.loads((docs / f"{name}.json").read_text())["rows"]) for name in names)


def test_command_measures_only_the_selected_parts(tiny, capsys):
    assert main(["bench", "span", "function", "--quick", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["budget"]["rounds"] == 1
    assert content["function"]
    assert not content["rows"]
    assert not content["crossover"]
    assert main(["bench", "span", "grwoth"]) == 2
    assert "did you mean 'growth'" in capsys.readouterr().err
