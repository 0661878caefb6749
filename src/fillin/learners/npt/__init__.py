"""A non-parametric transformer (Kossen et al. 2021) that is trained on one table."""

from fillin.learners.npt.learner import NPTFitted

__all__ = ["NPTFitted"]
