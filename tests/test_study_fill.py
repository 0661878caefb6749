"""The study `fill`: masks are what they say, measures are what they are in closed form, every method is sane, and the
study resumes and ends in a report."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import ExactProcess

from fillin.cli import main
from fillin.data import bayes
from fillin.errors import InputError
from fillin.filling.answer import Answer
from fillin.studies import fill, get, open_work, work_on
from fillin.studies.fill import limits, methods
from fillin.studies.fill import score as scores
from fillin.studies.fill.data import Case, Field, Prior, Series, find, read_curve, read_field
from fillin.studies.fill.lines import normal
from fillin.studies.fill.masks import BLOCK, KINDS, Mask, block_lengths, mask
from fillin.studies.fill.methods import METHODS, OURS, THREE, Method
from fillin.studies.fill.report import CRPS, OTHERS, against_three, by_method
from fillin.studies.fill.season import one_period_away, period
from fillin.studies.write import write

SIZES = (12, 64, 91, 144, 468)
CHEAP = ("curve", "surface", "linear", "seasonal naive")


def wave(n: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Four years of months: a season, a trend and a little noise."""
    x = 1990 + np.arange(n) / 12
    return x[:, None], 10 + 0.5 * (x - 1990) + np.sin(2 * np.pi * x) + 0.05 * np.random.default_rng(0).normal(size=n)


def runs(hidden: np.ndarray) -> list[int]:
    """Lengths of stretches of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hidden.astype(int), [0]])))
    return list(edges[1::2] - edges[::2])


@pytest.fixture
def stand_in(monkeypatch):
    """An exact process where the weights are; methods that take no time."""
    models = {name: ExactProcess() for name in OURS.values()}
    monkeypatch.setattr(methods, "loaded", models.__getitem__)
    monkeypatch.setattr(limits, "loaded", models.__getitem__)

    def flat(x, y, asked):
        return normal(np.full(len(asked), y.mean()), np.full(len(asked), y.std() + 1e-3))

    for name, one in METHODS.items():
        own = replace(one, fill=flat, weights=None) if name in ("surface",) else replace(one, weights=None)
        if name not in CHEAP:
            own = replace(own, fill=flat, needs=None)
        monkeypatch.setitem(METHODS, name, own)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two curves and a field, laid out as --data wants them."""
    x, y = wave()
    (tmp_path / "data" / "curves").mkdir(parents=True)
    lines = [f"{i},{a!r},{b!r}" for i, (a, b) in enumerate(zip(x[:, 0].tolist(), y.tolist(), strict=True))]
    (tmp_path / "data" / "curves" / "months.csv").write_text("rownames,time,value\n" + "\n".join(lines) + "\n")
    rows = [f"{i},{1900 + i},{i % 7},{9 - i % 3}" for i in range(40)]
    rows[3] = "3,1903,NA,5"
    (tmp_path / "data" / "curves" / "pelt.csv").write_text("rownames,Year,Hare,Lynx\n" + "\n".join(rows) + "\n")
    return tmp_path / "data"


def with_field(folder: Path) -> np.ndarray:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    values = np.add.outer(np.arange(6.0), np.sin(np.arange(20.0)))
    values[2:4, 5:9] = np.nan  # land
    coordinates = {"time": [0.0, 1.0], "lat": np.linspace(-5, 5, 6), "lon": np.linspace(0, 90, 20)}
    data = xarray.Dataset({"t": (("time", "lat", "lon"), np.stack([values, 0 * values]))}, coordinates)
    (folder / "fields").mkdir()
    data.to_netcdf(folder / "fields" / "sea.nc", engine="netcdf4")
    return values


