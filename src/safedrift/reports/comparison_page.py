"""A comparison as a self-contained HTML page: verdict, ranking, curves, table.

The page depends on the stored `Comparison` only. It contains plotly.js, and its content security
policy forbids loading anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np

from safedrift.reports.comparison_plots import ranking_plots, world_plots
from safedrift.reports.html import math, table
from safedrift.reports.page import page_html, plot_section, write_page
from safedrift.results.comparison import Comparison, Standing
from safedrift.results.statistics import Interval

__all__ = ["ranking_section", "report"]


def report(comparison: Comparison, path: str | Path) -> Path:
    """Write the page of a comparison and return its path.

    Missing folders are created. An existing page is replaced only when the new one is complete.
    """
    return write_page(path, _page(comparison))


def _page(comparison: Comparison) -> str:
    m = comparison.manifest
    where = ", ".join(comparison.worlds) if len(m.worlds) < 5 else f"{len(m.worlds)} worlds"
    title = escape(f"{len(m.learners)} learners in {where}")
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in comparison.notes())
    plots = "\n".join(
        plot_section(i, plot)
        for i, plot in enumerate((*ranking_plots(comparison), *world_plots(comparison)))
    )
    body = f"""<h1>{title}</h1>
<p class="quiet">{escape(_configuration(comparison))}</p>
<p class="lead">{escape(comparison.verdict())}</p>
{notes}
{ranking_section(comparison)}
{plots}
<h2 class="apart">All figures</h2>
<p class="quiet">{math(_FIGURES)}</p>
{table(_HEADS, _figure_rows(comparison), "labelled wide")}
<details>
<summary>Learners</summary>
{table(("Learner", "Told", "Options", "Tuned"), _learner_rows(comparison))}
</details>"""
    return page_html(title, body, _STYLE)


def ranking_section(comparison: Comparison) -> str:
    """Return the ranking as an HTML table, and how to read it."""
    rows = _ranking_rows(comparison)
    return f'{table(_RANKING, rows, "labelled ranking")}\n<p class="quiet">{math(_GUIDE)}</p>'


def _configuration(comparison: Comparison) -> str:
    m = comparison.manifest
    episodes = sorted({world.sizes["M"] for world in m.worlds if "M" in world.sizes}) or [0]
    span = f"{episodes[0]:,}" if len(episodes) == 1 else f"{episodes[0]:,} to {episodes[-1]:,}"
    signals = "Bernoulli rewards and utilities" if m.noisy else "exact rewards and utilities"
    tuned = f"tuned with {m.tune} settings each" if m.tune else "untuned"
    return (
        f"{len(m.worlds)} worlds, {len(m.seeds)} seeds, {span} episodes, {signals}, {tuned}, "
        f"safedrift {m.version}"
    )


# ---------------------------------------------------------------- tables

_RANKING = ("Place", "Learner", "Strict score", "Best is better", "Adjusted p", "Against the best")
_HEADS = (
    "World",
    "Learner",
    "Runs",
    "Strict score",
    "Last tenth",
    "DR/M",
    "CV/M",
    "[DR]₊/M",
    "[CV]₊/M",
    "µs per episode",
    "Against the best",
)
_SHOWN = ("last_tenth_score", "regret", "violation", "positive_regret", "positive_violation")

_GUIDE = (
    "Strict score: Σ [V_r* − V_r]₊ + Σ [b − V_g]₊ over all episodes, divided by the uniform "
    "policy's; 0 is the best safe policy of every episode, 1 is no better than uniform. Shown is "
    "the interquartile mean over worlds and seeds with its 95% stratified bootstrap interval. "
    "Best is better: probability that a run of the best beats a run of this learner in the same "
    "world. p: test of the difference to the best, paired by world and seed, after Holm's "
    "correction for all pairs of learners; at 0.05 or more a learner is called not different."
)
_FIGURES = (
    "Means over seeds with 95% BCa bootstrap intervals. DR = Σ (V_r* − V_r), CV = [Σ (b − V_g)]₊; "
    "[DR]₊ and [CV]₊ add up the positive parts of each episode. The last column compares with the "
    "best of the same world: paired t-tests after Holm's correction for all pairs of learners."
)


def _ranking_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for entry in comparison.ranking():
        yield (
            "" if entry.place is None else str(entry.place),
            escape(entry.learner),
            _interval(entry.score),
            _interval(entry.best_is_better, 2) if entry.best_is_better else "",
            _p_value(entry.p_value),
            _status(entry),
        )


def _status(entry: Standing) -> str:
    return f"<b>{escape(entry.status)}</b>" if entry.status == "best" else escape(entry.status)


def _p_value(p: float) -> str:
    if np.isnan(p):
        return ""
    return "&lt; 0.0001" if p < 1e-4 else f"{p:.2g}"


def _figure_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    times = comparison.timings()
    for row in comparison.table():
        seconds = times[row["learner"]][row["world"]]
        yield (
            escape(row["world"]),
            escape(row["learner"]),
            str(row["runs"]),
            _interval(row["strict_score"]),
            *(_figure(row[name].value) for name in _SHOWN),
            "" if np.isnan(seconds) else f"{1e6 * seconds:,.1f}",
            escape(row["status"]),
        )


def _learner_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for entry in comparison.manifest.learners:
        tuned = "no" if entry.tuned is None else _pairs(entry.tuned) or "yes: defaults"
        told = ", ".join(entry.told) or "nothing beyond sizes and its own trajectories"
        yield (escape(entry.label), escape(told), escape(_pairs(entry.options)), escape(tuned))


def _pairs(options: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _interval(score: Interval, digits: int = 3) -> str:
    if np.isnan(score.value):
        return "–"
    text = _figure(score.value, digits)
    if np.isnan(score.low) or score.low == score.high:
        return text
    return f"{text} [{_figure(score.low, digits)}, {_figure(score.high, digits)}]"


def _figure(value: float, digits: int = 3) -> str:
    """A number; rounding errors are zero."""
    return "–" if np.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"


_STYLE = """
table.wide { font-size: 0.85rem; }
table.wide td { padding-right: 0.6rem; }
table.wide td:first-child { min-width: 5em; }
td:nth-child(n+3) { font-variant-numeric: tabular-nums; }
"""
