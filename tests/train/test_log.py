"""The log of a run and its learning curve."""

import pytest

from fillin.errors import FillinError
from fillin.train.log import COLUMNS, Log, LogLine, draw_learning_curve, read_log


def test_a_log_drops_lines_after_its_checkpoint(tmp_path):
    log = Log(tmp_path)
    for step in (5, 10, 15):
        log.add(LogLine(step, step / 7, 1 / step, 0.5, 1e-3, None if step == 5 else -1.5))
    log.close()
    with (tmp_path / "log.csv").open("a") as file:
        file.write("20,0.1,0.")  # killed in the middle of a line
    assert [line.step for line in read_log(tmp_path)] == [5, 10, 15]
    Log(tmp_path, 10).close()
    assert [line.step for line in read_log(tmp_path)] == [5, 10]
    assert read_log(tmp_path)[0] == LogLine(5, 0.714, 0.2, 0.5, 1e-3, None)
    (tmp_path / "log.csv").write_text("a,b\nx")
    with pytest.raises(FillinError, match="its first line is 'a,b'; move the file away"):
        Log(tmp_path, 10)
    assert (tmp_path / "log.csv").read_text() == "a,b\nx"
    (tmp_path / "log.csv").write_text(",".join(COLUMNS) + "\nnonsense\n")
    with pytest.raises(FillinError, match=r"log\.csv, line 2: not a line of a training log: 'nonsense'"):
        read_log(tmp_path)
    with pytest.raises(FillinError, match="has no log"):
        read_log(tmp_path / "nowhere")


def test_learning_curves(tmp_path):
    lines = [
        LogLine(step, step / 10, -step / 30, 1.0, 1e-3, step / 40 if step % 20 else None) for step in range(10, 100, 10)
    ]
    for drawn_lines in (lines, lines[:1], []):
        assert draw_learning_curve(drawn_lines, tmp_path / "one.png", "te-tnp").read_bytes().startswith(b"\x89PNG")
