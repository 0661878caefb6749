"""Publish the weights of a run in fillin/pretrained, with a model card.

python -m fillin.evaluate.card RUN NAME [--batches 640]
"""

import argparse
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import torch

from fillin import pretrained
from fillin.data.gaussian_sheets import GaussianSheets
from fillin.data.task import SheetBatch
from fillin.errors import FillinError, InputError
from fillin.evaluate.classification import open_classifier
from fillin.evaluate.curves import ConditionScores, open_curves
from fillin.evaluate.image_completion import CompletionEvaluation, open_completion
from fillin.evaluate.in_context import InContextEvaluation
from fillin.evaluate.scores import format_percent, format_score
from fillin.io import write_text
from fillin.measure import describe_machine
from fillin.models import CLASSIFIERS, load, save
from fillin.models.sheet import Sheet
from fillin.train import Run, dump_recipe, open_run
from fillin.train.loop import HELD_OUT
from fillin.train.recipe import make_stream

_SOURCES = {  # of images, with their owners and licences
    "digits": "the training images of handwritten digits that come with scikit-learn (E. Alpaydin and C. Kaynak, "
    "Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, CC BY 4.0)",
    "glyphs": "letters and digits drawn in the fonts that come with matplotlib (Bitstream Vera and DejaVu fonts "
    "licences)",
}


class CardScores(NamedTuple):
    """The training data, how the scores were measured, and the lines of their table."""

    data: str
    method: str
    table: list[str]


def publish(run: Run, name: str, scores: CardScores) -> Path:
    """Write model, recipe, learning curve and card of the pretrained weights `name`. Returns their folder."""
    folder = pretrained.FOLDER / name
    save(load(run.folder / "best"), folder / "best")
    recipe = {**run.recipe, "start": None}  # a path of this machine; the card describes the initial weights
    write_text(folder / "recipe.yaml", dump_recipe(recipe))
    shutil.copy(run.folder / "learning.png", folder / "learning.png")
    write_text(folder / "card.md", write_card(run, name, scores))
    return folder


def write_card(run: Run, name: str, scores: CardScores) -> str:
    """Write data, training, scores and licence."""
    model, data, last = run.recipe["model"], run.recipe["data"], run.lines[-1]
    parameters = sum(p.numel() for p in run.model().parameters())
    tasks = data["batch"] if "batch" in data else f"about {make_stream(run.recipe).batch}"
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    paragraphs = (
        f"# {name}",
        f"{model['name']}, size {model['size']}, {parameters:,} parameters. Trained on {scores.data}.",
        f"Trained for {last.step:,} steps of {tasks} tasks, {last.seconds / 60:.0f} minutes{_describe_start(run)}; "
        f"`recipe.yaml` has every setting: `fillin train recipe.yaml`. Scores below: {scores.method}; {machine}."
        f"{_describe_floor(model)}",
        "\n".join(scores.table),
        "Licence: MIT, as fillin itself.\n",
    )
    return "\n\n".join(paragraphs)


def _describe_floor(model: dict) -> str:
    if model["name"] in CLASSIFIERS:
        return ""
    floor = f"{model.get('floor', 0)}{' of the error of a guide' if model['name'] == 'sheet' else ''}"
    return f" Standard deviations are at least {floor}, which bounds the likelihood of noise-free data."


def score_curves(run: Run, name: str, batches: int, limit: int) -> CardScores:
    """Score likelihoods beside the Bayes limit."""
    rows, data = open_curves(run.folder, contexts=(), batches=batches, limit_samples=limit).score(), run.recipe["data"]
    head = "| setting | log-likelihood | limit | gap | joint | joint limit | coverage of 50 / 80 / 95 % intervals |"
    table = [head, "|---|---:|---:|---:|---:|---:|---:|", *map(_format_row, rows)]
    if data["name"] == "sheets":
        (low, high), (_, most) = data["rows"], data["columns"]
        prior = f"the prior of sheets (`fillin.data.sheet_prior`), {low} to {high} rows, up to {most} columns"
        if data["dim_x"] == 1:  # the only dimension of `GaussianSheets`
            table += ["", *_compare_sheets(run.model(), batches)]
    elif data["name"] == "curves":
        prior = f"`{data['function']}` under the protocol `{data['protocol']}`"
    else:
        low, high = data["points"]
        prior = f"the broad prior (`fillin.data.broad_prior`), {low} to {high} points per task"
    return CardScores(
        f"synthetic draws of {prior}, generated during training",
        f"`fillin evaluate {name} --batches {batches} --limit {limit}`, {rows[0].scores.tasks:,} tasks per setting, "
        "nats per target, ± one standard error",
        table,
    )


