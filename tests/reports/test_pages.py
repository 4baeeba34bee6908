"""The page of a run is complete, self-contained and never half written."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import import_module
from inspect import isclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hand_made_runs import SETTINGS, make_run
from safedrift.events import Event
from safedrift.reports import page, plots, report, summary_text
from safedrift.results import Run

VOID = {"meta"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background"}
TITLES = [
    "Reward and optimum",
    "Utility and threshold",
    "Dynamic regret",
    "Long-run violation",
    "Multiplier",
    "Drift and restarts",
]
CAPTIONS = [
    "Vr[πm, m], the expected reward of the policy played, mean of the last 2 episodes",
    "Vg[πm, m], the expected utility of the policy played",
    "DR(n) = Σm≤n (Vr*[m] − Vr[πm, m])",
    "CV(n) = [Σm≤n (bm − Vg[πm, m])]₊",
    "μm, the learner's price for a unit of missing utility",
    "Change since the last measured episode: Σh ‖ΔPh‖₂",
]


class Reader(HTMLParser):
    """Collects tags, attributes and visible text; fails on tags that do not nest."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.attributes, self.pieces, self.styles = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.styles.append(data)
        elif self.open and self.open[-1] != "script":
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def read(run: Run, folder: Path) -> Reader:
    return Reader(report(run, folder / "page.html").read_text(encoding="utf-8"))


def figures(run: Run) -> dict:
    return {plot.title: plot.figure for plot in plots.all_plots(run)}


# ---------------------------------------------------------------- the page as a whole


def test_page_loads_nothing(tmp_path):
    found = read(make_run(), tmp_path)
    assert not LOADING & {name for name, _ in found.attributes}
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(found.tags)
    assert not any("url(" in style or "@import" in style for style in found.styles)
    assert any(value.startswith("default-src 'none'") for _, value in found.attributes if value)


def test_plotly_is_embedded_once(tmp_path):
    path = report(make_run(), tmp_path / "page.html")
    library = page.get_plotlyjs()
    text = path.read_text(encoding="utf-8")
    assert text.count(library) == 1
    assert len(text) < len(library) + 300_000


@pytest.mark.parametrize(("K", "count"), [(1, 6), (2, 7)])
def test_every_plot_has_its_caption(tmp_path, K, count):
    run = make_run(K=K)
    found = read(run, tmp_path)
    assert found.tags.count("figure") == found.tags.count("figcaption") == count
    for text in TITLES + CAPTIONS:
        assert text in found.text
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    for kind in (r'<div class="plot" id="plot(\d+)"', r'json" id="plot(\d+)-data">\{'):
        assert re.findall(kind, html) == [str(i) for i in range(count)]


def test_key_figures_and_parameters_are_shown(tmp_path):
    text = read(make_run(K=2, shortfall=0.25), tmp_path).text
    assert "Dynamic regret DR(M)30Σm (Vr*[m]" in text
    assert "Long-run violation CV(M)15; 15" in text
    assert "Episodes that miss100%; 100%" in text
    assert "learner.settings.parameters.improvement.L7" in text.replace("\n", "")
    assert "[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, …] (40 × 3 entries)" in text
    assert "mode practical · knowledge slater, gamma = 0.4 · seed 3 · M = 60, H = 3" in text


def test_notes_are_shown(tmp_path):
    quiet = make_run()
    vacuous = make_run(notes=["The bonus is vacuous."])
    assert ("class", "note") not in read(quiet, tmp_path).attributes
    assert ("class", "note") in read(vacuous, tmp_path).attributes
    assert vacuous.notes() == ["The bonus is vacuous."]
    assert vacuous.notes()[0] in read(vacuous, tmp_path).text


