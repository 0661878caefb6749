"""`fillin fill` of tables without an order: what is added, what is kept, and what happens to bad ones."""

import os
import re
import subprocess
import sys
from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fillin
from fillin.cli import main
from fillin.errors import FillinError, FillinWarning
from fillin.filling.tables import learn, plan

NUMBERS, CLASSES = ["filled", "std", "low", "high"], ["filled", "probability"]
FOUR = [f"a_{ending}" for ending in NUMBERS]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(learn, "FULL", learn.Size(2, 10))
    monkeypatch.setattr(learn, "TEST", learn.Size(2, 5))


@pytest.fixture
def fill(tmp_path, capsys, monkeypatch):
    """fill(content, *words): write a file, fill it; the code, what was said, and the output as text (None: none)."""
    monkeypatch.chdir(tmp_path)

    def run(content: str | bytes | pd.DataFrame, *words: str, picture: bool = False):
        raw = content.to_csv(index=False) if isinstance(content, pd.DataFrame) else content
        raw = raw.encode() if isinstance(raw, str) else raw
        path, out = tmp_path / "data.csv", tmp_path / "data.filled.csv"
        path.write_bytes(raw)
        code = main(["fill", "data.csv", *([] if picture else ["--no-picture"]), *words])
        said = capsys.readouterr()
        assert path.read_bytes() == raw, "the input was touched"
        return code, said.out + said.err, out.read_bytes() if out.exists() else None

    return run


def mixed(n: int = 40, blanks: int = 4) -> pd.DataFrame:
    """Two numbers, a class, a boolean and a date that hang together; blanks in all."""
    random = np.random.default_rng(0)
    a = random.normal(size=n)
    frame = pd.DataFrame({
        "a": a.round(4), "b": (2 * a + 0.1 * random.normal(size=n)).round(4), "c": np.where(a > 0, "high", "low"),
        "yes": pd.Series(a > 0, dtype=object), "day": [date(2020, 1, 1) + timedelta(days=round(100 * v)) for v in a],
    })  # fmt: skip
    frame["day"] = pd.to_datetime(frame["day"])
    for place, column in enumerate(frame.columns):
        frame.loc[random.permutation(n)[: blanks + place], column] = None
    return frame


def unordered(n: int = 30) -> pd.DataFrame:
    return mixed(n)[["a", "b", "c"]]


def test_every_byte_is_kept_and_every_blank_is_filled(fill):
    table = mixed()
    code, said, out = fill(table, "--as", "table")
    assert code == 0, said
    assert "a table: 40 rows, 5 columns (2 numbers, 2 classes, 1 date), 30 blanks in 5 columns" in said
    before, after = table.to_csv(index=False).encode().splitlines(), out.splitlines()
    assert all(new.startswith(old + b",") for old, new in zip(before, after, strict=True))
    kinds = {"a": NUMBERS, "b": NUMBERS, "c": CLASSES, "yes": CLASSES, "day": NUMBERS}
    wanted = [f"{column}_{ending}" for column, endings in kinds.items() for ending in endings]
    assert after[0].decode().split(",")[5:] == wanted
    cells = pd.read_csv("data.filled.csv", dtype=str, keep_default_na=False)
    written = pd.read_csv("data.csv", dtype=str, keep_default_na=False)
    for column, endings in kinds.items():
        blank = written[column] == ""
        assert (cells[f"{column}_filled"] != "").all()
        assert (cells[f"{column}_filled"][~blank] == written[column][~blank]).all()
        sure = cells[f"{column}_{endings[1]}"].astype(float)
        assert (sure[~blank] == (0 if endings is NUMBERS else 1)).all()
        assert (sure[blank] > 0).all()
        if endings is CLASSES:
            assert (sure[blank] <= 1).all()
            assert set(cells[f"{column}_filled"]) <= set(written[column][~blank])
        else:
            as_is = pd.to_datetime if column == "day" else pd.to_numeric
            low, middle, high = (as_is(cells[f"{column}_{e}"]) for e in ("low", "filled", "high"))
            assert (low[blank] < middle[blank]).all()
            assert (middle[blank] < high[blank]).all()
            assert (low[~blank] == high[~blank]).all()


