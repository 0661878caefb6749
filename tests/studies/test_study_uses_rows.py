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
    """A number that is the nearest row's, roughly."""
    random = np.random.default_rng(0)
    X = pandas.DataFrame(random.normal(size=(70, 2)), columns=["a", "b"])
    y = 3 * X.a.to_numpy() + np.sin(4 * X.b.to_numpy())
    return TableSplit(X[:60], y[:60], X[60:], y[60:])


@pytest.fixture(scope="module")
def model(split):
    return fit_model(OURS, split, 0, members=2, steps=8)


# What is done to the other rows


def test_shuffled_columns_hold_the_same_in_orders_of_their_own(split):
    random = np.random.default_rng(0)
    other = experiments.shuffle_context(split, random)
    for one, two in ((split.X.a, other.X.a), (split.X.b, other.X.b), (split.y, other.y)):
        assert not np.array_equal(one, two)
        assert np.array_equal(np.sort(one), np.sort(two))
    assert abs(np.corrcoef(other.X.a, other.y)[0, 1]) < 0.5 < np.corrcoef(split.X.a, split.y)[0, 1]
    assert other.X_test is split.X_test
    only = experiments.shuffle_context(split, random, features=False)
    assert only.X is split.X
    assert not np.array_equal(only.y, split.y)


def test_looking_at_its_own_rows_is_what_it_was_and_at_others_is_not(split, model):
    assert np.allclose(ContextSwapper(model).fit(split.X, split.y).predict(split.X_test), model.predict(split.X_test))
    before = model.predict(split.X_test)
    assert np.abs(ContextSwapper(model).fit(split.X, -split.y).predict(split.X_test) - before).max() > 0.1
    assert np.array_equal(model.predict(split.X_test), before)  # the model itself sees what it saw
    found = score_with_context(model, split)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((before - split.y_test) ** 2)))


def test_each_asked_row_sees_rows_of_its_own(split, model):
    memory = DeletableContext(model, split)
    keep = np.ones((10, 60), bool)
    scale = model.learner_.scales[0]
    assert np.allclose(scale.inverse(memory.predict(keep)[0][:, 0]), model.predict(split.X_test), atol=1e-4)
    assert memory.score(keep) == pytest.approx(score_with_context(model, split)["rmse"], rel=1e-4)
    keep[3, 30:] = False
    fewer = ContextSwapper(model).fit(split.X[:30], split.y[:30]).predict(split.X_test)
    said = scale.inverse(memory.predict(keep)[0][:, 0])
    assert said[3] == pytest.approx(fewer[3], abs=1e-4)
    assert np.abs(said - fewer)[[0, 1, 2, 4]].max() > 1e-3
    assert np.allclose(np.delete(said, 3), np.delete(model.predict(split.X_test), 3), atol=1e-4)


class OneRow(DeletableContext):
    """A memory of which what is said is a sum of some of the rows."""

    def __init__(self, worth):
        self.worth = np.asarray(worth, float)

    def predict(self, keep):
        return (keep * self.worth).sum(1)[:, None], np.ones(len(keep))

    def score(self, keep):
        return float((keep * self.worth).sum())


def test_rows_that_move_nothing_are_deleted_and_those_that_do_are_kept():
    worth = np.zeros((2, 50))
    worth[0, 7], worth[1, [3, 4]] = 1.0, 0.5
    worth[:, 20] = 0.06  # alone it is below the bound
    worth[:, 21] = 0.06  # but not both
    far = np.full((2, 50), 2.0)
    far[0, 7] = far[1, 3] = far[1, 4] = 0.1
    found = delete_one_by_one(OneRow(worth), far, 0)
    assert found["kept"] == (2 + 3) / 2
    assert found["kept_nearer"] == 1.0
    assert found["kept_far"][0] < 0.2 < 1 < found["deleted_far"][0]


def test_orders_delete_what_they_say():
    looks = np.tile(np.arange(1000.0), (2, 1))
    found = delete_in_order(OneRow(looks), looks, 0)
    most, random, least = (np.array(found[name]) for name in ORDERS)
    assert most[0] == random[0] == least[0] == 2 * looks[0].sum()
    assert (most[1:] > random[1:]).all()
    assert (random[1:] > least[1:]).all()
    assert least[-1] == 2 * sum(range(round(1000 * SHARES_LEFT[-1])))


# What is looked at


def test_attention_sums_to_one_and_is_that_of_the_answer(split, model):
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


