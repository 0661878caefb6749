"""Fields and arrays with gaps: NetCDF, Zarr, NumPy; of any size, in memory or in blocks."""
