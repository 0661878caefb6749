"""Figures show their data, are written atomically, and the examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from support.helpers import TIMEOUT
from torch.distributions import Normal

import fillin
from fillin import plots
from fillin.attention import record_weights

XC = torch.tensor([[0.3, -0.5, 0.9, 0.1]]).view(1, 4, 1)
YC = torch.tensor([[1.0, 0.0, -1.0, 0.5]]).view(1, 4, 1)
XT = torch.tensor([[0.8, -1.0, 0.0, 0.4, -0.3]]).view(1, 5, 1)  # unsorted on purpose


def make_panel():
    figure, axes = plots.panels(1, 1)
    return figure, axes[0, 0]


def test_intervals_show_mean_quantiles_and_context():
    normal = Normal(torch.sin(XT), 0.1 + XT.abs())
    _, axes = make_panel()
    plots.draw_intervals(axes, XT, normal, XC, YC)
    mean, context = axes.lines
    order = XT[0, :, 0].argsort()
    np.testing.assert_allclose(mean.get_xdata(), XT[0, order, 0])
    np.testing.assert_allclose(mean.get_ydata(), normal.mean[0, order, 0])
    np.testing.assert_allclose(context.get_xydata(), torch.cat([XC, YC], -1)[0])
    for area, z in zip(axes.collections, (1.959964, 0.674490), strict=True):
        y = area.get_paths()[0].vertices[:, 1]
        assert y.max() == pytest.approx((normal.mean + z * normal.stddev).max().item(), rel=1e-5)
        assert y.min() == pytest.approx((normal.mean - z * normal.stddev).min().item(), rel=1e-5)


def test_intervals_of_a_task_and_an_output():
    mean = torch.arange(20.0).view(2, 5, 2)
    _, axes = make_panel()
    plots.draw_intervals(axes, XT.repeat(2, 1, 1), Normal(mean, 1.0), task=1, output=1)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean[1, XT[0, :, 0].argsort(), 1])


@pytest.mark.parametrize(("name", "options"), [("cnp", {"head": "mixture"}), ("np", {}), ("tnp-a", {}), ("tnp-nd", {})])
def test_intervals_of_every_kind_of_distribution_have_their_level(name, options):
    torch.manual_seed(0)
    order = XT[0, :, 0].argsort()
    distribution = fillin.create(name, size="small", **options)(XC, YC, XT)
    _, axes = make_panel()
    plots.draw_intervals(axes, XT, distribution)
    with torch.no_grad():  # TNP-A predicts each target from the context alone here; its joint samples differ
        samples = getattr(distribution, "marginals", distribution).sample(torch.Size([20_000]))[:, 0, order, 0].numpy()
    for area, level in zip(axes.collections, (0.95, 0.5), strict=True):
        vertices = area.get_paths()[0].vertices
        for location, values in zip(XT[0, order, 0].tolist(), samples.T, strict=True):
            edges = vertices[np.isclose(vertices[:, 0], location), 1]
            for edge, p in ((edges.min(), 0.5 - level / 2), (edges.max(), 0.5 + level / 2)):
                assert abs((values <= edge).mean() - p) < 0.02


def test_intervals_reject_a_mean_without_outputs():
    with pytest.raises(fillin.FillinError, match=r"\[b nt dy\]"):
        plots.draw_intervals(make_panel()[1], XT, Normal(torch.zeros(1, 5), 1.0))


def test_every_sample_is_a_line():
    paths = torch.randn(3, 1, 5, 1)
    _, axes = make_panel()
    plots.draw_samples(axes, XT, paths)
    order = XT[0, :, 0].argsort()
    np.testing.assert_allclose([line.get_ydata() for line in axes.lines], paths[:, 0, order, 0])


def stem_heights(axes) -> np.ndarray:
    """Heights [h m] of the drawn stems."""
    rows = [c for c in axes.collections if isinstance(c, LineCollection)]
    return np.array([[segment[1, 1] - segment[0, 1] for segment in row.get_segments()] for row in rows])


@pytest.mark.parametrize("name", ["te-tnp", "tnp-d"])
@pytest.mark.parametrize("target", [0, 3, -1])
def test_attention_draws_the_weights_of_the_target(name, target):
    model = fillin.create(name, size="small")
    with torch.no_grad(), record_weights() as records:
        model(XC, YC, XT)
    _, axes = plots.panels(len(records), 1)
    plots.draw_attention(axes[:, 0], records, target, xc=XC, xt=XT)
    for layer, (panel, weights) in enumerate(zip(axes[:, 0], [s.weights[0] for s in records], strict=True)):
        # in all layers but the last the queries of the context precede those of the targets
        row = target % 5 + (4 if layer < len(records) - 1 else 0)
        assert weights.shape[1] == (9 if layer < len(records) - 1 else 5)
        np.testing.assert_allclose(stem_heights(panel), weights[:, row], atol=1e-5)
        np.testing.assert_allclose(stem_heights(panel).sum(1), 1, atol=1e-5)
        assert panel.lines[0].get_xdata()[0] == pytest.approx(XT[0, target, 0].item())


def test_attention_needs_locations_if_the_model_passes_none():
    with torch.no_grad(), record_weights() as records:
        fillin.create("tnp-d", size="small")(XC, YC, XT)
    _, axes = plots.panels(len(records), 1)
    with pytest.raises(fillin.FillinError, match="pass xc and xt"):
        plots.draw_attention(axes[:, 0], records, 0)
    with pytest.raises(fillin.FillinError, match="one a layer"):
        plots.draw_attention(axes[:1, 0], records, 0, xc=XC, xt=XT)
    with pytest.raises(fillin.FillinError, match="target 5"):
        plots.draw_attention(axes[:, 0], records, 5, xc=XC, xt=XT)
    with pytest.raises(fillin.FillinError, match="4 tokens"):
        plots.draw_attention(axes[:, 0], records, 0, xc=XC[:, :2], xt=XT)


def model_with_windows(dim_x: int, **span) -> fillin.models.Process:
    model = fillin.create("te-tnp", dim_x=dim_x, size="small", layers=2, heads=3, width=24, span={"init": 0.3, **span})
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".span." in name:
                weight += 0.4 * torch.randn_like(weight)
    return model


def head_lines(axes) -> list[np.ndarray]:
    """The line [n 2] of each head."""
    return [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 1]


@pytest.mark.parametrize("modulate", ["weights", "scores"])
def test_windows_in_one_dimension_are_curves_that_end_at_the_cut(modulate):
    model = model_with_windows(1, modulate=modulate)
    axes = plots.draw_windows(model).axes
    assert [panel.get_title("left") for panel in axes] == ["layer 1: blocks.0", "layer 2: blocks.1"]
    for panel, span in zip(axes, plots.find_spans(model).values(), strict=True):
        sigma = span.log_sigma.detach().exp()[:, 0]
        for line, head_sigma, reach in zip(head_lines(panel), sigma, span.reach()[:, 0], strict=True):
            inside = line[~np.isnan(line[:, 1])]
            g = np.exp(-0.5 * (inside[:, 0] / head_sigma.item()) ** 2)
            np.testing.assert_allclose(inside[:, 1], g if modulate == "scores" else (g - 0.1) / 0.9, atol=1e-4)
            assert inside[:, 0].max() == pytest.approx(reach.item(), abs=0.02)
        legend = [text.get_text() for text in panel.get_legend().get_texts()]
        assert legend == [f"{head}: {value.item():.2g}" for head, value in enumerate(sigma, 1)]


@pytest.mark.parametrize("covariance", ["diagonal", "isotropic", "full"])
def test_windows_in_a_plane_are_ellipses_where_the_window_ends(covariance):
    model = model_with_windows(2, covariance=covariance)
    for panel, span in zip(plots.draw_windows(model).axes, plots.find_spans(model).values(), strict=True):
        for line, inverse, reach in zip(
            head_lines(panel), span.inverse(2).detach(), span.reach().detach(), strict=True
        ):
            edge = torch.tensor(line, dtype=torch.float32)
            np.testing.assert_allclose((-0.5 * (edge @ inverse.T).square().sum(1)).exp(), 0.1, rtol=1e-3)
            np.testing.assert_allclose(edge.abs().amax(0), reach, rtol=2e-3)
            assert (edge.abs() <= panel.get_xlim()[1]).all()


def test_windows_in_space_are_projected_on_each_plane():
    model = model_with_windows(3, covariance="full")
    axes = plots.draw_windows(model).axes
    assert len(axes) == 6
    span = next(iter(plots.find_spans(model).values()))
    for panel, plane in zip(axes, ([0, 1], [0, 2], [1, 2]), strict=False):
        projection = np.array([np.abs(line).max(0) for line in head_lines(panel)])
        np.testing.assert_allclose(projection, span.reach()[:, plane].detach(), rtol=2e-3)


@pytest.mark.parametrize("span", [{"shape": "box"}, {"threshold": 0.0}, {"heads": 1}, {"cut": "hard"}])
@pytest.mark.parametrize("dim_x", [1, 2])
def test_every_kind_of_window_can_be_drawn(span, dim_x, tmp_path):
    model = model_with_windows(dim_x, **span)
    figure = plots.draw_windows(model)
    assert all(len(head_lines(panel)) == span.get("heads", 3) for panel in figure.axes)
    plots.save(figure, tmp_path / "windows")


def test_windows_of_distance_and_of_models_with_latents():
    assert plots.draw_windows(fillin.create("te-tnp", dim_x=2, size="small", radial=True, span=0.3)).axes
    model = fillin.create("te-lbanp", size="small", span=0.3)
    assert len([panel for panel in plots.draw_windows(model).axes if panel.get_visible()]) == len(
        plots.find_spans(model)
    )
    with pytest.raises(fillin.FillinError, match=r"span=0\.3"):
        plots.draw_windows(fillin.create("tnp-d", size="small"))


def test_save_makes_folders_and_defaults_to_png(tmp_path):
    path = plots.save(make_panel()[0], tmp_path / "new" / "folder" / "picture")
    assert path == tmp_path / "new" / "folder" / "picture.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert os.listdir(path.parent) == ["picture.png"]


def test_a_failed_save_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    figure, _ = make_panel()

    def fail_halfway(temporary, **_):
        Path(temporary).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    figure.savefig = fail_halfway
    with pytest.raises(fillin.FillinError, match="No space left"):
        plots.save(figure, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["picture.png"]


def test_save_names_an_unwritable_path(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(fillin.FillinError, match=r"cannot write .*picture\.png"):
        plots.save(make_panel()[0], tmp_path / "file" / "picture.png")
    with pytest.raises(fillin.FillinError, match="png"):
        plots.save(make_panel()[0], tmp_path / "picture.nonsense")


def test_the_style_is_restored():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
def test_the_demo_fills_held_out_values(tmp_path):
    script = Path(__file__).parents[2] / "examples" / "fill_gaps.py"
    process = subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path)], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert process.returncode == 0, process.stderr
    for name in ("demo.png", "co2.filled.csv", "co2.filled.html", "elevation.filled.nc", "elevation.filled.png"):
        assert (tmp_path / name).stat().st_size > 1000
    years = next(line for line in process.stdout.splitlines() if "inside the record" in line)
    ours, line = (
        float(number) for number in re.findall(r"RMSE +([\d.]+) ppm \(linear interpolation +([\d.]+)", years)[0]
    )
    assert ours < line / 2


@pytest.mark.slow
def test_the_training_example_runs(tmp_path):
    script = Path(__file__).parents[2] / "examples" / "gp_curves.py"
    command = [sys.executable, str(script), "--seconds", "1", "--threads", "1", "--out", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert process.returncode == 0, process.stderr
    for picture in ("curves.png", "attention.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert "exact posterior" in process.stdout
    assert "predicts the same" in " ".join(process.stdout.split())
