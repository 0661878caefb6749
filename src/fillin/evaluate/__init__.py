"""How good a model is: likelihood beside the limit, error, calibration, on tasks that nobody has seen.

>>> import fillin
>>> from fillin.data import curves
>>> scores = evaluate(fillin.create("cnp", size="small"), curves("rbf", batch=2), batches=2, settings=8)
>>> scores.tasks, sorted(scores.coverage)[:3]
(4, ['10', '15', '20'])
"""

from fillin.evaluate.report import Row, Setting, measure, settings, subject
from fillin.evaluate.scores import Likelihood, Scores, evaluate

__all__ = ["Likelihood", "Row", "Scores", "Setting", "evaluate", "measure", "settings", "subject"]
