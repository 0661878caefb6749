"""Typed tables: columns with their kinds, the original text and row numbers, from CSV, Parquet and data frames."""