def test_a_table_is_known_by_itself(fill):
    code, said, out = fill(unordered())
    assert code == 0, said
    assert re.search("no column has times.*taken as a table. .*say which: --as series --x COLUMN", said)
    assert out is not None
    assert fill("t,y\n1,1\n3,\n2,2\n5,3\n", "--force")[0] == 0
    with pytest.warns(FillinWarning, match=r"'t' breaks in row 2\).*kind='series', x='t'"):
        fillin.fill(pd.DataFrame({"t": [1, 3, 2, 5], "y": [1, None, 2, 3]}))


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, lambda f: pl.from_pandas(f).to_arrow()])
def test_frames_come_back_as_what_they_were(make):
    table = mixed()
    frame = make(table)
    found = fillin.fill(frame, kind="table")
    assert type(found) is type(frame)
    back = found if isinstance(found, pd.DataFrame) else found.to_pandas()
    if isinstance(found, pd.DataFrame):
        pd.testing.assert_frame_equal(found[list(table.columns)], table)
        assert found.attrs["fillin"][0].startswith("the frame: a table: 40 rows")
    assert back["yes_filled"].dtype == bool
    assert back["day_filled"].dtype.kind == "M"
    assert not back[[name for name in back.columns if name not in table.columns]].isna().any(axis=None)


def test_an_index_stays():
    frame = unordered().set_index(pd.Index([f"row {i}" for i in range(30)], name="who"))
    found = fillin.fill(frame, kind="table")
    assert found.index.equals(frame.index)
    shuffled = unordered().set_index(pd.Index(np.random.default_rng(1).permutation(30)))
    found, plain = (fillin.fill(table, kind="table") for table in (shuffled, unordered()))
    assert found.index.equals(shuffled.index)
    assert np.array_equal(found["a_filled"], plain["a_filled"])  # a name of a row tells nothing
    assert list(found.columns[:3]) == ["a", "b", "c"]


