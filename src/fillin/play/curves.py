"""Curves: known points in, mean, bands, whole functions and the attention of each head out."""

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field, field_validator

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.code import code_of
from fillin.play.job_queue import Deadline
from fillin.play.models import CHOICES, Told, model_of, tell
from fillin.play.schema import Asked, Number, Positive, Seed

if TYPE_CHECKING:
    from torch import Tensor

FIFTY, NINETY_FIVE = 0.6744898, 1.959964  # deviations of a normal distribution that hold such a share
router = APIRouter(prefix="/api/curves", tags=["curves"])
Model = Literal["te-tnp", "anp", "convcnp", "gp"]


class Units(Asked):
    """What is 0 and what is 1 to the models, in units of the points: they know x about −2 … 2, y about −1 … 1."""

    x0: Number = 0.0
    x1: Positive = 1.0
    y0: Number = 0.0
    y1: Positive = 1.0


class Curve(Asked):
    """Known points, the model that is asked, and by how much everything is moved (in units of the model's x)."""

    points: Annotated[list[tuple[Number, Number]], Field(max_length=limits.POINTS, examples=[[[-1, 0.5], [0.5, -0.4]]])]
    model: Model = "te-tnp"
    shift: Annotated[float, Field(ge=-limits.SHIFT, le=limits.SHIFT, allow_inf_nan=False)] = 0.0
    units: Units = Units()


class CurveAsked(Curve):
    """… and where: `places` from one end of the `window` to the other, before the shift."""

    window: tuple[Number, Number] = (-2.5, 2.5)
    places: Annotated[int, Field(ge=2, le=limits.PLACES)] = 121
    samples: Annotated[int, Field(ge=0, le=limits.SAMPLES)] = 4
    seed: Seed = 0

    @field_validator("window")
    @classmethod
    def _rises(cls, window: tuple[float, float]) -> tuple[float, float]:
        if not window[0] < window[1]:
            raise ValueError(f"goes from its lower end to its upper one, got {window[0]:g} to {window[1]:g}")
        return window


class AttentionAsked(Curve):
    """… and from which place it is looked, before the shift."""

    at: Number


class CurveTold(BaseModel):
    """Along x: the mean, bands that hold 50 % and 95 %, and whole functions. Where everything was moved, `unmoved` is
    the mean that the model gives without it, and `change` the largest difference."""

    x: list[float]
    mean: list[float]
    low50: list[float]
    high50: list[float]
    low95: list[float]
    high95: list[float]
    samples: list[list[float]]
    unmoved: list[float] | None
    change: float | None
    milliseconds: float


class AttentionTold(BaseModel):
    """For each head the weight of each known point, and what these weights are."""

    heads: list[list[float]]
    what: str


class ModelTold(BaseModel):
    name: Model
    title: str
    weights: str | None
    equivariant: bool
    about: str


@router.get("/models")
def models() -> list[ModelTold]:
    """The models that can be asked."""
    return [
        ModelTold(name=name, title=c.title, weights=c.weights, equivariant=c.equivariant, about=c.about)  # type: ignore[arg-type]
        for name, c in CHOICES.items()
    ]


@router.post("")
async def predict(asked: CurveAsked, request: Request) -> CurveTold:
    """Mean, bands and coherent samples."""
    return await request.app.state.lanes.quick.run(lambda deadline: _predict(asked, deadline))


@router.post("/attention")
async def attention(asked: AttentionAsked, request: Request) -> AttentionTold:
    """Where each head looks from one place."""
    return await request.app.state.lanes.quick.run(lambda deadline: _attention(asked))


@router.post("/code", response_class=PlainTextResponse)
async def code(asked: CurveAsked) -> str:
    """A Python program that computes the same, without this server."""
    return code_of(asked)


