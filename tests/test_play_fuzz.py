"""Whatever is sent to `fillin play`, it is never an error of the server: schemathesis makes requests of the schema."""

import hypothesis
import pytest

schemathesis = pytest.importorskip("schemathesis", reason="pip install 'fillin[dev]' brings schemathesis")
SLOW = ("/api/span", "/api/tables")  # seconds each: other tests ask them


def test_no_request_is_an_error_of_the_server(play, client):
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path not in SLOW:
            _ask(operation, play)


def _ask(operation, play):
    @hypothesis.settings(max_examples=6, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy())
    def ask(case):
        answer = case.call(base_url=play)
        assert answer.status_code < 500, (case.path, case.body, answer.text)

    ask()
