"""Pictures of which part is known, completed: `fillin.complete`, and what `fillin complete` writes."""

from fillin.filling.image.api import Completed, complete

__all__ = ["Completed", "complete"]
