"""Curves tool: from context points to the mean, prediction intervals, function samples and attention weights."""

from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field, field_validator

from fillin import pretrained
from fillin.errors import InputError, choose
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.limits import Coordinate, PositiveScale, Seed, StrictRequest

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

router = APIRouter(prefix="/api/curves", tags=["curves"])
Point = tuple[Coordinate, Coordinate]
CurveModelName = Literal["te-tnp", "anp", "convcnp", "gp"]
_Z50, _Z95 = 0.6744898, 1.959964  # half widths of central normal intervals, in standard deviations
_MAX_MODEL_COORDINATE = 1e4  # in the model's units
_MAX_GRID_EXTENT = 200  # of a ConvCNP, in the model's units


@dataclass(frozen=True)
class CurveModel:
    """Model that the page offers; `weights` names pretrained weights, or is None for the Gaussian process."""

    name: CurveModelName
    title: str
    weights: str | None
    equivariant: bool
    description: str


CURVE_MODELS = {model.name: model for model in (
    CurveModel(
        "te-tnp", "TE-TNP", "te-tnp-kernels", True,
        "A transformer whose attention depends on displacements between locations, never on the locations themselves.",
    ),
    CurveModel(
        "anp", "ANP", "anp-kernels", False,
        "The attentive neural process. Its tokens contain absolute locations; each latent sample gives one function.",
    ),
    CurveModel(
        "convcnp", "ConvCNP", "convcnp-kernels", True,
        "Convolutions on a grid that moves with the data. The model has no attention.",
    ),
    CurveModel(
        "gp", "Exact GP", None, True,
        "A Gaussian process with an RBF kernel; a grid search finds its length scale, amplitude and noise. No network.",
    ),
)}  # fmt: skip


class CurveUnits(StrictRequest):
    """Origin and unit of the model's x and y. The models were trained on x in −2 … 2 and y in about −1 … 1."""

    x0: Coordinate = 0.0
    x1: PositiveScale = 1.0
    y0: Coordinate = 0.0
    y1: PositiveScale = 1.0


class CurveContext(StrictRequest):
    """Context points, the model, and a shift of all locations in the model's units."""

    points: Annotated[list[Point], Field(max_length=limits.MAX_CURVE_POINTS, examples=[[[-1, 0.5], [0.5, -0.4]]])]
    model: CurveModelName = "te-tnp"
    shift: Annotated[float, Field(ge=-limits.MAX_SHIFT, le=limits.MAX_SHIFT, allow_inf_nan=False)] = 0.0
    units: CurveUnits = CurveUnits()


class CurveRequest(CurveContext):
    """Prediction at `n_targets` evenly spaced locations of the `window`, which is given before the shift."""

    window: tuple[Coordinate, Coordinate] = (-2.5, 2.5)
    n_targets: Annotated[int, Field(ge=2, le=limits.MAX_CURVE_TARGETS)] = 121
    samples: Annotated[int, Field(ge=0, le=limits.MAX_FUNCTION_SAMPLES)] = 4
    seed: Seed = 0

    @field_validator("window")
    @classmethod
    def _is_increasing(cls, window: tuple[float, float]) -> tuple[float, float]:
        if not window[0] < window[1]:
            raise ValueError(f"the lower end must be below the upper end, got {window[0]:g} and {window[1]:g}")
        return window


class CurveAttentionRequest(CurveContext):
    """Attention weights of the target `at`, a location before the shift."""

    at: Coordinate


class CurveResponse(BaseModel):
    """Predictive mean, 50 % and 95 % prediction intervals and function samples at x. With a shift, `unshifted` is the
    mean without it, and `max_change` the largest difference between the two means."""

    x: list[float]
    mean: list[float]
    low50: list[float]
    high50: list[float]
    low95: list[float]
    high95: list[float]
    samples: list[list[float]]
    unshifted: list[float] | None
    max_change: float | None
    milliseconds: float


class CurveAttentionResponse(BaseModel):
    """Weight of each context point for each head, and a description of these weights."""

    heads: list[list[float]]
    description: str


@router.get("/models")
def models() -> list[CurveModel]:
    """List the models."""
    return list(CURVE_MODELS.values())


@router.post("")
async def predict(curve: CurveRequest, request: Request) -> CurveResponse:
    """Predict the mean, prediction intervals and function samples."""
    return await request.app.state.queues.interactive.run(lambda deadline: _predict(curve, deadline))


@router.post("/attention")
async def attention(curve: CurveAttentionRequest, request: Request) -> CurveAttentionResponse:
    """Return the attention weights of one target."""
    return await request.app.state.queues.interactive.run(lambda deadline: _attention(curve))


