"""A run as a self-contained HTML page: headline, key figures, plots, parameters.

The page depends on the stored `Run` only. It contains plotly.js, and its content security policy
forbids loading anything.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from safedrift._files import write_text
from safedrift.reports.certificate_section import LEMMA_STYLE, lemma_section
from safedrift.reports.html import math, table
from safedrift.reports.plots import MOST_MARKS, MOST_POINTS, Plot, all_plots, events
from safedrift.reports.summary_text import (
    CHANGES_CAPTION,
    CHANGES_HEAD,
    configuration,
    flatten,
    headline,
    key_figures,
    noticed_changes,
)
from safedrift.results.run import Run
from safedrift.theory.certificates import Certificates

__all__ = ["asset", "page_html", "plot_html", "plot_section", "report", "write_page"]


def report(run: Run, path: str | Path, certificates: Certificates | None = None) -> Path:
    """Write the page of a run and return its path.

    Missing folders are created. An existing page is replaced only when the new one is complete.

    Parameters
    ----------
    run
        From `simulate` or `Run.from_parquet`.
    path
        Path of the page, e.g. "maze.html".
    certificates
        From `run.certify()`; adds a section on the paper's lemmas.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> from safedrift.reports import report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(run, f"{folder}/page.html").name
    'page.html'
    """
    return write_page(path, _page(run, certificates))


def write_page(path: str | Path, text: str) -> Path:
    """Write a page, whole or not at all; missing folders are created."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return write_text(path, text)


def _page(run: Run, certificates: Certificates | None) -> str:
    manifest = run.manifest
    title = escape(f"{manifest.problem or 'run'}: {manifest.learner.name}")
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in run.notes())
    figures = [
        (escape(label), escape(value), math(text)) for label, value, text in key_figures(run)
    ]
    parameters = [map(escape, row) for row in flatten(manifest.model_dump())]
    remark = _DOWNSAMPLED if run.episodes.size > MOST_POINTS else ""
    proofs = "" if certificates is None else lemma_section(certificates)
    plots = "\n".join(
        plot_section(i, plot, remark, linked=True) for i, plot in enumerate(all_plots(run))
    )
    body = f"""<h1>{title}</h1>
<p class="quiet">{escape(configuration(run))}</p>
<p class="lead">{escape(run.verdict())}</p>
<p>{escape(headline(run))}</p>
{notes}
<p class="quiet">{_GUIDE}{_marks(run)}</p>
{plots}
<h2 class="apart">All figures</h2>
{table(("Figure", "Value", "Definition"), figures, "figures")}
{_changes(run)}
{proofs}
<details>
<summary>Parameters</summary>
{table(("Name", "Value"), parameters)}
</details>"""
    return page_html(title, body, LEMMA_STYLE)


def _marks(run: Run) -> str:
    """What the vertical lines in the plots mean, of those that are drawn."""
    drawn = [name for name, at in events(run).items() if (at > 0).any() and len(at) <= MOST_MARKS]
    words = list(dict.fromkeys(_MARKS.get(name, "other events (dashed)") for name in drawn))
    if not words:
        return ""
    *first, last = words
    return f" Faint vertical lines mark {', '.join(first)}{' and ' if first else ''}{last}."


def _changes(run: Run) -> str:
    """A table of the changes that the learner noticed, or nothing."""
    found = noticed_changes(run.manifest)
    if not found:
        return ""
    rows = [map(escape, row) for row in found]
    return f"""<details open>
<summary>Changes that the learner noticed: {len(found)}</summary>
<p class="quiet">{CHANGES_CAPTION}</p>
{table(CHANGES_HEAD, rows)}
</details>"""


def page_html(title: str, body: str, style: str = "", script: str = "") -> str:
    """Return a whole page, plotly.js included; title and body are HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{asset("page.css")}{style}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
{body}
<script>{asset("page.js")}{script}</script>
</body>
</html>
"""


def asset(name: str) -> str:
    """Return the text of a style sheet or script that pages contain."""
    return files("safedrift.reports").joinpath("static", name).read_text(encoding="utf-8")


def plot_section(number: int, plot: Plot, remark: str = "", *, linked: bool = False) -> str:
    """Return the HTML of a plot with its title and caption; linked ones are zoomed together."""
    drawing = plot_html(f"plot{number}", plot.figure, linked=linked)
    return (
        f"<figure>\n<h2>{escape(plot.title)}</h2>\n"
        f"<figcaption>{math(plot.caption + remark)}</figcaption>\n{drawing}\n</figure>"
    )


def plot_html(name: str, figure: Any, *, linked: bool = False) -> str:
    """Return an empty place for a figure and its data; `static/page.js` draws it."""
    layout = figure.layout.to_plotly_json()
    layout.pop("template", None)  # light and dark colours are the page's
    layout.get("font", {}).pop("color", None)
    text = to_json_plotly({"data": _narrow(figure), "layout": layout, "linked": linked})
    text = text.replace("<", "\\u003c")  # cannot end the script
    return (
        f'<div class="plot" id="{name}" style="height: {layout["height"]}px"></div>\n'
        f'<script type="application/json" id="{name}-data">{text}</script>'
    )


def _narrow(figure: Any) -> Any:
    """The traces with numbers of seven digits, which are enough to draw."""
    drawn = go.Figure(figure)
    for trace in drawn.data:
        for axis in ("x", "y"):
            values = getattr(trace, axis)
            if isinstance(values, np.ndarray) and values.dtype == np.float64:
                setattr(trace, axis, values.astype(np.float32))
    return drawn.to_plotly_json()["data"]


_DOWNSAMPLED = (
    f" Lines are downsampled to {MOST_POINTS:,} points; the minimum and maximum of every segment "
    "are kept."
)

_GUIDE = "Episodes count from 0. Drag to zoom, double-click to zoom out; all plots zoom together."

_MARKS = {
    "policy_restart": "restarts of the policy (solid)",
    "window_restart": "restarts of the window (dotted)",
    "change": "changes that the learner noticed (dashed)",
}

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
