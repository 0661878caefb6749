"""Python program that reproduces a prediction of the curves tool."""

from typing import TYPE_CHECKING

from fillin.play.models import CURVE_MODELS

if TYPE_CHECKING:
    from fillin.play.curves import CurveRequest

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


def write_program(request: "CurveRequest") -> str:
    """Return the program. Only validated numbers and names of our own are formatted into it."""
    weights, (low, high) = CURVE_MODELS[request.model].weights, request.window
    program = _SETUP.format(
        points=[list(point) for point in request.points], shift=request.shift, low=low, high=high,
        n_targets=request.n_targets, seed=request.seed, **request.units.model_dump(),
        model="ExactGP()" if weights is None else f'fillin.load("{weights}").eval()',
    )  # fmt: skip
    sampler = _SAMPLERS[request.model].format(samples=request.samples)
    if weights is None:
        program = program.replace("import fillin\n", "from fillin.play.gp import ExactGP\n")
    if not request.samples:
        return program.replace(f"    torch.manual_seed({request.seed})\n", "") + _OUTPUT
    if "sample_curve" in sampler:
        program = program.replace("import fillin\n", "import fillin\nfrom fillin.sampling import sample_curve\n")
    return f"{program}    functions = {sampler}\n{_OUTPUT}{_PRINT_SAMPLES}"
