"""Cost of a training step and of inference: the kernel of windows, the same classifier with full attention in PyTorch,
and with its window as a bias. Time is the median over rounds in which each of them runs once."""

import math
import statistics
from collections.abc import Mapping
from itertools import product
from time import perf_counter
from typing import Any

import torch
from torch.nn import Module
from torch.nn.functional import cross_entropy

from fillin.attention import RelativePosition, Score, kernel
from fillin.linear import LinearLayer
from fillin.measure import Workload, peak_memory
from fillin.models import PixelClassifier, create

FULL, BIAS, KERNEL = IMPLEMENTATIONS = "full attention in torch", "window as a bias", "kernel"
PARTS = ("training", "inference")
NARROW_ROUNDS = {32: 5, 64: 7}  # by the side in pixels of images on which narrow windows are timed
NARROW_SHARE = 0.05  # of pairs that narrow windows keep at most
LEARNED_SIDE = 24  # in pixels, for learned windows where images of the set are smaller
_NARROW_LAYERS = 1  # of the classifier with narrow windows: each costs the same, and one fits into memory everywhere
_MAX_STORED_PAIRS = 1 << 21  # of all heads, up to which PyTorch stores pairs for the backward pass
_MAX_SIREN_SIDE = 32  # in pixels, up to which SIREN's features of all pairs take reasonable time and memory


def share_of_pairs(model: PixelClassifier, height: int, width: int) -> float:
    """Return the share of the pairs of all layers that are computed, weighted by the pairs of each layer."""
    pairs = [math.prod(size) ** 2 for size in model.layer_sizes(height, width)]
    shares = [layer.share for layer in model.spans(height, width)]
    return sum(share * total for share, total in zip(shares, pairs, strict=True)) / sum(pairs)


def count_operations(model: PixelClassifier, height: int, width: int) -> dict[str, float]:
    """Return the multiply-adds of one image through all layers: of the pairs that are computed (content, positions and
    values, `head_dim` of each per head), and of the projections and feed-forward networks of the tokens. What a table
    of r(Δ) costs, once for all images of a batch, is not among them."""
    pairs = tokens = 0.0
    layers = zip(model.blocks, model.layer_sizes(height, width), model.spans(height, width), strict=True)
    for block, size, layer in layers:
        attention, n = block.attention, math.prod(size)
        products = 3 if isinstance(attention.score, RelativePosition) else 2
        pairs += layer.share * n**2 * products * attention.heads * attention.head_dim
        tokens += n * sum(layer.weight.numel() for layer in block.modules() if _maps_tokens(layer, attention.score))
    return {"pairs": pairs, "tokens": tokens}


def _maps_tokens(module: Module, score: Score) -> bool:
    return isinstance(module, LinearLayer) and all(module is not part for part in score.modules())


def measure_own(model: PixelClassifier, side: int, batch: int, rounds: int) -> dict[str, Any]:
    """Measure a trained classifier as it is: seconds (median over rounds) and bytes of a step and of inference."""
    return _time_models({"own": model}, side, batch, rounds)["own"]


def measure_learned(model: PixelClassifier, side: int, batch: int, rounds: int) -> dict[str, Any]:
    """Measure a trained classifier whose windows drop pairs, on images of another size."""
    shares = [layer.share for layer in model.spans(side, side)]
    return {"side": side, "batch": batch, "shares": shares, "costs": _measure(model, side, batch, rounds)}


def measure_narrow() -> list[dict[str, Any]]:
    """Measure one layer of the classifier of Alfons 2022 with windows that keep at most 5 % of pairs, at each size and
    with both kinds of positions, as far as PyTorch can compute them."""
    rows = []
    for (side, rounds), positions in product(NARROW_ROUNDS.items(), ("sinusoid", "siren")):
        if positions == "siren" and side > _MAX_SIREN_SIDE:
            continue
        sigma = narrow_sigma(side, NARROW_SHARE)
        model = create("classifier", 1, 10, layers=_NARROW_LAYERS, positions=positions, span=sigma)
        assert isinstance(model, PixelClassifier)
        rows.append({
            "side": side, "batch": 1, "positions": positions, "share": model.spans(side, side)[0].share,
            "costs": _measure(model, side, 1, rounds, side > _MAX_SIREN_SIDE),
        })  # fmt: skip
    return rows


