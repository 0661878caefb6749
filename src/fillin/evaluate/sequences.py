"""Evaluation of models of sequences: greedy decoding of held-out dates, and pictures of encoder–decoder attention."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.sequences import END, PADDING, Dates, Vocabulary
from fillin.errors import InputError
from fillin.evaluate.scores import Evaluation, ResultTable, find_run, format_percent, format_score
from fillin.models import Seq2Seq, load
from fillin.objectives import teacher_forcing
from fillin.plots import draw_alignment, panels, save, style
from fillin.pretrained import locate
from fillin.runtime import progress
from fillin.train.recipe import make_stream

_BATCH = 32
_SETTINGS = {"held-out dates": "dates", "held-out dates in held-out formats": "formats"}
_MAX_MISTAKES = 5
_DRAWN = "the third of may 2021"


@dataclass(frozen=True)
class SequenceScores:
    """Scores of one setting. An exact match has every token of the target, its end included; `log_likelihood` is the
    mean per token under teacher forcing; `mistakes` are triples of source, decoded text and target."""

    setting: str
    sequences: int
    exact: float
    tokens: float
    log_likelihood: float
    mistakes: list[tuple[str, str, str]]


@dataclass(frozen=True)
class SequenceEvaluation(Evaluation):
    """A model of sequences, and the held-out parts of its data."""

    model: Seq2Seq
    stream: Dates
    batches: int = 160
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        years = {"first_year": self.stream.first_year, "last_year": self.stream.last_year}
        return {"data": {"name": "dates", **years}, "budget": {"sequences": self.batches * _BATCH}}

    @torch.no_grad()
    def score(self, show_progress: bool = False) -> list[SequenceScores]:
        model, rows = self.model.eval(), []
        with progress("evaluate", len(_SETTINGS) * self.batches, show_progress) as tick:
            for setting, part in _SETTINGS.items():
                stream = replace(self.stream, part=part, batch=_BATCH, seed=self.seed)
                exact, correct, counted, likelihood, mistakes = 0, 0, 0, 0.0, []
                for step in range(self.batches):
                    batch, pairs = stream.task(step), stream.pairs(step)
                    decoded = model.greedy(batch.source, batch.target.shape[1])
                    right = _compare(decoded, batch.target)
                    exact += int(right.all(1).sum())
                    valid = batch.target != PADDING
                    correct, counted = correct + int((right & valid).sum()), counted + int(valid.sum())
                    likelihood += float(teacher_forcing(model, batch).mean())
                    for row in (~right.all(1)).nonzero()[:, 0].tolist():
                        mistakes.append((pairs[row][0], stream.target.decode(decoded[row : row + 1])[0], pairs[row][1]))
                    tick()
                number = self.batches * _BATCH
                rows.append(
                    SequenceScores(
                        setting, number, exact / number, correct / counted, likelihood / self.batches, mistakes
                    )
                )
        return rows

    def draw(self, folder: Path, scores: list[SequenceScores]) -> list[Path]:
        """Draw the attention of each decoder layer to one source."""
        return [
            draw_cross_attention(folder / "attention.png", self.model, _DRAWN, self.stream.source, self.stream.target)
        ]

    def tables(self, name: str, scores: list[SequenceScores]) -> list[ResultTable]:
        rows = [
            (
                row.setting, f"{format_percent(row.exact, 2)} ± {format_percent(_error(row), 2)}",
                format_percent(row.tokens, 3), format_score(row.log_likelihood),
            )
            for row in scores
        ]  # fmt: skip
        caption = (
            "Greedy decoding. An exact match has every token right, the end included; ± one standard error. Likelihood "
            "in nats per token, with teacher forcing."
        )
        columns = ("dates", "exact matches, %", "tokens right, %", "log-likelihood")
        title = f"{name}: {scores[0].sequences:,} sequences of each kind"
        mistakes = [mistake for row in scores for mistake in row.mistakes[:_MAX_MISTAKES]]
        tables = [ResultTable(title, columns, rows, caption)]
        return (
            [*tables, ResultTable("some mistakes", ("source", "decoded", "target"), mistakes)] if mistakes else tables
        )


def _error(row: SequenceScores) -> float:
    return math.sqrt(row.exact * (1 - row.exact) / row.sequences)


def _compare(decoded: Int64[Tensor, "b n"], target: Int64[Tensor, "b m"]) -> Tensor:
    """Return which tokens of the target [b m] are decoded; a shorter result is padded."""
    missing = target.shape[1] - decoded.shape[1]
    return torch.nn.functional.pad(decoded, (0, max(missing, 0)), value=PADDING)[:, : target.shape[1]] == target


def open_sequences(folder: str | os.PathLike, batches: int = 160, seed: int = 0) -> SequenceEvaluation | None:
    """Open the model of sequences in a run or saved folder, if any, with the held-out data of its recipe."""
    path = locate(folder)
    run = find_run(path)
    if run is None and not (path / "model.safetensors").exists():
        return None
    model: Any = load(path)
    if not isinstance(model, Seq2Seq):
        return None
    stream: Any = Dates() if run is None else make_stream(run.recipe)
    if (model.dim_x, model.dim_y) != (stream.dim_x, stream.dim_y):
        raise InputError(
            f"{path} has {model.dim_x} source and {model.dim_y} target symbols, but dates have {stream.dim_x} and "
            f"{stream.dim_y}; decode data of your own with its method greedy"
        )
    return SequenceEvaluation(model, stream, batches, seed)


def draw_cross_attention(path: Path, model: Seq2Seq, text: str, source: Vocabulary, target: Vocabulary) -> Path:
    """Decode a text, and draw the weights with which each decoded token attends to its symbols, a panel per head."""
    tokens = source.encode([text])
    decoded = model.greedy(tokens)
    read = torch.cat([torch.ones_like(decoded[:, :1]), decoded[:, :-1]], 1)
    layers = model.align(tokens, read)
    written = [*target.name_tokens(decoded[0].tolist()), *(["end"] if END in decoded else [])]
    with style():
        figure = _draw_panels(layers, source.split(text), written)
        figure.suptitle(f"{text} → {target.decode(decoded)[0]}", x=0.01, ha="left")
    return save(figure, path)


def _draw_panels(layers: Sequence[Float[Tensor, "b h n m"]], read: list[str], written: list[str]) -> Any:
    heads = layers[0].shape[1]
    width, height = 0.9 + heads * (0.5 + 0.2 * len(read)), 1.0 + 0.2 * len(written)
    figure, grid = panels(len(layers), heads, width=width, height=height, sharex=True, sharey=True)
    for number, (row, weights) in enumerate(zip(grid, layers, strict=True), 1):
        for head, axes in enumerate(row):
            draw_alignment(axes, weights[0, head, : len(written)], read, written)
            axes.set_title(f"layer {number}, head {head + 1}")
    return figure
