"""The Python program that computes what the page shows."""

from typing import TYPE_CHECKING

from fillin.play.models import CHOICES

if TYPE_CHECKING:
    from fillin.play.curves import CurveAsked

_HEAD = '''\
"""What fillin play showed, computed again: pip install fillin, then python curve.py > curve.csv"""

import csv
import sys

import torch

import fillin

points = {points}
x0, x1, y0, y1 = {x0!r}, {x1!r}, {y0!r}, {y1!r}  # what is 0 and what is 1 to the model, in the units of the points
shift = {shift!r}  # by which everything is moved, in units of the model

known = torch.tensor(points, dtype=torch.float64).reshape(1, -1, 2)
xc = ((known[..., :1] - x0) / x1).float() + shift
yc = ((known[..., 1:] - y0) / y1).float()
places = torch.linspace(({low!r} - x0) / x1, ({high!r} - x0) / x1, {places}).view(1, -1, 1)
xt = places + shift

model = {model}
with torch.inference_mode():
    prediction = model(xc, yc, xt)
    torch.manual_seed({seed})
'''
_DRAWS = {
    "te-tnp": "sample_curve(model, xc, yc, xt, {samples})",
    "convcnp": "sample_curve(model, xc, yc, xt, {samples})",
    "anp": "prediction.given.mean[:{samples}]  # one for each latent, without the noise",
    "gp": "model.draw({samples}, xc, yc, xt)",
}
_TAIL = """\
mean, std = (t[0, :, 0].double() for t in (prediction.mean, prediction.stddev))

table = csv.writer(sys.stdout)
table.writerow(["x", "mean", "low50", "high50", "low95", "high95"])
for x, m, s in zip(xt[0, :, 0].double().tolist(), mean.tolist(), std.tolist()):
    band = [m + k * s for k in (0.0, -0.6744898, 0.6744898, -1.959964, 1.959964)]
    table.writerow([x * x1 + x0, *(y * y1 + y0 for y in band)])
"""
_FUNCTIONS = """\
for y in functions[:, 0, :, 0].double().tolist():  # whole functions, a line each
    print("# sample", *(round(v * y1 + y0, 6) for v in y), file=sys.stderr)
"""


def code_of(asked: "CurveAsked") -> str:
    """Only numbers that were read as such, and names from our own list, are put into the text."""
    choice, units = CHOICES[asked.model], asked.units
    made = "ExactGP()" if choice.weights is None else f'fillin.load("{choice.weights}").eval()'
    text = _HEAD.format(
        points=[list(point) for point in asked.points], shift=asked.shift, low=asked.window[0], high=asked.window[1],
        places=asked.places, model=made, seed=asked.seed, **units.model_dump(),
    )  # fmt: skip
    draws = _DRAWS[asked.model].format(samples=asked.samples)
    if choice.weights is None:
        text = text.replace("import fillin\n", "from fillin.play.gp import ExactGP\n")
    if not asked.samples:
        return text.replace(f"    torch.manual_seed({asked.seed})\n", "") + _TAIL
    if "sample_curve" in draws:
        text = text.replace("import fillin\n", "import fillin\nfrom fillin.sampling import sample_curve\n")
    return f"{text}    functions = {draws}\n{_TAIL}{_FUNCTIONS}"
