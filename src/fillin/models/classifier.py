"""Image classifiers, and a transformer over pixels (Alfons 2022)."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from fillin.attention import (
    SCORES,
    SIREN,
    GridEncoding,
    RelativePosition,
    Score,
    Sinusoid,
    Span,
    expand_key_mask,
    make_score,
)
from fillin.attention.positional_encodings import siren_bound
from fillin.errors import InputError, InputTypeError, choose
from fillin.layers import Block
from fillin.linear import LinearLayer
from fillin.models.tnp import make_span

# r(Δ) of Transformer-XL's score: from one of three SIRENs, or from fixed sinusoids and a linear layer
_POSITIONS = {
    "siren": "relative-siren", "siren-stable": "relative-siren", "siren-alfons": "relative-siren",
    "sinusoid": "relative-sinusoid",
}  # fmt: skip
_ALFONS_HIDDEN, _ALFONS_OMEGA = 32, 10.0
_SLOWEST = 10  # the slowest wave turns by a tenth of a radian or less over the whole image


class LayerSpan(NamedTuple):
    """Window of a layer: σ of each head along each axis (None: no window), and the share of pairs inside. Units are
    those of `locations`: an image has width 1."""

    sigma: Float[Tensor, "h dx"] | None
    share: float


def check_dropout(name: str, dropout: float) -> None:
    """Raise an error unless `dropout` is a number from 0 to below 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise InputError(f"{name}: dropout must be a number from 0 to below 1, got {dropout!r}")


