"""Chromium for the tests of `fillin play`, and functions that wait for the page."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from support.helpers import TIMEOUT

SCREENSHOTS = os.environ.get("PLAY_SCREENSHOTS")
CANVAS_URL = "(id) => document.getElementById(id).toDataURL()"
COUNT_COLOURS = """(id) => { const canvas = document.getElementById(id), colours = new Set();
  const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < bytes.length; i += 28) colours.add(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
  return colours.size; }"""
DROP = """([id, name, type, bytes]) => { const transfer = new DataTransfer(), node = document.getElementById(id);
  transfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
  for (const kind of ["dragenter", "dragover", "drop"])
    node.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true })); }"""


@contextmanager
def launch_chromium() -> Iterator[Any]:
    """Launch the system's Chromium, headless. Without it the tests are skipped; the message tells how to install it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'fillin[dev]' installs Playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=1e3 * TIMEOUT)
        yield browser
        browser.close()


class Visitor:
    """Browser context (cookies, storage, cache) with the page. `problems` lists console messages, errors and requests
    to other servers; `in_flight` counts API requests that are not finished, `max_in_flight` is its maximum."""

    def __init__(self, browser, url: str, **options):
        self.url, self.problems = url, []
        self.in_flight = self.max_in_flight = 0
        self.requests: list[Any] = []
        self.statuses: list[int] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1e3 * TIMEOUT)
        self.page.on("console", lambda message: self.problems.append(f"{message.text} {message.location['url']}"))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._on_request)
        self.page.on("requestfinished", self._on_end)
        self.page.on("requestfailed", self._on_end)
        self.page.on("response", self._on_response)

    def _on_request(self, request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(request.url)
        if _is_api(request):
            self.requests.append(request)
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def _on_end(self, request) -> None:
        self.in_flight -= _is_api(request)

    def _on_response(self, response) -> None:
        if _is_api(response.request):
            self.statuses.append(response.status)

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition on the reports of the browser."""
        _poll(self.page, condition, "the condition")

    def settle(self) -> None:
        """Wait until every request is answered, and no other follows."""
        wait_for(self.page, "() => window.fillinRequests?.timings.length > 1 && fillinRequests.isIdle()")
        self.wait_until(lambda: not self.in_flight)

    def expect_error(self, path: str, status: int) -> None:
        """Wait for Chromium's console message on a response that the test provoked, and discard it."""

        def messages() -> list[str]:
            return [m for m in self.problems if f"status of {status} " in m and m.endswith(f" {self.url}{path}")]

        self.wait_until(messages)
        (message,) = messages()
        self.problems.remove(message)


def _is_api(request) -> bool:
    return "/api/" in request.url


def _poll(page, condition: Callable[[], object], name: str) -> None:
    end = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < end, f"{name} never held; status: {page.inner_text('#status')}"
        page.wait_for_timeout(50)


def take_screenshot(page, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"play-{name}.png", animations="disabled")


def wait_for(page, condition: str, arg: Any = None) -> None:
    """Wait for a condition in JavaScript. The page's policy forbids the code that Playwright's own wait injects."""
    _poll(page, lambda: page.evaluate(condition, arg), f"{condition} with {arg!r}")


def wait_for_status(page, text: str) -> None:
    wait_for(page, "(text) => document.getElementById('status').textContent.includes(text)", text)


def expect_response(page, path: str):
    return page.expect_response(lambda response: response.url.endswith(path) and response.ok)


def wait_for_redraw(page, canvas: str, before: str) -> None:
    wait_for(page, "([id, old]) => document.getElementById(id).toDataURL() !== old", [canvas, before])


def drop_file(page, node: str, name: str, kind: str, content: bytes) -> None:
    page.evaluate(DROP, [node, name, kind, list(content)])
