"""Scores by name, so that a model, a recipe or a command line can ask for one: `--model.score rbf`."""

from collections.abc import Callable

from fillin.attention.displacement import MLP, RBF, Bias, Fourier, Gaussian, Joint, Laplace, Linear
from fillin.attention.positions import SIREN, Sinusoid
from fillin.attention.relative import Relative
from fillin.attention.scores import Cosine, DotProduct, Score, Uniform
from fillin.errors import InputError, UnknownName

Factory = Callable[[int, int, int, bool], Score]  # (heads, head_dim, dim_x, radial) → a new score

# Scores of a model whose tokens carry no place: what the place adds to q·k/√d (document 000), or all of the logit.
SCORES: dict[str, Factory] = {
    "nothing": lambda heads, width, dim_x, radial: DotProduct(),
    "linear": lambda heads, width, dim_x, radial: DotProduct() + Linear(heads, dim_x, radial),
    "laplace": lambda heads, width, dim_x, radial: DotProduct() + Laplace(heads, dim_x, radial),
    "gaussian": lambda heads, width, dim_x, radial: DotProduct() + Gaussian(heads, dim_x, radial),
    "rbf": lambda heads, width, dim_x, radial: DotProduct() + RBF(heads, dim_x, radial),
    "mlp": lambda heads, width, dim_x, radial: DotProduct() + MLP(heads, dim_x, radial),
    "fourier": lambda heads, width, dim_x, radial: DotProduct() + Fourier(heads, dim_x, radial),
    "joint": lambda heads, width, dim_x, radial: Joint(heads, dim_x, radial),
    "siren": lambda heads, width, dim_x, radial: (
        DotProduct() + Bias(SIREN(1 if radial else dim_x, heads, bias=False), heads, dim_x, radial)
    ),
    "relative-siren": lambda heads, width, dim_x, radial: Relative(
        heads, width, SIREN(1 if radial else dim_x, 32, bias=False), 32, radial=radial
    ),
    "relative-sinusoid": lambda heads, width, dim_x, radial: Relative(
        heads, width, Sinusoid(32, 1 if radial else dim_x, base=100.0), 32, radial=radial
    ),
    "cosine": lambda heads, width, dim_x, radial: Cosine(heads) + RBF(heads, dim_x, radial),
    "uniform": lambda heads, width, dim_x, radial: Uniform() + Gaussian(heads, dim_x, radial),
}
CONTROLS = ("nothing", "linear")  # alone they cannot tell one target from another (errata in NOTATION.md)


def make_score(score: str | Factory, heads: int, head_dim: int, dim_x: int, radial: bool = False) -> Score:
    """A new score of the given name, or whatever a factory (heads, head_dim, dim_x, radial) → Score makes."""
    if callable(score):
        made = score(heads, head_dim, dim_x, radial)
        if not isinstance(made, Score):
            raise InputError(f"score: the factory returned {type(made).__name__}, expected a Score")
        return made
    name = str(score).lower()
    if name not in SCORES:
        raise UnknownName("score", score, SCORES)
    return SCORES[name](heads, head_dim, dim_x, radial)
