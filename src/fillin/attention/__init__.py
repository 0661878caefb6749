"""One operation: an average of values, weighted by a learned kernel of two points.

`attend` is the seam; a `Score` says what a pair is worth, a `Span` how far a query looks, a back end how it is done.
"""

from fillin.attention.attend import Seen, attend, watch
from fillin.attention.backends import BACKENDS
from fillin.attention.block import Block, FeedForward
from fillin.attention.catalogue import CONTROLS, SCORES, make_score
from fillin.attention.displacement import MLP, RBF, Bias, Fourier, Gaussian, Joint, Laplace, Linear
from fillin.attention.multihead import Memory, MultiHeadAttention
from fillin.attention.positions import SIREN, Learned, Sinusoid
from fillin.attention.pseudo import CMAB, ISAB, PMA, CMABState, LatentBottleneck, PseudoTokens, average, over_keys
from fillin.attention.relative import Relative
from fillin.attention.scores import Cosine, DotProduct, Score, Sum, Uniform
from fillin.attention.span import Span, blocks

__all__ = [
    "BACKENDS", "CMAB", "CONTROLS", "ISAB", "MLP", "PMA", "RBF", "SCORES", "SIREN", "Bias", "Block", "CMABState",
    "Cosine", "DotProduct", "FeedForward", "Fourier", "Gaussian", "Joint", "Laplace", "LatentBottleneck", "Learned",
    "Linear", "Memory", "MultiHeadAttention", "PseudoTokens", "Relative", "Score", "Seen", "Sinusoid", "Span", "Sum",
    "Uniform", "attend", "average", "blocks", "make_score", "over_keys", "watch",
]  # fmt: skip
