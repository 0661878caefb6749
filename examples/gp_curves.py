"""Train a small translation-equivariant transformer on random curves for a minute, and draw what it learnt.

    python examples/gp_curves.py --seconds 60 --out out

The curves are draws of a Gaussian process whose length and scale the model is not told. For such curves the exact
answer is known, so the pictures and the printed log-likelihoods stand beside the best that there is.
"""

import argparse
import math
import time
from itertools import count, product
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch.distributions import Normal

import fillin
from fillin import plots
from fillin.attention import watch
from fillin.data import GaussianProcess, Task, posterior
from fillin.models.base import Process
from fillin.objectives import log_likelihood

NOISE = 0.02
SHIFT = 100.0
FEW = 1000  # steps below which the model has hardly begun
FRESH = 1 << 30  # steps from here on are never trained on
ORACLE = "exact posterior, told length and scale"
console = Console()


def train(model: Process, seconds: float, rate: float, batch: int, seed: int) -> None:
    """Raise the log-likelihood for `seconds`; the learning rate warms up, then falls as a cosine to zero."""
    data = GaussianProcess(batch=batch, noise=NOISE, seed=seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    columns = ("{task.description}", "loss {task.fields[loss]:6.3f}", "{task.fields[speed]:4.0f} steps/s")
    text = [TextColumn(column) for column in columns]
    with Progress(text[0], BarColumn(), *text[1:], TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("training", total=seconds, loss=math.nan, speed=0)
        began, step, loss = time.perf_counter(), 0, None
        try:
            while (elapsed := time.perf_counter() - began) < seconds:
                done = elapsed / seconds
                for group in optimiser.param_groups:
                    group["lr"] = rate * min(1, done / 0.05) * (1 + math.cos(math.pi * done)) / 2
                now = -log_likelihood(model, data.task(step)).mean()
                optimiser.zero_grad()
                now.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimiser.step()
                step += 1
                loss = now.item() if loss is None else 0.98 * loss + 0.02 * now.item()
                progress.update(bar, completed=elapsed, loss=loss, speed=step / max(elapsed, 1e-9))
            progress.update(bar, completed=seconds)
        except KeyboardInterrupt:
            console.print("stopped early; drawing what was learnt so far")
    console.print(f"{step} steps of {batch} curves in {time.perf_counter() - began:.0f} s")
    if step < FEW:
        console.print(f"fewer than {FEW} steps: the machine was busy, or the time short; --seconds 300 learns more")


def exact(task: Task, length: float, scale: float) -> Normal:
    """What an oracle that knows length, scale and noise says of each target: mean and deviation [b nt 1]."""
    answer = posterior(task.xc, task.yc, task.xt, length, scale, NOISE)
    return Normal(answer.mean[..., None].float(), answer.stddev[..., None].float())


def shifted(task: Task) -> Task:
    return Task(task.xc + SHIFT, task.yc, task.xt + SHIFT, task.yt)


@torch.no_grad()
def compare(model: Process, seed: int) -> None:
    """Mean log-likelihood per target on 64 fresh batches that span the lengths and scales of the training curves."""
    here, there, best = [], [], []
    lengths, scales = ([low + (high - low) * (i + 0.5) / 8 for i in range(8)] for low, high in ((0.1, 0.6), (0.1, 1.0)))
    for number, (length, scale) in enumerate(product(lengths, scales)):
        data = GaussianProcess(length=(length, length), scale=(scale, scale), noise=NOISE, seed=seed)
        task = data.task(FRESH + number)  # a step of its own: the numbers of points vary from batch to batch
        here.append(log_likelihood(model, task).mean())
        there.append(log_likelihood(model, shifted(task)).mean())
        best.append(exact(task, length, scale).log_prob(task.yt).mean())
    console.print("log-likelihood per target, 64 fresh batches")
    for name, values in (
        ("te-tnp", here),
        (f"te-tnp, curves shifted by {SHIFT:.0f}", there),
        (ORACLE, best),
    ):
        console.print(f"  {name:40s} {torch.stack(values).mean():6.3f}")


@torch.no_grad()
def draw_curves(model: Process, path: Path, seed: int) -> None:
    """Three curves, few points to many: the model, the exact posterior, and the model far from where it learnt."""
    settings = ((0.55, 0.8, 5), (0.35, 0.7, 9), (0.2, 0.6, 18))  # length, scale, context points
    with plots.style():
        figure, axes = plots.panels(3, 3, width=9, height=1.75, sharey="row", sharex="col")
        for row, (length, scale, points) in zip(axes, settings, strict=True):
            data = GaussianProcess(batch=1, length=(length, length), scale=(scale, scale), noise=NOISE, seed=seed)
            curve = next(task for step in count(2 * FRESH) if (task := data.task(step)).xc.shape[1] == points)
            xs, xt = (torch.linspace(-2, 2, n).view(1, n, 1) for n in (41, 201))
            task, coarse = Task(curve.xc, curve.yc, xt, xt), Task(curve.xc, curve.yc, xs, xs)
            for panel, at in ((row[0], lambda task: task), (row[2], shifted)):
                torch.manual_seed(seed)  # the same draws here and there
                there, few = at(task), at(coarse)
                plots.bands(panel, there.xt, model(*there.inputs), there.xc, there.yc)
                drawn = fillin.sample(model, few.xc, few.yc, few.xt, n=6, method="autoregressive")
                plots.samples(panel, few.xt, drawn)
            plots.bands(row[1], xt, exact(task, length, scale), task.xc, task.yc, colour=plots.GREEN)
            drawn = posterior(task.xc, task.yc, xs, length, scale, NOISE).sample(torch.Size([6]))
            plots.samples(row[1], xs, drawn[..., None], colour=plots.GREEN)
        for panel, title in zip(axes[0], ("te-tnp", ORACLE, f"te-tnp, shifted by {SHIFT:.0f}"), strict=True):
            panel.set_title(title)
        plots.save(figure, path)


@torch.no_grad()
def draw_attention(model: Process, path: Path, seed: int) -> None:
    """One curve, and how much each head of each layer reads of every context point to predict one target."""
    data = GaussianProcess(batch=1, length=(0.35, 0.35), scale=(0.7, 0.7), noise=NOISE, seed=seed)
    task = next(task for step in count(2 * FRESH) if (task := data.task(step)).xc.shape[1] == 24)
    xt = torch.linspace(-2, 2, 201).view(1, -1, 1)
    target = 120
    with watch() as seen:
        prediction = model(task.xc, task.yc, xt)
    with plots.style():
        figure, axes = plots.panels(1 + len(seen), 1, width=8, height=1.3, sharex=True)
        plots.bands(axes[0, 0], xt, prediction, task.xc, task.yc)
        axes[0, 0].axvline(xt[0, target, 0].item(), color=plots.INK, linewidth=0.7, linestyle=(0, (4, 3)))
        axes[0, 0].set_title("the curve, and the target that asks")
        plots.attention(axes[1:, 0], seen, target, xc=task.xc, xt=xt)
        plots.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to train")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where pictures and model go")
    parser.add_argument("--score", default="rbf", help="what a displacement is worth: rbf, fourier, mlp, …")
    parser.add_argument(
        "--offsets", action=argparse.BooleanOptionalAction, default=True, help="heads tell how far away they looked"
    )
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--batch", type=int, default=16, help="curves a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="CPU threads; torch's own choice by default")
    options = parser.parse_args()

    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    try:
        model = fillin.create("te-tnp", size="small", score=options.score, offsets=options.offsets)
    except fillin.FillinError as error:
        parser.error(str(error))
    train(model, options.seconds, options.rate, options.batch, options.seed)
    model.eval()
    compare(model, options.seed)
    console.print("drawing")
    draw_curves(model, options.out / "curves.png", options.seed)
    draw_attention(model, options.out / "attention.png", options.seed)

    folder = fillin.save(model, options.out / "te-tnp")
    task = GaussianProcess(seed=options.seed).task(0)
    with torch.no_grad():
        same = torch.equal(fillin.load(folder)(*task.inputs).mean, model(*task.inputs).mean)
    console.print(f"pictures: {options.out / 'curves.png'}, {options.out / 'attention.png'}")
    console.print(f"model: {folder} (loaded again it predicts {'the same' if same else 'something else!'})")


if __name__ == "__main__":
    main()
