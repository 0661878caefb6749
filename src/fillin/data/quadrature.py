"""Points in the unit cube where a posterior has its mass, with weights that keep averages under it right.

A posterior may be far narrower than its prior: the period of a curve with thirty cycles is known to a thousandth. Even
points miss it, so later rounds draw where earlier ones found the most, with the spread of what they found.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

_ROUNDS = 8
_CENTRES = 16  # a round draws around so many points


def adapt(
    evidence: Callable[[Float[Tensor, "s b k"]], Float[Tensor, "s b"]], number: int, tasks: int, size: int
) -> tuple[Float[Tensor, "s b k"], Float[Tensor, "s b"]]:
    """Points u_s in [0, 1]^size for each of `tasks` posteriors ∝ exp(evidence(u)), and ln q(u_s), the density that they
    were drawn with: the mean of f(u_s) with weights ∝ exp(evidence(u_s))/q(u_s) is the posterior mean of f.

    A quarter of the points are even (Sobol). Each round draws from Gaussians around the best points so far, with their
    covariance; "best" is by the posterior to a power at which several points share the weight, so that rounds close in
    step by step (population Monte Carlo, Cappé et al. 2004). q is that of all rounds together (the balance heuristic
    of Veach & Guibas 1995).
    """
    share = (number - number // 4) // _ROUNDS
    even = number - share * _ROUNDS
    u = SobolEngine(size, scramble=True, seed=0).draw(even, dtype=torch.float64)[:, None].expand(-1, tasks, -1)
    found, log_q = evidence(u), torch.zeros(even, tasks, dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    rounds: list[_Round] = []
    for _ in range(_ROUNDS if share else 0):
        rounds.append(_Round(u, found - log_q))
        drawn = rounds[-1].draw(share, random)
        inside = ((drawn > 0) & (drawn < 1)).all(-1)
        drawn = drawn.clamp(1e-9, 1 - 1e-9)  # outside the prior: never counted
        found = torch.cat([found, evidence(drawn).masked_fill(~inside, -math.inf)])
        u = torch.cat([u, drawn])
        parts = [torch.full(u.shape[:2], math.log(even), dtype=u.dtype)]
        parts += [math.log(share) + past.log_density(u) for past in rounds]
        log_q = torch.stack(parts).logsumexp(0) - math.log(even + share * len(rounds))
    return u, torch.where(found.isfinite(), log_q, math.inf)


class _Round:
    """Gaussians around some points, with the spread of those points."""

    def __init__(self, u: Tensor, log_weights: Tensor):
        weights = _tempered(log_weights)
        best = weights.topk(min(_CENTRES, len(u)), dim=0)
        self.weights = best.values / best.values.sum(0)  # [c b]
        self.centres = u.gather(0, best.indices[..., None].expand(-1, -1, u.shape[-1]))  # [c b k]
        off = self.centres - (self.weights[..., None] * self.centres).sum(0)
        covariance = torch.einsum("cb,cbi,cbj->bij", self.weights, off, off)
        floor = 1e-12 * torch.eye(u.shape[-1], dtype=u.dtype)
        self.factor = torch.linalg.cholesky(
            covariance + 1e-3 * torch.diag_embed(covariance.diagonal(dim1=1, dim2=2)) + floor
        )

    def draw(self, number: int, random: torch.Generator) -> Tensor:
        chosen = torch.multinomial(self.weights.T, number, replacement=True, generator=random).T
        centre = self.centres.gather(0, chosen[..., None].expand(-1, -1, self.centres.shape[-1]))
        noise = torch.randn(centre.shape, generator=random, dtype=centre.dtype)
        return centre + torch.einsum("bij,sbj->sbi", self.factor, noise)

    def log_density(self, u: Tensor) -> Tensor:
        off = (u[:, None] - self.centres).permute(2, 3, 0, 1)  # [b k s c]
        b, k, s, c = off.shape
        white = torch.linalg.solve_triangular(self.factor, off.reshape(b, k, s * c), upper=False).view(b, k, s, c)
        volume = self.factor.diagonal(dim1=1, dim2=2).log().sum(-1) + 0.5 * k * math.log(2 * math.pi)
        log = self.weights.T[:, None].log() - 0.5 * white.square().sum(1) - volume[:, None, None]  # [b s c]
        return log.logsumexp(-1).T


def _tempered(log_weights: Tensor, share: float = 8.0) -> Tensor:
    """Weights to the largest power up to 1 at which at least `share` points carry them: 1/Σw² ≥ share, by halving."""
    low, high = torch.zeros(log_weights.shape[1]), torch.ones(log_weights.shape[1])
    for _ in range(20):
        middle = (low + high) / 2
        enough = 1 / (middle * log_weights).log_softmax(0).exp().square().sum(0) >= share
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return (low * log_weights).nan_to_num(nan=-math.inf).log_softmax(0).exp()
