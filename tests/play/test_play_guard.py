"""Requests that `fillin play` refuses, its limits, its start and its end."""

import asyncio
import itertools
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
from support.helpers import TIMEOUT
from support.play_server import GENEROUS, ManualClock, pause, run_server, wait_until

from fillin.play import span, tables
from fillin.play.guard import HEADERS, POLICY, UPLOADS
from fillin.play.job_queue import Deadline, JobQueue, QueueBusy, TimeLimitExceeded
from fillin.play.limits import Limits

JSON = {"content-type": "application/json"}
CURVE = {"points": [[-1, 0.5], [0.5, -0.4]], "model": "gp"}


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": "127.0.0.1"}, {"host": "127.0.0.1:1"}, {"origin": "http://evil.example"},
     {"origin": "null"}, {"origin": "https://127.0.0.1"}, {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/curves/models", "/openapi.json", "/main.js"])
def test_another_host_or_origin_is_refused(client, path, headers):
    response = client.get(path, headers=headers)
    assert response.status_code == 403
    assert "this server" in response.json()["detail"]


def test_the_page_itself_may_send_requests(client, play_server):
    headers = {"origin": play_server.url, "sec-fetch-site": "same-origin"}
    assert client.get("/api/curves/models", headers=headers).is_success


def test_every_response_has_the_security_headers(client):
    for path in ("/", "/style.css", "/api/curves/models", "/nothing"):
        response = client.get(path)
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in POLICY
    assert client.get("/nothing").json() == {"detail": "this path does not exist; the page is at /"}


@pytest.mark.parametrize("path", ["/..%2f..%2fapp.py", "/../app.py", "/%2e%2e/app.py", "/page/", "/__init__.py"])
def test_only_the_page_is_served(client, path):
    assert client.get(path).status_code == 404


def test_the_page_loads_nothing_from_other_servers(client):
    text = client.get("/").text
    for name in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert not name.startswith(("http", "//"))
        assert client.get(f"/{name.lstrip('/')}").is_success
    assert "<style" not in text
    assert " style=" not in text
    assert re.findall(r"<script(?![^>]*src=)", text) == []


def chunks(size, chunk=100_000):
    for _ in range(size // chunk + 1):
        yield b" " * chunk


@pytest.mark.parametrize(
    ("path", "content_type", "max_bytes"),
    [("/api/curves", "application/json", Limits.body_bytes), ("/api/tables", "text/csv", Limits.upload_bytes)],
)
def test_a_large_body_is_refused_with_and_without_its_length(client, path, content_type, max_bytes):
    for body in (b" " * (max_bytes + 1), chunks(max_bytes)):
        response = client.post(path, content=body, headers={"content-type": content_type})
        assert response.status_code == 413
        assert "MB; send less" in response.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_content_types_of_forms_are_refused(client, kind):
    assert client.post("/api/curves", content=b"{}", headers={"content-type": kind}).status_code == 415


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"points": ' + b"[" * 5000, b"\xff\xfe", b"null", b"1"])
def test_an_invalid_body_is_a_4xx(client, body):
    response = client.post("/api/curves", content=body, headers=JSON)
    assert response.status_code in (400, 422)
    assert re.match("the body(:| is not valid JSON)|points: ", response.json()["detail"])


def test_other_methods_are_refused(client):
    assert client.put("/api/curves", json={}).status_code == 405
    assert client.options("/api/curves").status_code == 405
    assert client.delete("/api/tables").status_code == 405


def test_eight_clients_at_once_are_all_served(client):
    body = {"points": [[i / 10 - 2, 0.1] for i in range(40)]}
    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(lambda _: client.post("/api/curves", json=body).status_code, range(16)))
    assert statuses == [200] * 16


def test_a_full_queue_is_503_with_retry_after():
    with run_server(replace(GENEROUS, queue_length=0)) as server:
        response = httpx.post(f"{server.url}/api/curves", json=CURVE, timeout=TIMEOUT)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "requests are already waiting; try again" in response.json()["detail"]


def test_a_full_queue_and_a_late_start_are_busy():
    clock, started, end = ManualClock(), threading.Event(), threading.Event()

    def hold(deadline):
        started.set()
        end.wait(TIMEOUT)

    async def scenario():
        queue = JobQueue("test", seconds=10, max_length=2, clock=clock)
        first = asyncio.create_task(queue.run(hold))
        await asyncio.to_thread(started.wait, TIMEOUT)
        second = asyncio.create_task(queue.run(lambda _: None))
        while queue.length < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(QueueBusy, match="2 requests are already waiting"):
            await queue.run(lambda _: None)
        clock.advance(12)
        errors = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(error) for error in errors] == [TimeLimitExceeded, QueueBusy]
        end.set()
        assert await queue.run(lambda _: 7) == 7
        queue.close()

    try:
        asyncio.run(scenario())
    finally:
        end.set()


