"""Networks whose attention between rows begins narrow.

From places that begin close to one another a row looks at all rows alike. Where N are looked at, the one that knows has
a share of 1/N in what is said, and so little that is learnt leads to it; where few are, it does.
"""

import torch

from fillin.tables.fitted import Fitted
from fillin.tables.training import Plan


def learn(begun: Fitted, start: float, seed: int, steps: int) -> Fitted:
    """The rows of `begun` learnt anew, in the same way, by networks whose places begin `start` times as far apart."""

    class Narrow(Fitted):
        def __init__(self, *parts):
            super().__init__(*parts)
            with torch.no_grad():
                self.net.place.weight.mul_(start)

    rows = begun.question, begun.reads, begun.tells
    return Narrow.learn(*rows, "standard", seed, Plan(steps=steps), begun.net_options, lambda _: None)
