"""The plots of a comparison: ranking, profiles, regret against violation, curves of each world.

Learners keep their colour on the whole page. The uniform policy is grey, oracles are green, as
the optimum of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from safedrift._check import FloatArray
from safedrift.reports.plots import BLACK, FAINT, OPTIMUM, SERIES, UNIFORM, Plot
from safedrift.results.comparison import Comparison

__all__ = ["ranking_plots", "world_plots"]

DASHES = ("solid", "dash", "dashdot")


class Look(NamedTuple):
    """How a learner is drawn."""

    colour: str
    dash: str
    symbol: str


def looks(comparison: Comparison) -> dict[str, Look]:
    """Return a colour and a dash for every learner."""
    found, number = {}, 0
    marks = (("dot", "x"), ("dashdot", "cross"))
    symbols = ("circle", "square", "diamond")
    for label in comparison.learners:
        if label in comparison.oracles:
            found[label] = Look(OPTIMUM, *marks[comparison.oracles.index(label) % len(marks)])
        elif label == "uniform":
            found[label] = Look(UNIFORM, "dash", "circle-open")
        else:
            turn = number // len(SERIES) % len(DASHES)
            found[label] = Look(SERIES[number % len(SERIES)], DASHES[turn], symbols[turn])
            number += 1
    return found


def _layout(height: int, **more: Any) -> dict[str, Any]:
    return {
        "template": "plotly_white",
        "height": height,
        "margin": {"l": 60, "r": 12, "t": 24, "b": 48},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": BLACK},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        **more,
    }


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "standoff": 6}


# ---------------------------------------------------------------- all worlds


def ranking_plots(comparison: Comparison) -> Iterator[Plot]:
    """Yield the plots over all worlds."""
    if comparison.ranked and comparison.ranked_seeds:
        yield _ranking(comparison)
        yield _profiles(comparison)
    if any(comparison.cell(w, label) for w in comparison.worlds for label in comparison.learners):
        yield _trade(comparison)


def _ranking(comparison: Comparison) -> Plot:
    """Interquartile means with their intervals, the best at the top."""
    style = looks(comparison)
    shown = [entry for entry in comparison.ranking() if not np.isnan(entry.score.value)]
    figure = go.Figure()
    for entry in reversed(shown):
        score = entry.score
        known = not np.isnan(score.low)
        figure.add_trace(
            go.Scatter(
                x=[score.value],
                y=[entry.learner],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [score.high - score.value if known else 0],
                    "arrayminus": [score.value - score.low if known else 0],
                    "thickness": 2,
                    "width": 6,
                },
                mode="markers",
                marker={"color": style[entry.learner].colour, "size": 10,
                        "symbol": style[entry.learner].symbol},
                hovertemplate="%{x:.4f}<extra>%{y}</extra>",
            )
        )  # fmt: skip
    figure.update_layout(_layout(90 + 30 * len(shown), showlegend=False))
    figure.update_layout(margin={"l": 10})
    figure.update_xaxes(title=_title("strict score"), rangemode="tozero")
    figure.update_yaxes(automargin=True)
    caption = (
        "Interquartile mean of the strict score over worlds and seeds, with 95% stratified "
        "bootstrap intervals; smaller is better."
    )
    return Plot("Ranking", caption, figure)


def _profiles(comparison: Comparison) -> Plot:
    style = looks(comparison)
    levels, profiles = comparison.profiles()
    figure = go.Figure()
    for label, (share, low, high) in profiles.items():
        figure.add_traces(_band(levels, low, high, style[label].colour))
        figure.add_trace(_line(levels, share, label, style[label], "%{x:.3f}: %{y:.0%}"))
    figure.update_layout(_layout(340))
    figure.update_xaxes(title=_title("strict score τ"))
    figure.update_yaxes(title=_title("share of runs at most τ"), tickformat=".0%")
    caption = (
        "Performance profile: share of all runs whose strict score is at most τ, with 95% "
        "bootstrap bands; a curve further up and left is better."
    )
    return Plot("Performance profiles", caption, figure)


def _trade(comparison: Comparison) -> Plot:
    """Both parts of the strict score: violation to the right, regret up."""
    style = looks(comparison)
    figure = go.Figure()
    largest = 1.0
    for label in comparison.learners:
        parts = comparison.score_parts(label)  # (2, W): regret, violation
        known = np.asarray(~np.isnan(parts).any(axis=0))
        if not known.any():
            continue
        largest = max(largest, float(parts[:, known].max()))
        names = [w for w, yes in zip(comparison.worlds, known, strict=True) if yes]
        alone = len(names) == 1
        for size, opacity, (y, x), text in (
            (14 if alone else 7, 1.0 if alone else 0.45, parts[:, known], names),
            (15, 1.0, parts[:, known].mean(axis=1, keepdims=True), ["mean over worlds"]),
        ):
            if size == 15 and alone:
                continue
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=y,
                    text=text,
                    name=label,
                    legendgroup=label,
                    showlegend=size == 15 or alone,
                    mode="markers",
                    opacity=opacity,
                    marker={"color": style[label].colour, "size": size,
                            "symbol": style[label].symbol},
                    hovertemplate="%{text}: violation %{x:.3f}, regret %{y:.3f}",
                )
            )  # fmt: skip
    for level in (0.25, 0.5, 0.75, 1.0):
        line = {"color": FAINT, "width": 1}
        figure.add_shape(type="line", x0=0, y0=level, x1=level, y1=0, layer="below", line=line)
    figure.update_layout(_layout(460))
    figure.update_xaxes(title=_title("violation / uniform policy's loss"), rangemode="tozero")
    figure.update_yaxes(title=_title("regret / uniform policy's loss"), rangemode="tozero")
    caption = (
        "The two parts of the strict score, Σ [b − V_g]₊ to the right and Σ [V_r* − V_r]₊ upwards, "
        "each over the uniform policy's sum of both. Small: one world, mean over seeds; large: "
        "mean over worlds. Grey lines join equal strict scores (0.25, 0.5, 0.75, 1)."
    )
    return Plot("Regret against violation", caption, figure)


# ---------------------------------------------------------------- each world


def world_plots(comparison: Comparison) -> Iterator[Plot]:
    """Yield the curves of every world that has any."""
    for world in comparison.worlds:
        if any(
            run.curves for label in comparison.learners for run in comparison.cell(world, label)
        ):
            yield _curves(comparison, world)


def _curves(comparison: Comparison, world: str) -> Plot:
    style = looks(comparison)
    figure = make_subplots(1, 2, horizontal_spacing=0.09)
    for column, name in enumerate(("positive_regret", "positive_violation"), start=1):
        for label in comparison.learners:
            runs = [run for run in comparison.cell(world, label) if run.curves]
            if not runs:
                continue
            episodes = np.array(runs[0].curve_episodes, float)
            values = np.array([run.curves[name] for run in runs if run.curves])
            band = _band(episodes, values.min(axis=0), values.max(axis=0), style[label].colour)
            if len(runs) > 1:
                figure.add_traces(band, rows=1, cols=column)
            line = _line(episodes, values.mean(axis=0), label, style[label],
                         "episode %{x:,}: %{y:.4~g}")  # fmt: skip
            line.showlegend = column == 1
            figure.add_trace(line, 1, column)
    figure.update_layout(_layout(360))
    figure.update_xaxes(title=_title("episode"), tickformat=",d")
    figure.update_yaxes(title=_title("reward lost"), row=1, col=1, rangemode="tozero")
    figure.update_yaxes(title=_title("utility missing"), row=1, col=2, rangemode="tozero")
    caption = (
        "Left: Σ_{m≤n} [V_r*[m] − V_r[π_m, m]]₊. Right: Σ_{m≤n} [b_m − V_g[π_m, m]]₊, summed over "
        "constraints. Lines are means over seeds, bands reach from the lowest to the highest seed."
    )
    return Plot(world, caption, figure)


def _line(x: FloatArray, y: FloatArray, label: str, look: Look, hover: str) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        name=label,
        legendgroup=label,
        mode="lines",
        line={"color": look.colour, "dash": look.dash, "width": 2},
        hovertemplate=hover,
    )


def _band(x: FloatArray, low: FloatArray, high: FloatArray, colour: str) -> list[go.Scatter]:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return [
        go.Scatter(
            x=np.concatenate((x, x[::-1])),
            y=np.concatenate((high, low[::-1])),
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},0.15)",
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
        )
    ]
