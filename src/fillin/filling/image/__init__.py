"""Completion of images from part of their pixels: `fillin.complete` and `fillin complete`."""

from fillin.filling.image.api import complete

__all__ = ["complete"]
