"""Typed tables: columns with their kinds, the original text and row numbers, from CSV, Parquet and data frames.

Three classes describe a column:

- `TypedColumn` (`table.py`) is a column of a file or frame to fill: values, missing cells and the original text, which
  is written back.
- `SourceColumn` (`source.py`) is a column of the input of an estimator: its cells as given, before a kind is chosen.
- `Column` (`schema.py`) is a column of a schema: a name, a kind and levels, no values. An estimator infers it at `fit`
  and encodes new rows with it.
"""
