"""Series: rows ordered by a time, a number or several coordinates."""
