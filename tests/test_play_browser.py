"""`fillin play` in a real browser: every tool is driven, its picture looked at, and the console stays silent.

PLAY_PICTURES=docs/pictures pytest tests/test_play_browser.py makes the screenshots of docs/play.md anew; -s says how
long it took from a drag to the new picture.
"""

import os
import shutil
from pathlib import Path
from statistics import median

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'fillin[dev]' brings Playwright")
if CHROMIUM is None:
    pytest.skip("there is no chromium to drive: apt-get install chromium", allow_module_level=True)

PICTURES = os.environ.get("PLAY_PICTURES")
COLOURS = """(id) => { const canvas = document.getElementById(id), seen = new Set();
  const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < bytes.length; i += 28) seen.add(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
  return seen.size; }"""
PICTURE = "(id) => document.getElementById(id).toDataURL()"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser, play):
    """One page for all; whatever it complains of, or asks of others, fails."""
    page = browser.new_page(viewport={"width": 1280, "height": 860}, accept_downloads=True)
    page.set_default_timeout(60_000)
    wrong: list[str] = []
    page.on("console", lambda message: "422" in message.text or wrong.append(message.text))  # a table with a mistake
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith((play, "data:", "blob:")) or wrong.append(request.url))
    page.goto(play)
    yield page
    assert wrong == []


def shot(page, name):
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"play-{name}.png", animations="disabled")


def until(page, holds, arg=None):
    """Asked from outside: the page's own policy forbids what Playwright would put into it to wait."""
    for _ in range(1200):
        if page.evaluate(holds, arg):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{holds} with {arg!r} never held; status: {page.inner_text('#status')}")


def status(page, words):
    until(page, "(words) => document.getElementById('status').textContent.includes(words)", words)


def answered(page, path):
    return page.expect_response(lambda answer: answer.url.endswith(path) and answer.ok)


def drawn(page, node, before):
    until(page, "([id, old]) => document.getElementById(id).toDataURL() !== old", [node, before])


def test_curves_follow_what_is_dragged(page):
    until(page, "() => fillinTimings.some((one) => one.kind === 'curve')")
    assert page.evaluate(COLOURS, "curve-canvas") > 10
    box = page.locator("#curve-canvas").bounding_box()
    before = page.evaluate(PICTURE, "curve-canvas")
    with answered(page, "/api/curves"):
        page.mouse.click(box["x"] + 0.6 * box["width"], box["y"] + 0.3 * box["height"])
    status(page, "point 8 of 8")
    drawn(page, "curve-canvas", before)
    before = page.evaluate(PICTURE, "curve-canvas")
    page.mouse.down()
    for step in range(5):
        page.mouse.move(box["x"] + (0.6 + 0.01 * step) * box["width"], box["y"] + (0.3 + 0.02 * step) * box["height"])
    page.mouse.up()
    status(page, "Moved point 8 of 8")
    drawn(page, "curve-canvas", before)
    with answered(page, "/api/curves/attention"):
        page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 0.8 * box["height"])
    page.wait_for_selector("#curve-legend >> text=head 4")
    shot(page, "curves")
    page.mouse.dblclick(box["x"] + 0.64 * box["width"], box["y"] + 0.38 * box["height"])
    status(page, "7 are left")


def test_curves_by_keyboard(page):
    page.focus("#curve-plot")
    page.keyboard.press("Enter")
    status(page, "Added point 8 of 8")
    page.keyboard.press("ArrowUp")
    status(page, "Moved point 8 of 8: x 0.00, y 0.0440")
    page.keyboard.press("Delete")
    status(page, "7 are left")
    page.keyboard.press("n")
    status(page, "Chose point")


def test_a_shift_tells_who_is_equivariant(page):
    for model, words in (
        ("te-tnp", "is the same"),
        ("anp", "knows places"),
        ("convcnp", "is the same"),
        ("gp", "is the"),
    ):
        page.check(f"input[value={model}]")
        page.fill("#curve-shift", "20")
        until(page, "(w) => document.getElementById('curve-verdict').textContent.includes(w)", words)
        if model == "anp":
            shot(page, "shift")
        page.fill("#curve-shift", "0")
        until(page, "() => document.getElementById('curve-verdict').textContent === ''")
    page.check("input[value=te-tnp]")


