"""`fillin bench`: what things cost on this machine."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fillin.cli.options import console, describe, positive

_EXAMPLES = """\
  fillin bench models                     every model, in time and memory
  fillin bench models cnp tnp-d te-tnp    only these
  fillin bench models --peers             ours beside released code of the same size
  fillin bench scores                     what translation equivariance costs, score by score
  fillin bench train                      what the training loop adds to a step
  fillin bench span                       what a learned window saves, from 1 k to 64 k points
"""
_MODELS = """\
  fillin bench models --threads 2 --repeats 20
  fillin bench models te-tnp --json te-tnp.json
  fillin bench models --peers --json - | jq '.rows[].ratio'

Time is the least of --repeats rounds, in each of which every model runs once. A yardstick is forward + backward of
torch.nn.TransformerEncoder (6 layers, width 64, 4 heads, feed-forward 128) on 16×96 tokens, timed in the same rounds.
"""
_TRAIN = """\
  fillin bench train
  fillin bench train te-tnp cnp --steps 1000
"""
_SPAN = """\
  fillin bench span                          everything; leave the machine alone meanwhile
  fillin bench span --quick                  a first impression
  fillin bench span growth --out pictures    time and memory against the number of points, and a picture
  fillin bench span --json span.json

The parts: table (1, 5 and 20 % of a square, cube or interval, against torch and the reference), growth (from 1 k to
64 k points), models (te-tnp against tnp-d), function (F(Δ) from a table), large (a te-tnp on 10,000 context points and
100,000 targets), crossover (where the kernel begins to pay).
Beside what is measured stands what was asked of the kernel.
"""
_SCORES = """\
  fillin bench scores
  fillin bench scores --all --json scores.json
