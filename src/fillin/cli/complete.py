"""`fillin complete`: predict the missing pixels of an image."""

import argparse

from fillin.cli.fill import execute
from fillin.cli.options import THREADS_HELP, positive

EXAMPLES = """\
  fillin complete photo.png                        fully transparent pixels are missing; writes photo.completed.png
  fillin complete photo.png --mask m.png           white pixels of the mask are observed, the others are completed
  fillin complete raw.png --mask bayer.png         a mask in colour: in each channel, where it is above 127
  fillin complete photo.npy                        an array h × w × 3 from 0 to 1; NaN is missing, also in one channel
  fillin complete photo.png --keep 0.1             from a tenth of its pixels
  fillin complete photo.png --hide bottom          from the other half; also top, left, right, hole
  fillin complete photo.png --observed 'grid 4'    from every fourth pixel; 'coarse 4': from means of 4 × 4
  fillin complete small.png --scale 4              enlarged: four times as many pixels along each side
  fillin complete photo.png --keep 0.1 --attend 20,31     and the attention of each head from row 20, column 31
  fillin complete digit.png --keep 0.2 --model runs/images-te-tnp -o digit.out.png

Four images are written: NAME.png, the mean (at scale 1 observed pixels keep their exact colours); NAME.std.png, the
standard deviation with a colour bar; NAME.samples.png, sampled images side by side; and NAME.sheet.png, all of it on
one sheet. See docs/images.md.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("image", metavar="IMAGE", help="PNG, JPEG or an array (.npy), grey or in colour")
    observed = command.add_argument_group("observed pixels (default: those that are not fully transparent)")
    observed.add_argument("--keep", type=float, metavar="SHARE", help="a random share of the pixels")
    patterns = "random, top, bottom, left, right, block, hole, line, grid, coarse"
    observed.add_argument(
        "--observed", dest="pattern", metavar="PATTERN", help=f"pattern of the observed pixels: {patterns}"
    )
    observed.add_argument("--know", dest="pattern", help=argparse.SUPPRESS)  # its name in 0.1
    observed.add_argument("--hide", metavar="PART", help="part to hold out: bottom, top, left, right or hole")
    observed.add_argument(
        "--mask", metavar="FILE", help="an image of the same size: white is observed; in colour, channel by channel"
    )
    command.add_argument("--scale", type=int, default=1, metavar="N", help="enlarge each side N times (default: 1)")
    command.add_argument("--samples", type=int, default=5, metavar="N", help="number of sampled images (default: 5)")
    command.add_argument(
        "--model",
        metavar="NAME|FOLDER",
        default="sheet-2d",
        help="weights or run over 2-D inputs (default: sheet-2d)",
    )
    command.add_argument(
        "--attend", metavar="ROW,COLUMN", help="draw the attention of each head from this pixel: NAME.attend.png"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of --keep, --observed and samples (default: 0)")
    command.add_argument("-o", "--out", metavar="FILE", help="output file (default: NAME.completed.png)")
    command.add_argument("--force", action="store_true", help="replace existing files; never the input")
    command.add_argument("--threads", type=positive, metavar="N", help=THREADS_HELP)


def run(arguments: argparse.Namespace) -> None:
    from dataclasses import fields
    from pathlib import Path

    from fillin.filling.image.plan import ImageOptions, ImagePlan
    from fillin.filling.plan import Source

    sources = [Path(path) for path in (arguments.image, arguments.mask) if path]
    names = {field.name for field in fields(ImageOptions)} & set(vars(arguments))
    plan = ImagePlan.read(Source(sources[0], {}), ImageOptions(**{name: vars(arguments)[name] for name in names}))
    execute(plan, arguments, sources, plan.extra_files)