def test_curves_come_and_go_as_files(page, tmp_path):
    page.click("summary")
    page.fill("#curve-csv", "year,level\n" + "\n".join(f"{2000 + i},{300 + i % 5}" for i in range(50)))
    page.click("#curve-read")
    status(page, "50 points")
    for node, name in (
        ("#curve-get-csv", "curve.csv"),
        ("#curve-get-png", "curve.png"),
        ("#curve-get-code", "curve.py"),
    ):
        with page.expect_download() as found:
            page.click(node)
        assert found.value.suggested_filename == name
        assert Path(found.value.path()).stat().st_size > 500
    box = page.locator("#curve-canvas").bounding_box()
    page.evaluate("fillinTimings.length = 0")
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.9 * box["height"])
    page.mouse.down()
    for step in range(12):
        page.mouse.move(box["x"] + (0.5 + 0.01 * step) * box["width"], box["y"] + 0.9 * box["height"])
        until(page, "(n) => fillinTimings.filter((one) => one.kind === 'curve').length > n", step)
    page.mouse.up()
    took = page.evaluate("fillinTimings.filter((one) => one.kind === 'curve').map((one) => one.milliseconds)")
    print(f"\nfrom a drag to the new picture, 51 points: median {median(took):.0f} ms of {len(took)}")
    page.click("#curve-example")
    page.click("summary")


def test_images_are_completed_from_what_is_painted(page):
    page.click("#tab-images")
    status(page, "Completed from 19 pixels")
    for pattern in ("coarse", "half"):
        before = page.evaluate(PICTURE, "image-mean")
        page.check(f"input[value={pattern}]")
        drawn(page, "image-mean", before)
    page.check("input[value=few]")
    status(page, "Completed from 19 pixels")
    for node in ("image-mean", "image-std", "image-truth", "image-known"):
        assert page.evaluate(COLOURS, node) > 4
    assert page.locator("#image-samples canvas").count() == 3
    box = page.locator("#image-known").bounding_box()
    page.mouse.click(box["x"] + 2, box["y"] + 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("input[value=painted]:checked", state="attached")
    until(page, "() => document.getElementById('image-count').textContent.match(/^(20|21) of 64/)")
    page.focus("#image-known")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    before = page.evaluate(PICTURE, "image-mean")
    with answered(page, "/api/images/attention"):
        page.click("#image-mean", position={"x": 90, "y": 120})
    page.wait_for_selector("#image-legend >> text=head 4")
    drawn(page, "image-mean", before)
    shot(page, "images")


def test_a_picture_can_be_dropped(page):
    from test_play_api import _png

    page.check("input[name=scale][value='1']")
    page.set_input_files("#image-file", {"name": "a.png", "mimeType": "image/png", "buffer": _png(80, 20)})
    page.wait_for_selector("#image-note >> text=made smaller: 80 × 20 → 64 × 16 pixels")
    status(page, "Completed from")


def test_blanks_of_a_table_are_filled_and_explained(page):
    page.click("#tab-tables")
    page.wait_for_selector("#table-sheet td button")
    page.click("#table-sheet td button >> nth=5")
    page.wait_for_selector("text=Rows it attended to")
    assert page.locator("#table-why .bars").count() == 2
    assert page.locator("td.chosen").count() == 1
    assert page.locator("tr.seen").count() == 8
    shot(page, "tables")
    with page.expect_download() as found:
        page.click("#table-get")
    assert ",," not in Path(found.value.path()).read_text()
    page.set_input_files("#table-file", {"name": "t.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2,3\n"})
    status(page, "3 cells, but the header has 2")
    page.wait_for_timeout(100)


def test_the_window_is_drawn_measured_and_learned(page):
    page.click("#tab-span")
    page.wait_for_selector("#span-costs >> text=Window, our kernel")
    before = page.evaluate(PICTURE, "span-canvas")
    page.hover("#span-canvas", position={"x": 200, "y": 150})
    drawn(page, "span-canvas", before)
    with answered(page, "/api/span"):
        page.fill("#span-points", "100")
    page.wait_for_selector("#span-costs >> text=Estimated: too dear to run here")
    page.wait_for_selector("#span-here >> text=of 20,000 points")
    shot(page, "span")
    page.fill("#span-points", "30")
    with answered(page, "/api/span/learn"):
        page.click("#span-learn")
    page.wait_for_selector("#span-learnt >> text=Step 40 of 40")
    status(page, "our kernel takes")


@pytest.mark.parametrize("tool", ["curves", "images", "tables", "span"])
def test_it_fits_a_phone_and_the_dark(page, tool):
    page.set_viewport_size({"width": 360, "height": 740})
    if tool == "curves":
        page.click("#theme")
    page.click(f"#tab-{tool}")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    shot(page, f"phone-{tool}")
