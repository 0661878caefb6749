"""Scores: the logit of a pair (query i, key j), per head.

A score maps queries q [b h n d], keys k [b h m d] and displacements Δ [b dx n m] (Δ_ij = xq_i − xk_j; b is 1 where all
tasks share their locations) to logits [b h n m]. Locations enter through Δ alone, so a model whose tokens carry no x is
translation equivariant. Scores add up: `DotProduct() + Gaussian(heads=4)`.

A score that is an inner product of a function of the query and a function of the key can `fold` itself into extra
columns of q and k. Then no tensor over pairs exists outside the fused softmax.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Queries = Float[Tensor, "b h n d"]
Delta = Float[Tensor, "#b dx n m"]
Logits = Float[Tensor, "#b #h n m"]
Folded = tuple[Float[Tensor, "#b #h n _"], Float[Tensor, "#b #h m _"]]


@dataclass(frozen=True)
class ScoreTraits:
    """Properties of a score that validation, dispatch and back ends read. A score declares them once, as `traits`."""

    content: bool = False  # reads q and k
    displacement: bool = False  # reads Δ
    radial: bool = False  # reads Δ through ‖Δ‖ alone
    channels: int = 1  # numbers computed for a pair, over all heads, before they become logits
    mixed: bool = False  # these numbers depend on q and k as well as on Δ
    compares_keys: bool = False  # the logit of a pair depends on the other keys of its query
    costly: bool = False  # expensive on every pair, so that interpolating from a table pays
    gridded: bool = False  # evaluates every distinct Δ of locations on a grid once, and needs no table elsewhere


class Score(nn.Module, ABC):
    """The logit of a pair. Subclasses implement `forward` and declare their `traits`."""

    traits = ScoreTraits()

    @abstractmethod
    def forward(self, q: Any, k: Any, delta: Any) -> Logits:
        """Logits [b h n m] from q [b h n d], k [b h m d] and Δ [b dx n m]; an argument that is not read may be None."""

    def fold(self, q: Any, k: Any, xq: Any, xk: Any) -> Folded | None:
        """Columns (q', k') with q'_i · k'_j = logit_ij exactly; None where there are none, or digits would be lost."""
        return None

    @property
    def terms(self) -> tuple["Score", ...]:
        return (self,)

    def validate(self, heads: int, dim_x: int) -> None:
        """Raise an error where the score was made for another number of heads or dimensions."""

    def learned_tensors(self) -> list[Tensor]:
        """Tensors that receive gradients."""
        return list(self.parameters())

    def __add__(self, other: "Score") -> "Sum":
        return Sum(*self.terms, *other.terms)


class Sum(Score):
    """logit = Σ_s logit_s. Back ends fold the terms that fold and add the others as a bias."""

    def __init__(self, *scores: Score):
        super().__init__()
        self.scores = nn.ModuleList(scores)
        self._terms = scores  # a list of modules takes longer to read than a small problem takes to solve
        traits = [score.traits for score in scores]
        self.traits = ScoreTraits(
            content=any(t.content for t in traits),
            displacement=any(t.displacement for t in traits),
            channels=max(t.channels for t in traits),
            mixed=any(t.mixed for t in traits),
            compares_keys=any(t.compares_keys for t in traits),
        )

    @property
    def terms(self) -> tuple[Score, ...]:
        return self._terms

    def learned_tensors(self) -> list[Tensor]:
        return [tensor for term in self.terms for tensor in term.learned_tensors()]

    def forward(self, q, k, delta):
        first, second, *rest = self.terms
        added = second(q, k, delta)
        for score in rest:
            added = added + score(q, k, delta)
        if not isinstance(first, DotProduct):
            return first(q, k, delta) + added
        # q·k/√d + the rest in one pass over the pairs
        added = added.expand(*q.shape[:3], k.shape[2]).flatten(0, 1)
        logits = torch.baddbmm(added, first.scaled(q).flatten(0, 1), k.flatten(0, 1).mT)
        return logits.unflatten(0, q.shape[:2])


class Uniform(Score):
    """logit = 0: all keys have the same weight. Normalised, it is the mean of the values (CNP)."""

    def forward(self, q, k, delta):
        if delta is not None:
            return torch.zeros_like(delta[:, :1])
        return q.new_zeros(1, 1, q.shape[-2], k.shape[-2])

    def fold(self, q, k, xq, xk):
        query, key = (q, k) if q is not None else (xq[:, None], xk[:, None])
        return query[..., :1] * 0, key[..., :1] * 0


class DotProduct(Score):
    """logit = q · k / √d (Vaswani et al. 2017)."""

    traits = ScoreTraits(content=True)

    @staticmethod
    def scaled(q: Queries) -> Queries:
        return q / math.sqrt(q.shape[-1])

    def forward(self, q, k, delta):
        return self.scaled(q) @ k.mT

    def fold(self, q, k, xq, xk):
        return self.scaled(q), k


class Cosine(Score):
    """logit = τ_h · (q/‖q‖) · (k/‖k‖), with a learned inverse temperature τ per head."""

    traits = ScoreTraits(content=True)

    def __init__(self, heads: int = 1, init: float = 10.0):
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.full((heads,), math.log(init)))

    def fold(self, q, k, xq, xk):
        unit = nn.functional.normalize
        return unit(q, dim=-1) * self.log_sharpness.exp()[:, None, None], unit(k, dim=-1)

    def forward(self, q, k, delta):
        query, key = self.fold(q, k, None, None)
        return query @ key.mT
