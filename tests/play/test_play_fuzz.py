"""No request causes a server error: schemathesis generates requests from the schema, hypothesis generates tables with
cells that are hard to parse."""

import hypothesis
import pytest
from hypothesis import strategies as st
from support.helpers import TIMEOUT

from fillin.play import limits, span, tables

schemathesis = pytest.importorskip("schemathesis", reason="pip install 'fillin[dev]' installs schemathesis")
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
    """Small measurements and short fits."""
    for name, value in (("MAX_KERNEL_PAIRS", 200_000), ("MAX_BIAS_POINTS", 200), ("MAX_FUSED_POINTS", 400)):
        monkeypatch.setattr(limits, name, value)
    monkeypatch.setattr(span, "_SMALL_POINTS", 400)
    monkeypatch.setattr(tables, "_STEPS", 2)


@pytest.mark.usefixtures("quick")
def test_no_request_is_an_error_of_the_server(play_server, client):
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    paths = {_fuzz(operation.ok(), play_server.url) for operation in schema.get_all_operations()}
    assert {"/api/span", "/api/tables", "/api/curves", "/api/images/complete"} <= paths


def _fuzz(operation, url):
    @hypothesis.settings(max_examples=6, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy())
    def send(case):
        response = case.call(base_url=url, timeout=TIMEOUT)
        assert response.status_code < 500, (case.path, case.body, response.text)

    send()
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
    response = client.post("/api/tables", content=body, headers={"content-type": "text/csv"})
    assert response.status_code in (200, 422), (body, response.text)
    for cell in response.json()["filled"][:2] if response.is_success else ():
        request = {"id": response.json()["id"], "row": cell["row"], "column": cell["column"]}
        explanation = client.post("/api/tables/cell", json=request)
        assert explanation.status_code == 200, (body, explanation.text)
