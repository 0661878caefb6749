"""Adaptive importance sampling in the unit cube.

A posterior may be far narrower than its prior, so that a low-discrepancy sequence misses it: the period of a curve with
thirty cycles is known to a thousandth.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

_ROUNDS = 8
_CENTRES = 16  # points around which a round draws
_MIN_EFFECTIVE_POINTS = 8


def importance_sample(
    evidence: Callable[[Float[Tensor, "s b k"]], Float[Tensor, "s b"]], number: int, tasks: int, size: int
) -> tuple[Float[Tensor, "s b k"], Float[Tensor, "s b"]]:
    """Draw points u_s in [0, 1]^size for each of `tasks` posteriors ∝ exp(evidence(u)). Returns u_s and ln q(u_s).

    The mean of f(u_s) with weights ∝ exp(evidence(u_s))/q(u_s) estimates the posterior mean of f. A quarter of the
    points are a Sobol sequence. Each round then draws from Gaussians around the best points so far by a tempered
    posterior (population Monte Carlo, Cappé et al. 2004). q is the density of all rounds together (the balance
    heuristic of Veach & Guibas 1995).
    """
    per_round = (number - number // 4) // _ROUNDS
    first = number - per_round * _ROUNDS
    u = SobolEngine(size, scramble=True, seed=0).draw(first, dtype=torch.float64)[:, None].expand(-1, tasks, -1)
    log_p, log_q = evidence(u), torch.zeros(first, tasks, dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    rounds: list[_Proposal] = []
    for _ in range(_ROUNDS if per_round else 0):
        rounds.append(_Proposal(u, log_p - log_q))
        drawn = rounds[-1].draw(per_round, random)
        inside = ((drawn > 0) & (drawn < 1)).all(-1)
        drawn = drawn.clamp(1e-9, 1 - 1e-9)  # points outside the prior get weight zero
        log_p = torch.cat([log_p, evidence(drawn).masked_fill(~inside, -math.inf)])
        u = torch.cat([u, drawn])
        parts = [torch.full(u.shape[:2], math.log(first), dtype=u.dtype)]
        parts += [math.log(per_round) + past.log_density(u) for past in rounds]
        log_q = torch.stack(parts).logsumexp(0) - math.log(first + per_round * len(rounds))
    return u, torch.where(log_p.isfinite(), log_q, math.inf)


class _Proposal:
    """Mixture of Gaussians around the best points by tempered weights, with the covariance of those points."""

    def __init__(self, u: Tensor, log_weights: Tensor):
        low, high = torch.zeros(log_weights.shape[1]), torch.ones(log_weights.shape[1])
        for _ in range(20):  # bisection: the largest power up to 1 with an effective sample size 1/Σw² of enough points
            middle = (low + high) / 2
            enough = 1 / (middle * log_weights).log_softmax(0).exp().square().sum(0) >= _MIN_EFFECTIVE_POINTS
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        weights = (low * log_weights).nan_to_num(nan=-math.inf).log_softmax(0).exp()
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
