"""The plots of a run as plain data for the page: thinned, with marks where the world changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from safedrift.events import Event
from safedrift.reports.html import math_parts
from safedrift.reports.plots import BLUE, GREY, ORANGE, PURPLE, Plot, all_plots, downsample
from safedrift.results.run import Run

__all__ = ["MOST_POINTS", "plain", "plain_record", "plots_of", "score_plot"]

MOST_POINTS = 500  # per line
LONGEST_TEXT = 2000
_MOST_WIDTH = 400  # columns of a run, all together
_MOST_EVENTS = 256


def plots_of(run: Run, total: int) -> list[dict[str, Any]]:
    """Return the plots of a run's page as plain data.

    Parameters
    ----------
    run
        Up to any episode.
    total
        Episodes of the whole run: how far the axis goes.
    """
    width = sum(math.prod(x.shape[1:]) for x in run.columns().values())
    if width > _MOST_WIDTH:
        raise ValueError(
            f"the run must have at most {_MOST_WIDTH} columns to be drawn; got {width}"
        )
    return [_plain_plot(plot, run.manifest.learner.events, total) for plot in all_plots(run)]


def _plain_plot(plot: Plot, events: list[Event], total: int) -> dict[str, Any]:
    layout = plot.figure.layout.to_plotly_json()
    layout.pop("template", None)  # the page has light and dark colours
    several = "xaxis2" in layout
    for name, axis in layout.items():
        if name.startswith("xaxis"):
            axis["range"] = [-0.5, total - 0.5]
    traces = [_thinned(trace) for trace in plot.figure.data]
    if events and not several:
        traces.append(_marks(events[-_MOST_EVENTS:]))
        layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False,
                            "fixedrange": True}  # fmt: skip
    return {
        "title": plain(plot.title),
        "caption": math_parts(plot.caption),
        "figure": {"data": plain(traces), "layout": plain(layout)},
    }


def _thinned(trace: Any) -> dict[str, Any]:
    """A line with fewer points; the minimum and maximum of every segment are kept."""
    found: dict[str, Any] = dict(trace.to_plotly_json())
    x, y = np.asarray(trace.x), np.asarray(trace.y)
    if y.dtype.kind in "biuf":
        kept = downsample(np.nan_to_num(y.astype(np.float64)), MOST_POINTS)
        found |= {"x": x[kept].tolist(), "y": y[kept].tolist()}
    else:  # names of rows, in the plot of restarts
        step = max(1, -(-x.size // MOST_POINTS))
        found |= {"x": x[::step].tolist(), "y": y[::step].tolist()}
    return found


def _marks(events: list[Event]) -> dict[str, Any]:
    """Triangles at the upper edge of a plot, with what was noticed as their text."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "change noticed",
        "x": [event.episode for event in events],
        "y": [1.0] * len(events),
        "yaxis": "y2",
        "cliponaxis": False,
        "marker": {"symbol": "triangle-down", "size": 10, "color": PURPLE},
        "text": [escape(str(event), quote=False) for event in events],
        "hovertemplate": "%{text}<extra></extra>",
    }


def score_plot(rows: list[tuple[str, float, float]]) -> dict[str, Any]:
    """Return a plot of the mean strict score of every learner, (label, mean, standard error)."""
    rows = rows[::-1]  # the best on top
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [mean for _, mean, _ in rows],
        "y": list(range(len(rows))),
        "error_x": {"type": "data", "thickness": 1.2,
                    "array": [0 if math.isnan(e) else 1.96 * e for *_, e in rows]},
        "marker": {"size": 9, "color": BLUE},
        "text": [escape(label, quote=False) for label, *_ in rows],
        "hovertemplate": "%{text}: %{x:.4~g}<extra></extra>",
        "showlegend": False,
    }  # fmt: skip
    lines = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
         "line": {"color": colour, "width": 1.5, "dash": "dash"}}
        for x, colour in ((0, ORANGE), (1, GREY))
    ]  # fmt: skip
    names = [escape(_short(label, 28), quote=False) for label, *_ in rows]
    layout = {
        "height": 90 + 30 * len(rows),
        "margin": {"l": 10, "r": 16, "t": 12, "b": 44},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "shapes": lines,
        "xaxis": {"title": {"text": "mean strict score", "standoff": 6}, "rangemode": "tozero"},
        "yaxis": {"tickvals": list(range(len(rows))), "ticktext": names, "automargin": True,
                  "range": [-0.6, len(rows) - 0.4], "zeroline": False, "fixedrange": True},
    }  # fmt: skip
    return {"data": plain([dots]), "layout": plain(layout)}


def _short(text: str, most: int = LONGEST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain_record(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return `plain` data by name."""
    return {name: plain(item) for name, item in value.items()}


def plain(value: Any) -> Any:
    """Return data that JSON can hold: six digits, None for NaN, texts that are not too long."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, Mapping):
        return {_short(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
