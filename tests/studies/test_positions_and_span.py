"""The study `positions-and-span`: its variants, the costs of equal classifiers, and the tests of its hypotheses."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import t as student_t
from support.attention_problems import needs_kernel
from support.helpers import distance

import fillin
from fillin.errors import InputError
from fillin_studies import get, open_study, run_study
from fillin_studies.base import StudyScale
from fillin_studies.positions_and_span import costs, report
from fillin_studies.positions_and_span.results import (
    ALFONS,
    ALFONS_CUT,
    CUT,
    FIXED_BLOCKS,
    FULL_COVARIANCE,
    HYPOTHESES,
    INIT,
    PENALTIES,
    POSITIONS,
    SIREN,
    STABLE,
    VARIANTS,
    VariantResults,
    compare,
    group_cells,
    run_tests,
    summarise,
)
from fillin_studies.report import write_report

NAME = "positions-and-span"
TINY = {
    "model.width": 8, "model.heads": 2, "model.layers": 1, "model.hidden": 8, "budget.steps": 2, "data.batch": 2,
    "keep.batches": 1,
}  # fmt: skip


def cell(variant: str, accuracy: float, seed: int = 0, **more) -> dict:
    fields = {
        "variant": f"digits, {variant}", "seed": seed, "images": 100, "accuracy": accuracy, "log_likelihood": -1.0,
        "sigma": [None, None], "shares": [1.0, 1.0], "pairs": 1.0, "steps": 2, "seconds": 1.0,
        "operations": {"pairs": 2e6, "tokens": 1e6},
        "step": {part: {"seconds": 0.1, "bytes": None} for part in costs.PARTS},
    }  # fmt: skip
    return {**fields, **more}


def make_costs(full: float, bias: float, kernel: float) -> dict:
    seconds = {costs.FULL: full, costs.BIAS: bias, costs.KERNEL: kernel}
    return {
        variant: {part: {"seconds": cost, "bytes": int(1e6 * cost)} for part in costs.PARTS}
        for variant, cost in seconds.items()
    }


# Variants


def test_variants_cover_positions_windows_and_cuts_in_both_dimensions():
    for dims in (1, 2):
        variants = [variant for variant in VARIANTS if variant.dims == dims]
        assert {(variant.positions, variant.window is None) for variant in variants} >= {
            ("sinusoid", True),
            ("siren", True),
        }
        windows = [variant.window for variant in variants if variant.window is not None]
        assert {(w["modulate"], w["threshold"] > 0) for w in windows} == {
            (modulate, cut) for modulate in ("weights", "scores") for cut in (True, False)
        }
        names = {variant.name for variant in variants}
        assert names >= {*POSITIONS, ALFONS_CUT, FIXED_BLOCKS}
    assert {key for pair in HYPOTHESES for key in pair} <= {(variant.dims, variant.name) for variant in VARIANTS}
    (thesis,) = (variant for variant in VARIANTS if (variant.dims, variant.name) == (2, ALFONS_CUT))
    assert thesis.positions == POSITIONS[ALFONS] == "siren-alfons"
    assert thesis.window == {
        "init": 0.3, "threshold": 0.1, "modulate": "scores", "cut": "hard", "shape": "box", "heads": 1
    }  # fmt: skip
    in_plane = [variant.window for variant in VARIANTS if variant.dims == 2 and variant.cuts]
    cut = {(window["modulate"], window["cut"]) for window in in_plane}
    assert cut == {(modulate, cut) for modulate in ("weights", "scores") for cut in ("hard", "continuous")}
    study = get(NAME)
    assert [settings["objective.span_penalty"] for settings in study.variants(True).values()].count(0.0) == len(
        VARIANTS
    ) - 2
    assert study.full.seeds == 5


def test_images_of_a_folder_are_used_at_full_budget_only(tmp_path):
    with pytest.raises(InputError, match="holds none of fashion_mnist"):
        get(NAME, tmp_path)
    (tmp_path / "fashion_mnist").mkdir()
    study = get(NAME, tmp_path, 3)
    assert study.full.seeds == study.quick.seeds == 3
    full = study.variants(False)
    assert len(full) == len(VARIANTS)
    assert {settings["data.source"] for settings in full.values()} == {str(tmp_path / "fashion_mnist")}
    assert {settings["data.limit"] for settings in full.values()} == {10_000}
    sizes = ("model.layers", "model.width", "model.heads", "model.hidden", "data.size", "model.side")
    assert {tuple(settings[key] for key in sizes) for settings in full.values()} == {(6, 64, 8, 128, 14, 14)}
    blocks = {settings["model.dims"]: side for settings in full.values() if (side := settings["model.blocks"])}
    assert blocks == {1: 49, 2: 7}  # as many pixels in a row as in the plane
    resized = study.with_settings({"data.size": 8, "budget.steps": 5}).variants(False).values()
    assert {(s["data.size"], s["model.side"], s["budget.steps"]) for s in resized} == {(8, 8, 5)}
    assert {settings["model.blocks"] for settings in resized} == {None, 4, 16}
    assert {settings["data.source"] for settings in study.variants(True).values()} == {"digits"}


def test_positions_distinguish_pixels():
    """The highest frequency is a radian per pixel, in a row as in the plane, the lowest 0.1 over the image. A SIREN
    starts at the magnitude of sinusoids, and like them distinguishes Δ = 0 from every other displacement."""
    torch.manual_seed(0)

    def positions(kind: str, dims: int, side: int):
        made = fillin.create("classifier", 1, 2, width=8, heads=1, layers=1, positions=kind, dims=dims, side=side)
        return made.blocks[0].attention.score.positions

    for side, dims in product((8, 28), (1, 2)):
        along = side if dims == 2 else side**2
        assert float(positions("sinusoid", dims, side).omega.max()) == pytest.approx(along)
        siren, delta = positions("siren", dims, side), 2 * torch.rand(1, 30, 30, dims) - 1
        network = siren.features
        fast = network.sines[0].start.norm(dim=-1)
        assert float(fast.max()) == pytest.approx(along, rel=1e-3)
        assert float(fast.min()) == pytest.approx(0.1, rel=1e-3)
        magnitudes = [float(positions(kind, dims, side)(delta).detach().std()) for kind in ("siren", "sinusoid")]
        assert 0.5 < magnitudes[0] / magnitudes[1] < 2
        waves = torch.sin(network.sines[0].start_bias)
        assert distance(waves[1::2], torch.ones(16)) < 1e-6  # all cosines agree where Δ = 0
    with pytest.raises(InputError, match="side must be a whole number of pixels"):
        fillin.create("classifier", 1, 2, side=0)


# Measurements


def test_the_share_of_pairs_weights_layers_by_their_number_of_pairs():
    model = fillin.create("classifier", 1, 10, width=8, heads=1, layers=2, hidden=8, span=0.2, reduce=[1])
    first, second = (span.share for span in model.spans(8, 8))
    assert first < second  # four pixels became one, and each sees itself
    assert costs.share_of_pairs(model, 8, 8) == pytest.approx((64**2 * first + 16**2 * second) / (64**2 + 16**2))
    row = fillin.create("classifier", 1, 10, width=8, heads=1, layers=2, hidden=8, dims=1, reduce=[1])
    assert costs.share_of_pairs(row, 5, 5) == 1.0


@pytest.mark.parametrize("side", [16, 32])
def test_a_narrow_window_keeps_at_most_its_share(side):
    def share(sigma: float) -> float:
        return fillin.create("classifier", 1, 2, width=8, heads=1, layers=1, span=sigma).spans(side, side)[0].share

    sigma = costs.narrow_sigma(side, 0.05)
    assert 0.03 < share(sigma) <= 0.05 < share(1.01 * sigma)


@needs_kernel
@pytest.mark.parametrize("span", [0.3, {"init": 0.3, "modulate": "scores", "cut": "hard", "shape": "box"}], ids=str)
def test_candidates_are_the_same_classifier(span):
    torch.manual_seed(0)
    options = {"width": 8, "heads": 2, "layers": 2, "hidden": 8, "dropout": 0.0}
    model = fillin.create("classifier", 1, 10, **options, span=span)
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter) * (parameter.ndim > 1))
    images = torch.rand(2, 12, 12, 1)
    names = (costs.FULL, costs.BIAS, costs.KERNEL)
    candidates = {name: costs.rebuild(model, name, 12, 2).eval() for name in names}
    assert distance(candidates[costs.BIAS](images), model(images)) < 1e-4
    assert distance(candidates[costs.KERNEL](images), model(images)) < 1e-4
    backends = {candidate.blocks[0].attention.backend for candidate in candidates.values()}
    assert len(backends) >= 2
    assert "native" in backends
    wide = costs.rebuild(model, costs.BIAS, 12, 2).eval()
    with torch.no_grad():
        for block in wide.blocks:
            block.attention.span.log_sigma.fill_(7.0)  # a window open everywhere has no effect
    assert distance(candidates[costs.FULL](images), wide(images)) < 1e-3
    assert distance(candidates[costs.FULL](images), model(images)) > 1e-3


@needs_kernel
def test_costs_are_of_training_and_of_inference():
    model = fillin.create("classifier", 1, 10, width=8, heads=2, layers=1, hidden=8, span=0.1)
    measured = costs.measure_learned(model, 16, 2, rounds=2)
    assert measured["shares"] == [span.share for span in model.spans(16, 16)]
    for candidate in (costs.FULL, costs.BIAS, costs.KERNEL):
        for part in costs.PARTS:
            assert measured["costs"][candidate][part]["seconds"] > 0


# Findings


def test_operations_are_counted():
    """For 16 pixels by hand: three products of each pair that is computed, in heads of width 4, and four projections of
    8 × 8 with two of 8 × 12 of each pixel."""
    options = {"width": 8, "heads": 2, "layers": 1, "hidden": 12}
    for more, share in (({}, 1.0), ({"blocks": 2}, 0.25), ({"positions": "siren-alfons"}, 1.0)):
        counted = costs.count_operations(fillin.create("classifier", 1, 10, **options, **more), 4, 4)
        assert counted == {"pairs": share * 256 * 3 * 8, "tokens": 16 * (4 * 64 + 2 * 96)}
    window = fillin.create("classifier", 1, 10, **options, span=0.2)
    assert costs.count_operations(window, 4, 4)["pairs"] == pytest.approx(window.spans(4, 4)[0].share * 6144)


def test_the_outline_of_a_correlated_window_is_its_cut():
    covariance = [[0.09, 0.03], [0.03, 0.04]]
    columns, rows = report.outline_ellipse(covariance)
    at = np.stack([rows, columns])
    g = np.exp(-0.5 * (at * np.linalg.solve(covariance, at)).sum(0))
    assert g == pytest.approx(0.1)


def test_the_test_is_one_sided():
    def group(*values: float) -> VariantResults:
        return VariantResults(
            "digits", 2, SIREN, [cell("2-D, siren", value, seed) for seed, value in enumerate(values)]
        )

    high, low = group(0.9, 0.91, 0.92, 0.9, 0.91), group(0.8, 0.82, 0.81, 0.8, 0.83)
    assert compare(high, low).p < 1e-4
    assert compare(high, low).outcome == "higher"
    assert compare(low, high).outcome == "lower"
    assert compare(high, low).points == pytest.approx(9.6)
    assert compare(high, high).p is None  # all differences are equal
    assert compare(group(0.9, 0.8), group(0.8, 0.9)).p == pytest.approx(0.5)
    assert compare(group(0.9, 0.8), group(0.8, 0.9)).outcome == "no difference shown"


def test_seeds_are_paired():
    """Equal differences over seeds that differ much are found; unpaired tests would not. Other seeds are left out."""

    def group(name: str, accuracies: dict[int, float]) -> VariantResults:
        return VariantResults("digits", 2, name, [cell(f"2-D, {name}", a, seed) for seed, a in accuracies.items()])

    seeds = {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8}
    a, b = group(SIREN, seeds | {4: 0.1}), group(STABLE, {seed: x - 0.01 - 0.001 * seed for seed, x in seeds.items()})
    test = compare(a, b)
    assert (test.pairs, test.outcome) == (4, "higher")
    differences = np.array([0.01, 0.011, 0.012, 0.013])
    t = differences.mean() / (differences.std(ddof=1) / 2)
    assert test.p == pytest.approx(student_t.sf(t, df=3))
    assert test.points == pytest.approx(1.15)
    assert compare(a, group(STABLE, {0: 0.4})).p is None
    assert compare(group(SIREN, {0: 0.5}), group(STABLE, {1: 0.5})) is None


def test_findings_follow_the_figures():
    """The sentences are negated where the figures are reversed."""

    def summary(window: float, row: float, kernel: float) -> str:
        sigma = [[[0.1, 0.1]], [[0.2, 0.2]]] if window > 0.5 else [[[0.2, 0.2]], [[0.1, 0.1]]]
        narrow = {"side": 32, "positions": "siren", "share": 0.049, "costs": make_costs(4.0, 12.0, kernel)}
        measured = [
            cell("1-D, sinusoid", 0.6), cell("1-D, siren", row), cell("2-D, siren", 0.7),
            cell(f"2-D, {CUT}", window, sigma=sigma, shares=[0.1, 0.2], pairs=0.12, narrow=[narrow]),
            cell(f"2-D, {next(iter(PENALTIES))}", 0.5, sigma=sigma, pairs=0.03),
        ]  # fmt: skip
        return " ".join(summarise("digits", group_cells(measured)["digits"]))

    good, bad = summary(0.8, 0.65, 1.0), summary(0.4, 0.65, 2.0)
    assert "that no worse than 1-D, holds in the mean: 80.0 %, 70.0 %, 65.0 %" in good
    assert "does **not** hold in the mean: 40.0 %" in bad
    assert f"the most accurate is **2-D, {CUT}**" in good
    assert "the most accurate is **2-D, siren**" in bad
    assert "65.0 % against 60.0 %, +5.0 points" in good
    assert f"from {INIT} to, layer by layer, 0.10 (10 %), 0.20 (20 %)" in good
    assert "later layers are wider" in good
    assert "later layers are not wider" in bad
    assert "4.0 times as fast as with full attention in PyTorch and 12 times" in good
    assert "10; met)" in good
    assert "10; not met)" in bad
    assert "from 12 to 3 %, accuracy from 80.0 % to 50.0 %" in good


def test_hypotheses_need_both_sides():
    groups = group_cells([cell("1-D, siren", 0.5), cell("2-D, siren", 0.6)])["digits"]
    (only,) = run_tests(groups)
    assert (only.a.title, only.b.title) == ("2-D, siren", "1-D, siren")
    assert group_cells([cell(VARIANTS[0].on("x").removeprefix("x, "), 0.1)])["digits"].keys() == {(1, "sinusoid")}


@pytest.mark.slow
def test_the_study_ends_in_a_report(tmp_path, monkeypatch):
    """Two variants, in miniature; only the one with a window is timed."""
    monkeypatch.setattr(costs, "NARROW_ROUNDS", {8: 1})
    monkeypatch.setattr(costs, "LEARNED_SIDE", 10)
    study = get(NAME)
    names = [f"digits, {variant}" for variant in ("2-D, siren", f"2-D, {FULL_COVARIANCE}", f"2-D, {CUT}")]
    variants = {name: {**study.variants(True)[name], **TINY} for name in names}
    study = study.replaced(variants=lambda quick: variants, quick=StudyScale({}, 2, "tiny."))
    run = open_study(study, tmp_path, quick=True)
    for done in (1, 2):  # one cell a call; the report holds what is done
        run_study(run, max_cells=1)
        page = write_report(run, ["fillin", "study", NAME]).read_text()
        assert [cell.done for cell in run.cells()] == [number < done for number in range(6)]
        assert f"{done} runs" in page
    run_study(run)
    page = write_report(run, ["fillin", "study", NAME]).read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    timed = [cell for cell in results["cells"] if "narrow" in cell]
    assert [(cell["variant"], cell["seed"]) for cell in timed] == [(names[-1], 0)]
    assert [row["side"] for row in timed[0]["learned"]] == [8, 10]
    assert len(results["findings"]) >= 4
    for figure in ("accuracy.png", "windows-digits.png", "costs.png"):
        assert (tmp_path / figure).stat().st_size > 5_000
        assert f"({figure})" in page
    assert "## Tests: digits" in page
    (full,) = (cell for cell in results["cells"] if cell["variant"] == names[1] and cell["seed"] == 0)
    assert np.linalg.eigvalsh(np.array(full["covariance"])).min() > 0
    assert all(cell["step"]["training"]["seconds"] > 0 for cell in results["cells"])
    assert str(tmp_path) not in page
