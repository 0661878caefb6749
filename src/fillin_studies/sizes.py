"""S2: how wide, how many heads, how wide a head? Around one million parameters, then a search over all three."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from fillin.models import SIZES, Process, create
from fillin.plots import BLUE, FAINT, GREEN, ORANGE, panels, save, style
from fillin.train.recipe import Recipe
from fillin_studies.base import Cell, Report, Scale, Settings, Study, Work, average
from fillin_studies.measures import shifted

MILLION = 1_000_000
BASE = {"width": SIZES["1m"]["width"], "heads": SIZES["1m"]["heads"], "head_dim": 16}
AROUND = {"width": (32, 64, 96, 256), "head_dim": (4, 8, 32), "heads": (1, 2, 5, 20)}
SEARCH = {"width": (64, 96, 128, 160, 192, 256), "head_dim": (8, 16, 32), "heads": (2, 4, 8, 12, 16)}
TITLES = {"width": "token width", "head_dim": "head width", "heads": "heads"}


def variants(quick: bool) -> Mapping[str, Settings]:
    """The model of a million parameters, and those that differ from it in one of the three."""
    changed = [BASE, *({**BASE, name: value} for name, values in AROUND.items() for value in values)]
    return {_name(some): _settings(some, SIZES["1m"]["layers"]) for some in changed}


def explore(work: Work) -> Iterator[Cell]:
    """Optuna over all three, with as many layers as bring the model to a million parameters.

    Trials live in a journal in the study's folder, or in `storage`, which processes and machines may share. A trial
    is a cell named by its numbers, so that one that was interrupted goes on when it is proposed again.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = work.study.scale(work.quick).trials
    storage = work.storage or optuna.storages.JournalStorage(JournalFileBackend(str(work.folder / "optuna.journal")))
    # no seed: processes that share a study must not propose the same; the liar keeps them off what is in training
    sampler = optuna.samplers.TPESampler(constant_liar=True, n_startup_trials=max(4, trials // 10))
    search = optuna.create_study(
        study_name=f"fillin-sizes-{'quick' if work.quick else 'full'}", storage=storage, sampler=sampler,
        direction="maximize", load_if_exists=True,
    )  # fmt: skip
    for left in search.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if len(left.params) == len(SEARCH):  # of a process that was killed, or is at work: its cell is locked then
            yield (cell := _cell(work, left.params))
            if cell.done:
                _tell(search, left.number, cell)
    for _ in range(4 * trials):  # the same numbers may be proposed again, and are not trained again
        if len({tuple(t.params.items()) for t in search.get_trials(states=(TrialState.COMPLETE,))}) >= trials:
            return
        trial = search.ask()
        numbers = {name: trial.suggest_categorical(name, choices) for name, choices in SEARCH.items()}
        yield (cell := _cell(work, numbers))
        _tell(search, trial.number, cell)


def _tell(search, trial: int, cell: Cell) -> None:
    """The validation of a trial, not the score that the report tells; nothing of one that failed or is another's."""
    from optuna.trial import TrialState

    if cell.done and not cell.failed:
        search.tell(trial, cell.result["validation"], skip_if_finished=True)
    else:
        search.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def _cell(work: Work, numbers: Mapping[str, Any]) -> Cell:
    """Each layer has as many parameters: two models tell the rest."""
    sized = {**numbers, "hidden": 2 * numbers["width"]}
    one, two = (sum(p.numel() for p in create("te-tnp", **sized, layers=n).parameters()) for n in (1, 2))
    layers = min(range(1, 25), key=lambda layers: abs(one + (layers - 1) * (two - one) - MILLION))
    return work.cell(f"1m {_name(numbers)} layers={layers}", 0, _settings(numbers, layers))


def _name(numbers: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={numbers[name]}" for name in BASE)


def _settings(numbers: Mapping[str, Any], layers: int) -> Settings:
    sized = {f"model.{name}": value for name, value in numbers.items()}
    return {**sized, "model.hidden": 2 * numbers["width"], "model.layers": layers}


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    return shifted(model, recipe, 200 if quick else 4000, shift=4.0)


def report(cells: Sequence[Cell], folder: Path) -> Report:
    score, parameters, steps = (average(cells, key) for key in ("log_likelihood", "parameters", "steps"))
    ranked = sorted(score, key=score.__getitem__, reverse=True)
    kinds = {  # what was chosen before any score was known, and what the search went for: ranked apart
        "declared": [name for name in ranked if "layers=" not in name],
        "searched": [name for name in ranked if "layers=" in name],
    }
    shown = {cell.variant: cell.recipe["model"] for cell in cells}
    rows = [
        (
            f"{m['width']} × {m['heads']} heads of {m['head_dim']}, {m['layers']} layers",
            kind, round(parameters[name]), round(steps[name]), score[name],
        )
        for kind, names in kinds.items() for name in names for m in (shown[name],)
    ]  # fmt: skip
    findings = []
    for kind, about in (("declared", "one number changed each"), ("searched", "a million parameters each")):
        if own := [row for row in rows if row[1] == kind]:
            best, worst = (f"{row[0]} ({row[2]:,} parameters, {row[4]:.3f})" for row in (own[0], own[-1]))
            findings.append(f"Of {len(own)} {kind} models ({about}) the best is **{best}**, the worst {worst}.")
    for name in AROUND:
        if line := _line(score, name):
            told, top = ", ".join(f"{v}: {s:.3f}" for v, s in line.items()), max(line, key=line.__getitem__)
            findings.append(f"By {TITLES[name]} alone: {told}; best {top}.")
    _draw(score, parameters, kinds, folder)
    caption = "What each of the three does alone, around the model of a million parameters, and all models by size."
    columns = ("model", "declared or searched", "parameters", "steps", "log-likelihood")
    return Report(findings, columns, rows, {"sizes.png": caption})


def _line(score: Mapping[str, float], name: str) -> dict[int, float]:
    """The score by the values of one of the three, the others as in BASE; without those that diverged."""
    tried = {value: _name({**BASE, name: value}) for value in sorted((*AROUND[name], BASE[name]))}
    return {value: score[variant] for value, variant in tried.items() if variant in score}


def _draw(
    score: Mapping[str, float], parameters: Mapping[str, float], kinds: Mapping[str, Sequence[str]], folder: Path
) -> None:
    with style():
        figure, [axes] = panels(1, 4, width=12.0, height=2.9, sharey=True)
        for panel, name in zip(axes, AROUND, strict=False):
            line = _line(score, name)
            panel.plot(list(line), list(line.values()), "o-", color=BLUE, markersize=4)
            if (base := BASE[name]) in line:
                panel.plot([base], [line[base]], "o", color=ORANGE, markersize=6, label="one million")
            panel.set_xscale("log", base=2)
            panel.set_xticks(list(line), [str(value) for value in line])
            panel.minorticks_off()
            panel.set_xlabel(TITLES[name])
            panel.margins(x=0.06)
        axes[0].set_ylabel("log-likelihood per target")
        axes[0].legend(loc="best")
        for (kind, names), ink in zip(kinds.items(), (FAINT, GREEN), strict=True):
            if names:
                axes[3].plot([parameters[n] for n in names], [score[n] for n in names], "o", color=ink, label=kind)
        axes[3].set_xscale("log")
        axes[3].xaxis.set_minor_formatter(NullFormatter())
        axes[3].xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes[3].xaxis.set_major_formatter(EngFormatter(sep=""))
        axes[3].margins(x=0.06)
        axes[3].set_xlabel("parameters")
        axes[3].legend(loc="best")
        save(figure, folder / "sizes.png")


STUDY = Study(
    name="sizes",
    line="token width, head width and number of heads around one million parameters",
    question="A te-tnp of a million parameters (160 wide, 10 heads of 16, 5 layers), one of its three numbers changed "
    "at a time, then Optuna over all three with as many layers as a million parameters allow; all at equal time. "
    "Log-likelihood per target in nats, higher is better.",
    recipe={
        "data.function": "rbf",
        "data.protocol": "tnp",
        "model.name": "te-tnp",
        "model.size": "1m",
        "keep.validations": 10,
    },
    variants=variants,
    quick=Scale({"budget.time": "45s"}, 1, "quick: 45 seconds each on one thread.", trials=8),
    full=Scale({"budget.time": "1h", "optimiser.rate": 1e-3}, 3, "full: an hour each.", trials=100),
    measure=measure,
    report=report,
    explore=explore,
)
