"""Arrays of NumPy: locations are the numbers of rows and columns."""

import os
import re

import numpy as np
import pytest
from support.fields_with_gaps import PARTS, waves

import fillin
from fillin.errors import FillinError
from fillin.filling.grid.sources import FilledArray

pytest_plugins = ["support.field_command"]


@pytest.fixture(scope="module")
def curve_folder(tmp_path_factory):
    small = fillin.create("filler", size="small", layers=1, width=16, heads=2, hidden=16)
    return fillin.save(small, tmp_path_factory.mktemp("curve") / "model")


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_four_arrays_come_out(ending, tmp_path, command):
    values, path = waves(9, 14).astype("f4"), tmp_path / f"data{ending}"
    if ending == ".npy":
        np.save(path, values)
    else:
        np.savez(path, y=values, other=np.arange(3), whole=np.ones(4))
    printed, _ = command(path, "--figure")
    assert "over 0 (9) × 1 (14)" in printed
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, "data.filled.npz", "data.filled.png"])
    with np.load(tmp_path / "data.filled.npz") as file:
        assert file.files == PARTS
        result = {part: file[part] for part in PARTS}
    observed = ~np.isnan(values)
    for part in result.values():
        assert part.shape == values.shape
        assert part.dtype == np.float32
        assert np.isfinite(part).all()
    for part in ("filled", "low", "high"):
        assert (result[part][observed] == values[observed]).all()
    assert ((result["std"] == 0) == observed).all()


def test_python_gives_the_same_and_leaves_the_array_alone(tmp_path, command, model):
    values = waves(9, 14)
    before = values.copy()
    result = fillin.fill(values, model=model)
    assert isinstance(result, FilledArray)
    np.testing.assert_array_equal(values, before)
    np.save(tmp_path / "a.npy", values)
    command(tmp_path / "a.npy")
    with np.load(tmp_path / "a.filled.npz") as file:
        for part in PARTS:
            np.testing.assert_allclose(file[part], getattr(result, part), rtol=1e-5)


def test_three_dimensions_are_slices_unless_requested_otherwise(model):
    values = waves(3, 8, 9, share=0.2)
    values[:, 0, 0] = np.nan
    result = fillin.fill(values, model=model)
    always = np.isnan(values).all(0)
    assert (np.isnan(result.filled) == always).all()
    assert always[0, 0]
    whole = fillin.fill(values, model=model, fill_always_missing=True)
    assert np.isfinite(whole.filled).all()
    alone = fillin.fill(values[1], model=model)
    np.testing.assert_allclose(whole.filled[1], alone.filled, rtol=1e-4)
    other = fillin.fill(values, model=model, over=[0, 2], fill_always_missing=True)
    np.testing.assert_allclose(other.filled[:, 3], fillin.fill(values[:, 3], model=model).filled, rtol=1e-3)


def test_a_mask_and_a_masked_array(model, tmp_path, command):
    values = waves(9, 14)
    free = np.ones((9, 14), dtype=int)
    free[:4] = 0
    result = fillin.fill(values, model=model, mask=free)
    assert (np.isnan(result.filled) == (np.isnan(values) & (free == 0))).all()
    hidden = np.ma.masked_invalid(values)
    np.testing.assert_array_equal(fillin.fill(hidden, model=model).filled, fillin.fill(values, model=model).filled)
    whole = np.ma.masked_equal(np.arange(20).reshape(4, 5), 7)
    assert fillin.fill(whole, model=model).std[1, 2] > 0
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "mask.npy", free)
    command(tmp_path / "a.npy", "--mask", str(tmp_path / "mask.npy"))
    with np.load(tmp_path / "a.filled.npz") as file:
        np.testing.assert_array_equal(np.isnan(file["filled"]), np.isnan(result.filled))


def test_one_dimension(tmp_path, command, curve_folder):
    np.save(tmp_path / "a.npy", waves(60))
    command(tmp_path / "a.npy", "--model", str(curve_folder), "--report")
    with np.load(tmp_path / "a.filled.npz") as file:
        assert np.isfinite(file["filled"]).all()
    assert "over 0 (60)" in (tmp_path / "a.filled.html").read_text()


