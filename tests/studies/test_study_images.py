"""The study of image completion: equivariance to shifts, patterns of observed pixels, and sources of images."""

import pytest
import torch

import fillin
from fillin.data.images import Images
from fillin.evaluate.image_completion import OBSERVED, CompletionEvaluation, open_test_images
from fillin_studies import get
from fillin_studies.images import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_equivariant_models_complete_a_shifted_image_alike(name):
    torch.manual_seed(0)
    options = {"network": "cnn", "depth": 2, "points_per_unit": 2.0} if name == "convcnp" else {}
    model = fillin.create(name, 2, 1, "small", **options).eval()
    change = CompletionEvaluation(model, "digits").shift_error()
    if model.equivariant:
        assert change < 1e-5
    else:
        assert change > 1e-3


def test_every_pattern_predicts_all_pixels_of_held_out_images():
    for pattern in OBSERVED.values():
        task = open_test_images("digits", pattern).task(0)
        assert task.xt.shape[1] == 64
        assert 0 < task.xc.shape[1] < 64
    assert len(open_test_images("digits", "top").images) < len(Images("digits").images)


def test_the_images_of_a_folder_are_for_the_full_budget(tmp_path):
    (tmp_path / "mnist").mkdir()
    study = get("images", tmp_path)
    assert {settings["data.source"] for settings in study.variants(False).values()} == {str(tmp_path / "mnist")}
    assert {settings["data.source"] for settings in study.variants(True).values()} == {"digits"}
    assert "mnist" in study.full.about
