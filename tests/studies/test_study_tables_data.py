"""The data of the study `tables`: splits, few labels, words and blanks, and what is wrong with a set."""

import numpy as np
import pytest
from support.study_files import compress, put

from fillin.cli import main
from fillin.errors import InputError
from fillin_studies.tables.data import FEW, SHIPPED, Set, find
from fillin_studies.tables.methods import METHODS, OURS
from fillin_studies.tables.score import ask

pytest_plugins = ["support.study_tables"]

pandas = pytest.importorskip("pandas")


def test_splits_are_those_that_are_given(sets_folder):
    data = find(sets_folder).sets["line"]
    assert data.splits == 2
    X, y, classes = data.rows
    assert (X.shape, classes, data.group) == ((40, 2), 0, "regression")
    for split in range(2):
        case = data.case(split)
        assert case.asked.index.tolist() == [i for i in range(40) if i % 4 == split]
        assert set(case.X.index) == set(range(40)) - set(case.asked.index)
        assert np.array_equal(case.truth, y[case.asked.index])
        assert np.array_equal(case.y, y[case.X.index])


def test_sets_of_scikit_learn_are_held_out_tenth_after_tenth_with_every_class_on_both_sides():
    for name in SHIPPED:
        data = Set(name)
        assert data.splits == data.masks.shape[1] == (5 if name == "digits" else 10)
        assert data.masks.mean() == pytest.approx(0.1, abs=0.01)
        assert len({data.masks[:, split].tobytes() for split in range(data.splits)}) == data.splits
        assert name == "digits" or (data.masks.sum(1) == 1).all()  # no row twice, none never
        case = data.case(2)
        if case.classes:
            assert len(np.unique(case.y)) == len(np.unique(case.truth)) == case.classes


def test_with_few_labels_the_others_are_given_without_and_asked_for():
    data = Set("digits", few=FEW)
    case = data.case(1)
    assert len(case.X) == 1797
    assert len(case.asked) == 1797 - FEW
    assert np.isnan(case.y[case.asked.index]).all()
    assert not np.isnan(case.truth).any()
    assert case.labelled.X.shape[0] == len(case.labelled.y) == FEW
    assert len(np.unique(case.labelled.y)) == 10
    assert data.group == "few labels"


def test_words_are_classes_and_blanks_are_blank(tmp_path):
    rows = [f"{'' if i == 5 else i},{'red' if i % 2 else ''},{'yes' if i % 2 else 'no'}" for i in range(24)]
    data = Set("mixed", put(tmp_path / "mixed", rows))
    X, y, classes = data.rows
    assert (classes, data.group) == (2, "classification")
    assert y.tolist() == [0, 1] * 12
    assert np.isnan(X.x0[5])
    for name, one in METHODS.items():
        if name != OURS and not one.missing:
            found = ask(one, data.case(0), 0)
            assert 0 <= found["accuracy"] <= 1, name


def test_what_is_wrong_with_the_data_is_said(tmp_path, sets_folder, capsys):
    with pytest.raises(InputError, match="no such folder"):
        find(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no NAME/data"):
        find(sets_folder / "line")
    for number, (rows, masks, words) in enumerate(
        [
            (["1,2", "3,"], None, "line 2: no target"),
            (["1", "3"], None, "one column"),
            (["1,2", "3,4"], ["1"], "has 1 rows, and data.csv.gz beside it 2"),
            (["1,2", "3,4"], ["1", "2"], "line 2, column 1: .*neither 0 nor 1"),
            (["1,2", "3,4"], ["1", "1"], "column 1: a split needs rows to learn from"),
        ]
    ):
        place = put(tmp_path / str(number), rows)
        if masks:
            compress(place / "test_mask.csv.gz", masks)
        with pytest.raises(InputError, match=words):
            Set("bad", place).case(0)
    (sets_folder / "line" / "data.csv.gz").write_bytes(b"no archive")
    assert main(["study", "tables", "--data", str(sets_folder)]) == 2
    assert "cannot be read as CSV" in capsys.readouterr().err
