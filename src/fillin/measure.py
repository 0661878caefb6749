"""Time and memory of callables, the machine they were measured on, and the workloads of attention with a learned span.

The time of a candidate is its minimum over rounds in which every candidate runs once: a busy moment slows all of them.
The attention workloads are self-attention of n points, forward and backward, batch 1, 4 heads of dimension 16, float32,
with gradients to q, k, v and the span. Points lie in the unit interval, square or cube; a span of share 0.05 is a ball
of 5 % of its volume.
"""

import ctypes
import gc
import math
import os
import platform
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, threshold

from fillin.attention import Score, Span, attend
from fillin.runtime import Tick

Workload = Callable[[], object]

HEADS, HEAD_DIM, THRESHOLD = 4, 16, 0.1
NATIVE, HARD, FUSED, BLOCKS, BIAS, REFERENCE = CANDIDATES = (
    "native", "native, hard cut", "fused, no window", "fixed blocks", "window as a bias", "reference",
)  # fmt: skip

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Cost:
    """Seconds of the fastest run, and peak memory in bytes beyond what was in use before (None: unknown)."""

    seconds: float
    bytes: int | None


def measure_costs(
    workloads: Mapping[str, Workload], rounds: int, tick: Tick = lambda: None, min_seconds: float = 0.0
) -> dict[str, Cost]:
    """Measure time and memory of each workload. `tick` is called `count_ticks(len(workloads), rounds)` times."""
    memory = {}
    for name, run in workloads.items():
        run()  # warm up: threads, caches and lazily compiled kernels are made once
        tick()
        memory[name] = peak_memory(run)
        tick()
    times = fastest_times(workloads, rounds, tick, min_seconds)
    return {name: Cost(times[name], memory[name]) for name in workloads}


def count_ticks(candidates: int, rounds: int) -> int:
    """Return how often `measure_costs` ticks: a warm-up, a memory run and `rounds` timed runs of each candidate."""
    return candidates * (rounds + 2)


def fastest_times(
    workloads: Mapping[str, Workload], rounds: int, tick: Tick = lambda: None, min_seconds: float = 0.0
) -> dict[str, float]:
    """Return the minimum seconds of each workload over the rounds.

    A workload runs once a round, or again until `min_seconds` have passed: a workload of milliseconds beside one of
    seconds would otherwise start every time with cold caches.
    """
    best = dict.fromkeys(workloads, float("inf"))
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection would be charged to the workload that runs at the time
    try:
        for _ in range(rounds):
            for name, run in workloads.items():
                end = perf_counter() + min_seconds
                while True:
                    start = perf_counter()
                    run()
                    now = perf_counter()
                    best[name] = min(best[name], now - start)
                    if now >= end:
                        break
                tick()
    finally:
        if collecting:
            gc.enable()
    return best


