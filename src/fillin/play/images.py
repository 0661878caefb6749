"""Images: some pixels in, the whole picture out, with how surely, whole pictures that may be, and where heads look."""

import base64
import io
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from numpy import ndarray
from pydantic import BaseModel, Field, model_validator

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.schema import Asked, Seed

if TYPE_CHECKING:
    from fillin.filling.image.read import Part

router = APIRouter(prefix="/api/images", tags=["images"])
WEIGHTS = {"surface": "surface", "digits": "te-tnp-digits"}  # what tells a picture, and the weights of it that ship
_QUICK = 1024  # cells of a completion that follows a hand
_SHOWN = 32  # pixels along the longer side of the photographs that come with scikit-learn
Side = Annotated[int, Field(ge=2, le=limits.SIDE)]
Byte = Annotated[int, Field(ge=0, le=255)]
Known = Annotated[int, Field(ge=0, lt=limits.SIDE**2)]
Model = Literal["surface", "digits"]


class Pixels(Asked):
    """A picture: row by row, its channels together, 0 … 255."""

    height: Side
    width: Side
    channels: Literal[1, 3]
    pixels: Annotated[list[Byte], Field(max_length=3 * limits.SIDE**2)]

    @model_validator(mode="after")
    def _whole(self) -> "Pixels":
        wanted = self.height * self.width * self.channels
        if len(self.pixels) != wanted:
            raise ValueError(f"has {len(self.pixels)} numbers; height × width × channels are {wanted}")
        return self

    @property
    def array(self) -> ndarray:
        return np.array(self.pixels, np.uint8).reshape(self.height, self.width, self.channels)


class PartAsked(Asked):
    """A picture, and what is known of it: few pixels, its upper half, a coarse picture of it, or the `painted` pixels
    (their numbers, row by row). `model` is who tells the rest: a network that knows surfaces, or one that knows
    handwritten digits, which looks at all pixels at once and so takes pictures of at most 32 × 32."""

    picture: Pixels
    pattern: Literal["few", "half", "coarse", "painted"] = "few"
    painted: Annotated[list[Known], Field(max_length=limits.SIDE**2, default_factory=list)]
    model: Model = "surface"
    seed: Seed = 0

    @model_validator(mode="after")
    def _fits(self) -> "PartAsked":
        side = max(self.picture.height, self.picture.width)
        if self.model == "digits" and side > limits.DIGITS:
            most = limits.DIGITS
            raise ValueError(f"the model digits takes pictures of at most {most} × {most} pixels; ask surface")
        return self


class CompleteAsked(PartAsked):
    """… and what is wanted: `scale` × `scale` cells for each pixel, and so many whole pictures."""

    scale: Literal[1, 2, 4] = 1
    samples: Annotated[int, Field(ge=0, le=limits.PICTURES)] = 3


class HeadsAsked(PartAsked):
    """… and the pixel from which it is looked."""

    row: Annotated[int, Field(ge=0, lt=limits.SIDE)]
    column: Annotated[int, Field(ge=0, lt=limits.SIDE)]


class Picture(BaseModel):
    """A picture that can be completed, and the model that knows the like of it."""

    name: str
    title: str
    picture: Pixels
    model: Model = "surface"
    note: str = ""


class Completed(BaseModel):
    """Pictures as PNG in data URLs: what is known, what is expected, its deviation (from dark, none, to bright, that of
    `largest`), samples. `painted` are the known pixels, none where they are no pixels."""

    known: str
    mean: str
    deviation: str
    largest: float
    samples: list[str]
    painted: list[int]


class Heads(BaseModel):
    """The known points (row, column) that a pixel is told from, and for each layer the weight of each head on each."""

    points: list[tuple[float, float]]
    layers: list[list[list[float]]]


@router.get("")
async def examples() -> list[Picture]:
    """The pictures that are there: digits and two photographs that come with scikit-learn."""
    return _examples()


@router.post(
    "/read",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/png", "image/jpeg")
            },
        }
    },
)
async def read(request: Request) -> Picture:
    """A PNG or JPEG as pixels, no more than 64 along a side. It is decoded in memory and not kept."""
    body = await request.body()
    return await request.app.state.lanes.slow.run(lambda deadline: _read(body))


@router.post("/complete")
async def complete(asked: CompleteAsked, request: Request) -> Completed:
    """The picture completed."""
    lanes = request.app.state.lanes
    cells = asked.picture.height * asked.picture.width * asked.scale**2
    lane = lanes.quick if cells <= _QUICK else lanes.slow
    return await lane.run(lambda deadline: _complete(asked, deadline), request.is_disconnected)


