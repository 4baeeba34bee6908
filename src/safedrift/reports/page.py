"""One run as one self-contained HTML page: what happened, key figures, plots, parameters.

The page is a function of the stored `Run` alone. plotly.js stands inline once, and the page's own
security policy forbids it to load anything.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from plotly.io import to_html
from plotly.offline import get_plotlyjs

from safedrift.reports.certificate_section import LEMMA_STYLE, lemmas
from safedrift.reports.html import math, table
from safedrift.reports.plots import MOST_MARKS, MOST_POINTS, Plot, all_plots
from safedrift.reports.summary_text import key_figures, sentence, setting, settings
from safedrift.results.run import Run
from safedrift.theory.certificates import Certificates

__all__ = ["write_page"]


def write_page(run: Run, path: str | Path, certificates: Certificates | None = None) -> Path:
    """Write the page of a run and return its path.

    Missing folders are made. An old page is replaced only once the new one is complete.

    Parameters
    ----------
    run
        What `simulate` returned or `Run.from_parquet` read.
    path
        Of the page, e.g. "maze.html".
    certificates
        What `run.certify()` returned: adds a section on the paper's lemmas.
    """
    path = Path(path)
    text = _page(run, certificates)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _page(run: Run, certificates: Certificates | None) -> str:
    title = escape(f"{run.info.get('problem') or 'run'}: {run.info['agent']}")
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in run.notes())
    figures = [(label, value, math(text)) for label, value, text in key_figures(run)]
    parameters = [map(escape, row) for row in settings(run.info)]
    remark = _THINNED if run.episodes.size > MOST_POINTS else ""
    proofs = "" if certificates is None else lemmas(certificates)
    plots = "\n".join(_section(i, plot, remark) for i, plot in enumerate(all_plots(run)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{_STYLE}{LEMMA_STYLE}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<h1>{title}</h1>
<p class="quiet">{escape(setting(run))}</p>
<p class="lead">{escape(sentence(run))}</p>
{notes}
{table(("Figure", "Value", "Definition"), figures)}
<p class="quiet">{_GUIDE}</p>
{plots}
{proofs}
<details>
<summary>Parameters</summary>
{table(("Name", "Value"), parameters)}
</details>
<script>{_LINK}</script>
</body>
</html>
"""


def _section(number: int, plot: Plot, remark: str) -> str:
    drawing = to_html(
        plot.figure, config=_CONFIG, include_plotlyjs=False, full_html=False, div_id=f"plot{number}"
    )
    return (
        f"<figure>\n<h2>{plot.title}</h2>\n"
        f"<figcaption>{math(plot.caption + remark)}</figcaption>\n{drawing}\n</figure>"
    )


_THINNED = f" Lines are thinned to {MOST_POINTS:,} points; the extremes of every stretch stay."

_GUIDE = (
    "In the plots, drag to zoom and double-click to go back; all of them follow. Faint vertical "
    "lines are restarts of the policy (solid) and of the window (dotted), left out if there are "
    f"more than {MOST_MARKS}."
)

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)

_CONFIG = {
    "responsive": True, "displaylogo": False, "modeBarButtons": [["toImage", "resetScale2d"]],
}  # fmt: skip

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

# Zooming one plot moves the episode axis of all. On touch screens a drag scrolls the page instead.
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
