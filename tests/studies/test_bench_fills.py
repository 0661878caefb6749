"""`fillin bench fill`: its files, its costs, its table and the page made of them. No test depends on times."""

import json
import math

import numpy as np
import pytest

from fillin.cli import main
from fillin.errors import UnknownName
from fillin_studies.bench import fills
from fillin_studies.bench.fills import CASES, MISSING, measure_fills, select_cases, write_columns, write_field
from fillin_studies.bench.results_pages import make_fills_page
from fillin_studies.bench.tables import make_tables


@pytest.fixture
def costs(monkeypatch) -> list[list[str]]:
    """Runs that cost 2, 1, 2, 1 … seconds and take no time. Returns the words of each."""
    words = []

    def run_command(command, folder, threads):
        words.append(list(command))
        seconds = 1.0 + len(words) % 2
        return {"seconds": seconds, "cpu_seconds": threads * seconds, "megabytes": 100 * seconds}

    monkeypatch.setattr(fills, "run_command", run_command)
    return words


def test_a_fifth_of_the_cells_is_missing(tmp_path):
    path = write_columns(tmp_path, (400, 5), 0)
    assert path.read_text().startswith("t,y0,y1,y2,y3,y4\n0,")
    missing = np.isnan(np.genfromtxt(path, delimiter=",", skip_header=1))
    assert missing.shape == (400, 6)
    assert not missing[:, 0].any()
    assert missing[:, 1:].mean() == pytest.approx(MISSING, abs=0.05)


def test_every_slice_of_the_field_has_clouds(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    with xarray.open_dataset(write_field(tmp_path, (3, 20, 30), 0)) as data:
        assert data["v"].dims == ("time", "lat", "lon")
        assert data["v"].isnull().mean(("lat", "lon")).values == pytest.approx(np.full(3, MISSING), abs=0.01)


def test_the_same_seed_writes_the_same_file(tmp_path):
    first, again, other = (write_columns(tmp_path, (50, 2), seed).read_text() for seed in (1, 1, 2))
    assert first == again != other


def test_seconds_are_those_of_the_fastest_run_and_memory_is_the_most(costs):
    ticks = []
    [row] = measure_fills(select_cases(["series"], True), 2, 3, tick=lambda: ticks.append(1))
    assert len(ticks) == len(costs) == 3
    assert (row["seconds"], row["cpu_seconds"], row["megabytes"]) == (1.0, 2.0, 200)
    assert row["holds"]
    assert costs[0][0] == "fill"
    assert costs[0][-2:] == ["--threads", "2"]


def test_a_case_that_takes_too_long_or_too_much_does_not_hold(costs):
    case = select_cases(["columns"], True)[0]
    for limits in ({"max_seconds": 0.5}, {"max_megabytes": 50.0}):
        [row] = measure_fills([case._replace(**limits)], 1, 1)
        assert not row["holds"]


def test_command_prints_a_table_and_its_page_has_every_case(costs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "fills.json"
    assert main(["bench", "fill", "--quick", "series", "columns", "--json", str(path)]) == 0
    assert "fillin fill FILE, 2 threads" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert [row["size"] for row in content["rows"]] == ["60 × 1", "60 × 12"]
    page = make_fills_page(tmp_path)
    assert all(f"| {row['case']} | {row['size']} |" in page for row in content["rows"])
    assert "≤ 3 s" in page
    assert len(make_tables(content)) == 1
    assert main(["bench", "fill", "colums"]) == 2
    assert "columns" in capsys.readouterr().err


def test_the_cases_are_those_of_the_help(capsys):
    assert main(["bench", "fill", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(case.name in text for case in CASES)
    assert all(math.prod(case.quick) < math.prod(case.shape) for case in CASES)
    with pytest.raises(UnknownName, match="case"):
        select_cases(["nothing"], False)


@pytest.mark.slow
def test_a_command_runs_in_a_process_of_its_own(tmp_path):
    path = write_columns(tmp_path, (30, 1), 0)
    cost = fills.run_command(["fill", str(path), "--no-figure"], tmp_path, 1)
    assert (tmp_path / "columns.filled.csv").exists()
    assert cost["cpu_seconds"] > 0
    assert cost["megabytes"] is None or cost["megabytes"] > 10
    with pytest.raises(RuntimeError, match="ended with 2"):
        fills.run_command(["fill", str(tmp_path / "nowhere.csv")], tmp_path, 1)
