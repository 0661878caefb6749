"""One question to a model: known colours in, colours elsewhere out. All models answer in the same form."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.distributions import MixtureSameFamily

from fillin.heads import LatentMixture, ObservedMixture, to_predictive
from fillin.inference.context import level_and_size
from fillin.models import Process
from fillin.models.filler import Filler
from fillin.predictive import GaussianMixture

Moments = tuple[Float[ndarray, "b m c"], Float[ndarray, "b m c"]]


@torch.inference_mode()
def ask(
    model: Process,
    xc: Float[ndarray, "n 2"],
    yc: Float[ndarray, "b n c"],
    xt: Float[ndarray, "m 2"],
    spread: Float[ndarray, "c"] | float = 0.0,
    noise: bool = True,
) -> tuple[Moments, Float[ndarray, "k m c"] | None]:
    """Means and deviations at xt, given colours yc of b pictures at places xc; and, of a model with latents, the whole
    functions of the first picture, one for each latent.

    A model with one output is asked for every channel as a task of its own, one with three is shown grey three times,
    and its answers are averaged. Models that fill gaps see colours in units of what is known, `spread` being those of
    the whole picture, and may leave out the noise; all others see them as they are.
    """
    b, n, c = yc.shape
    each = model.dim_y == 1
    tasks = yc.transpose(0, 2, 1).reshape(b * c, n, 1) if each else np.broadcast_to(yc, (b, n, model.dim_y))
    level, size = np.zeros(1), np.ones(1)
    if isinstance(model, Filler):
        level, size = level_and_size(tasks[..., 0].T, np.tile(np.broadcast_to(spread, c), b))
    level, size = level[:, None, None], size[:, None, None]
    found = model(
        _tensor(xc, len(tasks)), torch.from_numpy(((tasks - level) / size).astype(np.float32)), _tensor(xt, len(tasks))
    )
    found = getattr(found, "marginals", found)
    found = found.clean if isinstance(found, ObservedMixture) and not noise else found

    def channels(values: Float[ndarray, "t m dy"]) -> Float[ndarray, "b m c"]:
        if each:
            return values[..., 0].reshape(b, c, -1).transpose(0, 2, 1)
        return values if c == model.dim_y else values.mean(-1, keepdims=True)

    mean, std = _moments(found)
    functions = None
    if isinstance(found, LatentMixture):
        functions = np.concatenate([channels(one.double().numpy())[:1] for one in found.given.mean])
    return (channels(level + size * mean), channels(size * std)), functions


def _moments(found) -> tuple[Float[ndarray, "t m dy"], Float[ndarray, "t m dy"]]:
    """Of what is likely, where it is a mixture of normals."""
    if not isinstance(found, MixtureSameFamily):
        return found.mean.double().numpy(), found.stddev.double().numpy()
    mixture = to_predictive(found)
    assert isinstance(mixture, GaussianMixture)
    return mixture.moments()


def _tensor(values: Float[ndarray, "n 2"], tasks: int) -> Float[Tensor, "t n 2"]:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).expand(tasks, -1, -1)
