"""The comparisons of the literature, each a command: `fillin study NAME`."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from fillin.errors import InputError, choose
from fillin_studies.base import RecipeSettings, Study
from fillin_studies.run import open_study, run_study

STUDIES = (
    "te-scores", "sizes", "conv-or-transformer", "attention-helps", "dimensions", "fill", "sheets",
    "unseen-sheets", "wide-gaps", "slices", "tables", "imputes", "uses-rows", "images", "positions-and-span",
    "recent-models",
)  # fmt: skip

__all__ = ["STUDIES", "Study", "get", "open_study", "run_study", "select_variants"]


def get(name: str, data: Path | None = None, repeats: int | None = None, model: str | None = None) -> Study:
    """Return the study of that name, with the data of a folder; `repeats` replaces its number of masks or seeds, and
    `model` the weights that ship."""
    import_module(f"fillin_studies.{choose('study', name, STUDIES).replace('-', '_')}")
    study = Study.classes[name](data, repeats)
    return study if model is None else study.with_model(model)


def select_variants(study: Study, words: Sequence[str]) -> Study:
    """Return the study with only those variants whose name, or the end of it after a comma, is one of `words`."""

    def matches(word: str, name: str) -> bool:
        return f", {name}".endswith(f", {word}")

    names = dict.fromkeys([*study.variants(True), *study.variants(False)])
    for word in words:
        if not any(matches(word, name) for name in names):
            raise InputError(f"the study {study.name} has no variant {word!r}; it has {'; '.join(names)}")

    def variants(quick: bool) -> Mapping[str, RecipeSettings]:
        every = study.variants(quick)
        return {name: settings for name, settings in every.items() if any(matches(word, name) for word in words)}

    return study.replaced(variants=variants)
