"""Ways to compute one and the same operation. `reference` is the truth; the others are held to it.

A back end is a module with `run(problem) -> Result`; `unfit(problem)` says why it cannot take a problem, or None.
"""

from fillin.attention.backends import flex, fused, native, reference, streamed

BACKENDS = {"reference": reference, "fused": fused, "streamed": streamed, "native": native, "flex": flex}