# Masks


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("number", [0, 1, 7])
def test_masks_are_what_they_say(n, number):
    for kind in ("random", "blocks"):
        found = mask(kind, n, number)
        assert found.hidden.sum() == round(0.3 * n)
        assert (found.known == ~found.hidden).all()
    low, high = math.ceil(BLOCK[0] * n), max(1, math.floor(BLOCK[1] * n))
    lengths = runs(mask("blocks", n, number).hidden)
    assert all(low <= length <= high for length in lengths)
    assert sum(lengths) == round(0.3 * n)
    end = mask("end", n, number)
    used = int((end.known | end.hidden).sum())
    assert end.hidden.sum() == round(0.15 * used)
    assert runs(end.hidden) == [end.hidden.sum()]
    assert end.hidden[used - 1]
    assert not end.known[used:].any()
    assert used == n if number == 0 else 0.6 * n - 1 <= used <= n


def test_a_field_hides_the_share_it_is_asked_for():
    assert mask("random", 1000, 0, share=0.4).hidden.sum() == 400


def test_masks_differ_by_number_and_by_nothing_else():
    for kind in KINDS:
        assert (mask(kind, 91, 3).hidden == mask(kind, 91, 3).hidden).all()
        assert len({mask(kind, 91, number).hidden.tobytes() for number in range(20)}) > 10


def test_block_lengths_add_up_however_unlucky():
    for seed in range(50):
        lengths = block_lengths(100, 30, np.random.default_rng(seed))
        assert lengths.sum() == 30
        assert lengths.min() >= 3
        assert lengths.max() <= 12


def test_every_method_is_asked_the_same(monkeypatch, stand_in):
    asked: dict[str, list] = {}

    def spy(name):
        def fill(x, y, places):
            asked.setdefault(name, []).append((x.tobytes(), y.tobytes(), places.tobytes()))
            return normal(np.zeros(len(places)), np.ones(len(places)))

        return fill

    for name in ("linear", "GP, composed", "curve"):
        monkeypatch.setitem(METHODS, name, Method(spy(name), "a spy"))
        for kind in KINDS:
            scores.measure(Prior("rbf"), kind, name, 2, lambda share: None)
    assert asked["linear"] == asked["GP, composed"] == asked["curve"]
    assert len(set(asked["linear"])) == 6


# Data


def test_a_prior_is_a_stream_that_bayes_can_answer():
    for kind in KINDS:
        case, data = Prior("rbf").case(kind, 3), Prior("rbf")
        task = data.stream(kind, 3).task(3)
        assert np.array_equal(case.question[1], task.yc[0, :, 0].double().numpy())
        assert np.array_equal(case.truth, task.yt[0, :, 0].double().numpy())
        assert (np.diff(case.x[:, 0]) >= 0).all()
        assert bayes(data.stream(kind, 3), 3, 16) is not None
    assert not np.array_equal(Prior("rbf").case("random", 0).y, Prior("rbf").case("random", 1).y)


def test_curves_are_read_from_their_first_two_columns(folder):
    x, y = read_curve(folder / "curves" / "pelt.csv")
    assert len(x) == 39  # the row without a value is none
    assert 1903 not in x
    assert y.max() == 6
    assert len(Series(folder / "curves" / "months.csv").case("blocks", 0).truth) == round(0.3 * 48)


def test_fields_keep_land_out(folder):
    values = with_field(folder)
    rows, columns, read = read_field(folder / "fields" / "sea.nc")
    assert np.array_equal(read, values, equal_nan=True)
    case = Field(folder / "fields" / "sea.nc").case("random", 0)
    assert len(case.y) == np.isfinite(values).sum()
    assert case.mask.hidden.sum() == round(0.4 * len(case.y))
    at = [(np.flatnonzero(rows == a)[0], np.flatnonzero(columns == b)[0]) for a, b in case.x]
    assert np.array_equal(case.y, [values[i, j] for i, j in at])


