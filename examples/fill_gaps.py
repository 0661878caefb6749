"""The main job on real data: hide part of a series and of a field, fill both, and compare with what was hidden.

    python examples/fill_gaps.py --out out

Writes out/co2.csv and out/elevation.nc, which have gaps, then does what anyone would do by
`fillin fill out/co2.csv` and `fillin fill out/elevation.nc`, and prints how far the answers are from the truth.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from scipy.interpolate import griddata

from fillin.cli import main as fillin

DATA = Path(__file__).parent / "data"
GAPS = [("1963-07", "1965-06"), ("1970-01", "1972-12"), ("1978-05", "1980-02")]  # years taken out of the CO₂ record
LAST = "1983-12"  # nothing is known after it: a forecast


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=Path("out"), help="folder for what is written (default: out)")
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    figure = plt.figure(figsize=(10, 7), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.2, 1])
    series(out, figure.add_subfigure(rows[0]).subplots())
    field(out, figure.add_subfigure(rows[1]))
    figure.savefig(out / "demo.png", dpi=130)
    print(f"\nwrote {out / 'demo.png'}: look at it")


# ---- a series


def series(out: Path, axis) -> None:
    truth = pd.read_csv(DATA / "co2.csv", index_col="month")["co2_ppm"]
    hidden = pd.Series(False, truth.index)
    for first, last in GAPS:
        hidden[first:last] = True
    hidden[truth.index > LAST] = True
    gappy = truth.mask(hidden).reset_index()
    gappy.to_csv(out / "co2.csv", index=False)
    filled = fill(out / "co2.csv", pd.read_csv).set_index("month")

    known, judged = (~hidden & truth.notna()).to_numpy(), (hidden & truth.notna()).to_numpy()
    ahead, month = truth.index > LAST, np.arange(len(truth))
    guesses = {
        "truth": truth.to_numpy(), "line": np.interp(month, month[known], truth[known]),
        **{name: filled[f"co2_ppm_{name}"].to_numpy() for name in ("filled", "low", "high")},
    }  # fmt: skip
    compare("years inside the record", "ppm", guesses, judged & ~ahead)
    compare("two years beyond its end", "ppm", guesses, judged & ahead)

    dates = pd.PeriodIndex(truth.index, freq="M").to_timestamp()
    blank = gappy["co2_ppm"].isna().to_numpy()
    band = [filled[f"co2_ppm_{edge}"].where(blank) for edge in ("low", "high")]
    axis.plot(dates, gappy["co2_ppm"], color="black", lw=1, label="known")
    axis.fill_between(dates, *band, color="tab:blue", alpha=0.3, lw=0, label="filled: 95 % band")
    axis.plot(dates, filled["co2_ppm_filled"].where(blank), color="tab:blue", lw=1.2, label="filled: mean")
    axis.plot(dates[judged], truth[judged], ".", color="tab:red", ms=3, label="the truth, hidden")
    axis.set(title="fillin fill co2.csv: carbon dioxide over Mauna Loa", ylabel="ppm", xlim=(dates[0], dates[-1]))
    axis.legend(loc="upper left", frameon=False)


# ---- a field


def field(out: Path, figure) -> None:
    whole = xr.load_dataset(DATA / "elevation.nc")
    truth = whole["elevation"].to_numpy().astype(float)
    random = np.random.default_rng(0)
    row, column = np.indices(truth.shape)
    cloud = np.hypot(row - 52, (column - 68) * 0.8) < 11
    hidden = (random.uniform(size=truth.shape) < 0.4) | cloud
    gappy = whole.copy()
    gappy["elevation"] = whole["elevation"].astype("float32").where(~hidden)
    gappy["elevation"].encoding = {}
    gappy.to_netcdf(out / "elevation.nc")
    filled = fill(out / "elevation.nc", xr.load_dataset)

    found = {name: filled[f"elevation_{name}"].to_numpy() for name in ("filled", "low", "high", "std")}
    line = [griddata(np.argwhere(~hidden), truth[~hidden], (row, column), method=m) for m in ("linear", "nearest")]
    line = np.where(np.isnan(line[0]), line[1], line[0])  # outside of what is known there is no triangle
    guesses = {"truth": truth, "line": line, **found}
    compare("cells anywhere", "m", guesses, hidden & ~cloud)
    compare("cells under a cloud", "m", guesses, cloud)

    panels = figure.subplots(1, 4)
    shown = [("known", np.where(hidden, np.nan, truth)), ("filled", found["filled"]), ("the truth", truth),
             ("deviation", found["std"])]  # fmt: skip
    for axis, (title, values) in zip(panels, shown, strict=True):
        same = {} if title == "deviation" else {"vmin": truth.min(), "vmax": truth.max()}
        image = axis.imshow(values, cmap="magma" if title == "deviation" else "terrain", **same)
        axis.set(title=title, xticks=[], yticks=[])
        figure.colorbar(image, ax=axis, orientation="horizontal", pad=0.02, label="m")
    figure.suptitle("fillin fill elevation.nc: 40 % of the cells and a cloud")


# ---- both


def fill(path: Path, read):
    """What `fillin fill PATH` writes beside it."""
    print(f"\n$ fillin fill {path} --report --force")
    began = time.perf_counter()
    code = fillin(["fill", str(path), "--report", "--force"])
    if code:
        raise SystemExit(code)
    print(f"  in {time.perf_counter() - began:.1f} s, with a picture and a page beside it; against what was hidden:")
    return read(path.with_name(f"{path.stem}.filled{path.suffix}"))


def compare(name: str, unit: str, guesses: dict[str, np.ndarray], where: np.ndarray) -> None:
    """The error of the mean beside that of straight lines, and how often the truth lies in the band."""
    truth, line, mean, low, high = (guesses[key][where] for key in ("truth", "line", "filled", "low", "high"))
    ours, theirs = (float(np.sqrt(np.mean((guess - truth) ** 2))) for guess in (mean, line))
    inside = float(np.mean((low <= truth) & (truth <= high)))
    print(
        f"  {name + ':':26} {len(truth):5} values, RMSE {ours:6.2f} {unit} (linear interpolation {theirs:6.2f}), "
        f"{inside:.0%} of them in the 95 % band"
    )


if __name__ == "__main__":
    main()
