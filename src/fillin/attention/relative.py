"""Relative positional scores: the content of the query meets the displacement (Dai et al. 2019, Shaw et al. 2018)."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.attention.displacement import reduce_to_radius
from fillin.attention.positional_encodings import GridEncoding, LearnedPositions, Sinusoid
from fillin.attention.scores import Queries, Score, ScoreTraits
from fillin.errors import InputError


class RelativePosition(Score):
    """logit = [(q + u)·k + (q + v)·r(Δ)] / √d, with r(Δ) = W_h · positions(Δ) per head.

    `positions` maps displacements […, dx] to features […, dim]. A `Sinusoid` gives Transformer-XL (Dai et al. 2019) and
    folds by angle addition, a `SIREN` gives Alfons 2022. The learned positions of Shaw et al. 2018, without W, u and v,
    are `ClippedPosition`.
    """

    def __init__(
        self, heads: int, head_dim: int, positions: nn.Module, dim: int, biases: bool = True, radial: bool = False
    ):
        super().__init__()
        self.dim = dim
        self.traits = ScoreTraits(content=True, displacement=True, radial=radial, channels=dim, costly=True)
        self.set_positions(positions)
        self.weight = nn.Parameter(torch.randn(heads, dim, head_dim) / math.sqrt(dim))
        self.u = nn.Parameter(torch.zeros(heads, 1, head_dim)) if biases else None
        self.v = nn.Parameter(torch.zeros(heads, 1, head_dim)) if biases else None

    def set_positions(self, positions: nn.Module) -> None:
        """Use another encoding of displacements, with as many features."""
        self.positions = positions
        self.traits = replace(self.traits, gridded=isinstance(positions, GridEncoding))

    @property
    def folds(self) -> bool:
        return not self.traits.radial and isinstance(self.positions, Sinusoid)

    def content_columns(self, q: Queries, k: Tensor) -> tuple[Tensor, Tensor]:
        """(q + u)/√d [b h n d] and k: the term without the displacement."""
        return (q if self.u is None else q + self.u) / math.sqrt(q.shape[-1]), k

    def position_queries(self, q: Queries) -> Queries:
        """(q + v)/√d [b h n d], which r(Δ) is multiplied by."""
        return (q if self.v is None else q + self.v) / math.sqrt(q.shape[-1])

    def tabulate_features(self, delta: Float[Tensor, "1 dims n m"]) -> Float[Tensor, "h n m d"]:
        """r(Δ) = W_h · positions(Δ) on a grid of displacements."""
        return torch.einsum("nmf,hfd->hnmd", self.positions(delta[0].movedim(0, -1)), self.weight)

    def forward(self, q, k, delta):
        query, _ = self.content_columns(q, k)
        coefficients = self.position_queries(q) @ self.weight.mT  # of each positional feature, [b h n dim]
        delta = reduce_to_radius(delta) if self.traits.radial else delta
        features = self.positions(delta.movedim(1, -1))  # [b n m dim]
        return query @ k.mT + torch.einsum("bhnf,bnmf->bhnm", coefficients, features)

    def fold(self, q, k, xq, xk):
        if not self.folds:
            return None
        assert isinstance(self.positions, Sinusoid)
        omega, dims = self.positions.omega, 1 if self.positions.combine == "add" else self.positions.dim_x
        query, _ = self.content_columns(q, k)
        coefficients = self.position_queries(q) @ self.weight.mT
        of_sine, of_cosine = (c.unflatten(-1, (dims, -1)) for c in (coefficients[..., 0::2], coefficients[..., 1::2]))
        phase_q, phase_k = (x[:, None, ..., None] * omega for x in (xq, xk))  # [b 1 n dx f]
        sin, cos = phase_q.sin(), phase_q.cos()
        columns = torch.stack([of_sine * sin + of_cosine * cos, of_cosine * sin - of_sine * cos], -1).flatten(-3)
        waves = torch.stack([phase_k.cos(), phase_k.sin()], -1).flatten(-3).expand(*k.shape[:3], -1)
        return torch.cat([query, columns], -1), torch.cat([k, waves], -1)


class ClippedPosition(Score):
    """logit = q · a_c / √d, with a learned vector a_c of the displacement c = clip(Δ, −K, K), K = `clip`.

    `DotProduct() + ClippedPosition(clip, head_dim)` is equation 4 of Shaw et al. 2018, q · (k + a_c) / √d. All heads
    share the vectors, and c = query − key has the opposite sign of theirs. Their second table, which is added to the
    values, is `relative_values` of `fillin.layers.MultiHeadAttention`.

    Locations are positions in a sequence, one column of whole numbers. The inner products with the 2K + 1 vectors are
    computed once per query, so that no vector is stored for a pair.

    >>> from fillin.attention import DotProduct, attend
    >>> x, tokens = torch.arange(6.0).view(1, 6, 1), torch.randn(1, 2, 6, 4)
    >>> attend(tokens, tokens, tokens, xq=x, xk=x, score=DotProduct() + ClippedPosition(3, head_dim=4)).shape
    torch.Size([1, 2, 6, 4])
    """

    traits = ScoreTraits(content=True, displacement=True)

    def __init__(self, clip: int, head_dim: int):
        super().__init__()
        self.positions = LearnedPositions(-clip, clip, head_dim)

    def validate(self, heads: int, dim_x: int) -> None:
        if dim_x != 1:
            raise InputError(
                f"ClippedPosition: locations must be positions in a sequence, one column, got {dim_x} columns"
            )

    def forward(self, q, k, delta):
        products = q @ self.positions.table.mT / math.sqrt(q.shape[-1])  # [b h n 2K+1]
        return products.gather(-1, self.positions.index(delta).expand(*q.shape[:3], k.shape[2]))
