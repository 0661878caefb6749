"""fillin's models against released code of other projects, at the sizes of the latter.

The figures of a peer were measured by running its released code at its default size, in yardsticks, on one thread,
batch 16, 32 context and 64 target points. They are no claims of its authors. fillin's models are measured anew each
time. Only the yardstick joins the two, so a ratio near 1 means "about as fast" and no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fillin.errors import InputError, choose
from fillin.models import names
from fillin.runtime import Tick
from fillin_studies.bench.models import YARDSTICK, StepSize, count_parameters, make_model, measure_steps, to_megabytes


@dataclass(frozen=True)
class Peer:
    """A released model, its cost, and the options of fillin's model that come nearest to it."""

    title: str
    parameters: int
    yardsticks: float
    megabytes: int
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    samples: int = 1  # latent samples per step


PEER_SIZE = StepSize(32, 64, batch=16, rounds=10)  # at which the peers were measured

_TNP = {"width": 64, "heads": 4, "layers": 6, "hidden": 128}
_TEN = {"width": 128, "heads": 8, "head_dim": 16, "layers": 5, "hidden": 128}

# Same dimensions (width, heads, layers, feed-forward). Cambridge's TNP-D has one block a layer for the context and
# another for the targets where fillin's has one for both, hence half the parameters at the same work per token.
PEERS: tuple[Peer, ...] = (
    Peer("CANP, TNP-pytorch", 332_000, 0.44, 34, "canp", {"hidden": 256, "layers": 7}),
    Peer("ANP, TNP-pytorch", 348_000, 1.44, 93, "anp", {"width": 104, "heads": 4}, samples=4),
    Peer("TNP-D, TNP-pytorch", 222_000, 0.97, 53, "tnp-d", _TNP),
    Peer("TNP-A, TNP-pytorch", 222_000, 1.83, 81, "tnp-a", _TNP),
    Peer("TNP-ND, TNP-pytorch", 333_000, 1.27, 57, "tnp-nd", {**_TNP, "layers": 8}),
    # Cambridge's ANP has no latent path: in the names of fillin it is a canp with five layers of self-attention
    Peer("ANP, cambridge-mlg/tnp", 629_000, 0.87, 28, "canp", {"self_attention": 5, "layers": 3}),
    Peer("TNP-D, cambridge-mlg/tnp", 1_060_000, 1.39, 60, "tnp-d", _TEN),
    Peer("LBANP-32, cambridge-mlg/tnp", 1_560_000, 1.75, 60, "lbanp", {**_TEN, "pseudo_tokens": 32}),
    Peer("LBANP-8, Borealis", 785_000, 1.14, 47, "lbanp", {**_TNP, "hidden": 200, "pseudo_tokens": 8}),
    # the peer's grid has 64 points a unit; with fillin's default of 16 the comparison would flatter
    Peer(
        "ConvCNP, neuralprocesses", 329_000, 1.02, 17, "convcnp", {"width": 176, "kernel": 3, "points_per_unit": 64.0}
    ),
    Peer("ConvCNP, cambridge-mlg/tnp", 51_000, 0.48, 8, "convcnp", {"width": 68, "kernel": 3}),
    Peer("AttnCNP, NPF", 335_000, 0.34, 28, "canp", {"layers": 15, "self_attention": 0}),
    Peer("TE-TNP, cambridge-mlg/tetnp", 657_000, 10.1, 650, "te-tnp", {**_TEN, "hidden": 224}),
    Peer("TE-TNP, cambridge-mlg/tetnp", 657_000, 10.1, 650, "te-tnp", {**_TEN, "score": "joint"}),
)


@dataclass(frozen=True)
class PeerRow:
    """A model of fillin and its peer. `ratio` is of yardsticks: below 1 fillin is the faster.

    `samples` are latent samples per step, 1 for a model without a latent variable.
    """

    model: str
    options: dict[str, Any]
    samples: int
    peer: str
    parameters: int
    peer_parameters: int
    yardsticks: float
    peer_yardsticks: float
    ratio: float
    megabytes: float | None
    peer_megabytes: int


def select_peers(models: Sequence[str]) -> list[Peer]:
    """Return the peers of these models; of all models where none is named."""
    chosen = {choose("model", name, names()) for name in models} or set(names())
    peers = [peer for peer in PEERS if peer.model in chosen]
    if not peers:
        available = ", ".join(sorted({peer.model for peer in PEERS}))
        raise InputError(f"--peers: no peer of {', '.join(models)} was measured; there are peers of {available}")
    return peers


def measure_peers(
    peers: Sequence[Peer], size: StepSize = PEER_SIZE, *, seed: int = 0, tick: Tick = lambda: None
) -> list[PeerRow]:
    """Measure fillin's models at the size of each peer, all in the same rounds."""
    keys = [str(i) for i in range(len(peers))]
    models = {key: make_model(peer.model, seed, **peer.options) for key, peer in zip(keys, peers, strict=True)}
    samples = {key: peer.samples for key, peer in zip(keys, peers, strict=True)}
    costs = measure_steps(models, size, samples=samples, seed=seed, tick=tick)
    rows = []
    for key, peer in zip(keys, peers, strict=True):
        yardsticks = costs[key].seconds / costs[YARDSTICK].seconds
        row = PeerRow(
            peer.model, peer.options, peer.samples, peer.title, count_parameters(models[key]), peer.parameters,
            yardsticks, peer.yardsticks, yardsticks / peer.yardsticks, to_megabytes(costs[key].bytes), peer.megabytes,
        )  # fmt: skip
        rows.append(row)
    return rows
