"""Batches are prefetched in order, and validation data and random states are separate from them."""

import time

import pytest
import torch
from support.helpers import SMALL, count_prefetch_threads

from fillin.data import Task, curves
from fillin.data.task import make_generator
from fillin.train import read_recipe
from fillin.train.loop import HELD_OUT, prefetch, seed_step
from fillin.train.recipe import make_stream


def test_validation_tasks_are_never_trained_on():
    stream = make_stream(read_recipe(SMALL))
    inputs = [
        {tuple(curves(seed=seed, batch=1).task(step).xc[0, :3, 0].tolist()) for step in range(300)}
        for seed in (stream.seed, stream.seed + HELD_OUT)
    ]
    assert not inputs[0] & inputs[1]


def test_the_random_state_of_a_step_is_not_that_of_its_data():
    for seed, step in ((0, 0), (3, 5)):
        seed_step(seed, step)
        draws = torch.rand(4)
        assert not torch.equal(draws, torch.rand(4, generator=make_generator(seed, step)))
        seed_step(seed, step, rank=1)
        assert not torch.equal(draws, torch.rand(4))
        seed_step(seed, step)
        assert torch.equal(draws, torch.rand(4))


@pytest.mark.parametrize("start", [0, 17])
def test_prefetching_keeps_the_order_of_the_stream(start):
    stream, batches = curves(batch=2), prefetch(curves(batch=2), start, ahead=3)
    for step in range(start, start + 10):
        assert torch.equal(next(batches).yt, stream.task(step).yt)
    assert count_prefetch_threads() == 1
    batches.close()
    assert count_prefetch_threads() == 0


def test_an_error_of_the_stream_is_raised_at_its_batch():
    class BrokenStream:
        batch = 2

        def task(self, step: int) -> Task:
            if step == 3:
                raise RuntimeError("no batch 3")
            return curves(batch=2).task(step)

    batches = prefetch(BrokenStream(), 0)
    for _ in range(3):
        next(batches)
    with pytest.raises(RuntimeError, match="no batch 3"):
        next(batches)
    assert count_prefetch_threads() == 0


def test_prefetching_stops_when_its_buffer_is_full():
    class CountingStream:
        batch, calls = 2, 0

        def task(self, step: int) -> Task:
            self.calls += 1
            return curves(batch=2).task(step)

    stream = CountingStream()
    batches = prefetch(stream, 0, ahead=2)
    next(batches)
    time.sleep(0.3)
    assert stream.calls <= 4
    batches.close()
