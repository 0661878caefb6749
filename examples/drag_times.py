"""Latency of `fillin play` from a drag to the redrawn plot, in Chromium: python examples/drag_times.py

Fifty points are loaded from a CSV, and another one is dragged forty times with each model. Keep the machine idle.
"""

import argparse
import shutil
import subprocess
import sys
from statistics import median

CSV = "year,level\n" + "\n".join(f"{2000 + i},{300 + i % 5}" for i in range(50))
TIMES = "fillinRequests.timings.filter(({ kind }) => kind === 'curve').map(({ milliseconds }) => milliseconds)"


def drag(page, steps: int) -> list[float]:
    """Milliseconds from each move of the mouse to the redrawn plot. The point is removed afterwards."""
    box = page.locator("#curve-canvas").bounding_box()
    page.evaluate("fillinRequests.timings.length = 0")
    x, y = box["x"] + box["width"] / 2, box["y"] + 0.9 * box["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(steps):
        page.mouse.move(x + 0.005 * step * box["width"], y)
        page.wait_for_timeout(120)
    page.mouse.up()
    times = sorted(page.evaluate(TIMES))
    page.keyboard.press("Delete")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of fillin play from a drag to the redrawn plot.")
    parser.add_argument("--steps", type=int, default=40, help="drags per model")
    steps = parser.parse_args().steps
    chromium = shutil.which("chromium") or sys.exit("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "fillin", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as server, sync_playwright() as driver:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[2]  # fillin play: http://… (Ctrl-C stops it)
            page = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
            page.goto(address)
            page.wait_for_timeout(10_000)  # while the weights are loaded
            page.click("summary")
            page.fill("#curve-csv", CSV)
            page.click("#curve-load")
            for model in ("te-tnp", "anp", "convcnp", "gp"):
                page.check(f"input[value={model}]")
                page.wait_for_timeout(1_000)
                times = drag(page, steps)
                p90 = times[int(0.9 * len(times))]
                print(f"{model:8} median {median(times):.0f} ms, 90 % within {p90:.0f} ms, {len(times)} drags")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
