"""The models of curves that can be chosen: which weights, what they draw functions from, what is to be said of them."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fillin.errors import InputError, choose

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


@dataclass(frozen=True)
class Choice:
    """`weights` are those of that name that ship (None: nothing is learned)."""

    title: str
    weights: str | None
    equivariant: bool
    about: str


CHOICES = {
    "te-tnp": Choice(
        "TE-TNP", "te-tnp-kernels", True,
        "A transformer that compares displacements: it knows how far apart places are, never where they are.",
    ),
    "anp": Choice(
        "ANP", "anp-kernels", False,
        "The attentive neural process: its tokens carry their place, and one latent variable makes one function.",
    ),
    "convcnp": Choice(
        "ConvCNP", "convcnp-kernels", True, "Convolutions on a grid that moves with the data. It has no attention."
    ),
    "gp": Choice(
        "Exact GP", None, True,
        "A Gaussian process with an RBF kernel, its length, scale and noise the likeliest of a grid. No network.",
    ),
}  # fmt: skip


class Told(NamedTuple):
    """Mean and deviation of what would be observed at each place, and whole functions."""

    mean: "Float[Tensor, 'nt']"
    std: "Float[Tensor, 'nt']"
    functions: "Float[Tensor, 'n k']"


def check_weights(names: list[str]) -> None:
    """An error unless all of them came with the package."""
    from fillin import pretrained

    missing = sorted({*names} - {*pretrained.names()})
    if missing:
        raise InputError(
            f"weights that fillin play needs are not there: {', '.join(missing)}; they come with the package, so "
            "install it anew: pip install --force-reinstall 'fillin[play]'"
        )


@cache
def model_of(name: str) -> Any:
    """The chosen model, loaded once."""
    choice = CHOICES[choose("model", name, CHOICES)]
    if choice.weights is None:
        from fillin.play.gp import ExactGP

        return ExactGP()
    from fillin.models import load

    check_weights([choice.weights])
    return load(choice.weights).eval()


def load_all() -> None:
    """Every model has been asked once: what is loaded and made then, nobody waits for later."""
    import torch

    x = torch.linspace(-1, 1, 7).view(1, 7, 1)
    for name in CHOICES:
        tell(name, x[:, :1], x[:, :1], x, samples=1)


def tell(name: str, xc: "Tensor", yc: "Tensor", xt: "Tensor", samples: int = 0, seed: int = 0) -> Told:
    """What the model says at xt. Functions are drawn by the seed: a point that moves a little moves them a little.

    A latent makes a whole function, a Gaussian process draws them; of others see `sample_curve`.
    """
    import torch

    from fillin.heads import LatentMixture
    from fillin.sampling import sample_curve

    model = model_of(name)
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        found = model(xc, yc, xt)
        torch.manual_seed(seed)
        if not samples:
            functions = xt.new_empty(0, 1, xt.shape[1], 1)
        elif isinstance(found, LatentMixture):
            functions = found.given.mean[:samples]  # what each latent makes of it, without the noise
        elif CHOICES[name].weights is None:
            functions = model.draw(samples, xc, yc, xt)
        else:
            functions = sample_curve(model, xc, yc, xt, samples, prediction=found)
        return Told(found.mean[0, :, 0], found.stddev[0, :, 0], functions[:, 0, :, 0])
