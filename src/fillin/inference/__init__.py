"""Predict from a pretrained process: which observations a query sees, sample paths, length scales, fine-tuning."""
