"""The choice of a back end. Every threshold of `backend="auto"` is here."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import torch

from fillin.attention.backends import BACKENDS
from fillin.attention.backends.fused import fold_terms, is_dot_product
from fillin.attention.backends.native import has_closed_form, needs_location_gradient
from fillin.attention.displacement import DisplacementScore
from fillin.attention.problem import AttentionProblem, AttentionResult
from fillin.attention.scores import Score, Sum
from fillin.attention.tabulate import TabulatedScore, find_grid_step, largest_displacement, tabulate_scores
from fillin.errors import InputError, choose
from fillin.runtime import read_vendor

# Storing the logits of all pairs for the backward pass is fastest up to this number (`fillin bench scores`). Hidden
# units of a score may be four times as many. Above it, chunks are recomputed.
MAX_STORED_LOGITS = 1 << 21

# Logits from which on the native kernel is fastest with a window that drops most pairs: it pays at once.
MIN_NATIVE_LOGITS_WITH_WINDOW = 1 << 14


class Crossover(NamedTuple):
    """Logits from which on the native kernel is fastest without a window. It then visits all pairs, and pays where its
    table of F(Δ) is small beside them: early in one dimension, late in more, and never for a score that is cheap on
    every pair."""

    one_dimension: int
    more_dimensions: int


# By the maker of the processor, as `fillin bench span crossover --threads 1` measured it on one of each; the higher of
# both elsewhere. A table, and not measured at the first call, so that equal machines compute equal bytes.
CROSSOVERS = {"GenuineIntel": Crossover(1 << 16, 1 << 22), "AuthenticAMD": Crossover(1 << 16, 1 << 24)}

# The kernel packs all keys before it scores the first query. Without a window that pays from this many queries on, with
# 8 and with 16 lanes (`fillin bench span crossover`); fewer, as in sampling target by target, take the plain path.
MIN_QUERIES_FOR_PACKING = 8

MIN_PAIRS_PER_NODE = 4  # from which on a table is faster than the score on every pair


def find_crossover(vendor: str | None) -> Crossover:
    """Return the crossover of processors of a maker."""
    return CROSSOVERS.get(vendor or "", Crossover(*map(max, *CROSSOVERS.values())))


CROSSOVER = find_crossover(read_vendor())


def check_backend(name: str, problem: AttentionProblem, want: Collection[str]) -> None:
    """Raise an error where the named back end cannot solve the problem, or does not provide a requested result."""
    backend = BACKENDS[choose("backend", name, BACKENDS)]
    reason = backend.unfit(problem)
    if reason:
        raise InputError(f"attend: backend {name!r} cannot solve this problem: {reason}; use backend='auto'")
    missing = [result for result in want if result not in backend.provides]
    if missing:
        raise InputError(f"attend: backend {name!r} does not return {' and '.join(missing)}; use backend='auto'")


def solve(problem: AttentionProblem, want: Collection[str], backend: str = "auto") -> AttentionResult:
    """Run the named back end, or the one that `choose_backend` selects. Only the reference returns weights."""
    if problem.n == 0 or problem.m == 0:
        (b, h, m, e), n, v = problem.v.shape, problem.n, problem.v
        return AttentionResult(v.new_zeros(b, h, n, e), v.new_full((b, h, n), -torch.inf), v.new_zeros(b, h, n, m))
    if "weights" in want:
        backend = "reference"
    elif backend == "auto":
        backend, problem = choose_backend(problem, want)
    return BACKENDS[backend].run(problem, want)


def choose_backend(p: AttentionProblem, want: Collection[str] = ()) -> tuple[str, AttentionProblem]:
    """Select the fastest back end; return its name and the problem, prepared for it.

    A score that folds completely goes to "fused". A score with closed forms and many pairs go to "native" (on a GPU to
    "flex"), and what those do not take goes to "reference" where the pairs can be stored, otherwise to "streamed".
    """
    if p.chunk is not None:
        return "streamed", p
    fused, native, flex = BACKENDS["fused"], BACKENDS["native"], BACKENDS["flex"]
    may_fold = p.span is None and all(type(term).fold is not Score.fold for term in p.score.terms)
    if may_fold and all(result in fused.provides for result in want) and fused.unfit(p) is None:
        folded = None if is_dot_product(p) else fold_terms(p)
        if folded is None or None not in folded:
            return "fused", replace(p, folded=folded)
    drops_pairs = p.span is not None and p.span.threshold > 0
    if p.span is None and p.n >= MIN_QUERIES_FOR_PACKING and has_closed_form(p) and native.unfit(p) is None:
        return "native", p
    min_logits = MIN_NATIVE_LOGITS_WITH_WINDOW if drops_pairs else _min_native_logits(p)
    if p.n_logits >= min_logits and native.unfit(p) is None and not needs_location_gradient(p):
        return "native", p
    if drops_pairs and p.v.is_cuda and flex.unfit(p) is None:
        return "flex", p
    p = tabulate_terms(p)
    stored = p.n_logits <= MAX_STORED_LOGITS and p.n_stored <= 4 * MAX_STORED_LOGITS
    return "reference" if stored else "streamed", p


def _min_native_logits(p: AttentionProblem) -> float:
    """Number of logits from which on the native kernel is the fastest where no window drops pairs."""
    traits = [term.traits for term in p.score.terms if term.traits.displacement]
    if p.xq is not None and p.xk is not None and any(t.gridded for t in traits):
        on_grid = p.shared_locations and find_grid_step(p.xq, p.xk) is not None
        return CROSSOVER.one_dimension if on_grid else math.inf
    if p.xq is None or p.xq.shape[-1] == 1 or all(t.radial for t in traits):
        return CROSSOVER.one_dimension
    return CROSSOVER.more_dimensions if all(t.costly for t in traits) else math.inf


def tabulate_terms(p: AttentionProblem) -> AttentionProblem:
    """Replace every costly score of Δ by a table of it, where that is faster. Locations that receive a gradient keep
    the exact score, since a table has no gradient to Δ. So does float64."""
    xq, xk = p.xq, p.xk
    if xq is None or xk is None or xq.requires_grad or xk.requires_grad:
        return p
    if p.v.dtype != torch.float32 or torch.compiler.is_compiling():
        return p
    max_nodes = len(xq) * xq.shape[1] * xk.shape[1] / MIN_PAIRS_PER_NODE

    terms = list(p.score.terms)
    for i, score in enumerate(terms):
        if isinstance(score, DisplacementScore) and score.traits.costly and not score.traits.content and score.dim <= 2:
            table = tabulate_scores([score], score.heads, largest_displacement(xq, xk), max_nodes, p.tolerance)
            terms[i] = score if table is None else TabulatedScore(table)
    if all(new is old for new, old in zip(terms, p.score.terms, strict=True)):
        return p
    return replace(p, score=terms[0] if len(terms) == 1 else Sum(*terms))
