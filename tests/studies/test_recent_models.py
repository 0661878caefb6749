"""Counts of tokens and dependence on order, as the study of recent models measures them."""

import pytest
import torch
from support.helpers import tiny

import fillin
from fillin.train.recipe import read_recipe
from fillin_studies.recent_models import (
    MODELS,
    RIVALS,
    SAMPLES,
    TARGETS,
    count_tokens,
    measure_order,
    measure_sampling,
    measure_update,
)

LAYERS, POINTS = 3, 7


def make(name: str, **options):
    return tiny(name, dtype=torch.float32, **{"layers": LAYERS, **options})


def test_encoding_again_for_each_target_passes_the_context_each_time():
    """The last layer computes the target alone."""
    every = sum((LAYERS - 1) * (POINTS + i + 1) + 1 for i in range(TARGETS))
    assert measure_sampling(make("tnp-d"), POINTS)["tokens"] == SAMPLES * every


@pytest.mark.parametrize("name", ["inctnp", "tnp-buffer"])
def test_cached_samples_pass_the_context_once(name):
    """A step has the next target and, after the first, the last one. The context skips the last layer."""
    options = {} if name == "inctnp" else {"buffer": TARGETS}
    steps = SAMPLES * LAYERS * (2 * TARGETS - 1)
    assert measure_sampling(make(name, **options), POINTS)["tokens"] == (LAYERS - 1) * POINTS + steps


def test_a_full_buffer_passes_the_context_of_every_sample_again():
    half = TARGETS // 2
    encoded = (LAYERS - 1) * (POINTS + SAMPLES * (POINTS + half))
    steps = 2 * SAMPLES * LAYERS * (2 * half - 1)
    assert measure_sampling(make("tnp-buffer", buffer=half), POINTS)["tokens"] == encoded + steps


def test_an_update_passes_one_token_and_the_target():
    assert measure_update(make("inctnp"), POINTS)["tokens"] == LAYERS - 1 + LAYERS
    assert measure_update(make("tnp-d"), POINTS)["tokens"] == (LAYERS - 1) * (POINTS + 2) + 1


def test_counting_leaves_the_model_as_it_was():
    model, x = make("tnp-d"), torch.rand(1, 3, 1)
    first = count_tokens(model, lambda: model(x, x, x))
    assert count_tokens(model, lambda: fillin.sample(model, x, x, x[:, :0])) == 0
    assert count_tokens(model, lambda: model(x, x, x)) == first


def test_only_a_causal_context_depends_on_its_order():
    recipe = read_recipe({"model": {"name": "tnp-d"}}, ["--data.protocol=tnp", "--budget.steps=1"])
    assert measure_order(make("tnp-d"), recipe, 2) < 1e-4
    assert measure_order(make("inctnp"), recipe, 2) > 1e-3


def test_every_new_model_and_its_rivals_are_measured():
    assert {*RIVALS, *(name for rivals in RIVALS.values() for name in rivals)} == set(MODELS)
