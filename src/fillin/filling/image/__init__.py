"""Completion of images from part of their pixels: `fillin.complete` and `fillin complete`."""

import warnings
from typing import TYPE_CHECKING, Any

from fillin.filling.plan import Source
from fillin.filling.prediction import NumericPrediction

if TYPE_CHECKING:
    from fillin.models import Process


def complete(
    image: Any, observed: Any = None, scale: int = 1, samples: int = 0, model: "str | Process" = "sheet-2d",
    seed: int = 0, *, known: Any = None,
) -> NumericPrediction:  # fmt: skip
    """Predict the missing pixels of an image, with their uncertainty, at any resolution.

    Parameters
    ----------
    image : array-like of shape (h, w), (h, w, 1) or (h, w, 3)
        Grey or RGB values: bytes, or floats from 0 to 1. NaN is missing, also in some channels of a pixel.
    observed : array-like of bool of shape (h, w) or (h, w, 3), optional
        True where a pixel, or a channel of it, is observed. By default all values that are not NaN.
    scale : int, default 1
        Number of predicted cells along each side of a pixel.
    samples : int, default 0
        Number of whole images to draw.
    model : str or Process, default "sheet-2d"
        Model over two-dimensional locations with one or three outputs: name of pretrained weights, folder, or the
        model itself. A model trained on images sees the colours as they are; `sheet-2d` fits any image.
    seed : int, default 0
        Seed of the samples.
    known : array-like of bool of shape (h, w), optional
        Deprecated name of `observed`.

    Returns
    -------
    NumericPrediction
        `mean`, `std`, `low` and `high` (95 % interval) of shape (scale h, scale w, c), and `samples` of shape
        (samples, scale h, scale w, c), in units from black (0) to white (1). With `scale` 1 observed pixels keep their
        values, with `std` 0.

    Raises
    ------
    InputError
        If the shape, the range or the options are invalid, or no pixel, or no value of a channel, is observed.
    InputTypeError
        If `image` does not hold numbers.

    Examples
    --------
    >>> import fillin, numpy as np
    >>> image = np.linspace(0, 1, 64).reshape(8, 8)
    >>> fillin.complete(image, observed=image > 0.5, scale=2, samples=1)
    NumericPrediction(mean=[16, 16, 1], samples=1)
    """
    from fillin.filling.image.plan import ImageOptions, ImagePlan

    if known is not None:
        warnings.warn("complete: the argument known is now called observed", DeprecationWarning, stacklevel=2)
        observed = known
    options = ImageOptions(observed=observed, scale=scale, samples=samples, model=model, seed=seed)
    plan = ImagePlan.read(Source(image, {}), options)
    return plan.result(plan.run(plan.load_model()))