def test_a_long_computation_is_stopped_at_its_limit():
    clock, steps = ManualClock(), []

    def work(deadline):
        while True:
            clock.advance(0.03)
            deadline(1)
            steps.append(1)

    async def scenario():
        queue = JobQueue("test", seconds=0.1, clock=clock)
        with pytest.raises(TimeLimitExceeded, match=r"stopped at its time limit of 0.1 s"):
            await queue.run(work)
        queue.close()

    asyncio.run(scenario())
    assert len(steps) == 3


@pytest.mark.parametrize("path", ["/api/curves", "/api/tables"])
def test_a_body_that_does_not_arrive_is_not_waited_for(path):
    kind = UPLOADS.get(path, ("application/json",))[0]
    with run_server(replace(GENEROUS, body_seconds=0.1)) as server, connect(server) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: {kind}\r\nContent-Length: 9\r\n\r\n{{"
        connection.sendall(head.encode())
        response = connection.makefile("rb").read()  # until the server closes the connection
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 0.1 s" in response


def connect(server):
    host, port = server.host.split(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def test_headers_that_do_not_arrive_are_not_waited_for():
    with run_server(replace(GENEROUS, header_seconds=0.2)) as server, connect(server) as connection:
        connection.sendall(f"GET /icon.svg HTTP/1.1\r\nHost: {server.host}\r\n".encode())
        assert connection.makefile("rb").read() == b""  # until the server closes the connection


def test_headers_that_do_not_arrive_after_a_response_are_not_waited_for():
    with run_server() as server, connect(server) as connection:
        head = f"GET /icon.svg HTTP/1.1\r\nHost: {server.host}\r\n"
        connection.sendall(f"{head}\r\n{head}".encode())
        response = b""
        while b"</svg>" not in response:
            response += connection.recv(4096)
        for _ in range(2):
            server.check_connections()
        response += connection.makefile("rb").read()
    assert response.count(b"HTTP/1.1 200 ") == response.count(b"HTTP/1.1 ") == 1


def test_a_connection_in_use_stays_open():
    """A slow response is waited for, and a request between two checks keeps its connection."""
    with run_server() as server, httpx.Client(base_url=server.url, timeout=TIMEOUT) as client:
        for _ in range(3):
            assert client.post("/api/curves", json=CURVE).status_code == 200
            server.check_connections()
        (connection,) = server.connections
        with ThreadPoolExecutor(1) as threads, pause(server.queues.interactive):
            response = threads.submit(client.post, "/api/curves", json=CURVE)
            wait_until(lambda: server.queues.interactive.length)
            for _ in range(3):
                server.check_connections()
        assert response.result().status_code == 200
        assert server.connections == {connection}
        for _ in range(2):
            server.check_connections()
        wait_until(lambda: not server.connections)


def test_closing_a_queue_cancels_the_current_job():
    started, ended = threading.Event(), threading.Event()

    def work(deadline):
        try:
            while True:
                deadline(1)
                started.set()
        finally:
            ended.set()

    async def scenario():
        queue = JobQueue("test", seconds=10, clock=ManualClock())
        job = asyncio.create_task(queue.run(work))
        await asyncio.to_thread(started.wait, TIMEOUT)
        queue.close()
        with pytest.raises(QueueBusy, match="cancelled"):
            await job

    asyncio.run(scenario())
    assert ended.wait(TIMEOUT)


TABLE = "a,b\n" + "\n".join(f"{i},{'' if i % 5 == 0 else i * i % 7}" for i in range(60))
LONG_REQUESTS = {
    "/api/tables": {"content": TABLE, "headers": {"content-type": "text/csv"}},
    "/api/span/learn": {"json": {"points": 100}},
    "/api/span": {"json": {"points": 4000}},
}


@pytest.fixture(scope="module")
def endless():
    """A server whose fits never end, with a client and the clock of its background queue."""
    clock = ManualClock()
    with pytest.MonkeyPatch.context() as patch, run_server() as server:
        patch.setattr(tables, "_STEPS", 10**9)
        patch.setattr(span, "_LEARNING_STEPS", 10**9)
        server.queues.background.clock = clock
        with httpx.Client(base_url=server.url, timeout=TIMEOUT) as client:
            yield server, client, clock


@pytest.mark.parametrize("path", LONG_REQUESTS)
def test_a_computation_is_stopped_midway_at_the_time_limit(endless, monkeypatch, path):
    server, client, clock = endless
    calls, check = itertools.count(1), Deadline.__call__

    def expire_at_the_third_call(deadline, steps=0):
        if next(calls) == 3:
            clock.advance(deadline.seconds + 1)
        check(deadline, steps)

    monkeypatch.setattr(Deadline, "__call__", expire_at_the_third_call)
    response = client.post(path, **LONG_REQUESTS[path])
    assert response.status_code == 422
    assert "stopped at its time limit of 3600 s; request fewer points" in response.json()["detail"]
    assert_free(server, client)


def assert_free(server, client):
    """The next request is computed."""
    response = client.post("/api/images/read", content=b"", headers={"content-type": "image/png"})
    assert response.status_code == 422
    assert "cannot be read" in response.json()["detail"]
    wait_until(lambda: not server.queues.background.length)


def test_a_computation_ends_when_its_client_disconnects(endless):
    server, client, _ = endless
    body = b'{"points": 100}'
    head = f"POST /api/span/learn HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
    with connect(server) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: server.queues.background.is_running)
    assert_free(server, client)


def start_fillin(*arguments, setup=""):
    code = f"{setup}\nimport sys\nfrom fillin.cli import main\nsys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, "play", "--no-browser", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


ENDLESS_FIT = """
from fillin.play import job_queue, tables
tables._STEPS, check = 10**9, job_queue.Deadline.__call__
def report(deadline, steps=0):
    if steps:
        print("a step is done", flush=True)
    if deadline.cancelled:
        check(deadline, steps)
job_queue.Deadline.__call__ = report
"""


def test_it_prints_its_address_and_ends_by_ctrl_c_in_the_middle_of_a_fit():
    process = start_fillin(setup=ENDLESS_FIT)
    assert process.stdout is not None
    address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
    assert address

    def is_up():
        try:
            return httpx.get(address[0], timeout=TIMEOUT).is_success
        except httpx.ConnectError:
            return False

    wait_until(is_up)
    with ThreadPoolExecutor(1) as thread:
        request = thread.submit(httpx.post, f"{address[0]}/api/tables", timeout=TIMEOUT, **LONG_REQUESTS["/api/tables"])
        assert "a step is done" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert isinstance(request.exception(), httpx.HTTPError) or request.result().status_code >= 400
    assert process.returncode in (0, 130)
    assert "Traceback" not in errors


def test_a_port_in_use_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start_fillin("--port", str(port))
        output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert not output
    assert re.fullmatch(rf"fillin: .*port {port} cannot be used \(Address already in use\); .*\n", errors)
