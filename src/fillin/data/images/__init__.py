"""Images as sets of points: locations of pixels and their colours."""

from fillin.data.images.completion import PATTERNS, Images, Pattern, pixel_locations
from fillin.data.images.datasets import ImageSet, read_images, to_colours, to_pixels
from fillin.data.images.few_shot import FewShot
from fillin.data.images.labelled import Episode, LabelledBatch, LabelledImages, LabelledSets

__all__ = [
    "PATTERNS", "Episode", "FewShot", "ImageSet", "Images", "LabelledBatch", "LabelledImages", "LabelledSets",
    "Pattern", "pixel_locations", "read_images", "to_colours", "to_pixels",
]  # fmt: skip
