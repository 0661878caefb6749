"""Images tool: from observed pixels to the completed image, its uncertainty, samples and attention weights."""

import base64
import io
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from numpy import ndarray
from PIL import Image
from pydantic import BaseModel, Field, model_validator

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.limits import Seed, StrictRequest, describe_upload

if TYPE_CHECKING:
    from fillin.filling.image.read import PartialImage

router = APIRouter(prefix="/api/images", tags=["images"])
WEIGHTS = {"sheet-2d": "sheet-2d", "digits": "te-tnp-digits"}  # the pretrained weights of each model
_MAX_INTERACTIVE_CELLS = 1024  # of a completion that is computed while the user paints
_PHOTOGRAPH_SIDE = 32  # pixels along the longer side of scikit-learn's photographs
Side = Annotated[int, Field(ge=2, le=limits.MAX_IMAGE_SIDE)]
Byte = Annotated[int, Field(ge=0, le=255)]
PixelIndex = Annotated[int, Field(ge=0, lt=limits.MAX_IMAGE_SIDE**2)]
ImageModelName = Literal["sheet-2d", "digits"]


class ImagePixels(StrictRequest):
    """Pixels 0 … 255 of an image, row by row, with the channels of a pixel together."""

    height: Side
    width: Side
    channels: Literal[1, 3]
    pixels: Annotated[list[Byte], Field(max_length=3 * limits.MAX_IMAGE_SIDE**2)]

    @model_validator(mode="after")
    def _is_complete(self) -> "ImagePixels":
        size = self.height * self.width * self.channels
        if len(self.pixels) != size:
            raise ValueError(f"pixels has {len(self.pixels)} numbers, but height × width × channels is {size}")
        return self

    @property
    def array(self) -> ndarray:
        return np.array(self.pixels, np.uint8).reshape(self.height, self.width, self.channels)


class ImageContext(StrictRequest):
    """Image and its observed part: a few random pixels, the upper half, a coarse version, or the `observed_pixels`
    (indices, row by row) if the pattern is "painted". The model "sheet-2d" was trained on random sheets, "digits" on
    handwritten digits; the latter attends between all pixels, so images are limited to 32 × 32."""

    image: ImagePixels
    pattern: Literal["few", "half", "coarse", "painted"] = "few"
    observed_pixels: Annotated[list[PixelIndex], Field(max_length=limits.MAX_IMAGE_SIDE**2, default_factory=list)]
    model: ImageModelName = "sheet-2d"
    seed: Seed = 0

    @model_validator(mode="after")
    def _fits_the_model(self) -> "ImageContext":
        if self.model == "digits" and max(self.image.height, self.image.width) > limits.MAX_DIGITS_SIDE:
            size = f"{limits.MAX_DIGITS_SIDE} × {limits.MAX_DIGITS_SIDE}"
            raise ValueError(f"the model digits takes images of at most {size} pixels; choose the model sheet-2d")
        return self


class CompletionRequest(ImageContext):
    """Completion with `scale` × `scale` cells per pixel, and a number of samples."""

    scale: Literal[1, 2, 4] = 1
    samples: Annotated[int, Field(ge=0, le=limits.MAX_IMAGE_SAMPLES)] = 3


class ImageAttentionRequest(ImageContext):
    """Attention weights of one target pixel."""

    row: Annotated[int, Field(ge=0, lt=limits.MAX_IMAGE_SIDE)]
    column: Annotated[int, Field(ge=0, lt=limits.MAX_IMAGE_SIDE)]


class ImageResponse(BaseModel):
    """Image that can be completed, and the model suggested for it."""

    name: str
    title: str
    image: ImagePixels
    model: ImageModelName = "sheet-2d"
    note: str = ""


class CompletionResponse(BaseModel):
    """PNG images as data URLs: observed pixels, predictive mean, standard deviation (dark is 0, bright is `max_std`)
    and samples. `observed_pixels` is empty for a coarse context, which has no pixels of the image."""

    observed: str
    mean: str
    std: str
    max_std: float
    samples: list[str]
    observed_pixels: list[int]


class ImageAttentionResponse(BaseModel):
    """Context points (row, column) of a pixel, and for each layer the weight of each head on each of them."""

    points: list[tuple[float, float]]
    layers: list[list[list[float]]]


@router.post("/read", openapi_extra=describe_upload({"format": "binary"}, "image/png", "image/jpeg"))
async def read(request: Request) -> ImageResponse:
    """Decode a PNG or JPEG in memory, downsampled to at most 64 pixels along a side. Nothing is stored."""
    body = await request.body()
    return await request.app.state.queues.background.run(lambda deadline: _read(body))


@router.post("/complete")
async def complete(completion: CompletionRequest, request: Request) -> CompletionResponse:
    """Complete an image."""
    queues = request.app.state.queues
    cells = completion.image.height * completion.image.width * completion.scale**2
    queue = queues.interactive if cells <= _MAX_INTERACTIVE_CELLS else queues.background
    return await queue.run(lambda deadline: _complete(completion, deadline), request.is_disconnected)


