"""Access to the compiled kernel: its shared library, and its functions as torch operations. The source is `native/`."""

from fillin.attention.kernel.library import MAX_FORMS, find_builds, is_available, lanes, load_library, use_build
from fillin.attention.kernel.ops import (
    FORMS,
    DifferentiableInputs,
    FixedInputs,
    KernelSettings,
    run_attention,
    spatial_order,
)

__all__ = [
    "FORMS", "MAX_FORMS", "DifferentiableInputs", "FixedInputs", "KernelSettings", "find_builds", "is_available",
    "lanes", "load_library", "run_attention", "spatial_order", "use_build",
]  # fmt: skip