def check_weights(names: list[str]) -> None:
    """Raise an error unless all of these weights are installed."""
    missing = sorted({*names} - {*pretrained.names()})
    if missing:
        raise InputError(
            f"pretrained weights are missing: {', '.join(missing)}; they come with the package, so reinstall it: "
            "pip install --force-reinstall 'fillin[play]'"
        )


@cache
def load_curve_model(name: str) -> Any:
    """Return a model of `CURVE_MODELS`, loaded once."""
    weights = CURVE_MODELS[choose("model", name, CURVE_MODELS)].weights
    if weights is None:
        from fillin.play.gp import ExactGP

        return ExactGP()
    from fillin.models import load

    check_weights([weights])
    return load(weights).eval()


def warm_up() -> None:
    """Load every model and run it once, so that no request waits for that."""
    import torch

    x = torch.linspace(-1, 1, 7).view(1, 7, 1)
    for name in CURVE_MODELS:
        predict_curve(name, x[:, :1], x[:, :1], x, samples=1)


def predict_curve(
    name: str, xc: "Tensor", yc: "Tensor", xt: "Tensor", samples: int = 0, seed: int = 0
) -> "tuple[Float[Tensor, 'nt'], Float[Tensor, 'nt'], Float[Tensor, 'n nt']]":
    """Predict the mean and standard deviation at xt, and function samples, which vary smoothly with the context."""
    import torch

    from fillin.heads import LatentMixture
    from fillin.sampling import sample_curve

    model = load_curve_model(name)
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        prediction = model(xc, yc, xt)
        torch.manual_seed(seed)
        if not samples:
            functions = xt.new_empty(0, 1, xt.shape[1], 1)
        elif isinstance(prediction, LatentMixture):
            functions = prediction.given.mean[:samples]  # the noise-free function of each latent
        elif CURVE_MODELS[name].weights is None:
            functions = model.sample(samples, xc, yc, xt)
        else:
            functions = sample_curve(model, xc, yc, xt, samples, prediction=prediction)
        return prediction.mean[0, :, 0], prediction.stddev[0, :, 0], functions[:, 0, :, 0]


def _context_tensors(curve: CurveContext) -> "tuple[Tensor, Tensor]":
    """Locations and values [1 n 1] in the model's units."""
    import torch

    points, units = torch.tensor(curve.points, dtype=torch.float64).reshape(1, -1, 2), curve.units
    x, y = (points[..., :1] - units.x0) / units.x1, (points[..., 1:] - units.y0) / units.y1
    if x.numel() and max(x.abs().max(), y.abs().max()) > _MAX_MODEL_COORDINATE:
        raise InputError(
            f"points: coordinates exceed {_MAX_MODEL_COORDINATE:,.0f} in the model's units; choose units in which they "
            "are of order one"
        )
    return x.float() + curve.shift, y.float()


def _predict(curve: CurveRequest, deadline: Deadline) -> CurveResponse:
    import torch

    start, units = perf_counter(), curve.units
    xc, yc = _context_tensors(curve)
    low, high = ((end - units.x0) / units.x1 for end in curve.window)
    if max(abs(low), abs(high)) > 1e3 or high - low < 1e-6:
        raise InputError("window: in the model's units it must lie within −1,000 … 1,000 and be wider than 10⁻⁶")
    locations = [low, high, *xc.flatten().tolist()]
    if curve.model == "convcnp" and (extent := max(locations) - min(locations)) > _MAX_GRID_EXTENT:
        raise InputError(
            f"points: the grid of the ConvCNP would span {extent:.0f} of the model's units, more than "
            f"{_MAX_GRID_EXTENT}; move the points closer together"
        )
    xt = torch.linspace(low, high, curve.n_targets).view(1, -1, 1)
    mean, std, samples = predict_curve(curve.model, xc, yc, xt + curve.shift, curve.samples, curve.seed)
    deadline()
    unshifted = max_change = None
    if curve.shift:
        unshifted, _, _ = predict_curve(curve.model, xc - curve.shift, yc, xt)
        max_change = round(float((mean - unshifted).abs().max()) * units.y1, 6)
    x = torch.linspace(*curve.window, curve.n_targets, dtype=torch.float64) + curve.shift * units.x1

    def in_y_units(values: "Tensor") -> list[float]:
        return [round(v, 6) for v in (values.double() * units.y1 + units.y0).tolist()]

    return CurveResponse(
        x=[round(v, 6) for v in x.tolist()], mean=in_y_units(mean),
        low50=in_y_units(mean - _Z50 * std), high50=in_y_units(mean + _Z50 * std),
        low95=in_y_units(mean - _Z95 * std), high95=in_y_units(mean + _Z95 * std),
        samples=[in_y_units(sample) for sample in samples], max_change=max_change,
        unshifted=None if unshifted is None else in_y_units(unshifted),
        milliseconds=round(1e3 * (perf_counter() - start), 2),
    )  # fmt: skip


