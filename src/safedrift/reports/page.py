"""A run as a self-contained HTML page: headline, key figures, plots, parameters.

The page depends on the stored `Run` only. It contains plotly.js, and its content security policy
forbids loading anything.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from plotly.io import to_html
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

__all__ = ["page_html", "plot_section", "report", "write_page"]


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
    figures = [(label, value, math(text)) for label, value, text in key_figures(run)]
    parameters = [map(escape, row) for row in flatten(manifest.model_dump())]
    remark = _DOWNSAMPLED if run.episodes.size > MOST_POINTS else ""
    proofs = "" if certificates is None else lemma_section(certificates)
    plots = "\n".join(plot_section(i, plot, remark) for i, plot in enumerate(all_plots(run)))
    body = f"""<h1>{title}</h1>
<p class="quiet">{escape(configuration(run))}</p>
<p class="lead">{escape(headline(run))}</p>
{notes}
{table(("Figure", "Value", "Definition"), figures)}
<p class="quiet">{_GUIDE}{_MARKS if events(run) else ""}</p>
{plots}
{_changes(run)}
{proofs}
<details>
<summary>Parameters</summary>
{table(("Name", "Value"), parameters)}
</details>
<script>{_LINK}</script>"""
    return page_html(title, body, LEMMA_STYLE)


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


def page_html(title: str, body: str, style: str = "") -> str:
    """Return a whole page, plotly.js included; title and body are HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{_STYLE}{style}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
{body}
</body>
</html>
"""


def plot_section(number: int, plot: Plot, remark: str = "") -> str:
    """Return the HTML of a plot with its title and caption."""
    drawing = to_html(
        plot.figure, config=_CONFIG, include_plotlyjs=False, full_html=False, div_id=f"plot{number}"
    )
    return (
        f"<figure>\n<h2>{escape(plot.title)}</h2>\n"
        f"<figcaption>{math(plot.caption + remark)}</figcaption>\n{drawing}\n</figure>"
    )


_DOWNSAMPLED = (
    f" Lines are downsampled to {MOST_POINTS:,} points; the minimum and maximum of every segment "
    "are kept."
)

_GUIDE = "Episodes count from 0. Drag to zoom, double-click to zoom out; all plots zoom together."

_MARKS = (
    " Faint vertical lines mark restarts of the policy (solid) and of the window (dotted), and "
    f"other events (dashed); they are not drawn if there are more than {MOST_MARKS}."
)

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)

_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "resetScale2d"]],
}

_STYLE = """
body { max-width: 1100px; margin: 2.5rem auto; padding: 0 1.25rem; background: #fff; color: #222;
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0; }
sub { font-size: 0.75em; line-height: 0; }
.quiet, figcaption { color: #555; font-size: 0.9rem; margin: 0.3rem 0; }
.lead { font-size: 1.2rem; margin: 1.2rem 0; max-width: 50em; }
.note { border-left: 4px solid #D55E00; background: #fdf3ec; padding: 0.6rem 0.9rem; }
table { border-collapse: collapse; width: 100%; margin: 1.2rem 0; font-size: 0.92rem; }
th, td { text-align: left; vertical-align: baseline; padding: 0.3rem 1rem 0.3rem 0;
  border-bottom: 1px solid #e4e7ea; overflow-wrap: anywhere; }
td:first-child { min-width: 9em; }
td:nth-child(2) { font-variant-numeric: tabular-nums; }
figure { margin: 2.2rem 0 0; }
details { margin: 2.5rem 0; }
summary { font-size: 1.15rem; font-weight: 600; cursor: pointer; }
@media (max-width: 640px) {
  thead, .modebar { display: none; }
  tr { display: block; border-bottom: 1px solid #e4e7ea; padding: 0.4rem 0; }
  td { display: block; border: 0; padding: 0; }
  td:nth-child(2) { font-weight: 600; }
}
"""

# Zooming one plot zooms all. On touch screens, dragging scrolls the page instead.
_LINK = """
const plots = [...document.querySelectorAll(".js-plotly-plot")];
let following = false;
for (const plot of plots) {
  plot.on("plotly_relayout", async change => {
    if (following || !Object.keys(change).some(key => key.startsWith("xaxis"))) return;
    following = true;
    const range = { "xaxis.range": [...plot.layout.xaxis.range] };
    await Promise.all(plots.filter(other => other !== plot).map(p => Plotly.relayout(p, range)));
    following = false;
  });
  if (matchMedia("(pointer: coarse)").matches) Plotly.relayout(plot, { dragmode: false });
}
"""
