"""A non-parametric transformer (Kossen et al. 2021) trained on one table."""

from fillin.learners.npt.learner import NPTLearner

__all__ = ["NPTLearner"]
