"""Whatever is sent to `fillin play`, it is never an error of the server: schemathesis makes requests of the schema, and
tables are made of cells that are hard to read."""

import hypothesis
import pytest
from hypothesis import strategies as st

from fillin.play import limits, span, tables

schemathesis = pytest.importorskip("schemathesis", reason="pip install 'fillin[dev]' brings schemathesis")
NUMBERS = ["0", "-0", "1", "1", "2.5", "1e308", "-1e308", "1e-320", "inf", "1e999", "1,5", "=1+1"]
DATES = ["2020-01-01", "2020-02-30", "31.12.1999 23:59", "0001-01-01", "9999-12-31T23:59:59Z"]
WORDS = [*"-?'\"ab🙂\x00\ufeff ", "", "NA", "nan", "true", "False", '""', "a\nb", "<script>"]
CELLS = st.one_of(
    st.sampled_from([*NUMBERS, *DATES, *WORDS, "1" * 400]),
    st.text(max_size=4),
    st.floats().map(repr),
)


@pytest.fixture
def quick(monkeypatch):
    """What takes seconds takes less: fewer points are measured in full, and fits end soon."""
    for name, less in (("PAIRS", 200_000), ("DENSE", 200), ("FUSED", 400)):
        monkeypatch.setattr(limits, name, less)
    monkeypatch.setattr(span, "_BASE", 200)
    monkeypatch.setattr(span, "_CHEAP", {})
    monkeypatch.setattr(tables, "_STEPS", 2)


@pytest.mark.usefixtures("quick")
def test_no_request_is_an_error_of_the_server(play, client):
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    asked = {_ask(found.ok(), play) for found in schema.get_all_operations()}
    assert {"/api/span", "/api/tables", "/api/curves", "/api/images/complete"} <= asked


def _ask(operation, play):
    @hypothesis.settings(max_examples=6, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy())
    def ask(case):
        answer = case.call(base_url=play)
        assert answer.status_code < 500, (case.path, case.body, answer.text)

    ask()
    return operation.path


@st.composite
def csvs(draw):
    columns, separator = draw(st.integers(1, 4)), draw(st.sampled_from(",,,;\t"))
    rows = draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), max_size=12))
    names = draw(st.lists(CELLS, min_size=columns, max_size=columns) | st.just(list("abcd"[:columns])))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quote = draw(st.booleans())
    lines = [separator.join(_quoted(cell) if quote else cell for cell in row) for row in (names, *rows)]
    return end.join(lines).encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-16", "latin-1"])), "replace")


def _quoted(cell):
    return '"' + cell.replace('"', '""') + '"'


@pytest.mark.usefixtures("quick")
@hypothesis.settings(max_examples=30, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(body=csvs())
def test_no_table_is_an_error_of_the_server(client, body):
    answer = client.post("/api/tables", content=body, headers={"content-type": "text/csv"})
    assert answer.status_code in (200, 422), (body, answer.text)
    for cell in answer.json()["filled"][:2] if answer.is_success else ():
        asked = {"id": answer.json()["id"], "row": cell["row"], "column": cell["column"]}
        looked = client.post("/api/tables/cell", json=asked)
        assert looked.status_code == 200, (body, looked.text)
