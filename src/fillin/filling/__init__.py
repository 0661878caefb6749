"""Filling what is missing: points that are known, and what a pretrained model says of the others."""
