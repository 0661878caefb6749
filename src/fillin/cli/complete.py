"""`fillin complete`: a picture of which part is known in, the whole of it out."""

import argparse

from fillin.cli.fill import bar, speaker
from fillin.cli.options import describe, positive

_EXAMPLES = """\
  fillin complete photo.png                        what is fully transparent is missing; writes photo.completed.png
  fillin complete photo.png --mask m.png           white pixels of the mask are known, the others are completed
  fillin complete photo.png --keep 0.1             from a tenth of its pixels
  fillin complete photo.png --hide bottom          from the other half; also top, left, right, hole
  fillin complete photo.png --know 'grid 4'        from every fourth pixel; 'coarse 4': from means of 4 × 4
  fillin complete small.png --scale 4              enlarged: four times as many pixels along each side
  fillin complete photo.png --keep 0.1 --attend 20,31     and where each head looks from the pixel of row 20, column 31
  fillin complete digit.png --keep 0.2 --model runs/images-te-tnp -o digit.out.png

Written are four pictures: NAME.png, what is expected (where the scale is 1, known pixels keep their colours to the last
bit); NAME.std.png, its standard deviation with a legend; NAME.samples.png, whole pictures that may be as well, side by
side; and NAME.sheet.png, all of it on one sheet. docs/images.md says more.
"""


def add(commands) -> None:
    command = describe(commands, "complete", "complete a picture from part of it, at any resolution", _EXAMPLES)
    command.add_argument("picture", metavar="PICTURE", help="PNG or JPEG, grey or in colour")
    what = command.add_argument_group("what is known (else: what is not fully transparent)")
    what.add_argument("--keep", type=float, metavar="SHARE", help="of the pixels, chosen by the seed")
    what.add_argument(
        "--know", metavar="PATTERN", help="random, top, bottom, left, right, block, hole, line, grid, coarse"
    )
    what.add_argument("--hide", metavar="PART", help="bottom, top, left, right or hole: all but this")
    what.add_argument("--mask", metavar="FILE", help="a picture of the same size: white is known")
    command.add_argument("--scale", type=int, default=1, metavar="N", help="pixels a pixel, each way (default: 1)")
    command.add_argument("--samples", type=int, default=5, metavar="N", help="whole pictures drawn (default: 5)")
    command.add_argument(
        "--model", metavar="NAME|FOLDER", default="surface", help="weights or a run for 2-D places (default: surface)"
    )
    command.add_argument(
        "--attend", metavar="ROW,COLUMN", help="draw where each head looks from this pixel: NAME.attend.png"
    )
    command.add_argument("--seed", type=int, default=0, help="of what is kept, and of samples (default: 0)")
    command.add_argument("-o", "--out", metavar="FILE", help="where to (default: NAME.completed.png)")
    command.add_argument("--force", action="store_true", help="replace files that exist; never the input")
    command.add_argument("--threads", type=positive, metavar="N", help="threads (default: as many as torch takes)")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from fillin.errors import FillinError

    try:
        _run(arguments)
    except FillinError as error:
        raise FillinError(error.shell) from error  # in words of the command line


def _run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    import torch

    from fillin.filling.image.api import check, complete_points
    from fillin.filling.image.outputs import Outputs
    from fillin.filling.image.read import read_part
    from fillin.filling.image.weights import completer, note
    from fillin.runtime import threads

    say, path = speaker(), Path(arguments.picture)
    part = read_part(
        path, arguments.keep, arguments.know, arguments.hide, arguments.mask, arguments.scale, arguments.seed
    )
    check(part.shape, arguments.scale, arguments.samples, arguments.seed)
    model = completer(arguments.model)
    heads = _heads(arguments.attend, model, part)
    sources = [path, *([Path(arguments.mask)] if arguments.mask else [])]
    outputs = Outputs.of(sources, arguments.out, arguments.samples > 0, bool(arguments.attend), arguments.force)
    h, w = part.shape
    finer = f"; {arguments.scale} times as fine" if arguments.scale > 1 else ""
    say(f"{path.name}: {w} × {h}, {_known(part)} known{finer}")
    for line in [*part.notes, note(model, part.picture.shape[2])]:
        if line:
            say(f"note: {line}")
    if part.mask is not None and part.mask.all() and arguments.scale == 1:
        say("nothing is missing: nothing was done")
        return
    total = h * w * arguments.scale**2
    with threads(arguments.threads or torch.get_num_threads()), bar("complete", total) as tick:
        done = complete_points(
            part.x, part.y, part.shape, part.mask, arguments.scale, arguments.samples, model, arguments.seed, tick
        )
    _write(part, done, outputs, f"{path.name}, completed by {arguments.model}", heads)
    if part.hidden and arguments.scale == 1:
        say(_compared(part, done))
    say("wrote " + " ".join(str(path) for path in outputs.paths))


def _known(part) -> str:
    if part.mask is None:
        return f"{len(part.x):,} coarser ones"
    return f"{len(part.x):,} pixels ({len(part.x) / part.mask.size:.1%})"


def _heads(attend: str | None, model, part):
    """The picture of what heads look at, drawn before anything slow begins: not every model can."""
    if attend is None:
        return None
    from fillin.filling.image.attention_figure import attention_figure, parse_pixel

    return attention_figure(model, part, parse_pixel(attend, part.shape))


def _write(part, done, outputs, title: str, heads) -> None:
    """The completion first: it is what was asked for."""
    from fillin.filling.image.figures import bytes_of, sheet, side_by_side, uncertainty_figure
    from fillin.filling.image.outputs import save_pixels
    from fillin.plots import save

    save_pixels(outputs.picture, bytes_of(done.mean), outputs.force)
    if outputs.samples:
        save_pixels(outputs.samples, side_by_side(done.samples), outputs.force)
    save(uncertainty_figure(done), outputs.std)
    save(sheet(part, done, title), outputs.sheet)
    if heads is not None:
        save(heads, outputs.attend)


def _compared(part, done) -> str:
    """With what was hidden on purpose."""
    hidden = slice(None) if part.mask is None else ~part.mask
    off = done.mean[hidden] - part.picture[hidden] / 255
    inside = float((abs(off) <= 1.96 * done.std[hidden] + 0.5 / 255).mean())
    rmse = float((off**2).mean()) ** 0.5
    return f"hidden pixels: RMSE {rmse:.4f} (1 is from black to white), and {inside:.0%} of them in their 95 % bands"