def test_a_seed_is_exact_and_rows_keep_their_order():
    table = unordered()
    first, again, other = (fillin.fill(table, kind="table", seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert not first["a_filled"].equals(other["a_filled"])


def test_a_wider_level_is_a_wider_band():
    table = unordered()
    half, most = (fillin.fill(table, kind="table", y="a", level=level) for level in (0.5, 0.99))
    blank = table["a"].isna()
    assert (half["a_low"] > most["a_low"])[blank].all()
    assert (half["a_high"] < most["a_high"])[blank].all()
    assert half["a_std"].equals(most["a_std"])


@pytest.mark.parametrize("target", ["a", "c", "day"])
def test_one_target_and_nothing_else(fill, target):
    table = mixed()
    code, said, out = fill(table, "--target", target)
    assert code == 0, said
    endings = CLASSES if target == "c" else NUMBERS
    assert out.splitlines()[0].decode() == ",".join([*table.columns, *(f"{target}_{e}" for e in endings)])
    assert pd.read_csv("data.filled.csv")[f"{target}_filled"].notna().all()


def test_a_target_is_told_from_the_others(monkeypatch):
    monkeypatch.setattr(learn, "FULL", learn.Size(2, 150))
    table = mixed(120, 12)[["a", "b", "c"]]
    truth = mixed(120, 0)
    for target in ("b", "c"):
        found = fillin.fill(table, target=target)
        blank = table[target].isna() & table["a"].notna() & truth[target].notna()
        if target == "b":
            error = (found["b_filled"] - truth["b"])[blank]
            assert np.sqrt((error**2).mean()) < 0.5 * truth["b"].std()
        else:
            assert (found["c_filled"] == truth["c"])[blank].mean() > 0.8


def test_some_columns(fill):
    code, _, out = fill(unordered(), "--y", "a", "--y", "c")
    assert code == 0
    assert out.splitlines()[0].decode() == ",".join(["a", "b", "c", *FOUR, "c_filled", "c_probability"])


def test_numbers_of_rows_and_names_are_not_read(fill):
    table = unordered()
    table.insert(0, "PassengerId", np.arange(1, 31))
    table["name"] = [f"Mr {i}" for i in range(30)]
    table.loc[3, "name"] = None
    code, said, out = fill(table)
    assert code == 0, said
    assert "PassengerId only numbers the rows: not read" in said
    assert "name has 29 different words in 29 rows: taken for names, it is not read, and its blanks are left" in said
    assert b"name_filled" not in out
    again = table.assign(name=table["name"].fillna("x")[::-1].to_numpy(), PassengerId=np.arange(30))
    left = fillin.fill(again, kind="table")
    assert np.allclose(left["a_filled"], pd.read_csv("data.filled.csv")["a_filled"], rtol=1e-3, atol=1e-3)


def test_a_picture_and_a_page(fill, tmp_path):
    code, said, _ = fill(mixed(60), "--as", "table", "--report", picture=True)
    assert code == 0, said
    assert sorted(os.listdir(tmp_path)) == ["data.csv", "data.filled.csv", "data.filled.html", "data.filled.png"]
    assert (tmp_path / "data.filled.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "data.filled.html").read_text()
    for words in ("cells hidden on purpose", "RMSE of the mean", "right: the commonest", "mean ln p", "as table"):
        assert words in page
    for column, cells in {"a": 6, "b": 6, "day": 5, "c": 5, "yes": 5}.items():
        assert f"<td>{column}</td><td>{cells}</td>" in page
    assert "http" not in page


def test_what_is_hidden_is_not_seen(monkeypatch):
    """The networks that are judged get a frame without the cells that they are judged on."""
    from fillin.filling.frames import read_frame
    from fillin.filling.tables.hidden import judge

    seen, tell = [], learn.tell

    def spy(plan, frame, asked, size):
        seen.append((frame, asked))
        return tell(plan, frame, asked, size)

    monkeypatch.setattr(learn, "tell", spy)
    asked = plan.plan_table(read_frame(mixed(60)).sheet, kind="table")
    verdicts = judge(asked)
    ((frame, hidden),) = seen
    assert [v.column for v in verdicts] == list(hidden) == ["a", "b", "c", "yes", "day"]
    for name, cells in hidden.items():
        assert cells.any()
        assert frame[name][cells].isna().all()
        assert asked.frame[name][cells].notna().all()
        assert frame[name][~cells].equals(asked.frame[name][~cells])


def test_nothing_missing_and_nothing_known(fill, tmp_path):
    for content, words in {
        "a,b\n1,x\n3,y\n2,x\n": "nothing is missing: nothing was done",
        "a,b\n1,\n": "nothing is known of b: left blank.*nothing can be filled: nothing was done",
        "a,b\n,\n,\n": "nothing is known of a, b: left blank.*nothing can be filled",
    }.items():
        code, said, out = fill(content, "--as", "table")
        assert code == 0, said
        assert re.search(words, said, re.DOTALL)
        assert out is None
    assert os.listdir(tmp_path) == ["data.csv"]


def test_one_value_is_filled_with_it(fill):
    code, said, _ = fill("a,k,w\n1,5.0,x\n3,,x\n2,5.0,\n,5.0,x\n")
    assert code == 0
    assert "k has one value wherever it is known" in said
    found = pd.read_csv("data.filled.csv")
    assert (found["k_filled"] == 5).all()
    assert (found["w_filled"] == "x").all()
    assert found.loc[1, ["k_std", "k_low", "k_high"]].isna().all()
    assert np.isnan(found.loc[2, "w_probability"])
    assert found["a_std"][3] > 0


def test_all_blank_is_left_and_said(fill):
    code, said, out = fill("a,b,none\n1,2,\n3,,\n2,4,\n")
    assert code == 0
    assert "nothing is known of none: left blank" in said
    assert b"none_filled" not in out


def test_ten_thousand_categories(monkeypatch):
    monkeypatch.setattr(learn, "FULL", learn.Size(1, 1))
    random = np.random.default_rng(0)
    town = np.array([f"town {i}" for i in range(10_000)] * 3, dtype=object)[:20_100]
    town[:2000] = "town 7"
    town[random.permutation(len(town))[:50]] = None
    table = pd.DataFrame({"town": town, "x": random.normal(size=len(town))})
    found = fillin.fill(table, kind="table")
    assert found["town_filled"].isin(found["town"]).all()
    assert found["town_probability"].between(0, 1).all()
    with pytest.raises(FillinError, match=r"column 'town' has (10,000|9,99\d) classes, and at most 100.*y='town'"):
        fillin.fill(table, target="town")


def test_planning_a_table_does_not_wait_for_torch():
    code = "import sys, fillin.filling.tables.plan as plan; print('torch' in sys.modules, plan.MOST_CLASSES)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "100"]


def test_commas_zones_and_formats(fill):
    text = "when;x;who\n01.02.2024;1,5;ä\n15.03.2024;2,25;b\n;1,0;ä\n20.01.2024;;b\n03.02.2024;2,5;\n"
    code, said, out = fill(text.encode("latin-1"), "--as", "table")
    assert code == 0, said
    assert "line 2 is not UTF-8: the file is read, and written, as Latin-1" in said
    rows = [line.split(";") for line in out.decode("latin-1").splitlines()]
    names = rows[0]
    assert re.fullmatch(r"\d\d\.\d\d\.\d{4}", rows[3][names.index("when_filled")])
    assert re.fullmatch(r"-?\d+(,\d+)?", rows[4][names.index("x_filled")])
    assert rows[5][names.index("who_filled")] in ("ä", "b")
    zoned = mixed()
    zoned["day"] = zoned["day"].dt.tz_localize("Europe/Berlin")
    found = fillin.fill(zoned, kind="table", y="day")
    assert found["day_filled"].dtype == zoned["day"].dtype
    assert (found["day_filled"] == found["day"])[zoned["day"].notna()].all()


def test_numbers_as_text_are_numbers():
    table = unordered()
    words = table.assign(a=[None if np.isnan(value) else f"{value}" for value in table["a"]])
    pd.testing.assert_frame_equal(
        fillin.fill(words, kind="table")[FOUR], fillin.fill(table, kind="table")[FOUR], check_dtype=False
    )


@pytest.mark.usefixtures("unchecked")
def test_twice_one_name_in_a_frame():
    frame = pd.DataFrame([[1, 2], [3, None]], columns=["a", "a"])
    with pytest.raises(FillinError, match="the frame: two columns are called 'a'"):
        fillin.fill(frame, kind="table")


TABLE = "a,b\n1,x\n3,\n2,y\n"
BAD = {
    "empty": ("", [], "data.csv is empty"),
    "a header alone": ("a,b\n", [], "a header and no rows"),
    "twice one name": ("a,a\n1,2\n3,\n2,1\n", [], "line 1: two columns are called 'a'"),
    "ragged": ("a,b\n1,2\n3\n2,1\n", [], "data.csv, line 3: 1 cells, but the header has 2"),
    "mixed types": (
        "a,b\n1,x\n3,y\nmany,z\n2,\n",
        [],
        "data.csv, line 4, column 'a': 'many' is not a number.*--na many",
    ),
    "infinity": ("a,b\n1,x\n3,y\n-inf,z\n2,\n", [], "data.csv, line 4, column 'a': '-inf' is not finite"),
    "huge": ("a,b\n1,x\n3,y\n1e200,z\n2,\n", [], r"data.csv, line 4, column 'a': 1e\+200 is beyond 1e\+100"),
    "units": ("a,b\nm,kg\n1,2\n3,\n2,1\n", [], "line 2: 'm', 'kg' look like units"),
    "no such target": (TABLE, ["--target", "bb"], "unknown column of data.csv 'bb'; did you mean 'b'"),
    "a target of which nothing is known": ("a,b\n1,\n3,\n2,\n", ["--target", "b"], "'b' is blank in all 3 rows"),
    "a target and nothing else": ("b,k\n1,1\n,1\n2,1\n", ["--target", "b"], "no other column can tell 'b'.*--y b"),
    "two ways to say it": (TABLE, ["--target", "b", "--y", "b"], "--target and --y both say"),
    "a target of a series": (TABLE, ["--target", "b", "--as", "series"], "--target b is a column of a table"),
    "bounds": (TABLE, ["--bounds", "0:1"], "--bounds does not apply to one.*--as series --x COLUMN"),
    "a model": (TABLE, ["--model", "curve"], "--model does not apply"),
    "places": (TABLE, ["--as", "table", "--x", "a"], "--x does not apply"),
    "level": (TABLE, ["--level", "95"], "--level is the share inside the band"),
    "seed": (TABLE, ["--seed", "-1"], "--seed must be a whole number from 0"),
    "filled before": ("a,b,b_probability\n1,x,1\n3,,1\n2,y,1\n", [], "already has a column 'b_probability'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_clear_error_and_nothing_written(case, fill, tmp_path):
    content, words, message = BAD[case]
    code, said, _ = fill(content, *words)
    assert code == 2, said
    assert re.search(message, said), said
    assert len(said.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["data.csv"]


def test_nothing_is_replaced_without_leave(fill, tmp_path, monkeypatch):
    (tmp_path / "data.filled.csv").write_text("mine")
    monkeypatch.setattr(learn, "tell", None)  # it is known before anything slow begins
    code, said, out = fill(TABLE)
    assert code == 2
    assert "data.filled.csv exists; replace it with --force" in said
    assert out == b"mine"
    code, said, _ = fill(TABLE, "-o", "data.csv")
    assert code == 2
    assert "is the input, which is never touched" in said


def test_killed_by_an_error_nothing_is_written(fill, tmp_path, monkeypatch):
    from fillin.models import files

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "sync", refuse)
    code, said, _ = fill(TABLE)
    assert code == 2
    assert "cannot write" in said
    assert os.listdir(tmp_path) == ["data.csv"]


def test_parquet(tmp_path, capsys):
    path = tmp_path / "data.parquet"
    table = mixed()
    table.to_parquet(path)
    raw = path.read_bytes()
    assert main(["fill", str(path), "--as", "table", "--no-picture"]) == 0, capsys.readouterr().err
    found = pd.read_parquet(tmp_path / "data.filled.parquet")
    pd.testing.assert_frame_equal(found[list(table.columns)], pd.read_parquet(path))
    assert found["c_filled"].notna().all()
    assert path.read_bytes() == raw