def narrow_sigma(side: int, share: float) -> float:
    """Return the largest σ with which a window keeps at most that share of the pairs of an image."""
    low, high = 1e-3, 2.0
    for _ in range(24):
        middle = (low * high) ** 0.5
        model = create("classifier", 1, 2, width=8, heads=1, layers=1, hidden=8, span=middle)
        assert isinstance(model, PixelClassifier)
        low, high = (middle, high) if model.spans(side, side)[0].share <= share else (low, middle)
    return low


def rebuild(model: PixelClassifier, implementation: str, side: int, batch: int) -> PixelClassifier:
    """Return the same classifier with another implementation of attention."""
    options = dict(model.config["options"])
    span, folds = options.get("span"), options.get("positions") == "sinusoid"
    if implementation == KERNEL:
        backend = "native" if kernel.is_available() else "auto"
    elif implementation == BIAS:
        scores = isinstance(span, dict) and span.get("modulate") == "scores"
        backend = "reference" if scores else "fused"
    elif folds:
        backend = "fused"
    else:
        backend = "reference" if batch * options.get("heads", 8) * side**4 <= _MAX_STORED_PAIRS else "streamed"
    full = implementation == FULL
    options |= {"backend": backend, "span": None if full else span}
    other = create("classifier", model.dim_x, model.dim_y, **options)
    assert isinstance(other, PixelClassifier)
    other.load_state_dict({k: value for k, value in model.state_dict().items() if not full or ".span." not in k})
    return other


def _measure(model: PixelClassifier, side: int, batch: int, rounds: int, bias_once: bool = False) -> dict[str, Any]:
    """Return seconds and bytes of each implementation, in training and in inference; with `bias_once` the window as a
    bias, half a minute a step, runs in the first round alone."""
    models = {name: rebuild(model, name, side, batch) for name in IMPLEMENTATIONS}
    return _time_models(models, side, batch, rounds, bias_once)


def _time_models(
    models: Mapping[str, PixelClassifier], side: int, batch: int, rounds: int, bias_once: bool = False
) -> dict[str, Any]:
    random = torch.Generator().manual_seed(0)
    workloads: dict[tuple[str, str], Workload] = {}
    for name, m in models.items():
        images = torch.rand(batch, side, side, m.dim_x, generator=random)

        def train(m=m, images=images) -> object:
            loss = cross_entropy(m.train()(images), torch.arange(batch) % m.dim_y)
            return torch.autograd.grad(loss, list(m.parameters()), allow_unused=True)

        @torch.no_grad()
        def infer(m=m, images=images) -> object:
            return m.eval()(images)

        workloads |= {(name, "training"): train, (name, "inference"): infer}
    memory = {key: peak_memory(run) for key, run in workloads.items()}  # this also warms up
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in workloads}
    for number in range(rounds):
        for key, run in workloads.items():
            if bias_once and number and key[0] == BIAS:
                continue
            start = perf_counter()
            run()
            seconds[key].append(perf_counter() - start)
    return {
        name: {part: {"seconds": statistics.median(seconds[name, part]), "bytes": memory[name, part]} for part in PARTS}
        for name in models
    }


def cost_ratio(
    costs: Mapping[str, Any], implementation: str, part: str = "training", quantity: str = "seconds"
) -> float | None:
    """Return the cost of an implementation over that of the kernel; None where it was not measured."""
    if implementation not in costs or not costs[implementation][part][quantity] or not costs[KERNEL][part][quantity]:
        return None
    return costs[implementation][part][quantity] / costs[KERNEL][part][quantity]