def test_names_are_escaped(tmp_path):
    evil = '<script>alert("x")</script><img src=x onerror=alert(1)>&'
    told = SETTINGS | {"knowledge": {"name": evil, "gamma": 0.4}}
    plain, attacked = make_run(), make_run(problem=evil, name=evil, settings=told)
    before, after = read(plain, tmp_path), read(attacked, tmp_path)
    assert before.tags == after.tags
    assert after.text.count(evil) >= 4


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"parameters": [1, 2], "knowledge": "little", "forgetting": "slow"},
        {"parameters": {"epsilon": 0.1}, "knowledge": {"of": "the world"}, "forgetting": {"a": 1}},
    ],
)
def test_a_learner_of_any_settings_and_trace_has_a_page(tmp_path, settings):
    run = make_run(name="my learner", settings=settings)
    bare = read(replace(run, trace={}), tmp_path)
    assert "my learner lost 0.5 reward per episode" in bare.text
    assert "seed 3 · M = 60, H = 3" in bare.text
    assert bare.tags.count("figure") == 5  # no multiplier to draw
    shown = {"epsilon": np.linspace(1, 0, 60), "explored": np.arange(60) % 20 == 0}
    plots_of = figures(replace(run, trace=shown))
    np.testing.assert_array_equal(plots_of["Learner: epsilon"].data[0].y, shown["epsilon"])
    events = plots_of["Drift and restarts"]
    ticks = {trace.name: list(trace.x) for trace in events.data if trace.mode == "markers"}
    assert ticks == {"explored": [0, 20, 40]}


def test_same_run_same_page(tmp_path):
    one, two = (report(make_run(), tmp_path / name) for name in ("one.html", "two.html"))
    assert one.read_bytes() == two.read_bytes()


# ---------------------------------------------------------------- what it says


def headline(**options) -> str:
    return summary_text.headline(make_run(**options))


def test_headline_of_a_safe_run():
    assert headline(shortfall=0.0) == (
        "In 60 episodes propd-ppo lost 0.5 reward per episode against the best safe policy of each "
        "episode; the uniform policy loses 2. The constraint was met in all episodes."
    )


def test_headline_of_an_unsafe_run():
    text = headline(shortfall=0.25, regret=-0.1)
    assert "propd-ppo gained 0.1 reward per episode" in text
    assert text.endswith(
        "The constraint was missed in the long run, by 0.25 utility per episode, and missed in "
        "100% of the episodes."
    )


def test_long_run_success_does_not_hide_single_episodes():
    short = np.where(np.arange(60) < 15, 0.1, -1.0)[:, None] * [1, 0]
    text = headline(K=2, shortfall=short)
    assert "Constraint 1 was met in the long run, though missed in 25% of the episodes." in text
    assert "Constraint 2 was met in all episodes." in text


def test_partly_measured_run_claims_no_more_than_was_measured():
    assert headline(measure_every=10).endswith("The constraint was met in all measured episodes.")


# ---------------------------------------------------------------- what it draws


def test_lines_are_the_run():
    run = make_run(measure_every=10)
    reward = {line.name: line for line in figures(run)["Reward and optimum"].data}
    best = reward["best safe policy of each episode"]
    np.testing.assert_array_equal(best.y, run.truth.optimal_reward)
    drawn = {line.name: line for line in figures(run)["Dynamic regret"].data}
    np.testing.assert_array_equal(drawn["DR(n)"].x, run.episodes)
    np.testing.assert_array_equal(drawn["DR(n)"].y, run.dynamic_regret)
    np.testing.assert_allclose(drawn["uniform policy"].y[-1], 2.0 * 600)


def test_what_never_changes_is_left_out():
    run = make_run(settings={})
    rows = figures(run)["Drift and restarts"].layout.annotations
    assert [row.text for row in rows] == ["rewards r", "optimal policy π*", "restarts and events"]
    still = replace(run.truth, drift_r=run.truth.drift_P, drift_star=run.truth.drift_P)
    assert not any("Drift" in title for title in figures(replace(run, truth=still, trace={})))


@pytest.mark.parametrize("title", TITLES[:4])
def test_a_colour_means_the_same_in_every_plot(title):
    colours = {"uniform policy": plots.GREY, "threshold b": plots.ORANGE, "DR(n)": plots.BLUE,
               "best safe policy of each episode": plots.GREEN}  # fmt: skip
    for line in figures(make_run())[title].data:
        assert line.line.color == colours.get(line.name, line.line.color), line.name


def test_the_optimum_is_said_to_be_at_the_threshold_where_its_price_is_positive():
    run = make_run()
    captions = {plot.title: plot.caption for plot in plots.all_plots(run)}
    assert "at the threshold in all episodes, those with μ* > 0" in captions[TITLES[1]]
    mu = np.where(np.arange(60) < 15, 0.25, 0)[:, None]
    some = replace(run, truth=replace(run.truth, optimal_mu=mu))
    captions = {plot.title: plot.caption for plot in plots.all_plots(some)}
    assert "at the threshold in 25% of the episodes" in captions[TITLES[1]]
    lines = {line.name: line for line in figures(some)[TITLES[1]].data}
    best = lines["best safe policy, where μ* &gt; 0"]
    np.testing.assert_array_equal(best.y, np.where(mu > 0, 1, np.nan)[:, 0])
    never = replace(run, truth=replace(run.truth, optimal_mu=0 * mu))
    assert not any("best" in line.name for line in figures(never)[TITLES[1]].data)


