"""One run as one self-contained HTML page: what happened, key figures, plots, parameters.

The page is a function of the stored `Run` alone. plotly.js stands inline once, and the page's own
security policy forbids it to load anything. A line of many points is thinned to the lowest and the
highest value of each stretch, so that no extreme is lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from safedrift._check import FloatArray, IntArray
from safedrift.experiments.run import Run

__all__ = ["write_page"]

MOST_POINTS = 2000  # per line
MOST_MARKS = 60  # restarts of a kind drawn across a plot; more would hide the curves
ROUNDING = 1e-9  # a shortfall up to this is none

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"
BLACK, GREY, FAINT = "#222222", "#767676", "#D0D5DB"


def write_page(run: Run, path: str | Path) -> Path:
    """Write the page of a run and return its path.

    Missing folders are made. An old page is replaced only once the new one is complete.

    Parameters
    ----------
    run
        What `simulate` returned or `Run.from_parquet` read.
    path
        Of the page, e.g. "maze.html".
    """
    path = Path(path)
    text = _page(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


# ---------------------------------------------------------------- words and numbers


def _setting(run: Run) -> str:
    """Return mode, knowledge, seed and sizes in one line."""
    info = run.info
    known = dict(info["knowledge"])
    told = ", ".join([str(known.pop("name")), *(f"{key} = {known[key]}" for key in known)])
    sizes = ", ".join(f"{name} = {size:,}" for name, size in info["sizes"].items())
    return f"mode {info['parameters']['mode']} · knowledge {told} · seed {info['seed']} · {sizes}"


def _sentence(run: Run) -> str:
    """Say what happened in plain words."""
    found = run.summary()
    lost, uniform = found["dynamic_regret_per_episode"], found["uniform_regret_per_episode"]
    return (
        f"In {found['sizes']['M']:,} episodes {found['agent']} {'lost' if lost >= 0 else 'gained'} "
        f"{_number(abs(lost))} reward per episode against the best safe policy of each episode; "
        f"the uniform policy {'loses' if uniform >= 0 else 'gains'} {_number(abs(uniform))}. "
    ) + " ".join(_verdict(run, k) for k in range(run.utility.shape[1]))


def _verdict(run: Run, k: int) -> str:
    """Say whether constraint `k` was met, in the long run and in single episodes."""
    name = "The constraint" if run.utility.shape[1] == 1 else f"Constraint {k + 1}"
    violation, missed = run.summary()["violation_per_episode"][k], _missed(run)[k]
    single = f"missed in {_percent(missed)} of the {_episodes(run)}"
    if violation > ROUNDING:
        by = _number(violation)
        return f"{name} was missed in the long run, by {by} utility per episode, and {single}."
    if missed:
        return f"{name} was met in the long run, though {single}."
    return f"{name} was met in all {_episodes(run)}."


def _missed(run: Run) -> FloatArray:
    """Share of the measured episodes that miss each constraint (K,)."""
    return np.asarray((run.shortfall > ROUNDING).mean(axis=0))


def _episodes(run: Run) -> str:
    return "measured episodes" if run.info["measure_every"] > 1 else "episodes"


def _key_figures(run: Run) -> list[tuple[str, str, str]]:
    """Rows (figure, value, definition) in HTML; several values are one per constraint."""
    found = run.summary()
    rows = [
        ("Dynamic regret DR(M)", _number(found["dynamic_regret"]),
         "Σ_m (V_r*[m] − V_r[π_m, m]): reward lost against the best safe policy of each episode"),
        ("Regret per episode", _number(found["dynamic_regret_per_episode"]), "DR(M) / M"),
        ("… positive part", _number(found["positive_regret_per_episode"]),
         "Σ_m [V_r*[m] − V_r[π_m, m]]₊ / M: extra reward of unsafe episodes does not count"),
        ("… last tenth", _number(found["last_tenth_regret_per_episode"]),
         "mean of V_r*[m] − V_r[π_m, m] over the last tenth of the episodes"),
        ("… uniform policy", _number(found["uniform_regret_per_episode"]),
         "mean of V_r*[m] − V_r[uniform, m]: what it costs to learn nothing"),
        ("Long-run violation CV(M)", _number(found["violation"]),
         "[Σ_m (b_m − V_g[π_m, m])]₊: missing utility; safe episodes make up for unsafe ones"),
        ("Violation per episode", _number(found["violation_per_episode"]), "CV(M) / M"),
        ("… positive part", _number(found["positive_violation_per_episode"]),
         "Σ_m [b_m − V_g[π_m, m]]₊ / M: safe episodes do not make up for unsafe ones"),
        ("… last tenth", _number(found["last_tenth_shortfall_per_episode"]),
         "mean of b_m − V_g[π_m, m] over the last tenth of the episodes; negative is a margin"),
        ("Episodes that miss", "; ".join(map(_percent, _missed(run))),
         "share of the episodes with V_g[π_m, m] < b_m"),
        ("Smallest Slater gap", _number(found["smallest_slater_gap"]),
         "min_m max_π min_k (V_{g,k}[π, m] − b_{m,k}): room in the tightest episode"),
        ("Estimates at their cap", _percent(found["estimates_at_cap"]),
         "share of the learner's estimates at H − h + 1, last tenth; near 100% they say nothing"),
    ]  # fmt: skip
    return [(label, value, _math(definition)) for label, value, definition in rows]


def _number(value: float | list[float]) -> str:
    if isinstance(value, list):
        return "; ".join(map(_number, value))
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value + 0.0:.3g}"
    return text.replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _settings(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows (dotted name, value) in HTML."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield escape(f"{prefix}{key}"), escape(_brief(value))


def _brief(value: object, most: int = 6) -> str:
    """Return a setting as text, a long array by its first entries and its shape."""
    if not isinstance(value, list):
        return "none" if value is None or value == {} else str(value)
    array = np.asarray(value)
    shown = ", ".join(map(str, array.ravel()[:most].tolist()))
    if array.size <= most:
        return f"[{shown}]"
    return f"[{shown}, …] ({' × '.join(map(str, array.shape))} entries)"


# ---------------------------------------------------------------- lines


def thin(values: FloatArray, most: int = MOST_POINTS) -> IntArray:
    """Return the indices, at most `most`, at which a line is drawn.

    A longer line is cut into equal stretches; each keeps its lowest and its highest value. Both
    ends stay.
    """
    n = values.size
    if n <= most:
        return np.arange(n)
    size = -(-n // (most // 2 - 1))
    stretches = np.pad(values, (0, -n % size), mode="edge").reshape(-1, size)
    start = size * np.arange(len(stretches))
    kept = (start + stretches.argmin(axis=1), start + stretches.argmax(axis=1), [0, n - 1])
    return np.unique(np.concatenate(kept))


def trailing_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` values up to each one; of fewer at the start."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    end = np.arange(1, values.size + 1)
    start = np.maximum(end - window, 0)
    return np.asarray((sums[end] - sums[start]) / (end - start))


def _smoothing(run: Run) -> tuple[int, str]:
    """Window of the moving average, a hundredth of the run, and its name."""
    window = max(2, run.episodes.size // 100)
    return window, f"mean of the last {window:,} {_episodes(run)}"


def _line(
    run: Run, values: FloatArray, name: str, colour: str, dash: str = "solid", opacity: float = 1
) -> go.Scatter:
    kept = thin(values)
    return go.Scatter(
        x=run.episodes[kept] + 1,
        y=values[kept],
        name=name,
        mode="lines" if kept.size > 1 else "markers",
        line={"color": colour, "dash": dash, "width": 1.8},
        opacity=opacity,
        hovertemplate="episode %{x:,}: %{y:.4~g}",
    )


def _pairs(
    run: Run, first: tuple[str, FloatArray], second: tuple[str, FloatArray], dash: str
) -> list[go.Scatter]:
    """Lines of two (name, values (n, K)), a colour per constraint, the second dashed."""
    K = run.utility.shape[1]
    colours = (BLUE, ORANGE, GREEN, PURPLE, SKY)
    return [
        _line(run, values[:, k], name + _of(run, k), colours[k % len(colours)], style)
        for k in range(K)
        for (name, values), style in ((first, "solid"), (second, dash))
    ]


def _of(run: Run, k: int) -> str:
    return "" if run.utility.shape[1] == 1 else f", constraint {k + 1}"


def _restarts(run: Run) -> tuple[range, range]:
    """Episodes, from 1, that open an L-block and a W-block, measured or not."""
    M, parameters = run.info["sizes"]["M"], run.info["parameters"]
    L, W = parameters["improvement"]["L"], parameters["evaluation"]["W"]
    return range(1, M + 1, L), range(1, M + 1, W)


def _layout(run: Run, **more: object) -> dict[str, Any]:
    """Style of all plots; restarts are faint vertical lines."""
    marks = [
        {"type": "line", "x0": m, "x1": m, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
         "line": {"color": FAINT, "width": 1, "dash": dash}}
        for starts, dash in zip(_restarts(run), ("solid", "dot"), strict=True)
        for m in (starts[1:] if len(starts) <= MOST_MARKS else ())
    ]  # fmt: skip
    return {
        "template": "plotly_white",
        "height": 320,
        "margin": {"l": 60, "r": 12, "t": 24, "b": 44},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": BLACK},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "showlegend": True,
        "shapes": marks,
        **more,
    }


# ---------------------------------------------------------------- plots


class Plot(NamedTuple):
    """A figure with its heading and the caption that defines what it shows."""

    title: str
    caption: str
    figure: go.Figure


def _plots(run: Run) -> Iterator[Plot]:
    yield _regret(run)
    yield _violation(run)
    yield _each_regret(run)
    for k in range(run.utility.shape[1]):
        yield _utility(run, k)
    yield _multipliers(run)
    yield _drift(run)


def _plot(run: Run, title: str, unit: str, caption: str, lines: list[go.Scatter]) -> Plot:
    figure = go.Figure(lines, _layout(run, yaxis={"title": {"text": unit, "standoff": 6}}))
    figure.update_xaxes(_episode_axis(run))
    return Plot(title, caption, figure)


def _episode_axis(run: Run) -> dict[str, Any]:
    title = {"text": "episode", "standoff": 6}
    return {"title": title, "range": [0.5, run.info["sizes"]["M"] + 0.5], "tickformat": ",d"}


def _regret(run: Run) -> Plot:
    uniform = np.cumsum(run.baseline_regret) * run.info["measure_every"]
    lines = [
        _line(run, run.dynamic_regret, "DR(n)", BLUE),
        _line(run, run.positive_regret, "positive part", SKY, "dot"),
        _line(run, uniform, "uniform policy", GREY, "dash"),
    ]
    caption = (
        "DR(n) = Σ_{m≤n} (V_r*[m] − V_r[π_m, m]), the reward lost so far against the best safe "
        "policy of each episode; its positive part is Σ_{m≤n} [V_r*[m] − V_r[π_m, m]]₊."
    )
    return _plot(run, "Dynamic regret", "reward", caption, lines)


def _violation(run: Run) -> Plot:
    lines = _pairs(run, ("CV(n)", run.violation), ("positive part", run.positive_violation), "dot")
    caption = (
        "CV(n) = [Σ_{m≤n} (b_m − V_g[π_m, m])]₊, the utility missing so far, zero where the "
        "constraint is met in the long run; its positive part is Σ_{m≤n} [b_m − V_g[π_m, m]]₊."
    )
    return _plot(run, "Long-run violation", "utility", caption, lines)


def _each_regret(run: Run) -> Plot:
    window, words = _smoothing(run)
    lines = [
        _line(run, trailing_mean(run.regret, window), f"learner, {words}", BLUE),
        _line(run, trailing_mean(run.baseline_regret, window), "uniform policy", GREY, "dash"),
    ]
    caption = (
        f"V_r*[m] − V_r[π_m, m], {words}, and the same of the uniform policy; zero is as good as "
        "the best safe policy, below zero is more reward than a safe policy can earn."
    )
    return _plot(run, "Regret per episode", "reward", caption, lines)


def _utility(run: Run, k: int) -> Plot:
    window, words = _smoothing(run)
    lines = [
        _line(run, run.utility[:, k], "each episode", SKY, opacity=0.5),
        _line(run, trailing_mean(run.utility[:, k], window), words, BLUE),
        _line(run, run.baseline_utility[:, k], "uniform policy", GREY, "dash"),
        _line(run, run.thresholds[:, k], "threshold b", ORANGE, "dash"),
    ]
    caption = (
        "V_g[π_m, m], the expected utility of the policy played, and the threshold b_m that it has "
        "to reach in the long run; an episode below the threshold is unsafe."
    )
    return _plot(run, f"Utility and threshold{_of(run, k)}", "utility", caption, lines)


def _multipliers(run: Run) -> Plot:
    lines = _pairs(run, ("μ", run.mu), ("μ*", run.optimal_mu), "dash")
    caption = (
        "μ_m, the learner's price for a unit of missing utility, and μ*[m] = −∂V_r*[m]/∂b_m, the "
        "optimal one: reward lost per unit by which the threshold rises."
    )
    return _plot(run, "Multiplier", "reward per utility", caption, lines)


def _drift(run: Run) -> Plot:
    """One row per kind of drift, the restarts below, all over one episode axis."""
    rows = {
        "transitions P": run.drift_P, "rewards r": run.drift_r, "utilities g": run.drift_g,
        "thresholds b": run.drift_b, "optimal policy π*": run.drift_star,
    }  # fmt: skip
    policy, window = _restarts(run)
    restarts = f"restarts: policy every {policy.step:,} episodes, window every {window.step:,}"
    figure = make_subplots(6, 1, shared_xaxes=True, subplot_titles=[*rows, restarts])
    for i, (name, change) in enumerate(rows.items(), start=1):
        figure.add_trace(_line(run, change, name, BLUE), i, 1)
    figure.update_traces(line_shape="vh")  # a change belongs to the gap before its episode
    figure.add_traces([_ticks(window, "window"), _ticks(policy, "policy")], 6, 1)
    figure.update_layout(_layout(run, height=640, showlegend=False))
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_xaxes(_episode_axis(run) | {"title": None})
    figure.update_xaxes(_episode_axis(run), row=6)
    figure.update_yaxes(rangemode="tozero", nticks=4)
    caption = (
        "Change since the last measured episode: Σ_h ‖ΔP_h‖₂, Σ_h ‖Δr_h‖₂, Σ_h ‖Δg_h‖₂ and |Δb| "
        "(both summed over constraints), Σ_h max_x ‖Δπ*_h(·|x)‖₁; below, the episodes in which the "
        "policy (every L) and the window (every W) start afresh."
    )
    return Plot("Drift and restarts", caption, figure)


def _ticks(starts: range, row: str) -> go.Scatter:
    shown = starts[:: -(-len(starts) // MOST_POINTS)]
    return go.Scatter(
        x=list(shown),
        y=[row] * len(shown),
        name=row,
        mode="markers",
        marker={"symbol": "line-ns", "size": 12, "line": {"width": 1.5, "color": BLACK}},
        hovertemplate="episode %{x:,}",
    )


# ---------------------------------------------------------------- HTML


def _page(run: Run) -> str:
    title = escape(f"{run.info.get('problem') or 'run'}: {run.info['agent']}")
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in run.notes())
    remark = _THINNED if run.episodes.size > MOST_POINTS else ""
    plots = "\n".join(_section(i, plot, remark) for i, plot in enumerate(_plots(run)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{_STYLE}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<h1>{title}</h1>
<p class="quiet">{escape(_setting(run))}</p>
<p class="lead">{escape(_sentence(run))}</p>
{notes}
{_table(("Figure", "Value", "Definition"), _key_figures(run))}
<p class="quiet">{_GUIDE}</p>
{plots}
<details>
<summary>Parameters</summary>
{_table(("Name", "Value"), _settings(run.info))}
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
        f"<figcaption>{_math(plot.caption + remark)}</figcaption>\n{drawing}\n</figure>"
    )


def _math(text: str) -> str:
    """HTML of a text in which _x and _{…} are subscripts."""
    return re.sub(r"_(?:\{(.+?)\}|(\w))", r"<sub>\1\2</sub>", escape(text))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """HTML of a table whose cells are HTML."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "\n".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


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
