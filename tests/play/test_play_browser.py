"""`fillin play` in a real browser: every tool is driven, its picture looked at, and the console stays silent.

PLAY_PICTURES=docs/pictures pytest tests/test_play_browser.py makes the screenshots of docs/play.md anew; -s says how
long it took from a drag to the new picture.
"""

import base64
from pathlib import Path
from statistics import median

from support.browser import COLOURS, PICTURE, answered, drawn, drop, shot, status, until
from test_play_api import _png

YEARS = "year,level\n" + "\n".join(f"{2000 + i},{300 + i % 5}" for i in range(50))


def test_curves_follow_what_is_dragged(page):
    page.click("#tab-curves")
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


def test_points_are_placed_moved_and_deleted_by_keys_alone(page):
    """From the tab on: no pointer, and no focus but that of the Tab key."""
    page.click("#tab-curves")
    page.click("#curve-example")
    page.focus("#tab-curves")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "curve-plot"
    before = page.evaluate(PICTURE, "curve-canvas")
    with answered(page, "/api/curves"):
        page.keyboard.press("Enter")
    status(page, "Added point 8 of 8: x 0.00, y 0.00")
    drawn(page, "curve-canvas", before)
    page.keyboard.press("ArrowUp")
    status(page, "Moved point 8 of 8: x 0.00, y 0.0440")
    page.keyboard.press("Shift+ArrowRight")
    status(page, "Moved point 8 of 8: x 0.250, y 0.0440")
    for _ in range(60):
        page.keyboard.press("Shift+ArrowUp")
    status(page, "Moved point 8 of 8: x 0.250, y 2.20")  # never beyond what is shown
    page.keyboard.press("Enter")
    status(page, "Added point 9 of 9")
    page.keyboard.press("p")
    status(page, "Chose point 8 of 9")
    page.keyboard.press("Delete")
    status(page, "8 are left")
    page.keyboard.press("n")
    status(page, "Chose point 1 of 8")
    page.keyboard.press("Backspace")
    status(page, "7 are left")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "model"  # and out again
    page.click("#curve-example")


def test_a_shift_tells_who_is_equivariant(page):
    page.click("#tab-curves")
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


def test_curves_come_and_go_as_files(page):
    page.click("#tab-curves")
    drop(page, "curve-canvas", "three.csv", "text/csv", b"x,y\n0,1\n1,2\n2,0\n")
    status(page, "3 points")
    drop(page, "curve-canvas", "words.csv", "text/csv", b"x,y\n0,1\none,two\n")
    status(page, 'Line 3, "one,two", is not two numbers')
    page.click("summary")
    page.fill("#curve-csv", YEARS)
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
    for model in ("surface", "digits"):
        before = page.evaluate(PICTURE, "image-mean")
        with answered(page, "/api/images/complete") as found:
            page.check(f"#image-form input[value={model}]")
        assert found.value.request.post_data_json["model"] == model
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
    page.keyboard.press("ArrowDown")  # from where it was clicked: canvases of 192 pixels show 8 × 8
    status(page, "Row 6, column 3")
    page.keyboard.press("ArrowUp")
    shot(page, "images")


def test_what_is_known_of_a_picture_can_be_forgotten(page):
    page.click("#tab-images")
    page.check("input[aria-label='Digit 3']")
    page.check("input[value=half]")
    status(page, "Completed from 32 pixels")
    page.check("input[value=erase]")
    box = page.locator("#image-known").bounding_box()
    with answered(page, "/api/images/complete"):
        page.mouse.click(box["x"] + 2, box["y"] + 2)
    status(page, "Completed from 31 pixels")
    page.check("input[value=add]")
    with answered(page, "/api/images/complete"):
        page.mouse.click(box["x"] + 2, box["y"] + 2)
    status(page, "Completed from 32 pixels")
    page.click("#image-none")
    status(page, "No pixel is known yet")
    assert page.inner_text("#image-count") == "0 of 64 pixels"
    page.click("#image-again")
    status(page, "Completed from 19 pixels")


def test_a_picture_comes_at_any_resolution(page):
    page.click("#tab-images")
    page.check("input[aria-label='Digit 3']")
    page.wait_for_selector("#image-size >> text=×")
    for scale in (1, 2):
        with answered(page, "/api/images/complete") as found:
            page.check(f"input[name=scale][value='{scale}']")
        assert _width(found.value.json()["mean"]) == 8 * scale
        page.wait_for_selector(f"#image-size >> text={8 * scale} × {8 * scale}")
    page.check("input[name=scale][value='4']")


def _width(url):
    return int.from_bytes(base64.b64decode(url.partition(",")[2])[16:20])  # of a PNG


def test_a_picture_can_be_dropped(page):
    page.click("#tab-images")
    drop(page, "image-mean", "a.png", "image/png", _png(80, 20))
    page.wait_for_selector("#image-note >> text=made smaller: 80 × 20 → 64 × 16 pixels")
    status(page, "pixels by a network that knows surfaces")
    assert page.is_disabled("#image-form input[value=digits]")  # so many pixels are too many for it
    drop(page, "images", "notes.txt", "text/plain", b"no picture")
    status(page, "notes.txt is no PNG or JPEG")
    page.check("input[aria-label='Digit 3']")
    status(page, "by a network that knows digits")


def test_the_network_that_was_chosen_stays_and_shows_its_own_layers(page):
    page.click("#tab-images")
    for model, layers in (("digits", 4), ("surface", 8)):
        page.check(f"#image-form input[value={model}]")
        for digit in (5, 3):
            page.check(f"input[aria-label='Digit {digit}']")
            page.wait_for_selector("#image-size >> text=×")
        assert page.is_checked(f"#image-form input[value={model}]")
        status(page, f"by a network that knows {model}")
        with answered(page, "/api/images/attention"):
            page.click("#image-mean", position={"x": 90, "y": 120})
        page.wait_for_selector("#image-legend >> text=head 4")
        assert page.input_value("#image-layer") == page.inner_text("#image-layer-out") == str(layers)
    page.check("#image-form input[value=digits]")


def test_blanks_of_a_table_are_filled_and_explained(page, visitor):
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
    drop(page, "table-sheet", "t.csv", "text/csv", b"a,b\n1,2,3\n")
    status(page, "3 cells, but the header has 2")
    visitor.provoked("/api/tables", 422)
    drop(page, "table-sheet", "t.csv", "text/csv", "\n".join(["a,b", *(f"{i},{i}" for i in range(30)), "9,"]).encode())
    page.wait_for_selector("#table-about >> text=31 rows, 2 columns, 1 blank filled")


def test_the_window_is_drawn_measured_and_learned(page):
    page.click("#tab-span")
    page.wait_for_selector("#span-costs >> text=Window, our kernel")
    before = page.evaluate(PICTURE, "span-canvas")
    page.hover("#span-canvas", position={"x": 200, "y": 150})
    drawn(page, "span-canvas", before)
    with answered(page, "/api/span"):
        page.fill("#span-points", "100")
    page.wait_for_selector("#span-costs >> text=400,000,000 pairs")
    page.wait_for_selector("#span-costs >> text=Estimated: too dear to run here")
    page.wait_for_selector("#span-here >> text=of 20,000 points")
    shot(page, "span")
    page.fill("#span-points", "30")
    with answered(page, "/api/span/learn"):
        page.click("#span-learn")
    page.wait_for_selector("#span-learnt >> text=Step 40 of 40")
    status(page, "our kernel takes")
