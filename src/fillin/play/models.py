"""Models of the curves tool: their weights, descriptions and predictions."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from fillin.errors import InputError, choose

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


CurveModelName = Literal["te-tnp", "anp", "convcnp", "gp"]


@dataclass(frozen=True)
class CurveModel:
    """Model that the page offers; `weights` names pretrained weights, or is None for the Gaussian process."""

    name: CurveModelName
    title: str
    weights: str | None
    equivariant: bool
    description: str


_MODELS = (
    CurveModel(
        "te-tnp", "TE-TNP", "te-tnp-kernels", True,
        "A transformer whose attention depends on displacements between locations, never on the locations themselves.",
    ),
    CurveModel(
        "anp", "ANP", "anp-kernels", False,
        "The attentive neural process. Its tokens contain absolute locations; each latent sample gives one function.",
    ),
    CurveModel(
        "convcnp", "ConvCNP", "convcnp-kernels", True,
        "Convolutions on a grid that moves with the data. The model has no attention.",
    ),
    CurveModel(
        "gp", "Exact GP", None, True,
        "A Gaussian process with an RBF kernel; a grid search finds its length scale, amplitude and noise. No network.",
    ),
)  # fmt: skip
CURVE_MODELS = {model.name: model for model in _MODELS}


def check_weights(names: list[str]) -> None:
    """Raise an error unless all of these weights are installed."""
    from fillin import pretrained

    missing = sorted({*names} - {*pretrained.names()})
    if missing:
        raise InputError(
            f"pretrained weights are missing: {', '.join(missing)}; they come with the package, so reinstall it: "
            "pip install --force-reinstall 'fillin[play]'"
        )


@cache
def load_curve_model(name: str) -> Any:
    """Return a model of `CURVE_MODELS`, loaded once."""
    weights = CURVE_MODELS[choose("model", name, CURVE_MODELS)].weights
    if weights is None:
        from fillin.play.gp import ExactGP

        return ExactGP()
    from fillin.models import load

    check_weights([weights])
    return load(weights).eval()


def warm_up() -> None:
    """Load every model and run it once, so that no request waits for that."""
    import torch

    x = torch.linspace(-1, 1, 7).view(1, 7, 1)
    for name in CURVE_MODELS:
        predict_curve(name, x[:, :1], x[:, :1], x, samples=1)


def predict_curve(
    name: str, xc: "Tensor", yc: "Tensor", xt: "Tensor", samples: int = 0, seed: int = 0
) -> "tuple[Float[Tensor, 'nt'], Float[Tensor, 'nt'], Float[Tensor, 'n nt']]":
    """Predict the mean and standard deviation at xt, and function samples, which vary smoothly with the context.

    Latent models sample a function per latent, the Gaussian process samples exactly, others by `sample_curve`.
    """
    import torch

    from fillin.heads import LatentMixture
    from fillin.sampling import sample_curve

    model = load_curve_model(name)
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        prediction = model(xc, yc, xt)
        torch.manual_seed(seed)
        if not samples:
            functions = xt.new_empty(0, 1, xt.shape[1], 1)
        elif isinstance(prediction, LatentMixture):
            functions = prediction.given.mean[:samples]  # the noise-free function of each latent
        elif CURVE_MODELS[name].weights is None:
            functions = model.sample(samples, xc, yc, xt)
        else:
            functions = sample_curve(model, xc, yc, xt, samples, prediction=prediction)
        return prediction.mean[0, :, 0], prediction.stddev[0, :, 0], functions[:, 0, :, 0]
