"""What a pair (query i, key j) is worth: the logit of its weight, per head.

Every score maps queries q [b h n d], keys k [b h m d] and displacements Δ [b dx n m] (Δ_ij = xq_i − xk_j; b is 1 where
all tasks have the same places) to logits [b h n m]. Places enter through Δ alone, so a model whose tokens carry no x
is translation equivariant.
Scores add up: `DotProduct() + Gaussian(heads=4)`.

A score that is an inner product of something of the query and something of the key can `fold` itself into extra
columns of q and k; then nothing pairwise is ever made outside the fused softmax.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Queries = Float[Tensor, "b h n d"]
Delta = Float[Tensor, "#b dx n m"]
Logits = Float[Tensor, "#b #h n m"]
Folded = tuple[Float[Tensor, "#b #h n _"], Float[Tensor, "#b #h m _"]]


class Score(nn.Module, ABC):
    """The logit of a pair. `content` says whether q and k are read, `places` whether Δ is."""

    content = False
    places = False
    channels = 1  # numbers held for each pair while it is scored, over all heads
    mixes = False  # whether these depend on q and k as well as on Δ
    alone = True  # whether a pair is scored by itself, not beside the other keys of its query

    @abstractmethod
    def forward(self, q: Any, k: Any, delta: Any) -> Logits:
        """Logits [b h n m] from q [b h n d], k [b h m d] and Δ [b dx n m]; what the score does not read may be None."""

    def fold(self, q: Any, k: Any, xq: Any, xk: Any) -> Folded | None:
        """Columns (q', k') with q'_i · k'_j = logit_ij exactly, or None where there are none (or too few digits)."""
        return None

    @property
    def terms(self) -> tuple["Score", ...]:
        return (self,)

    def check(self, heads: int, dim_x: int) -> None:
        """An error where the score was made for another number of heads or dimensions."""

    def tensors(self) -> list[Tensor]:
        """What the score is made of, and so what gradients flow to."""
        return list(self.parameters())

    def __add__(self, other: "Score") -> "Sum":
        return Sum(*self.terms, *other.terms)


class Sum(Score):
    """logit = Σ_s logit_s. What folds among the terms is folded, the rest is a bias."""

    def __init__(self, *scores: Score):
        super().__init__()
        self.scores = nn.ModuleList(scores)
        self.content = any(s.content for s in scores)
        self.channels = max(s.channels for s in scores)
        self.places = any(s.places for s in scores)
        self.mixes = any(s.mixes for s in scores)

    @property
    def terms(self) -> tuple[Score, ...]:
        return tuple(self.scores)  # type: ignore[return-value]

    def tensors(self) -> list[Tensor]:
        return [tensor for term in self.terms for tensor in term.tensors()]

    def forward(self, q, k, delta):
        first, *rest = self.scores
        added = rest[0](q, k, delta)
        for score in rest[1:]:
            added = added + score(q, k, delta)
        if not isinstance(first, DotProduct):
            return first(q, k, delta) + added
        # q·k/√d + the rest in one pass over the pairs
        added = added.expand(*q.shape[:3], k.shape[2]).flatten(0, 1)
        logits = torch.baddbmm(added, first.scaled(q).flatten(0, 1), k.flatten(0, 1).mT)
        return logits.unflatten(0, q.shape[:2])


class Uniform(Score):
    """logit = 0: every key counts the same; softmaxed it is the mean of the values (CNP)."""

    def forward(self, q, k, delta):
        if delta is not None:
            return torch.zeros_like(delta[:, :1])
        return q.new_zeros(1, 1, q.shape[-2], k.shape[-2])

    def fold(self, q, k, xq, xk):
        query, key = (q, k) if q is not None else (xq[:, None], xk[:, None])
        return query[..., :1] * 0, key[..., :1] * 0


class DotProduct(Score):
    """logit = q · k / √d (Vaswani et al. 2017, equation 3 of the report)."""

    content = True

    @staticmethod
    def scaled(q: Queries) -> Queries:
        return q / math.sqrt(q.shape[-1])

    def forward(self, q, k, delta):
        return self.scaled(q) @ k.mT

    def fold(self, q, k, xq, xk):
        return self.scaled(q), k


class Cosine(Score):
    """logit = τ_h · (q/‖q‖) · (k/‖k‖), with a learned sharpness τ per head."""

    content = True

    def __init__(self, heads: int = 1, init: float = 10.0):
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.full((heads,), math.log(init)))

    def fold(self, q, k, xq, xk):
        unit = nn.functional.normalize
        return unit(q, dim=-1) * self.log_sharpness.exp()[:, None, None], unit(k, dim=-1)

    def forward(self, q, k, delta):
        query, key = self.fold(q, k, None, None)
        return query @ key.mT
