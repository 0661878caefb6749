"""Scores by name, for models, recipes and the command line: `--model.score rbf`."""

from collections.abc import Callable

from fillin.attention.displacement import MLP, RBF, Fourier, Gaussian, JointMLP, Laplace, Linear, NetworkScore
from fillin.attention.positional_encodings import SIREN, Sinusoid
from fillin.attention.relative import RelativePosition
from fillin.attention.scores import Cosine, DotProduct, Score, Uniform
from fillin.errors import InputError, UnknownName

ScoreFactory = Callable[[int, int, int, bool], Score]  # (heads, head_dim, dim_x, radial) → a new score

# Scores of models whose tokens carry no location. Most add a function of Δ to q·k/√d (Sivaraya 2023).
SCORES: dict[str, ScoreFactory] = {
    "nothing": lambda heads, width, dim_x, radial: DotProduct(),
    "linear": lambda heads, width, dim_x, radial: DotProduct() + Linear(heads, dim_x, radial),
    "laplace": lambda heads, width, dim_x, radial: DotProduct() + Laplace(heads, dim_x, radial),
    "gaussian": lambda heads, width, dim_x, radial: DotProduct() + Gaussian(heads, dim_x, radial),
    "rbf": lambda heads, width, dim_x, radial: DotProduct() + RBF(heads, dim_x, radial),
    "mlp": lambda heads, width, dim_x, radial: DotProduct() + MLP(heads, dim_x, radial),
    "fourier": lambda heads, width, dim_x, radial: DotProduct() + Fourier(heads, dim_x, radial),
    "joint": lambda heads, width, dim_x, radial: JointMLP(heads, dim_x, radial),
    "siren": lambda heads, width, dim_x, radial: (
        DotProduct() + NetworkScore(SIREN(1 if radial else dim_x, heads, bias=False), heads, dim_x, radial)
    ),
    "relative-siren": lambda heads, width, dim_x, radial: RelativePosition(
        heads, width, SIREN(1 if radial else dim_x, 32, bias=False), 32, radial=radial
    ),
    "relative-sinusoid": lambda heads, width, dim_x, radial: RelativePosition(
        heads, width, Sinusoid(32, 1 if radial else dim_x, base=100.0), 32, radial=radial
    ),
    "cosine": lambda heads, width, dim_x, radial: Cosine(heads) + RBF(heads, dim_x, radial),
    "uniform": lambda heads, width, dim_x, radial: Uniform() + Gaussian(heads, dim_x, radial),
}
CONTROL_SCORES = ("nothing", "linear")  # with them all targets get the same prediction (errata in NOTATION.md)


def make_score(score: str | ScoreFactory, heads: int, head_dim: int, dim_x: int, radial: bool = False) -> Score:
    """Make a score, by its name or by a factory (heads, head_dim, dim_x, radial) → Score."""
    if callable(score):
        result = score(heads, head_dim, dim_x, radial)
        if not isinstance(result, Score):
            raise InputError(f"score: the factory returned {type(result).__name__}, expected a Score")
        return result
    name = str(score).lower()
    if name not in SCORES:
        raise UnknownName("score", score, SCORES)
    return SCORES[name](heads, head_dim, dim_x, radial)