def test_what_is_wrong_with_the_data_is_said(tmp_path, folder, capsys):
    for where, words in ((tmp_path / "nowhere", "no such folder"), (tmp_path, "neither curves")):
        with pytest.raises(InputError, match=words):
            find(where)
    (folder / "curves" / "bad.csv").write_text("time,value\n1,2\n2,two\n")
    with pytest.raises(InputError, match=r"bad.csv, line 3, column value: 'two'"):
        read_curve(folder / "curves" / "bad.csv")
    (folder / "curves" / "bad.csv").write_text("time\n1\n")
    with pytest.raises(InputError, match="a column for x and one for y"):
        read_curve(folder / "curves" / "bad.csv")
    (folder / "curves" / "bad.csv").write_text("time,value\n1,2\n")
    with pytest.raises(InputError, match="too few"):
        read_curve(folder / "curves" / "bad.csv")
    (folder / "curves" / "bad.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_curve(folder / "curves" / "bad.csv")
    assert main(["study", "fill", "--data", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["study", "te-scores", "--data", str(folder)]) == 2
    assert "leave --data out" in capsys.readouterr().err


def test_without_a_folder_or_xarray_the_rest_is_done(folder, monkeypatch):
    assert set(find(None).sets) == {"rbf", "matern-5/2", "periodic"}
    assert "no --data DIR" in find(None).left_out[0]
    (folder / "fields").mkdir()
    (folder / "fields" / "a.nc").touch()
    monkeypatch.setattr("fillin.studies.fill.data.find_spec", lambda name: None)
    found = find(folder)
    assert {"months", "pelt"} <= set(found.sets)
    assert "a" not in found.sets
    assert "xarray" in found.left_out[0]


# Measures


def test_measures_against_closed_forms():
    """Of N(0, 1) where the truth is 0, 1 and 3, in units of the whole series."""
    y = np.array([0.0, 1.0, 3.0, 5.0, -4.0])
    case = Case(np.arange(5.0)[:, None], y, Mask(np.arange(5) > 2, np.arange(5) < 3))
    found = scores.score(normal(np.zeros(3), np.ones(3)), case)
    unit, truth = y.std(), y[:3]
    density = np.exp(-(truth**2) / 2) / np.sqrt(2 * np.pi)
    below = np.array([0.5 * (1 + math.erf(t / math.sqrt(2))) for t in truth])
    crps = truth * (2 * below - 1) + 2 * density - 1 / math.sqrt(math.pi)  # Gneiting & Raftery 2007, equation 21
    assert found["crps"] == pytest.approx(crps.mean() / unit)
    assert found["log_likelihood"] == pytest.approx(np.log(density * unit).mean())
    assert found["squared"] == pytest.approx((truth**2).mean() / unit**2)
    assert found["point"] == pytest.approx(truth.mean() / unit)
    assert found["covered"] == pytest.approx(2 / 3)


def test_measures_do_not_depend_on_units():
    x, y = wave()
    hidden = mask("blocks", len(y), 0)
    one = scores.score(METHODS["linear"].fill(*(case := Case(x, y, hidden)).question), case)
    other = scores.score(METHODS["linear"].fill(*(case := Case(9 * x, 1e4 * y - 7, hidden)).question), case)
    assert one == pytest.approx(other)


def test_a_mixture_is_scored_as_one():
    """Half at −1 and half at 1, both narrow: the truth at 1 has half of the density, and both ends are covered."""
    case = Case(np.arange(4.0)[:, None], np.array([1.0, -1.0, 1.0, -1.0]), Mask(np.arange(4) > 1, np.arange(4) < 2))
    answer = Answer(np.full((2, 1, 2), 0.5), np.tile([-1.0, 1.0], (2, 1, 1)), np.full((2, 1, 2), 0.01))
    found = scores.score(answer, case)
    assert found["log_likelihood"] == pytest.approx(math.log(0.5 / 0.01 / math.sqrt(2 * math.pi)))
    assert found["crps"] == pytest.approx(0.5, abs=0.01)  # E|X − 1| − E|X − X'|/2 = 1 − 1/2
    assert found["covered"] == 1


def test_pooling_is_over_masks():
    one = {"crps": 0.1, "squared": 1.0, "covered": 1.0, "seconds": 2.0}
    other = {"crps": 0.3, "squared": 7.0, "covered": 0.5, "seconds": 4.0}
    found = scores.pooled([one, other])
    assert found["masks"] == 2
    assert found["crps"] == pytest.approx(0.2)
    assert found["crps_error"] == pytest.approx(0.1)
    assert found["rmse"] == pytest.approx(2.0)
    assert (found["covered"], found["seconds"]) == (0.75, 3.0)
    assert scores.pooled([one])["crps_error"] == 0


def test_a_limit_that_has_not_settled_is_none():
    settled, moved = ({"log_likelihood": 1.0, "moved": by, "seconds": 1.0} for by in (0.01, 0.2))
    assert scores.pooled([settled, settled])["log_likelihood"] == 1
    assert "log_likelihood" not in scores.pooled([settled, moved])


def test_a_line_does_not_beat_exact_bayes():
    data = Prior("rbf")
    limit = scores.measure(data, "random", scores.BAYES, 3, lambda share: None)
    line = scores.measure(data, "random", "linear", 3, lambda share: None)
    assert limit["log_likelihood"] > line["log_likelihood"]
    assert "crps" not in limit


# Methods


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if 1 in one.dims])
@pytest.mark.parametrize("series", ["wave", "constant", "zero", "two"])
def test_every_method_is_finite_and_sane(name, series, monkeypatch):
    if METHODS[name].needs:
        pytest.importorskip(METHODS[name].needs)
    monkeypatch.setattr("fillin.studies.fill.gps._STEPS", 20)
    x, y = wave(36)
    if series == "two":
        x, y = x[[0, 20]], y[[0, 20]]
    else:
        y = {"wave": y, "constant": np.full_like(y, 7.0), "zero": np.zeros_like(y)}[series]
    known = np.arange(len(y)) % 3 != 1
    asked = np.concatenate([x[~known], [[x.max() + 1.0]]])
    answer = METHODS[name].fill(x[known], y[known], asked)
    for part in (answer.mean, answer.std, answer.log_prob(np.full((len(asked), 1), y[0]))):
        assert part.shape == (len(asked), 1)
        assert np.isfinite(part).all()
    assert (answer.std > 0).all()
    low, high = y.min() - 3 * (np.ptp(y) + 1), y.max() + 3 * (np.ptp(y) + 1)
    assert ((low < answer.mean) & (answer.mean < high)).all()
    if series in ("constant", "zero") and METHODS[name].weights is None:
        assert answer.mean == pytest.approx(y[0], abs=1e-3)


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if 2 in one.dims])
def test_every_method_of_fields_is_finite_and_sane(name):
    if METHODS[name].needs:
        pytest.importorskip(METHODS[name].needs)
    if METHODS[name].missing:
        pytest.skip(METHODS[name].missing)
    x = np.stack(np.meshgrid(np.arange(8.0), np.arange(12.0), indexing="ij"), -1).reshape(-1, 2)
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1]
    hidden = mask("random", len(y), 0, share=0.4)
    case = Case(x, y, hidden)
    answer = METHODS[name].fill(*case.question)
    assert np.isfinite(answer.mean).all()
    assert (answer.std > 0).all()
    assert scores.score(answer, case)["squared"] < 1


