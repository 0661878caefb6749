"""A non-parametric transformer trained on one table: masking, stratified batches, and accuracy."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fillin import TableClassifier, TableImputer, TableRegressor
from fillin.errors import InputError
from fillin.learners.base import TableLayout, TrainingPlan
from fillin.learners.npt import NPTLearner, NPTTable
from fillin.predictive import GaussianMixture

QUICK = {"model": "npt", "steps": 3}
KINDS = [TableRegressor, TableClassifier, TableImputer]


def numbers(n=40, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    y = X[:, 0] + np.sin(2 * X[:, 1])
    X[1, 2] = np.nan
    return X, y


def mixed(n=30):
    X, y = numbers(n)
    frame = pd.DataFrame({"a": X[:, 0], "fruit": np.where(X[:, 1] > 0, "apple", "pear"), "ripe": X[:, 0] > 0})
    frame.loc[3, "a"] = np.nan
    frame.loc[5, "fruit"] = None
    return frame, y


def predict(model, X):
    return model.predict_proba(X) if isinstance(model, TableClassifier) else model.predict(X)


def table(n=400, targets=1, unlabelled=0.25):
    """Classes 0 (70 %), 1 (20 %) and 2 (10 %) of a target after two columns of numbers."""
    codes = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 1, 2]).repeat(n // 10)
    values = torch.cat([torch.randn(n, 2), codes[:, None].float()], 1)
    observed = torch.ones(n, 3, dtype=torch.bool)
    observed[torch.randperm(n)[: int(unlabelled * n)], 2] = False
    return NPTTable(values, observed, torch.tensor([0, 0, 3]), targets)


def test_batches_are_stratified():
    torch.manual_seed(0)
    whole = table()
    proportions = torch.bincount(whole.strata, minlength=4) / len(whole)
    assert proportions[0] == 0.25
    taken = torch.zeros(len(whole))
    for _ in range(50):
        rows = whole.sample(torch.arange(len(whole)), 64)
        assert len(set(rows.tolist())) == 64
        share = torch.bincount(whole.strata[rows], minlength=4) / 64
        assert (share - proportions).abs().max() <= 1 / 64 + 1e-6
        taken[rows] += 1
    assert (taken > 0).all()  # every row is drawn at some time
    assert set(whole.sample(torch.arange(20), 64).tolist()) == set(range(20))


def test_the_masks_of_a_training_step():
    torch.manual_seed(0)
    whole = table()
    cells = whole.training_task(torch.arange(len(whole)), label_share=0.15, feature_share=0.15)
    context = cells.context
    assert len(whole) - context == round(0.15 * 300)  # of the labelled rows
    assert not (cells.observed & cells.queried).any()
    assert not cells.observed[0, context:, 2].any()  # query rows predict their label
    assert cells.queried[0, context:, 2].all()
    assert not cells.queried[0, :context, 2].any()
    assert (~cells.observed[0, :context, 2]).sum() == 100  # rows without a label are treated as masked
    assert 0.1 < cells.queried[0, :, :2].float().mean() < 0.2
    assert (cells.observed | cells.queried)[0, :, :2].all()


def test_validation_rows_are_labelled_and_scored_with_all_features():
    torch.manual_seed(0)
    whole = table()
    rows, out = whole.split(0.15)
    assert len(out) == 45
    assert whole.labelled[out].all()
    assert sorted([*rows.tolist(), *out.tolist()]) == list(range(400))
    cells = whole.query_task(rows, out)
    assert cells.context == len(rows)
    assert cells.observed[0, :, :2].all()
    assert cells.queried.sum() == 45


def test_the_weight_of_feature_reconstruction_follows_a_cosine(monkeypatch):
    weights = []

    def record_weight(net, cells, features=0.3):
        weights.append(features)
        return sum(p.sum() for p in net.parameters()).reshape(1) * 0

    monkeypatch.setattr("fillin.learners.npt.masked_reconstruction", record_weight)
    X, y = numbers()
    TableRegressor(model="npt", steps=4, features=0.8).fit(X, y)
    steps = [weight for weight in weights if weight != 0.3]  # validation scores the targets only
    np.testing.assert_allclose(steps, 0.8 * (0.5 + 0.5 * np.cos(np.pi * np.arange(4) / 4)), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_predicts_the_same(kind, tmp_path):
    frame, y = mixed()
    model = kind(**QUICK).fit(frame, (y > 0) if kind is TableClassifier else y)
    assert isinstance(model.learner_, NPTLearner)
    again = kind.load(model.save(tmp_path / "model.safetensors"))
    ask = (lambda m: m.fill(frame)[0]) if kind is TableImputer else (lambda m: predict(m, frame))
    np.testing.assert_array_equal(ask(again), ask(model))
    assert np.isfinite(ask(again)).all()
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize("kind", [TableRegressor, TableClassifier])
def test_query_rows_do_not_affect_one_another(kind):
    X, y = numbers()
    model = kind(**QUICK).fit(X, y if kind is TableRegressor else y > 0)
    alone = np.concatenate([predict(model, X[i : i + 1]) for i in range(4)])
    np.testing.assert_allclose(alone, predict(model, X[:4]), atol=1e-5)
    model.set_params(transductive=True)
    assert np.abs(alone - predict(model, X[:4])).max() > 1e-5


def test_a_seed_determines_the_fit_and_the_global_random_state_is_kept():
    X, y = numbers()
    state = torch.get_rng_state()
    first, second = (TableRegressor(**QUICK, random_state=5).fit(X, y).predict(X) for _ in range(2))
    assert (first == second).all()
    assert torch.equal(state, torch.get_rng_state())
    assert (TableRegressor(**QUICK, random_state=6).fit(X, y).predict(X) != first).any()


def test_pipelines_cross_validation_several_outputs_and_unlabelled_rows():
    X, y = numbers()
    assert np.isfinite(cross_val_score(make_pipeline(StandardScaler(), TableRegressor(**QUICK)), X, y, cv=2)).all()
    assert clone(TableClassifier(model="npt")).model == "npt"
    mean, std = TableRegressor(**QUICK, scale="quantile").fit(X, np.stack([y, -y], 1)).predict(X[:3], return_std=True)
    assert mean.shape == std.shape == (3, 2)
    assert (std > 0).all()
    y[10:] = np.nan
    for features in (0.0, 1.0):
        assert np.isfinite(TableRegressor(**QUICK, features=features).fit(X, y).predict(X)).all()


@pytest.mark.parametrize("n", [1, 4])
def test_few_rows(n):
    X, y = numbers(6)
    mean, std = TableRegressor(**QUICK).fit(X[:n], y[:n]).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize("net", [{"between": "rows"}, {"pseudo": 4}])
def test_attention_between_rows_only_and_through_pseudo_tokens(net):
    X, y = numbers(30)
    question = TableLayout((0, 0, 0), (0,), (-1,))
    fitted = NPTLearner.fit(question, X, y[:, None], "standard", 0, TrainingPlan(steps=3), net, lambda done: None)
    prediction = fitted.predict(X[:3])[0]
    assert isinstance(prediction, GaussianMixture)
    assert np.isfinite(prediction.mean).all()
    mirrored = fitted.with_rows(X, -y[:, None]).predict(X[:3])[0]  # p(y* | x*, D) depends on D
    assert isinstance(mirrored, GaussianMixture)
    assert (mirrored.mean != prediction.mean).all()


def test_too_many_classes_are_an_error():
    X, _ = numbers(44)
    words = np.array([f"word{i}" for i in range(11)])[np.arange(44) % 11]
    with pytest.raises(InputError, match=r"y has 11 classes.*model='rows'"):
        TableClassifier(**QUICK).fit(X, words)
    frame = pd.DataFrame({"a": X[:, 0], "word": words})
    with pytest.raises(InputError, match=r"column 1.*11 classes"):
        TableImputer(**QUICK).fit(frame)
    frame.loc[0, "word"] = None
    assert TableRegressor(**QUICK).fit(frame, X[:, 1]).predict(frame).shape == (
        44,
    )  # as a feature, the rarest share one code
    with pytest.raises(ValueError, match="did you mean 'npt'"):
        TableRegressor(model="ntp").fit(X, X[:, 0])


def test_it_beats_chance_clearly():
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    y = np.where(X[:, 0] > 0, "right", "left")
    model = TableClassifier(model="npt", steps=60).fit(X[:80], y[:80])
    assert model.score(X[80:], y[80:]) > 0.85
    assert model.log_prob(X[80:], y[80:]).mean() > 0.5 * np.log(0.5)
