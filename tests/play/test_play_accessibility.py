"""The page of `fillin play` for everyone: phones and wide screens, light and dark, screen readers, many at once."""

import json

import pytest
from support.browser import PICTURE, Visitor, answered, shot, until

from fillin.play import tables

TOOLS = ("curves", "images", "tables", "span")
READY = {"curves": "#curve-legend li", "images": "#image-samples canvas", "tables": "#table-sheet td button",
         "span": "#span-costs h3"}  # fmt: skip
# WCAG 2.2: (L1 + 0.05) / (L2 + 0.05) of relative luminances, of every text that is shown against what is behind it
CONTRAST = """() => {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const over = (ground, colour) => {  // the browser itself mixes: whatever way a colour is written
    for (const fill of [`rgb(${ground.join()})`, colour]) { context.fillStyle = fill; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const behind = (node) => {
    const above = [];
    for (let one = node; one; one = one.parentElement) above.unshift(getComputedStyle(one).backgroundColor);
    return above.reduce(over, [255, 255, 255]);
  };
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + [0.2126, 0.7152, 0.0722][i] * v, 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const found = [];
  const look = (node, text, style) => {
    const ground = behind(node), ink = over(ground, style.color), value = ratio(ink, ground);
    found.push({ text: text.trim().slice(0, 40), ratio: value });
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement;
    if (!text.data.trim() || node.closest("noscript, script, :disabled") || !node.checkVisibility()) continue;
    look(node, text.data, getComputedStyle(node));
  }
  for (const node of document.querySelectorAll("textarea"))
    if (node.checkVisibility()) look(node, node.placeholder, getComputedStyle(node, "::placeholder"));
  return found; }"""
CONTROLS = {"button", "radio", "checkbox", "slider", "tab", "textbox", "combobox", "listbox", "link", "Canvas", "image",
            "img", "application", "region", "tabpanel", "DisclosureTriangle", "spinbutton"}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """How well a table is filled does not matter here."""
    monkeypatch.setattr(tables, "_STEPS", 4)


@pytest.mark.parametrize("tool", TOOLS)
def test_all_can_read_it_and_reach_it(page, tool):
    """Every control is named; text stands out; nothing is wider than the screen."""
    page.click(f"#tab-{tool}")
    page.wait_for_selector(READY[tool])
    if tool == "tables":
        page.click("#table-sheet td button >> nth=5")
        page.wait_for_selector("#table-why .bars")
    for details in page.locator("details:visible").all():
        details.evaluate("(node) => { node.open = true; }")
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    said = [(n["role"]["value"], n.get("name", {}).get("value", "").strip()) for n in nodes if not n["ignored"]]
    named = [one for one in said if one[0] in CONTROLS]
    assert len(named) > 8
    assert [one for one in named if not one[1]] == []
    for width, height in ((1440, 900), (375, 740)):
        page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            until(page, "(theme) => document.documentElement.dataset.theme === theme", theme)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            texts = page.evaluate(CONTRAST)
            assert len(texts) > 12
            assert [one for one in texts if one["ratio"] < 4.5] == []
    shot(page, f"phone-{tool}")
    page.set_viewport_size({"width": 1280, "height": 860})


def drag(visitor, share):
    """To a share of the width of the plot: one event of the mouse."""
    box = visitor.box
    visitor.page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.3 * box["height"])


def settled(visitor):
    """All that was asked is answered, and nothing follows."""
    until(visitor.page, "() => fillinTimings.length > 1")
    while True:
        before = len(visitor.asked)
        visitor.page.wait_for_timeout(100)
        if not visitor.flying and len(visitor.asked) == before:
            return


def test_a_table_of_one_holds_up_no_drag_of_another(browser, play, visitor, monkeypatch):
    slow, quick = Visitor(browser, play), visitor
    quick.page.click("#tab-curves")
    settled(quick)
    quick.box = quick.page.locator("#curve-canvas").bounding_box()
    monkeypatch.setattr(tables, "_STEPS", 10**9)  # without an end
    slow.page.goto(f"{play}/#tables")
    until(slow.page, "() => document.getElementById('status').textContent.includes('Learning the irises')")
    with answered(quick.page, "/api/curves"):
        drag(quick, 0.5)
        quick.page.mouse.down()
        drag(quick, 0.6)
        quick.page.mouse.up()
    assert slow.flying == 1
    with answered(slow.page, "/api/curves"):  # nor its own: who leaves a tool does not wait for it
        slow.page.click("#tab-curves")
    monkeypatch.setattr(tables, "_STEPS", 4)
    slow.page.click("#tab-tables")  # where it is asked again
    slow.page.wait_for_selector("#table-about >> text=blanks filled in")
    assert slow.most == 1
    assert slow.wrong == []
    slow.context.close()


def test_eight_that_drag_at_once_are_all_served(browser, play):
    crowd = [Visitor(browser, play) for _ in range(8)]
    for one in crowd:
        one.page.goto(play, wait_until="commit")
    for one in crowd:
        settled(one)
        one.box = one.page.locator("#curve-canvas").bounding_box()
        drag(one, 0.5)
        one.page.mouse.down()
    moves = 10
    for step in range(moves):
        for one in crowd:
            drag(one, 0.5 + 0.02 * step)
    for one in crowd:
        one.page.mouse.up()
    for one in crowd:
        settled(one)
        curves = [request for request in one.asked if request.url.endswith("/api/curves")]
        assert set(one.statuses) == {200}
        assert one.most == 1  # in flight
        assert 2 <= len(curves) < moves  # what was overtaken while it waited was never sent
        x, _ = json.loads(curves[-1].post_data)["points"][-1]
        left, right = 46, one.box["width"] - 14  # the margins of the plot
        assert x == pytest.approx(5 * ((0.5 + 0.02 * 9) * one.box["width"] - left) / (right - left) - 2.5, abs=0.02)
        assert one.wrong == []
    last = crowd[-1].page
    shown = last.evaluate(PICTURE, "curve-canvas")
    with answered(last, "/api/curves"):  # the same once more: what is shown is the newest answer
        last.dispatch_event("#curve-samples", "input")
    settled(crowd[-1])
    assert last.evaluate(PICTURE, "curve-canvas") == shown
    for one in crowd:
        one.context.close()
