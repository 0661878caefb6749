"""Prior of sheets: several columns over common rows, with cells missing anywhere.

Columns mix latent functions, some with a lag, and add functions of their own; some are nonlinear copies of others, sums
of others, or unrelated. Cells are missing at random, in blocks of a column, in whole rows, or in most of a column.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.data.broad_prior import PROTOCOL_FUNCTIONS, draw_functions, draw_locations, observe, standardise
from fillin.data.curves import PROTOCOLS, parse_function
from fillin.data.functions import uniform
from fillin.data.kernels import Range, within
from fillin.data.task import SheetBatch, check_count_ranges, is_number, make_generator
from fillin.errors import InputError

_TNP = PROTOCOLS["tnp"][1]
_MAX_LAGGED_ROWS = 128  # latent functions are drawn at three times as many locations
_MAX_LATENT = 3


@dataclass(frozen=True)
class SheetPrior:
    """Stream of sheets with a log-uniform number of `rows` and of `columns`, in batches of about `cells` cells.

    A share `single` of the batches has one column, of which a share `plain` follows the protocol `tnp`.
    """

    dim_x: int = 1
    rows: tuple[int, int] = (8, 320)
    columns: tuple[int, int] = (2, 8)
    cells: int = 5000
    noise: Range = (0.001, 1.0)
    single: float = 0.3
    plain: float = 0.3
    seed: int = 0
    dim_y: int = 1

    def __post_init__(self):
        check_count_ranges(self, "sheets", rows=4, columns=2)
        for name in ("single", "plain"):
            if not (is_number(getattr(self, name)) and 0 <= getattr(self, name) <= 1):
                raise InputError(f"sheets: {name} must be a share from 0 to 1, got {getattr(self, name)!r}")

    @property
    def batch(self) -> int:
        """Batch size for one column and the geometric mean of the numbers of rows."""
        return self._batch_size(round((self.rows[0] * self.rows[1]) ** 0.5), 1)

    def _batch_size(self, rows: int, columns: int) -> int:
        return max(2, min(64, int(self.cells / (columns * rows * (0.75 + rows / 600)))))

    def validation_stream(self, seed: int) -> "SheetPrior":
        return replace(self, seed=seed, cells=self.cells // 4)

    def task(self, step: int) -> SheetBatch:
        random = make_generator(self.seed, step)
        single = float(uniform(random, 1)) < self.single
        d = 1 if single else round(float(within(uniform(random, 1), self.columns, logarithmic=True)))
        n = round(float(within(uniform(random, 1), self.rows, logarithmic=True)))
        if single and float(uniform(random, 1)) < self.plain:
            return self._draw_protocol(min(n, 50), random)
        b = self._batch_size(n, d)
        x = draw_rows(b, n, self.dim_x, random)
        f = draw_columns(x * zoom_functions(b, n if self.dim_x == 1 else 8 * n ** (1 / self.dim_x), random), d, random)
        columns = f.mT.flatten(0, 1)[..., None]  # [b·d n 1]
        places = x.repeat_interleave(d, 0)
        noisy, error = (part[..., 0].unflatten(0, (b, d)).mT for part in observe(places, columns, self.noise, random))
        y = noisy + draw_shared_noise(b, n, d, random)
        missing = draw_missing(x, d, random)
        return self._pack(x, y, f, error, missing)

    def _draw_protocol(self, n: int, random: torch.Generator) -> SheetBatch:
        """Draw functions of the protocol `tnp`: half of them as it does, half with wide gaps and any noise."""
        b = self._batch_size(n, 1)
        x = 4 * uniform(random, b, n, self.dim_x) - 2
        f = parse_function(PROTOCOL_FUNCTIONS, {**_TNP, "noise": 0.0}).draw(x, random)[0]
        wide = uniform(random, b, 1, 1) < 0.5
        noise = torch.where(wide, within(uniform(random, b, 1, 1), (1e-4, 0.1), logarithmic=True), _TNP["noise"])
        y = f + noise * torch.randn(f.shape, generator=random, dtype=f.dtype)
        missing = torch.arange(n)[:, None] >= torch.randint(0, n, (b, 1, 1), generator=random)
        return self._pack(x, y, f, torch.zeros_like(y), torch.where(wide, draw_wide_gaps(x, random), missing))

    @staticmethod
    def _pack(x: Tensor, y: Tensor, f: Tensor, error: Tensor, missing: Bool[Tensor, "b n d"]) -> SheetBatch:
        some = missing.flatten(1).any(1)
        missing[~some, 0] = True  # every sheet has queries
        return SheetBatch(x.float(), y.float(), ~missing, missing, error.float(), f.float())


def draw_rows(b: int, n: int, dim_x: int, random: torch.Generator) -> Float[Tensor, "b n dx"]:
    """Draw n locations; half of the sheets are parts of longer records: a dense block, and a thinned rest."""
    if n < 16:
        return draw_locations(b, n, dim_x, random)
    longer = round(n * float(within(uniform(random, 1), (1.5, 16.0), logarithmic=True)))
    record = draw_locations(b, longer, dim_x, random)
    near = round(n * float(within(uniform(random, 1), (0.3, 0.9))))
    start = torch.randint(longer - near + 1, (b, 1), generator=random)
    key = uniform(random, b, longer)
    if dim_x > 1:  # by their distance from one of them
        centre = record.gather(1, torch.randint(longer, (b, 1, 1), generator=random).expand(-1, -1, dim_x))
        by_distance = (record - centre).square().sum(-1).argsort(1)
        record = record.gather(1, by_distance[..., None].expand(record.shape))
        start = torch.zeros_like(start)
    position = torch.arange(longer)
    key = torch.where((position >= start) & (position < start + near), -1.0, key)
    rows = key.argsort(1)[:, :n].sort(1).values
    part = record.gather(1, rows[..., None])
    whole = draw_locations(b, n, dim_x, random)
    return torch.where(uniform(random, b, 1, 1) < 0.5, part, whole)


def zoom_functions(b: int, n: float, random: torch.Generator) -> Float[Tensor, "b 1 1"]:
    """Draw factors by which functions vary faster than in the broad prior: records of many rows, n along each
    dimension, hold many length scales."""
    zoom = within(uniform(random, b, 1, 1), (0.5, max(1.0, n / 24)), logarithmic=True)
    return torch.where(uniform(random, b, 1, 1) < 0.5, zoom, 1.0)


def draw_columns(x: Float[Tensor, "b n dx"], d: int, random: torch.Generator) -> Float[Tensor, "b n d"]:
    """Draw d noise-free columns over the rows x, each with a standard deviation of about 1."""
    b = len(x)
    if d == 1:
        return draw_functions(x, random)
    latent = int(torch.randint(1, _MAX_LATENT + 1, (), generator=random))
    shared = draw_lagged(x, latent, d, random)  # [b n d l]
    mixing = torch.randn(b, 1, d, latent, generator=random, dtype=x.dtype)
    mixing = mixing * (uniform(random, b, 1, d, latent) < 0.75)
    mixed = (shared * mixing).sum(-1)
    own = draw_functions(x.repeat_interleave(d, 0), random)[..., 0].unflatten(0, (b, d)).mT
    weight = within(uniform(random, b, 1, d), (0.02, 3.0), logarithmic=True)
    weight = torch.where(uniform(random, b, 1, d) < 0.25, 0, weight)
    unrelated = (uniform(random, b, 1, d) < 0.12) | (uniform(random, b, 1, 1) < 0.1) | (mixed.abs().amax(1, True) == 0)
    f = standardise_columns(torch.where(unrelated, own, mixed + weight * own))
    f = warp_columns(f, random)
    return standardise_columns(derive_columns(f, random))


def standardise_columns(f: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    return standardise(f.mT.flatten(0, 1)[..., None])[..., 0].unflatten(0, (len(f), f.shape[2])).mT


def draw_lagged(x: Float[Tensor, "b n dx"], latent: int, d: int, random: torch.Generator) -> Float[Tensor, "b n d l"]:
    """Draw latent functions as each column sees them: some columns follow with one of two lags."""
    b, n, _ = x.shape
    lagged = n <= _MAX_LAGGED_ROWS and float(uniform(random, 1)) < 0.35
    many = x.repeat_interleave(latent, 0)  # [b·l n dx]
    if not lagged:
        f = draw_functions(many, random)[..., 0].unflatten(0, (b, latent)).mT  # [b n l]
        return f[:, :, None].expand(-1, -1, d, -1)
    width = (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)).repeat_interleave(latent, 0)
    lags = within(uniform(random, b * latent, 2, 1), (0.002, 0.15), logarithmic=True) * width
    lags = torch.cat([torch.zeros_like(lags[:, :1]), lags], 1)  # [b·l 3 dx]
    everywhere = (many[:, None] - lags[:, :, None]).flatten(1, 2)
    f = draw_functions(everywhere, random)[..., 0].unflatten(1, (3, n)).unflatten(0, (b, latent))  # [b l 3 n]
    lagging = torch.where(uniform(random, b, 1) < 0.5, 1, 0)
    choice = torch.randint(3, (b, d), generator=random) * lagging
    chosen = f.gather(2, choice[:, None, :, None].expand(-1, latent, -1, n))  # [b l d n]
    return chosen.permute(0, 3, 2, 1)


def warp_columns(f: Float[Tensor, "b n d"], random: torch.Generator) -> Float[Tensor, "b n d"]:
    """Warp a fifth of the columns."""
    size = within(uniform(random, len(f), 1, f.shape[2]), (0.3, 1.5))
    warps = (torch.exp(size * f), torch.tanh(size * f), f.abs(), (f - size).clamp_min(0), f.square(), (2 * f).round())
    choice = torch.randint(len(warps), (len(f), 1, f.shape[2]), generator=random)
    warped = sum((torch.where(choice == i, warp, 0) for i, warp in enumerate(warps)), torch.zeros_like(f))
    return torch.where(uniform(random, len(f), 1, f.shape[2]) < 0.2, warped, f)


def derive_columns(f: Float[Tensor, "b n d"], random: torch.Generator) -> Float[Tensor, "b n d"]:
    """Replace some columns by copies of others, sums of the others, or products of two."""
    b, n, d = f.shape
    other = torch.randint(d, (b, 1, d), generator=random).expand(-1, n, -1)
    partner = torch.randint(d, (b, 1, d), generator=random).expand(-1, n, -1)
    copied, product = f.gather(2, other), f.gather(2, other) * f.gather(2, partner)
    total = f.sum(2, keepdim=True) - f
    u = uniform(random, b, 1, d)
    derived = torch.where(u < 0.07, copied, torch.where(u < 0.11, total, torch.where(u < 0.14, product, f)))
    sign = torch.where(uniform(random, b, 1, d) < 0.3, -1.0, 1.0)
    return sign * derived


def draw_shared_noise(b: int, n: int, d: int, random: torch.Generator) -> Float[Tensor, "b n d"]:
    """Draw noise that the columns of a row share, in a quarter of the sheets."""
    size = within(uniform(random, b, 1, 1), (0.02, 2.0), logarithmic=True)
    size = torch.where(uniform(random, b, 1, 1) < 0.25, size, 0) * (d > 1)
    sources = torch.randn(b, n, 2, generator=random, dtype=torch.float64)
    loading = torch.randn(b, 2, d, generator=random, dtype=torch.float64)
    return size * (sources @ loading) / 2**0.5


def draw_wide_gaps(x: Float[Tensor, "b n dx"], random: torch.Generator) -> Bool[Tensor, "b n 1"]:
    """Draw one gap of a fifth to nine tenths of the width, anywhere or at an end."""
    length = within(uniform(random, len(x), 1, 1), (0.8, 3.6))
    start = (4 - length) * uniform(random, len(x), 1, 1)
    end = uniform(random, len(x), 1, 1)
    start = torch.where(end < 0.15, 0, torch.where(end < 0.4, 4 - length, start)) - 2
    along = x[..., :1]
    return (along >= start) & (along < start + length)


def draw_missing(x: Float[Tensor, "b n dx"], d: int, random: torch.Generator) -> Bool[Tensor, "b n d"]:
    """Draw the missing cells: at random, in blocks of each column, in rows of all columns, in one column, or in two of
    these ways."""
    b, n, _ = x.shape
    along = x[..., 0]
    if x.shape[-1] > 1:  # in any direction, or away from a centre
        direction = torch.randn(b, x.shape[-1], 1, generator=random, dtype=x.dtype)
        centre = 4 * uniform(random, b, 1, x.shape[-1]) - 2
        away = torch.linalg.vector_norm(x - centre, dim=-1)
        along = torch.where(uniform(random, b, 1) < 0.5, away, (x @ direction)[..., 0])
    rank = (along.argsort(1).argsort(1).to(x.dtype) + 0.5) / n  # [b n] in (0, 1)

    share = uniform(random, b, 1, 1)
    cells = uniform(random, b, n, d) < torch.where(uniform(random, b, 1, 1) < 0.6, 0.05 + 0.45 * share, share)

    blocks = torch.zeros(b, n, d, dtype=torch.bool)
    for i in range(4):
        low = 1.1 * uniform(random, b, 1, d) - 0.05
        length = within(uniform(random, b, 1, d), (0.02, 0.25), logarithmic=True)
        inside = (rank[..., None] >= low) & (rank[..., None] < low + length)
        blocks |= inside & (uniform(random, b, 1, d) < (1.0 if i == 0 else 0.5))

    scattered = uniform(random, b, n, 1) < share
    length = within(uniform(random, b, 1, 1), (0.05, 0.9))
    low = (1 - length) * uniform(random, b, 1, 1)
    low = torch.where(uniform(random, b, 1, 1) < 0.4, torch.where(uniform(random, b, 1, 1) < 0.7, 1 - length, 0), low)
    gap = (rank[..., None] >= low) & (rank[..., None] < low + length)
    rows = torch.where(uniform(random, b, 1, 1) < 0.4, scattered, gap).expand(-1, -1, d)

    which = torch.arange(d) == torch.randint(d, (b, 1, 1), generator=random)
    most = uniform(random, b, n, d) < within(uniform(random, b, 1, 1), (0.6, 1.0))
    column = which & torch.where(uniform(random, b, 1, 1) < 0.3, most, gap)

    patterns = torch.stack([cells, blocks, rows, column & (d > 1) | rows & (d == 1)])
    chance = torch.tensor([0.3, 0.25, 0.25, 0.2]).expand(b, -1)
    first, second = (torch.multinomial(chance, 1, generator=random)[:, 0] for _ in range(2))
    both = uniform(random, b) < 0.3
    index = torch.arange(b)
    return patterns[first, index] | (patterns[second, index] & both[:, None, None])
