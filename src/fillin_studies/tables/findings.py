"""Where ours is first and where not, in sentences."""

from fillin_studies.tables.methods import ALONE, OURS
from fillin_studies.tables.ranks import ACCURACY, COVERED, RANKED, SECONDS, Measure, Results

HONEST = (0.92, 0.97)  # what 95 % intervals should hold


def findings(boards: dict[str, Results]) -> list[str]:
    said = []
    for name, each in boards.items():
        if OURS in each.methods:
            said += [f"{name}, {measure.title}: {_place(each, measure)}" for measure in RANKED[each.group]]
            said += [_honest(each)] if name == "regression" else []
            said += [_with_rows(each)] if ALONE in each.methods else []
            said += [_time(name, each)] if name == each.group else []
    return [line[0].upper() + line[1:] for line in said]


def _place(each: Results, measure: Measure) -> str:
    """Its rank among all, then set by set."""
    ranks = each.ranks(measure)
    ours = ranks[OURS]
    ahead = [name for name, mean in ranks.items() if mean.value < ours.value]
    others = {name: mean for name, mean in ranks.items() if name not in (OURS, ALONE)}
    best = min(others, key=lambda name: others[name].value) if others else None
    place = "first" if not ahead else f"behind {', '.join(ahead)}"
    beside = f"; {best} has {others[best].value:.2f} ± {others[best].error:.2f}" if best else ""
    return (
        f"{OURS} has an average rank of {ours.value:.2f} ± {ours.error:.2f} of {len(ranks)} over "
        f"{_count(len(each.of), 'set')}, {place}{beside}. {_by_set(each, measure)}"
    )


def _by_set(each: Results, measure: Measure) -> str:
    first, near, behind = [], [], []
    for data in each.of:
        best = each.best(data, measure, each.methods)
        by = each.behind(data, OURS, best, measure)
        ours, other = (each.mean(data, name, measure).value for name in (OURS, best))
        if best == OURS:
            first.append(data)
        elif by.value <= by.error:
            near.append(data)
        else:
            behind.append(f"{data} ({ours:.{measure.digits}f}, {best} {other:.{measure.digits}f})")
    parts = [("First on", first), ("within a standard error of the first on", near), ("behind on", behind)]
    words = "; ".join(f"{words} {', '.join(names)}" for words, names in parts if names)
    return words[0].upper() + words[1:] + "."


def _honest(each: Results) -> str:
    shares = {data: each.mean(data, OURS, COVERED).value for data in each.of}
    outside = [f"{data} {share:.1%}" for data, share in shares.items() if not HONEST[0] <= share <= HONEST[1]]
    words = f"The 95 % intervals of {OURS} hold 92–97 % of the values on {len(shares) - len(outside)} of "
    return words + _count(len(shares), "set") + (f"; not on {', '.join(outside)}." if outside else ".")


def _with_rows(each: Results) -> str:
    both = [(data, *(each.mean(data, name, ACCURACY).value for name in (OURS, ALONE))) for data in each.of]
    parts = [f"{data} {ours:.3f} with rows without a label, {alone:.3f} without them" for data, ours, alone in both]
    return f"what rows without a label are worth, in accuracy: {'; '.join(parts)}."


def _time(name: str, each: Results) -> str:
    def longest(method: str) -> float:
        return max(each.mean(data, method, SECONDS).value for data in each.of)

    rivals = [method for method in each.methods if method not in (OURS, ALONE)]
    slow = max(rivals, key=longest) if rivals else None
    beside = f"; the slowest other, {slow}, {longest(slow):.1f}" if slow else ""
    return f"{name}, time: {OURS} takes up to {longest(OURS):.1f} seconds a split{beside}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
