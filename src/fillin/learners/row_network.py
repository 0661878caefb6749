"""The network that is trained on one table: a row attends to similar rows and reads off their values.

    h_i = MLP(cells of row i, each with its mask bit)            the encoding of a row
    q_i = W h_i                                                  its location, one for each head
    w_ij ∝ exp(−½ ‖q_i − q_j‖²), j ≠ i                          attention between datapoints
    p(cell of i) = head(h_i, Σ_j w_ij [cell of j], …)

The similarity of rows is learned (neighbourhood components, Goldberger et al. 2004; attention between datapoints,
Kossen et al. 2021), and the values that are read off are observed ones. A row never attends to itself, so all rows can
be predicted at once. Every weight has a first axis, the member of the ensemble: on a CPU eight small networks in one
product cost far less than one after another. Names of parameters are part of the format of saved files.
"""

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import MixtureSameFamily, Normal
from torch.nn.functional import dropout, layer_norm, one_hot, softplus

from fillin.attention import attend
from fillin.learners.base import TableLayout
from fillin.learners.encoding import Rows

NARROWING = 5.0  # locations of the last head start NARROWING² times as far apart as those of the first
THRESHOLDS = 4  # of a numeric column, above which the share of attended rows is read off


class MemberLinear(nn.Module):
    """x_m W_m + b_m for each member m."""

    def __init__(self, members: int, dim_in: int, dim_out: int):
        super().__init__()
        bound = 1 / math.sqrt(dim_in)
        self.weight = nn.Parameter(torch.empty(members, dim_in, dim_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, dim_out).uniform_(-bound, bound))

    def forward(self, x: Float[Tensor, "m n i"]) -> Float[Tensor, "m n o"]:
        return torch.baddbmm(self.bias, x, self.weight)


class MemberLayerNorm(nn.Module):
    """Layer normalisation with weights for each member."""

    def __init__(self, members: int, dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(members, 1, dim)), nn.Parameter(torch.zeros(members, 1, dim))

    def forward(self, x: Float[Tensor, "m n i"]) -> Float[Tensor, "m n i"]:
        return layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class NumberEmbedding(nn.Module):
    """Tokens of numeric columns: relu([sin 2πfx, cos 2πfx] W + b), with frequencies f and weights for each column
    (Gorishniy et al. 2022). Trees split a column anywhere; a network that sees x alone learns such steps slowly."""

    def __init__(self, members: int, columns: int, width: int, waves: int = 8, frequency: float = 0.5):
        super().__init__()
        self.frequency = nn.Parameter(frequency * torch.randn(members, 1, columns, waves))
        self.mix = MemberLinear(members * columns, 2 * waves, width)

    def forward(self, x: Float[Tensor, "m n d"]) -> Float[Tensor, "m n d e"]:
        angle = 2 * math.pi * x[..., None] * self.frequency
        waves = torch.cat([angle.sin(), angle.cos()], -1).transpose(1, 2).flatten(0, 1)  # [m·d n 2w]
        return self.mix(waves).relu().unflatten(0, (x.shape[0], -1)).transpose(1, 2)


class ClassEmbedding(nn.Module):
    """Tokens of class columns: a vector for each class of each column."""

    offsets: Int64[Tensor, "d"]

    def __init__(self, members: int, classes: list[int], width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(members, sum(classes), width))
        offsets = torch.tensor([0, *classes[:-1]]).cumsum(0) if classes else torch.zeros(0, dtype=torch.long)
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, codes: Int64[Tensor, "m n d"]) -> Float[Tensor, "m n d e"]:
        member = torch.arange(len(codes), device=codes.device)[:, None, None]
        return self.table[member, codes + self.offsets]


