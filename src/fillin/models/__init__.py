"""Every neural process, one registry: `create(name, dim_x, dim_y, size)`."""

from fillin.models.base import LatentProcess, Process
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.few_shot import ByExample, Matching, NPTImages
from fillin.models.registry import CLASSIFIERS, REGISTRY, SIZES, Entry, create, names, options_of
from fillin.models.serialization import load, save

__all__ = [
    "CLASSIFIERS", "REGISTRY", "SIZES", "ByExample", "Classifier", "Entry", "LatentProcess", "Matching", "NPTImages",
    "PixelClassifier", "Process", "create", "load", "names", "options_of", "save",
]  # fmt: skip