def test_distances_are_in_deviations_of_columns():
    X = pandas.DataFrame({"x": [0.0, 10.0, 20.0, 30.0], "w": ["a", "a", "b", "b"]})
    found = experiments.row_distances(TableSplit(X, np.zeros(4), X[:1], np.zeros(1)))
    deviation = X.x.std(ddof=0)
    assert found[0] == pytest.approx(
        [0, 10 / deviation, np.hypot(20 / deviation, 2**0.5), np.hypot(30 / deviation, 2**0.5)]
    )


def test_who_looks_at_near_rows_has_a_negative_rank_correlation():
    random = np.random.default_rng(0)
    far = random.random((5, 200))
    near = experiments.compare_attention(np.exp(-far) / np.exp(-far).sum(1, keepdims=True), far, 0)
    assert near["rank_correlation"] == pytest.approx(-1)
    assert len(near["nearest"]) == experiments.DISTANCE_BINS
    assert near["nearest"] == sorted(near["nearest"], reverse=True)
    assert np.mean(near["nearest"]) == pytest.approx(1)
    shuffled_looks = experiments.compare_attention(random.random((5, 200)), far, 0)
    assert abs(shuffled_looks["rank_correlation"]) < 0.2


# Lookup


def test_copies_hold_the_same_and_are_shown_only_where_they_are():
    task = experiments.TASKS["numbers, equal copies"]
    learnt, shown = task.draw(3)
    assert len(learnt.X) == 2 * experiments.PAIRS
    assert np.array_equal(learnt.X[: experiments.PAIRS], learnt.X[experiments.PAIRS :])
    assert np.array_equal(shown.X[-experiments.TEST_PAIRS :], shown.X_test)
    assert np.array_equal(shown.y[-experiments.TEST_PAIRS :], shown.y_test)
    assert not set(learnt.X.x0) & set(learnt.X_test.x0)
    similar = experiments.TASKS["classes, similar copies"].draw(3)[1]
    apart = (similar.X[-experiments.TEST_PAIRS :].to_numpy() - similar.X_test.to_numpy()).std()
    assert apart == pytest.approx(0.1 * 2**0.5, rel=0.1)


@pytest.mark.slow
def test_a_network_that_looks_knows_the_copy_and_without_it_nothing(monkeypatch):
    monkeypatch.setattr(experiments, "PAIRS", 150)
    found = experiments.measure_lookup("numbers, equal copies", OURS, 0, {"members": 1, "steps": 100})
    assert found["seen"] > 0.9
    assert found["follows"] > 0.95
    assert max(found["unseen"], found["targets"], found["corrupted"]) < 0.2
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


def test_a_score_breaks_at_the_first_share_that_is_worse():
    one = {"group": "regression", "deleted": {"at random": [1.0, 1.05, 1.2, 1.0, 1, 1, 1, 1]}}
    assert smallest_share(one, "at random") == SHARES_LEFT[1]
    other = {"group": "classification", "deleted": {"at random": [0.9] * 7 + [0.5]}}
    assert smallest_share(other, "at random") == SHARES_LEFT[-2]
    assert summarise([]) == []


@pytest.mark.slow
def test_the_study_ends_in_a_report_that_says_where_rows_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "PAIRS", 30)
    study = get("uses-rows", None, 1)
    wanted = ("lookup, numbers, equal copies", "lookup, classes, similar copies, MLP", "iris", "diabetes")
    some = {name: own for name, own in study.variants(True).items() if name.startswith(wanted)}
    assert {own["model"] for own in some.values()} == {OURS, "MLP", "gradient boosting"}
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
    found = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert {"right", "corrupted", "targets", "attention", "deleted", "kept"} <= set(found[-1])


def smaller(make_split):
    """Fewer training rows."""

    def few(self, number):
        whole = make_split(self, number)
        rows = np.random.default_rng(0).permutation(len(whole.X))[:60]
        return replace(whole, X=whole.X.iloc[rows], y=whole.y[rows])

    return few


def test_npt_is_asked_once_and_of_small_tables():
    study = get("uses-rows")
    npt = [own for own in study.variants(False).values() if own["model"] == "npt" and own["part"] == "sets"]
    assert {own["data"] for own in npt} == {"diabetes", "wine", "iris"}
    assert {own["split"] for own in npt} == {0}
    ours = [own["split"] for own in study.variants(False).values() if own["model"] == OURS and "split" in own]
    assert sorted(set(ours)) == [0, 1, 2]
    assert not any(own["model"] == "npt" for own in study.variants(True).values())
