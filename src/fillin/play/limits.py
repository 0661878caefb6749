"""Bounds of `fillin play`: sizes of requests, types of their fields, queue lengths and time limits."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MEGABYTE = 1_000_000  # bytes
MAX_COORDINATE = 1e12

MAX_CURVE_POINTS = 200
MAX_CURVE_TARGETS = 257
MAX_FUNCTION_SAMPLES = 8
MAX_SHIFT = 100.0  # in units of the model's x

MAX_IMAGE_SIDE = 64  # pixels
MAX_DIGITS_SIDE = 32  # pixels; the digits model attends between all of them (images.js repeats this number)
MAX_UPLOADED_PIXELS = 1 << 25  # before the image is downsampled
MAX_IMAGE_SAMPLES = 4

MAX_TABLE_ROWS, MAX_TABLE_COLUMNS, MAX_TABLE_CELLS = 1_000, 30, 10_000

MAX_SPAN_POINTS = 20_000
MAX_KERNEL_PAIRS = 20_000_000  # pairs inside the window; beyond, the cost is extrapolated
MAX_BIAS_POINTS = 1_200  # a window as a bias stores every pair of every head several times
MAX_FUSED_POINTS = 4_000


@dataclass(frozen=True)
class Limits:
    """Bounds that a server can set: bytes and seconds of a request, queue lengths, cached tables."""

    body_bytes: int = 2 * MEGABYTE
    upload_bytes: int = 8 * MEGABYTE  # of an image or a table
    header_seconds: float = 60.0  # to receive the headers of a request
    body_seconds: float = 30.0  # to receive its body
    keep_alive_seconds: int = 30
    queue_length: int = 32
    interactive_seconds: float = 10.0  # from the arrival of a request to its response
    background_seconds: float = 60.0
    cached_tables: int = 4


Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE, allow_inf_nan=False)]
PositiveScale = Annotated[float, Field(ge=1 / MAX_COORDINATE, le=MAX_COORDINATE, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


def describe_upload(schema: dict[str, Any], *types: str) -> dict[str, Any]:
    """OpenAPI description of an endpoint that reads its body itself: text or bytes of the given content types."""
    content = {name: {"schema": {"type": "string", **schema}} for name in types}
    return {"requestBody": {"required": True, "content": content}}


class StrictRequest(BaseModel):
    """Request body in which an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")