class RowNetwork(nn.Module):
    """An ensemble of `members` networks: net(query, memory) → for each output column a distribution of batch [m n]."""

    number: Int64[Tensor, "_"]
    coded: Int64[Tensor, "_"]
    cuts: Float[Tensor, "_"]

    def __init__(
        self, layout: TableLayout, members: int = 8, width: int = 128, heads: int = 4, places: int = 16, token: int = 8,
        parts: int = 5, dropout: float = 0.1,
    ):  # fmt: skip
        super().__init__()
        self.layout, self.heads, self.parts, self.dropout = layout, heads, parts, dropout
        number = layout.numeric_inputs
        coded = [i for i, k in enumerate(layout.inputs) if k]
        self.register_buffer("number", torch.tensor(number, dtype=torch.long), persistent=False)
        self.register_buffer("coded", torch.tensor(coded, dtype=torch.long), persistent=False)
        self.numbers = NumberEmbedding(members, len(number), token) if number else None
        self.codes = ClassEmbedding(members, [layout.inputs[i] for i in coded], token) if coded else None
        d = len(layout.inputs)
        self.masked = nn.Parameter(torch.zeros(members, 1, d, token))
        encoder = [MemberLinear(members, len(number) + d * token, width), MemberLinear(members, width, width)]
        self.encode = nn.ModuleList(encoder)
        self.place = MemberLinear(members, width, heads * places)
        with torch.no_grad():  # wide heads find a rule, narrow ones a duplicate
            self.place.weight.mul_(torch.logspace(0, 2, heads, base=NARROWING).repeat_interleave(places))
        self.gate = MemberLinear(members, width, len(layout.outputs) * (heads + 1))
        attended = sum(k or 2 + THRESHOLDS for k in layout.outputs) + len(layout.outputs) + places + 1
        features = width + heads * attended + 2 * len(layout.numeric_features)
        self.norm, self.hidden = MemberLayerNorm(members, features), MemberLinear(members, features, width)
        self.tell = MemberLinear(members, width, sum(k or 3 * parts for k in layout.outputs))
        self.trust = nn.Parameter(torch.ones(members, 1, len(layout.outputs)))
        cuts = torch.special.ndtri(torch.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1))
        self.register_buffer("cuts", cuts, persistent=False)

    def encode_rows(self, rows: Rows) -> Float[Tensor, "m n w"]:
        z = rows.inputs[..., self.number]
        tokens = torch.zeros(*rows.inputs.shape, self.masked.shape[-1], dtype=z.dtype, device=z.device)
        if self.numbers is not None:
            tokens[:, :, self.number] = self.numbers(z)
        if self.codes is not None:
            observed = rows.observed[..., self.coded]
            code = self.codes(torch.where(observed, rows.inputs[..., self.coded], 0).long())
            tokens[:, :, self.coded] = torch.where(observed[..., None], code, 0)
        tokens = torch.where(rows.observed[..., None], tokens, tokens + self.masked)
        h = torch.cat([z, tokens.flatten(2)], -1)
        for layer in self.encode:
            h = dropout(layer(h).relu(), self.dropout, self.training)
        return h

    def forward(self, query: Rows, memory: Rows, same: Bool[Tensor, "m n k"] | None = None) -> list:
        """Predict the query rows; `same` marks the memory rows that are the query rows themselves."""
        return self.predict(query, self.remember(memory), same)

    def remember(self, memory: Rows) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory: the locations of its rows, and the values to read off."""
        return self._locations(self.encode_rows(memory)), self._values(memory.outputs, memory.output_observed)

    def predict(self, query: Rows, memory: tuple[Tensor, Tensor], same: Bool[Tensor, "m n k"] | None = None) -> list:
        h = self.encode_rows(query)
        q, (k, values) = self._locations(h), memory
        attended = self._attend(q, k, values, same)  # [m h n v]
        width = values.shape[-1]
        offset, distance = q - attended[..., width:-1], attended[..., -1:]
        spread = (distance - attended[..., width:-1].square().sum(-1, keepdim=True)).clamp_min(0)
        nearness = torch.log1p(spread + offset.square().sum(-1, keepdim=True))
        gates = self.gate(h).unflatten(-1, (-1, self.heads + 1)).unbind(2)
        features, base, start = [], [], 0
        for gate, position, classes in zip(gates, self.layout.input_of_output, self.layout.outputs, strict=True):
            size = 1 + (classes or 2 + THRESHOLDS)
            weight, value = attended[..., start : start + size].tensor_split([1], -1)
            mean = value / weight.clamp_min(1e-6)  # over the rows where the cell is observed
            completed = query.inputs[:, None, :, position, None] if position >= 0 and not classes else None
            heads = mean[..., : classes or 1] if completed is None else torch.cat([mean[..., :1], completed], 1)
            share = gate[..., : heads.shape[1]].log_softmax(-1).exp().transpose(1, 2)[..., None]  # [m h n 1]
            base.append((share * heads).sum(1))
            if not classes:
                std = (mean[..., 1:2] - mean[..., :1].square()).clamp_min(1e-6).sqrt()
                mean = torch.cat([mean[..., :1], std, mean[..., 2:]], -1)
            features += [weight, mean]
            start += size
        heads = torch.cat([*features, offset, nearness], -1).transpose(1, 2).flatten(2)
        completed = [part[..., self.layout.numeric_features] for part in (query.inputs, query.input_std)]
        z = self.hidden(self.norm(torch.cat([h, heads, *completed], -1))).relu()
        return self._distributions(self.tell(dropout(z, self.dropout, self.training)), base)

    def _locations(self, h: Float[Tensor, "m n w"]) -> Float[Tensor, "m h n p"]:
        return self.place(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _values(self, outputs: Float[Tensor, "m k t"], observed: Bool[Tensor, "m k t"]) -> Float[Tensor, "m k v"]:
        """For each output column: 1 where it is observed, then moments and indicators of thresholds, or of classes."""
        parts = []
        for j, classes in enumerate(self.layout.outputs):
            y, is_observed = outputs[..., j], observed[..., j, None]
            if classes:
                value = one_hot(torch.where(observed[..., j], y, 0).long().clamp(0, classes - 1), classes).to(y.dtype)
            else:
                value = torch.cat([y[..., None], y[..., None] ** 2, (y[..., None] > self.cuts).to(y.dtype)], -1)
            parts += [is_observed.to(y.dtype), torch.where(is_observed, value, 0)]
        return torch.cat(parts, -1)

    def _attend(self, q, k, values, same) -> Float[Tensor, "m h n v"]:
        """Gaussian attention as a dot product: −½‖q − k‖² = q·k − ½‖k‖² + a constant of each query."""
        size = (q.shape[-1] + 1) ** 0.5  # attend() divides by it
        ones = torch.ones_like(q[..., :1])
        squared = k.square().sum(-1, keepdim=True)
        v = torch.cat([values[:, None].expand(-1, self.heads, -1, -1), k, squared], -1)
        mask = None if same is None else ~same[:, None]
        return attend(size * torch.cat([q, ones], -1), torch.cat([k, -0.5 * squared], -1), v, mask=mask)

    def _distributions(self, out: Float[Tensor, "m n o"], base: list[Tensor]) -> list:
        """A mixture around the attended mean; for classes logits of the network plus scaled ones of attended shares."""
        distributions, start = [], 0
        for j, classes in enumerate(self.layout.outputs):
            size = classes or 3 * self.parts
            raw, start = out[..., start : start + size], start + size
            if classes:
                logits = self.trust[..., j : j + 1] * (base[j] + 0.5 / (classes * 20)).log()
                distributions.append(TorchCategorical(logits=raw + logits, validate_args=False))
                continue
            share, mean, width = raw.unflatten(-1, (3, self.parts)).unbind(-2)
            normals = Normal(base[j][..., :1] + mean, 1e-3 + softplus(width - 1), validate_args=False)
            weights = TorchCategorical(logits=share, validate_args=False)
            distributions.append(MixtureSameFamily(weights, normals, validate_args=False))
        return distributions


def same_rows(query: Int64[Tensor, "m n"], memory: Int64[Tensor, "m k"]) -> Bool[Tensor, "m n k"]:
    """Return the mask of memory rows that equal the query row, by row numbers."""
    return query[:, :, None] == memory[:, None]
