"""The live page in a real Chromium while a sweep and a run play."""

import json
import shutil
import threading
from contextlib import contextmanager
from importlib.resources import files

import pandas  # noqa: F401 (plotly looks for it, and must not find it half imported by a thread)
import pytest
from serving import FAILING, finished_run, served, small_chunks, sweep

import safedrift as sd
from builders import forge_folder, rewrite_run, small_world
from safedrift.watching import watcher

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on the PATH: the live page is not tested in a browser"
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
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 375, "height": 740}
PATIENCE = 10_000  # milliseconds
SCRIPT = files("safedrift.watching").joinpath("static", "page.js").read_text(encoding="utf-8")
QUICK = SCRIPT.replace("const EVERY = 1000;", "const EVERY = 100;")
HTML = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Ask ten times a second, and look every time."""
    assert QUICK != SCRIPT
    monkeypatch.setattr(watcher, "_FRESH", -1.0)


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(chromium, address, **options):
    """A tab that must not complain, ask elsewhere, or open a dialogue."""
    tab = chromium.new_page(**{"viewport": DESKTOP} | options)
    tab.set_default_timeout(PATIENCE)
    complaints = []
    tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda request: request.url.startswith((address, "data:"))
           or complaints.append(request.url))  # fmt: skip
    tab.route("**/page.js", lambda route: route.fulfill(body=QUICK, content_type="text/javascript"))
    try:
        tab.goto(address)
        yield tab
        assert complaints == []
    finally:
        tab.close()


@contextmanager
def playing(work):
    """Do something in a thread."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


def fits(tab):
    """Whether nothing is wider than the window."""
    return tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def number_in(tab, label):
    return int(tab.locator(f".tile:has-text('{label}') .value").first.inner_text().replace(",", ""))


