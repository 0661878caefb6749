"""Channels of an image that inform each other: cokriging of the missing channels of partly observed pixels.

Channel k at pixel p is a level plus a process with the linear model of coregionalisation (Goovaerts 1997),

    Cov(y_k(p), y_l(q)) = Σ_s B_s[k, l] exp(−‖p − q‖ / ℓ_s),

of which the shares of the lengths ℓ_s are fitted to the covariances within channels, and the correlations of long waves
to those between channels. Short waves of photographs go together more than long ones: how much, or that channels are
better left alone, is chosen on observed values, each predicted from the others. A missing value is predicted from the
observed values of its pixel and of those around it, in all channels; pixels of one pattern have the same weights. The
same prediction of a random image, subtracted from it, is a sample of the error.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.optimize import nnls
from scipy.spatial import KDTree

_LENGTHS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # in pixels; 0: independent from pixel to pixel
_SHORT = 4.0  # pixels, the longest of the short waves
_REACH = 12  # pixels, up to which covariances are compared
_OWN_PIXELS, _NEAR_PIXELS = 14, 12  # nearest pixels with the channel observed, and with any channel observed
_TIES = 8
_MAX_DISTANCE = 256  # pixels, beyond which covariances are constant
_NOISE = 1e-3  # share of the variance that is independent in each value, at least that of eight bits
_EIGHT_BITS = 1 / 255**2 / 12
_LEVEL = 4.0  # variance of the level of a channel, in that of its values
_PRIOR_VALUES, _PRIOR_SHARE = 30.0, 0.2  # weight of the prior of covariances, in values, and in those that there are
_PRIOR_CORRELATIONS = np.array([0.8, 0.95])  # of channels, in long and in short waves
_MIN_SHARE = 1e-3  # of the variance, in each of them
_COMMON = (None, 0.0, 0.5)  # further shares of short waves that channels have in common; None: channels alone
_CHECKED = 400  # observed values that the choice is made on
_MAX_HELD_OUT = 0.5  # of the observed values
_GROWTH = 0.5, 16.0  # range of the factor of variances
_BATCH = 2_048  # missing values that are predicted at once
_MAX_CORRELATION = 0.995


@dataclass(frozen=True)
class ChannelModel:
    """Covariances B_s of the channels for each length ℓ_s, the variance of the noise, and the levels."""

    parts: Float[ndarray, "s c c"]
    noise: float
    level: Float[ndarray, "c"]
    growth: float = 1.0

    @cached_property
    def covariances(self) -> Float[ndarray, "c c r"]:
        """Prior covariances of values of two channels by the square of their distance."""
        distance = np.sqrt(np.arange(_MAX_DISTANCE**2 + 1))
        total = np.repeat(_LEVEL * self.parts.sum(0)[..., None], len(distance), -1)
        for part, wave in zip(self.parts, _waves(distance), strict=True):
            total += part[..., None] * wave
        return total

    def covariance(
        self, square: Int[ndarray, "*s"], first: Int[ndarray, "*k"], second: Int[ndarray, "*l"]
    ) -> Float[ndarray, "..."]:
        """Return prior covariances at squared distances of values of the channels `first` and `second`."""
        return self.covariances[first, second, np.minimum(square, _MAX_DISTANCE**2)]


def _waves(distance: Float[ndarray, "*b"]) -> list[Float[ndarray, "*b"]]:
    return [np.exp(-distance / length) if length else (distance == 0).astype(float) for length in _LENGTHS]


@dataclass(frozen=True)
class ChannelPrediction:
    """Means and standard deviations of some values, and samples that go together across pixels and channels."""

    cells: Int[ndarray, "m 3"]
    mean: Float[ndarray, "m"]
    std: Float[ndarray, "m"]
    samples: Float[ndarray, "n m"]

    @staticmethod
    def insert(
        y: Float[ndarray, "n c"], observed: Bool[ndarray, "h w c"], values: Float[ndarray, "m"]
    ) -> Float[ndarray, "n c"]:
        """Return the colours of the pixels that are observed in part, with the predicted values in their gaps."""
        y = y.copy()
        y[~observed[observed.any(2)]] = values
        return y


def krige_channels(
    colours: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], n_samples: int = 0, seed: int = 0
) -> tuple[ChannelModel, ChannelPrediction] | None:
    """Predict the missing channels of the pixels of which others are observed, and return the model with them; None
    where there are none."""
    partly = observed.any(2) & ~observed.all(2)
    cells = np.argwhere(~observed & np.asarray(partly)[..., None])
    if not len(cells):
        return None
    values = np.where(observed, colours, 0)
    model, random = choose_model(values, observed), np.random.default_rng(seed)
    images = np.stack([values - model.level, *(draw_process(model, values.shape, random) for _ in range(n_samples))])
    predicted, variance = predict_cells(model, images, observed, cells)
    mean = predicted[0] + model.level[cells[:, 2]]
    error = images[1:, cells[:, 0], cells[:, 1], cells[:, 2]] - predicted[1:]
    std, samples = np.sqrt(model.growth * variance), mean + model.growth**0.5 * error
    return model, ChannelPrediction(cells, mean, std, samples)


def choose_model(values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"]) -> ChannelModel:
    """Fit covariances, and choose what short waves have in common by the errors of held-out values."""
    cases, best, chosen = hold_out(observed), np.inf, None
    for common in _COMMON:
        model = fit_model(values, observed, common)
        errors, variances = [], []
        for cells, shown in cases:
            rest = values - model.level
            predicted, variance = predict_cells(model, rest[None], shown, cells)
            errors.append(predicted[0] - rest[tuple(cells.T)])
            variances.append(variance)
        error, variance = np.concatenate(errors), np.concatenate(variances)
        growth = float(np.mean(np.square(error) / variance))
        score = float(np.log(max(growth, 1e-12)) + np.mean(np.log(variance)))
        if chosen is None or score < best - 1e-9:
            best, chosen = score, replace(model, growth=float(np.clip(growth, *_GROWTH)))
    assert chosen is not None
    return chosen


def hold_out(observed: Bool[ndarray, "h w c"]) -> list[tuple[Int[ndarray, "m 3"], Bool[ndarray, "h w c"]]]:
    """Return observed values to predict, and those that they are predicted from: those that the gaps of the image hide
    when they are moved by half of it; or of all values some, each from the others."""
    h, w, _ = observed.shape
    cases = []
    for move in ((h // 2, w // 2), (h // 2, 0), (0, w // 2)):
        moved = observed & np.roll(observed, move, (0, 1))
        hidden = int((observed & ~moved).sum())
        if 0 < hidden <= _MAX_HELD_OUT * observed.sum() and (moved.sum((0, 1)) > 0).all():
            cases.append((np.argwhere(observed & ~moved), moved))
    cases = cases or [(np.argwhere(observed), observed)]
    count = _CHECKED // len(cases)
    return [
        (cells[np.linspace(0, len(cells) - 1, min(len(cells), count)).round().astype(int)], shown)
        for cells, shown in cases
    ]


def fit_model(values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], common: float | None) -> ChannelModel:
    """Fit the covariances to those of all pairs of observed values within `_REACH` pixels."""
    c, count = values.shape[2], observed.sum((0, 1))
    level = values.sum((0, 1)) / np.maximum(count, 1)
    distance, pairs, sums = correlate_channels(np.where(observed, values - level, 0), observed)
    pooled_pairs, pooled = (np.einsum("rkk->r", part) for part in (pairs, sums))
    present = pooled_pairs > 0
    weight = np.sqrt(pooled_pairs[present] / (1 + distance[present]))
    design = np.stack(_waves(distance[present]), 1)
    variance = max(pooled[0] / pooled_pairs[0], _EIGHT_BITS)
    shares, _ = nnls(design * weight[:, None], weight * pooled[present] / pooled_pairs[present] / variance)
    shares = shares / shares.sum() if shares.sum() > 0 else np.eye(len(_LENGTHS))[-1]
    short = np.array(_LENGTHS) <= _SHORT
    waves = np.stack([np.stack(_waves(distance), 1)[:, part] @ shares[part] for part in (~short, short)], 1)
    weights = 1 / (1 + distance)
    power = np.einsum("r,ri,rj,rkl->klij", weights, waves, waves, pairs)  # of the long and the short waves
    fitted = np.einsum("r,ri,rkl->kli", weights, waves, sums)
    prior = _PRIOR_SHARE * np.einsum("klii->kli", power) + _PRIOR_VALUES
    inner = power + prior[..., None] * np.eye(2)
    own = np.linalg.solve(inner, (fitted + prior * variance)[..., None])[..., 0]
    size = np.sqrt(np.maximum(np.einsum("kki->ki", own), _MIN_SHARE * variance))  # [c 2]
    scale = size[:, None] * size[None]
    together = np.linalg.solve(inner, (fitted + prior * scale * _PRIOR_CORRELATIONS)[..., None])[..., 0] / scale
    parts = []
    for share, is_short in zip(shares, short, strict=True):
        correlation = _repair(together[..., int(is_short)])
        if common is None:
            correlation = np.eye(c)
        elif is_short:
            correlation = (1 - common) * correlation + common
        parts.append(share * scale[..., int(is_short)] * correlation)
    return ChannelModel(np.stack(parts), max(_NOISE * variance, _EIGHT_BITS), level)


def _repair(correlation: Float[ndarray, "c c"]) -> Float[ndarray, "c c"]:
    """Return the nearest correlations that are symmetric, less than 1 and positive definite."""
    correlation = np.clip((correlation + correlation.T) / 2, -_MAX_CORRELATION, _MAX_CORRELATION)
    np.fill_diagonal(correlation, 1)
    spectrum, vectors = np.linalg.eigh(correlation)
    return (vectors * spectrum.clip(1e-3)) @ vectors.T


def correlate_channels(
    values: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"]
) -> tuple[Float[ndarray, "r"], Float[ndarray, "r c c"], Float[ndarray, "r c c"]]:
    """Return distances, and for all pairs of values at each of them, within and between channels, their number and the
    sum of their products. The first distance is 0."""
    h, w, c = values.shape
    reach = min(_REACH, max(h, w) - 1)
    size = h + reach, w + reach
    images = np.fft.rfft2(np.concatenate([values, observed], 2), size, axes=(0, 1))
    lags = np.stack(np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1), indexing="ij"), -1)
    lags = lags.reshape(-1, 2)
    lags = lags[(np.abs(lags) < (h, w)).all(1)]
    squares, which = np.unique(np.square(lags).sum(1), return_inverse=True)
    near = squares <= reach**2
    pairs, sums = np.zeros((len(squares), c, c)), np.zeros((len(squares), c, c))
    for offset, total in ((0, sums), (c, pairs)):
        for k in range(c):
            for other in range(c):
                product = np.fft.irfft2(images[..., offset + k].conj() * images[..., offset + other], size)
                np.add.at(total[:, k, other], which.ravel(), product[lags[:, 0], lags[:, 1]])
    return np.sqrt(squares[near]), np.round(pairs[near]), sums[near]


def predict_cells(
    model: ChannelModel, images: Float[ndarray, "v h w c"], observed: Bool[ndarray, "h w c"], cells: Int[ndarray, "m 3"]
) -> tuple[Float[ndarray, "v m"], Float[ndarray, "m"]]:
    """Predict cells of each image from its values where `observed`, never from themselves, and return the variances of
    the predictions. The level of a channel is 0."""
    flat, mean, variance = images.reshape(len(images), -1), np.empty((len(images), len(cells))), np.empty(len(cells))
    pixels = [np.argwhere(observed.any(2)), *(np.argwhere(observed[..., k]) for k in range(observed.shape[2]))]
    trees = [(part, KDTree(part)) if len(part) else None for part in pixels]
    for k in range(observed.shape[2]):
        of_channel = np.flatnonzero(cells[:, 2] == k)
        for start in range(0, len(of_channel), _BATCH):
            rows = of_channel[start : start + _BATCH]
            at, near = cells[rows, :2], []
            for tree, count in ((trees[0], _NEAR_PIXELS), (trees[k + 1], _OWN_PIXELS)):
                near += [] if tree is None else [nearest_offsets(*tree, count, at)]
            sources, weights, variance[rows] = find_weights(model, observed, at, k, np.concatenate(near, 1))
            mean[:, rows] = np.einsum("me,vme->vm", weights, flat[:, sources])
    return mean, variance


def find_weights(
    model: ChannelModel, observed: Bool[ndarray, "h w c"], at: Int[ndarray, "m 2"], channel: int,
    near: Int[ndarray, "m k"],
) -> tuple[Int[ndarray, "m e"], Float[ndarray, "m e"], Float[ndarray, "m"]]:  # fmt: skip
    """Return the values around some pixels that a channel is predicted from, as flat indices, their weights, and the
    variances that are left. `near` are offsets of pixels."""
    h, w, c = observed.shape
    offsets = _unique_offsets(near, _OWN_PIXELS + _NEAR_PIXELS)
    there = offsets[..., 0] != _FAR
    source = np.where(there[..., None], at[:, None] + offsets, 0)
    seen = observed[source[..., 0], source[..., 1]] & there[..., None]  # [m p c]
    seen[..., channel] &= (offsets != 0).any(-1)
    flat = np.ravel_multi_index((source[..., 0], source[..., 1]), (h, w))[..., None] * c + np.arange(c)
    seen = seen.reshape(len(at), -1)
    pattern = np.concatenate([offsets.reshape(len(at), -1), seen], 1)
    first, which = np.unique(pattern, axis=0, return_index=True, return_inverse=True)[1:]
    weights, left = _solve(model, offsets[first], seen[first], channel)
    return flat.reshape(len(at), -1), weights[which.ravel()], left[which.ravel()]


_FAR = 1 << 20  # an offset that stands for none


def nearest_offsets(
    pixels: Int[ndarray, "n 2"], tree: KDTree, count: int, at: Int[ndarray, "m 2"]
) -> Int[ndarray, "m k"]:
    """Return the offsets of the nearest pixels, ties in the order of rows and columns, so that equal surroundings have
    equal offsets. An offset is one number."""
    found = np.asarray(tree.query(at, min(count + _TIES, tree.n))[1]).reshape(len(at), -1)
    offsets = pixels[found] - at[:, None]
    square = np.square(offsets).sum(-1)
    order = np.lexsort((offsets[..., 1], offsets[..., 0], square), axis=1)[:, :count]
    offsets = np.take_along_axis(offsets, order[..., None], 1)
    return (offsets[..., 0] + _FAR) * 4 * _FAR + offsets[..., 1] + _FAR


def _unique_offsets(keys: Int[ndarray, "m k"], count: int) -> Int[ndarray, "m p 2"]:
    """Return distinct offsets, `_FAR` where there are fewer than `count`."""
    keys = np.sort(keys, 1)
    repeated = np.concatenate([np.zeros((len(keys), 1), dtype=bool), keys[:, 1:] == keys[:, :-1]], 1)
    none = 2 * _FAR * 4 * _FAR + 2 * _FAR
    keys = np.sort(np.where(repeated, none, keys), 1)
    keys = np.pad(keys, ((0, 0), (0, max(0, count - keys.shape[1]))), constant_values=none)[:, :count]
    return np.stack([keys // (4 * _FAR) - _FAR, keys % (4 * _FAR) - _FAR], -1)


def _solve(
    model: ChannelModel, offsets: Int[ndarray, "u p 2"], seen: Bool[ndarray, "u e"], channel: int
) -> tuple[Float[ndarray, "u e"], Float[ndarray, "u"]]:
    """Return the weights of each pattern of observed values around a cell, and the variances that are left."""
    c, weights, left = len(model.level), np.zeros(seen.shape), np.empty(len(seen))
    channels = np.tile(np.arange(c), offsets.shape[1])
    points = np.where(np.abs(offsets) < _FAR, offsets, 0).repeat(c, 1)
    prior = float(model.covariances[channel, channel, 0]) + model.noise
    for i, (at, here) in enumerate(zip(points, seen, strict=True)):
        e = np.flatnonzero(here)
        at, kind = at[e], channels[e]
        square = np.square(at[:, None] - at).sum(-1)
        inner = model.covariance(square, kind[:, None], kind) + model.noise * np.eye(len(e))
        cross = model.covariance(np.square(at).sum(-1), kind, np.array(channel))
        weights[i, e] = np.linalg.solve(inner, cross)
        left[i] = prior - weights[i, e] @ cross
    return weights, np.maximum(left, model.noise)


def draw_process(
    model: ChannelModel, shape: tuple[int, int, int], random: np.random.Generator
) -> Float[ndarray, "h w c"]:
    """Draw an image of the process, by the spectrum of each wave on a torus twice as large."""
    h, w, c = shape
    size = 2 * h, 2 * w
    rows, columns = (np.minimum(np.arange(n), n - np.arange(n)) for n in size)
    distance = np.hypot(rows[:, None], columns)
    image = np.sqrt(model.noise) * random.normal(size=shape)
    image += random.normal(size=c) @ _root(_LEVEL * model.parts.sum(0)).T
    for part, wave in zip(model.parts, _waves(distance), strict=True):
        if not part.any():
            continue
        spectrum = np.sqrt(np.fft.rfft2(wave).real.clip(0))
        noise = np.fft.rfft2(random.normal(size=(c, *size)))
        image += np.fft.irfft2(noise * spectrum, size)[:, :h, :w].transpose(1, 2, 0) @ _root(part).T
    return image


def _root(matrix: Float[ndarray, "c c"]) -> Float[ndarray, "c c"]:
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(values.clip(0))
