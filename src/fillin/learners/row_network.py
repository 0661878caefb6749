"""The network that is trained on one table: a row looks at rows that are like it, and at what they hold.

    h_i = MLP(cells of row i, each with its mask bit)            what a row is
    q_i = W h_i                                                  where it is: a place for each head
    w_ij ∝ exp(−½ ‖q_i − q_j‖²), j ≠ i                          attention between datapoints
    p(cell of i) = head(h_i, Σ_j w_ij [cell of j], …)

Which rows are alike is learnt (neighbourhood components, Goldberger et al. 2004; attention between datapoints, Kossen
et al. 2021), and what is looked up is what was measured. A row never sees itself, so all can be asked for at once.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.nn.functional import dropout, one_hot, softplus

from fillin.attention import attend
from fillin.learners.batched_layers import Codes, Linears, Norms, Numbers

NARROW = 5.0  # places of the last head begin NARROW² times as far apart as those of the first
STEPS = 4  # where the distribution of a column is cut, so that shares above can be looked up


@dataclass(frozen=True)
class Layout:
    """Which columns a network reads, and which it tells: classes of each (0: numbers, in standard units). `shared`
    says at which place of what is read a told column is (−1: it is not read), so that a cell that is asked for is
    never seen."""

    reads: tuple[int, ...]
    tells: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def numbers(self) -> list[int]:
        """Places of the columns of numbers that are read."""
        return [i for i, classes in enumerate(self.reads) if not classes]

    @property
    def guesses(self) -> list[int]:
        """Places of those that are told, too: there is a guess to begin with."""
        return [i for i, classes in zip(self.shared, self.tells, strict=True) if i >= 0 and not classes]


@dataclass(frozen=True)
class Rows:
    """Rows for each member: cells that may be read, those that are not seen guessed at, and how unsure; and cells to be
    looked up (their values 0 where not known)."""

    cells: Float[Tensor, "m n d"]
    unsure: Float[Tensor, "m n d"]
    seen: Bool[Tensor, "m n d"]
    held: Float[Tensor, "m n t"]
    known: Bool[Tensor, "m n t"]


class RowNet(nn.Module):
    """`members` networks; net(asked, memory) → for each told column a distribution of batch [m n]."""

    number: Int64[Tensor, "_"]
    coded: Int64[Tensor, "_"]
    cuts: Float[Tensor, "_"]

    def __init__(
        self, layout: Layout, members: int = 8, width: int = 128, heads: int = 4, places: int = 16, token: int = 8,
        parts: int = 5, dropout: float = 0.1,
    ):  # fmt: skip
        super().__init__()
        self.layout, self.heads, self.parts, self.dropout = layout, heads, parts, dropout
        number = layout.numbers
        coded = [i for i, k in enumerate(layout.reads) if k]
        self.register_buffer("number", torch.tensor(number, dtype=torch.long), persistent=False)
        self.register_buffer("coded", torch.tensor(coded, dtype=torch.long), persistent=False)
        self.numbers = Numbers(members, len(number), token) if number else None
        self.codes = Codes(members, [layout.reads[i] for i in coded], token) if coded else None
        d = len(layout.reads)
        self.masked = nn.Parameter(torch.zeros(members, 1, d, token))
        self.encode = nn.ModuleList([Linears(members, len(number) + d * token, width), Linears(members, width, width)])
        self.place = Linears(members, width, heads * places)
        with torch.no_grad():  # from a wide look to a narrow one: a rule is found by the one, a copy by the other
            self.place.weight.mul_(torch.logspace(0, 2, heads, base=NARROW).repeat_interleave(places))
        self.gate = Linears(members, width, len(layout.tells) * (heads + 1))
        looked_up = sum(k or 2 + STEPS for k in layout.tells) + len(layout.tells) + places + 1
        found = width + heads * looked_up + 2 * len(layout.guesses)
        self.norm, self.hidden = Norms(members, found), Linears(members, found, width)
        self.tell = Linears(members, width, sum(k or 3 * parts for k in layout.tells))
        self.trust = nn.Parameter(torch.ones(members, 1, len(layout.tells)))
        cuts = torch.special.ndtri(torch.arange(1, STEPS + 1) / (STEPS + 1))
        self.register_buffer("cuts", cuts, persistent=False)

    def row(self, rows: Rows) -> Float[Tensor, "m n w"]:
        z = rows.cells[..., self.number]
        tokens = torch.zeros(*rows.cells.shape, self.masked.shape[-1], dtype=z.dtype, device=z.device)
        if self.numbers is not None:
            tokens[:, :, self.number] = self.numbers(z)
        if self.codes is not None:
            seen = rows.seen[..., self.coded]
            code = self.codes(torch.where(seen, rows.cells[..., self.coded], 0).long())
            tokens[:, :, self.coded] = torch.where(seen[..., None], code, 0)
        tokens = torch.where(rows.seen[..., None], tokens, tokens + self.masked)
        h = torch.cat([z, tokens.flatten(2)], -1)
        for layer in self.encode:
            h = dropout(layer(h).relu(), self.dropout, self.training)
        return h

    def forward(self, asked: Rows, memory: Rows, same: Bool[Tensor, "m n k"] | None = None) -> list:
        """`same` says which rows of the memory are the asked ones themselves."""
        return self.answer(asked, self.remember(memory), same)

    def remember(self, memory: Rows) -> tuple[Tensor, Tensor]:
        """The places of rows, and what can be looked up there."""
        return self._places(self.row(memory)), self._held(memory.held, memory.known)

    def answer(self, asked: Rows, memory: tuple[Tensor, Tensor], same: Bool[Tensor, "m n k"] | None = None) -> list:
        h = self.row(asked)
        q, (k, held) = self._places(h), memory
        found = self._look_up(q, k, held, same)  # [m h n v]
        width = held.shape[-1]
        offset, far = q - found[..., width:-1], found[..., -1:]
        spread = (far - found[..., width:-1].square().sum(-1, keepdim=True)).clamp_min(0)
        near = torch.log1p(spread + offset.square().sum(-1, keepdim=True))
        gates = self.gate(h).unflatten(-1, (-1, self.heads + 1)).unbind(2)
        told, base, at = [], [], 0
        for gate, place, classes in zip(gates, self.layout.shared, self.layout.tells, strict=True):
            size = 1 + (classes or 2 + STEPS)
            some, what = found[..., at : at + size].tensor_split([1], -1)
            mean = what / some.clamp_min(1e-6)  # of the rows where it is known
            guess = asked.cells[:, None, :, place, None] if place >= 0 and not classes else None
            base.append(_weighed(gate, mean[..., : classes or 1], guess))
            if not classes:
                deviation = (mean[..., 1:2] - mean[..., :1].square()).clamp_min(1e-6).sqrt()
                mean = torch.cat([mean[..., :1], deviation, mean[..., 2:]], -1)
            told += [some, mean]
            at += size
        heads = torch.cat([*told, offset, near], -1).transpose(1, 2).flatten(2)
        guesses = [asked.cells[..., self.layout.guesses], asked.unsure[..., self.layout.guesses]]
        z = self.hidden(self.norm(torch.cat([h, heads, *guesses], -1))).relu()
        return self._distributions(self.tell(dropout(z, self.dropout, self.training)), base)

    def _places(self, h: Float[Tensor, "m n w"]) -> Float[Tensor, "m h n p"]:
        return self.place(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _held(self, held: Float[Tensor, "m k t"], known: Bool[Tensor, "m k t"]) -> Float[Tensor, "m k v"]:
        """Of each told column: whether it is known, then moments and shares above, or the class."""
        parts = []
        for j, classes in enumerate(self.layout.tells):
            y, there = held[..., j], known[..., j, None]
            if classes:
                what = one_hot(torch.where(known[..., j], y, 0).long().clamp(0, classes - 1), classes).to(y.dtype)
            else:
                what = torch.cat([y[..., None], y[..., None] ** 2, (y[..., None] > self.cuts).to(y.dtype)], -1)
            parts += [there.to(y.dtype), torch.where(there, what, 0)]
        return torch.cat(parts, -1)

    def _look_up(self, q, k, held, same) -> Float[Tensor, "m h n v"]:
        """Gaussian attention as a dot product: −½‖q − k‖² = q·k − ½‖k‖² + what is the same for all k."""
        size = (q.shape[-1] + 1) ** 0.5  # attend() divides by it
        ones = torch.ones_like(q[..., :1])
        squared = k.square().sum(-1, keepdim=True)
        v = torch.cat([held[:, None].expand(-1, self.heads, -1, -1), k, squared], -1)
        mask = None if same is None else ~same[:, None]
        return attend(size * torch.cat([q, ones], -1), torch.cat([k, -0.5 * squared], -1), v, mask=mask)

    def _distributions(self, out: Float[Tensor, "m n o"], base: list[Tensor]) -> list:
        """A mixture around what was looked up; of classes their odds, those that were looked up times how much they
        are trusted."""
        made, at = [], 0
        for j, classes in enumerate(self.layout.tells):
            size = classes or 3 * self.parts
            raw, at = out[..., at : at + size], at + size
            if classes:
                odds = self.trust[..., j : j + 1] * (base[j] + 0.5 / (classes * 20)).log()
                made.append(Categorical(logits=raw + odds, validate_args=False))
                continue
            share, mean, wide = raw.unflatten(-1, (3, self.parts)).unbind(-2)
            parts = Normal(base[j][..., :1] + mean, 1e-3 + softplus(wide - 1), validate_args=False)
            made.append(MixtureSameFamily(Categorical(logits=share, validate_args=False), parts, validate_args=False))
        return made


def _weighed(gate: Float[Tensor, "m n g"], mean: Float[Tensor, "m h n k"], guess: Tensor | None):
    """What the heads looked up, and the guess where there is one, each as much as a row trusts it."""
    if guess is not None:
        mean = torch.cat([mean, guess], 1)
    share = gate[..., : mean.shape[1]].log_softmax(-1).exp().transpose(1, 2)[..., None]  # [m h n 1]
    return (share * mean).sum(1)


def same_rows(asked: Int64[Tensor, "m n"], memory: Int64[Tensor, "m k"]) -> Bool[Tensor, "m n k"]:
    """Which rows of the memory are the asked ones, by their numbers."""
    return asked[:, :, None] == memory[:, None]