def test_bands_of_lines_grow_and_hold():
    """A random walk is what they are made for: between known points at a and b its variance is ab/(a + b)."""
    x, covered = np.arange(300.0)[:, None], []
    known = (np.arange(300) < 100) | (np.arange(300) > 180)
    for seed in range(20):
        y = np.random.default_rng(seed).normal(size=300).cumsum()
        answer = METHODS["linear"].fill(x[known], y[known], x[~known])
        a = np.arange(1.0, 82.0)
        assert answer.std[:, 0] == pytest.approx(np.sqrt(a * (82 - a) / 82), rel=0.2)
        covered.append(scores.score(answer, Case(x, y, Mask(known, ~known)))["covered"])
    assert 0.88 < np.mean(covered) < 1


def test_the_period_is_found_and_used():
    x, y = wave()
    keep = mask("random", len(y), 0).known
    assert period(x[keep, 0], y[keep]) == pytest.approx(1.0, rel=0.05)
    assert period(x[:5, 0], y[:5]) is None
    assert period(x[:, 0], np.full(len(x), 3.0)) is None
    row = np.arange(20.0)
    found, away = one_period_away(row[:16], row[:16] % 4, row, 4.0)
    assert np.array_equal(found, row % 4)
    assert away.tolist() == [1.0] * 20
    alone, away = one_period_away(row[:4], row[:4], np.array([9.0]), 4.0)
    assert (alone[0], away[0]) == (1.0, 2.0)
    assert np.isnan(one_period_away(row[[0, 1, 3]], row[[0, 1, 3]], np.array([10.0]), 4.0)[0][0])