@router.post("/attention")
async def attention(target: ImageAttentionRequest, request: Request) -> ImageAttentionResponse:
    """Return the attention weights of one pixel, for each head of each layer."""
    return await request.app.state.queues.interactive.run(lambda deadline: _attention(target))


@router.get("")
@cache
def examples() -> list[ImageResponse]:
    """List the example images: the first held-out image of each digit, and two photographs of scikit-learn."""
    from sklearn.datasets import load_sample_image

    from fillin.data.images import read_images

    digits, images = read_images("digits", "test"), []
    labels = np.asarray(digits.labels)
    for label in range(10):
        pixels = _to_pixels(digits.pixels[labels == label][0])
        images.append(ImageResponse(name=f"digit-{label}", title=f"Digit {label}", image=pixels, model="digits"))
    for name, title in {"flower": "Flower", "china": "Temple"}.items():
        small = _downsample(load_sample_image(f"{name}.jpg"), _PHOTOGRAPH_SIDE)
        images.append(ImageResponse(name=name, title=title, image=_to_pixels(small)))
    return images


def _to_pixels(image: ndarray) -> ImagePixels:
    height, width, channels = image.shape
    return ImagePixels(height=height, width=width, channels=channels, pixels=image.astype(int).ravel().tolist())


def _downsample(image: ndarray, side: int) -> ndarray:
    """Shrink to at most `side` pixels along the longer side, but no fewer than two along the shorter."""
    height, width = image.shape[:2]
    factor = min(1.0, side / max(height, width))
    size = max(2, round(width * factor)), max(2, round(height * factor))
    grey = image.shape[2] == 1
    small = np.asarray(Image.fromarray(image[..., 0] if grey else image).resize(size, Image.Resampling.BOX))
    return small[..., None] if grey else small


def _read(body: bytes) -> ImageResponse:
    from fillin.data.images.datasets import read_image

    image = read_image(io.BytesIO(body), "the image", limits.MAX_UPLOADED_PIXELS)
    small = _downsample(image, limits.MAX_IMAGE_SIDE)
    (h, w), (height, width) = image.shape[:2], small.shape[:2]
    note = "" if (h, w) == (height, width) else f"downsampled: {w} × {h} → {width} × {height} pixels"
    return ImageResponse(name="dropped", title="Your image", image=_to_pixels(small), note=note)


def _observed_part(context: ImageContext) -> "PartialImage":
    from fillin.data.images import Pattern
    from fillin.filling.image.read import observe_mask, observe_pattern

    image = context.image.array
    h, w = image.shape[:2]
    if context.pattern == "painted":
        if not context.observed_pixels or max(context.observed_pixels) >= h * w:
            raise InputError(f"observed_pixels: give at least one of the pixels 0 … {h * w - 1}")
        mask = np.zeros(h * w, bool)
        mask[context.observed_pixels] = True
        return observe_mask(image, mask.reshape(h, w), True, (), "observed_pixels")
    pattern = {
        "few": Pattern("random", 0.3 if h * w <= 100 else 0.1),
        "half": Pattern("top"),
        "coarse": Pattern("coarse", max(2, min(h, w) // 8)),
    }[context.pattern]
    return observe_pattern(image, pattern, context.seed, np.zeros((h, w), bool))


@cache
def _load_image_model(name: str) -> Any:
    from fillin.filling.image.plan import load_completer

    return load_completer(WEIGHTS[name])


def _complete(completion: CompletionRequest, deadline: Deadline) -> CompletionResponse:
    import matplotlib as mpl

    from fillin.filling.image.completion import complete_image
    from fillin.filling.image.figures import pixel_std, show_observed, to_bytes

    part, model = _observed_part(completion), _load_image_model(completion.model)
    completed = complete_image(part, model, completion.scale, completion.samples, completion.seed, deadline)
    std = pixel_std(completed)
    max_std = float(std.max())
    std_colours = mpl.colormaps["viridis"](std / max(max_std, 1e-9))[..., :3]
    return CompletionResponse(
        observed=_png(to_bytes(show_observed(part))), mean=_png(to_bytes(completed.mean)),
        std=_png(to_bytes(std_colours)), max_std=round(max_std, 4),
        samples=[_png(to_bytes(sample)) for sample in completed.samples],
        observed_pixels=[] if part.mask is None else np.flatnonzero(part.mask).tolist(),
    )  # fmt: skip


def _attention(target: ImageAttentionRequest) -> ImageAttentionResponse:
    from fillin.filling.image.figures import attention_weights

    part = _observed_part(target)
    h, w = part.shape
    if target.row >= h or target.column >= w:
        raise InputError(f"row, column: the image has rows 0 … {h - 1} and columns 0 … {w - 1}")
    points, layers = attention_weights(_load_image_model(target.model), part, (target.row, target.column))
    return ImageAttentionResponse(
        points=[(round(row, 3), round(column, 3)) for row, column in points.tolist()],
        layers=[np.round(layer.astype(float), 5).tolist() for layer in layers],
    )


def _png(image: ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
