"""The study `uses-rows`: context rows are corrupted, changed and deleted, and their effect is reported."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fillin_studies import get, open_study, run_study
from fillin_studies.report import write_report
from fillin_studies.tables.data import TableDataset, TableSplit
from fillin_studies.tables.methods import OURS
from fillin_studies.uses_rows import experiments, smallest_share, summarise
from fillin_studies.uses_rows.experiments import (
    ORDERS,
    SHARES_LEFT,
    ContextSwapper,
    DeletableContext,
    delete_in_order,
    delete_one_by_one,
    fit_model,
    score_with_context,
)
from fillin_studies.uses_rows.results import CorruptionEffect

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def split() -> TableSplit:
    """A target that is close to that of the nearest row."""
    random = np.random.default_rng(0)
    X = pandas.DataFrame(random.normal(size=(70, 2)), columns=["a", "b"])
    y = 3 * X.a.to_numpy() + np.sin(4 * X.b.to_numpy())
    return TableSplit(X[:60], y[:60], X[60:], y[60:])


@pytest.fixture(scope="module")
def model(split):
    return fit_model(OURS, split, 0, members=2, steps=8)


# Changed contexts


def test_columns_are_shuffled_independently(split):
    random = np.random.default_rng(0)
    other = experiments.shuffle_context(split, random)
    for original, shuffled in ((split.X.a, other.X.a), (split.X.b, other.X.b), (split.y, other.y)):
        assert not np.array_equal(original, shuffled)
        assert np.array_equal(np.sort(original), np.sort(shuffled))
    assert abs(np.corrcoef(other.X.a, other.y)[0, 1]) < 0.5 < np.corrcoef(split.X.a, split.y)[0, 1]
    assert other.X_test is split.X_test
    targets_only = experiments.shuffle_context(split, random, features=False)
    assert targets_only.X is split.X
    assert not np.array_equal(targets_only.y, split.y)


def test_a_swapped_context_changes_predictions_and_the_same_one_does_not(split, model):
    assert np.allclose(ContextSwapper(model).fit(split.X, split.y).predict(split.X_test), model.predict(split.X_test))
    before = model.predict(split.X_test)
    assert np.abs(ContextSwapper(model).fit(split.X, -split.y).predict(split.X_test) - before).max() > 0.1
    assert np.array_equal(model.predict(split.X_test), before)  # the model keeps its context
    scores = score_with_context(model, split)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((before - split.y_test) ** 2)))


def test_every_test_row_has_a_context_of_its_own(split, model):
    context = DeletableContext(model, split)
    keep = np.ones((10, 60), bool)
    scale = model.learner_.scales[0]
    assert np.allclose(scale.inverse(context.predict(keep)[0][:, 0]), model.predict(split.X_test), atol=1e-4)
    assert context.score(keep) == pytest.approx(score_with_context(model, split)["rmse"], rel=1e-4)
    keep[3, 30:] = False
    fewer = ContextSwapper(model).fit(split.X[:30], split.y[:30]).predict(split.X_test)
    predicted = scale.inverse(context.predict(keep)[0][:, 0])
    assert predicted[3] == pytest.approx(fewer[3], abs=1e-4)
    assert np.abs(predicted - fewer)[[0, 1, 2, 4]].max() > 1e-3
    assert np.allclose(np.delete(predicted, 3), np.delete(model.predict(split.X_test), 3), atol=1e-4)


class AdditiveContext(DeletableContext):
    """A context whose prediction is the sum of the effects of the rows that are kept."""

    def __init__(self, effects):
        self.effects = np.asarray(effects, float)

    def predict(self, keep):
        return (keep * self.effects).sum(1)[:, None], np.ones(len(keep))

    def score(self, keep):
        return float((keep * self.effects).sum())


def test_only_rows_that_change_predictions_are_kept():
    effects = np.zeros((2, 50))
    effects[0, 7], effects[1, [3, 4]] = 1.0, 0.5
    effects[:, 20] = 0.06  # alone it is below the bound
    effects[:, 21] = 0.06  # but not both
    distances = np.full((2, 50), 2.0)
    distances[0, 7] = distances[1, 3] = distances[1, 4] = 0.1
    result = delete_one_by_one(AdditiveContext(effects), distances, 0)
    assert result["kept"] == (2 + 3) / 2
    assert result["kept_nearer"] == 1.0
    assert result["kept_far"][0] < 0.2 < 1 < result["deleted_far"][0]


def test_rows_are_deleted_in_the_named_order():
    attention = np.tile(np.arange(1000.0), (2, 1))
    result = delete_in_order(AdditiveContext(attention), attention, 0)
    most, random, least = (np.array(result[name]) for name in ORDERS)
    assert most[0] == random[0] == least[0] == 2 * attention[0].sum()
    assert (most[1:] > random[1:]).all()
    assert (random[1:] > least[1:]).all()
    assert least[-1] == 2 * sum(range(round(1000 * SHARES_LEFT[-1])))


# Attention


def test_attention_sums_to_one_and_is_that_of_the_prediction(split, model):
    attention = experiments.attention_weights(model, split)
    assert attention.shape == (10, 60)
    assert np.allclose(attention.sum(1), 1)
    context = DeletableContext(model, split)
    net, (locations, _) = model.learner_.net, context.memory
    with torch.no_grad():
        distances = torch.cdist(net._locations(net.encode_rows(context.test_rows)), locations)
    expected = torch.exp(-0.5 * distances**2)
    assert np.allclose(attention, (expected / expected.sum(-1, keepdim=True)).mean((0, 1)), atol=1e-6)
    assert attention.std(1).min() > 1e-5


def test_distances_are_in_standard_deviations_of_columns():
    X = pandas.DataFrame({"x": [0.0, 10.0, 20.0, 30.0], "w": ["a", "a", "b", "b"]})
    distances = experiments.row_distances(TableSplit(X, np.zeros(4), X[:1], np.zeros(1)))
    std = X.x.std(ddof=0)
    assert distances[0] == pytest.approx([0, 10 / std, np.hypot(20 / std, 2**0.5), np.hypot(30 / std, 2**0.5)])


def test_attention_to_near_rows_has_a_negative_rank_correlation():
    random = np.random.default_rng(0)
    distances = random.random((5, 200))
    attention = np.exp(-distances) / np.exp(-distances).sum(1, keepdims=True)
    near = experiments.compare_attention(attention, distances, 0)
    assert near["rank_correlation"] == pytest.approx(-1)
    assert len(near["nearest"]) == experiments.DISTANCE_BINS
    assert near["nearest"] == sorted(near["nearest"], reverse=True)
    assert np.mean(near["nearest"]) == pytest.approx(1)
    unrelated = experiments.compare_attention(random.random((5, 200)), distances, 0)
    assert abs(unrelated["rank_correlation"]) < 0.2


# Lookup


def test_copies_are_in_the_context_of_their_test_rows_only():
    task = experiments.TASKS["numbers, equal copies"]
    training, evaluation = task.draw(3)
    assert len(training.X) == 2 * experiments.PAIRS
    assert np.array_equal(training.X[: experiments.PAIRS], training.X[experiments.PAIRS :])
    assert np.array_equal(evaluation.X[-experiments.TEST_PAIRS :], evaluation.X_test)
    assert np.array_equal(evaluation.y[-experiments.TEST_PAIRS :], evaluation.y_test)
    assert not set(training.X.x0) & set(training.X_test.x0)
    similar = experiments.TASKS["classes, similar copies"].draw(3)[1]
    apart = (similar.X[-experiments.TEST_PAIRS :].to_numpy() - similar.X_test.to_numpy()).std()
    assert apart == pytest.approx(0.1 * 2**0.5, rel=0.1)


@pytest.mark.slow
def test_a_network_that_attends_to_rows_predicts_the_copy_and_nothing_without_it(monkeypatch):
    monkeypatch.setattr(experiments, "PAIRS", 150)
    scores = experiments.measure_lookup("numbers, equal copies", OURS, 0, {"members": 1, "steps": 100})
    assert scores["seen"] > 0.9
    assert scores["follows"] > 0.95
    assert max(scores["unseen"], scores["targets"], scores["corrupted"]) < 0.2
    control = experiments.measure_lookup("numbers, equal copies", "gradient boosting", 0, {})
    assert control["unseen"] < 0.2 < control["refitted"] < 0.9


# The report


def changes(right: list[float], corrupted: list[float], group: str = "regression") -> CorruptionEffect:
    key = "rmse" if group == "regression" else "accuracy"
    return CorruptionEffect(
        [
            {"data": "a", "rows": 9, "columns": 2, "group": group, "right": {key: a}, "corrupted": {key: b}}
            for a, b in zip(right, corrupted, strict=True)
        ]
    )


def test_a_change_matters_where_it_is_worse_beyond_its_standard_error():
    assert changes([1.0, 2.0], [1.5, 3.0]).format_change() == "+50 ± 0 %"
    assert changes([1.0, 2.0], [1.5, 3.0]).matters
    assert not changes([1.0, 1.0], [1.0, 1.5]).matters  # +25 ± 25 %
    assert not changes([1.0, 1.0], [0.5, 0.5]).matters  # better
    assert not changes([1.0], [1.005]).matters
    assert changes([0.9, 0.9], [0.8, 0.8], "classification").format_change() == "−0.100 ± 0.000"
    assert changes([0.9, 0.9], [0.8, 0.8], "classification").matters
    assert not changes([0.9, 0.9], [0.9, 0.91], "classification").matters


def test_the_smallest_share_is_the_last_that_is_no_worse():
    regression = {"group": "regression", "deleted": {"at random": [1.0, 1.05, 1.2, 1.0, 1, 1, 1, 1]}}
    assert smallest_share(regression, "at random") == SHARES_LEFT[1]
    classification = {"group": "classification", "deleted": {"at random": [0.9] * 7 + [0.5]}}
    assert smallest_share(classification, "at random") == SHARES_LEFT[-2]
    assert summarise([]) == []


@pytest.mark.slow
def test_the_report_states_where_rows_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "PAIRS", 30)
    study = get("uses-rows", None, 1)
    prefixes = ("lookup, numbers, equal copies", "lookup, classes, similar copies, MLP", "iris", "diabetes")
    some = {name: settings for name, settings in study.variants(True).items() if name.startswith(prefixes)}
    assert {settings["model"] for settings in some.values()} == {OURS, "MLP", "gradient boosting"}
    small = replace(study.quick, settings={"members": 1, "steps": 4})
    study = study.replaced(variants=lambda quick: some, quick=small)
    monkeypatch.setattr(TableDataset, "split", smaller(TableDataset.split))
    run = open_study(study, tmp_path, quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "uses-rows"]).read_text()
    for part in (
        "predictions follow them", "to look up the copy", "gradient boosting, which does not attend to rows",
        "diabetes",
        "the smallest share of the rows", "Attention against distance", "## Lookup", "(lookup.png)", "(deletion.png)",
        "(corruption.png)", "(kept.png)", "(attention.png)", "UCI data sets are left out: no --data DIR.",
    ):  # fmt: skip
        assert part in page, part
    assert "makes" in page
    assert {path.stem for path in tmp_path.glob("*.png")} == {"lookup", "corruption", "deletion", "kept", "attention"}
    cells = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert {"right", "corrupted", "targets", "attention", "deleted", "kept"} <= set(cells[-1])


def smaller(make_split):
    """Fewer training rows."""

    def few(self, number):
        whole = make_split(self, number)
        rows = np.random.default_rng(0).permutation(len(whole.X))[:60]
        return replace(whole, X=whole.X.iloc[rows], y=whole.y[rows])

    return few


def test_npt_runs_once_and_on_small_tables_only():
    study = get("uses-rows")
    full, quick = study.variants(False).values(), study.variants(True).values()
    npt = [settings for settings in full if settings["model"] == "npt" and settings["part"] == "sets"]
    assert {settings["data"] for settings in npt} == {"diabetes", "wine", "iris"}
    assert {settings["split"] for settings in npt} == {0}
    ours = [settings["split"] for settings in full if settings["model"] == OURS and "split" in settings]
    assert sorted(set(ours)) == [0, 1, 2]
    assert not any(settings["model"] == "npt" for settings in quick)
