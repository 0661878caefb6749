"""Train a small translation-equivariant transformer on random curves for a minute, and draw its predictions.

    python examples/gp_curves.py --seconds 60 --out out

The curves are draws of a Gaussian process with unknown length and scale. Their exact posterior is known in closed form,
so the figures and log-likelihoods can be compared with the best that is possible.
"""

import argparse
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch.distributions import Normal

import fillin
from fillin import plots
from fillin.attention import record_weights
from fillin.data import Curves, GaussianProcessPrior, Task, TaskLayout, curves, oracle_limit
from fillin.data.kernels import RBFKernel
from fillin.models.base import Process
from fillin.objectives import log_likelihood
from fillin.train import fit

SHIFT = 100.0
MIN_STEPS = 1000  # with fewer, the model is hardly trained
TEST_STEP = 1 << 30  # batches from here on are not used in training
ORACLE = "exact posterior, given length and scale"
console = Console()


def train(options: argparse.Namespace) -> Process:
    """Train the recipe te-tnp for the given seconds, with warm-up and a cosine schedule."""
    settings = {
        "model.score": options.score, "model.offsets": options.offsets, "optimiser.rate": options.rate,
        "data.batch": options.batch, "seed": options.seed, "budget.time": options.seconds,
        "keep.log": 10, "keep.validations": 1, "keep.batches": 4,
    }  # fmt: skip
    overrides = [f"--{key}={'null' if value is None else value}" for key, value in settings.items()]
    text = [TextColumn(c) for c in ("loss {task.fields[loss]:6.3f}", "{task.fields[speed]:4.0f} steps/s")]
    with (
        TemporaryDirectory() as folder,
        Progress(TextColumn("training"), BarColumn(), *text, TimeRemainingColumn(), console=console) as progress,
    ):
        bar = progress.add_task("", total=1.0, loss=math.nan, speed=0)

        def show(step: int, elapsed: float, share: float, loss: float, _) -> None:
            progress.update(bar, completed=min(1, share), **{"loss": loss, "speed": step / elapsed})  # type: ignore[arg-type]

        run = fit("te-tnp", Path(folder) / "run", overrides=overrides, threads=options.threads, watch=show)
        model, lines = run.model("last"), run.lines
    step, elapsed = (lines[-1].step, lines[-1].seconds) if lines else (0, 0.0)
    if elapsed < options.seconds:
        console.print("stopped early; drawing the current predictions")
    console.print(f"{step} steps of {options.batch} curves in {elapsed:.0f} s")
    if step < MIN_STEPS:
        console.print(f"fewer than {MIN_STEPS} steps: the machine was busy, or the time short; try --seconds 300")
    return model.eval()


def draw_curve(length: float, scale: float, points: int, seed: int) -> tuple[GaussianProcessPrior, Task]:
    """Make a process, and draw an unseen curve of it with the given number of context points."""
    process = GaussianProcessPrior(RBFKernel((length, length), (scale, scale)), noise=0.02)
    return process, Curves(process, TaskLayout((points, points), points=None), batch=1, seed=seed).task(2 * TEST_STEP)


def shift(task: Task) -> Task:
    return Task(task.xc + SHIFT, task.yc, task.xt + SHIFT, task.yt)


@torch.no_grad()
def compare(model: Process, seed: int) -> None:
    """Print the mean log-likelihood per target on 64 unseen batches, beside that of the exact posterior."""
    here, there, best = [], [], []
    stream = curves("rbf", seed=seed)
    for step in range(TEST_STEP, TEST_STEP + 64):
        task, limit = stream.task(step), oracle_limit(stream, step)
        assert limit is not None  # a Gaussian process has a closed form
        here.append(log_likelihood(model, task).mean())
        there.append(log_likelihood(model, shift(task)).mean())
        best.append(limit.marginal.mean())
    console.print("log-likelihood per target, 64 unseen batches")
    for name, values in (
        ("te-tnp", here),
        (f"te-tnp, curves shifted by {SHIFT:.0f}", there),
        (ORACLE, best),
    ):
        console.print(f"  {name:40s} {torch.stack(values).mean():6.3f}")


