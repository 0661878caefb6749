"""The compiled kernel: where its library is, and its operations as torch sees them. Its source is in `native/`."""

from fillin.attention.kernel.library import available, lanes, library, variants
from fillin.attention.kernel.ops import attend_native, order_of

__all__ = ["attend_native", "available", "lanes", "library", "order_of", "variants"]
