"""Fill gaps in real data: hold out part of a series and of a field, fill both, and compare with the held-out values.

    python examples/fill_gaps.py --out out

Writes out/co2.csv and out/elevation.nc, which have gaps, runs `fillin fill out/co2.csv` and
`fillin fill out/elevation.nc`, and prints the errors.
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
GAPS = [("1963-07", "1965-06"), ("1970-01", "1972-12"), ("1978-05", "1980-02")]  # years held out of the CO₂ record
LAST = "1983-12"  # all values after it are held out: a forecast


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=Path("out"), help="output folder (default: out)")
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    figure = plt.figure(figsize=(10, 7), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.2, 1])
    series(out, figure.add_subfigure(rows[0]).subplots())
    field(out, figure.add_subfigure(rows[1]))
    figure.savefig(out / "demo.png", dpi=130)
    print(f"\nwrote {out / 'demo.png'}")


# ---- a series


def series(out: Path, axis) -> None:
    truth = pd.read_csv(DATA / "co2.csv", index_col="month")["co2_ppm"]
    masked = pd.Series(False, truth.index)
    for first, last in GAPS:
        masked[first:last] = True
    masked[truth.index > LAST] = True
    incomplete = truth.mask(masked).reset_index()
    incomplete.to_csv(out / "co2.csv", index=False)
    filled = fill(out / "co2.csv", pd.read_csv).set_index("month")

    observed, held_out = (~masked & truth.notna()).to_numpy(), (masked & truth.notna()).to_numpy()
    ahead, month = truth.index > LAST, np.arange(len(truth))
    predictions = {
        "truth": truth.to_numpy(), "line": np.interp(month, month[observed], truth[observed]),
        **{name: filled[f"co2_ppm_{name}"].to_numpy() for name in ("filled", "low", "high")},
    }  # fmt: skip
    compare("years inside the record", "ppm", predictions, held_out & ~ahead)
    compare("two years beyond its end", "ppm", predictions, held_out & ahead)

    dates = pd.PeriodIndex(truth.index, freq="M").to_timestamp()
    missing = incomplete["co2_ppm"].isna().to_numpy()
    interval = [filled[f"co2_ppm_{edge}"].where(missing) for edge in ("low", "high")]
    axis.plot(dates, incomplete["co2_ppm"], color="black", lw=1, label="observed")
    axis.fill_between(dates, *interval, color="tab:blue", alpha=0.3, lw=0, label="95 % interval")
    axis.plot(dates, filled["co2_ppm_filled"].where(missing), color="tab:blue", lw=1.2, label="predicted mean")
    axis.plot(dates[held_out], truth[held_out], ".", color="tab:red", ms=3, label="held out")
    axis.set(title="fillin fill co2.csv: carbon dioxide over Mauna Loa", ylabel="ppm", xlim=(dates[0], dates[-1]))
    axis.legend(loc="upper left", frameon=False)


# ---- a field


def field(out: Path, figure) -> None:
    complete = xr.load_dataset(DATA / "elevation.nc")
    truth = complete["elevation"].to_numpy().astype(float)
    random = np.random.default_rng(0)
    row, column = np.indices(truth.shape)
    cloud = np.hypot(row - 52, (column - 68) * 0.8) < 11
    masked = (random.uniform(size=truth.shape) < 0.4) | cloud
    incomplete = complete.copy()
    incomplete["elevation"] = complete["elevation"].astype("float32").where(~masked)
    incomplete["elevation"].encoding = {}
    incomplete.to_netcdf(out / "elevation.nc")
    filled = fill(out / "elevation.nc", xr.load_dataset)

    result = {name: filled[f"elevation_{name}"].to_numpy() for name in ("filled", "low", "high", "std")}
    line = [griddata(np.argwhere(~masked), truth[~masked], (row, column), method=m) for m in ("linear", "nearest")]
    line = np.where(np.isnan(line[0]), line[1], line[0])  # no triangle outside the observed cells
    predictions = {"truth": truth, "line": line, **result}
    compare("cells anywhere", "m", predictions, masked & ~cloud)
    compare("cells under a cloud", "m", predictions, cloud)

    panels = figure.subplots(1, 4)
    shown = [("observed", np.where(masked, np.nan, truth)), ("filled", result["filled"]), ("truth", truth),
             ("standard deviation", result["std"])]  # fmt: skip
    for axis, (title, values) in zip(panels, shown, strict=True):
        scale = {} if title == "standard deviation" else {"vmin": truth.min(), "vmax": truth.max()}
        image = axis.imshow(values, cmap="magma" if title == "standard deviation" else "terrain", **scale)
        axis.set(title=title, xticks=[], yticks=[])
        figure.colorbar(image, ax=axis, orientation="horizontal", pad=0.02, label="m")
    figure.suptitle("fillin fill elevation.nc: 40 % of the cells and a cloud")


# ---- series and field


def fill(path: Path, read):
    """Run `fillin fill PATH` and read the file that it writes."""
    print(f"\n$ fillin fill {path} --report --force")
    start = time.perf_counter()
    code = fillin(["fill", str(path), "--report", "--force"])
    if code:
        raise SystemExit(code)
    print(f"  in {time.perf_counter() - start:.1f} s, with figure and HTML report; compared with the held-out values:")
    return read(path.with_name(f"{path.stem}.filled{path.suffix}"))


def compare(name: str, unit: str, predictions: dict[str, np.ndarray], where: np.ndarray) -> None:
    """Print the error of the mean beside that of linear interpolation, and the coverage of the intervals."""
    truth, line, mean, low, high = (predictions[key][where] for key in ("truth", "line", "filled", "low", "high"))
    ours, theirs = (float(np.sqrt(np.mean((prediction - truth) ** 2))) for prediction in (mean, line))
    inside = float(np.mean((low <= truth) & (truth <= high)))
    print(
        f"  {name + ':':26} {len(truth):5} values, RMSE {ours:6.2f} {unit} (linear interpolation {theirs:6.2f}), "
        f"{inside:.0%} of them in the 95 % interval"
    )


if __name__ == "__main__":
    main()
