"""`fillin evaluate`: how good a model is, beside how good one could be."""

import argparse

from fillin.cli.options import check_writable, console, describe, describe_results, positive, write_json

_EXAMPLES = """\
  fillin evaluate runs/te-tnp                          a run, on the data of its recipe and on others
  fillin evaluate te-tnp-rbf                           pretrained weights, by name
  fillin evaluate runs/te-tnp --batches 40             sooner, and with larger errors
  fillin evaluate runs/te-tnp --functions sawtooth "rbf * periodic" --shift 100
  fillin evaluate my-model --function matern-5/2       a folder that fillin.save wrote
  fillin evaluate runs/te-tnp --autoregressive         the joint likelihood too, target after target
  fillin evaluate runs/te-tnp --json - | jq '.rows[0].scores.gap'
  fillin evaluate runs/images-te-tnp --batches 20      images completed from parts of them
  fillin evaluate runs/classify-digits                 a classifier: accuracy, calibration, mistakes, spans
  fillin evaluate runs/fewshot-digits                  classes held out, beside the nearest centroid

Settings: the training distribution, the same shifted, other functions, and fixed numbers of context points, on tasks
that neither training nor validation has seen. Pictures go to RUN/evaluation; of a model with learned windows (span=)
one shows those of every layer and head. What completes or names images is asked those for testing of its
recipe, or of --source.
"""


def add(commands) -> None:
    command = describe(
        commands, "evaluate", "score a run or a saved model against the best that is possible", _EXAMPLES
    )
    command.add_argument(
        "folder", metavar="RUN|NAME", help="a run folder, one that fillin.save wrote, or pretrained weights"
    )
    command.add_argument("--function", metavar="F", help="what a saved model learnt from (default: rbf)")
    command.add_argument(
        "--protocol", metavar="P", help="tnp, te-tnp or sawtooth: its places and counts (default: tnp)"
    )
    command.add_argument("--functions", nargs="+", metavar="F", help="others (default: rbf, matern-5/2, periodic)")
    command.add_argument("--shift", type=float, default=4.0, metavar="D", help="how far to move inputs (4; 0: not)")
    command.add_argument("--contexts", nargs="+", type=int, metavar="N", help="numbers of points (default: six)")
    command.add_argument("--batches", type=int, default=160, metavar="N", help="batches of 4 tasks a setting (160)")
    command.add_argument(
        "--limit",
        type=int,
        default=256,
        metavar="N",
        help="hyperparameters that the limit averages over (256; 0: none)",
    )
    command.add_argument("--autoregressive", action="store_true", help="joint likelihood of a marginal model; slow")
    command.add_argument("--source", metavar="DIR", help="other images than the recipe's: digits, a folder, an archive")
    command.add_argument("--seed", type=int, default=0, help="of the tasks (default: 0)")
    command.add_argument("--threads", type=positive, metavar="N", help="threads (default: as many as torch takes)")
    command.add_argument("--json", metavar="FILE", help="write everything to FILE too; - prints it, without a table")
    command.add_argument("--out", metavar="DIR", help="where pictures go (default: RUN/evaluation)")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    import torch

    from fillin.cli.evaluate_images import asked_of, run_on_images
    from fillin.evaluate import measure, settings, subject
    from fillin.runtime import progress, threads

    if (images := asked_of(arguments.folder, arguments.source)) is not None:
        run_on_images(arguments, images, folder_of(arguments))
        return
    about = subject(arguments.folder, arguments.function, arguments.protocol)
    asked = settings(about, arguments.functions, arguments.shift, arguments.contexts)
    folder = folder_of(arguments)
    if arguments.json:
        check_writable(arguments.json)
    stepwise = max(1, arguments.batches // 8) if arguments.autoregressive else 0
    number = arguments.threads or torch.get_num_threads()
    total = len(asked) * max(1, arguments.batches)
    with threads(number), progress("evaluate", total) as tick:
        options = {"settings": arguments.limit, "autoregressive": stepwise, "tick": tick}
        rows = measure(about.model, asked, arguments.batches, arguments.seed, **options)
        from fillin.evaluate.figures import draw  # matplotlib is slow to come, and a mistake ends before it

        pictures = draw(folder, about.model, asked, rows, arguments.seed)
    if arguments.json != "-":
        _show(arguments.folder, about.model.kind, rows, pictures)
    if arguments.json:
        budget = {"threads": number, "batches": arguments.batches, "batch": asked[0].stream.batch}
        budget |= {"settings": arguments.limit, "autoregressive": stepwise}
        content = describe_results("evaluate", rows, arguments.command_line, arguments.seed, budget)
        config = {**about.model.config, "kind": about.model.kind}
        write_json(
            {**content, "model": config, "data": about.data, "pictures": [str(p) for p in pictures]}, arguments.json
        )


def folder_of(arguments: argparse.Namespace):
    """Where pictures go, made before anything slow begins."""
    from pathlib import Path

    from fillin.errors import InputError

    folder = Path(arguments.folder)  # pretrained weights stay as they are
    folder = (
        Path(arguments.out)
        if arguments.out
        else (folder if folder.exists() else Path("out") / folder.name) / "evaluation"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder} ({error.strerror}); name another with --out") from error
    return folder


def _show(name: str, kind: str, rows, pictures) -> None:
    out = console()
    out.print(_table(f"{name}: each target on its own, {rows[0].scores.tasks} tasks a setting", rows))
    if any(row.scores.joint for row in rows):
        way = "each given those before it" if kind == "marginal" else kind
        out.print(
            _joint_table(f"{name}: all targets together, {way}, {rows[0].scores.joint.tasks} tasks a setting", rows)
        )
    out.print("pictures: " + " ".join(str(path) for path in pictures), highlight=False, soft_wrap=True)


def _table(title: str, rows):
    from rich.table import Table

    from fillin.evaluate.report import three

    caption = (
        "In nats per target, ± one standard error. limit: exact inference, told only the prior of the hyperparameters; "
        "known: told them; –: no closed form, or --limit is too small. gap: limit − log-likelihood. 50 %: targets in "
        "the central 50 %. KS: distance of the PIT from uniform."
    )
    table = Table(title=title, caption=caption)
    table.add_column("setting", no_wrap=True)
    for column in ("log-likelihood", "limit", "gap", "known", "RMSE", "CRPS", "50 %", "80 %", "95 %", "KS"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        scores = row.scores
        inside = [
            "–" if scores.coverage is None else f"{100 * scores.coverage[level]:.1f}" for level in ("50", "80", "95")
        ]
        table.add_row(
            row.label, *_likelihood(scores), three(scores.rmse), three(scores.crps), *inside, three(scores.ks)
        )
    return table


def _joint_table(title: str, rows):
    from rich.table import Table

    table = Table(title=title)
    table.add_column("setting", no_wrap=True)
    for column in ("log-likelihood", "limit", "gap", "known"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.label, *_likelihood(row.scores.joint))
    return table


def _likelihood(found) -> tuple[str, ...]:
    from fillin.evaluate.report import three

    gap = "–" if found.gap is None else f"{found.gap:.3f} ± {found.gap_error:.3f}"
    value = f"{found.log_likelihood:.3f} ± {found.standard_error:.3f}"
    return value, three(found.limit), gap, three(found.known)
