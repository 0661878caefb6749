"""How long `fillin play` takes from a drag to the new picture, in chromium: python examples/drag_times.py

Fifty points are read from a CSV, one more is dragged, forty times for each model. Leave the machine alone meanwhile.
"""

import argparse
import shutil
import subprocess
import sys
from statistics import median

CSV = "year,level\n" + "\n".join(f"{2000 + i},{300 + i % 5}" for i in range(50))
TIMES = "fillinTimings.filter((one) => one.kind === 'curve').map((one) => one.milliseconds)"


def drag(page, steps: int) -> list[float]:
    """Milliseconds from each move of the mouse to its picture; the point is taken away again."""
    box = page.locator("#curve-canvas").bounding_box()
    page.evaluate("fillinTimings.length = 0")
    x, y = box["x"] + box["width"] / 2, box["y"] + 0.9 * box["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(steps):
        page.mouse.move(x + 0.005 * step * box["width"], y)
        page.wait_for_timeout(120)
    page.mouse.up()
    found = sorted(page.evaluate(TIMES))
    page.keyboard.press("Delete")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="How long fillin play takes from a drag to the new picture.")
    parser.add_argument("--steps", type=int, default=40, help="drags of each model")
    steps = parser.parse_args().steps
    chromium = shutil.which("chromium") or sys.exit("chromium is not there: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "fillin", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as server, sync_playwright() as driver:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[2]  # fillin play: http://… (Ctrl-C ends it)
            page = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
            page.goto(address)
            page.wait_for_timeout(10_000)  # weights are loaded meanwhile
            page.click("summary")
            page.fill("#curve-csv", CSV)
            page.click("#curve-read")
            for model in ("te-tnp", "anp", "convcnp", "gp"):
                page.check(f"input[value={model}]")
                page.wait_for_timeout(1_000)
                took = drag(page, steps)
                most = took[int(0.9 * len(took))]
                print(f"{model:8} median {median(took):.0f} ms, nine tenths within {most:.0f} ms, of {len(took)}")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