"""


def add(commands) -> None:
    bench = describe(commands, "bench", "measure time and memory on this machine", _EXAMPLES)
    kinds = bench.add_subparsers(metavar="WHAT", title="what to measure")

    models = describe(kinds, "models", "time and memory of a training step of every model", _MODELS)
    models.add_argument("names", nargs="*", metavar="NAME", help="only these models (tnp-d is always measured)")
    models.add_argument("--peers", action="store_true", help="compare with released code, at the size of each")
    models.add_argument("--json", metavar="FILE", help="write the figures to FILE too; - prints them, without a table")
    models.set_defaults(run=_models)

    scores = describe(kinds, "scores", "time, memory and accuracy of every score of te-tnp", _SCORES)
    scores.add_argument("--all", action="store_true", help="the joint score too, which takes long")
    scores.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or instead of a table"
    )
    scores.set_defaults(run=_scores)

    train = describe(kinds, "train", "what the training loop adds to forward + backward + optimiser", _TRAIN)
    train.add_argument("names", nargs="*", metavar="NAME", help="these models (te-tnp, tnp-d and cnp)")
    train.add_argument("--steps", type=positive, default=500, metavar="N", help="steps a round (default: 500)")
    train.add_argument("--json", metavar="FILE", help="write the figures to FILE too; - prints them, without a table")
    train.set_defaults(run=_train)

    span = describe(kinds, "span", "what a learned window saves, in time and memory", _SPAN)
    span.add_argument("parts", nargs="*", metavar="PART", help="only these: table, growth, models, function, …")
    span.add_argument("--quick", action="store_true", help="few points and one round: an impression")
    span.add_argument("--json", metavar="FILE", help="write the figures to FILE too; - prints them, without tables")
    span.add_argument("--out", metavar="DIR", help="draw time and memory against the number of points: DIR/span.png")
    span.set_defaults(run=_span)

    for command, threads, repeats in ((models, 1, 10), (scores, 1, 3), (train, 1, 3), (span, 2, None)):
        command.add_argument(
            "--threads", type=positive, default=threads, metavar="N", help=f"threads (default: {threads})"
        )
        help = f"rounds to take the least of ({repeats or '3, or 1 where it is to be quick'})"
        command.add_argument("--repeats", "--rounds", type=positive, default=repeats, metavar="K", help=help)
        command.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")


def _models(arguments: argparse.Namespace) -> None:
    from fillin.measure import ticks
    from fillin_studies.bench.models import chosen, measure_models, sizes
    from fillin_studies.bench.rich_tables import models_table

    if arguments.peers:
        _peers(arguments)
        return
    names, at = chosen(arguments.names), sizes(arguments.repeats)
    total = sum(ticks(len(names) + 1, size.rounds) for size in at)
    budget = {"batch": at[0].batch, "rounds": {size.label: size.rounds for size in at}}

    def measure(tick):
        return measure_models(names, at, seed=arguments.seed, tick=tick)

    _report(arguments, "models", measure, models_table, total, budget)


def _peers(arguments: argparse.Namespace) -> None:
    from fillin.measure import ticks
    from fillin_studies.bench.peers import AT, measure_peers, peers_of
    from fillin_studies.bench.rich_tables import peers_table

    peers, at = peers_of(arguments.names), replace(AT, rounds=arguments.repeats)
    budget = {"batch": at.batch, "rounds": {at.label: at.rounds}}

    def measure(tick):
        return measure_peers(peers, at, seed=arguments.seed, tick=tick)

    _report(arguments, "peers", measure, peers_table, ticks(len(peers) + 1, at.rounds), budget)


def _scores(arguments: argparse.Namespace) -> None:
    from fillin.measure import ticks
    from fillin_studies.bench.rich_tables import scores_table
    from fillin_studies.bench.scores import AT, measure_scores, names

    wanted, at = names(arguments.all), replace(AT, rounds=arguments.repeats)
    total = ticks(len(wanted) + 2, at.rounds)

    def measure(tick):
        return measure_scores(wanted, at, seed=arguments.seed, tick=tick)

    budget = {"batch": at.batch, "rounds": {at.label: at.rounds}}
    _report(arguments, "scores", measure, scores_table, total, budget)


def _train(arguments: argparse.Namespace) -> None:
    from fillin.errors import choose
    from fillin.models import REGISTRY
    from fillin_studies.bench.rich_tables import train_table
    from fillin_studies.bench.train import measure_train

    names = [choose("model", name, REGISTRY) for name in arguments.names or ("te-tnp", "tnp-d", "cnp")]
    budget = {"steps": arguments.steps, "rounds": arguments.repeats}

    def measure(tick):
        return measure_train(names, arguments.steps, arguments.repeats, arguments.seed, tick)

    _report(arguments, "train", measure, train_table, 2 * len(names) * arguments.repeats, budget)


def _span(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from fillin.errors import choose
    from fillin.runtime import threads
    from fillin_studies.bench import plan as plans
    from fillin_studies.bench.report import prepare, report, write
    from fillin_studies.bench.rich_tables import progress, sheet_table
    from fillin_studies.bench.span import lanes
    from fillin_studies.bench.span_tables import sheets
    from fillin_studies.bench.targets import content, measure_span, total

    parts = [choose("part", part, plans.PARTS) for part in arguments.parts] or plans.PARTS
    rounds = arguments.repeats or (1 if arguments.quick else 3)
    plan = replace(plans.QUICK if arguments.quick else plans.FULL, rounds=rounds)
    plan = replace(plan, models=replace(plan.models, rounds=rounds))
    if arguments.json:
        prepare(arguments.json)
    if arguments.out:
        prepare(str(Path(arguments.out) / "span.png"), "--out")
    bar = progress("bench span", total(plan, parts), console(stderr=True))
    with threads(arguments.threads), bar as tick:
        found = measure_span(plan, parts, arguments.seed, tick)
    budget = {"threads": arguments.threads, "lanes": lanes(), "batch": 1, "rounds": rounds, "turn": plan.turn}
    full = {**report("span", found.table, arguments.command_line, arguments.seed, budget), **content(found)}
    out = console()
    if arguments.json != "-":
        for sheet in sheets(full):
            out.print(sheet_table(sheet, arguments.threads))
    if arguments.json:
        write(full, arguments.json)
    if arguments.out and (found.growth or found.table):
        from fillin_studies.bench.figure import draw

        path = draw(full, Path(arguments.out))
        if arguments.json != "-":
            out.print(f"picture: {path}", highlight=False, soft_wrap=True)


def _report(
    arguments: argparse.Namespace, what: str, measure: Callable, table: Callable, total: int, budget: dict[str, Any]
) -> None:
    """Measure under a progress bar, then the table, the file, or both."""
    from fillin.runtime import threads
    from fillin_studies.bench.report import prepare, report, write
    from fillin_studies.bench.rich_tables import progress

    if arguments.json:
        prepare(arguments.json)
    with threads(arguments.threads), progress(f"bench {what}", total, console(stderr=True)) as tick:
        rows = measure(tick)
    if arguments.json != "-":
        console().print(table(rows, arguments.threads))
    if arguments.json:
        budget = {"threads": arguments.threads, **budget}
        write(report(what, rows, arguments.command_line, arguments.seed, budget), arguments.json)
