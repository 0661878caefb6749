"""One operation: an average of values, weighted by a learned kernel of two points.

`attend` is the seam; a `Score` gives the logit of a pair, a `Span` the window of keys around a query, and a back end
computes the result.
"""

from fillin.attention.attend import Seen, attend, watch
from fillin.attention.backends import BACKENDS
from fillin.attention.displacement import MLP, RBF, Bias, Fourier, Gaussian, Joint, Laplace, Linear
from fillin.attention.positions import SIREN, Learned, Sinusoid
from fillin.attention.registry import CONTROLS, SCORES, make_score
from fillin.attention.relative import Relative
from fillin.attention.scores import Cosine, DotProduct, Score, Sum, Uniform
from fillin.attention.span import Span, blocks

__all__ = [
    "BACKENDS", "CONTROLS", "MLP", "RBF", "SCORES", "SIREN", "Bias", "Cosine", "DotProduct", "Fourier", "Gaussian",
    "Joint", "Laplace", "Learned", "Linear", "Relative", "Score", "Seen", "Sinusoid", "Span", "Sum", "Uniform",
    "attend", "blocks", "make_score", "watch",
]  # fmt: skip
