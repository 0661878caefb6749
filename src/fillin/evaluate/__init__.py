"""Evaluation of trained models on unseen tasks: likelihood beside its limit, error and calibration.

>>> import fillin
>>> from fillin.data import curves
>>> scores = evaluate(fillin.create("cnp", size="small"), curves("rbf", batch=2), batches=2, limit_samples=8)
>>> scores.tasks, sorted(scores.coverage)[:3]
(4, ['10', '15', '20'])
"""

from fillin.evaluate.scores import Likelihood, Scores, evaluate

__all__ = ["Likelihood", "Scores", "evaluate"]
