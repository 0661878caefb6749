"""Ship a run: its weights into fillin/pretrained, with a card that says what they are.

python -m fillin.evaluate.card RUN NAME [--batches 640]
"""

import argparse
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fillin import pretrained
from fillin.errors import FillinError, InputError
from fillin.evaluate.image_completion import Completing, completing, judge
from fillin.evaluate.report import Row, measure, settings, subject, three
from fillin.io import write_text
from fillin.measure import describe_machine
from fillin.models import load, save
from fillin.pretrained import locate
from fillin.train import Run, dump_recipe, open_run
from fillin.train.recipe import make_stream

_SOURCES = {  # of images, and whose they are
    "digits": "the images for training of handwritten digits that come with scikit-learn (E. Alpaydin and C. Kaynak, "
    "Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, CC BY 4.0)"
}


class Told(NamedTuple):
    """What a card says beyond the training: what was learnt from, how scores were made, and a table of them."""

    learnt: str
    scores: str
    table: list[str]


def ship(run: Run, name: str, told: Told) -> Path:
    """The folder of pretrained weights `name`: model, recipe, learning curve and card."""
    folder = pretrained.FOLDER / name
    save(load(run.folder / "best"), folder / "best")
    recipe = {**run.recipe, "start": None}  # where it lay is not there for others; the card tells what it was
    write_text(folder / "recipe.yaml", dump_recipe(recipe))
    shutil.copy(run.folder / "learning.png", folder / "learning.png")
    write_text(folder / "card.md", card(run, name, told))
    return folder


def card(run: Run, name: str, told: Told) -> str:
    """Data, training, scores, licence."""
    model, data, last = run.recipe["model"], run.recipe["data"], run.lines[-1]
    parameters = sum(p.numel() for p in run.model().parameters())
    tasks = data["batch"] if "batch" in data else f"about {make_stream(run.recipe).batch}"
    here = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    lines = [
        f"# {name}",
        "",
        f"{model['name']}, size {model['size']}, {parameters:,} parameters. Learnt from {told.learnt}.",
        "",
        f"Trained for {last.step:,} steps of {tasks} tasks, {last.seconds / 60:.0f} minutes{_before(run)}; "
        f"`recipe.yaml` has every setting: `fillin train recipe.yaml`. Scores below: {told.scores}; {here}. "
        f"Deviations are at least {model.get('floor', 0)}, which bounds the likelihood of data without noise.",
        "",
        *told.table,
        "",
        "Licence: MIT, as fillin itself.",
        "",
    ]
    return "\n".join(lines)


def of_curves(run: Run, name: str, batches: int, limit: int) -> Told:
    """Likelihoods beside the best possible."""
    about = subject(run.folder)
    asked = [setting for setting in settings(about) if setting.kind != "context"]
    rows = measure(about.model, asked, batches, 0, settings=limit)
    head = [
        "| setting | log-likelihood | limit | gap | joint | joint limit | 50 / 80 / 95 % bands hold |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    return Told(
        f"draws of {_prior(run.recipe['data'])}, made as it trained: no data of anyone's",
        f"`fillin evaluate {name} --batches {batches} --limit {limit}`, {rows[0].scores.tasks:,} tasks a setting, nats "
        "per target, ± one standard error",
        [*head, *(_line(row) for row in rows)],
    )


def of_images(run: Run, name: str, about: Completing, batches: int) -> Told:
    """Likelihoods by what is known of an image."""
    if about.source not in _SOURCES or run.recipe["start"] is not None:
        raise InputError(
            f"{run.folder} learnt from {about.source} or began with other weights: of whom these images are, and "
            f"whether weights of them may be handed on, is known of {', '.join(_SOURCES)} alone; say it in _SOURCES"
        )
    found = judge(about, batches)
    rows = [
        f"| {title} | {kind.log_likelihood:.3f} ± {kind.error:.3f} | {kind.rmse:.3f} | "
        f"{'–' if kind.covered is None else f'{100 * kind.covered:.0f}'} |"
        for title, kind in found.kinds.items()
    ]
    return Told(
        _SOURCES[about.source],
        f"`fillin evaluate {name} --batches {batches}`, {found.images:,} draws of images that were held out and chose "
        "the best weights, nats per pixel of colours from −½ to ½, ± one standard error, "
        f"{found.log_likelihood:.3f} ± {found.standard_error:.3f} in the mean, known pixels "
        f"missed by {found.context_rmse:.3f}; of images no limit is known",
        ["| what is known | log-likelihood | RMSE | 95 % bands hold |", "|---|---:|---:|---:|", *rows],
    )


def _before(run: Run) -> str:
    """What the weights had learnt before that they began with."""
    if run.recipe["start"] is None:
        return ""
    folder = locate(run.recipe["start"])
    if (folder / "log.csv").exists():
        first = open_run(folder)
        last = first.lines[-1]
        steps, minutes, rest = f"{last.step:,}", f"{last.seconds / 60:.0f}", _before(first)
    else:
        steps, minutes, rest = _trained(folder)
    return f", from weights that had {steps} steps, {minutes} minutes, behind them{rest}"


def _trained(folder: Path) -> tuple[str, ...]:
    """Weights that ship have no log: their card says how long they learnt, and what from."""
    try:
        text = (folder / "card.md").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"Trained for ([\d,]+) steps of [^;]*?, (\d+) minutes([^;]*);", text)
    if found is None:
        raise InputError(
            f"start: {folder} has neither a log.csv nor a card that says how long it was trained; name the run itself"
        )
    return found.groups()


def _prior(data: dict[str, Any]) -> str:
    if data["name"] == "curves":
        return f"`{data['function']}` under the protocol `{data['protocol']}`"
    return f"the broad prior (`fillin.data.{data['name']}`), {data['points'][0]} to {data['points'][1]} points a task"


def _line(row: Row) -> str:
    scores, joint = row.scores, row.scores.joint
    held = "–" if scores.coverage is None else " / ".join(f"{100 * scores.coverage[k]:.0f}" for k in ("50", "80", "95"))
    cells = [
        row.label.replace("|", "\\|"), f"{scores.log_likelihood:.3f} ± {scores.standard_error:.3f}",
        three(scores.limit), three(scores.gap), three(joint and joint.log_likelihood), three(joint and joint.limit),
        held,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--batches", type=int, default=640, help="of 4 tasks a setting")
    parser.add_argument("--limit", type=int, default=128, help="settings that the limit averages over")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        run, about = open_run(options.run), completing(options.run)
        if about is None:
            told = of_curves(run, options.name, options.batches, options.limit)
        else:
            told = of_images(run, options.name, about, options.batches)
        print(ship(run, options.name, told))
    except FillinError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
