"""Who may ask `fillin play`, how much, and how it begins and ends."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import httpx
import pytest
from support.play_server import running

from fillin.play import limits, span, tables
from fillin.play.guard import HEADERS, POLICY, UPLOADS
from fillin.play.job_queue import Busy, Lane, TooLong

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": "127.0.0.1"}, {"host": "127.0.0.1:1"}, {"origin": "http://evil.example"},
     {"origin": "null"}, {"origin": "https://127.0.0.1"}, {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/curves/models", "/openapi.json", "/main.js"])
def test_another_host_or_origin_is_refused(client, path, headers):
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    assert "this server" in answer.json()["detail"]


def test_the_own_page_may_ask(client, play):
    assert client.get("/api/curves/models", headers={"origin": play, "sec-fetch-site": "same-origin"}).is_success


def test_every_answer_tells_the_browser_what_to_forbid(client):
    for path in ("/", "/style.css", "/api/curves/models", "/nothing"):
        answer = client.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in POLICY
    assert client.get("/nothing").json() == {"detail": "there is nothing here; the page is at /"}


@pytest.mark.parametrize("path", ["/..%2f..%2fapp.py", "/../app.py", "/%2e%2e/app.py", "/page/", "/__init__.py"])
def test_only_the_page_is_served(client, path):
    assert client.get(path).status_code == 404


def test_the_page_asks_nothing_of_others(client):
    text = client.get("/").text
    for name in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert not name.startswith(("http", "//"))
        assert client.get(f"/{name.lstrip('/')}").is_success
    assert "<style" not in text
    assert " style=" not in text
    assert re.findall(r"<script(?![^>]*src=)", text) == []


def chunks(size, piece=100_000):
    for _ in range(size // piece + 1):
        yield b" " * piece


@pytest.mark.parametrize(
    ("path", "kind", "most"),
    [("/api/curves", "application/json", limits.BODY), ("/api/tables", "text/csv", limits.UPLOAD)],
)
def test_a_large_body_is_refused_with_and_without_its_length(client, path, kind, most):
    for body in (b" " * (most + 1), chunks(most)):
        answer = client.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code == 413
        assert "MB; send less" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_could_send_is_refused(client, kind):
    assert client.post("/api/curves", content=b"{}", headers={"content-type": kind}).status_code == 415


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"points": ' + b"[" * 5000, b"\xff\xfe", b"null", b"1"])
def test_what_is_no_request_is_a_4xx(client, body):
    answer = client.post("/api/curves", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert re.match("the body(:| is no JSON that can be read)|points: ", answer.json()["detail"])


def test_other_methods_are_refused(client):
    assert client.put("/api/curves", json={}).status_code == 405
    assert client.options("/api/curves").status_code == 405
    assert client.delete("/api/tables").status_code == 405


def test_eight_at_once_are_all_answered(client):
    body = {"points": [[i / 10 - 2, 0.1] for i in range(40)]}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post("/api/curves", json=body).status_code, range(16)))
    assert answers == [200] * 16


def test_a_full_queue_and_a_late_turn_are_busy():
    async def all_of_it():
        lane, hold = Lane("test", seconds=0.2, waiting=2), threading.Event()
        first, second = (asyncio.create_task(lane.run(lambda _: hold.wait(5))) for _ in range(2))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="2 requests are waiting"):
            await lane.run(lambda _: None)
        found = await asyncio.gather(second, return_exceptions=True)
        assert isinstance(found[0], Busy)
        found = await asyncio.gather(first, return_exceptions=True)
        assert isinstance(found[0], TooLong)
        hold.set()
        await asyncio.sleep(0.1)
        assert await lane.run(lambda _: 7) == 7
        lane.close()

    asyncio.run(all_of_it())


def test_a_long_computation_is_stopped_at_its_limit():
    async def all_of_it():
        lane = Lane("test", seconds=0.1)

        def work(deadline):
            for _ in range(100):
                sleep(0.01)
                deadline(1)

        with pytest.raises(TooLong, match=r"more than 0.1 s and was stopped"):
            await lane.run(work)
        lane.close()

    asyncio.run(all_of_it())


@pytest.mark.parametrize("path", ["/api/curves", "/api/tables"])
def test_a_body_that_does_not_come_is_not_waited_for(play, monkeypatch, path):
    monkeypatch.setattr(limits, "SENDING", 0.1)
    host, kind = play.removeprefix("http://"), UPLOADS.get(path, ("application/json",))[0]
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: 9\r\n\r\n{{"
    with socket.create_connection(tuple(host.split(":")), timeout=30) as slow:
        slow.sendall(head.encode())
        said = slow.makefile("rb").read()  # until the server has closed it
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not come within 0.1 s" in said


@pytest.mark.parametrize("before", [False, True], ids=["at first", "after an answer"])
def test_headers_that_do_not_come_are_not_waited_for(play, monkeypatch, before):
    monkeypatch.setattr(limits, "SENDING", 0.2)
    host = play.removeprefix("http://")
    head = f"GET /icon.svg HTTP/1.1\r\nHost: {host}\r\n"
    with socket.create_connection(tuple(host.split(":")), timeout=20) as slow:
        slow.sendall(f"{head}\r\n{head}".encode() if before else head.encode())
        said = slow.makefile("rb").read()  # until the server has closed it
    assert said.count(b"HTTP/1.1 200 ") == before
    assert said.count(b"HTTP/1.1 ") == before


def test_a_slow_answer_keeps_its_connection(play, monkeypatch):
    """It is the headers that are not waited for; who asks again and again is not cut off in between."""
    monkeypatch.setattr(limits, "SENDING", 0.3)
    asked, begun = {"points": [[-1, 0.5], [0.5, -0.4]], "model": "gp"}, monotonic()
    with httpx.Client(base_url=play, timeout=60) as client:
        while monotonic() < begun + 1.5:
            assert client.post("/api/curves", json=asked).status_code == 200
            sleep(0.05)


def test_what_is_under_way_ends_with_its_lane():
    begun, ended = threading.Event(), threading.Event()

    def work(deadline):
        try:
            while True:
                deadline(1)
                begun.set()
        finally:
            ended.set()

    async def all_of_it():
        lane = Lane("test", seconds=60)
        asked = asyncio.create_task(lane.run(work))
        await asyncio.to_thread(begun.wait, 10)
        lane.close()
        with pytest.raises(Busy, match="nobody waits"):
            await asked

    asyncio.run(all_of_it())
    assert ended.wait(10)


TABLE = "a,b\n" + "\n".join(f"{i},{'' if i % 5 == 0 else i * i % 7}" for i in range(60))
ENDLESS = {
    "/api/tables": {"content": TABLE, "headers": {"content-type": "text/csv"}},
    "/api/span/learn": {"json": {"points": 100}},
    "/api/span": {"json": {"points": 4000}},
}


@pytest.fixture(scope="module")
def endless():
    """A server whose fits would never end, and its slow lane."""
    with pytest.MonkeyPatch.context() as patch, running() as (address, lanes):
        for tool in (tables, span):
            patch.setattr(tool, "_STEPS", 10**9)
        with httpx.Client(base_url=address, timeout=60) as client:
            yield client, lanes.slow


@pytest.mark.parametrize("path", ENDLESS)
def test_what_is_computed_too_long_is_stopped_midway(endless, path):
    client, lane = endless
    lane.seconds = 0.1
    answer = client.post(path, **ENDLESS[path])
    assert answer.status_code == 422
    assert "more than 0.1 s and was stopped; ask for less" in answer.json()["detail"]
    assert free(client, lane)


def free(client, lane):
    """The next has its turn."""
    lane.seconds = 60.0
    answer = client.post("/api/images/read", content=b"", headers={"content-type": "image/png"}, timeout=30)
    return answer.status_code == 422 and "cannot be read" in answer.json()["detail"] and lane.queued <= 1


def test_what_nobody_waits_for_is_stopped(endless):
    client, lane = endless
    lane.seconds = 60.0
    with pytest.raises(httpx.ReadTimeout):
        client.post("/api/span/learn", json={"points": 100}, timeout=0.5)
    assert free(client, lane)


def fillin(*arguments, before="", **options):
    code = f"{before}\nimport sys\nfrom fillin.cli import main\nsys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, "play", "--no-browser", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


AN_ENDLESS_FIT = """
from fillin.play import lanes, tables
tables._STEPS, check = 10**9, lanes.Deadline.__call__
lanes.Deadline.__call__ = lambda self, done=0: (done and print("a step is done", flush=True), check(self, done))
"""


def test_it_says_where_it_is_and_ends_by_ctrl_c_in_the_middle_of_a_fit():
    process = fillin(before=AN_ENDLESS_FIT)
    assert process.stdout is not None
    address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
    assert address
    while True:
        try:
            assert httpx.get(address[0], timeout=60).is_success
            break
        except httpx.ConnectError:
            sleep(0.05)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(httpx.post, f"{address[0]}/api/tables", timeout=60, **ENDLESS["/api/tables"])
        assert "a step is done" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)  # less than the time that a fit has
        assert isinstance(asked.exception(), httpx.HTTPError) or asked.result().status_code >= 400
    assert process.returncode in (0, 130)
    assert "Traceback" not in said


def test_a_busy_port_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = fillin("--port", str(port))
        out, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert not out
    assert re.fullmatch(rf"fillin: .*port {port} cannot be used \(Address already in use\); .*\n", said)
