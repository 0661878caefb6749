"""Save, load, the same bytes out; and what happens to files that are not ours."""

import json
import os

import pytest
import torch
from helpers import random_task

import fillin
from fillin.errors import FillinError
from fillin.models import names


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saved_and_loaded_it_predicts_the_same_bytes(name, dtype, tmp_path):
    model = fillin.create(name, dim_y=2, size="small").to(dtype)
    task = random_task(dim_y=2, dtype=dtype)
    again = fillin.load(fillin.save(model, tmp_path / "model"))
    assert torch.equal(model(*task.inputs).mean, again(*task.inputs).mean)
    assert torch.equal(model(*task.inputs).stddev, again(*task.inputs).stddev)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_options_come_back(tmp_path):
    model = fillin.create("te-tnp", dim_x=2, size="small", score="rbf", span={"init": 0.7}, radial=True)
    again = fillin.load(fillin.save(model, tmp_path))
    assert again.config == model.config
    assert again.blocks[0].attention.span.covariance == "isotropic"


def test_what_cannot_be_loaded(tmp_path):
    with pytest.raises(FillinError, match="not a readable model folder"):
        fillin.load(tmp_path / "nowhere")
    folder = fillin.save(fillin.create("cnp", size="small"), tmp_path / "m")
    weights, config = folder / "model.safetensors", folder / "config.json"
    good = weights.read_bytes()
    weights.write_bytes(good[: len(good) // 2])
    with pytest.raises(FillinError, match="not a readable model folder"):
        fillin.load(folder)
    weights.write_bytes(good)
    foreign = json.loads(config.read_text())
    config.write_text(json.dumps({**foreign, "size": "base"}))
    with pytest.raises(FillinError, match="do not fit"):
        fillin.load(folder)
    config.write_text(json.dumps({**foreign, "format": 99}))
    with pytest.raises(FillinError, match="another program or version"):
        fillin.load(folder)
    config.write_text("not json")
    with pytest.raises(FillinError, match="not a readable"):
        fillin.load(folder)


def test_what_cannot_be_saved(tmp_path):
    model = fillin.create("te-tnp", size="small", score=lambda heads, *_: fillin.attention.RBF(heads))
    with pytest.raises(FillinError, match="give options by name"):
        fillin.save(model, tmp_path / "m")
    (tmp_path / "file").write_text("")
    with pytest.raises(FillinError, match="cannot write"):
        fillin.save(fillin.create("cnp", size="small"), tmp_path / "file" / "m")


def test_a_failed_save_leaves_the_old_model(tmp_path, monkeypatch):
    folder = fillin.save(fillin.create("cnp", size="small"), tmp_path / "m")
    before = (folder / "model.safetensors").read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FillinError, match="No space left"):
        fillin.save(fillin.create("cnp", size="small"), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(list(folder.iterdir())) == 2