class Classifier(nn.Module):
    """Base of image classifiers: `dim_x` colour channels in, logits of `dim_y` classes out."""

    kind = "classes"
    equivariant = False  # to translations of the content of an image

    def __init__(self, dim_x: int, dim_y: int):
        super().__init__()
        self.config: dict[str, Any] = {}  # arguments of `create`
        self.dim_x, self.dim_y = dim_x, dim_y

    @property
    def _name(self) -> str:
        return self.config.get("model", type(self).__name__)

    def _check(self, images: Tensor, shape: str = "b h w") -> None:
        """Raise an error unless images are floating point and of the axes `shape` followed by colours."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise InputTypeError(f"{self._name}: images must be floating point, got {kind}; see data.images.to_colours")
        if images.ndim != len(shape.split()) + 1 or images.shape[-1] != self.dim_x:
            raise InputError(
                f"{self._name}: images must be [{shape} {self.dim_x}], with the colour channels of the model "
                f"(dim_x={self.dim_x}), got {list(images.shape)}"
            )

    def check_labels(self, labels: Tensor, classes: int | None = None) -> None:
        """Raise an error unless labels are below `classes`, by default the classes of the model."""
        number = classes or self.dim_y
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < number:
            larger = int(labels.max()) + 1
            remedy = f"create it with dim_y={larger}" if classes is None else f"pass classes={larger}"
            raise InputError(
                f"{self._name}: labels range from {labels.min()} to {labels.max()}, but the model has {number} "
                f"classes, 0 to {number - 1}; {remedy}, or correct the labels"
            )


class PixelClassifier(Classifier):
    """logits = W · readout(blocks(E · colours)): every pixel is a token of its colours alone. Locations enter through
    the score of a pair and its window.

    Any resolution is allowed. Pixels lie in the plane (`dims=2`) or in one row, line after line (`dims=1`). `positions`
    is a source of r(Δ) for the score of Transformer-XL (Dai et al. 2019), [(q + u)·k + (q + v)·r(Δ)]/√d:

        "sinusoid"       fixed sinusoids and a linear map, the baseline of Alfons 2022
        "siren-alfons"   the SIREN of Alfons 2022: three linear maps, sines of ω₀ = 10 between them, Δ in [−1, 1]
        "siren-stable"   `SIREN(stable=True)`, which needs no tuned ω
        "siren"          a SIREN that starts as sinusoids do, and learns the difference from that start

    or any other score of a displacement: "rbf", "fourier" … `span` is the initial σ of a window per layer and head, or
    all arguments of `Span`: {init: 0.3, threshold: 0} does not cut. `blocks` is the side in pixels of fixed independent
    blocks instead: a pixel attends to those of its own block alone. `readout` is the mean over tokens, or the last
    token. After each block listed in `reduce`, four pixels (two in a row) are averaged to one.
    `side` is the expected number of pixels along a side: the fastest positional wave has one radian per pixel.

    >>> PixelClassifier(dim_x=3, dim_y=10, layers=2, span=0.2, reduce=[1])(torch.rand(4, 8, 8, 3)).shape
    torch.Size([4, 10])
    """

    equivariant = True  # it depends on displacements alone

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 10,
        width: int = 64,
        heads: int = 8,
        layers: int = 6,
        hidden: int = 128,
        dropout: float = 0.1,
        positions: str = "siren",
        dims: int = 2,
        span: float | dict | None = None,
        blocks: int | None = None,
        readout: str = "mean",
        reduce: Sequence[int] = (),
        side: int = 32,
        backend: str = "auto",
    ):
        super().__init__(dim_x, dim_y)
        if dims not in (1, 2):
            raise InputError(f"classifier: dims must be 1 (a row of pixels) or 2, got {dims!r}")
        check_dropout("classifier", dropout)
        if not isinstance(reduce, Sequence) or any(type(r) is not int or not 1 <= r < layers for r in reduce):
            raise InputError(f"classifier: reduce must list blocks from 1 to below layers={layers}, got {reduce!r}")
        self.dims, self.reduce = dims, frozenset(reduce)
        if type(side) is not int or side < 1:
            raise InputError(f"classifier: side must be a whole number of pixels of at least 1, got {side!r}")
        if blocks is not None and (type(blocks) is not int or blocks < 1):
            raise InputError(f"classifier: blocks must be a side of at least 1 pixel, or None, got {blocks!r}")
        if blocks is not None and span is not None:
            raise InputError(
                "classifier: fixed blocks and learned windows exclude each other; leave blocks or span out"
            )
        self.block_side = blocks
        self.last = choose("readout", readout, ["mean", "last"]) == "last"
        choose("positions", positions, [*_POSITIONS, *(name for name in SCORES if name not in _POSITIONS)])
        head_dim = max(1, width // heads)
        self.embed = LinearLayer(dim_x, width)
        self.blocks: Iterable[Any] = nn.ModuleList(
            Block(
                width, heads, head_dim, hidden=hidden, dropout=dropout, backend=backend,
                score=_score(positions, heads, head_dim, dims, side), span=make_span(span, heads, dims),
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.out = LinearLayer(width, dim_y)

    def forward(
        self, images: Float[Tensor, "b h w c"], x: Float[Tensor, "rows columns dx"] | None = None
    ) -> Float[Tensor, "b k"]:
        """Return the logits of the classes. `x` are the locations of pixels, by default those of `locations`."""
        self._check(images)
        if x is not None and self.block_side is not None:
            raise InputError(
                f"{self._name}: fixed blocks divide the grid of an image; leave x out, or create it without"
            )
        x = self.locations(*images.shape[1:3]) if x is None else x
        x, tokens = x[None].to(images), self.embed(images).view(len(images), *x.shape[:2], -1)
        for number, block in enumerate(self.blocks, 1):
            if self.block_side is not None:
                tokens = self._apply_in_blocks(block, tokens, x)
            else:
                locations = x.flatten(1, 2).expand(len(tokens), -1, -1)
                tokens = block(tokens.flatten(1, 2), xq=locations).view_as(tokens)
            if number in self.reduce:
                x, tokens = self._halved(x), self._halved(tokens)
        tokens = tokens.flatten(1, 2)
        return self.out(self.norm(tokens[:, -1] if self.last else tokens.mean(1)))

    def _apply_in_blocks(
        self, block: Any, tokens: Float[Tensor, "b rows columns c"], x: Float[Tensor, "1 rows columns dx"]
    ) -> Float[Tensor, "b rows columns c"]:
        """Apply a block of the transformer to each fixed block of pixels by itself. All have the displacements of the
        first one; those at the far edges may be smaller."""
        assert self.block_side is not None
        (b, rows, columns, width), side = tokens.shape, self.block_side
        r, c = min(side, rows), min(side, columns)
        down, right = -rows % r, -columns % c
        grid = (rows + down) // r, (columns + right) // c

        def divide(t: Tensor) -> Tensor:
            """[b rows columns c] → [b · blocks, pixels of a block, c]."""
            t = pad(t, (0, 0, 0, right, 0, down)).unflatten(2, (grid[1], c)).unflatten(1, (grid[0], r))
            return t.transpose(2, 3).reshape(b * grid[0] * grid[1], r * c, -1)

        mask = None
        if down or right:
            mask = expand_key_mask(divide(torch.ones_like(tokens[..., :1]))[..., 0] > 0)
        parts = divide(tokens)
        parts = block(parts, xq=x[:, :r, :c].flatten(1, 2).expand(len(parts), -1, -1), mask=mask)
        whole = parts.view(b, *grid, r, c, width).transpose(2, 3).reshape(b, rows + down, columns + right, width)
        return whole[:, :rows, :columns]

    def layer_sizes(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return rows and columns of tokens in each layer for an image of this size; along one axis there is one row.

        >>> PixelClassifier(layers=3, reduce=[1]).layer_sizes(8, 5)
        [(8, 5), (4, 3), (4, 3)]
        """
        rows, columns = (height, width) if self.dims == 2 else (1, height * width)
        sizes = []
        for number, _ in enumerate(self.blocks, 1):
            sizes.append((rows, columns))
            if number in self.reduce:
                rows, columns = -(-rows // 2), -(-columns // 2)
        return sizes

    def locations(self, height: int, width: int) -> Float[Tensor, "rows columns dx"]:
        """Return locations of pixels from −½ to ½ along each axis, so that Δ lies in [−1, 1]; a row has one axis. They
        are in double precision: equal Δ must give equal values of fast sines."""
        sizes = (height, width) if self.dims == 2 else (height * width,)
        axes = [
            torch.linspace(-0.5, 0.5, size, dtype=torch.float64) if size > 1 else torch.zeros(1, dtype=torch.float64)
            for size in sizes
        ]
        x = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
        return x if self.dims == 2 else x[None]

    def spans(self, height: int = 32, width: int = 32) -> list[LayerSpan]:
        """Return the window of each layer and the share of pairs of pixels inside, for an image of this size."""
        layers = []
        with torch.no_grad():
            sizes = self.layer_sizes(height, width)
            for (span, delta, share), size in zip(self._windows(height, width), sizes, strict=True):
                if span is None:
                    layers.append(LayerSpan(None, math.prod(_share_in_blocks(n, self.block_side) for n in size)))
                    continue
                inside = span(delta.new_zeros(()), delta)[1]
                sigma = span.factor.square().sum(-1).sqrt()
                layers.append(LayerSpan(sigma, 1.0 if inside is None else float((inside * share).sum(-1).mean())))
        return layers

    def openness(self, height: int, width: int) -> Float[Tensor, ""]:
        """Return the mean of G over pairs of pixels, heads and layers, for a penalty on the span. It grows with the
        share of pairs inside, which has no gradient."""
        means = [
            (span.exponents(delta).sum(2).exp() * share).sum(-1).mean()
            for span, delta, share in self._windows(height, width)
            if span is not None
        ]
        if not means:
            raise InputError("a penalty on the span needs a model with windows; create it with a span, like 0.3")
        return torch.stack(means).mean()

    def _windows(self, height: int, width: int) -> list[tuple[Span | None, Tensor, Tensor]]:
        """Return the window, the distinct displacements [1 dx 1 m] and their share of pairs [m] of each layer."""
        x, windows = self.locations(height, width)[None].to(self.out.weight), []
        for number, block in enumerate(self.blocks, 1):
            axes = [x[0, 0, :, 0]] if self.dims == 1 else [x[0, :, 0, 0], x[0, 0, :, 1]]
            counted = [torch.unique(((a[:, None] - a) * 1e6).round(), return_counts=True) for a in axes]
            delta = torch.stack(torch.meshgrid(*(values / 1e6 for values, _ in counted), indexing="ij")).flatten(1)
            shares = torch.meshgrid(*(counts / counts.sum() for _, counts in counted), indexing="ij")
            windows.append((block.attention.span, delta[None, :, None], torch.stack(shares).prod(0).flatten().to(x)))
            x = self._halved(x) if number in self.reduce else x
        return windows

    def _halved(self, grid: Float[Tensor, "b rows columns c"]) -> Float[Tensor, "b _ _ c"]:
        """Average 2 × 2 neighbours (two in a row); at an odd edge those that exist."""
        step = [min(2, size) for size in grid.shape[1:3]]
        return avg_pool2d(grid.permute(0, 3, 1, 2), step, step, ceil_mode=True).permute(0, 2, 3, 1)


def _share_in_blocks(n: int, side: int | None) -> float:
    """Share of the pairs of n tokens in a row that lie in one block; the last block may be smaller."""
    if side is None or side >= n:
        return 1.0
    return (n // side * side**2 + (n % side) ** 2) / n**2


def _score(positions: str, heads: int, head_dim: int, dims: int, side: int) -> Score:
    """Return the positional score; frequencies of "siren" and "sinusoid" range from 1/10 radian per image to one radian
    per pixel.

    In 1-D (one row of side² pixels) the SIREN of Alfons (2022) is less accurate than sinusoids: it starts without low
    frequencies and with random phases, and weight decay shrinks its frequencies. `band` corrects this. The last of its
    three maps, which gives the d features of each head, is the weight W_h of the score; its bias would cancel.
    """
    if positions == "siren-alfons":
        network = SIREN(dims, None, _ALFONS_HIDDEN, layers=2, omega=_ALFONS_OMEGA, stable=False)
        score = RelativePosition(heads, head_dim, GridEncoding(network), _ALFONS_HIDDEN)
        bound = siren_bound(_ALFONS_HIDDEN, _ALFONS_OMEGA)
        nn.init.uniform_(score.weight, -bound, bound)
        return score
    score, along = make_score(_POSITIONS.get(positions, positions), heads, head_dim, dims), side ** (3 - dims)
    if isinstance(score, RelativePosition) and isinstance(score.positions, Sinusoid):
        sinusoid = Sinusoid(score.dim, dims, base=_SLOWEST * side**2)
        sinusoid.omega.mul_(along)
        score.set_positions(sinusoid)
    elif positions == "siren-stable":
        assert isinstance(score, RelativePosition)
        score.set_positions(GridEncoding(score.positions))
    elif isinstance(score, RelativePosition):
        band = 1 / _SLOWEST, float(along)
        score.set_positions(GridEncoding(SIREN(dims, score.dim, bias=False, band=band)))
    return score
