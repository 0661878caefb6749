"""`fillin evaluate` of what completes images, or tells them apart: one at a time, or from others that are shown."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fillin.cli.options import check_writable, console, describe_results, write_json


def asked_of(folder: str, source: str | None) -> Any:
    """A model that completes images, a classifier, or one that is shown images, with what it is asked; None where it is
    none of these."""
    from fillin.evaluate.classification import classified
    from fillin.evaluate.image_completion import completing
    from fillin.evaluate.in_context_images import taught

    return completing(folder, source) or classified(folder, source) or taught(folder, source)


def run_on_images(arguments: argparse.Namespace, about: Any, folder: Path) -> None:
    """Scores, pictures, a table; `about` is what `asked_of` found."""
    import torch

    from fillin.evaluate import classification as classes
    from fillin.evaluate import image_completion as completions
    from fillin.evaluate import in_context_images as lessons
    from fillin.runtime import threads

    if arguments.json:
        check_writable(arguments.json)
    number = arguments.threads or torch.get_num_threads()
    show: Callable[[str, Any], None]
    with threads(number):
        if isinstance(about, completions.Completing):
            scores, pictures, show = *_completed(arguments, about, folder), _show_completions
        elif isinstance(about, lessons.Taught):
            scores, show = lessons.judge(about), _show_lessons
            pictures = lessons.draw(folder, about, scores)
        else:
            scores, show = classes.judge(about), _show_classes
            pictures = classes.draw(folder, about.model, scores)
    if arguments.json != "-":
        show(arguments.folder, scores)
        console().print("pictures: " + " ".join(str(path) for path in pictures), highlight=False, soft_wrap=True)
    if arguments.json:
        content = describe_results("evaluate", [scores], arguments.command_line, arguments.seed, {"threads": number})
        source = about.source if isinstance(about, completions.Completing) else about.stream.source
        told = {"model": {**about.model.config, "kind": about.model.kind}, "data": {"source": source}}
        write_json({**content, **told, "pictures": [str(p) for p in pictures]}, arguments.json)


def _completed(arguments: argparse.Namespace, about: Any, folder: Path) -> tuple[Any, list[Path]]:
    from fillin.evaluate.image_completion import KINDS, judge
    from fillin.runtime import progress

    batches = max(1, arguments.batches)
    with progress("evaluate", len(KINDS) * batches) as tick:
        scores = judge(about, batches, arguments.seed, tick)
        from fillin.evaluate.image_figures import kinds

        return scores, [kinds({about.model.config["model"]: about.model}, about.source, folder / "completions.png")]


def _show_completions(name: str, scores) -> None:
    from rich.table import Table

    from fillin.evaluate.image_completion import MOVED

    table = Table(
        title=f"{name}: {scores.images:,} images, all pixels asked for",
        caption="Nats per pixel, ± one standard error, and RMSE of colours from −½ to ½. Known pixels, one in five, "
        f"are missed by {scores.context_rmse:.3f}; where an image is moved by {MOVED} pixels answers change by "
        f"{scores.moved:.2g} at most.",
    )
    table.add_column("what is known", no_wrap=True)
    for column in ("log-likelihood", "RMSE", "95 %"):
        table.add_column(column, justify="right", no_wrap=True)
    for title, kind in scores.kinds.items():
        inside = "–" if kind.covered is None else f"{100 * kind.covered:.1f}"
        table.add_row(title, f"{kind.log_likelihood:.3f} ± {kind.error:.3f}", f"{kind.rmse:.3f}", inside)
    table.add_row("mean", f"{scores.log_likelihood:.3f} ± {scores.standard_error:.3f}", f"{scores.rmse:.3f}", "")
    console().print(table)


def _show_classes(name: str, scores) -> None:
    from rich.table import Table

    out = console()
    table = Table(title=f"{name}: {scores.images:,} images", caption="± one standard error; likelihood in nats.")
    for column in ("accuracy, %", "log-likelihood", "calibration error, %"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_row(*_told(scores))
    out.print(table)
    layers = Table(caption="σ: from the narrowest head to the widest; an image is 1 wide and 1 high.")
    for column in ("layer", "σ", "pairs inside, %"):
        layers.add_column(column, justify="right", no_wrap=True)
    for number, layer in enumerate(scores.layers, 1):
        each = [value for head in layer.sigma or () for value in head]
        sigma = f"{min(each):.3g} – {max(each):.3g}" if each else "no window"
        layers.add_row(str(number), sigma, f"{100 * layer.share:.1f}")
    out.print(layers)


def _show_lessons(name: str, scores) -> None:
    from rich.table import Table

    table = Table(
        title=f"{name}: {scores.found.images:,} images in {scores.tasks:,} data sets, {scores.shown:,} shown in each",
        caption="± one standard error; likelihood in nats. Shuffled: the shown labels dealt out anew. Nearest "
        "centroid: the class whose shown images have the nearest mean.",
    )
    table.add_column("", no_wrap=True)
    for column in ("accuracy, %", "log-likelihood", "calibration error, %"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_row("the model", *_told(scores.found))
    for label, value in (
        ("shown labels shuffled", scores.shuffled),
        ("nearest centroid, pixels", scores.centroid_pixels),
        ("nearest centroid, its embedding", scores.centroid_embedding),
    ):
        table.add_row(label, f"{100 * value:.2f}", "", "")
    console().print(table)


def _told(scores) -> tuple[str, str, str]:
    return (
        f"{100 * scores.accuracy:.2f} ± {100 * scores.accuracy_error:.2f}",
        f"{scores.log_likelihood:.3f} ± {scores.standard_error:.3f}", f"{100 * scores.calibration_error:.2f}",
    )  # fmt: skip