def test_a_method_that_is_not_there_is_left_out_in_words(monkeypatch):
    monkeypatch.setitem(METHODS, "ghost", Method(METHODS["linear"].fill, "none", needs="no_such_module"))
    monkeypatch.setitem(METHODS, "spirit", Method(METHODS["linear"].fill, "none", weights="no such weights"))
    assert "no_such_module is not installed" in str(METHODS["ghost"].missing)
    assert "no weights" in str(METHODS["spirit"].missing)
    used = {cell["method"] for cell in fill.variants(find(None), True).values()}
    assert not used & {"ghost", "spirit"}


# The study


def small(folder: Path | None = None):
    """One mask, one kind of prior."""
    study = get("fill", folder, 1)
    some = {
        name: own
        for name, own in study.variants(True).items()
        if own["data"] not in ("matern-5/2", "periodic", limits.OWN) and own["method"] != scores.BAYES
    }
    return replace(study, variants=lambda quick: some)


def test_the_study_ends_in_a_report(tmp_path, folder, stand_in):
    with_field(folder)
    work = open_work(small(folder), tmp_path / "out", quick=True)
    work_on(work)
    page = write(work, ["fillin", "study", "fill"]).read_text()
    for part in ("months, blocks", "sea, random", "Against the best of three", "Against exact Bayes", "≤ 1.25"):
        assert part in page
    assert str(tmp_path) not in page
    pictures = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert pictures == {"crps.png", "examples.png", "field-sea.png"}
    assert all(f"({name})" in page for name in pictures)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(results["cells"]) == len(work.cells())
    one = next(cell for cell in results["cells"] if cell["data"] == "pelt")
    assert {"log_likelihood", "crps", "crps_error", "rmse", "covered", "seconds", "masks"} <= set(one)


def test_a_study_that_is_stopped_goes_on_where_it_was(tmp_path, stand_in):
    work = open_work(small(), tmp_path, quick=True)
    seen = []

    def stop(cell, share, loss, validation):
        seen.append(cell.variant)
        if len(set(seen)) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_on(work, stop)
    done = {cell.variant: cell.folder / "result.json" for cell in work.cells() if cell.done}
    assert len(done) == 2
    before = {name: path.stat().st_mtime_ns for name, path in done.items()}
    work_on(open_work(small(), tmp_path, quick=True))
    assert all(cell.done for cell in work.cells())
    assert {name: path.stat().st_mtime_ns for name, path in done.items()} == before


def test_cells_of_other_masks_are_not_mixed_in(tmp_path, stand_in):
    work_on(open_work(small(), tmp_path, quick=True))
    more = get("fill", None, 2)
    with pytest.raises(InputError, match="another version of this study"):
        work_on(open_work(more, tmp_path, quick=True))


