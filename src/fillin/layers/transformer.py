"""Encoder and decoder of a transformer on sequences (Vaswani et al. 2017; Sivaraya 2023, sections 1.5 and 1.6)."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention import ClippedPosition, DotProduct, LearnedPositions, expand_key_mask
from fillin.layers.block import Block, KeyValues, MultiHeadAttention

Sequence = Float[Tensor, "b n c"]
Positions = Float[Tensor, "b n 1"] | None
Valid = Bool[Tensor, "b n"] | None
Memory = Float[Tensor, "b m c"]
MemoryMask = Bool[Tensor, "b m"] | None


def make_relative(clip: int | None, head_dim: int) -> dict[str, Any]:
    """Return the options of attention with the relative positions of Shaw et al. 2018, clipped at `clip` (None: no
    positions): a learned vector of each displacement for the keys and one for the values."""
    if clip is None:
        return {}
    score = DotProduct() + ClippedPosition(clip, head_dim)
    return {"score": score, "relative_values": LearnedPositions(-clip, clip, head_dim)}


class Encoder(nn.Module):
    """Stack of blocks in which every token attends to every valid token, with a final norm where norm="pre".

    `clip` gives each layer relative positions; `forward` then needs the positions of tokens.

    >>> Encoder(16, heads=4, layers=2)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self, dim: int, heads: int, layers: int, norm: str = "pre", *, hidden: int | None = None, dropout: float = 0.0,
        clip: int | None = None,
    ):  # fmt: skip
        super().__init__()
        head_dim = max(1, dim // heads)
        self.blocks = nn.ModuleList(
            Block(dim, heads, head_dim, hidden=hidden, norm=norm, dropout=dropout, **make_relative(clip, head_dim))
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(self, x: Sequence, mask: Valid = None, positions: Positions = None) -> Sequence:
        for block in self.blocks:
            x = block(x, xq=positions, xk=positions, mask=expand_key_mask(mask))
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Causal self-attention, then a `Block` that attends to the encoder's output, the memory."""

    def __init__(
        self, dim: int, heads: int, norm: str = "pre", *, hidden: int | None = None, dropout: float = 0.0,
        clip: int | None = None,
    ):  # fmt: skip
        super().__init__()
        head_dim = max(1, dim // heads)
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(dim)
        self.past = MultiHeadAttention(dim, heads, head_dim, **make_relative(clip, head_dim))
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.cross = Block(dim, heads, head_dim, hidden=hidden, norm=norm, cross=True, dropout=dropout)

    def forward(
        self, x: Sequence, memory: Memory, mask: MemoryMask = None, valid: Valid = None, positions: Positions = None
    ) -> Sequence:
        attended = self.past(self._before(x), xq=positions, mask=expand_key_mask(valid), causal=True)
        return self.cross(self._add(x, attended), memory, mask=expand_key_mask(mask))

    def step(
        self,
        x: Float[Tensor, "b 1 c"],
        memory: KeyValues,
        mask: MemoryMask,
        past: KeyValues | None,
        positions: Positions = None,
    ) -> tuple[Float[Tensor, "b 1 c"], KeyValues]:
        """Decode one more token from the keys and values of the previous ones; return those of all. `positions` are of
        all tokens."""
        z = self._before(x)
        new = self.past.project_context(z)
        if past is not None and past.k is not None and new.k is not None:
            new = KeyValues(torch.cat([past.k, new.k], 2), torch.cat([past.v, new.v], 2))
        last = None if positions is None else positions[:, -1:]
        x = self._add(x, self.past(z, new, xq=last, xk=positions))
        return self.cross(x, memory, mask=expand_key_mask(mask)), new

    def _before(self, x: Sequence) -> Sequence:
        return self.norm(x) if self.pre else x

    def _add(self, x: Sequence, attended: Sequence) -> Sequence:
        x = x + self.dropout(attended)
        return x if self.pre else self.norm(x)


class DecoderState(NamedTuple):
    """Keys and values that decoding keeps, per layer: of the memory, and of the tokens so far (None: no token yet)."""

    memory: list[KeyValues]
    mask: MemoryMask
    past: list[KeyValues | None]


class Decoder(nn.Module):
    """Stack of decoder layers: token i attends to valid tokens ≤ i and to the valid tokens of the memory.

    `forward` takes all tokens at once. `start` and `step` take them one after another, with equal results; they keep
    keys and values instead of computing them again.

    >>> decoder, memory = Decoder(16, heads=4, layers=2), torch.randn(2, 5, 16)
    >>> decoder(torch.randn(2, 3, 16), memory).shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self, dim: int, heads: int, layers: int, norm: str = "pre", *, hidden: int | None = None, dropout: float = 0.0,
        clip: int | None = None,
    ):  # fmt: skip
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(dim, heads, norm, hidden=hidden, dropout=dropout, clip=clip) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(
        self, x: Sequence, memory: Memory, mask: MemoryMask = None, valid: Valid = None, positions: Positions = None
    ) -> Sequence:
        for layer in self.layers:
            x = layer(x, memory, mask, valid, positions)
        return self.norm(x)

    def start(self, memory: Memory, mask: MemoryMask = None) -> DecoderState:
        """Project the memory to the keys and values of every layer."""
        kept: list[Any] = [layer.cross.project_context(memory) for layer in self.layers]  # type: ignore[union-attr]
        return DecoderState(kept, mask, [None] * len(kept))

    def step(
        self, x: Float[Tensor, "b 1 c"], state: DecoderState, positions: Positions = None
    ) -> tuple[Float[Tensor, "b 1 c"], DecoderState]:
        """Decode one more token; return its features, and the state that includes it."""
        past: list[KeyValues | None] = []
        for layer, memory, kept in zip(self.layers, state.memory, state.past, strict=True):
            x, new = layer.step(x, memory, state.mask, kept, positions)  # type: ignore[operator]
            past.append(new)
        return self.norm(x), state._replace(past=past)
