"""Filling of tables without an order: missing cells from the other cells of their row, and from similar rows."""
