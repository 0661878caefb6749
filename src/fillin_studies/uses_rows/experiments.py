"""Experiments on fitted estimators that attend to other rows: corruption, lookup, attention, deletion."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

import fillin
from fillin.attention import record_weights
from fillin.runtime import require
from fillin_studies.base import ShareDone
from fillin_studies.tables.data import TableDataset, TableSplit
from fillin_studies.tables.methods import METHODS, OURS, TableMethod, predict_distribution, prepare_table

MAX_CHANGE = 0.1  # of a prediction: standard deviations of a number, or probability of a class
DELETION_ROWS = 24  # test rows in the deletion one by one
SHARES_LEFT = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005)
ORDERS = ("least looked at first", "at random", "most looked at first")


class DeletableContext:
    """Predictions of fitted networks (not of the Gaussian process beside them), with a context for each test row."""

    def __init__(self, model: Any, split: TableSplit):
        self.fitted, self.split = model.learner_, split
        values = model.schema_.encode(split.X_test)
        self.test_rows = self._rows(self.fitted.with_rows(values, np.full((len(values), 1), np.nan)).table)
        with torch.no_grad():
            self.memory = self.fitted.net.remember(self._rows(self.fitted.table))
        self.classes = getattr(model, "classes_", None)

    def _rows(self, table: Any) -> Any:
        return table.rows(torch.arange(len(table)).expand(self.fitted.net_options["members"], -1))

    @torch.no_grad()
    def predict(self, keep: Bool[ndarray, "m n"]) -> tuple[Float[ndarray, "m v"], Float[ndarray, "m"]]:
        """Return class probabilities, or the mean of a number in standard units; and the unit of a change: 1, or the
        standard deviation."""
        net = self.fitted.net.eval()
        deleted = torch.as_tensor(~keep).expand(len(net.trust), -1, -1)
        [prediction] = net.predict(self.test_rows, self.memory, deleted)
        if self.classes is not None:
            probabilities = self.fitted.calibrations[0].probabilities(prediction.probs.double().numpy())
            return probabilities, np.ones(len(probabilities))
        mean, variance = prediction.mean.double().numpy(), prediction.variance.double().numpy()
        return mean.mean(0)[:, None], np.sqrt((variance + mean**2).mean(0) - mean.mean(0) ** 2)

    def score(self, keep: Bool[ndarray, "m n"]) -> float:
        """Return the RMSE in units of the target, or the accuracy."""
        predicted, _ = self.predict(keep)
        if self.classes is not None:
            return float((self.classes[predicted.argmax(1)] == self.split.y_test).mean())
        errors = self.fitted.scales[0].inverse(predicted[:, 0]) - self.split.y_test
        return float(np.sqrt(np.mean(errors**2)))


def delete_one_by_one(context: DeletableContext, distances: Float[ndarray, "m n"], seed: int) -> dict[str, Any]:
    """Delete rows in random order, for good where a prediction stays within MAX_CHANGE of that with all rows. Return
    quantiles of the distances (1: the mean) of the rows that are kept and of those that are deleted."""
    keep = np.ones(distances.shape, bool)
    first, unit = context.predict(keep)
    for row in np.random.default_rng(seed).permutation(distances.shape[1]):
        trial = keep.copy()
        trial[:, row] = False
        trial[trial.sum(1) == 0, row] = True  # at least one row is left
        change = np.abs(context.predict(trial)[0] - first).max(1) / unit
        keep[change < MAX_CHANGE, row] = trial[change < MAX_CHANGE, row]
    distances = distances / distances.mean(1, keepdims=True)
    kept, deleted = distances[keep], distances[~keep]
    nearer = [row[mask].mean() < row[~mask].mean() for row, mask in zip(distances, keep, strict=True) if not mask.all()]
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    return {
        "rows": distances.shape[1],
        "kept": float(keep.sum(1).mean()),
        "kept_far": np.quantile(kept, levels).round(4).tolist(),
        "deleted_far": np.quantile(deleted, levels).round(4).tolist() if len(deleted) else [],
        "kept_nearer": float(np.mean(nearer)) if nearer else None,
    }


def delete_in_order(context: DeletableContext, attention: Float[ndarray, "m n"], seed: int) -> dict[str, list[float]]:
    """Return the score with ever fewer rows left, deleted in three orders, for each test row its own."""
    n = attention.shape[1]
    noise = np.random.default_rng(seed).random(attention.shape)
    scores: dict[str, list[float]] = {}
    for name, priority in zip(ORDERS, (attention, noise, -attention), strict=True):  # the highest are left
        rank = priority.argsort(1)[:, ::-1].argsort(1)
        scores[name] = [context.score(rank < max(1, round(share * n))) for share in SHARES_LEFT]
    return scores


MODELS = {
    OURS: "TableRegressor, TableClassifier: attention between rows at learned locations, beside a Gaussian process",
    "npt": "TableRegressor(model='npt'), TableClassifier(model='npt'): attention between datapoints and between "
    "attributes in turn",
}
CONTROLS = ("MLP", "gradient boosting")  # which predict a row from its features alone
ABOUT = MODELS | {name: METHODS[name].about for name in CONTROLS}
SHUFFLES = 3  # over which scores are averaged
DISTANCE_BINS = 20  # of the context rows, by distance
PLOTTED_PAIRS = 300
PAIRS, TEST_PAIRS, COLUMNS, CLASSES = 250, 100, 8, 4  # of the lookup task


def fit_model(name: str, split: TableSplit, seed: int, members: int, steps: int) -> Any:
    """Fit an estimator to the training rows of a split."""
    estimator = fillin.TableClassifier if split.n_classes else fillin.TableRegressor
    options: dict[str, Any] = {"members": members, "steps": steps, "random_state": seed}
    return estimator(**options, model="npt" if name == "npt" else "rows").fit(split.X, split.y)


class ContextSwapper:
    """A fitted estimator whose `fit` replaces the rows that it attends to; its weights stay as they are."""

    def __init__(self, model: Any):
        self.model = self.current = model

    def fit(self, X: Any, y: Float[ndarray, "n"]) -> "ContextSwapper":
        codes = np.searchsorted(self.model.classes_, y).astype(float) if hasattr(self.model, "classes_") else y
        self.current = copy.copy(self.model)
        self.current.learner_ = self.model.learner_.with_rows(self.model.schema_.encode(X), codes[:, None])
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


def score_with_context(model: Any, split: TableSplit) -> dict[str, float]:
    """Score a fitted estimator that attends to the training rows of the split."""
    swapper = ContextSwapper(model)
    method = TableMethod(lambda seed: swapper, lambda seed: swapper, "", predict=predict_distribution)
    return {key: value for key, value in method.evaluate(split, 0).items() if key != "seconds"}


def shuffle_context(split: TableSplit, random: np.random.Generator, features: bool = True) -> TableSplit:
    """Shuffle every column of the training rows on its own (Kossen et al. 2021), or the target alone."""
    X = split.X
    if features:
        X = X.assign(**{name: X[name].to_numpy()[random.permutation(len(X))] for name in X})
    return replace(split, X=X, y=random.permutation(split.y))


def score_corrupted(model: Any, split: TableSplit, seed: int, features: bool = True) -> dict[str, float]:
    """Return mean scores with shuffled context rows."""
    random = np.random.default_rng(seed)
    scores = [score_with_context(model, shuffle_context(split, random, features)) for _ in range(SHUFFLES)]
    return {key: float(np.mean([score[key] for score in scores])) for key in scores[0]}


@dataclass(frozen=True)
class LookupTask:
    """Rows in pairs with a random target, which only the other copy reveals."""

    noise: float  # difference of the copies in standard deviations
    n_classes: int  # of the target (0: a number)

    def draw(self, seed: int) -> tuple[TableSplit, TableSplit]:
        """Return pairs to fit, whose test rows are copies of other pairs, without and with those copies in context."""
        pandas, random = require("pandas"), np.random.default_rng(seed)
        x = random.normal(size=(PAIRS + TEST_PAIRS, COLUMNS))
        y = random.integers(self.n_classes, size=len(x)).astype(float) if self.n_classes else random.normal(size=len(x))
        a, b = (pandas.DataFrame(x + self.noise * random.normal(size=x.shape)).add_prefix("x") for _ in range(2))
        X_test, y_test = b[PAIRS:], y[PAIRS:]
        pairs = pandas.concat([a[:PAIRS], b[:PAIRS]]), np.concatenate([y[:PAIRS]] * 2)
        shown = pandas.concat([pairs[0], a[PAIRS:]]), np.concatenate([pairs[1], y_test])
        test = X_test, y_test, self.n_classes
        return TableSplit(*pairs, *test), TableSplit(*shown, *test)


TASKS = {
    "numbers, equal copies": LookupTask(0.0, 0),
    "numbers, similar copies": LookupTask(0.1, 0),
    "classes, equal copies": LookupTask(0.0, CLASSES),
    "classes, similar copies": LookupTask(0.1, CLASSES),
}


def measure_lookup(title: str, name: str, seed: int, size: dict[str, Any]) -> dict[str, Any]:
    """Measure R² or accuracy on one copy of new pairs, with (`seen`) and without (`unseen`) the other in context."""
    task = TASKS[title]
    fitted, shown = task.draw(seed)
    chance = 1 / task.n_classes if task.n_classes else 0.0
    about = {"part": "lookup", "task": title, "model": name, "chance": chance}

    def score(scores: dict[str, float]) -> float:
        return scores["accuracy"] if task.n_classes else 1 - scores["rmse"] ** 2 / float(shown.y_test.var())

    with require("threadpoolctl").threadpool_limits(1):
        if name in CONTROLS:
            unseen, refitted = (score(METHODS[name].evaluate(split, seed)) for split in (fitted, shown))
            return {**about, "unseen": unseen, "refitted": refitted}
        model = fit_model(name, fitted, seed, **size)
        exchanged = np.random.default_rng(seed).permutation(shown.y_test)  # targets of the copies
        y = np.concatenate([shown.y[: -len(exchanged)], exchanged])
        predicted = ContextSwapper(model).fit(shown.X, y).predict(shown.X_test)
        follows = np.mean(predicted == exchanged) if task.n_classes else np.corrcoef(predicted, exchanged)[0, 1]
        return {
            **about,
            "seen": score(score_with_context(model, shown)),
            "unseen": score(score_with_context(model, fitted)),
            "targets": score(score_corrupted(model, shown, seed, features=False)),
            "corrupted": score(score_corrupted(model, shown, seed)),
            "follows": float(follows),  # the correlation with the exchanged targets, or the share of equal classes
        }


def measure_dataset(
    data: TableDataset, name: str, number: int, size: dict[str, Any], progress: ShareDone
) -> dict[str, Any]:
    """Measure a fitted model with its context, with corrupted ones, and on the first split with ever fewer rows."""
    from fillin.learners.row_learner import RowLearner

    split = data.split(number)
    with require("threadpoolctl").threadpool_limits(1):
        model = fit_model(name, split, number, **size)
        progress(0.5)
        result: dict[str, Any] = {
            "right": score_with_context(model, split),
            "corrupted": score_corrupted(model, split, number),
            "targets": score_corrupted(model, split, number, features=False),
        }
        progress(0.6)
        if number == 0 and isinstance(model.learner_, RowLearner):
            distances, attention = row_distances(split), attention_weights(model, split)
            few = replace(split, X_test=split.X_test.iloc[:DELETION_ROWS], y_test=split.y_test[:DELETION_ROWS])
            result["attention"] = compare_attention(attention, distances, 0)
            result["deleted"] = delete_in_order(DeletableContext(model, split), attention, 0)
            result["kept"] = delete_one_by_one(DeletableContext(model, few), distances[:DELETION_ROWS], 0)
    about = {"part": "sets", "data": data.title, "group": data.group, "model": name, "split": number}
    return {**about, "rows": len(split.X), "columns": split.X.shape[1], **result}


def row_distances(split: TableSplit) -> Float[ndarray, "m n"]:
    """Return Euclidean distances from test rows to training rows, columns standardised and classes one-hot."""
    from scipy.spatial.distance import cdist

    transform = prepare_table("passthrough", scaled=True).fit(split.X)
    return cdist(transform.transform(split.X_test), transform.transform(split.X))


def attention_weights(model: Any, split: TableSplit) -> Float[ndarray, "m n"]:
    """Return the attention of each test row to each context row: a mean over networks and heads; rows sum to 1."""
    with record_weights() as calls, torch.no_grad():
        (model.predict_proba if split.n_classes else model.predict)(split.X_test)
    [weights] = [call.weights for call in calls]
    return weights.mean((0, 1)).double().numpy()


def compare_attention(attention: Float[ndarray, "m n"], distances: Float[ndarray, "m n"], seed: int) -> dict[str, Any]:
    """Compare attention (1: uniform) with distances (1: the mean): the mean rank correlation within a row, the mean
    attention to the nearest 1/DISTANCE_BINS of the rows, to the next, …, and some pairs to plot."""
    from scipy.stats import spearmanr

    attention, distances = attention * attention.shape[1], distances / distances.mean(1, keepdims=True)
    correlations: Any = [spearmanr(a, d)[0] for a, d in zip(attention, distances, strict=True)]
    order = distances.argsort(1)
    sorted_attention, sorted_distances = (np.take_along_axis(rows, order, 1) for rows in (attention, distances))
    bins = np.array_split(np.arange(distances.shape[1]), DISTANCE_BINS)
    random = np.random.default_rng(seed)
    rank = (distances.shape[1] * random.random(PLOTTED_PAIRS) ** 2).astype(int)  # more of the near ones
    row = random.integers(len(distances), size=PLOTTED_PAIRS)
    return {
        "rank_correlation": float(np.mean(correlations)),
        "nearest": [float(sorted_attention[:, part].mean()) for part in bins],
        "far": [float(sorted_distances[:, part].mean()) for part in bins],
        "dots": np.round([sorted_distances[row, rank], sorted_attention[row, rank]], 4).tolist(),
    }
