"""The learned span: a Gaussian window around every query, and how it is cut (document 004).

G(Δ) = exp(−½ Δᵀ C⁻¹ Δ) with C learned. Keys with G below the threshold t are dropped.

    modulate="weights"  weight · W            the weight decays with distance
    modulate="scores"   logit · G + ln W      the thesis: a far logit tends to 0, not to −∞
    cut="continuous"    W = max(G − t, 0)/(1 − t)   goes to zero at the edge, so σ's gradient is right
    cut="hard"          W = G in "weights" mode, 1 in "scores" mode, inside; 0 outside
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.errors import InputError, choose


class Span(nn.Module):
    """A window per head over displacements of `dim_x` dimensions; `init` is its starting σ.

    shape="ball" cuts where G = t, "box" where any one dimension's G_i = t (then W is the product over dimensions).
    covariance="diagonal" has one σ per dimension, "isotropic" one in all, "full" a log-Cholesky factor: C = L Lᵀ
    with L's diagonal an exponential, so C is positive definite whatever the parameters are. dim_x=None serves any
    number of dimensions, with an isotropic ball.

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
            raise InputError(f"span: init is the starting σ, a positive number of sensible size, got {init}")
        self.dim_x, self.heads, self.threshold = dim_x, heads, float(threshold)
        self.modulate = choose("modulate", modulate, ["weights", "scores"])
        self.cut = choose("cut", cut, ["continuous", "hard"])
        self.shape = choose("shape", shape, ["ball", "box"])
        self.covariance = choose("covariance", covariance, ["diagonal", "isotropic", "full"])
        if shape == "box" and covariance == "full":
            raise InputError("span: a box has its edges along the axes, which a full covariance has not; use 'ball'")
        if dim_x is None and (covariance != "isotropic" or shape != "ball"):
            raise InputError("span: only an isotropic ball serves any number of dimensions; give dim_x, or use that")
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
        """L⁻¹, so that G = exp(−½ ‖L⁻¹Δ‖²), in as many dimensions as places have."""
        if self.covariance == "full" and self.dim_x is not None:
            eye = torch.eye(dim_x, dtype=self.log_sigma.dtype, device=self.log_sigma.device)
            return torch.linalg.solve_triangular(self.factor, eye.expand(self.heads, -1, -1), upper=False)
        return torch.diag_embed(self.log_sigma.neg().exp().expand(-1, dim_x))

    def reach(self) -> Float[Tensor, "h dx"]:
        """How far along each axis a key may lie: √C_ii · √(−2 ln t); infinite without a cut."""
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
        """The modulated logits, and which pairs are inside (None: all)."""
        exponents, t = self.exponents(delta), self.threshold
        log_g = exponents.sum(2)  # [b h n m]
        if self.modulate == "scores":
            logits = logits * log_g.exp()
        if t == 0:
            return (logits + log_g if self.modulate == "weights" else logits), None
        parts = exponents if self.shape == "box" else log_g[:, :, None]
        inside = (parts > math.log(t)).all(2)
        if self.cut == "hard":
            return (logits + log_g if self.modulate == "weights" else logits), inside
        above = (parts.exp() - t).where(inside[:, :, None], 1 - t)  # 1 − t: ln W = 0, and no gradient outside
        # G may round down to t just inside the edge; the weight there is nothing, but its logarithm must be finite
        floor = torch.finfo(above.dtype).tiny
        return logits + (above.clamp_min(floor) / (1 - t)).log().sum(2), inside


def blocks(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"], size: float) -> Bool[Tensor, "b 1 n m"]:
    """Fixed independent blocks, the baseline of previous work: a mask that is True where ⌊xq/size⌋ = ⌊xk/size⌋.

    >>> x = torch.tensor([[[0.1], [0.9], [1.1]]])
    >>> blocks(x, x, 1.0)[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    if not size > 0:
        raise InputError(f"blocks: size must be positive, got {size}")
    return ((xq / size).floor()[:, None, :, None] == (xk / size).floor()[:, None, None]).all(-1)
