"""Images as sets of points: where a pixel is, and its colour."""

from fillin.data.images.datasets import ImageSet, read_images
from fillin.data.images.fewshot import FewShot
from fillin.data.images.labelled import LabelledBatch, LabelledImages
from fillin.data.images.labelled_sets import Episode, LabelledSets
from fillin.data.images.patterns import PATTERNS, Pattern
from fillin.data.images.pixel_grid import colours, pixels, places
from fillin.data.images.stream import Images

__all__ = [
    "PATTERNS",
    "Episode",
    "FewShot",
    "ImageSet",
    "Images",
    "LabelledBatch",
    "LabelledImages",
    "LabelledSets",
    "Pattern",
    "colours",
    "pixels",
    "places",
    "read_images",
]  # fmt: skip