def _attention(curve: CurveAttentionRequest) -> CurveAttentionResponse:
    """Weights of the last attention to the context; without attention, the weights or derivatives of the mean."""
    import torch

    from fillin.attention import record_weights

    xc, yc = _context_tensors(curve)
    xt = torch.full((1, 1, 1), (curve.at - curve.units.x0) / curve.units.x1 + curve.shift)
    if not xc.numel():
        return CurveAttentionResponse(heads=[], description="there are no context points yet")
    model = load_curve_model(curve.model)
    if curve.model == "gp":
        weights, description = model.weights(xc, yc, xt), "weight of each point in the mean: k (K + σ²I)⁻¹"
    elif curve.model == "convcnp":
        with torch.enable_grad():
            y = yc.clone().requires_grad_()
            weights = torch.autograd.grad(model(xc, y, xt).mean.sum(), y)[0][..., 0]
        description = "no attention: derivative of the mean by each point, ∂mean/∂y"
    else:
        with record_weights() as records, torch.inference_mode():
            model(xc, yc, xt)
        # an attention with a single head is a mean over the points
        layers = [r.weights for r in records if r.weights.shape[2:] == (1, xc.shape[1]) and r.weights.shape[1] > 1]
        weights = layers[-1][0, :, 0]
        description = f"weights of the last attention to the points, {len(weights)} heads"
    heads = [[round(w, 5) for w in head] for head in weights.tolist()]
    return CurveAttentionResponse(heads=heads, description=description)


_SETUP = '''\
"""Prediction of fillin play. Run: pip install fillin, then python curve.py > curve.csv"""

import csv
import sys

import torch

import fillin

points = {points}
x0, x1, y0, y1 = {x0!r}, {x1!r}, {y0!r}, {y1!r}  # origin and unit of the model's x and y
shift = {shift!r}  # of all locations, in the model's units

context = torch.tensor(points, dtype=torch.float64).reshape(1, -1, 2)
xc = ((context[..., :1] - x0) / x1).float() + shift
yc = ((context[..., 1:] - y0) / y1).float()
xt = torch.linspace(({low!r} - x0) / x1, ({high!r} - x0) / x1, {n_targets}).view(1, -1, 1) + shift

model = {model}
with torch.inference_mode():
    prediction = model(xc, yc, xt)
    torch.manual_seed({seed})
'''
_SAMPLERS = {
    "te-tnp": "sample_curve(model, xc, yc, xt, {samples})",
    "convcnp": "sample_curve(model, xc, yc, xt, {samples})",
    "anp": "prediction.given.mean[:{samples}]  # one noise-free function per latent sample",
    "gp": "model.sample({samples}, xc, yc, xt)",
}
_OUTPUT = """\
mean, std = (t[0, :, 0].double() for t in (prediction.mean, prediction.stddev))

table = csv.writer(sys.stdout)
table.writerow(["x", "mean", "low50", "high50", "low95", "high95"])
for x, m, s in zip(xt[0, :, 0].double().tolist(), mean.tolist(), std.tolist()):
    bounds = [m + z * s for z in (0.0, -0.6744898, 0.6744898, -1.959964, 1.959964)]
    table.writerow([x * x1 + x0, *(y * y1 + y0 for y in bounds)])
"""
_PRINT_SAMPLES = """\
for y in functions[:, 0, :, 0].double().tolist():  # one function sample per line
    print("# sample", *(round(v * y1 + y0, 6) for v in y), file=sys.stderr)
"""


@router.post("/code", response_class=PlainTextResponse)
async def code(curve: CurveRequest) -> str:
    """Return a Python program that computes the same prediction without this server."""
    weights, (low, high) = CURVE_MODELS[curve.model].weights, curve.window
    program = _SETUP.format(  # with validated numbers and names of our own, and nothing else
        points=[list(point) for point in curve.points], shift=curve.shift, low=low, high=high,
        n_targets=curve.n_targets, seed=curve.seed, **curve.units.model_dump(),
        model="ExactGP()" if weights is None else f'fillin.load("{weights}").eval()',
    )  # fmt: skip
    sampler = _SAMPLERS[curve.model].format(samples=curve.samples)
    if weights is None:
        program = program.replace("import fillin\n", "from fillin.play.gp import ExactGP\n")
    if not curve.samples:
        return program.replace(f"    torch.manual_seed({curve.seed})\n", "") + _OUTPUT
    if "sample_curve" in sampler:
        program = program.replace("import fillin\n", "import fillin\nfrom fillin.sampling import sample_curve\n")
    return f"{program}    functions = {sampler}\n{_OUTPUT}{_PRINT_SAMPLES}"