@pytest.mark.parametrize("values", [np.full((4, 5), 3.0), np.zeros((4, 5)), 1e30 * waves(4, 5), 1e-30 * waves(4, 5)])
def test_a_constant_and_extremes(values, model):
    values = values.copy()
    values[1, 1] = np.nan
    result = fillin.fill(values, model=model)
    assert all(np.isfinite(part).all() for part in result)


def test_one_observed_cell_is_enough(model):
    values = np.full((3, 4), np.nan)
    values[1, 2] = 5
    assert np.isfinite(fillin.fill(values, model=model).filled).all()


def test_nothing_missing(tmp_path, command, model):
    whole = np.ones((3, 4))
    result = fillin.fill(whole, model=model)
    assert (result.std == 0).all()
    np.save(tmp_path / "a.npy", np.arange(12).reshape(3, 4))
    assert "nothing is missing" in command(tmp_path / "a.npy")[0]
    assert os.listdir(tmp_path) == ["a.npy"]


def test_an_array_that_holds_objects_is_never_loaded(tmp_path, command):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    for name, write in (("a.npy", np.save), ("b.npz", lambda path, a: np.savez(path, a=a))):
        write(tmp_path / name, np.array([Trap()], dtype=object))
        assert "Python objects, which are never loaded" in command(tmp_path / name, code=2)[1]
    assert not (tmp_path / "sprung").exists()


BAD = {
    "several": (
        {"a": waves(4, 5), "b": waves(4, 5)},
        [],
        r"2 arrays with missing cells \(a, b\); name one with --var",
    ),
    "no such array": ({"a": waves(4, 5), "b": waves(4, 5)}, ["--var", "c"], "unknown array of data.npz 'c'"),
    "text": ({"a": np.array(["x", "y"])}, ["--var", "a"], "variable 'a' has text"),
    "complex": ({"a": np.array([1j, 2])}, ["--var", "a"], "has complex128; only numbers"),
    "a number": ({"a": np.array(3.0)}, [], "is a single number"),
    "no cells": ({"a": np.empty((0, 4))}, [], "has no cells"),
    "all missing": ({"a": np.full((3, 3), np.nan)}, [], "is missing everywhere"),
    "infinity": ({"a": np.array([[np.inf, 1], [np.nan, 2]])}, [], r"at 0=0, 1=0: inf is not finite"),
    "four dimensions": ({"a": waves(2, 2, 3, 3)}, ["--over", "0,1,2,3"], "one, two or three dimensions"),
    "an axis that is none": ({"a": waves(4, 5)}, ["--over", "2"], "in --over, '2'"),
    "an option of tables": ({"a": waves(4, 5)}, ["--x", "t"], "--x does not apply to a field or array"),
    "another ending": ({"a": waves(4, 5)}, ["-o", "out.npy"], "written as .npz"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_clear_error_and_nothing_written(case, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays, words, message = BAD[case]
    np.savez(tmp_path / "data.npz", **arrays)
    _, wrong = command(tmp_path / "data.npz", *words, code=2)
    assert re.search(message, wrong), wrong
    assert os.listdir(tmp_path) == ["data.npz"]


def test_files_of_another_format(tmp_path, command):
    assert "there is no file" in command(tmp_path / "none.npy", code=2)[1]
    for name, raw in (("noise.npy", b"noise"), ("noise.npz", b"PK\x03\x04 noise"), ("empty.npy", b"")):
        (tmp_path / name).write_bytes(raw)
        assert f"{name} is not a readable NumPy file" in command(tmp_path / name, code=2)[1]
    np.save(tmp_path / "cut.npy", waves(40, 50))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-100])
    assert "cut.npy is not a readable NumPy file" in command(tmp_path / "cut.npy", code=2)[1]


@pytest.mark.usefixtures("unchecked")
def test_errors_of_python(model):
    with pytest.raises(FillinError, match="var names a variable of a dataset"):
        fillin.fill(waves(3, 4), var="a", model=model)
    with pytest.raises(FillinError, match="has 3 dimensions"):
        fillin.fill(waves(3, 4), mask=np.ones((2, 3, 4)), model=model)
    with pytest.raises(FillinError, match="they must match"):
        fillin.fill(waves(3, 4), mask=np.ones((3, 5)), model=model)
