"""Filling of scattered observations: rows with several coordinates, in any order, and maps of them."""
