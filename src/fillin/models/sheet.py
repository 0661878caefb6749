"""Sheets: rows with locations, columns of values, cells missing anywhere. Attention between rows and between columns.

    H ← embed(cells) [b n d c];   H ← between the rows of each column, score = content + F(Δx), keys observed
                                  H ← between the columns of each row, content alone
                                  H ← feed-forward network

repeated. Between rows it is the translation-equivariant transformer of Ashman et al. (2024), between columns the
non-parametric transformer of Kossen et al. (2021). Closed-form guides enter every cell, and predictions are corrections
of them in units of their errors, so that a sheet which a line or a regression describes is predicted as precisely.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import MixtureSameFamily, Normal
from torch.nn.functional import softplus

from fillin.attention import expand_key_mask
from fillin.errors import InputError, choose
from fillin.heads import MarginalHead, ObservedMixture, rescale
from fillin.layers import Block, MultiHeadAttention, mlp
from fillin.linear import LinearLayer
from fillin.models.base import Points, Process, Targets
from fillin.models.filler import Normalization, find_periods
from fillin.models.guides import ACROSS, MIN_ERROR, N_GUIDES, Guides, compute_guides, take_rows
from fillin.models.kernel_choice import choose_by_windows, choose_for_part, choose_processes
from fillin.models.processes import Processes, predict_sheet
from fillin.models.tnp import TransformerProcess

if TYPE_CHECKING:
    from fillin.data.task import SheetBatch

N_PROCESSES = 2  # Gaussian processes that predict each cell
_FEATURES = 3 + 3 * N_GUIDES + 2 + 4 * N_PROCESSES  # numbers that describe a cell
_COMPONENTS_EACH = 2  # of the mixture, around each anchor
_TRUST = 3.0  # added to the initial logits of the last process, so that training starts from its predictions

Cells = Float[Tensor, "b n d c"]


class SheetLayer(nn.Module):
    """Attention between rows, attention between columns, and a feed-forward network, each with norm and residual."""

    def __init__(self, rows: Block, dim: int, heads: int, head_dim: int, backend: str):
        super().__init__()
        self.rows = rows
        self.norm_columns = nn.LayerNorm(dim)
        self.columns = MultiHeadAttention(dim, heads, head_dim, backend=backend)

    def forward(
        self, h: Cells, x: Float[Tensor, "b d n dx"], keys: Bool[Tensor, "bd m"], contexts: int | None = None
    ) -> Cells:
        b, n, d, _ = h.shape
        z = self.rows.norm_attention(h).transpose(1, 2).flatten(0, 1)  # [b·d n c]
        x = x.flatten(0, 1)
        attended = self.rows.attention(z, z[:, :contexts], xq=x, xk=x[:, :contexts], mask=expand_key_mask(keys))
        h = h + attended.unflatten(0, (b, d)).transpose(1, 2)
        if d > 1:
            h = h + self.columns(self.norm_columns(h).flatten(0, 1)).unflatten(0, (b, n))
        return h + self.rows.feed_forward(self.rows.norm_feed(h))


class AnchoredHead(MarginalHead):
    """Mixtures of normals for observations and for the latent function. Two components correct each of the anchors, in
    units of its error: anchor + scale · Normal(μ, σ)."""

    separates_noise = True

    def __init__(self, dim: int, anchors: int, floor: float = 1e-2):
        super().__init__()
        self.anchors, self.floor = anchors, floor
        self.out = LinearLayer(dim, 2 * 3 * anchors * _COMPONENTS_EACH)
        with torch.no_grad():
            self.out.weight.mul_(0.1)
            logits, mean, raw = self.out.bias.view(2, 3, anchors, _COMPONENTS_EACH).unbind(1)
            wide = torch.tensor([0.8, 5.0])
            raw.copy_((wide + torch.log(-torch.expm1(-wide))).expand_as(raw))
            logits.copy_(-wide.log().expand_as(logits))
            logits[:, -1] += _TRUST
            mean.zero_()

    def forward(
        self, features: Cells, anchors: Float[Tensor, "b n d k"], scales: Float[Tensor, "b n d 2 k"]
    ) -> ObservedMixture:
        raw = self.out(features).unflatten(-1, (2, 3, self.anchors, _COMPONENTS_EACH))
        logits, mean, width = raw.unbind(-3)  # [b n d 2 k 2]
        mean = anchors[..., None, :, None] + scales[..., None] * mean
        std = scales[..., None] * (self.floor + softplus(width))
        observed, latent = zip(*(part.flatten(-2).unbind(-2) for part in (logits, mean, std)), strict=True)
        return _make_mixture(observed, latent)


def _make_mixture(observed: tuple[Tensor, ...], latent: tuple[Tensor, ...]) -> ObservedMixture:
    """Return the mixtures of observations and of the latent function from their logits, means and stds."""

    def split(logits: Tensor, mean: Tensor, std: Tensor) -> tuple[TorchCategorical, Normal]:
        return TorchCategorical(logits=logits, validate_args=False), Normal(mean, std, validate_args=False)

    weights, normal = split(*latent)
    noise_free = MixtureSameFamily(weights, normal, validate_args=False)
    weights, normal = split(*observed)
    return ObservedMixture(weights, normal, noise_free)


@dataclass(frozen=True)
class SheetUnits:
    """Units of the rows, of each column, and the coordinates of attention."""

    norm: Normalization
    step: Float[Tensor, "b 1 1"]  # median distance of neighbouring rows, in the units of u
    x: Float[Tensor, "b d n dx"]
    period: Float[Tensor, "b d"]  # in the units of u, 0 without one

    def line(self, rows: Points) -> Float[Tensor, "b n d"]:
        """Return what is subtracted from each column as a slope, with a mean of 0 over its observed cells."""
        line = self.norm.location(rows.x) @ (self.norm.slope / self.norm.scale)
        count = rows.observed.sum(1, keepdim=True).clamp_min(1)
        return line - torch.where(rows.observed, line, 0).sum(1, keepdim=True) / count


def median_step(u: Float[Tensor, "b n dx"], valid: Bool[Tensor, "b n"]) -> Float[Tensor, "b 1 1"]:
    """Return the median distance between a row and the next one; in several dimensions to the nearest one."""
    b, n, dim_x = u.shape
    if n < 2:
        return u.new_ones(b, 1, 1)
    if dim_x == 1:
        ordered = torch.where(valid, u[..., 0], torch.inf).sort(1).values
        gaps = ordered.diff(dim=1)
    else:
        first = (~valid).to(torch.uint8).argsort(dim=1, stable=True)[:, : max(int(valid.sum(1).max()), 1)]
        u, valid = take_rows(u, first), valid.gather(1, first)
        gaps = torch.cdist(u, u, compute_mode="donot_use_mm_for_euclid_dist")
        gaps = gaps + torch.diag_embed(u.new_full(first.shape, torch.inf))
        gaps = gaps.masked_fill(~(valid[:, None] & valid[:, :, None]), torch.inf).amin(-1)
    good = gaps.isfinite() & (gaps > 0)
    median = torch.where(good, gaps, torch.nan).nanmedian(1).values
    return torch.where(median > 0, median, 1)[:, None, None]


class Sheet(TransformerProcess):
    """Attention between rows and columns: `model.fill(sheet)` predicts every cell of a sheet.

    As a process, model(xc, yc, xt), rows are the points of the context and the targets, and columns those of y. It is
    equivariant to shifts of x, permutations of rows and columns, and the scale and offset of each column. `seasons`:
    locations include the phase of the strongest period of each column.
    """

    kind = "marginal"
    any_units = True

    def __init__(
        self, dim_x: int = 1, dim_y: int = 1, width: int = 64, heads: int = 4, head_dim: int | None = None,
        layers: int = 6, head: str = "observed", seasons: bool = True, backend: str = "auto", **options,
    ):  # fmt: skip
        choose("head of sheet", head, ["observed"])
        self.seasons = seasons and dim_x == 1
        columns = 2 * dim_x + 2 * self.seasons
        floor = options.pop("floor", 1e-2)
        options.pop("components", None)
        super().__init__(columns, 1, width, heads, head_dim, layers, backend=backend, head=head, **options)
        self.dim_x, self.dim_y = dim_x, dim_y
        self.embed = mlp(_FEATURES, width, width)
        self.head = AnchoredHead(width, 1 + N_GUIDES + N_PROCESSES, floor)
        self.layers_of_cells = nn.ModuleList(
            SheetLayer(self.make_block(width), width, heads, head_dim or max(1, width // heads), backend)
            for _ in range(layers)
        )

    def fill(self, sheet: "SheetBatch", guides: Guides | None = None) -> ObservedMixture:
        """Predict each cell: batch [b n d]. The guides of a part of a longer record are those of the whole record, in
        the units of y; by default they are computed."""
        x, y, observed = sheet.x, torch.where(sheet.observed, sheet.values, 0), sheet.observed
        errors = None if sheet.error is None else torch.where(observed, sheet.error, 0)
        return self._predict(Points(x, y, observed, observed.any(-1), errors), guides=guides)

    def _predict(
        self,
        rows: Points,
        contexts: int | None = None,
        guides: Guides | None = None,
        processes: Processes | None = None,
    ) -> ObservedMixture:
        units = self.units(rows)
        y = torch.where(rows.observed, units.norm.value(rows.y, rows.x), 0)
        error = None if rows.error is None else rows.error / units.norm.scale
        if guides is None:
            guides = self._compute_guides(rows, units, y, error, processes)
        else:
            values = guides.values - units.norm.trend(rows.x)[..., None]
            scale = units.norm.scale[..., None]
            guides = replace(guides, values=values / scale, errors=(guides.errors / scale).clamp(MIN_ERROR, 3))
        assert guides.processes is not None
        mean, std, latent_std = predict_sheet(
            guides.processes, rows.x, y, rows.observed, error, guides.values[..., ACROSS], units.line(rows)
        )
        std, latent_std = std.clamp_min(MIN_ERROR), latent_std.clamp_min(MIN_ERROR)
        described = describe_cells(y, rows.observed, torch.zeros_like(y) if error is None else error, guides)
        h = self.embed(torch.cat([described, describe_processes(y, rows.observed, mean, std, latent_std)], -1))
        keys = rows.observed[:, :contexts].mT.flatten(0, 1)
        for layer in self.layers_of_cells:
            h = layer(h, units.x, keys, contexts)
        anchors = torch.cat([torch.zeros_like(y)[..., None], guides.values, mean], -1)
        shared = torch.cat([torch.ones_like(y)[..., None], guides.errors], -1)
        scales = torch.stack([torch.cat([shared, part], -1) for part in (std, latent_std)], -2)
        features = self.features(h.flatten(1, 2)).unflatten(1, h.shape[1:3])
        mixture = self.head(features, anchors, scales)
        scaled = rescale(mixture, units.norm.trend(rows.x), units.norm.scale)
        assert isinstance(scaled, ObservedMixture)
        return scaled

    def predict_alone(self, sheet: "SheetBatch", guides: Guides) -> tuple[Tensor, Tensor]:
        """Predict observed cells, each by the process of its column from the others: means and standard deviations of
        an observation [b n d], in the units of y. `guides` are those of the record."""
        observed = sheet.observed
        y = torch.where(observed, sheet.values, 0)
        units = self.units(Points(sheet.x, y, observed, observed.any(-1)))
        error = None if sheet.error is None else torch.where(observed, sheet.error, 0) / units.norm.scale
        assert guides.processes is not None
        alone = replace(guides.processes, rest=None)
        z = torch.where(observed, units.norm.value(y, sheet.x), 0)
        mean, std, _ = predict_sheet(alone, sheet.x, z, observed, error, torch.zeros_like(z), queries=False)
        return units.norm.trend(sheet.x) + units.norm.scale * mean[..., 0], units.norm.scale * std[..., 0]

    def record_guides(self, record: Points, prior: Float[Tensor, "b n d"] | None = None) -> Guides:
        """Return the guides of a whole record, in the units of y, for predictions of its parts. `prior` predicts each
        cell without its own value."""
        units = self.units(record)
        y = torch.where(record.observed, units.norm.value(record.y, record.x), 0)
        error = None if record.error is None else record.error / units.norm.scale
        prior = None if prior is None else units.norm.value(prior, record.x)
        guides, scale = self._compute_guides(record, units, y, error, prior=prior), units.norm.scale[..., None]
        values = guides.values * scale + units.norm.trend(record.x)[..., None]
        return replace(guides, values=values, errors=guides.errors * scale)

    @torch.no_grad()
    def choose_for_part(self, part: Points, guides: Guides) -> Processes:
        """Choose the Gaussian processes of a part of a record in one dimension. `guides` are those of the record."""
        units = self.units(part)
        y = torch.where(part.observed, units.norm.value(part.y, part.x), 0)
        error = None if part.error is None else part.error / units.norm.scale
        across = (guides.values[..., ACROSS] - units.norm.trend(part.x)) / units.norm.scale
        assert guides.processes is not None
        u, unit = units.norm.location(part.x), 4 / units.norm.width
        parts = (u, y, part.observed, error, across, units.period, unit, units.line(part))
        return choose_for_part(guides.processes, *parts)

    @torch.no_grad()
    def choose_processes(self, windows: Points) -> Processes:
        """Choose the Gaussian processes of a long record of one column from windows of it."""
        units = self.units(windows)
        y = torch.where(windows.observed, units.norm.value(windows.y, windows.x), 0)[..., 0]
        error = torch.zeros_like(y) if windows.error is None else windows.error[..., 0] / units.norm.scale[..., 0]
        unit = 4 / units.norm.width.amax(0, keepdim=True)
        return choose_by_windows(windows.x, y, windows.observed[..., 0], error, unit)

    @torch.no_grad()
    def _compute_guides(
        self, rows: Points, units: SheetUnits, y: Tensor, error: Tensor | None, processes: Processes | None = None,
        prior: Tensor | None = None,
    ) -> Guides:  # fmt: skip
        u = units.norm.location(rows.x)
        trend = u @ (units.norm.slope / units.norm.scale)
        guides = compute_guides(u, y, rows.observed, units.step, trend, prior)
        if processes is not None:
            return replace(guides, processes=processes.repeat(len(u)))
        across = guides.values[..., ACROSS]
        unit = 4 / units.norm.width
        parts = (u, y, rows.observed, error, across, units.period, unit, units.line(rows))
        return replace(guides, processes=choose_processes(*parts))

    @torch.no_grad()
    def units(self, rows: Points) -> SheetUnits:
        norm = Normalization.of(rows, width="largest")
        u = norm.location(rows.x)
        step = median_step(u, rows.valid)
        d = rows.y.shape[-1]
        period = u.new_zeros(len(u), d)
        parts = [u[:, None].expand(-1, d, -1, -1), (u / (10 * step))[:, None].expand(-1, d, -1, -1)]
        if self.seasons:
            rest = torch.where(rows.observed, norm.value(rows.y, rows.x), 0)
            cycles, confidence = (part.mT for part in find_periods((u[..., 0] + 2) / 4, rest, rows.observed))  # [b d 1]
            angle = 0.5 * math.pi * cycles * (u[..., 0] + 2)[:, None]
            period = torch.where(confidence > 0, 4 / cycles.clamp_min(1e-6), 0)[..., 0]
            parts += [(confidence * angle.cos())[..., None], (confidence * angle.sin())[..., None]]
        return SheetUnits(norm, step, torch.cat(parts, -1), period)

    def forward(
        self, xc, yc, xt, mask_c=None, mask_t=None, error_c=None, processes: Processes | None = None
    ) -> ObservedMixture:
        """Predict observations at xt [b m dx] from a context. `processes` are those of a longer record, of which the
        context is a part."""
        context, targets = Process.read(self, xc, yc, xt, mask_c, mask_t)
        rows = replace(context, error=error_c).join(targets.without_values(self.dim_y))
        mixture = self._predict(replace(rows, keep=rows.observed.any(-1)), len(context), processes=processes)
        return select(mixture, slice(len(context), None))

    def encode(self, context: Points, targets: Targets) -> Points:
        return context

    def decode(self, encoded: Points, targets: Targets):
        raise InputError("sheet: predictions depend on the guides; call the model, or fill")


def select(mixture: ObservedMixture, rows: slice) -> ObservedMixture:
    """Return the mixture of some rows."""
    observed, latent = (
        (part.mixture_distribution.logits[:, rows], part.component_distribution.mean[:, rows],
         part.component_distribution.stddev[:, rows])
        for part in (mixture, mixture.noise_free)
    )  # fmt: skip
    return _make_mixture(observed, latent)


def compress(y: Tensor) -> Tensor:
    """Return y up to 3 standard deviations, logarithmic beyond: a jump must not dominate the tokens."""
    return torch.where(y.abs() > 3, y.sign() * (3 + torch.log(y.abs().clamp_min(3) / 3)), y)


def describe_cells(y: Tensor, observed: Tensor, error: Tensor, guides: Guides) -> Float[Tensor, "b n d _"]:
    """Return the numbers that a token is made from: value, whether it is observed, its known error; the guides, their
    residuals where observed, their errors; and the distances to the nearest observations."""
    residual = torch.where(observed[..., None], (y[..., None] - guides.values) / guides.errors, 0)
    return torch.cat([
        torch.stack([compress(y), observed.to(y.dtype), torch.log1p(10 * error)], -1),
        compress(guides.values), compress(residual), guides.errors.log(),
        torch.log1p(guides.distances),
    ], -1)  # fmt: skip


def describe_processes(
    y: Float[Tensor, "b n d"], observed: Tensor, mean: Float[Tensor, "b n d p"], std: Tensor, latent_std: Tensor
) -> Float[Tensor, "b n d _"]:
    """Return the means of the processes, their residuals where observed, and the logarithms of their stds."""
    residual = torch.where(observed[..., None], (y[..., None] - mean) / std, 0)
    return torch.cat([compress(mean), compress(residual), std.log(), latent_std.log()], -1)
