"""Completion of an image: its observed pixels, the model, and the files of the result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fillin.errors import InputError, argument, nearest, render
from fillin.filling.diagnostics import Note
from fillin.filling.holdout import NumericScore
from fillin.filling.plan import FillPlan, Source
from fillin.filling.prediction import ColumnPredictions, NumericPrediction, Outputs
from fillin.predictive import HALF_WIDTH_95
from fillin.runtime import Tick

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.filling.image.read import PartialImage
    from fillin.models import Process

MAX_CELLS = 1 << 22  # of a completed image
_DEFAULT_MODEL = "sheet-2d"


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of images; see `fillin.complete` and `fillin complete --help`."""

    observed: Any = None
    keep: float | None = None
    pattern: str | None = None
    hide: str | None = None
    mask: str | None = None
    attend: str | None = None
    scale: int = 1
    samples: int = 0
    model: "str | Process" = _DEFAULT_MODEL
    seed: int = 0


@dataclass(frozen=True, eq=False)
class ImagePlan(FillPlan):
    """An image, the model that completes it, and the figure of its attention where one is requested."""

    options_type = ImageOptions
    marker: ClassVar[str] = "completed"
    prints_scores: ClassVar[bool] = True

    source: Source
    options: ImageOptions
    image: "PartialImage"
    model: "Process"
    attention: "Figure | None" = None

    @classmethod
    def read(cls, source: Source, options: ImageOptions) -> "ImagePlan":
        from fillin.filling.image.read import read_array, read_file

        if source.path is None:
            image = read_array(source.data, options.observed)
        else:
            o = options
            image = read_file(source.path, o.keep, o.pattern, o.hide, o.mask, o.scale, o.seed)
        _check(image.shape, options)
        model = load_completer(options.model)
        if options.attend is None:
            return cls(source, options, image, model)
        from fillin.filling.image.figures import draw_attention, parse_pixel

        pixel = parse_pixel(options.attend, image.shape)
        return cls(source, options, image, model, draw_attention(model, image, pixel))

    @property
    def suffix(self) -> str:
        return ".png"

    @property
    def summary(self) -> str:
        (h, w), n = self.image.shape, len(self.image.x)
        mask, scale = self.image.mask, self.options.scale
        observed = f"{n:,} coarse pixels" if mask is None else f"{n:,} pixels ({n / mask.size:.1%})"
        observed += " in part" if self.image.n_partly == n else ""
        return f"{self.source.name}: {w} × {h}, {observed} observed" + (
            f"; enlarged {scale} times" if scale > 1 else ""
        )

    @property
    def notes(self) -> list[Note]:
        notes, channels = [Note(text) for text in self.image.notes], self.image.colours.shape[2]
        if self.image.n_partly:
            notes.append(Note(f"{self.image.n_partly:,} pixels lack some channels: predicted from the others, too"))
        if not self.model.any_units and self.model.dim_y != channels:
            text = "the model predicts colours: grey is shown to it as three equal channels, whose means are averaged"
            if channels == 3:
                text = "the model predicts grey alone: red, green and blue are completed one by one"
            notes.append(Note(text))
        return notes

    @property
    def n_missing(self) -> int:
        mask, n_cells = self.image.mask, int(np.prod(self.image.shape)) * self.options.scale**2
        return int((~mask).sum()) + self.image.n_partly if mask is not None and self.options.scale == 1 else n_cells

    @property
    def n_steps(self) -> int:
        return int(np.prod(self.image.shape)) * self.options.scale**2

    def load_model(self) -> "Process":
        return self.model

    def run(self, model: "Process", progress: Tick = lambda done: None) -> ColumnPredictions:
        from fillin.filling.image.completion import complete_image

        o = self.options
        return {"image": complete_image(self.image, model, o.scale, o.samples, o.seed, progress)}

    def result(self, prediction: ColumnPredictions) -> NumericPrediction:
        return prediction["image"]

    def write(self, outputs: Outputs, prediction: ColumnPredictions) -> ColumnPredictions:
        """Write the completed image first, then samples, standard deviation and attention."""
        from fillin.filling.image.figures import draw_std, join_samples, to_bytes
        from fillin.plots import save

        completed = prediction["image"]
        _write_png(outputs, "", to_bytes(completed.mean))
        if self.options.samples:
            _write_png(outputs, "samples", join_samples(completed.samples))
        save(draw_std(completed), outputs.extra["std"])
        if self.attention is not None:
            save(self.attention, outputs.extra["attend"])
        return prediction

    @property
    def extra_files(self) -> dict[str, str]:
        """Return the suffixes of the files that are written beside the completed image."""
        names = {"std": True, "samples": self.options.samples > 0, "figure": True, "attend": self.attention is not None}
        return {name: f".{'sheet' if name == 'figure' else name}.png" for name, requested in names.items() if requested}

    def figure(self, prediction: ColumnPredictions) -> "Figure":
        from fillin.filling.image.figures import draw_sheet

        return draw_sheet(self.image, prediction["image"], f"{self.source.name}, completed by {self.options.model}")

    def holdout(
        self, model: "Process", prediction: ColumnPredictions, progress: Tick = lambda done: None
    ) -> list[NumericScore]:
        """Compare the prediction with the pixels of the image that were not shown to the model."""
        image = self.image
        if not image.held_out or self.options.scale > 1:
            return []
        pixels = slice(None) if image.mask is None else ~image.mask
        truth, completed = image.colours[pixels], prediction["image"]
        error = completed.mean[pixels] - truth
        inside = float((abs(error) <= HALF_WIDTH_95 * completed.std[pixels] + 0.5 / 255).mean())
        rmse, baseline = (float((e**2).mean()) ** 0.5 for e in (error, image.y.mean(0) - truth))
        return [NumericScore("pixels", truth[..., 0].size, rmse, baseline, inside)]

    def explain_holdout(self, scores: Sequence[NumericScore]) -> str:
        return "; ".join(
            f"held-out pixels: RMSE {score.rmse:.4f} (1 is from black to white), {score.coverage_95:.0%} in their 95 % "
            "intervals"
            for score in scores
        )

    def assumptions(self) -> list[str]:
        return [f"The model '{self.options.model}' completes the image from its observed pixels alone."]


