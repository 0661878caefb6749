"""Series: rows ordered by a time or a number."""
