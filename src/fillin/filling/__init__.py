"""Filling of missing values in series, tables, fields and images.

The package is not called `fill`, because `fillin.fill` is the public function.
"""

from fillin.filling.api import fill

__all__ = ["fill"]
