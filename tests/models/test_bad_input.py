"""Bad input of every kind gets a FillinError that names the argument and the remedy."""

import pytest
import torch
from support.helpers import random_task, tiny

import fillin
from fillin import Task
from fillin.attention import SIREN, Gaussian, Span, attend
from fillin.data import curves
from fillin.errors import FillinError
from fillin.objectives import elbo, log_likelihood

pytestmark = pytest.mark.usefixtures("unchecked")
T = random_task(b=2, nc=5, nt=4)
NAN = T.xc.clone()
NAN[1, 2, 0] = torch.nan
INF = T.xt.clone()
INF[0, 1, 0] = torch.inf
YNAN = T.yc.clone()
YNAN[0, 3, 0] = torch.nan

CASES = {
    "a list": (lambda m: m([[0.0]], T.yc, T.xt), "xc must be a floating-point tensor"),
    "integers": (lambda m: m(T.xc.long(), T.yc, T.xt), r"xc must be a floating-point tensor.*xc\.float\(\)"),
    "another dtype": (lambda m: m(T.xc.float(), T.yc, T.xt), "xc is torch.float32 but the model is torch.float64"),
    "no batch": (lambda m: m(T.xc[0], T.yc, T.xt), r"xc must be \[b nc dim_x\].*b = 1"),
    "wrong dim_x": (lambda m: m(T.xc.repeat(1, 1, 2), T.yc, T.xt), "xc has 2 columns.*dim_x=1"),
    "wrong dim_x of xt": (lambda m: m(T.xc, T.yc, T.xt.repeat(1, 1, 3)), "xt has 3 columns.*dim_x=1"),
    "wrong dim_y": (lambda m: m(T.xc, T.yc.repeat(1, 1, 2), T.xt), "yc has 2 columns.*dim_y=1"),
    "other number of points": (lambda m: m(T.xc[:, :3], T.yc, T.xt), "xc .* and yc .* must agree"),
    "other batch": (lambda m: m(T.xc, T.yc, T.xt[:1]), "batch of 2 tasks, xt of 1"),
    "NaN in xc": (lambda m: m(NAN, T.yc, T.xt), r"xc\[1, 2, 0\] is nan.*mask_c"),
    "infinity in xt": (lambda m: m(T.xc, T.yc, INF), r"xt\[0, 1, 0\] is inf.*mask_t"),
    "NaN in yc": (lambda m: m(T.xc, YNAN, T.xt), r"yc\[0, 3, 0\] is nan.*mask_c"),
    "a float mask": (
        lambda m: m(T.xc, T.yc, T.xt, torch.ones(2, 5)),
        r"mask_c must be a boolean tensor, True where .*bool\(\)",
    ),
    "a list as mask": (lambda m: m(T.xc, T.yc, T.xt, None, [True]), "mask_t must be a boolean tensor"),
    "a mask of the targets": (
        lambda m: m(T.xc, T.yc, T.xt, torch.ones(2, 4, dtype=torch.bool)),
        r"mask_c has shape \(2, 4\), expected \(2, 5\)",
    ),
    "yt of other length": (
        lambda m: log_likelihood(m, Task(T.xc, T.yc, T.xt, T.yt[:, :3])),
        r"yt has shape \(2, 3, 1\)",
    ),
    "yt without columns": (lambda m: log_likelihood(m, Task(T.xc, T.yc, T.xt, T.yt[..., 0])), "yt has shape"),
    "yt of one task": (lambda m: log_likelihood(m, Task(T.xc, T.yc, T.xt, T.yt[:1])), "yt has shape"),
    "yt as an array": (
        lambda m: log_likelihood(m, Task(T.xc, T.yc, T.xt, T.yt.numpy())),
        "yt must be a floating-point",
    ),
    "NaN in yt": (
        lambda m: log_likelihood(m, Task(T.xc, T.yc, T.xt, T.yt * torch.nan)),
        r"yt\[0, 0, 0\] is nan.*mask_t",
    ),
    "an unknown method": (
        lambda m: fillin.sample(m, *T.inputs[:3], method="autorgressive"),
        "did you mean 'autoregressive'",
    ),
    "no samples": (lambda m: fillin.sample(m, *T.inputs[:3], n=0), "n must be at least 1"),
    "a joint of a marginal": (lambda m: fillin.sample(m, *T.inputs[:3], method="model"), "method='autoregressive'"),
    "a bound of what has no latent": (lambda m: elbo(m, T), "no latent variable.*log_likelihood"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["te-tnp", "cnp", "convcnp"])
def test_models(case, name):
    call, message = CASES[case]
    with pytest.raises(FillinError, match=message):
        call(tiny(name))


CREATE = {
    "a name": (lambda: fillin.create("te-tpn"), "unknown model 'te-tpn'; did you mean 'te-tnp'"),
    "no name": (lambda: fillin.create(""), "unknown model"),
    "an option": (lambda: fillin.create("te-tnp", widht=3), "unknown option of te-tnp 'widht'; did you mean 'width'"),
    "a score without places": (lambda: fillin.create("tnp-d", score="mlp"), "unknown option of tnp-d 'score'"),
    "an option of another model": (lambda: fillin.create("cnp", span=0.3), "unknown option of cnp 'span'"),
    "a size": (lambda: fillin.create("cnp", size="bse"), "unknown size 'bse'; did you mean 'base'"),
    "dim_x": (lambda: fillin.create("cnp", dim_x=0), "dim_x must be a whole number of at least 1"),
    "a fraction": (lambda: fillin.create("cnp", dim_y=1.5), "dim_y must be a whole number"),
    "a score": (lambda: fillin.create("te-tnp", score="furier"), "unknown score 'furier'; did you mean 'fourier'"),
    "a head": (lambda: fillin.create("cnp", head="gausian"), "unknown head 'gausian'; did you mean 'gaussian'"),
    "an option of another head": (lambda: fillin.create("cnp", rank=3), "unknown option of cnp 'rank'"),
    "a joint head on a tnp-a": (lambda: fillin.create("tnp-a", head="lowrank"), "needs a marginal head"),
    "a marginal head on a tnp-nd": (lambda: fillin.create("tnp-nd", head="gaussian"), "lowrank.*cholesky"),
    "3-D convolutions": (lambda: fillin.create("convcnp", dim_x=3), r"1 or 2 input dimensions.*te-\*"),
    "a kind of attention": (lambda: fillin.create("anp", cross="laplac"), "did you mean 'laplace'"),
    "a box with a full covariance": (
        lambda: fillin.create("te-tnp", dim_x=2, span={"shape": "box", "covariance": "full"}),
        "box.*full covariance.*ball",
    ),
    "samples": (lambda: fillin.create("np", samples=0), "samples must be a whole number of at least 1"),
    "a spacing": (lambda: fillin.create("convcnp", points_per_unit=0), "points_per_unit must be a positive number"),
    "a length": (lambda: fillin.create("convcnp", length=-1), "length must be a positive number"),
    "an even kernel": (lambda: fillin.create("convcnp", kernel=4), "kernel must be an odd whole number"),
    "a text for a number": (lambda: fillin.create("tnp-d", width="64"), "width must be an even whole number"),
    "a back end": (lambda: fillin.create("tnp-d", backend="fusd"), "did you mean 'fused'"),
    "a misspelt dim_x": (lambda: fillin.create("cnp", dimx=2), "did you mean 'dim_x'"),
    "an option of the window": (lambda: fillin.create("te-tnp", span={"sigma": 1}), "unknown option of span 'sigma'"),
    "a window": (lambda: fillin.create("te-tnp", span="wide"), "span must be None, the initial σ, or a dict"),
    "a joint head on a latent model": (lambda: fillin.create("np", head="lowrank"), "needs a marginal head"),
    "a range": (lambda: curves(length=0.3), "length must be a range"),
    "an odd width": (lambda: fillin.create("tnp-d", width=33), "width must be an even whole number"),
}


@pytest.mark.parametrize("case", CREATE)
def test_create(case):
    call, message = CREATE[case]
    with pytest.raises(FillinError, match=message):
        call()


Q = torch.randn(2, 3, 4, 8)
X = torch.randn(2, 4, 1)
ATTEND = {
    "q of three dimensions": (lambda: attend(Q[0], Q, Q), r"q must be \[b h n d\], got shape \(3, 4, 8\)"),
    "other heads": (lambda: attend(Q[:, :1], Q, Q), r"q has shape \(2, 1, 4, 8\), expected \(2, 3, any, any\)"),
    "other width": (lambda: attend(Q[..., :5], Q, Q), "k has shape"),
    "no content": (lambda: attend(None, Q, Q), "compares q and k, but one is None"),
    "no places": (lambda: attend(Q, Q, Q, score=Gaussian(3)), "needs locations.*xq or xk is None"),
    "no queries": (
        lambda: attend(None, None, Q, score=fillin.attention.Uniform()),
        "no queries",
    ),
    "integers": (lambda: attend(Q.long(), Q, Q), "q must be floating point"),
    "mixed dtypes": (lambda: attend(Q.double(), Q, Q), "q is torch.float64 but v is torch.float32"),
    "a float mask": (lambda: attend(Q, Q, Q, mask=torch.ones(4, 4)), "mask must be boolean, True = may be attended"),
    "a mask over points": (
        lambda: attend(Q, Q, Q, mask=torch.ones(2, 5, dtype=torch.bool)),
        r"does not broadcast to \[b h n m\].*mask\[:, None, None, :\]",
    ),
    "causal cross-attention": (lambda: attend(Q, Q[:, :, :2], Q[:, :, :2], causal=True), "as many queries as keys"),
    "a window of other dimensions": (lambda: attend(Q, Q, Q, xq=X, xk=X, span=Span(2)), "the span is for dim_x=2"),
    "a score of other heads": (lambda: attend(Q, Q, Q, xq=X, xk=X, score=Gaussian(2)), "Gaussian has heads=2.*are 3"),
    "a score of other dimensions": (lambda: attend(Q, Q, Q, xq=X, xk=X, score=Gaussian(3, 2)), "dim_x=2, but.*1 dim"),
    "a window of other heads": (lambda: attend(Q, Q, Q, xq=X, xk=X, span=Span(1, 2)), "span has heads=2"),
    "a window without dimensions": (lambda: Span(0), "dim_x must be a whole number of at least 1, got 0"),
    "a window of half a head": (lambda: Span(1, 2.5), "heads must be a whole number"),
    "a window with a word": (lambda: Span(1, init="a"), "init must be a number, got 'a'"),
    "a window that is a truth": (lambda: Span(1, init=True), "init must be a number, got True"),
    "a band upside down": (lambda: SIREN(1, 4, band=(5, 2)), "band must go from a low frequency"),
    "a band of an odd network": (lambda: SIREN(1, 4, hidden=5, band=(1, 2)), "an even number of hidden units"),
    "a window without end": (lambda: Span(1, init=float("inf")), "init is the initial σ"),
    "a threshold with a word": (lambda: Span(1, threshold="x"), "threshold must be a number"),
    "a score by name": (lambda: attend(Q, Q, Q, score="rbf"), "score must be a Score"),
    "a chunk of nothing": (lambda: attend(Q, Q, Q, chunk=0), "chunk=0"),
    "a chunk of fused": (lambda: attend(Q, Q, Q, chunk=2, backend="fused"), "chunk=2 with backend='fused'"),
    "a back end": (lambda: attend(Q, Q, Q, backend="fusd"), "did you mean 'fused'"),
    "weights from fused": (lambda: attend(Q, Q, Q, backend="fused", return_weights=True), "does not return weights"),
    "sums from fused": (lambda: attend(Q, Q, Q, backend="fused", normalise="none"), "always normalises"),
    "all weights from streamed": (
        lambda: attend(Q, Q, Q, backend="streamed", return_weights=True),
        "does not return weights",
    ),
    "a way to normalise": (lambda: attend(Q, Q, Q, normalise="softmx"), "did you mean 'softmax'"),
}


@pytest.mark.parametrize("case", ATTEND)
def test_attend(case):
    call, message = ATTEND[case]
    with pytest.raises(FillinError, match=message):
        call()


def test_a_too_large_grid_names_the_remedy():
    model = tiny("convcnp")
    with pytest.raises(FillinError, match=r"scale x down, lower points_per_unit, or use a te-tnp"):
        model(T.xc, T.yc, T.xt + 1e9)


def test_errors_are_subclasses_of_builtin_exceptions():
    with pytest.raises(ValueError, match="unknown model"):
        fillin.create("nothing")
    with pytest.raises(TypeError, match="floating-point"):
        tiny("cnp")(T.xc.long(), T.yc, T.xt)
