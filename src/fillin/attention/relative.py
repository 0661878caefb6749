"""Transformer-XL and Shaw scores: the query's content meets the displacement, not only the key."""

import math

import torch
from torch import Tensor, nn

from fillin.attention.positions import Sinusoid
from fillin.attention.scores import Score


class Relative(Score):
    """logit = [(q + u)·k + (q + v)·r(Δ)] / √d, with r(Δ) = W_h · positions(Δ) per head.

    `positions` maps displacements […, dx] to features […, dim]: a `SIREN` gives document 004, a `Sinusoid` its
    Transformer-XL baseline (which folds by angle addition, so nothing pairwise is made), a `Learned` table
    Shaw's clipped positions (with `biases=False`: u = v = 0).
    """

    content = True
    places = True

    def __init__(
        self, heads: int, head_dim: int, positions: nn.Module, dim: int, biases: bool = True, radial: bool = False
    ):
        super().__init__()
        self.radial, self.channels = radial, dim
        self.positions = positions
        self.weight = nn.Parameter(torch.randn(heads, dim, head_dim) / math.sqrt(dim))
        self.u = nn.Parameter(torch.zeros(heads, 1, head_dim)) if biases else None
        self.v = nn.Parameter(torch.zeros(heads, 1, head_dim)) if biases else None

    def _queries(self, q):
        """(q + u)/√d [b h n d], and the coefficient of each positional feature, (q + v) Wᵀ/√d [b h n dim]."""
        root = math.sqrt(q.shape[-1])
        u, v = (0.0, 0.0) if self.u is None or self.v is None else (self.u, self.v)
        return (q + u) / root, ((q + v) / root) @ self.weight.mT

    @property
    def few(self) -> bool:
        """Whether `positions` makes its features of distinct displacements alone, and needs no table."""
        return getattr(self.positions, "few", False)

    @property
    def folds(self) -> bool:
        return not self.radial and isinstance(self.positions, Sinusoid)

    def columns(self, q, k):
        """What is left without the displacement: (q + u)/√d and k."""
        return self._queries(q)[0], k

    def meets(self, q: Tensor) -> Tensor:
        """(q + v)/√d [b h n d], what the features of Δ are multiplied by."""
        return (q if self.v is None else q + self.v) / math.sqrt(q.shape[-1])

    def features(self, delta: Tensor) -> Tensor:
        """r(Δ) = W_h · positions(Δ) on a grid [1 dims n m] → [h n m d]."""
        return torch.einsum("nmf,hfd->hnmd", self.positions(delta[0].movedim(0, -1)), self.weight)

    def forward(self, q, k, delta):
        content, coefficients = self._queries(q)
        if self.radial:
            delta = torch.linalg.vector_norm(delta, dim=1, keepdim=True)
        features = self.positions(delta.movedim(1, -1))  # [b n m dim]
        return content @ k.mT + torch.einsum("bhnf,bnmf->bhnm", coefficients, features)

    def fold(self, q, k, xq, xk):
        if not self.folds:
            return None
        assert isinstance(self.positions, Sinusoid)
        omega, dims = self.positions.omega, 1 if self.positions.combine == "add" else self.positions.dim_x
        content, coefficients = self._queries(q)
        of_sine, of_cosine = (c.unflatten(-1, (dims, -1)) for c in (coefficients[..., 0::2], coefficients[..., 1::2]))
        at_q, at_k = (x[:, None, ..., None] * omega for x in (xq, xk))  # [b 1 n dx f]
        sin, cos = at_q.sin(), at_q.cos()
        columns = torch.stack([of_sine * sin + of_cosine * cos, of_cosine * sin - of_sine * cos], -1).flatten(-3)
        waves = torch.stack([at_k.cos(), at_k.sin()], -1).flatten(-3).expand(*k.shape[:3], -1)
        return torch.cat([content, columns], -1), torch.cat([k, waves], -1)
