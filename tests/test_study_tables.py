"""The study `tables`: every method is asked the same, what it says is measured rightly, and the study ends in a report
that says where ours is first and where not."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scoringrules import crps_normal

import fillin
from fillin.cli import main
from fillin.errors import InputError
from fillin.studies import get, open_work, work_on
from fillin.studies.tables import gps, methods
from fillin.studies.tables.data import FEW, SHIPPED, Case, Set, find
from fillin.studies.tables.findings import findings
from fillin.studies.tables.forecasts import LEVELS, Forecast, points
from fillin.studies.tables.methods import ALONE, METHODS, OURS, WITH_FEW
from fillin.studies.tables.ranks import ACCURACY, RMSE, Results
from fillin.studies.tables.score import ask, calibration, of_classes, of_numbers
from fillin.studies.write import write

pandas = pytest.importorskip("pandas")


def put(folder: Path, rows: list[str], splits: int = 2) -> Path:
    """A set as --data wants it; row i is held out in split i mod 4."""
    folder.mkdir(parents=True)
    masks = [",".join(str(int(i % 4 == split)) for split in range(splits)) for i in range(len(rows))]
    for name, lines in (("data", rows), ("test_mask", masks)):
        compress(folder / f"{name}.csv.gz", lines)
    return folder


def compress(path: Path, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A line with noise in 40 rows, and a set that is said to be large."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2)).round(4)
    y = (3 * x[:, 0] + 0.1 * random.normal(size=40)).round(4)
    put(tmp_path / "data" / "line", [f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True)])
    put(tmp_path / "data" / "protein", ["1,2"] * 8)
    return tmp_path / "data"


@pytest.fixture
def swift(monkeypatch):
    """Ours with two members and twenty steps at most."""

    def small(kind, steps=20, **options):
        return lambda seed: kind(members=2, steps=steps, random_state=seed, **options)

    ours = replace(METHODS[OURS], regressor=small(fillin.TableRegressor), classifier=small(fillin.TableClassifier))
    monkeypatch.setitem(METHODS, OURS, ours)
    monkeypatch.setitem(WITH_FEW, ALONE, ours)
    semi = replace(ours, classifier=small(fillin.TableClassifier, 4, features=0.5), unlabelled=True)
    monkeypatch.setitem(WITH_FEW, OURS, semi)


# Data


def test_splits_are_those_that_are_given(folder):
    data = find(folder).sets["line"]
    assert data.splits == 2
    X, y, classes = data.rows
    assert (X.shape, classes, data.group) == ((40, 2), 0, "regression")
    for split in range(2):
        case = data.case(split)
        assert case.asked.index.tolist() == [i for i in range(40) if i % 4 == split]
        assert set(case.X.index) == set(range(40)) - set(case.asked.index)
        assert np.array_equal(case.truth, y[case.asked.index])
        assert np.array_equal(case.y, y[case.X.index])


def test_sets_of_scikit_learn_are_split_five_times_with_every_class_on_both_sides():
    for name in SHIPPED:
        data = Set(name)
        assert data.splits == data.masks.shape[1] == 5
        assert data.masks.mean() == pytest.approx(0.1, abs=0.01)
        assert len({data.masks[:, split].tobytes() for split in range(5)}) == 5
        case = data.case(2)
        if case.classes:
            assert len(np.unique(case.y)) == len(np.unique(case.truth)) == case.classes


def test_with_few_labels_the_others_are_given_without_and_asked_for():
    data = Set("digits", few=FEW)
    case = data.case(1)
    assert len(case.X) == 1797
    assert len(case.asked) == 1797 - FEW
    assert np.isnan(case.y[case.asked.index]).all()
    assert not np.isnan(case.truth).any()
    assert case.labelled.X.shape[0] == len(case.labelled.y) == FEW
    assert len(np.unique(case.labelled.y)) == 10
    assert data.group == "few labels"


def test_words_are_classes_and_blanks_are_blank(tmp_path):
    rows = [f"{'' if i == 5 else i},{'red' if i % 2 else ''},{'yes' if i % 2 else 'no'}" for i in range(24)]
    data = Set("mixed", put(tmp_path / "mixed", rows))
    X, y, classes = data.rows
    assert (classes, data.group) == (2, "classification")
    assert y.tolist() == [0, 1] * 12
    assert np.isnan(X.x0[5])
    for name, one in METHODS.items():
        if name != OURS and not one.missing:
            found = ask(one, data.case(0), 0)
            assert 0 <= found["accuracy"] <= 1, name


def test_what_is_wrong_with_the_data_is_said(tmp_path, folder, capsys):
    with pytest.raises(InputError, match="no such folder"):
        find(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no NAME/data"):
        find(folder / "line")
    for number, (rows, masks, words) in enumerate(
        [
            (["1,2", "3,"], None, "line 2: no target"),
            (["1", "3"], None, "one column"),
            (["1,2", "3,4"], ["1"], "has 1 rows, and data.csv.gz beside it 2"),
            (["1,2", "3,4"], ["1", "2"], "line 2, column 1: .*neither 0 nor 1"),
            (["1,2", "3,4"], ["1", "1"], "column 1: a split needs rows to learn from"),
        ]
    ):
        place = put(tmp_path / str(number), rows)
        if masks:
            compress(place / "test_mask.csv.gz", masks)
        with pytest.raises(InputError, match=words):
            Set("bad", place).case(0)
    (folder / "line" / "data.csv.gz").write_bytes(b"no archive")
    assert main(["study", "tables", "--data", str(folder)]) == 2
    assert "cannot be read as CSV" in capsys.readouterr().err


# What is asked, and what is measured


def test_every_method_is_asked_the_same(folder):
    from sklearn.base import BaseEstimator, RegressorMixin

    asked: dict[str, list] = {}

    class Spy(RegressorMixin, BaseEstimator):
        def __init__(self, name):
            self.name = name

        def fit(self, X, y):
            asked.setdefault(self.name, []).append((X.to_numpy().tobytes(), y.tobytes()))
            return self

        def predict(self, X):
            asked[self.name].append(X.to_numpy().tobytes())
            return np.zeros(len(X))

    data = find(folder).sets["line"]
    for name in ("CatBoost", "k-NN"):
        method = replace(METHODS[name], regressor=lambda seed, name=name: Spy(name))
        for split in range(2):
            ask(method, data.case(split), split)
    assert asked["CatBoost"] == asked["k-NN"]
    assert len(asked["k-NN"]) == 2 * (5 + 1) * 2


def test_only_who_can_is_given_rows_without_labels():
    seen = []

    class Spy:
        classes_ = np.array([0.0, 1.0])

        def fit(self, X, y):
            seen.append((len(X), np.isnan(y).sum()))
            return self

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    case = Set("breast_cancer", few=FEW).case(0)
    for name in (OURS, ALONE, "MLP"):
        ask(replace(WITH_FEW[name], classifier=lambda seed: Spy()), case, 0)
    assert seen == [(569, 549), (FEW, 0), (FEW, 0)]


def test_scores_of_numbers_are_those_of_a_normal():
    from scipy.stats import norm

    random = np.random.default_rng(0)
    mean, deviation = random.normal(size=4000), 0.5 + random.random(4000)
    truth = mean + deviation * random.normal(size=4000)
    told = Forecast(mean, mean + norm.ppf(LEVELS)[:, None] * deviation, norm.logpdf(truth, mean, deviation), 0.0)
    found = of_numbers(told, truth)
    assert found["crps"] == pytest.approx(np.mean(crps_normal(truth, mean, deviation)), rel=5e-3)
    assert found["covered"] == pytest.approx(0.95, abs=0.01)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))
    assert found["log_likelihood"] == pytest.approx(norm.logpdf(truth, mean, deviation).mean())


def test_scores_of_classes():
    told = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
    found = of_classes(told, np.array([0.0, 1.0, 2.0, 0.0]))
    assert found["accuracy"] == 0.75
    assert found["log_likelihood"] == pytest.approx(np.mean(np.log([0.9, 0.8, 0.4, 1e-6])))
    assert found["auroc"] == pytest.approx(np.mean([0.5, 1.0, 2 / 3]))
    assert calibration(told, np.array([0, 1, 2, 0])) == pytest.approx((0.1 + 0.2 + 0.6 + 1.0) / 4)
    two = np.array([[0.8, 0.2]] * 10)
    assert calibration(two, np.array([0] * 8 + [1] * 2)) == pytest.approx(0)  # right as often as it says


def test_bands_of_points_are_of_rows_that_were_left_out():
    """One that knows its own rows by heart misses none of them, and still is not sure."""
    from sklearn.neighbors import KNeighborsRegressor

    random = np.random.default_rng(0)
    X, y = pandas.DataFrame({"x": np.arange(400.0)}), random.normal(size=400)
    told = points(KNeighborsRegressor(1), Case(X, y, X, y))
    assert np.abs(told.mean - y).max() == 0
    deviation = -told.log_prob[0] - 0.5 * np.log(2 * np.pi)
    assert np.exp(deviation) == pytest.approx(np.sqrt(2), rel=0.15)  # of the difference of two


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of a bound that it is at
def test_a_process_takes_few_rows_for_its_settings_and_all_for_its_answers(monkeypatch):
    monkeypatch.setitem(gps.MOST, "regression", 20)
    monkeypatch.setitem(gps.MOST, "classification", 12)
    x = np.linspace(-2, 2, 60)[:, None]
    model = gps.ProcessRegressor().fit(x, np.sin(3 * x[:, 0]))
    assert model.fitted_.X_train_.shape == (60, 1)
    mean, deviation = model.predict(x, return_std=True)
    assert np.abs(mean - np.sin(3 * x[:, 0])).max() < 0.05
    assert (deviation > 0).all()
    sorted_out = gps.ProcessClassifier().fit(x, (x[:, 0] > 0).astype(float))
    assert sorted_out.fitted_.base_estimator_.X_train_.shape == (12, 1)
    assert sorted_out.predict_proba(x)[[0, -1], [0, 1]].min() > 0.5


# What is found


def results(group: str, key: str, values: dict[str, dict[str, list[float]]]) -> Results:
    """From set → method → a value each split."""
    return Results(
        group,
        [
            {"group": group, "data": data, "method": method, "split": split, key: value}
            for data, of in values.items()
            for method, each in of.items()
            for split, value in enumerate(each)
        ],
    )


def test_ranks_are_of_means_and_equals_share():
    each = results("regression", "rmse", {
        "a": {OURS: [1.0, 2.0], "MLP": [3.0, 4.0], "k-NN": [1.0, 2.0]},
        "b": {OURS: [5.0, 5.0], "MLP": [1.0, 1.0], "k-NN": [6.0, 6.0]},
    })  # fmt: skip
    ranks = each.ranks(RMSE)
    assert {name: mean.value for name, mean in ranks.items()} == {OURS: 1.75, "MLP": 2.0, "k-NN": 2.25}
    assert ranks["MLP"].error == pytest.approx(1.0)
    assert each.mean("a", OURS, RMSE) == (1.5, pytest.approx(0.5))
    more = results("classification", "accuracy", {"a": {OURS: [0.9], "MLP": [0.8]}})
    assert more.ranks(ACCURACY)[OURS].value == 1


def test_findings_say_where_ours_is_first_and_where_not():
    from fillin.studies.tables.findings import _by_set

    each = results("regression", "rmse", {
        "won": {OURS: [1.0, 1.1], "MLP": [2.0, 2.1]},
        "near": {OURS: [1.0, 1.3], "MLP": [1.1, 1.1]},
        "lost": {OURS: [5.0, 5.2], "MLP": [1.0, 1.1]},
    })  # fmt: skip
    words = _by_set(each, RMSE)
    assert words == "First on won; within a standard error of the first on near; behind on lost (5.100, MLP 1.050)."
    assert findings({}) == []


def test_ours_is_measured_again_where_its_code_changes_and_not_its_words(tmp_path, monkeypatch):
    def of(text: str) -> str:
        for place in ("tables", "data/tables"):
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tables" / "net.py").write_text(text)
        methods.digest.cache_clear()
        return methods.digest()

    monkeypatch.setattr(fillin, "__file__", str(tmp_path / "__init__.py"))
    first = of('"""Words."""\ndef f():\n    """More."""\n    return 1\n')
    assert of('"""Other words."""\ndef f():  # why\n    return 1\n') == first
    assert of('"""Words."""\ndef f():\n    """More."""\n    return 2\n') != first
    methods.digest.cache_clear()


# The study


def smoke(folder: Path | None):
    """Two tiny sets, one split."""
    study = get("tables", folder, 1)
    some = {name: own for name, own in study.variants(True).items() if own["data"] in ("line", "iris")}
    return replace(study, variants=lambda quick: some)


def test_the_study_ends_in_a_report_and_goes_on_where_it_was(tmp_path, folder, swift, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(METHODS, "LightGBM", replace(METHODS["LightGBM"], needs="no_such_module"))
    study = smoke(folder)
    assert not any("LightGBM" in name for name in study.variants(True))
    assert {f"{data}, {OURS}, split 0" for data in ("line", "iris")} <= set(study.variants(True))
    work = open_work(study, tmp_path / "out", quick=True)

    def stop(cell, share, loss, validation):
        if cell.variant.startswith("line, MLP"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_on(work, stop)
    done = {cell.folder / "result.json" for cell in work.cells() if cell.done}
    before = {path: path.stat().st_mtime_ns for path in done}
    assert 0 < len(done) < len(work.cells())
    work_on(open_work(study, tmp_path / "out", quick=True))
    assert {path: path.stat().st_mtime_ns for path in done} == before
    page = write(work, ["fillin", "study", "tables"]).read_text()
    for part in (
        "Regression, RMSE: fillin has an average rank of", "Classification, AUROC", "## Regression: CRPS",
        "## Classification: calibration error", "protein is left out: it is large",
        "LightGBM is left out: no_such_module",
        "The 95 % intervals of fillin hold", "five-fold", "(ranks.png)",
    ):  # fmt: skip
        assert part in page, part
    assert str(tmp_path) not in page
    assert (tmp_path / "out" / "ranks.png").stat().st_size > 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(found["cells"]) == len(work.cells())
    numbers = {one["method"]: one for one in found["cells"] if one["data"] == "line"}
    assert {"rmse", "log_likelihood", "crps", "covered", "seconds", "settings"} <= set(numbers[OURS])
    assert numbers["Gaussian process"]["rmse"] < numbers["k-NN"]["rmse"]  # a line
    assert "weights" in numbers[OURS]["settings"]
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out"}  # nobody writes where it was not asked to


def test_few_labels_are_reported_with_and_without_the_other_rows(tmp_path, swift):
    study = get("tables", None, 1)
    name = f"breast_cancer, {FEW} labels"
    some = {
        key: own
        for key, own in study.variants(True).items()
        if own["data"] == name and own["method"] in (OURS, ALONE, "k-NN")
    }
    work = open_work(replace(study, variants=lambda quick: some), tmp_path, quick=True)
    work_on(work)
    page = write(work, ["fillin", "study", "tables"]).read_text()
    assert "What rows without a label are worth" in page
    assert f"**{ALONE}**, few labels" in page
    assert "Sets of UCI are left out: no --data DIR." in page


def test_every_cell_has_a_folder_of_its_own(tmp_path, folder):
    cells = open_work(get("tables", folder), tmp_path / "out", quick=False).cells()
    assert len({cell.folder for cell in cells}) == len(cells)
    own = [cell for cell in cells if cell.recipe["data"] == "line" and cell.recipe["method"] == OURS]
    assert [cell.recipe["split"] for cell in own] == [0, 1]
    assert sum(cell.recipe["data"] == "wine" for cell in cells) == 5 * sum(not m.missing for m in METHODS.values())
