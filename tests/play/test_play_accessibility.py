"""Accessibility of the page of `fillin play` (screen sizes, themes, screen readers), and many visitors at once."""

import json

import pytest
from support.browser import CANVAS_URL, Visitor, expect_response, take_screenshot, wait_for, wait_for_status
from support.play_server import pause

from fillin.play import tables

TOOLS = ("curves", "images", "tables", "span")
READY = {"curves": "#curve-legend li", "images": "#image-samples canvas", "tables": "#table-sheet td button",
         "span": "#span-costs h3"}  # fmt: skip
# WCAG 2.2: contrast (L1 + 0.05) / (L2 + 0.05) of the relative luminances of every visible text and its background
CONTRAST = """() => {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const blend = (ground, colour) => {  // by the browser, which parses every notation of a colour
    for (const fill of [`rgb(${ground.join()})`, colour]) { context.fillStyle = fill; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const backgroundOf = (node) => {
    const colours = [];
    for (let n = node; n; n = n.parentElement) colours.unshift(getComputedStyle(n).backgroundColor);
    return colours.reduce(blend, [255, 255, 255]);
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = (rgb) => rgb.map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + [0.2126, 0.7152, 0.0722][i] * v, 0);
  const ratio = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);
  const texts = [];
  const measure = (node, text, style) => {
    const ground = backgroundOf(node), ink = blend(ground, style.color);
    texts.push({ text: text.trim().slice(0, 40), ratio: ratio(ink, ground) });
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement;
    if (!text.data.trim() || node.closest("noscript, script, :disabled") || !node.checkVisibility()) continue;
    measure(node, text.data, getComputedStyle(node));
  }
  for (const node of document.querySelectorAll("textarea"))
    if (node.checkVisibility()) measure(node, node.placeholder, getComputedStyle(node, "::placeholder"));
  return texts; }"""
CONTROLS = {"button", "radio", "checkbox", "slider", "tab", "textbox", "combobox", "listbox", "link", "Canvas", "image",
            "img", "application", "region", "tabpanel", "DisclosureTriangle", "spinbutton"}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Short fits: the quality of a filled table does not matter here."""
    monkeypatch.setattr(tables, "_STEPS", 4)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_is_accessible(page, tool):
    """Every control has a name, text has enough contrast, and nothing is wider than the screen."""
    page.click(f"#tab-{tool}")
    page.wait_for_selector(READY[tool])
    if tool == "tables":
        page.click("#table-sheet td button >> nth=5")
        page.wait_for_selector("#table-explanation .bars")
    for details in page.locator("details:visible").all():
        details.evaluate("(node) => { node.open = true; }")
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = [(n["role"]["value"], n.get("name", {}).get("value", "").strip()) for n in nodes if not n["ignored"]]
    controls = [(role, name) for role, name in roles if role in CONTROLS]
    assert len(controls) > 8
    assert [role for role, name in controls if not name] == []
    for width, height in ((1440, 900), (375, 740)):
        page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            wait_for(page, "(theme) => document.documentElement.dataset.theme === theme", theme)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            texts = page.evaluate(CONTRAST)
            assert len(texts) > 12
            assert [text for text in texts if text["ratio"] < 4.5] == []
    take_screenshot(page, f"phone-{tool}")
    page.set_viewport_size({"width": 1280, "height": 860})


def drag(visitor, fraction):
    """Move the mouse to a fraction of the width of the plot: one event."""
    box = visitor.page.locator("#curve-canvas").bounding_box()
    visitor.page.mouse.move(box["x"] + fraction * box["width"], box["y"] + 0.3 * box["height"])


def test_a_table_of_one_visitor_delays_no_drag_of_another(browser, play_server, visitor, monkeypatch):
    slow, quick = Visitor(browser, play_server.url), visitor
    quick.page.click("#tab-curves")
    quick.settle()
    monkeypatch.setattr(tables, "_STEPS", 10**9)  # never ends
    slow.page.goto(f"{play_server.url}/#tables")
    wait_for_status(slow.page, "Training on the iris table")
    slow.wait_until(lambda: play_server.queues.background.is_running)
    with expect_response(quick.page, "/api/curves"):
        drag(quick, 0.5)
        quick.page.mouse.down()
        drag(quick, 0.6)
        quick.page.mouse.up()
    assert play_server.queues.background.is_running
    with expect_response(slow.page, "/api/curves"):  # nor a drag of its own: a hidden tool aborts its request
        slow.page.click("#tab-curves")
    monkeypatch.setattr(tables, "_STEPS", 4)
    slow.page.click("#tab-tables")  # which sends it again
    slow.page.wait_for_selector("#table-about >> text=missing values filled in")
    assert slow.max_in_flight == 1
    assert slow.problems == []
    slow.context.close()


@pytest.mark.slow
def test_eight_visitors_that_drag_at_once_are_all_served(browser, play_server):
    visitors = [Visitor(browser, play_server.url) for _ in range(8)]
    for visitor in visitors:
        visitor.page.goto(play_server.url, wait_until="commit")
    for visitor in visitors:
        visitor.settle()
        drag(visitor, 0.5)
        visitor.settle()
    with pause(play_server.queues.interactive):  # so that all drags overtake the first request
        for visitor in visitors:
            visitor.page.mouse.down()
        for step in range(10):
            for visitor in visitors:
                drag(visitor, 0.5 + 0.02 * step)
        for visitor in visitors:
            visitor.page.mouse.up()
    for visitor in visitors:
        visitor.settle()
        visitor.wait_until(lambda: len(visitor.statuses) == visitor.page.evaluate("fillinRequests.sent"))  # noqa: B023
        curves = [request for request in visitor.requests if request.url.endswith("/api/curves")]
        assert set(visitor.statuses) == {200}
        assert visitor.max_in_flight == 1
        assert len(curves) == 3  # at the start, the first of the drag and the last: those in between were never sent
        x, _ = json.loads(curves[-1].post_data)["points"][-1]
        width = visitor.page.locator("#curve-canvas").bounding_box()["width"]
        left, right = 46, width - 14  # the margins of the plot
        assert x == pytest.approx(5 * ((0.5 + 0.02 * 9) * width - left) / (right - left) - 2.5, abs=0.02)
        assert visitor.problems == []
    last = visitors[-1]
    shown = last.page.evaluate(CANVAS_URL, "curve-canvas")
    with expect_response(last.page, "/api/curves"):  # the same request again: the newest response is shown
        last.page.dispatch_event("#curve-samples", "input")
    last.settle()
    assert last.page.evaluate(CANVAS_URL, "curve-canvas") == shown
    for visitor in visitors:
        visitor.context.close()
