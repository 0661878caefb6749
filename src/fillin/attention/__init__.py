"""One operation: an average of values, weighted by a learned kernel of two points.

`attend` computes it. A `Score` gives the logit of a pair, a `Span` the window of keys around a query, and a back end
the result.
"""

from fillin.attention.attend import AttentionRecord, attend, combine, expand_key_mask, fixed_block_mask, record_weights
from fillin.attention.backends import BACKENDS
from fillin.attention.displacement import MLP, RBF, Fourier, Gaussian, JointMLP, Laplace, Linear, NetworkScore
from fillin.attention.positional_encodings import SIREN, GridEncoding, LearnedPositions, Sinusoid
from fillin.attention.relative import ClippedPosition, RelativePosition
from fillin.attention.score_registry import CONTROL_SCORES, SCORES, ScoreFactory, make_score
from fillin.attention.scores import Cosine, DotProduct, Score, ScoreTraits, Sum, Uniform
from fillin.attention.span import Span

__all__ = [
    "BACKENDS", "CONTROL_SCORES", "MLP", "RBF", "SCORES", "SIREN", "AttentionRecord", "ClippedPosition", "Cosine",
    "DotProduct", "Fourier", "Gaussian", "GridEncoding", "JointMLP", "Laplace", "LearnedPositions", "Linear",
    "NetworkScore", "RelativePosition", "Score", "ScoreFactory", "ScoreTraits", "Sinusoid", "Span", "Sum", "Uniform",
    "attend", "combine", "expand_key_mask", "fixed_block_mask", "make_score", "record_weights",
]  # fmt: skip