@torch.no_grad()
def _compare_sheets(model: Sheet, batches: int) -> list[str]:
    """Return a table of sheets of Gaussian processes: the model beside exact inference, each column alone and jointly.

    The limits know the hyperparameters."""
    lines = [
        "Sheets of 48 rows (`fillin.data.gaussian_sheets`): exact inference knows the hyperparameters.", "",
        "| columns | each alone | exact, alone | jointly | exact, jointly | coverage of 95 % intervals |",
        "|---|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for columns in (2, 3, 6):
        stream, rows = GaussianSheets(columns=columns, seed=HELD_OUT), []
        for step in range(max(1, batches // 8)):
            sheet = stream.task(step)
            joint = model.fill(sheet)
            fields = (sheet.values, sheet.observed, sheet.queried)
            parts = [SheetBatch(sheet.x, *(part[..., j : j + 1] for part in fields)) for j in range(columns)]
            alone = torch.cat([model.fill(part).log_prob(part.values) for part in parts], -1)
            count = sheet.queried.sum((1, 2))
            log_prob = torch.stack([alone, joint.log_prob(sheet.values)])
            scores = torch.where(sheet.queried, log_prob, 0).sum((2, 3)) / count
            cdf = joint.cdf(sheet.values)
            inside = ((cdf > 0.025) & (cdf < 0.975) & sheet.queried).sum((1, 2)) / count
            limits = stream.limits(step)
            rows.append(torch.stack([scores[0], limits[0], scores[1], limits[1], inside]))
        means = torch.cat(rows, 1).mean(1).tolist()
        cells = [*map(format_score, means[:4]), format_percent(means[4], 0)]
        lines.append(f"| {columns} | " + " | ".join(cells) + " |")
    return lines


def score_images(run: Run, name: str, evaluation: CompletionEvaluation) -> CardScores:
    """Score likelihoods by the pattern of observed pixels."""
    _check_source(run, evaluation.source)
    scores = evaluation.score()
    rows = [
        f"| {title} | {format_score(kind.log_likelihood, kind.error)} | {kind.rmse:.3f} | "
        f"{format_percent(kind.covered, 0)} |"
        for title, kind in scores.kinds.items()
    ]
    return CardScores(
        _SOURCES[evaluation.source],
        f"`fillin evaluate {name} --batches {evaluation.batches}`, {scores.images:,} draws of held-out images, which "
        "also selected the best weights, nats per pixel of colours from −½ to ½, ± one standard error, mean "
        f"{format_score(scores.log_likelihood, scores.standard_error)}, RMSE at observed pixels "
        f"{scores.context_rmse:.3f}; no exact limit exists for images",
        ["| observed pixels | log-likelihood | RMSE | coverage of 95 % intervals |", "|---|---:|---:|---:|", *rows],
    )


def score_few_shot(run: Run, name: str, evaluation: InContextEvaluation) -> CardScores:
    """Score accuracies on held-out classes beside the baselines."""
    _check_source(run, evaluation.stream.source)
    results, data = evaluation.score(), run.recipe["data"]
    rows = []
    for result in results:
        sets = f"{data['ways']}-way {result.support_images // data['ways']}-shot"
        accuracy, likelihood, calibration = result.model.cells
        rows.append(f"| **{sets}** | {accuracy} | {likelihood} | {calibration} | |")
        for label, baseline in result.baselines.items():
            rows.append(f"| {label} | {baseline.cells[0]} | | | {baseline.cells[1]} |")
    return CardScores(
        f"{_SOURCES[evaluation.stream.source]}, without the last {data['held_out']} classes, which are held out, and "
        f"the {data['validation']} before them, for validation",
        f"`fillin evaluate {name}`, {results[0].tasks:,} tasks of the held-out classes, ± one standard error over "
        "tasks, likelihood in nats; gain is the accuracy of the model minus that of the baseline on the same images; "
        "no exact limit exists for images",
        [
            "| tasks | accuracy, % | log-likelihood | calibration error, % | gain, % |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ],
    )


def _check_source(run: Run, source: str) -> None:
    """Raise an error unless the weights derive from images whose licence is known."""
    if source not in _SOURCES or run.recipe["start"] is not None:
        raise InputError(
            f"{run.folder} was trained on {source} or started from other weights, and the owner and licence of the "
            f"images are known for {', '.join(_SOURCES)} only; add them to _SOURCES if they allow publication"
        )


def _describe_start(run: Run) -> str:
    """Describe the training of the initial weights, if there are any, from their log or from their card."""
    if run.recipe["start"] is None:
        return ""
    folder = pretrained.locate(run.recipe["start"])
    if (folder / "log.csv").exists():
        first = open_run(folder)
        last = first.lines[-1]
        steps, minutes, rest = f"{last.step:,}", f"{last.seconds / 60:.0f}", _describe_start(first)
    else:
        card = folder / "card.md"
        text = card.read_text(encoding="utf-8") if card.exists() else ""
        match = re.search(r"Trained for ([\d,]+) steps of [^;]*?, (\d+) minutes([^;]*);", text)
        if match is None:
            raise InputError(
                f"start: {folder} has neither a log.csv nor a card with its training time; name the run itself"
            )
        steps, minutes, rest = match.groups()
    return f", from weights trained for {steps} steps, {minutes} minutes{rest}"


def _format_row(row: ConditionScores) -> str:
    scores, joint = row.scores, row.scores.joint
    coverage = " / ".join(format_percent(scores.coverage[k], 0) for k in ("50", "80", "95")) if scores.coverage else "–"
    cells = [
        row.label.replace("|", "\\|"), format_score(scores.log_likelihood, scores.standard_error),
        format_score(scores.limit), format_score(scores.gap), format_score(joint and joint.log_likelihood),
        format_score(joint and joint.limit), coverage,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--batches", type=int, default=640, help="batches of 4 tasks per setting")
    parser.add_argument("--limit", type=int, default=128, help="hyperparameter settings that the limit averages over")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        run, evaluation = open_run(options.run), open_completion(options.run, batches=options.batches)
        classifier = open_classifier(options.run)
        if isinstance(classifier, InContextEvaluation):
            scores = score_few_shot(run, options.name, classifier)
        elif evaluation is None:
            scores = score_curves(run, options.name, options.batches, options.limit)
        else:
            scores = score_images(run, options.name, evaluation)
        print(publish(run, options.name, scores))
    except FillinError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
