"""What a step of training and an inference cost: the kernel of windows, the same classifier with full attention in
torch, and with its window as a bias. Time is the median over rounds in which each of them runs once."""

import statistics
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fillin.attention import kernel
from fillin.measure import peak_memory
from fillin.models import PixelClassifier, create

FULL, BIAS, KERNEL = "full attention in torch", "window as a bias", "kernel"
PARTS = ("training", "inference")
SIDES = {32: 5, 64: 7}  # pixels along a side of images on which narrow windows are timed, and over how many rounds
SHARE = 0.05  # of pairs that these keep at most
LEARNED = 24  # pixels along a side on which learned windows are timed, where images of the set are smaller
_LAYERS = 1  # of the classifier whose windows are narrow: each costs the same, and one fits into memory everywhere
_STORED = 1 << 21  # pairs of all heads up to which torch keeps them for the way back, instead of making them again
_WIDEST = 32  # pixels along a side of which SIREN's features of all pairs are made in reasonable time and memory


def learned(model: PixelClassifier, side: int, batch: int, rounds: int) -> dict[str, Any]:
    """The costs of a trained classifier whose windows drop pairs, on images of another size, and what it computes."""
    found = {way: _built(model, way, side, batch) for way in (FULL, BIAS, KERNEL)}
    shares = [one.share for one in model.spans(side, side)]
    return {"side": side, "batch": batch, "shares": shares, "costs": costs(found, side, batch, rounds)}


def narrow(positions: str, side: int, rounds: int, batch: int = 1) -> dict[str, Any]:
    """The costs of one layer of document 004's classifier whose windows keep no more than 5 % of pairs."""
    model = create("classifier", 1, 10, layers=_LAYERS, positions=positions, span=sigma(side, SHARE))
    assert isinstance(model, PixelClassifier)
    ways = (FULL, BIAS, KERNEL)
    return {
        "side": side, "batch": batch, "positions": positions, "share": model.spans(side, side)[0].share,
        "costs": costs({way: _built(model, way, side, batch) for way in ways}, side, batch, rounds, side > _WIDEST),
    }  # fmt: skip


def every_narrow() -> list[dict[str, Any]]:
    """Of each size and both kinds of positions, as far as torch can do it without a kernel."""
    return [
        narrow(positions, side, rounds)
        for side, rounds in SIDES.items()
        for positions in ("sinusoid", "siren")
        if positions == "sinusoid" or side <= _WIDEST
    ]


def sigma(side: int, share: float) -> float:
    """The widest σ with which a window keeps no more than that share of the pairs of an image."""
    low, high = 1e-3, 2.0
    for _ in range(24):
        middle = (low * high) ** 0.5
        one = create("classifier", 1, 2, width=8, heads=1, layers=1, hidden=8, span=middle)
        assert isinstance(one, PixelClassifier)
        low, high = (middle, high) if one.spans(side, side)[0].share <= share else (low, middle)
    return low


def _built(model: PixelClassifier, way: str, side: int, batch: int) -> PixelClassifier:
    """The same classifier, computed another way."""
    options = dict(model.config["options"])
    span, folds = options.get("span"), options.get("positions") == "sinusoid"
    if way == KERNEL:
        backend = "native" if kernel.is_available() else "auto"
    elif way == BIAS:
        scores = isinstance(span, dict) and span.get("modulate") == "scores"
        backend = "reference" if scores else "fused"
    elif folds:
        backend = "fused"
    else:
        backend = "reference" if batch * options.get("heads", 8) * side**4 <= _STORED else "streamed"
    options |= {"backend": backend, "span": None if way == FULL else span}
    other = create("classifier", model.dim_x, model.dim_y, **options)
    assert isinstance(other, PixelClassifier)
    state = {name: value for name, value in model.state_dict().items() if way != FULL or ".span." not in name}
    other.load_state_dict(state)
    return other


def costs(
    models: Mapping[str, PixelClassifier], side: int, batch: int, rounds: int, dear: bool = False
) -> dict[str, dict[str, Any]]:
    """Of each way its seconds and its bytes, in training and in inference. Where the window as a bias is `dear`, half a
    minute a step, it runs in the first round alone."""
    random = torch.Generator().manual_seed(0)
    images = {way: torch.rand(batch, side, side, one.dim_x, generator=random) for way, one in models.items()}
    runs = {(way, part): _run(one, images[way], part == "training") for way, one in models.items() for part in PARTS}
    memory = {name: peak_memory(run) for name, run in runs.items()}  # also what makes each warm
    taken: dict[tuple[str, str], list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            if dear and number and name[0] == BIAS:
                continue
            start = perf_counter()
            run()
            taken[name].append(perf_counter() - start)
    return {
        way: {part: {"seconds": statistics.median(taken[way, part]), "bytes": memory[way, part]} for part in PARTS}
        for way in models
    }


def _run(model: PixelClassifier, images: torch.Tensor, training: bool) -> Callable[[], object]:
    labels = torch.arange(len(images)) % model.dim_y
    weights = list(model.parameters())

    def step() -> object:
        model.train()
        return torch.autograd.grad(cross_entropy(model(images), labels), weights, allow_unused=True)

    @torch.no_grad()
    def inference() -> object:
        return model.eval()(images)

    return step if training else inference
