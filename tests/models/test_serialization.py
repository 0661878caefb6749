"""Saved and loaded models predict the same, and files of other programs are refused."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.helpers import random_task

import fillin
from fillin.errors import FillinError
from fillin.models import names


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loaded_model_predicts_the_same_bytes(name, dtype, tmp_path):
    model = fillin.create(name, dim_y=2, size="small").to(dtype)
    task = random_task(dim_y=2, dtype=dtype)
    loaded = fillin.load(fillin.save(model, tmp_path / "model"))
    assert torch.equal(model(*task.inputs).mean, loaded(*task.inputs).mean)
    assert torch.equal(model(*task.inputs).stddev, loaded(*task.inputs).stddev)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_options_are_restored(tmp_path):
    model = fillin.create("te-tnp", dim_x=2, size="small", score="rbf", span={"init": 0.7}, radial=True)
    loaded = fillin.load(fillin.save(model, tmp_path))
    assert loaded.config == model.config
    assert loaded.blocks[0].attention.span.covariance == "isotropic"


def test_unreadable_models_are_errors(tmp_path):
    with pytest.raises(FillinError, match=r"model\.safetensors is not a readable model"):
        fillin.load(tmp_path / "nowhere")
    folder = fillin.save(fillin.create("cnp", size="small"), tmp_path / "m")
    path, config = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    weights, good = {name: t.clone() for name, t in load_file(path).items()}, path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(FillinError, match="not a readable model"):
        fillin.load(folder)
    for metadata, message in (
        ({**config, "size": "base"}, "do not fit"),
        ({**config, "format": 99}, "another program or version"),
        ({**config, "model": "cpn"}, "did you mean 'cnp'"),
        (None, "another program or version"),
    ):
        save_file(weights, path, {"fillin": json.dumps(metadata)} if metadata else None)
        with pytest.raises(FillinError, match=message):
            fillin.load(folder)


def test_weights_and_configuration_are_one_file(tmp_path, monkeypatch):
    """After a kill between the two files of a save, the folder has one complete model: the new one."""
    folder = fillin.save(fillin.create("cnp", size="small"), tmp_path / "m")
    replaced, real_replace = [], os.replace

    def replace_once(source, target):
        if replaced:
            raise OSError("killed")
        replaced.append(target)
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", replace_once)
    with pytest.raises(FillinError, match="killed"):
        fillin.save(fillin.create("tnp-d", size="small"), folder)
    assert fillin.load(folder).config["model"] == "tnp-d"


def test_models_that_cannot_be_saved(tmp_path):
    model = fillin.create("te-tnp", size="small", score=lambda heads, *_: fillin.attention.RBF(heads))
    with pytest.raises(FillinError, match="give options by name"):
        fillin.save(model, tmp_path / "m")
    (tmp_path / "file").write_text("")
    with pytest.raises(FillinError, match="cannot write"):
        fillin.save(fillin.create("cnp", size="small"), tmp_path / "file" / "m")


def test_a_failed_save_keeps_the_old_model(tmp_path, monkeypatch):
    folder = fillin.save(fillin.create("cnp", size="small"), tmp_path / "m")
    before = (folder / "model.safetensors").read_bytes()

    def raise_disk_full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", raise_disk_full)
    with pytest.raises(FillinError, match="No space left"):
        fillin.save(fillin.create("cnp", size="small"), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(list(folder.iterdir())) == 2
