"""The study of fields in time: its gaps, its methods, and its report."""

import numpy as np
import pytest

from fillin.cli import main
from fillin.errors import FillinError
from fillin_studies import slices
from fillin_studies.slices import CLOUD_SHARE, KINDS, METHODS, RANDOM_SHARE, WITH_GAPS, draw_gaps, make_slices


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_hide_their_share_of_twelve_slices(kind):
    hidden = draw_gaps((48, 30, 40), kind, 0)
    share = hidden.mean((1, 2))
    assert (share > 0).sum() == WITH_GAPS
    expected = RANDOM_SHARE if kind == "random" else CLOUD_SHARE
    assert share[share > 0] == pytest.approx(expected, abs=0.05)
    assert (draw_gaps((48, 30, 40), kind, 0) == hidden).all()
    assert (draw_gaps((48, 30, 40), kind, 1) != hidden).any()


@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith("fillin")])
def test_baselines_are_exact_where_they_should_be(method):
    """A field that is linear in space and does not change, which every baseline reproduces."""
    row, column = np.meshgrid(np.arange(9.0), np.arange(11.0), indexing="ij")
    values = np.repeat((row + 2 * column)[None], 20, 0)
    hidden = draw_gaps(values.shape, "random", 0)
    hidden[:, [0, -1]] = hidden[:, :, [0, -1]] = False
    field = make_slices()[:20, :9, :11].copy(data=np.where(hidden, np.nan, values))
    assert METHODS[method](field, hidden).value == pytest.approx(values[hidden], abs=1e-6)


def test_report_compares_with_the_best_other_method(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(slices, "METHODS", {name: METHODS[name] for name in ("EOFs", "linear in time")})
    assert main(["study", "slices", "--masks", "1", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "| made up, moving clouds | " in text
    assert "no --data DIR was given" in text


def test_folders_without_fields_are_refused(tmp_path):
    with pytest.raises(FillinError, match=r"contains no fields/\*\.nc"):
        slices.SlicesStudy(tmp_path)
