"""Figures of times on calendars that matplotlib does not support."""

import re

import numpy as np
import pytest
import xarray as xr
from support.fields_with_gaps import waves

from fillin.filling.grid.figure import draw_grid
from fillin.filling.grid.layout import make_layout
from fillin.filling.grid.sources import dataset_variable


@pytest.mark.parametrize("over", [["time"], ["time", "lat"]])
def test_a_calendar_of_its_own_is_drawn_as_dates(over):
    data = xr.DataArray(waves(24, 5), dims=["time", "lat"], name="t")
    data["time"] = xr.date_range("2000-01-30", periods=24, freq="MS", calendar="360_day", use_cftime=True)
    plan = make_layout(dataset_variable(data.to_dataset(), "t", "here"), over=over)
    figure = draw_grid(plan, data.values, np.isnan(data.values).astype(float))
    figure.canvas.draw()
    axis = figure.axes[0].xaxis if len(over) == 1 else figure.axes[0].yaxis
    texts = [label.get_text() for label in axis.get_ticklabels()]
    assert "2000-02-01" in texts
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", text) for text in texts)
