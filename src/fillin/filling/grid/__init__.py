"""Gridded fields and arrays with missing cells: NetCDF, Zarr, xarray, NumPy; of any size, in memory or in blocks."""
