"""Back ends: five ways to compute the same attention. `reference` defines the result; tests hold the others to it."""

from fillin.attention.backends.flex import FlexBackend
from fillin.attention.backends.fused import FusedBackend
from fillin.attention.backends.native import NativeBackend
from fillin.attention.backends.reference import ReferenceBackend
from fillin.attention.backends.streamed import StreamedBackend
from fillin.attention.problem import Backend

_streamed = StreamedBackend()
BACKENDS: dict[str, Backend] = {
    "reference": ReferenceBackend(), "fused": FusedBackend(), "streamed": _streamed,
    "native": NativeBackend(fallback=_streamed), "flex": FlexBackend(),
}  # fmt: skip
