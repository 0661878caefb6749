"""The study `unseen-sheets`: files of packages that are installed or not, and a report that fillin does not fill."""

import sys

import numpy as np
import pytest

from fillin.cli import main
from fillin.errors import InputError
from fillin_studies import get, open_study, run_study, unseen_sheets
from fillin_studies.report import write_report
from fillin_studies.sheets import figures, methods
from fillin_studies.unseen_sheets import UNSEEN, PackagedSheet, find_unseen_sheets


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """Two sheets: one of a package with a file, which cannot be imported, and one of a package that is absent."""
    folder = tmp_path / "made_package" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')\n")
    y = np.cumsum(np.random.default_rng(0).normal(size=(60, 2)), 0)
    lines = [f"{i // 4},{i % 4},{a:.3f},{b:.3f},dry" for i, (a, b) in enumerate(y)]
    (folder / "rain.csv").write_text("year,quarter,north,south,sky\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sheets = {
        "rain": PackagedSheet("made_package", "data/rain.csv", ("year", "quarter")),
        "moved": PackagedSheet("made_package", "data/elsewhere.csv"),
        "absent": PackagedSheet("no_such_package", "data.csv"),
    }
    monkeypatch.setattr(unseen_sheets, "UNSEEN", sheets)


def test_files_are_read_without_importing_their_package(packaged):
    data = find_unseen_sheets()
    assert data.sets["rain"].columns == ("north", "south")
    assert "made_package" not in sys.modules
    moved, absent = data.left_out
    assert moved.startswith("moved is left out: data/elsewhere.csv of made_package was not found")
    assert "pip install --no-deps no_such_package" in absent


def test_a_folder_is_an_error(capsys):
    with pytest.raises(InputError, match="reads its sheets from packages; leave --data out"):
        get("unseen-sheets", unseen_sheets.Path("data"))
    assert main(["study", "unseen-sheets", "--data", "data"]) == 2
    assert "leave --data out" in capsys.readouterr().err


def test_baselines_are_measured_without_running_fillin(packaged, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("fillin must not see these sheets before it is measured on them")

    for module in (methods, figures):
        monkeypatch.setattr(module, "predict_jointly", refuse)
    study = get("unseen-sheets")
    some = {name: part for name, part in study.variants(True).items() if part["method"] in ("linear", "SVD")}
    run = open_study(study.replaced(variants=lambda quick: some), tmp_path / "out", quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "unseen-sheets"]).read_text()
    assert "| rain, blocks | – |" in page
    assert "absent is left out" in page
    assert "developed with these sheets in view" not in page
    assert {path.name for path in run.folder.glob("*.png")} == {"rmse.png", "methods.png"}


def test_without_any_package_the_report_names_them(tmp_path, monkeypatch):
    monkeypatch.setattr(unseen_sheets, "UNSEEN", {"absent": PackagedSheet("no_such_package", "data.csv")})
    run = open_study(get("unseen-sheets"), tmp_path, quick=True)
    assert run.cells() == []
    page = write_report(run, ["fillin", "study", "unseen-sheets"]).read_text()
    assert "absent is left out" in page


@pytest.mark.parametrize("name", UNSEEN)
def test_sheets_of_installed_packages(name):
    """Sheets are distinct series that vary."""
    sheets = find_unseen_sheets().sets
    if name not in sheets:
        pytest.skip(f"{UNSEEN[name].package} is not installed")
    values = sheets[name].values
    assert values.shape[1] >= 3
    assert (np.nanstd(values, 0) > 0).all()
    assert not {"year", "quarter", "is_anomaly"} & set(sheets[name].columns)
