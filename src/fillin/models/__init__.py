"""Neural processes, classifiers and models of sequences, created by name: `create(name, dim_x, dim_y, size)`."""

from fillin.models.base import LatentProcess, Process
from fillin.models.classifier import Classifier, PixelClassifier
from fillin.models.few_shot import FewShotProcess, InContextClassifier, MatchingNetwork, NPTImages
from fillin.models.registry import (
    CLASSIFIERS,
    REGISTRY,
    SEQUENCE_MODELS,
    SIZES,
    AnyModel,
    ModelEntry,
    create,
    list_options,
    load,
    names,
    save,
)
from fillin.models.seq2seq import Seq2Seq

__all__ = [
    "CLASSIFIERS", "REGISTRY", "SEQUENCE_MODELS", "SIZES", "AnyModel", "Classifier", "FewShotProcess",
    "InContextClassifier", "LatentProcess", "MatchingNetwork", "ModelEntry", "NPTImages", "PixelClassifier", "Process",
    "Seq2Seq", "create", "list_options", "load", "names", "save",
]  # fmt: skip
