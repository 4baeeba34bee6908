"""Screenshots of the pages that safedrift writes, for docs/pages.md, README and front page.

    make demo && make docs
    python studies/screenshots.py [--demo demo/report.html] [--site docs/_build/html] [--out docs]

The page of the demonstration and the site must be there; the comparison and the run are played
(half a minute). Each page is opened in Debian's Chromium, light, dark and on a phone of 390 pixels.
A page that writes to the console, or does not fit the phone, is an error. There are 256 colours.
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import safedrift as sd

VIEWS = {
    "light": ("light", 1100, 1400),
    "dark": ("dark", 1100, 1400),
    "phone": ("light", 390, 1400),
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
SOON = 60  # episodes after the first move of the target: some have learnt it, others not yet

# The frame of the maps is the first one so long after a move of the target.
SHOW_THE_MOVE = f"""
slider.value = demo.episodes.findIndex((_, i) => i >= moves[0] && since(i) >= {SOON});
slider.dispatchEvent(new Event("input"));
"""


def play(folder):
    """Write the pages of a comparison and a run."""
    who = ["adaptive-planner", "propd-ppo", "opt-cmdp", "uniform", "optimum"]
    sd.compare(["maze", "energy"], who, seeds=3, episodes=5000).report(folder / "comparison.html")
    world = sd.problems.make("energy", episodes=5000)
    run = sd.simulate(world, sd.learners.make("adaptive-planner", world), seed=0)
    run.report(folder / "run.html")


def photograph(browser, page, scheme, width, height, script="", *, whole=False):
    """Return the picture of a page; complaints of the page are errors."""
    tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(page.resolve().as_uri())
    if script:
        tab.evaluate(script)
    tab.wait_for_timeout(1500)  # figures are drawn after the page is there
    wide = tab.evaluate("document.documentElement.scrollWidth")
    picture = tab.screenshot(full_page=whole)
    tab.close()
    if complaints or wide > width:
        raise SystemExit(f"{page}: {complaints or f'{wide} pixels wide, window {width}'}")
    return Image.open(io.BytesIO(picture))


def save(picture, path, height=None):
    if height is not None:
        picture = picture.crop((0, 0, picture.width, min(height, picture.height)))
    picture.convert("RGB").quantize(256).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--demo", type=Path, default=Path("demo/report.html"))
    parser.add_argument("--site", type=Path, default=Path("docs/_build/html"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    (given.out / "pages").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        played = Path(name)
        play(played)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        pages = {
            "demo": (given.demo, SHOW_THE_MOVE),
            "comparison": (played / "comparison.html", ""),
            "run": (played / "run.html", ""),
            "site": (given.site / "index.html", ""),
        }
        for page, (file, script) in pages.items():
            for view, (scheme, width, height) in VIEWS.items():
                picture = photograph(browser, file, scheme, width, height, script)
                save(picture, given.out / "pages" / f"{page}-{view}.png")
        # The top of the demonstration, down to its two curves.
        top = photograph(browser, given.demo, "light", 1200, 900, SHOW_THE_MOVE, whole=True)
        save(top, given.out / "demo.png", 2010)
        browser.close()


if __name__ == "__main__":
    main()
