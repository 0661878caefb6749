"""Transformers on sequences: encoder, decoder and the translation model of Vaswani et al. (2017)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fillin.attention import Sinusoid, expand_key_mask
from fillin.layers.block import Block, MultiHeadAttention

Sequence = Float[Tensor, "b n c"]
Memory = Float[Tensor, "b m c"]


class Encoder(nn.Module):
    """A stack of blocks in which every token attends to every token, with a final norm where norm="pre"."""

    def __init__(self, dim: int, heads: int, layers: int, norm: str = "pre"):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, heads, norm=norm) for _ in range(layers))
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(self, x: Sequence, mask: Bool[Tensor, "b n"] | None = None) -> Sequence:
        for block in self.blocks:
            x = block(x, mask=expand_key_mask(mask))
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Causal self-attention, then a `Block` that attends to the encoder's output."""

    def __init__(self, dim: int, heads: int, norm: str = "pre"):
        super().__init__()
        self.pre = norm == "pre"
        self.norm, self.past = nn.LayerNorm(dim), MultiHeadAttention(dim, heads)
        self.cross = Block(dim, heads, norm=norm, cross=True)

    def forward(self, x: Sequence, memory: Memory, mask: Bool[Tensor, "b m"] | None = None) -> Sequence:
        x = x + self.past(self.norm(x), causal=True) if self.pre else self.norm(x + self.past(x, causal=True))
        return self.cross(x, memory, mask=expand_key_mask(mask))


class Decoder(nn.Module):
    """A stack of decoder layers: token i attends to tokens ≤ i and to the whole memory."""

    def __init__(self, dim: int, heads: int, layers: int, norm: str = "pre"):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, norm) for _ in range(layers))
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(self, x: Sequence, memory: Memory, mask: Bool[Tensor, "b m"] | None = None) -> Sequence:
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.norm(x)


class Seq2Seq(nn.Module):
    """Translation model: embeddings + sinusoids, encoder, decoder, logits over the vocabulary (Vaswani et al. 2017).
    `forward` uses teacher forcing: the decoder reads the true words so far. `greedy` decodes: it reads its own."""

    def __init__(self, vocabulary: int, dim: int = 64, heads: int = 4, layers: int = 2, norm: str = "pre"):
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, dim), Sinusoid(dim)
        self.encoder = Encoder(dim, heads, layers, norm=norm)
        self.decoder = Decoder(dim, heads, layers, norm=norm)
        self.out = nn.Linear(dim, vocabulary)

    def _embed(self, words: Int[Tensor, "b n"]) -> Sequence:
        embedded = self.embed(words)
        position = torch.arange(words.shape[1], device=words.device, dtype=embedded.dtype)
        return embedded + self.positions(position[:, None])

    def forward(self, source: Int[Tensor, "b m"], target: Int[Tensor, "b n"]) -> Float[Tensor, "b n vocabulary"]:
        """Return the logits of the word that follows each word of `target`."""
        return self.out(self.decoder(self._embed(target), self.encoder(self._embed(source))))

    @torch.no_grad()
    def greedy(self, source: Int[Tensor, "b m"], start: int, length: int) -> Int[Tensor, "b length"]:
        """Decode `length` words greedily, beginning after the word `start`."""
        memory = self.encoder(self._embed(source))
        words = torch.full((len(source), 1), start, dtype=source.dtype, device=source.device)
        for _ in range(length):
            logits = self.out(self.decoder(self._embed(words), memory)[:, -1])
            words = torch.cat([words, logits.argmax(-1, keepdim=True).to(words.dtype)], 1)
        return words[:, 1:]
