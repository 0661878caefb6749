"""Filling what is missing: points that are known, and what a pretrained model says of the others."""

from fillin.filling.api import fill

__all__ = ["fill"]