def peak_memory(run: Workload) -> int | None:
    """Return the peak resident memory of a run minus that before it, in bytes; None where the system has no /proc.
    Freed memory is first given back to the system (malloc_trim), or a run could reuse it unseen."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        _CLEAR.write_text("5")  # reset VmHWM, the high-water mark
        before = re.search(r"^VmRSS:\s*(\d+)", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    run()
    after = re.search(r"^VmHWM:\s*(\d+)", _STATUS.read_text(), re.MULTILINE)
    return None if before is None or after is None else 1024 * max(0, int(after[1]) - int(before[1]))


def measure_other_load(run: Callable[[], Any]) -> tuple[Any, float | None]:
    """Return the result of `run`, and the mean number of cores that others kept busy meanwhile: other processes, and
    other machines on the same processor. None where the system does not count it."""
    start, before = perf_counter(), _busy_seconds_of_others()
    result = run()
    after = _busy_seconds_of_others()
    return result, None if before is None or after is None else max(0.0, after - before) / (perf_counter() - start)


def _busy_seconds_of_others() -> float | None:
    try:
        counts = [int(count) for count in Path("/proc/stat").read_text().split()[1:9]]
        busy = (sum(counts) - counts[3] - counts[4]) / os.sysconf("SC_CLK_TCK")  # without idle and waiting for files
    except (OSError, ValueError, AttributeError):
        return None
    return busy - sum(os.times()[:4])


def describe_machine() -> dict[str, Any]:
    """Describe the hardware and the versions that a figure was measured with."""
    cpu = platform.processor() or platform.machine()
    with suppress(OSError):
        names = re.findall(r"^model name[^:\n]*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        cpu = names[0].strip() if names else cpu
    return {
        "cpu": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(), "torch": torch.__version__,
    }  # fmt: skip


class AttentionInputs:
    """q, k, v [1 h n d] in the memory layout of a layer's projections, locations x, and the gradient of the output."""

    def __init__(self, x: Float[Tensor, "1 n dx"], seed: int = 0):
        self.x, generator = x, torch.Generator().manual_seed(seed)
        shape = 1, x.shape[1], HEADS, HEAD_DIM
        *qkv, self.output_grad = (torch.randn(shape, generator=generator).transpose(1, 2) for _ in range(4))
        self.q, self.k, self.v = (t.requires_grad_() for t in qkv)

    def run(self, forward: Callable[[], Tensor], *modules: torch.nn.Module) -> Workload:
        """Forward and backward pass. Gradients are returned, not accumulated: every run allocates them anew."""
        inputs = [self.q, self.k, self.v, *(p for module in modules for p in module.parameters())]
        return lambda: torch.autograd.grad(forward(), inputs, self.output_grad)

    def attend(self, backend: str, span: Span | None = None, score: Score | None = None, **options) -> Workload:
        """Attention by one of the library's back ends."""

        def forward() -> Tensor:
            return attend(
                self.q, self.k, self.v, xq=self.x, xk=self.x, score=score, span=span, backend=backend, **options
            )

        return self.run(forward, *(module for module in (span, score) if module is not None))

    def fused(self) -> Workload:
        """Attention of torch, without a span."""
        return self.run(lambda: scaled_dot_product_attention(self.q, self.k, self.v))

    def blocks(self, share: float) -> Workload:
        """Attention of torch within fixed independent blocks of this share of the volume: a point attends to those of
        its own block alone (`fixed_block_mask` is the same by a mask). Blocks are padded to the fullest one; the points
        are assigned to them beforehand, as they are sorted beforehand for the kernel."""
        cells = torch.div(self.x[0], block_side(share, self.x.shape[-1])).floor().long()
        block = torch.unique(cells, dim=0, return_inverse=True)[1]
        counts = torch.bincount(block)
        order = block.argsort(stable=True)
        rank = torch.arange(len(order)) - (counts.cumsum(0) - counts)[block[order]]  # of a point within its block
        member = torch.zeros(len(counts), int(counts.max()), dtype=torch.long).index_put_((block[order], rank), order)
        inside = torch.arange(member.shape[1]) < counts[:, None]
        mask = None if bool(inside.all()) else inside[:, None, None]
        slot = torch.empty_like(order).index_put_((order,), block[order] * member.shape[1] + rank)

        def forward() -> Tensor:
            q, k, v = (t[0][:, member].transpose(0, 1) for t in (self.q, self.k, self.v))  # [blocks h points d]
            out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return out.transpose(0, 1).flatten(1, 2)[None, :, slot]

        return self.run(forward)

    def bias(self, span: Span) -> Workload:
        """Attention of torch with ln W added to the logits, in as few passes over pairs as autograd allows. Keys
        outside the window keep a negligible weight: −∞ would need a mask and another pass."""

        def forward() -> Tensor:
            squares = (self.x.mT[0, :, :, None] - self.x.mT[0, :, None, :]).square()  # [dx n m]
            g = torch.einsum("hd,dnm->hnm", -0.5 * (-2 * span.log_sigma).exp(), squares).exp()
            bias = threshold(g - span.threshold, 1e-12, 1e-12, inplace=True).log()  # 1/(1 − t) cancels in the softmax
            return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=bias)

        return self.run(forward, span)


def sample_locations(layout: str, dim: int, points: int, seed: int = 0) -> Float[Tensor, "1 n dx"]:
    """Pixel centres ("grid") or uniformly random locations ("scattered") in the unit interval, square or cube."""
    if layout == "scattered":
        return torch.rand(1, points, dim, generator=torch.Generator().manual_seed(seed))
    side = round(points ** (1 / dim))
    axes = [(torch.arange(side) + 0.5) / side] * dim
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, dim)


def ball_radius(volume: float, dim: int) -> float:
    """Radius r of a ball of given volume V = π^(dim/2)/Γ(dim/2 + 1) · r^dim.

    >>> round(ball_radius(0.2, 1), 3), round(ball_radius(math.pi / 4, 2), 3)
    (0.1, 0.5)
    """
    unit_ball = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    return (volume / unit_ball) ** (1 / dim)


def block_side(share: float, dim: int) -> float:
    """Side of the cubic blocks that tile the unit volume and whose share of it is nearest to `share`, axis by axis.

    >>> block_side(0.05, 2)
    0.25
    """
    return 1 / max(1, round(share ** (-1 / dim)))


def neighbour_radius(x: Float[Tensor, "1 n dx"], neighbours: int, sample: int = 512) -> float:
    """Radius that holds this many neighbours on average over points, those at the edges included."""
    distances = torch.cdist(_subsample(x, sample), x[0]).flatten()
    return float(distances.kthvalue(min(len(distances), neighbours * min(sample, x.shape[1]))).values)


def fraction_inside(x: Float[Tensor, "1 n dx"], radius: float, sample: int = 4096) -> float:
    """Fraction of pairs closer than the radius, estimated from at most `sample` points against all."""
    inside = [(torch.cdist(chunk, x[0]) < radius).float().mean(1) for chunk in _subsample(x, sample).split(256)]
    return float(torch.cat(inside).mean())


def _subsample(x: Tensor, size: int) -> Tensor:
    """Evenly spaced rows of x[0], at most `size`."""
    return x[0, torch.linspace(0, x.shape[1] - 1, min(size, x.shape[1])).long()]


def span_of_radius(radius: float, dim: int, cut: str = "continuous") -> Span:
    """Span per head whose window ends at the radius: σ = r/√(−2 ln t)."""
    return Span(dim, HEADS, init=radius / math.sqrt(-2 * math.log(THRESHOLD)), threshold=THRESHOLD, cut=cut)
