"""The learned span: a Gaussian window around every query, cut at a threshold (Alfons 2022).

G(Δ) = exp(−½ Δᵀ C⁻¹ Δ) with C learned. Keys with G below the threshold t are dropped.

    modulate="weights"  weight · W            the weight decays with distance
    modulate="scores"   logit · G + ln W      Alfons 2022: a distant logit tends to 0, not to −∞
    cut="continuous"    W = max(G − t, 0)/(1 − t)   vanishes at the edge, so the gradient to σ is right
    cut="hard"          inside W = G in "weights" mode and 1 in "scores" mode; outside 0
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.errors import InputError, choose


class Span(nn.Module):
    """A window per head over displacements of `dim_x` dimensions; `init` is the initial σ.

    shape="ball" cuts where G = t, shape="box" where G_i = t in any dimension i (W is then a product over dimensions).
    covariance="diagonal" has one σ per dimension, "isotropic" one σ, "full" a log-Cholesky factor: C = L Lᵀ, where the
    diagonal of L is an exponential, so that C is positive definite for all parameters. With dim_x=None an isotropic
    ball serves any number of dimensions.

    >>> Span(2, heads=4, init=0.5, threshold=0.1).reach().shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        dim_x: int | None,
        heads: int = 1,
        init: float = 0.3,
        threshold: float = 0.1,
        modulate: str = "weights",
        cut: str = "continuous",
        shape: str = "ball",
        covariance: str = "diagonal",
    ):
        super().__init__()
        for name, count in (("dim_x", 1 if dim_x is None else dim_x), ("heads", heads)):
            if type(count) is not int or count < 1:
                raise InputError(f"span: {name} must be a whole number of at least 1, got {count!r}")
        for name, number in (("threshold", threshold), ("init", init)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise InputError(f"span: {name} must be a number, got {number!r}")
        if not 0 <= threshold < 1:
            raise InputError(f"span: threshold must be in [0, 1) (0 = no cut), got {threshold}")
        if not 1e-30 < init < 1e30:
            raise InputError(f"span: init is the initial σ and must lie between 1e-30 and 1e30, got {init}")
        self.dim_x, self.heads, self.threshold = dim_x, heads, float(threshold)
        self.modulate = choose("modulate", modulate, ["weights", "scores"])
        self.cut = choose("cut", cut, ["continuous", "hard"])
        self.shape = choose("shape", shape, ["ball", "box"])
        self.covariance = choose("covariance", covariance, ["diagonal", "isotropic", "full"])
        if shape == "box" and covariance == "full":
            raise InputError("span: a box is aligned with the axes and cannot have a full covariance; use shape='ball'")
        if dim_x is None and (covariance != "isotropic" or shape != "ball"):
            raise InputError("span: dim_x=None needs shape='ball' and covariance='isotropic'; pass dim_x, or use both")
        self.log_sigma = nn.Parameter(
            torch.full((heads, 1 if covariance == "isotropic" else dim_x or 1), math.log(init))
        )
        if covariance == "full" and dim_x is not None:
            self.lower = nn.Parameter(torch.zeros(heads, dim_x * (dim_x - 1) // 2))

    @property
    def factor(self) -> Float[Tensor, "h dx dx"]:
        """L with C = L Lᵀ."""
        diagonal = torch.diag_embed(self.log_sigma.exp().expand(-1, self.dim_x or 1))
        if self.covariance != "full" or self.dim_x is None:
            return diagonal
        row, column = torch.tril_indices(self.dim_x, self.dim_x, -1)
        return diagonal.index_put((torch.arange(self.heads)[:, None], row, column), self.lower)

    def inverse(self, dim_x: int) -> Float[Tensor, "h dx dx"]:
        """L⁻¹, so that G = exp(−½ ‖L⁻¹Δ‖²), in the number of dimensions of the locations."""
        if self.covariance == "full" and self.dim_x is not None:
            eye = torch.eye(dim_x, dtype=self.log_sigma.dtype, device=self.log_sigma.device)
            return torch.linalg.solve_triangular(self.factor, eye.expand(self.heads, -1, -1), upper=False)
        return torch.diag_embed(self.log_sigma.neg().exp().expand(-1, dim_x))

    def reach(self) -> Float[Tensor, "h dx"]:
        """Largest |Δ_i| inside the window along each axis: √C_ii · √(−2 ln t), infinite without a threshold."""
        radius = math.sqrt(-2 * math.log(self.threshold)) if self.threshold > 0 else math.inf
        return self.factor.square().sum(-1).sqrt() * radius

    def exponents(self, delta: Float[Tensor, "b dx n m"]) -> Float[Tensor, "b h dx n m"]:
        """−½ u² with u = L⁻¹Δ: ln G is their sum over dimensions."""
        if self.covariance == "full" and self.dim_x is not None:
            return -0.5 * torch.einsum("hij,bjnm->bhinm", self.inverse(self.dim_x), delta).square()
        inverse = self.log_sigma.neg().exp()[:, :, None, None]
        return -0.5 * (delta[:, None] * inverse).square()

    def forward(
        self, logits: Tensor, delta: Float[Tensor, "b dx n m"]
    ) -> tuple[Tensor, Bool[Tensor, "b h n m"] | None]:
        """Return the modulated logits and the mask of pairs inside the window (None: all are)."""
        exponents, t = self.exponents(delta), self.threshold
        log_g = exponents.sum(2)  # [b h n m]
        if self.modulate == "scores":
            logits = logits * log_g.exp()
        if t == 0:
            return (logits + log_g if self.modulate == "weights" else logits), None
        log_factors = exponents if self.shape == "box" else log_g[:, :, None]
        inside = (log_factors > math.log(t)).all(2)
        if self.cut == "hard":
            return (logits + log_g if self.modulate == "weights" else logits), inside
        above = (log_factors.exp() - t).where(inside[:, :, None], 1 - t)  # 1 − t: ln W = 0, and no gradient outside
        # G may round to t just inside the edge; the weight is negligible there, but its logarithm must be finite
        floor = torch.finfo(above.dtype).tiny
        return logits + (above.clamp_min(floor) / (1 - t)).log().sum(2), inside
