"""`fillin evaluate`: scores of a trained model, beside exact inference (the Bayes limit)."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fillin.cli.options import (
    THREADS_HELP,
    check_writable,
    console,
    describe_results,
    positive,
    print_table,
    write_json,
)
from fillin.errors import InputError

if TYPE_CHECKING:
    from fillin.evaluate.scores import Evaluation

EXAMPLES = """\
  fillin evaluate runs/te-tnp                          a run, on the data of its recipe and on other functions
  fillin evaluate te-tnp-rbf                           pretrained weights, by name
  fillin evaluate runs/te-tnp --batches 40             faster, with larger standard errors
  fillin evaluate runs/te-tnp --functions sawtooth "rbf * periodic" --shift 100
  fillin evaluate my-model --function matern-5/2       a folder written by fillin.save
  fillin evaluate runs/te-tnp --autoregressive         the joint likelihood too, target by target
  fillin evaluate runs/te-tnp --json - | jq '.rows[0].scores.gap'
  fillin evaluate runs/images-te-tnp --batches 20      image completion from partly observed images
  fillin evaluate runs/classify-digits                 a classifier: accuracy, calibration, confusion, windows
  fillin evaluate few-shot-glyphs                      held-out classes, beside the nearest centroid and random weights
  fillin evaluate runs/dates                           seq2seq: exact matches on held-out dates, attention

Curves are evaluated on the training distribution, with shifted inputs, beyond the context, on other functions and with
fixed numbers of context points, on tasks that neither training nor validation has seen. Images are the test images of
the recipe, or of --source. Figures go to RUN/evaluation; one shows the learned windows (span=) of every layer and head.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="RUN|NAME", help="run folder, folder of fillin.save, or pretrained weights")
    command.add_argument("--function", metavar="F", help="function that a saved model was trained on (default: rbf)")
    command.add_argument(
        "--protocol", metavar="P", help="locations and numbers of points: tnp, te-tnp or sawtooth (default: tnp)"
    )
    command.add_argument(
        "--functions", nargs="+", metavar="F", help="other functions (default: rbf, matern-5/2, periodic)"
    )
    command.add_argument("--shift", type=float, default=4.0, metavar="D", help="shift of the inputs (4; 0: none)")
    command.add_argument(
        "--contexts", nargs="+", type=int, metavar="N", help="numbers of context points (default: six)"
    )
    batches_help = "batches per setting, of 4 tasks or 32 dates (160)"
    command.add_argument("--batches", type=int, default=160, metavar="N", help=batches_help)
    limit_help = "hyperparameter settings that the limit averages over (256; 0: no limit)"
    command.add_argument("--limit", type=int, default=256, metavar="N", help=limit_help)
    command.add_argument("--autoregressive", action="store_true", help="joint likelihood of a marginal model; slow")
    command.add_argument("--source", metavar="DIR", help="other images than the recipe's: digits, a folder, an archive")
    command.add_argument("--seed", type=int, default=0, help="seed of the tasks (default: 0)")
    command.add_argument("--threads", type=positive, metavar="N", help=THREADS_HELP)
    command.add_argument("--json", metavar="FILE", help="write all scores to FILE too; - prints them instead of tables")
    command.add_argument("--out", metavar="DIR", help="folder for figures (default: RUN/evaluation)")


def run(arguments: argparse.Namespace) -> None:
    import torch

    from fillin.runtime import threads

    evaluation = _open(arguments)
    run = Path(arguments.folder)  # nothing is written beside pretrained weights
    folder = Path(arguments.out or (run if run.exists() else Path("out") / run.name) / "evaluation")
    try:  # before anything slow begins
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder} ({error.strerror}); choose another with --out") from error
    if arguments.json:
        check_writable(arguments.json)
    number = arguments.threads or torch.get_num_threads()
    with threads(number):
        scores = evaluation.score(show_progress=True)
        figures = [str(path) for path in evaluation.draw(folder, scores)]
    if arguments.json != "-":
        for table in evaluation.tables(arguments.folder, scores):
            title, caption = table.title or None, table.caption or None
            print_table(table.columns, table.rows, right=table.columns[1:], title=title, caption=caption)
        console().print("figures: " + " ".join(figures), highlight=False, soft_wrap=True)
    if arguments.json:
        about, rows = evaluation.describe(), scores if isinstance(scores, list) else [scores]
        budget = {"threads": number, **about["budget"]}
        content = describe_results("evaluate", rows, arguments.command_line, arguments.seed, budget)
        model = {**evaluation.model.config, "kind": evaluation.model.kind}
        write_json({**content, "model": model, "data": about["data"], "pictures": figures}, arguments.json)


def _open(arguments: argparse.Namespace) -> "Evaluation":
    from fillin.evaluate.classification import open_classifier
    from fillin.evaluate.curves import open_curves
    from fillin.evaluate.image_completion import open_completion
    from fillin.evaluate.sequences import open_sequences

    folder, source, batches, seed = arguments.folder, arguments.source, arguments.batches, arguments.seed
    curves: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("function", "protocol", "functions", "shift", "contexts", "autoregressive")
    }
    return (
        open_completion(folder, source, max(1, batches), seed)
        or open_classifier(folder, source)
        or open_sequences(folder, max(1, batches), seed)
        or open_curves(folder, **curves, limit_samples=arguments.limit, batches=batches, seed=seed)
    )