@torch.no_grad()
def draw_curves(model: Process, path: Path, seed: int) -> None:
    """Draw three curves, from few to many points: the model, the exact posterior, and the model on shifted inputs."""
    settings = ((0.55, 0.8, 5), (0.35, 0.7, 9), (0.2, 0.6, 18))  # length, scale, context points
    with plots.style():
        figure, axes = plots.panels(3, 3, width=9, height=1.75, sharey="row", sharex="col")
        for row, (length, scale, points) in zip(axes, settings, strict=True):
            process, curve = draw_curve(length, scale, points, seed)
            xs, xt = (torch.linspace(-2, 2, n).view(1, n, 1) for n in (41, 201))
            task, coarse = Task(curve.xc, curve.yc, xt, xt), Task(curve.xc, curve.yc, xs, xs)
            for panel, at in ((row[0], lambda task: task), (row[2], shift)):
                torch.manual_seed(seed)  # the same samples in both panels
                there, few = at(task), at(coarse)
                plots.draw_intervals(panel, there.xt, model(*there.inputs), there.xc, there.yc)
                drawn = fillin.sample(model, few.xc, few.yc, few.xt, n=6, method="autoregressive")
                plots.draw_samples(panel, few.xt, drawn)
            exact = process.posterior(task.xc, task.yc, xt)
            marginals = Normal(exact.mean[..., None], exact.stddev[..., None])
            plots.draw_intervals(row[1], xt, marginals, task.xc, task.yc, colour=plots.GREEN)
            drawn = process.posterior(task.xc, task.yc, xs).sample(torch.Size([6]))
            plots.draw_samples(row[1], xs, drawn[..., None], colour=plots.GREEN)
        for panel, title in zip(axes[0], ("te-tnp", ORACLE, f"te-tnp, shifted by {SHIFT:.0f}"), strict=True):
            panel.set_title(title)
        plots.save(figure, path)


@torch.no_grad()
def draw_attention(model: Process, path: Path, seed: int) -> None:
    """Draw one curve, and the attention weights of every head and layer for one target."""
    _, task = draw_curve(0.35, 0.7, 24, seed)
    xt = torch.linspace(-2, 2, 201).view(1, -1, 1)
    target = 120
    with record_weights() as records:
        prediction = model(task.xc, task.yc, xt)
    with plots.style():
        figure, axes = plots.panels(1 + len(records), 1, width=8, height=1.3, sharex=True)
        plots.draw_intervals(axes[0, 0], xt, prediction, task.xc, task.yc)
        axes[0, 0].axvline(xt[0, target, 0].item(), color=plots.INK, linewidth=0.7, linestyle=(0, (4, 3)))
        axes[0, 0].set_title("prediction, and the target whose attention is shown")
        plots.draw_attention(axes[1:, 0], records, target, xc=task.xc, xt=xt)
        plots.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="training time in seconds")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for figures and model")
    parser.add_argument("--score", default="rbf", help="score of displacements: rbf, fourier, mlp, …")
    parser.add_argument(
        "--offsets", action=argparse.BooleanOptionalAction, help="heads return mean displacements (default: yes)"
    )
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--batch", type=int, default=16, help="curves per step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="CPU threads (default: chosen by torch)")
    options = parser.parse_args()

    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        model = train(options)
    except fillin.FillinError as error:
        parser.error(str(error))
    compare(model, options.seed)
    console.print("drawing")
    draw_curves(model, options.out / "curves.png", options.seed)
    draw_attention(model, options.out / "attention.png", options.seed)

    folder = fillin.save(model, options.out / "te-tnp")
    task = curves("rbf", seed=options.seed).task(0)
    with torch.no_grad():
        same = torch.equal(fillin.load(folder)(*task.inputs).mean, model(*task.inputs).mean)
    console.print(f"figures: {options.out / 'curves.png'}, {options.out / 'attention.png'}")
    console.print(f"model: {folder} (loaded again it predicts {'the same' if same else 'something else!'})")


if __name__ == "__main__":
    main()
