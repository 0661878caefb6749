"""`fillin bench`: time and memory on this machine."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fillin.cli import add_command
from fillin.cli.options import check_writable, console, describe_results, positive, write_json

EXAMPLES = """\
  fillin bench models                     time and memory of every model
  fillin bench models cnp tnp-d te-tnp    only these models
  fillin bench models --peers             against released code of the same size
  fillin bench scores                     cost of translation equivariance, score by score
  fillin bench speed                      steps, fills and the kernel against the plain path
  fillin bench fill                       time and memory of the command fillin fill on files of four sizes
  fillin bench train                      overhead of the training loop
  fillin bench span                       savings of a learned window, from 1 k to 64 k points
"""
_MODELS = """\
  fillin bench models --threads 2 --repeats 20
  fillin bench models te-tnp --json te-tnp.json
  fillin bench models --peers --json - | jq '.rows[].ratio'

Time is the minimum of --repeats rounds, in each of which every model runs once. A yardstick is forward + backward of
torch.nn.TransformerEncoder (6 layers, width 64, 4 heads, feed-forward 128) on 16×96 tokens, timed in the same rounds.
"""
_TRAIN = """\
  fillin bench train
  fillin bench train te-tnp cnp --steps 1000
"""
_SPAN = """\
  fillin bench span                          all parts, on an idle machine
  fillin bench span --quick                  quick, low precision
  fillin bench span growth --out figures     time and memory against the number of points, and a figure
  fillin bench span --json span.json

The parts: table (windows of 1, 5 and 20 % of an interval, square or cube, against PyTorch without a window, with it as
a bias and in fixed independent blocks, and against the reference), growth (from 1 k to 64 k points), models (te-tnp
against tnp-d), function (F(Δ) from a table), large (te-tnp on 10,000 context points and 100,000 targets), crossover
(number of pairs from which the kernel is the fastest).
The first table compares the results with the requirements of the kernel.
"""
_SPEED = """\
  fillin bench speed
  fillin bench speed --repeats 10 --json speed.json

Each case runs on one thread and on two. The plain path is attention by backend="reference", which stores every pair,
and products of matrices by the library that PyTorch chooses.
"""
_FILL = """\
  fillin bench fill                        all cases, on an idle machine
  fillin bench fill series columns         only these
  fillin bench fill --quick                small files: checks that everything runs
  fillin bench fill --json fills.json

The cases: series (500 rows), columns (1,000 rows of 12), long (100,000 rows of 5), field (24 times of 200 × 300 cells).
A fifth of the cells is missing: at random, in the field under clouds. Each run is a process of its own. Seconds are
those of the whole command; memory is the peak of its process.
"""
_SCORES = """\
  fillin bench scores
  fillin bench scores --all --json scores.json
