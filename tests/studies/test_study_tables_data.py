"""The data of the study `tables`: splits, few labels, text and missing cells, and errors of invalid sets."""

import numpy as np
import pytest
from support.study_files import compress, write_data_set

from fillin.cli import main
from fillin.errors import InputError
from fillin_studies.tables.data import FEW_LABELS, SHIPPED, TableDataset, find_tables
from fillin_studies.tables.methods import METHODS, OURS

pytest_plugins = ["support.study_tables"]

pandas = pytest.importorskip("pandas")


def test_splits_are_those_of_the_mask_file(sets_folder):
    data = find_tables(sets_folder).sets["line"]
    assert data.n_splits == 2
    X, y, classes = data.rows
    assert (X.shape, classes, data.group) == ((40, 2), 0, "regression")
    for split in range(2):
        split_rows = data.split(split)
        assert split_rows.X_test.index.tolist() == [i for i in range(40) if i % 4 == split]
        assert set(split_rows.X.index) == set(range(40)) - set(split_rows.X_test.index)
        assert np.array_equal(split_rows.y_test, y[split_rows.X_test.index])
        assert np.array_equal(split_rows.y, y[split_rows.X.index])


def test_sets_of_scikit_learn_have_stratified_folds():
    for name in SHIPPED:
        data = TableDataset(name)
        assert data.n_splits == data.masks.shape[1] == (5 if name == "digits" else 10)
        assert data.masks.mean() == pytest.approx(0.1, abs=0.01)
        assert len({data.masks[:, split].tobytes() for split in range(data.n_splits)}) == data.n_splits
        assert name == "digits" or (data.masks.sum(1) == 1).all()  # no row twice, none never
        split_rows = data.split(2)
        if split_rows.n_classes:
            assert len(np.unique(split_rows.y)) == len(np.unique(split_rows.y_test)) == split_rows.n_classes


def test_with_few_labels_the_other_rows_are_unlabelled_queries():
    data = TableDataset("digits", few_labels=FEW_LABELS)
    split_rows = data.split(1)
    assert len(split_rows.X) == 1797
    assert len(split_rows.X_test) == 1797 - FEW_LABELS
    assert np.isnan(split_rows.y[split_rows.X_test.index]).all()
    assert not np.isnan(split_rows.y_test).any()
    assert split_rows.labelled.X.shape[0] == len(split_rows.labelled.y) == FEW_LABELS
    assert len(np.unique(split_rows.labelled.y)) == 10
    assert data.group == "few labels"


def test_text_columns_are_classes_and_empty_cells_are_missing(tmp_path):
    rows = [f"{'' if i == 5 else i},{'red' if i % 2 else ''},{'yes' if i % 2 else 'no'}" for i in range(24)]
    data = TableDataset("mixed", write_data_set(tmp_path / "mixed", rows))
    X, y, classes = data.rows
    assert (classes, data.group) == (2, "classification")
    assert y.tolist() == [0, 1] * 12
    assert np.isnan(X.x0[5])
    for name, method in METHODS.items():
        if name != OURS and not method.missing:
            scores = method.evaluate(data.split(0), 0)
            assert 0 <= scores["accuracy"] <= 1, name


def test_errors_of_invalid_data(tmp_path, sets_folder, capsys):
    with pytest.raises(InputError, match="no such folder"):
        find_tables(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no NAME/data"):
        find_tables(sets_folder / "line")
    for number, (rows, masks, message) in enumerate(
        [
            (["1,2", "3,"], None, "line 2: the target is missing"),
            (["1", "3"], None, "has one column"),
            (["1,2", "3,4"], ["1"], "has 1 rows, and data.csv.gz beside it 2"),
            (["1,2", "3,4"], ["1", "2"], "line 2, column 1: .*neither 0 nor 1"),
            (["1,2", "3,4"], ["1", "1"], "column 1: a split needs training rows"),
        ]
    ):
        folder = write_data_set(tmp_path / str(number), rows)
        if masks:
            compress(folder / "test_mask.csv.gz", masks)
        with pytest.raises(InputError, match=message):
            TableDataset("bad", folder).split(0)
    (sets_folder / "line" / "data.csv.gz").write_bytes(b"no archive")
    assert main(["study", "tables", "--data", str(sets_folder)]) == 2
    assert "cannot be read as CSV" in capsys.readouterr().err