@router.post("/attention")
async def attention(asked: HeadsAsked, request: Request) -> Heads:
    """Where each head of each layer looks from one pixel."""
    return await request.app.state.lanes.quick.run(lambda deadline: _heads(asked))


@cache
def _examples() -> list[Picture]:
    """Of each digit the first that no network has learnt from, and two photographs."""
    from sklearn.datasets import load_sample_image

    from fillin.data.images import read_images

    digits, made = read_images("digits", "test"), []
    labels = np.asarray(digits.labels)
    for label in range(10):
        pixels = _pixels(digits.pixels[labels == label][0])
        made.append(Picture(name=f"digit-{label}", title=f"Digit {label}", picture=pixels, model="digits"))
    for name in ("flower", "china"):
        small = _smaller(load_sample_image(f"{name}.jpg"), _SHOWN)
        made.append(Picture(name=name, title={"flower": "Flower", "china": "Temple"}[name], picture=_pixels(small)))
    return made


def _pixels(image: ndarray) -> Pixels:
    height, width, channels = image.shape
    return Pixels(height=height, width=width, channels=channels, pixels=image.astype(int).ravel().tolist())


def _smaller(image: ndarray, side: int) -> ndarray:
    """At most so many pixels along the longer side, and two along the shorter."""
    from PIL import Image

    height, width = image.shape[:2]
    share = min(1.0, side / max(height, width))
    size = max(2, round(width * share)), max(2, round(height * share))
    grey = image.shape[2] == 1
    shrunk = Image.fromarray(image[..., 0] if grey else image).resize(size, Image.Resampling.BOX)
    return np.asarray(shrunk)[..., None] if grey else np.asarray(shrunk)


def _read(body: bytes) -> Picture:
    from fillin.data.images.image_files import read_picture

    image = read_picture(io.BytesIO(body), "the picture", limits.PIXELS)
    small = _smaller(image, limits.SIDE)
    (h, w), (height, width) = image.shape[:2], small.shape[:2]
    note = "" if (h, w) == (height, width) else f"made smaller: {w} × {h} → {width} × {height} pixels"
    return Picture(name="dropped", title="Your picture", picture=_pixels(small), note=note)


def _part(asked: PartAsked) -> "Part":
    from fillin.data.images import Pattern
    from fillin.filling.image.read import by_mask, by_pattern

    picture = asked.picture.array
    h, w = picture.shape[:2]
    if asked.pattern == "painted":
        mask = np.zeros(h * w, bool)
        if max(asked.painted, default=0) >= h * w:
            raise InputError(f"painted: the picture has pixels 0 … {h * w - 1}")
        mask[asked.painted] = True
        return by_mask(picture, mask.reshape(h, w), True, (), "painted")
    coarse = max(2, min(h, w) // 8)
    patterns = {"few": Pattern("random", 0.3 if h * w <= 100 else 0.1), "half": Pattern("top")}
    pattern = patterns.get(asked.pattern, Pattern("coarse", coarse))
    return by_pattern(picture, pattern, asked.seed, np.zeros((h, w), bool))


@cache
def _model(name: str) -> Any:
    from fillin.filling.image.weights import completer

    return completer(WEIGHTS[name])


def _complete(asked: CompleteAsked, deadline: Deadline) -> Completed:
    import matplotlib as mpl

    from fillin.filling.image.api import complete_points
    from fillin.filling.image.figures import bytes_of, known_pixels, uncertainty

    part, model = _part(asked), _model(asked.model)
    done = complete_points(
        part.x, part.y, part.shape, part.mask, asked.scale, asked.samples, model, asked.seed, deadline
    )
    std = uncertainty(done)
    largest = float(std.max())
    coloured = mpl.colormaps["viridis"](std / max(largest, 1e-9))[..., :3]
    return Completed(
        known=_png(bytes_of(known_pixels(part))), mean=_png(bytes_of(done.mean)), deviation=_png(bytes_of(coloured)),
        largest=round(largest, 4), samples=[_png(bytes_of(one)) for one in done.samples],
        painted=[] if part.mask is None else np.flatnonzero(part.mask).tolist(),
    )  # fmt: skip


def _heads(asked: HeadsAsked) -> Heads:
    from fillin.filling.image.attention_figure import heads_of

    part = _part(asked)
    h, w = part.shape
    if asked.row >= h or asked.column >= w:
        raise InputError(f"row, column: the picture has rows 0 … {h - 1} and columns 0 … {w - 1}")
    x, layers = heads_of(_model(asked.model), part, (asked.row, asked.column))
    return Heads(
        points=[(round(row, 3), round(column, 3)) for row, column in x.tolist()],
        layers=[np.round(layer.astype(float), 5).tolist() for layer in layers],
    )


def _png(image: ndarray) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
