"""Token width, number of heads and head width of te-tnp: around one million parameters, then by a search."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from fillin.models import SIZES, Process, create
from fillin.plots import BLUE, FAINT, GREEN, ORANGE
from fillin.train.recipe import Recipe
from fillin_studies import base
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy
from fillin_studies.curves import drawing, score_shifted
from fillin_studies.run import StudyRun

PARAMETERS = 1_000_000
BASE = {"width": SIZES["1m"]["width"], "heads": SIZES["1m"]["heads"], "head_dim": 16}
AROUND = {"width": (32, 64, 96, 256), "head_dim": (4, 8, 32), "heads": (1, 2, 5, 20)}
SEARCH = {"width": (64, 96, 128, 160, 192, 256), "head_dim": (8, 16, 32), "heads": (2, 4, 8, 12, 16)}
TITLES = {"width": "token width", "head_dim": "head width", "heads": "heads"}


class SizeStudy(TrainingStudy):
    name = "sizes"
    title = "token width, head width and number of heads around one million parameters"
    question = (
        "A te-tnp of a million parameters (160 wide, 10 heads of 16, 5 layers), one of its three numbers changed at a "
        "time, then Optuna over all three with as many layers as a million parameters allow; all at equal time. "
        "Log-likelihood per target in nats, higher is better."
    )
    recipe: ClassVar[RecipeSettings] = {
        "data.function": "rbf", "data.protocol": "tnp", "model.name": "te-tnp", "model.size": "1m",
        "keep.validations": 10,
    }  # fmt: skip
    quick = StudyScale({"budget.time": "45s"}, 1, "quick: 45 seconds each on one thread.", trials=8)
    full = StudyScale({"budget.time": "1h", "optimiser.rate": 1e-3}, 3, "full: an hour each.", trials=100)
    searches = True

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """The model of a million parameters, and those that differ from it in one of the three numbers."""
        changed = [BASE, *({**BASE, name: value} for name, values in AROUND.items() for value in values)]
        return {name_size(numbers): _make_settings(numbers, SIZES["1m"]["layers"]) for numbers in changed}

    def explore(self, run: StudyRun) -> Iterator[StudyCell]:
        """Search over all three numbers with Optuna. A trial is a cell named by its numbers: one that was interrupted
        resumes when it is proposed again."""
        import optuna
        from optuna.storages.journal import JournalFileBackend
        from optuna.trial import TrialState

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        trials = self.scale(run.quick).trials
        storage = run.storage or optuna.storages.JournalStorage(JournalFileBackend(str(run.folder / "optuna.journal")))
        # no seed: processes that share a study must not propose the same; the constant liar avoids running trials
        sampler = optuna.samplers.TPESampler(constant_liar=True, n_startup_trials=max(4, trials // 10))
        search = optuna.create_study(
            study_name=f"fillin-sizes-{'quick' if run.quick else 'full'}", storage=storage, sampler=sampler,
            direction="maximize", load_if_exists=True,
        )  # fmt: skip
        for trial in search.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if len(trial.params) == len(SEARCH):  # of a process that was killed, or still runs: then its cell is locked
                yield (cell := _make_sized_cell(run, trial.params))
                if cell.done:
                    _tell_result(search, trial.number, cell)
        for _ in range(4 * trials):  # numbers that are proposed again are not trained again
            if len({tuple(t.params.items()) for t in search.get_trials(states=(TrialState.COMPLETE,))}) >= trials:
                return
            trial = search.ask()
            numbers = {name: trial.suggest_categorical(name, choices) for name, choices in SEARCH.items()}
            yield (cell := _make_sized_cell(run, numbers))
            _tell_result(search, trial.number, cell)

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        return score_shifted(model, recipe, 200 if quick else 4000)

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        score, parameters, steps = (
            base.mean_over_seeds(cells, key) for key in ("log_likelihood", "parameters", "steps")
        )
        ranked = sorted(score, key=score.__getitem__, reverse=True)
        kinds = {  # declared before any score was seen, and proposed by the search: ranked apart
            "declared": [name for name in ranked if "layers=" not in name],
            "searched": [name for name in ranked if "layers=" in name],
        }
        models = {cell.variant: cell.recipe["model"] for cell in cells}
        rows = [
            (
                f"{m['width']} × {m['heads']} heads of {m['head_dim']}, {m['layers']} layers",
                kind, round(parameters[name]), round(steps[name]), score[name],
            )
            for kind, names in kinds.items() for name in names for m in (models[name],)
        ]  # fmt: skip
        findings = []
        for kind, about in (("declared", "one number changed each"), ("searched", "a million parameters each")):
            if of_kind := [row for row in rows if row[1] == kind]:
                best, worst = (f"{row[0]} ({row[2]:,} parameters, {row[4]:.3f})" for row in (of_kind[0], of_kind[-1]))
                findings.append(f"Of {len(of_kind)} {kind} models ({about}) the best is **{best}**, the worst {worst}.")
        for name in AROUND:
            if line := _scores_along(score, name):
                scores, best = ", ".join(f"{v}: {s:.3f}" for v, s in line.items()), max(line, key=line.__getitem__)
                findings.append(f"By {TITLES[name]} alone: {scores}; best {best}.")
        _draw(score, parameters, kinds, folder)
        caption = "Effect of each number alone, around the model of a million parameters, and all models by size."
        columns = ("model", "declared or searched", "parameters", "steps", "log-likelihood")
        return StudyReport(findings, columns, rows, {"sizes.png": caption})


def _tell_result(search, trial: int, cell: StudyCell) -> None:
    """Report the validation score to Optuna, or a failure where another process computes the trial."""
    from optuna.trial import TrialState

    measured = cell.done and not cell.failed
    result = {"values": cell.result["validation"]} if measured else {"state": TrialState.FAIL}
    search.tell(trial, **result, skip_if_finished=True)


def _make_sized_cell(run: StudyRun, numbers: Mapping[str, Any]) -> StudyCell:
    """Choose the number of layers. All layers have equally many parameters: two models give their number."""
    sized = {**numbers, "hidden": 2 * numbers["width"]}
    one_layer, two_layers = (base.count_parameters(create("te-tnp", **sized, layers=n)) for n in (1, 2))
    per_layer = two_layers - one_layer
    layers = min(range(1, 25), key=lambda layers: abs(one_layer + (layers - 1) * per_layer - PARAMETERS))
    return run.cell(f"1m {name_size(numbers)} layers={layers}", 0, _make_settings(numbers, layers))


def name_size(numbers: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={numbers[name]}" for name in BASE)


def _make_settings(numbers: Mapping[str, Any], layers: int) -> RecipeSettings:
    sized = {f"model.{name}": value for name, value in numbers.items()}
    return {**sized, "model.hidden": 2 * numbers["width"], "model.layers": layers}


def _scores_along(score: Mapping[str, float], name: str) -> dict[int, float]:
    """Return scores by the values of one number, the others as in BASE; without those that diverged."""
    variants = {value: name_size({**BASE, name: value}) for value in sorted((*AROUND[name], BASE[name]))}
    return {value: score[variant] for value, variant in variants.items() if variant in score}


def _draw(
    score: Mapping[str, float], parameters: Mapping[str, float], kinds: Mapping[str, Sequence[str]], folder: Path
) -> None:
    with drawing(folder / "sizes.png", 1, 4, width=12.0, height=2.9, sharey=True) as (_, [axes]):
        for panel, name in zip(axes, AROUND, strict=False):
            line = _scores_along(score, name)
            panel.plot(list(line), list(line.values()), "o-", color=BLUE, markersize=4)
            if (start := BASE[name]) in line:
                panel.plot([start], [line[start]], "o", color=ORANGE, markersize=6, label="one million")
            panel.set_xscale("log", base=2)
            panel.set_xticks(list(line), [str(value) for value in line])
            panel.minorticks_off()
            panel.set(xlabel=TITLES[name], xmargin=0.06)
        axes[0].set_ylabel("log-likelihood per target")
        axes[0].legend(loc="best")
        for (kind, names), colour in zip(kinds.items(), (FAINT, GREEN), strict=True):
            if names:
                axes[3].plot([parameters[n] for n in names], [score[n] for n in names], "o", color=colour, label=kind)
        axes[3].set_xscale("log")
        axes[3].xaxis.set_minor_formatter(NullFormatter())
        axes[3].xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes[3].xaxis.set_major_formatter(EngFormatter(sep=""))
        axes[3].set(xlabel="parameters", xmargin=0.06)
        axes[3].legend(loc="best")
