"""A real browser for the tests of `fillin play`, and how to wait for its page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PICTURES = os.environ.get("PLAY_PICTURES")
PICTURE = "(id) => document.getElementById(id).toDataURL()"
COLOURS = """(id) => { const canvas = document.getElementById(id), seen = new Set();
  const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < bytes.length; i += 28) seen.add(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
  return seen.size; }"""
DROP = """([id, name, type, bytes]) => { const carried = new DataTransfer(), node = document.getElementById(id);
  carried.items.add(new File([new Uint8Array(bytes)], name, { type }));
  for (const kind of ["dragenter", "dragover", "drop"])
    node.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true })); }"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's, headless; where there is none the tests are skipped and say how to get it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'fillin[dev]' brings Playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no chromium to drive: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A browser of its own (cookies, storage, cache) on the page. `wrong` is whatever it complained of, or asked of
    others; `flying` and `most` are how many requests of the tools are under way, and were at once."""

    def __init__(self, browser, play: str, **options):
        self.play, self.wrong = play, []
        self.flying = self.most = 0
        self.asked: list[Any] = []
        self.statuses: list[int] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self.wrong.append(f"{message.text} {message.location['url']}"))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._begin)
        self.page.on("requestfinished", self._end)
        self.page.on("requestfailed", self._end)
        self.page.on("response", lambda answer: _is_tool(answer.request) and self.statuses.append(answer.status))

    def _begin(self, request) -> None:
        if not request.url.startswith((self.play, "data:", "blob:")):
            self.wrong.append(request.url)
        if _is_tool(request):
            self.asked.append(request)
            self.flying += 1
            self.most = max(self.most, self.flying)

    def _end(self, request) -> None:
        self.flying -= _is_tool(request)

    def provoked(self, path: str, status: int) -> None:
        """Chromium says on the console what the server refused; that it did is what the test wanted."""
        said = [line for line in self.wrong if f"status of {status} " in line and line.endswith(f" {self.play}{path}")]
        assert len(said) == 1, self.wrong
        self.wrong.remove(said[0])


def _is_tool(request) -> bool:
    return "/api/" in request.url


def shot(page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"play-{name}.png", animations="disabled")


def until(page, holds: str, arg: Any = None) -> None:
    """Asked from outside: the page's own policy forbids what Playwright would put into it to wait."""
    for _ in range(1200):
        if page.evaluate(holds, arg):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{holds} with {arg!r} never held; status: {page.inner_text('#status')}")


def status(page, words: str) -> None:
    until(page, "(words) => document.getElementById('status').textContent.includes(words)", words)


def answered(page, path: str):
    return page.expect_response(lambda answer: answer.url.endswith(path) and answer.ok)


def drawn(page, node: str, before: str) -> None:
    until(page, "([id, old]) => document.getElementById(id).toDataURL() !== old", [node, before])


def drop(page, node: str, name: str, kind: str, content: bytes) -> None:
    """As if it were let go over the node."""
    page.evaluate(DROP, [node, name, kind, list(content)])