def tensors(asked: Curve) -> "tuple[Tensor, Tensor]":
    """Places and values [1 n 1] in the model's units."""
    import torch

    points = torch.tensor(asked.points, dtype=torch.float64).reshape(1, -1, 2)
    units = asked.units
    x, y = (points[..., :1] - units.x0) / units.x1, (points[..., 1:] - units.y0) / units.y1
    if max(x.abs().max(), y.abs().max()) > 1e4 if x.numel() else False:
        raise InputError(
            "points: some lie beyond 10,000 in the model's units; choose units in which they are about one"
        )
    return x.float() + asked.shift, y.float()


def _predict(asked: CurveAsked, deadline: Deadline) -> CurveTold:
    import torch

    start, units = perf_counter(), asked.units
    xc, yc = tensors(asked)
    low, high = ((end - units.x0) / units.x1 for end in asked.window)
    if max(abs(low), abs(high)) > 1e3 or high - low < 1e-6:
        raise InputError(
            "window: it must lie within −1,000 … 1,000 in the model's units, and be wider than a millionth"
        )
    if asked.model == "convcnp" and (extent := _extent(xc, low, high)) > 200:
        raise InputError(f"the grid of a ConvCNP would span {extent:.0f} units, more than 200; bring the points nearer")
    home = torch.linspace(low, high, asked.places).view(1, -1, 1)
    told = tell(asked.model, xc, yc, home + asked.shift, asked.samples, asked.seed)
    deadline()
    unmoved = tell(asked.model, xc - asked.shift, yc, home).mean if asked.shift else None
    x = torch.linspace(*asked.window, asked.places, dtype=torch.float64) + asked.shift * units.x1

    def listed(values: "Tensor") -> list:
        return [round(v, 6) for v in values.tolist()]

    def of_y(values: "Tensor") -> list:
        return listed(values.double() * units.y1 + units.y0)

    def band(width: float) -> list[list[float]]:
        return [of_y(told.mean + sign * width * told.std) for sign in (-1, 1)]

    (low50, high50), (low95, high95) = band(FIFTY), band(NINETY_FIVE)
    return CurveTold(
        x=listed(x), mean=of_y(told.mean), low50=low50, high50=high50, low95=low95, high95=high95,
        samples=[of_y(one) for one in told.functions],
        unmoved=None if unmoved is None else of_y(unmoved), change=_change(told, unmoved, units),
        milliseconds=round(1e3 * (perf_counter() - start), 2),
    )  # fmt: skip


def _extent(xc: "Tensor", low: float, high: float) -> float:
    return max(float(xc.max()), high) - min(float(xc.min()), low) if xc.numel() else high - low


def _change(told: Told, unmoved: "Tensor | None", units: Units) -> float | None:
    return None if unmoved is None else round(float((told.mean - unmoved).abs().max()) * units.y1, 6)


def _attention(asked: AttentionAsked) -> AttentionTold:
    """The weights of the last attention from a target to the known points; of a model that has none, how much its mean
    moves with each point."""
    import torch

    from fillin.attention import record_weights

    xc, yc = tensors(asked)
    at = torch.full((1, 1, 1), (asked.at - asked.units.x0) / asked.units.x1 + asked.shift)
    if not xc.numel():
        return AttentionTold(heads=[], what="nothing is known yet")
    model = model_of(asked.model)
    if asked.model == "gp":
        return _told(model.weights(xc, yc, at), "how much each point counts in the mean: k (K + σ²I)⁻¹")
    if asked.model == "convcnp":
        with torch.enable_grad():
            y = yc.clone().requires_grad_()
            (slopes,) = torch.autograd.grad(model(xc, y, at).mean.sum(), y)
        return _told(slopes[..., 0], "no attention here: how much the mean moves with each point, ∂mean/∂y")
    with record_weights() as seen, torch.inference_mode():
        model(xc, yc, at)
    to_points = [one.weights for one in seen if one.weights.shape[2:] == (1, xc.shape[1]) and one.weights.shape[1] > 1]
    last = to_points[-1]  # what has one head is a mean over the points
    return _told(last[0, :, 0], f"weights of the last attention to the points, {last.shape[1]} heads")


def _told(weights: "Tensor", what: str) -> AttentionTold:
    return AttentionTold(heads=[[round(w, 5) for w in head] for head in weights.tolist()], what=what)
