"""Every neural process, one registry: `create(name, dim_x, dim_y, size)`."""

from fillin.models.base import LatentProcess, Process
from fillin.models.by_example import ByExample, Matching, NPTImages
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.files import load, save
from fillin.models.registry import CLASSIFIERS, REGISTRY, SIZES, Entry, create, names, options_of

__all__ = [
    "CLASSIFIERS", "REGISTRY", "SIZES", "ByExample", "Classifier", "Entry", "LatentProcess", "Matching", "NPTImages",
    "PixelClassifier", "Process", "create", "load", "names", "options_of", "save",
]  # fmt: skip