def wait_until(tab, script, argument=None):
    """Wait until a script is true; `wait_for_function` would need eval, which the page forbids."""
    for _ in range(PATIENCE // 50):
        if tab.evaluate(script, argument):
            return
        tab.wait_for_timeout(50)
    raise AssertionError(f"never true: {script} {argument}")


def wait_for_text(tab, selector, text):
    script = "([where, text]) => document.querySelector(where)?.textContent.includes(text)"
    wait_until(tab, script, [selector, text])


class Gates:
    """Places at which something that plays waits until it may go on."""

    def __init__(self, *places):
        self.events = {place: threading.Event() for place in places}

    def wait(self, place):
        if place in self.events:
            self.events[place].wait(PATIENCE / 1000)

    def open(self, place):
        self.events[place].set()


def test_a_sweep_moves_without_reload(chromium, tmp_path):
    gates = Gates(10, 31, 79)

    def play():
        report = lambda stage, done, total, failed: stage == "runs" and gates.wait(done)  # noqa: E731
        sweep(tmp_path / "study", FAILING | {"seeds": 40}, report)

    with served(tmp_path) as page, opened(chromium, page.address) as tab:
        tab.evaluate("window.same = true")
        wait_for_text(tab, "#detail", "safedrift sweep study.yaml --out")
        assert fits(tab)
        with playing(play):
            for done in gates.events:
                wait_for_text(tab, ".tile .value", str(done))
                assert tab.locator(".item .state").inner_text() == "running"
                assert tab.locator(".heading .state").inner_text() == "running"
                gates.open(done)
            tab.wait_for_selector(".heading .state.done")
        assert number_in(tab, "Runs") == 80
        assert number_in(tab, "Failed") == 40
        wait_for_text(tab, ".scores", "uniform")
        wait_for_text(tab, ".errors", "world must be one with features")
        tab.wait_for_selector(".js-plotly-plot .scatterlayer")
        assert tab.evaluate("window.same")  # it was never loaded again
        for size in (PHONE, {"width": 900, "height": 700}):
            tab.set_viewport_size(size)
            assert fits(tab)


def test_a_run_grows_its_curves(chromium, tmp_path, monkeypatch):
    small_chunks(monkeypatch, 10)
    finished_run(tmp_path / "before", M=200, K=2)
    gates = Gates(100, 250)

    def play():
        world = small_world(300, drift="periodic")
        wait = lambda stage, done, total: stage == "learning" and gates.wait(done)  # noqa: E731
        learner = sd.learners.make("opt-cmdp", world)
        sd.simulate(world, learner, out=tmp_path / "live", progress=wait)

    points = "document.querySelector('.js-plotly-plot')?.data?.[0]?.x?.length"
    with (
        served(tmp_path) as page,
        playing(play),
        opened(chromium, page.address) as tab,
    ):
        tab.click(".item:has-text('live')")
        wait_for_text(tab, ".heading", "random: opt-cmdp")
        for done in gates.events:
            wait_until(tab, f"{points} === {done}")
            wait_for_text(tab, ".tile .value", str(done))
            wait_for_text(tab, ".tile .meaning", "of 300")
            gates.open(done)
        wait_for_text(tab, ".tiles", "DR(n)/n, DR(n) = Σ (Vr* − Vr)")
        tab.wait_for_selector(".heading .state.done")
        wait_until(tab, f"{points} === 300")
        assert tab.locator("#detail figure").count() >= 5
        tab.click(".item:has-text('before')")
        wait_for_text(tab, "#detail", "Utility and threshold, constraint 2")
        assert fits(tab)


def test_the_page_fits_a_phone(chromium, tmp_path):
    finished_run(tmp_path / "a", M=80, K=2)
    finished_run(tmp_path / f"{'long' * 40}", M=80)
    sweep(tmp_path / "s", FAILING)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{}")
    phone = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    with served(tmp_path) as page, opened(chromium, page.address, **phone) as tab:
        tab.wait_for_selector(".item")
        assert tab.locator(".item").count() == 4
        assert fits(tab)
        for i in range(4):
            tab.locator(".item").nth(i).tap()
            tab.wait_for_selector(".heading h2")
            assert not tab.locator("#list").is_visible()
            tab.wait_for_selector(".problem:not([hidden]), .js-plotly-plot .main-svg")
            assert fits(tab)
            tab.tap(".back")
            tab.wait_for_selector("#list", state="visible")


def test_names_of_a_hostile_folder_are_text(chromium, tmp_path):
    finished_run(tmp_path / HTML, M=40)

    def rename(manifest):
        manifest.update(problem=HTML, constraints=[HTML])
        manifest["learner"].update(name="</script><script>alert(2)</script>", notes=[HTML])

    def renamed(table):
        plain = json.loads(table.schema.metadata[b"safedrift"])
        rename(plain)
        return table.replace_schema_metadata({"safedrift": json.dumps(plain)})

    rewrite_run(tmp_path / HTML / "records.parquet", renamed)
    forge_folder(tmp_path / HTML, lambda manifest: rename(manifest["run"]))
    with (
        served(tmp_path) as page,
        opened(chromium, page.address, color_scheme="dark") as tab,
    ):
        tab.wait_for_selector(".js-plotly-plot .legendtext")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        assert tab.locator(".item .name").inner_text() == HTML
        assert tab.locator(".heading h2").inner_text().startswith(f"{HTML}: </script>")
        assert HTML in tab.locator(".note").all_inner_texts()
        assert tab.locator("#list img, #detail img").count() == 0
        assert tab.locator("script").count() == 2
        legend = tab.locator(".legendtext").all_text_contents()
        assert any(HTML in text for text in legend)


def test_a_page_that_nobody_serves_any_more_says_so(chromium, tmp_path):
    with served(tmp_path) as page:
        tab = chromium.new_page()
        tab.goto(page.address)
        wait_for_text(tab, "#link", "live")
    wait_for_text(tab, "#link", "is safedrift watch still running?")
    tab.close()
