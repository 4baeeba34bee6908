"""Pages in a real Chromium: light, dark and on a phone, without a complaint."""

from __future__ import annotations

import shutil

import pytest

from hand_made_runs import make_run
from safedrift.experiments.demo import play_demo
from safedrift.reports import demo_page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on the PATH: pages are not tested in a browser"
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 800}
# Background of the page, and the colour of the text of its figures.
COLOURS = {"light": ("rgb(255, 255, 255)", "rgb(34, 34, 34)"),
           "dark": ("rgb(20, 23, 26)", "rgb(232, 232, 232)")}  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One small page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    found = play_demo(60, seeds=2, frames=8, workers=1)
    demo_page.report(*found, folder / "demo.html")
    found.comparison.report(folder / "comparison.html")
    found.runs[1].report(folder / "run.html")
    evil = "<img src=x onerror=alert(1)></script>"
    make_run(K=2, problem=evil, name=evil).report(folder / "hostile.html")
    return folder


class Tab:
    """A page that must not complain, or ask for anything but itself."""

    def __init__(self, chromium, path, scheme="light", viewport=DESKTOP):
        self.complaints = []
        self.page = chromium.new_page(color_scheme=scheme, viewport=viewport)
        told = self.complaints.append
        self.page.on("console", lambda message: told(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: told(str(error)))
        self.page.on("dialog", lambda dialog: (told(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:"))
                     or told(request.url))  # fmt: skip
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".plot .main-svg")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.page.close()
        assert self.complaints == []

    def wait_until(self, script):
        """Wait until a script is true."""
        for _ in range(200):
            if self.page.evaluate(script):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {script}")

    def is_drawn_in(self, scheme):
        """Wait until page and figures have the colours of a scheme."""
        page, text = COLOURS[scheme]
        self.wait_until(f"getComputedStyle(document.body).backgroundColor === '{page}'")
        script = (
            "[...document.querySelectorAll('.plot .xtitle')].map(x => getComputedStyle(x).fill)"
        )
        self.wait_until(f"{script}.every(colour => colour === '{text}')")
        assert len(self.page.evaluate(script)) >= 3

    def fits(self):
        """Whether nothing is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["run", "comparison", "demo", "hostile"])
def test_every_page_is_drawn_without_a_complaint(chromium, pages, name):
    """Opened on a dark phone, then light, then on a desk, then dark again."""
    with Tab(chromium, pages / f"{name}.html", "dark", PHONE) as tab:
        count = tab.page.locator(".plot").count()
        assert count >= 3
        assert tab.page.locator(".plot .xtick text").count() >= count
        tab.is_drawn_in("dark")
        assert tab.fits()
        tab.page.emulate_media(color_scheme="light")
        tab.is_drawn_in("light")
        assert tab.fits()
        tab.page.set_viewport_size(DESKTOP)
        tab.wait_until("plots.every(plot => plot._fullLayout.width > 900)")
        tab.is_drawn_in("light")
        tab.page.emulate_media(color_scheme="dark")
        tab.is_drawn_in("dark")
        assert tab.fits()


def test_pages_are_printed_in_light_colours_on_paper(chromium, pages):
    with Tab(chromium, pages / "run.html", "dark") as tab:
        tab.is_drawn_in("dark")
        tab.page.emulate_media(media="print")
        tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.is_drawn_in("light")
        assert set(tab.page.evaluate("plots.map(plot => plot._fullLayout.width)")) == {680}
        tab.page.emulate_media(media="screen")
        tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
        tab.is_drawn_in("dark")
        tab.page.evaluate("Plotly.relayout(plots[0], {'xaxis.range': [10, 20]})")
        tab.wait_until("plots.every(plot => plot.layout.xaxis.range.join() === '10,20')")


def test_the_slider_moves_maps_and_cursor(chromium, pages):
    cells = "maps.flatMap(map => map.cells.map(cell => cell.getAttribute('fill-opacity')))"
    with Tab(chromium, pages / "demo.html") as tab:
        seen = []
        for frame, episode, told in ((0, 0, ""), (7, 59, ", 14 since the target moved")):
            tab.page.locator("#frame").fill(str(frame))
            shown = f"episode {episode}{told}"
            tab.wait_until(f"document.getElementById('episode').value === '{shown}'")
            tab.wait_until(f"plots[0].layout.shapes[0].x0 === {episode}")
            seen.append(tab.page.evaluate(cells))
        assert seen[0] != seen[1]
        tab.page.locator("#play").click()
        tab.wait_until("!document.getElementById('episode').value.startsWith('episode 59')")
