"""`fillin play` in Chromium: every tool is operated, its canvases are checked, and the console stays silent.

PLAY_SCREENSHOTS=docs/pictures pytest tests/play/test_play_browser.py updates the screenshots of docs/play.md.
"""

import base64
from pathlib import Path

from support.browser import (
    CANVAS_URL,
    COUNT_COLOURS,
    drop_file,
    expect_response,
    take_screenshot,
    wait_for,
    wait_for_redraw,
    wait_for_status,
)
from test_play_api import random_png

YEARS = "year,level\n" + "\n".join(f"{2000 + i},{300 + i % 5}" for i in range(50))


def test_the_prediction_follows_a_dragged_point(page):
    page.click("#tab-curves")
    wait_for(page, "() => fillinRequests.timings.some((timing) => timing.kind === 'curve')")
    assert page.evaluate(COUNT_COLOURS, "curve-canvas") > 10
    box = page.locator("#curve-canvas").bounding_box()
    before = page.evaluate(CANVAS_URL, "curve-canvas")
    with expect_response(page, "/api/curves"):
        page.mouse.click(box["x"] + 0.6 * box["width"], box["y"] + 0.3 * box["height"])
    wait_for_status(page, "point 8 of 8")
    wait_for_redraw(page, "curve-canvas", before)
    before = page.evaluate(CANVAS_URL, "curve-canvas")
    page.mouse.down()
    for step in range(5):
        page.mouse.move(box["x"] + (0.6 + 0.01 * step) * box["width"], box["y"] + (0.3 + 0.02 * step) * box["height"])
    page.mouse.up()
    wait_for_status(page, "Moved point 8 of 8")
    wait_for_redraw(page, "curve-canvas", before)
    with expect_response(page, "/api/curves/attention"):
        page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 0.8 * box["height"])
    page.wait_for_selector("#curve-legend >> text=head 4")
    take_screenshot(page, "curves")
    page.mouse.dblclick(box["x"] + 0.64 * box["width"], box["y"] + 0.38 * box["height"])
    wait_for_status(page, "7 are left")


def test_points_are_added_moved_and_removed_by_keyboard(page):
    """Without a pointer, and with no focus other than by the Tab key."""
    page.click("#tab-curves")
    page.click("#curve-example")
    page.focus("#tab-curves")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "curve-plot"
    before = page.evaluate(CANVAS_URL, "curve-canvas")
    with expect_response(page, "/api/curves"):
        page.keyboard.press("Enter")
    wait_for_status(page, "Added point 8 of 8: x 0.00, y 0.00")
    wait_for_redraw(page, "curve-canvas", before)
    page.keyboard.press("ArrowUp")
    wait_for_status(page, "Moved point 8 of 8: x 0.00, y 0.0440")
    page.keyboard.press("Shift+ArrowRight")
    wait_for_status(page, "Moved point 8 of 8: x 0.250, y 0.0440")
    for _ in range(60):
        page.keyboard.press("Shift+ArrowUp")
    wait_for_status(page, "Moved point 8 of 8: x 0.250, y 2.20")  # never outside the plot
    page.keyboard.press("Enter")
    wait_for_status(page, "Added point 9 of 9")
    page.keyboard.press("p")
    wait_for_status(page, "Selected point 8 of 9")
    page.keyboard.press("Delete")
    wait_for_status(page, "8 are left")
    page.keyboard.press("n")
    wait_for_status(page, "Selected point 1 of 8")
    page.keyboard.press("Backspace")
    wait_for_status(page, "7 are left")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "model"  # focus leaves the plot again
    page.click("#curve-example")


def test_a_shift_shows_which_models_are_equivariant(page):
    page.click("#tab-curves")
    for model, text in (
        ("te-tnp", "is translation equivariant"),
        ("anp", "depends on absolute locations"),
        ("convcnp", "is translation equivariant"),
        ("gp", "is translation equivariant"),
    ):
        page.check(f"input[value={model}]")
        page.fill("#curve-shift", "20")
        wait_for(page, "(text) => document.getElementById('curve-equivariance').textContent.includes(text)", text)
        if model == "anp":
            take_screenshot(page, "shift")
        page.fill("#curve-shift", "0")
        wait_for(page, "() => document.getElementById('curve-equivariance').textContent === ''")
    page.check("input[value=te-tnp]")


