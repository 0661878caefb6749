"""Missing channels of an image: linear regression on the other channels of the pixel, where that predicts better.

Cokriging (`channels`) weighs what lies around a pixel, and forgets far from all observed values of a channel how it
goes together with the others. There the channel k of a pixel is predicted from its observed channels S,

    y_k = β₀ + Σ_{s ∈ S} β_s y_s + r,

and the residual r by kriging of its values around. Quadrants of the pixels with k and S observed are held out in turn:
the regression replaces cokriging for a channel and a pattern S where its squared error there is clearly smaller.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.filling.image.channels import (
    ChannelModel,
    ChannelPrediction,
    draw_process,
    fit_model,
    krige_channels,
    predict_cells,
)

_MIN_PIXELS = 24  # with the channel and the others observed, to fit and to judge a regression
_HELD_OUT = 100  # values of each quadrant
_MIN_GAIN = 0.9  # of the squared error, below which the regression is used
_RIDGE = 1e-6  # of the variance of the other channels
_GROWTH = 0.5, 16.0  # range of the factor of variances
_SHRINKAGE = 10.0  # pixels, by which correlations of what regressions leave are shrunk to 0


@dataclass(frozen=True)
class ChannelRegression:
    """A channel as a linear function of others, and the process of what it leaves."""

    channel: int
    others: Int[ndarray, "s"]
    level: Float[ndarray, "s"]
    slopes: Float[ndarray, "s+1"]
    precision: Float[ndarray, "s+1 s+1"]
    residual: ChannelModel
    growth: float = 1.0

    @classmethod
    def fit(
        cls, values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], channel: int, others: Int[ndarray, "s"]
    ) -> "ChannelRegression":
        """Fit to the pixels where the channel and the others are observed."""
        known = observed[..., channel] & observed[..., others].all(2)
        rows = values[known][:, others]
        level = rows.mean(0)
        design = np.concatenate([np.ones((len(rows), 1)), rows - level], 1)
        ridge = _RIDGE * np.square(rows - level).sum(0).max(initial=1e-12)
        precision = np.linalg.inv(design.T @ design + np.diag([0.0, *[ridge] * len(others)]))
        slopes = precision @ design.T @ values[known, channel]
        left = np.where(known, values[..., channel] - slopes[0] - (values[..., others] - level) @ slopes[1:], 0)
        model = fit_model(left[..., None], known[..., None], None)
        return cls(channel, others, level, slopes, precision, model)

    def apply(self, values: Float[ndarray, "h w c"]) -> Float[ndarray, "h w"]:
        """Return β₀ + Σ β_s y_s of every pixel."""
        return self.slopes[0] + (values[..., self.others] - self.level) @ self.slopes[1:]

    def predict(
        self, values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], at: Int[ndarray, "m 2"],
        n_samples: int = 0, random: np.random.Generator | None = None,
    ) -> tuple[Float[ndarray, "m"], Float[ndarray, "m"], Float[ndarray, "n m"]]:  # fmt: skip
        """Return the means, variances and sampled errors of the channel at some pixels, whose others are observed."""
        known = observed[..., self.channel] & observed[..., self.others].all(2)
        line = self.apply(values)
        level = float(self.residual.level[0])
        left = np.where(known, values[..., self.channel] - line - level, 0)[..., None]
        random = random or np.random.default_rng(0)
        images = np.stack([left, *(draw_process(self.residual, left.shape, random) for _ in range(n_samples))])
        cells = np.concatenate([at, np.zeros((len(at), 1), dtype=at.dtype)], 1)
        found, variance = predict_cells(self.residual, images, known[..., None], cells)
        rows, columns = at.T
        design = np.concatenate([np.ones((len(at), 1)), values[rows, columns][:, self.others] - self.level], 1)
        noise = float(np.square(left[known]).mean()) if known.any() else 0.0
        variance = self.growth * (variance + noise * np.einsum("mi,ij,mj->m", design, self.precision, design))
        errors = self.growth**0.5 * (images[1:, rows, columns, 0] - found[1:])
        return line[rows, columns] + level + found[0], variance, errors


def complete_channels(
    colours: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], n_samples: int = 0, seed: int = 0
) -> ChannelPrediction | None:
    """Predict the missing channels of the pixels of which others are observed; None where there are none."""
    kriged = krige_channels(colours, observed, n_samples, seed)
    if kriged is None:
        return None
    model, prediction = kriged
    values = np.where(observed, colours, 0)
    patterns = observed[prediction.cells[:, 0], prediction.cells[:, 1]]
    mean, std, samples = prediction.mean.copy(), prediction.std.copy(), prediction.samples.copy()
    groups, which = np.unique(patterns, axis=0, return_inverse=True)
    for number, pattern in enumerate(groups):
        others, missing = np.flatnonzero(pattern), np.flatnonzero(~pattern)
        fits = [choose_regression(model, values, observed, int(channel), others) for channel in missing]
        chosen = [fit for fit in fits if fit is not None]
        cells = [np.flatnonzero((which.ravel() == number) & (prediction.cells[:, 2] == fit.channel)) for fit in chosen]
        random, scores = np.random.default_rng([seed, number]), []
        for fit, inside in zip(chosen, cells, strict=True):
            mean[inside], variance, errors = fit.predict(
                values, observed, prediction.cells[inside, :2], n_samples, random
            )
            std[inside] = np.sqrt(variance)
            scores.append(errors / std[inside])
        if n_samples and chosen:
            mixed = np.einsum("kl,lnm->knm", find_root(chosen, values, observed), np.stack(scores))
            for inside, score in zip(cells, mixed, strict=True):
                samples[:, inside] = mean[inside] + std[inside] * score
    return ChannelPrediction(prediction.cells, mean, std, samples)


def choose_regression(
    model: ChannelModel, values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], channel: int,
    others: Int[ndarray, "s"],
) -> ChannelRegression | None:  # fmt: skip
    """Return the regression of a channel on others, if it predicts held-out quadrants better than cokriging."""
    known = np.argwhere(observed[..., channel] & observed[..., others].all(2))
    if len(known) < _MIN_PIXELS:
        return None
    side = known >= np.median(known, axis=0)
    quadrant = 2 * side[:, 0] + side[:, 1]
    squares, kriged, variances = [], [], []
    for number in np.unique(quadrant):
        hidden, shown = known[quadrant == number], observed.copy()
        shown[hidden[:, 0], hidden[:, 1], channel] = False
        if len(known) - len(hidden) < _MIN_PIXELS // 2:
            continue
        at = hidden[np.linspace(0, len(hidden) - 1, min(len(hidden), _HELD_OUT)).round().astype(int)]
        truth = values[at[:, 0], at[:, 1], channel]
        mean, variance, _ = ChannelRegression.fit(values, shown, channel, others).predict(values, shown, at)
        cells = np.column_stack([at, np.full(len(at), channel)])
        rest = np.where(shown, values - model.level, 0)
        beside = predict_cells(model, rest[None], shown, cells)[0][0] + model.level[channel]
        squares.append(np.square(mean - truth))
        kriged.append(np.square(beside - truth))
        variances.append(variance)
    if not squares or np.concatenate(squares).mean() >= _MIN_GAIN * np.concatenate(kriged).mean():
        return None
    growth = float(np.mean(np.concatenate(squares) / np.concatenate(variances)))
    fitted = ChannelRegression.fit(values, observed, channel, others)
    return replace(fitted, growth=float(np.clip(growth, *_GROWTH)))


def find_root(
    fits: list[ChannelRegression], values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"]
) -> Float[ndarray, "k k"]:
    """Return the Cholesky factor of the correlations of what regressions leave, so that their samples go together."""
    channels = [fit.channel for fit in fits]
    known = observed[..., [*channels, *fits[0].others]].all(2)
    left = np.stack([values[known, fit.channel] - fit.apply(values)[known] for fit in fits])
    left = left / np.maximum(left.std(1, keepdims=True), 1e-12)
    count = max(int(known.sum()), 1)
    correlation = count / (count + _SHRINKAGE) * (left @ left.T) / count
    np.fill_diagonal(correlation, 1 + 1e-6)
    return np.linalg.cholesky(correlation)
