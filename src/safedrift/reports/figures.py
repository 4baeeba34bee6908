"""Figures for publication: the plots of a page as PDF and PNG, in one style.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, and dashes differ too. A
figure is as wide as a column of 3.4 inches for each of its panels; fonts have 8 points.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

from safedrift._files import write_whole
from safedrift.reports.plots import FAINT, Plot

__all__ = ["save_figures"]

WIDTH, HEIGHT, DPI = 3.4, 2.3, 300  # inches, and pixels per inch
STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "legend.fontsize": 7.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E7EA",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}
_DASHES = {"dash": (0, (4, 2)), "dot": (0, (1, 1.5)), "dashdot": (0, (4, 1.5, 1, 1.5))}
_SYMBOLS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "circle-open": "o",
    "x": "X",
    "cross": "P",
}


def save_figures(plots: Iterable[Plot], folder: str | Path) -> list[Path]:
    """Write every plot as a PDF and a PNG named after its title; returns the files.

    Missing folders are created. The same plots give the same bytes.
    """
    import matplotlib
    from matplotlib.figure import Figure

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in plots:
        with matplotlib.rc_context(STYLE):
            figure: Any = Figure(layout="constrained", dpi=DPI)
            _draw(figure, plot)
            for kind in ("pdf", "png"):
                written.append(_save(figure, folder / f"{_file_name(plot.title)}.{kind}", kind))
    return written


def _save(figure: Any, path: Path, kind: str) -> Path:
    still = {"CreationDate": None, "ModDate": None} if kind == "pdf" else {"Software": None}
    return write_whole(path, lambda file: figure.savefig(file, format=kind, metadata=still))


def _file_name(title: str) -> str:
    """Letters and digits of a title, joined by hyphens."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-") or "figure"


def _draw(figure: Any, plot: Plot) -> None:
    """Draw each panel of a figure; panels with rows of their own are below each other."""
    source = plot.figure.to_dict()["layout"]
    names = sorted({_axis(trace) for trace in plot.figure.data})
    below = len(names) > 1 and "matches" in source.get("xaxis", {})
    rows, columns = (len(names), 1) if below else (1, len(names))
    figure.set_size_inches(WIDTH * columns, 0.9 * rows + 0.4 if below else HEIGHT)
    panels = np.atleast_1d(figure.subplots(rows, columns, sharex=below))
    titles = [note["text"] for note in source.get("annotations", ())]
    for i, (ax, name) in enumerate(zip(panels, names, strict=True)):
        for trace in plot.figure.data:
            if _axis(trace) == name:
                _draw_trace(ax, trace)
        for shape in source.get("shapes", ()) if i == 0 or below else ():
            _draw_mark(ax, shape)
        _label(ax, source, name, titles[i] if i < len(titles) else "")
    for ax in panels[:-1] if below else ():
        ax.set_xlabel("")
    _legend(figure, panels, source)


def _axis(trace: Any) -> int:
    """Number of the panel that a trace is drawn in."""
    return int((trace.xaxis or "x")[1:] or 1)


def _draw_trace(ax: Any, trace: Any) -> None:
    if trace.fill == "toself":
        red, green, blue, alpha = map(float, re.findall(r"[\d.]+", trace.fillcolor))
        ax.fill(trace.x, trace.y, color=(red / 255, green / 255, blue / 255), alpha=alpha, lw=0)
        return
    if trace.mode == "markers":
        _draw_markers(ax, trace)
        return
    line = trace.line
    ax.plot(
        trace.x,
        trace.y,
        color=line.color,
        ls=_DASHES.get(line.dash, "-"),
        alpha=trace.opacity,
        label=unescape(trace.name),
        drawstyle="steps-pre" if line.shape == "vh" else "default",
        rasterized=len(trace.x) > 5000,
    )


def _draw_markers(ax: Any, trace: Any) -> None:
    mark = trace.marker
    symbol = mark.symbol or "circle"
    error = trace.error_x.array is not None and [trace.error_x.arrayminus, trace.error_x.array]
    ax.errorbar(
        trace.x,
        trace.y,
        xerr=np.asarray(error) if error else None,
        fmt="|" if symbol == "line-ns" else _SYMBOLS.get(symbol, "o"),
        color=mark.color or mark.line.color,
        mfc="none" if symbol.endswith("-open") else None,
        ms=(mark.size or 6) / 2.4,
        alpha=trace.opacity,
        capsize=2,
        label=unescape(trace.name or "") if trace.showlegend is not False else None,
    )


def _draw_mark(ax: Any, shape: dict[str, Any]) -> None:
    """A vertical line through the panel, or a line between two points."""
    line = shape["line"]
    style = {"color": line.get("color", FAINT), "ls": _DASHES.get(line.get("dash", ""), "-"),
             "lw": 0.6, "zorder": 0}  # fmt: skip
    if shape.get("yref") == "paper":
        ax.axvline(shape["x0"], **style)
    else:
        ax.plot([shape["x0"], shape["x1"]], [shape["y0"], shape["y1"]], **style)


def _label(ax: Any, source: dict[str, Any], name: int, title: str) -> None:
    number = "" if name == 1 else str(name)
    for axis, put in ((f"xaxis{number}", ax.set_xlabel), (f"yaxis{number}", ax.set_ylabel)):
        put(unescape(source.get(axis, {}).get("title", {}).get("text", "")))  # Plotly has HTML
    wanted = source.get(f"xaxis{number}", {}).get("range")
    if wanted is not None:
        ax.set_xlim(*wanted)
    if title:
        ax.set_title(title, loc="left")
    if source.get(f"yaxis{number}", {}).get("rangemode") == "tozero":
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    if source.get(f"xaxis{number}", {}).get("tickformat") == ",d":
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        ax.xaxis.get_major_locator().set_params(nbins=5, integer=True)


def _legend(figure: Any, panels: Any, source: dict[str, Any]) -> None:
    """Each name once, above the panels."""
    if source.get("showlegend") is False:
        return
    found: dict[str, Any] = {}
    for ax in panels:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        wide = max(map(len, found))
        columns = max(1, min(len(found), 58 * len(panels) // (wide + 6)))
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.15 * (-(-len(found) // columns) - 1))
        figure.legend(found.values(), found, loc="outside upper left", ncols=columns)
