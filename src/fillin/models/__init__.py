"""Neural processes and classifiers, created by name: `create(name, dim_x, dim_y, size)`."""

from fillin.models.base import LatentProcess, Process
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.few_shot import FewShotProcess, InContextClassifier, MatchingNetwork, NPTImages
from fillin.models.registry import CLASSIFIERS, REGISTRY, SIZES, ModelEntry, create, list_options, load, names, save

__all__ = [
    "CLASSIFIERS", "REGISTRY", "SIZES", "Classifier", "FewShotProcess", "InContextClassifier", "LatentProcess",
    "MatchingNetwork", "ModelEntry", "NPTImages", "PixelClassifier", "Process", "create", "list_options", "load",
    "names", "save",
]  # fmt: skip
