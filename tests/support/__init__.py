"""Data, fixtures and commands that several tests share."""