"""


def add_arguments(bench: argparse.ArgumentParser) -> None:
    kinds = bench.add_subparsers(metavar="BENCHMARK", title="benchmarks")

    models = add_command(kinds, "models", "time and memory of a training step of every model", _MODELS)
    models.add_argument("names", nargs="*", metavar="NAME", help="only these models (tnp-d is always measured)")
    models.add_argument("--peers", action="store_true", help="compare with released code, at the size of each")
    models.set_defaults(run=_models)

    scores = add_command(kinds, "scores", "time, memory and accuracy of every score of te-tnp", _SCORES)
    scores.add_argument("--all", action="store_true", help="include the joint score, which is slow")
    scores.set_defaults(run=_scores)

    speed = add_command(kinds, "speed", "steps, fills and the kernel against the plain path", _SPEED)
    speed.set_defaults(run=_speed)

    fill = add_command(kinds, "fill", "time and memory of the command fillin fill on files of four sizes", _FILL)
    fill.add_argument("names", nargs="*", metavar="CASE", help="only these: series, columns, long, field")
    fill.add_argument("--quick", action="store_true", help="small files: checks that everything runs")
    fill.set_defaults(run=_fill)

    train = add_command(kinds, "train", "overhead of the training loop over forward + backward + optimiser", _TRAIN)
    train.add_argument("names", nargs="*", metavar="NAME", help="models (default: te-tnp, tnp-d and cnp)")
    train.add_argument("--steps", type=positive, default=500, metavar="N", help="steps a round (default: 500)")
    train.set_defaults(run=_train)

    span = add_command(kinds, "span", "time and memory that a learned window saves", _SPAN)
    span.add_argument("parts", nargs="*", metavar="PART", help="only these: table, growth, models, function, …")
    span.add_argument("--quick", action="store_true", help="few points and one round: quick, low precision")
    span.add_argument("--out", metavar="DIR", help="draw time and memory against the number of points: DIR/span.png")
    span.set_defaults(run=_span)

    for command, threads, repeats in (
        (models, 1, 10),
        (scores, 1, 3),
        (speed, None, 5),
        (fill, 2, 1),
        (train, 1, 3),
        (span, 2, None),
    ):
        optional: dict[str, Any] = {"nargs": "?", "const": "-"} if command is scores else {}
        command.add_argument(
            "--json", metavar="FILE", help="also write the results to FILE; - prints them instead of tables", **optional
        )
        if threads is not None:
            command.add_argument(
                "--threads", type=positive, default=threads, metavar="N", help=f"threads (default: {threads})"
            )
        help = f"rounds to take the minimum over (default: {repeats or '3, or 1 with --quick'})"
        command.add_argument("--repeats", "--rounds", type=positive, default=repeats, metavar="K", help=help)
        command.add_argument("--seed", type=int, default=0, help="seed of weights and data (default: 0)")


def _models(arguments: argparse.Namespace) -> None:
    from fillin.measure import count_ticks
    from fillin_studies.bench.models import measure_models, select_models, step_sizes

    if arguments.peers:
        _peers(arguments)
        return
    names, sizes = select_models(arguments.names), step_sizes(arguments.repeats)
    total = sum(count_ticks(len(names) + 1, size.rounds) for size in sizes)
    budget = {"batch": sizes[0].batch, "rounds": {size.label: size.rounds for size in sizes}}
    _report(
        arguments, "models", lambda tick: measure_models(names, sizes, seed=arguments.seed, tick=tick), total, budget
    )


def _peers(arguments: argparse.Namespace) -> None:
    from fillin.measure import count_ticks
    from fillin_studies.bench.models import PEER_SIZE, measure_peers, select_peers

    peers, size = select_peers(arguments.names), replace(PEER_SIZE, rounds=arguments.repeats)
    total, budget = count_ticks(len(peers) + 1, size.rounds), {"batch": size.batch, "rounds": {size.label: size.rounds}}
    _report(arguments, "peers", lambda tick: measure_peers(peers, size, seed=arguments.seed, tick=tick), total, budget)


def _scores(arguments: argparse.Namespace) -> None:
    from fillin.measure import count_ticks
    from fillin_studies.bench.models import SCORE_SIZE, measure_scores, select_scores

    scores, size = select_scores(arguments.all), replace(SCORE_SIZE, rounds=arguments.repeats)
    total = count_ticks(len(scores) + 2, size.rounds)
    budget = {"batch": size.batch, "rounds": {size.label: size.rounds}}
    _report(
        arguments, "scores", lambda tick: measure_scores(scores, size, seed=arguments.seed, tick=tick), total, budget
    )


def _speed(arguments: argparse.Namespace) -> None:
    from fillin.measure import measure_other_load
    from fillin_studies.bench.speed import THREADS, count_ticks, list_cases, measure_speed

    arguments.threads = max(THREADS)
    budget: dict[str, Any] = {"rounds": arguments.repeats}

    def measure(tick: Callable[[], None]) -> list[dict[str, Any]]:
        rows, budget["other_load"] = measure_other_load(lambda: measure_speed(arguments.repeats, arguments.seed, tick))
        return rows

    _report(arguments, "speed", measure, count_ticks(list_cases()), budget)


def _fill(arguments: argparse.Namespace) -> None:
    from fillin.measure import measure_other_load
    from fillin_studies.bench.fills import measure_fills, select_cases

    cases, rounds = select_cases(arguments.names, arguments.quick), arguments.repeats
    budget: dict[str, Any] = {"rounds": rounds, "quick": arguments.quick}

    def measure(tick: Callable[[], None]) -> list[dict[str, Any]]:
        rows, budget["other_load"] = measure_other_load(
            lambda: measure_fills(cases, arguments.threads, rounds, arguments.seed, tick)
        )
        return rows

    _report(arguments, "fill", measure, len(cases) * rounds, budget)


def _train(arguments: argparse.Namespace) -> None:
    from fillin.errors import choose
    from fillin.models import REGISTRY
    from fillin_studies.bench.models import measure_training

    names = [choose("model", name, REGISTRY) for name in arguments.names or ("te-tnp", "tnp-d", "cnp")]
    budget = {"steps": arguments.steps, "rounds": arguments.repeats}

    def measure(tick):
        return measure_training(names, arguments.steps, arguments.repeats, arguments.seed, tick)

    _report(arguments, "train", measure, 2 * len(names) * arguments.repeats, budget)


def _span(arguments: argparse.Namespace) -> None:
    from fillin.attention.kernel import load_library
    from fillin.errors import choose
    from fillin_studies.bench import span

    parts = [choose("part", part, span.PARTS) for part in arguments.parts] or span.PARTS
    rounds = arguments.repeats or (1 if arguments.quick else 3)
    plan = replace(span.QUICK if arguments.quick else span.FULL, rounds=rounds)
    plan = replace(plan, models=replace(plan.models, rounds=rounds))
    if arguments.out:
        check_writable(str(Path(arguments.out) / "span.png"), "--out")
    parts_content: dict[str, Any] = {}

    def measure(tick):
        results = span.measure_span(plan, parts, arguments.seed, tick)
        parts_content.update(span.describe_parts(results))
        return results["table"]

    library = load_library()
    lanes = None if library is None else library.fillin_lanes()  # numbers in a vector of the kernel that is measured
    budget = {"lanes": lanes, "batch": 1, "rounds": rounds, "turn": plan.min_seconds}
    content = _report(arguments, "span", measure, span.count_span_ticks(plan, parts), budget, parts_content)
    if arguments.out and (content["growth"] or content["rows"]):
        from fillin_studies.bench.results_pages import draw_span

        path = draw_span(content, Path(arguments.out))
        if arguments.json != "-":
            console().print(f"figure: {path}", highlight=False, soft_wrap=True)


def _report(
    arguments: argparse.Namespace, benchmark: str, measure: Callable, total: int, budget: dict[str, Any],
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Measure with a progress bar; print tables, write a JSON file, or both; return the content of the file."""
    from fillin.runtime import progress, threads
    from fillin_studies.bench.tables import make_tables

    if arguments.json:
        check_writable(arguments.json)
    with threads(arguments.threads), progress(f"bench {benchmark}", total) as tick:
        rows = measure(tick)
    budget = {"threads": arguments.threads, **budget}
    content = describe_results(benchmark, rows, arguments.command_line, arguments.seed, budget) | (extra or {})
    if arguments.json != "-":
        out = console()
        for table in make_tables(content):
            out.print(table.to_rich())
    if arguments.json:
        write_json(content, arguments.json)
    return content