def test_weights_that_were_replaced_are_measured_again_and_nothing_else(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(methods, "digest", lambda name: "first")
    monkeypatch.setattr(methods, "names", lambda: ["curve"])
    monkeypatch.setitem(METHODS, "curve", replace(METHODS["curve"], weights="curve"))
    few = {name: own for name, own in small().variants(True).items() if own["kind"] == "end" and own["data"] == "rbf"}
    assert few["rbf, end, curve"]["weights"] == "first"
    study = replace(small(), variants=lambda quick: few)
    work_on(open_work(study, tmp_path, quick=True))
    begun = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*/*/result.json")}
    few["rbf, end, curve"] = {**few["rbf, end, curve"], "weights": "second"}
    work_on(open_work(study, tmp_path, quick=True))
    changed = [path for path, was in begun.items() if path.stat().st_mtime_ns != was]
    assert [path.parent.parent.name for path in changed] == ["rbf_end_curve"]


def test_the_command_says_nothing_of_this_machine(tmp_path, folder, stand_in, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (folder / "curves" / "months.csv").unlink()
    study = small(folder)
    few = {name: own for name, own in study.variants(True).items() if own["data"] == "pelt" and own["kind"] == "end"}
    study = replace(study, variants=lambda quick: few)
    monkeypatch.setattr(fill, "configured", lambda data, masks: study)
    assert main(["study", "fill", "--data", str(folder), "--masks", "1", "--workers", "1"]) == 0
    assert "report.md" in capsys.readouterr().out
    for name in ("report.md", "results.json"):
        text = (tmp_path / "out" / "fill" / name).read_text()
        assert "DIR" in text
        assert str(folder) not in text


def test_every_pair_of_data_and_method_has_a_folder_of_its_own(tmp_path, folder):
    cells = open_work(get("fill", folder), tmp_path / "out", quick=False).cells()
    assert len({cell.folder for cell in cells}) == len(cells)
    assert {cell.recipe["masks"] for cell in cells} == {20}


# The report


def result(method: str, crps: float, covered: float = 0.95, seconds: float = 1.0, group: str = "curve") -> dict:
    own = {"data": "a", "kind": "random", "group": group, "method": method, "masks": 1}
    return {**own, "crps": crps, "covered": covered, "seconds": seconds, "log_likelihood": -crps, "rmse": crps}


def test_the_best_is_bold_and_bayes_is_no_rival():
    results = {("a", "random"): {"curve": result("curve", 0.2), "linear": result("linear", 0.1)}}
    columns, rows = by_method(results, CRPS)
    assert columns == ["", "curve", "linear"]
    assert rows == [["a, random", "0.200", "**0.100**"]]
    results["a", "random"][scores.BAYES] = {"log_likelihood": 5.0, "seconds": 1.0}
    columns, [row] = by_method(results, OTHERS[0])
    assert columns[-1] == scores.BAYES
    assert row == ["a, random", "-0.20", "**-0.10**", "5.00"]
    assert "**" not in "".join(by_method(results, OTHERS[2])[1][0])  # coverage has no best


def test_ours_is_held_against_the_best_of_three():
    of = {name: result(name, crps) for name, crps in zip(THREE, (0.3, 0.2, 0.4), strict=True)}
    ours = result("curve", 0.22, covered=0.93, seconds=0.05)
    [found] = against_three({("a", "random"): {**of, "curve": ours}})
    assert (found.best, found.best_crps, found.covered) == (THREE[1], 0.2, 0.93)
    assert found.ratio == pytest.approx(1.1)
    assert found.time == pytest.approx(0.05)
    assert not against_three({("a", "random"): {"curve": ours}})  # nothing to compare with
    prior = {name: {**one, "group": "prior"} for name, one in {**of, "curve": ours}.items()}
    assert not against_three({("a", "random"): prior})


def test_the_gap_to_bayes_is_that_of_the_same_tasks(monkeypatch):
    """The exact process knows length, scale and noise; drawn with ranges as narrow, its gap is none."""
    model = ExactProcess(length=0.5, scale=1.0, noise=0.1)
    monkeypatch.setattr(limits, "loaded", lambda name: model)
    monkeypatch.setattr(limits, "curves", lambda name: replace(Prior(name).stream("random", 0), function=model.exact))
    monkeypatch.setattr(limits, "_NARROW", (2, 256))
    seen = []
    found = limits.gap("rbf", 1, seen.append)
    assert found["gap"] == pytest.approx(0, abs=1e-3)
    assert found["tasks"] == 2 * limits._TASKS
    assert seen == [0.5, 1.0]
