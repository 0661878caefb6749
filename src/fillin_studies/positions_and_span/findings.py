"""What came out, in sentences."""

from itertools import pairwise
from typing import Any

from fillin_studies.positions_and_span.costs import BIAS, FULL, KERNEL
from fillin_studies.positions_and_span.results import SURE, Comparison, Group, Key, compared
from fillin_studies.positions_and_span.variants import CUT, INIT, PENALTIES, SINUSOID, SIREN

WANTED = {32: (3, 10), 64: (8, 50)}  # times as fast as full attention in torch, and as the window as a bias


def findings(data: str, groups: dict[Key, Group]) -> list[str]:
    """Of one set of images."""
    best = max(groups.values(), key=Group.mean)
    said = [f"{data}: most often right is **{best.title}**, {_accuracy(best)} of {best.cells[0]['images']:,} images."]
    each = compared(groups)
    said += _positions(data, each) + _windows(data, each)
    if order := _order(data, groups):
        said.append(order)
    if (2, CUT) in groups:
        said += [_spans(data, groups[2, CUT]), *_saved(data, groups[2, CUT])]
        said += [_penalty(data, groups[2, CUT], groups[2, name]) for name in PENALTIES if (2, name) in groups]
        said += _narrow(groups[2, CUT])
    return said


def _accuracy(group: Group) -> str:
    spread = f" ± {100 * group.deviation:.1f}" if len(group.cells) > 1 else ""
    return f"{100 * group.mean():.1f}{spread} %"


def _word(test: Comparison) -> str:
    p = "" if test.p is None else f", p = {test.p:.3f}"
    return f"{_accuracy(test.one)} against {_accuracy(test.other)}, {signed(test.points)} points{p}"


def signed(number: float) -> str:
    return f"{number:+.1f}".replace("-", "−")


def _positions(data: str, each: list[Comparison]) -> list[str]:
    found = [test for test in each if (test.one.name, test.other.name) == (SIREN, SINUSOID)]
    words = [f"in {test.one.dims}-D {_word(test)} ({test.verdict})" for test in found]
    return [f"{data}: SIREN against sinusoids, {'; '.join(words)}."] if words else []


def _windows(data: str, each: list[Comparison]) -> list[str]:
    """All other hypotheses: those of which p decides are named, the rest counted."""
    others = [test for test in each if test.other.name != SINUSOID and test.p is not None]
    if not others:
        return []
    sure = [test for test in others if test.verdict in ("higher", "lower")]
    words = [f"{test.one.title} is {test.verdict} than {test.other.title} ({_word(test)})" for test in sure]
    said = [f"{data}: of {len(others)} other hypotheses, p is below {SURE} or above {1 - SURE} of {len(sure)}"]
    return [f"{said[0]}{': ' + '; '.join(words) if words else ''}."]


def _order(data: str, groups: dict[Key, Group]) -> str | None:
    keys = ((2, CUT), (2, SIREN), (1, SIREN))
    if any(key not in groups for key in keys):
        return None
    window, plane, row = (groups[key] for key in keys)
    holds = window.mean() >= plane.mean() >= row.mean()
    return (
        f"{data}: that 2-D with a window is no worse than 2-D without, and that no worse than 1-D, "
        f"{'holds' if holds else 'does **not** hold'} in the mean: {_accuracy(window)}, {_accuracy(plane)}, "
        f"{_accuracy(row)}."
    )


def _spans(data: str, group: Group) -> str:
    sigmas, shares = group.sigmas or [], group.shares
    each = ", ".join(f"{s:.2f} ({100 * share:.0f} %)" for s, share in zip(sigmas, shares, strict=True))
    grows = all(a <= b for a, b in pairwise(sigmas))
    return (
        f"{data}: with a cut in 2-D, σ went from {INIT} to, layer by layer, {each} of an image, in brackets "
        f"the share of pairs that are computed; later layers look {'further' if grows else 'no further'} than earlier "
        f"ones throughout. Of all pairs of all layers {100 * group.mean('pairs'):.0f} % are computed."
    )


def ratio(costs: dict[str, Any], way: str, part: str = "training", what: str = "seconds") -> float | None:
    """How many times as much as the kernel another way takes; None where it was not measured."""
    if way not in costs or not costs[way][part][what] or not costs[KERNEL][part][what]:
        return None
    return costs[way][part][what] / costs[KERNEL][part][what]


def _times(costs: dict[str, Any], way: str) -> str:
    time, inference, memory = (
        ratio(costs, way, *key) for key in (("training", "seconds"), ("inference", "seconds"), ("training", "bytes"))
    )
    less = "" if memory is None else f", memory {memory:.1f}"
    return f"{time:.1f} times the time (inference {inference:.1f}{less})"


def _saved(data: str, group: Group) -> list[str]:
    said = []
    for one in (row for cell in group.cells for row in cell.get("learned", ())):
        mean = ", ".join(f"{100 * share:.0f}" for share in one["shares"])
        said.append(
            f"{data}: at {one['side']} × {one['side']} pixels the windows that were learned keep {mean} % of pairs, "
            f"layer by layer; of the kernel's, a step with full attention in torch takes {_times(one['costs'], FULL)}, "
            f"with the window as a bias {_times(one['costs'], BIAS)}."
        )
    return said


def _penalty(data: str, plain: Group, penalised: Group) -> str:
    rows = [[row for cell in group.cells for row in cell.get("learned", ())] for group in (plain, penalised)]
    faster = ""
    if all(rows):
        side, times = rows[0][-1]["side"], [1000 * each[-1]["costs"][KERNEL]["training"]["seconds"] for each in rows]
        faster = f"; a step on {side} × {side} pixels from {times[0]:.0f} to {times[1]:.0f} ms"
    return (
        f"{data}: a penalty of {PENALTIES[penalised.name]:g} on the span takes the pairs that are computed from "
        f"{100 * plain.mean('pairs'):.0f} to {100 * penalised.mean('pairs'):.0f} %, accuracy from {_accuracy(plain)} "
        f"to {_accuracy(penalised)}{faster}."
    )


def _narrow(group: Group) -> list[str]:
    said = []
    for one in (row for cell in group.cells for row in cell.get("narrow", ())):
        full, bias = (ratio(one["costs"], way) for way in (FULL, BIAS))
        wanted = WANTED.get(one["side"])
        held = wanted and (full or 0) >= wanted[0] and (bias is None or bias >= wanted[1])
        goal = f" ({wanted[0]} and {wanted[1]} were asked for: {'held' if held else 'not held'})" if wanted else ""
        than = "" if bias is None else f" and {bias:.0f} times as fast as the window as a bias"
        said.append(
            f"Windows that keep {100 * one['share']:.1f} % of pairs, {one['side']} × {one['side']} pixels, "
            f"{one['positions']}: a step of training is {full:.1f} times as fast as with full attention in torch"
            f"{than}{goal}."
        )
    return said
