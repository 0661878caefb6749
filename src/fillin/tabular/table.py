"""A table: its schema, and its values as numbers, NaN where they are missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.tabular.reading import read
from fillin.tabular.schema import Schema, infer


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """
    >>> table = Table.of(np.array([[1.0, np.nan], [2.0, 5.0]]))
    >>> table, table.known.tolist()
    (Table of 2 rows: x0 (number), x1 (number), [[True, False], [True, True]])
    """

    schema: Schema
    values: Float[ndarray, "n d"]

    def __post_init__(self):
        d = len(self.schema.columns)
        if self.values.ndim != 2 or self.values.shape[1] != d:
            raise InputError(
                f"values have shape {self.values.shape}, expected [rows {d}], a column for each of the schema; "
                "Table.of(data, schema=schema) makes them"
            )

    @classmethod
    def of(cls, data: Any, kinds: Mapping[str, str] | None = None, schema: Schema | None = None) -> "Table":
        """From a frame or an array; the schema is learnt from it (with `kinds`, see `Schema.infer`), or given."""
        if schema is not None:
            if kinds is not None:
                raise InputError("kinds are for a schema that is learnt: give either kinds or schema")
            return cls(schema, schema.encode(data))
        found = infer(read(data), kinds)
        return cls(Schema(tuple(column for column, _ in found)), np.stack([values for _, values in found], axis=1))

    @property
    def known(self) -> Bool[ndarray, "n d"]:
        return ~np.isnan(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} ({column.kind})" for column in self.schema.columns[:8])
        return f"Table of {len(self)} rows: {columns}{', …' if len(self.schema.columns) > 8 else ''}"