def test_restarts_between_measured_episodes_are_drawn():
    figure = figures(make_run(measure_every=10))["Drift and restarts"]
    ticks = {trace.name: list(trace.x) for trace in figure.data if trace.mode == "markers"}
    assert ticks == {"policy": list(range(0, 600, 7)), "window": list(range(0, 600, 25))}
    # 86 policy restarts are too many for lines, 24 window restarts are not.
    assert [shape.x0 for shape in figure.layout.shapes] == list(range(25, 600, 25))


def test_the_guide_names_the_lines_that_are_drawn(tmp_path):
    both = read(make_run(), tmp_path).text  # 8 policy restarts, 2 window restarts after the first
    assert "mark restarts of the policy (solid) and restarts of the window (dotted)." in both
    windows = read(make_run(measure_every=10), tmp_path).text  # too many of the policy
    assert "lines mark restarts of the window (dotted)." in windows
    change = Event(5, "reward", 0, 1, 0, None, 0.1, 0.9, 1)
    noticed = make_run(settings={}, events=[change])
    del noticed.trace["policy_restart"], noticed.trace["window_restart"]
    text = read(noticed, tmp_path).text
    assert "lines mark changes that the learner noticed (dashed)." in text
    none = make_run(settings={})
    del none.trace["policy_restart"], none.trace["window_restart"]
    assert "vertical lines" not in read(none, tmp_path).text


def test_long_run_is_downsampled_and_says_so(tmp_path):
    n = 50_000
    utility = np.ones((n, 1))
    utility[31_337] = -5.0
    run = make_run(n=n)
    run = replace(run, outcome=replace(run.outcome, utility=utility))
    lines = [line for figure in figures(run).values() for line in figure.data]
    assert max(len(line.x) for line in lines) <= plots.MOST_POINTS
    raw = figures(run)["Utility and threshold"].data[0]
    assert raw.x[np.argmin(raw.y)] == 31_337
    assert min(raw.y) == -5.0
    assert read(run, tmp_path).text.count("downsampled to 2,000 points") == 6


@given(st.integers(1, 2000), st.integers(6, 50), st.integers(0, 2**32))
def test_downsample_keeps_ends_and_extremes(n, most, seed):
    values = np.random.default_rng(seed).integers(-n, n, n).astype(float)
    kept = plots.downsample(values, most)
    assert kept.size <= most
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == values.size - 1
    assert values[kept].min() == values.min()
    assert values[kept].max() == values.max()


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(1, 50))
def test_trailing_mean_is_the_mean_of_the_last_values(values, window):
    wanted = [np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(plots.trailing_mean(np.array(values), window), wanted, atol=1e-9)


# ---------------------------------------------------------------- files


def test_folders_are_made_and_path_returned(tmp_path):
    path = tmp_path / "new" / "folder" / "page.html"
    assert make_run().report(str(path)) == path
    assert path.read_text(encoding="utf-8").endswith("</html>\n")


@pytest.mark.parametrize(("where", "step"), [(os, "fsync"), (Path, "replace")])
def test_failed_write_keeps_the_old_page(tmp_path, monkeypatch, where, step):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(where, step, fail)
    with pytest.raises(OSError, match=r"page\.html cannot be written: disk full"):
        report(make_run(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_reports_only_read_results():
    """No report simulates or solves: of rooms that can, only records and types are imported."""
    readers = (
        "safedrift._check",
        "safedrift._files",
        "safedrift.results",
        "safedrift.reports",
    )
    for source in Path(page.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("safedrift") for alias in node.names), source
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "safedrift"
            ):
                continue
            for alias in node.names:
                found = getattr(import_module(node.module), alias.name)
                assert node.module.startswith(readers) or isclass(found), (source, alias.name)


def test_episode_axis_and_lines_count_from_zero():
    run = make_run()
    for title, figure in figures(run).items():
        assert figure.layout.xaxis.range == (-0.5, 59.5), title
        first = min(x for line in figure.data for x in line.x)
        last = max(x for line in figure.data for x in line.x)
        assert (first, last) == (0, 59), title