def _check(shape: tuple[int, int], options: ImageOptions) -> None:
    """Check the options before any slow work begins."""
    for name, minimum in (("scale", 1), ("samples", 0), ("seed", 0)):
        value = getattr(options, name)
        if type(value) is not int or value < minimum:
            raise InputError(
                "{name} must be a whole number of at least {minimum}, got {value!r}",
                name=argument(name), minimum=minimum, value=value,
            )  # fmt: skip
    height, width = shape[0] * options.scale, shape[1] * options.scale
    if height * width > MAX_CELLS:
        raise InputError(
            "the completed image would have {width:,} × {height:,} pixels, more than {maximum:,}; {smaller}make the "
            "image smaller first",
            width=width, height=height, maximum=MAX_CELLS,
            smaller=render("choose a smaller {scale} or ", scale=argument("scale")) if options.scale > 1 else "",
        )  # fmt: skip


def load_completer(model: "str | Process") -> "Process":
    """Return the model of a name or folder, or itself; it must map two-dimensional locations to 1 or 3 colours."""
    from fillin.models import Process, load
    from fillin.pretrained import locate, names

    process = model
    if not isinstance(process, Process):
        if not locate(process).exists():
            raise InputError(
                "{model}: there is no model {name!r}; name a run, a folder of fillin.save, or {similar!r}",
                model=argument("model"), name=str(process), similar=nearest(process, names()) or _DEFAULT_MODEL,
            )  # fmt: skip
        process = load(process)
    if not isinstance(process, Process):
        raise InputError(
            "{model}: {name} is no neural process and predicts no pixels; train one with: fillin train images-te-tnp",
            model=argument("model"), name=model,
        )  # fmt: skip
    if process.dim_x not in (2, None) or process.dim_y not in (1, 3):
        raise InputError(
            "{model}: this model has dim_x={dim_x}, dim_y={dim_y}; images need 2 and 1 (grey) or 3 (colour); train one "
            "with: fillin train images-te-tnp",
            model=argument("model"), dim_x=process.dim_x, dim_y=process.dim_y,
        )  # fmt: skip
    return process.eval()


def _write_png(outputs: Outputs, name: str, pixels: np.ndarray) -> None:
    """Write an image of eight bits a channel, grey or in colour."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    outputs.write(outputs.extra[name] if name else outputs.data, lambda path: image.save(path, format="PNG"))