def test_curves_are_loaded_and_downloaded(page):
    page.click("#tab-curves")
    drop_file(page, "curve-canvas", "three.csv", "text/csv", b"x,y\n0,1\n1,2\n2,0\n")
    wait_for_status(page, "3 points")
    drop_file(page, "curve-canvas", "words.csv", "text/csv", b"x,y\n0,1\none,two\n")
    wait_for_status(page, 'Line 3, "one,two", is not two numbers')
    page.click("summary")
    page.fill("#curve-csv", YEARS)
    page.click("#curve-load")
    wait_for_status(page, "50 points")
    for node, name in (
        ("#curve-get-csv", "curve.csv"),
        ("#curve-get-png", "curve.png"),
        ("#curve-get-code", "curve.py"),
    ):
        with page.expect_download() as event:
            page.click(node)
        assert event.value.suggested_filename == name
        assert Path(event.value.path()).stat().st_size > 500
    box = page.locator("#curve-canvas").bounding_box()
    page.evaluate("fillinRequests.timings.length = 0")
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.9 * box["height"])
    page.mouse.down()
    for step in range(12):
        page.mouse.move(box["x"] + (0.5 + 0.01 * step) * box["width"], box["y"] + 0.9 * box["height"])
        wait_for(page, "(n) => fillinRequests.timings.filter((timing) => timing.kind === 'curve').length > n", step)
    page.mouse.up()
    page.click("#curve-example")
    page.click("summary")


