"""What `fillin bench span` measures: which points and windows, up to where, and how often."""

from dataclasses import dataclass, replace

from fillin_studies.bench.models import Size
from fillin_studies.bench.scores import AT

PARTS = ("table", "growth", "models", "function", "large", "crossover")


@dataclass(frozen=True)
class Case:
    """So many points in `dim` dimensions, on a "grid" or "scattered", with a window of a share of the square."""

    layout: str
    dim: int
    points: int
    span: float


@dataclass(frozen=True)
class Plan:
    """All sizes, and the points up to which each kind of competitor is measured: beyond, it takes gigabytes or minutes.

    `turn` is the seconds that a candidate has in each round, if it needs less for one run.
    """

    grids: tuple[int, ...] = (32, 64, 128)
    scattered: tuple[int, ...] = (1024, 4096, 16384, 65536)
    spans: tuple[float, ...] = (0.01, 0.05, 0.2)
    growth: tuple[int, ...] = tuple(1024 << i for i in range(7))
    neighbours: int = 200
    function: int = 2048
    large: tuple[int, int] = (10_000, 100_000)  # context points, and targets to fill
    crossover: tuple[int, ...] = tuple(64 << i for i in range(7))
    models: Size = AT
    slow: int = 4096  # points up to which what stores every pair takes part
    exact: int = 1024  # and the reference, which takes seconds beyond
    fused: int = 16384
    within: float = 5e8  # pairs inside the window up to which the kernel itself is measured
    rounds: int = 3
    turn: float = 0.1

    @property
    def cases(self) -> list[Case]:
        shapes = [("grid", 2, side * side) for side in self.grids]
        shapes += [("scattered", dim, n) for dim in (1, 2, 3) for n in self.scattered]
        return [Case(*shape, span) for shape in shapes for span in self.spans if span * shape[2] ** 2 <= self.within]


FULL = Plan()
QUICK = replace(
    FULL, grids=(32,), scattered=(1024, 4096), growth=FULL.growth[:4], function=512, large=(2_000, 10_000),
    crossover=FULL.crossover[:4], slow=1024, fused=4096,
)  # fmt: skip