def test_images_are_completed_from_painted_pixels(page, visitor):
    page.click("#tab-images")
    wait_for_status(page, "Completed from 19 pixels")
    for pattern in ("coarse", "half"):
        before = page.evaluate(CANVAS_URL, "image-mean")
        page.check(f"input[value={pattern}]")
        wait_for_redraw(page, "image-mean", before)
    for model in ("sheet-2d", "digits"):
        before = page.evaluate(CANVAS_URL, "image-mean")
        with expect_response(page, "/api/images/complete") as event:
            page.check(f"#image-form input[value={model}]")
        assert event.value.request.post_data_json["model"] == model
        wait_for_redraw(page, "image-mean", before)
    page.check("input[value=few]")
    wait_for_status(page, "Completed from 19 pixels")
    for node in ("image-mean", "image-std", "image-truth", "image-observed"):
        assert page.evaluate(COUNT_COLOURS, node) > 4
    assert page.locator("#image-samples canvas").count() == 3
    box = page.locator("#image-observed").bounding_box()
    page.mouse.click(box["x"] + 2, box["y"] + 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("input[value=painted]:checked", state="attached")
    wait_for(page, "() => document.getElementById('image-count').textContent.match(/^(20|21) of 64/)")
    page.focus("#image-observed")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    before = page.evaluate(CANVAS_URL, "image-mean")
    with expect_response(page, "/api/images/attention"):
        page.click("#image-mean", position={"x": 90, "y": 120})
    page.wait_for_selector("#image-legend >> text=head 4")
    wait_for_redraw(page, "image-mean", before)
    visitor.settle()
    page.keyboard.press("ArrowDown")  # from the clicked pixel: canvases of 192 pixels show 8 × 8
    wait_for_status(page, "Row 6, column 3")
    page.keyboard.press("ArrowUp")
    take_screenshot(page, "images")


def test_observed_pixels_can_be_erased(page):
    page.click("#tab-images")
    page.check("input[aria-label='Digit 3']")
    page.check("input[value=half]")
    wait_for_status(page, "Completed from 32 pixels")
    page.check("input[value=erase]")
    box = page.locator("#image-observed").bounding_box()
    with expect_response(page, "/api/images/complete"):
        page.mouse.click(box["x"] + 2, box["y"] + 2)
    wait_for_status(page, "Completed from 31 pixels")
    page.check("input[value=add]")
    with expect_response(page, "/api/images/complete"):
        page.mouse.click(box["x"] + 2, box["y"] + 2)
    wait_for_status(page, "Completed from 32 pixels")
    page.click("#image-clear")
    wait_for_status(page, "No pixels are observed yet")
    assert page.inner_text("#image-count") == "0 of 64 pixels"
    page.click("#image-resample")
    wait_for_status(page, "Completed from 19 pixels")


def test_an_image_is_completed_at_any_resolution(page):
    page.click("#tab-images")
    page.check("input[aria-label='Digit 3']")
    page.wait_for_selector("#image-size >> text=×")
    for scale in (1, 2):
        with expect_response(page, "/api/images/complete") as event:
            page.check(f"input[name=scale][value='{scale}']")
        assert _width(event.value.json()["mean"]) == 8 * scale
        page.wait_for_selector(f"#image-size >> text={8 * scale} × {8 * scale}")
    page.check("input[name=scale][value='4']")


def _width(url):
    return int.from_bytes(base64.b64decode(url.partition(",")[2])[16:20])  # of a PNG


def test_an_image_can_be_dropped(page):
    page.click("#tab-images")
    drop_file(page, "image-mean", "a.png", "image/png", random_png(80, 20))
    page.wait_for_selector("#image-note >> text=downsampled: 80 × 20 → 64 × 16 pixels")
    wait_for_status(page, "pixels by the model trained on random functions")
    assert page.is_disabled("#image-form input[value=digits]")  # the image is too large for it
    drop_file(page, "images", "notes.txt", "text/plain", b"no image")
    wait_for_status(page, "notes.txt is not a PNG or JPEG")
    page.check("input[aria-label='Digit 3']")
    wait_for_status(page, "by the model trained on digits")


def test_the_chosen_model_stays_and_shows_its_own_layers(page):
    page.click("#tab-images")
    for model, trained_on, layers in (("digits", "digits", 4), ("sheet-2d", "random functions", 6)):
        page.check(f"#image-form input[value={model}]")
        for digit in (5, 3):
            page.check(f"input[aria-label='Digit {digit}']")
            page.wait_for_selector("#image-size >> text=×")
        assert page.is_checked(f"#image-form input[value={model}]")
        wait_for_status(page, f"by the model trained on {trained_on}")
        with expect_response(page, "/api/images/attention"):
            page.click("#image-mean", position={"x": 90, "y": 120})
        page.wait_for_selector("#image-legend >> text=head 4")
        assert page.input_value("#image-layer") == page.inner_text("#image-layer-out") == str(layers)
    page.check("#image-form input[value=digits]")


def test_missing_cells_are_filled_and_explained(page, visitor):
    page.click("#tab-tables")
    page.wait_for_selector("#table-sheet td button")
    page.click("#table-sheet td button >> nth=5")
    page.wait_for_selector("text=Rows it attends to")
    assert page.locator("#table-explanation .bars").count() == 2
    assert page.locator("td.selected").count() == 1
    assert page.locator("tr.attended").count() == 8
    take_screenshot(page, "tables")
    with page.expect_download() as event:
        page.click("#table-get")
    assert ",," not in Path(event.value.path()).read_text()
    drop_file(page, "table-sheet", "t.csv", "text/csv", b"a,b\n1,2,3\n")
    wait_for_status(page, "3 cells, but the header has 2")
    visitor.expect_error("/api/tables", 422)
    drop_file(
        page, "table-sheet", "t.csv", "text/csv", "\n".join(["a,b", *(f"{i},{i}" for i in range(30)), "9,"]).encode()
    )
    page.wait_for_selector("#table-about >> text=31 rows, 2 columns, 1 missing value filled")


def test_the_window_is_drawn_measured_and_learned(page):
    page.click("#tab-span")
    page.wait_for_selector("#span-costs >> text=Window, kernel")
    before = page.evaluate(CANVAS_URL, "span-canvas")
    page.hover("#span-canvas", position={"x": 200, "y": 150})
    wait_for_redraw(page, "span-canvas", before)
    with expect_response(page, "/api/span"):
        page.fill("#span-points", "100")
    page.wait_for_selector("#span-costs >> text=400,000,000 pairs")
    page.wait_for_selector("#span-costs >> text=Estimated: too expensive to run here")
    page.wait_for_selector("#span-window >> text=of 20,000 points")
    take_screenshot(page, "span")
    page.fill("#span-points", "30")
    with expect_response(page, "/api/span/learn"):
        page.click("#span-learn")
    page.wait_for_selector("#span-learned >> text=Step 40 of 40")
    wait_for_status(page, "the kernel takes")
