"""One run as one self-contained HTML page: what happened, key figures, plots, parameters.

The page is a pure function of the stored `Run`. plotly.js stands inline once, and the page's own
security policy forbids it to load anything. A line of many points is thinned to the lowest and the
highest value of each stretch, so that no extreme is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from safedrift._check import FloatArray, IntArray
from safedrift.experiments.run import Run

__all__ = ["write_page"]

MOST_POINTS = 2000  # per line
MOST_MARKS = 60  # vertical lines per plot; more would hide the curves
SMALL = 1e-9  # a shortfall below this is rounding

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#767676",
)  # fmt: skip
CONSTRAINT_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)


class Plot(NamedTuple):
    """A figure with its heading and the sentence that defines what it shows."""

    title: str
    caption: str
    figure: go.Figure


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


def _page(run: Run) -> str:
    title = f"{run.info.get('problem') or 'run'}: {run.info['agent']}"
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in run.notes())
    plots = "".join(_figure_html(i, plot, run) for i, plot in enumerate(_plots(run)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<h1>{escape(title)}</h1>
<p class=setting>{escape(_setting(run))}</p>
<p class=lead>{escape(_sentence(run))}</p>
{notes}
<h2>Key figures</h2>
{_table(("figure", "value", "definition"), _key_figures(run), "figures")}
<h2>Episode by episode</h2>
<p>{escape(_reading_guide(run))}</p>
{plots}
<details>
<summary>Parameters</summary>
{_table(("name", "value"), _flat(run.info), "parameters")}
</details>
<script>{_LINK_PLOTS}</script>
</body>
</html>
"""


# ---------------------------------------------------------------- words and numbers


def _setting(run: Run) -> str:
    """Mode, knowledge, seed and sizes in one line."""
    info = run.info
    known = dict(info["knowledge"])
    told = ", ".join([str(known.pop("name")), *(f"{key} = {known[key]}" for key in known)])
    sizes = ", ".join(f"{name} = {size:,}" for name, size in info["sizes"].items())
    return f"mode {info['parameters']['mode']} · knowledge {told} · seed {info['seed']} · {sizes}"


def _sentence(run: Run) -> str:
    """Say what happened in plain words."""
    found = run.summary()
    lost, uniform = found["dynamic_regret_per_episode"], found["uniform_regret_per_episode"]
    verdicts = [
        _verdict("The constraint" if run.utility.shape[1] == 1 else f"Constraint {k + 1}", *both)
        for k, both in enumerate(zip(found["violation_per_episode"], _short(run), strict=True))
    ]
    return (
        f"In {found['sizes']['M']:,} episodes {found['agent']} {'lost' if lost >= 0 else 'gained'} "
        f"{_number(abs(lost))} reward per episode against the best safe policy of each episode; "
        f"the uniform policy {'loses' if uniform >= 0 else 'gains'} {_number(abs(uniform))}. "
        + " ".join(verdicts)
    )


def _verdict(name: str, violation: float, short: float) -> str:
    if violation > SMALL:
        fate = f"missed in the long run, by {_number(violation)} per episode"
    else:
        fate = "met in the long run"
    single = f"{_percent(short)} of the episodes fell short of it" if short else "and in each episode"
    return f"{name} was {fate}{';' if short else ''} {single}."


def _short(run: Run) -> FloatArray:
    """Share of the episodes that break each constraint (K,)."""
    return np.asarray((run.shortfall > SMALL).mean(axis=0))


def _key_figures(run: Run) -> list[tuple[str, str, str]]:
    """Rows (figure, value, definition); several values are one per constraint."""
    found = run.summary()
    rows = [
        ("Dynamic regret DR(M)", "dynamic_regret",
         "Σ_m (V_r*[m] − V_r[π_m, m]): reward lost against the best safe policy of each episode"),
        ("Regret per episode", "dynamic_regret_per_episode", "DR(M) / M"),
        ("Positive-part regret per episode", "positive_regret_per_episode",
         "Σ_m [V_r*[m] − V_r[π_m, m]]₊ / M: reward won by unsafe episodes does not count"),
        ("Regret per episode, last tenth", "last_tenth_regret_per_episode",
         "mean of V_r*[m] − V_r[π_m, m] over the last tenth of the episodes"),
        ("Uniform policy's regret per episode", "uniform_regret_per_episode",
         "mean of V_r*[m] − V_r[uniform, m]: what learning nothing costs"),
        ("Long-run violation CV(M)", "violation",
         "[Σ_m (b_m − V_g[π_m, m])]₊: utility missing in total; safe episodes pay for unsafe ones"),
        ("Violation per episode", "violation_per_episode", "CV(M) / M"),
        ("Positive-part violation per episode", "positive_violation_per_episode",
         "Σ_m [b_m − V_g[π_m, m]]₊ / M: safe episodes do not pay for unsafe ones"),
        ("Shortfall per episode, last tenth", "last_tenth_shortfall_per_episode",
         "mean of b_m − V_g[π_m, m] over the last tenth of the episodes; negative is a margin"),
        ("Smallest Slater gap", "smallest_slater_gap",
         "min_m max_π min_k (V_g,k[π, m] − b_m,k): the room the tightest episode leaves"),
        ("Estimates at their cap", "estimates_at_cap",
         "share of the learner's estimates equal to H − h + 1 in the last tenth; near 1 they say "
         "nothing"),
        ("Multiplier at its bound", "multiplier_at_cap", "share of the episodes with μ = χ"),
    ]  # fmt: skip
    shares = ("Episodes short of utility", "; ".join(map(_percent, _short(run))),
              "share of the episodes with V_g[π_m, m] < b_m")  # fmt: skip
    table = [(label, _numbers(found[key]), text) for label, key, text in rows]
    return [*table[:8], shares, *table[8:]]


def _reading_guide(run: Run) -> str:
    """Say once what holds for all plots."""
    policy, window = _periods(run)
    told = "Drag to zoom, double-click to go back; all plots follow."
    if _marks(run):
        told += (
            f" Faint vertical lines: policy restarts every L = {policy:,} episodes (solid), window "
            f"restarts every W = {window:,} (dotted)."
        )
    return told


def _number(value: float) -> str:
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value + 0.0:.3g}"
    return text.replace("-", "−").replace("inf", "∞")


def _numbers(values: float | Sequence[float]) -> str:
    return "; ".join(map(_number, np.atleast_1d(values).tolist()))


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _flat(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows (dotted name, value); long arrays are shortened."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _shortened(value)


def _shortened(value: object, most: int = 6) -> str:
    if not isinstance(value, list | tuple | np.ndarray):
        return "none" if value == {} or value is None else str(value)
    entries = np.asarray(value)
    flat = entries.ravel()
    shown = ", ".join(map(str, flat[:most].tolist()))
    if flat.size <= most:
        return f"[{shown}]"
    return f"[{shown}, …] of shape {' × '.join(map(str, entries.shape))}"


# ---------------------------------------------------------------- plots


def _plots(run: Run) -> list[Plot]:
    constraints = range(run.utility.shape[1])
    return [
        _cumulative_regret(run),
        _cumulative_violation(run),
        _episode_regret(run),
        *(_utility(run, k) for k in constraints),
        _multipliers(run),
        _drift(run),
    ]


def _cumulative_regret(run: Run) -> Plot:
    uniform = np.cumsum(run.baseline_regret) * run.info["measure_every"]
    lines = [
        _line(run, run.dynamic_regret, "DR(n)", BLUE),
        _line(run, run.positive_regret, "positive part", SKY, "dot"),
        _line(run, uniform, "uniform policy", GREY, "dash"),
    ]
    caption = (
        "DR(n) = Σ_{m≤n} (V_r*[m] − V_r[π_m, m]), reward lost so far against the best safe policy "
        "of each episode; positive part: Σ_{m≤n} [V_r*[m] − V_r[π_m, m]]₊."
    )
    return Plot("Dynamic regret", caption, _figure(run, lines, "reward"))


def _cumulative_violation(run: Run) -> Plot:
    lines = []
    for k, (suffix, colour) in enumerate(_constraints(run)):
        lines += [
            _line(run, run.violation[:, k], f"CV(n){suffix}", colour),
            _line(run, run.positive_violation[:, k], f"positive part{suffix}", colour, "dot"),
        ]
    caption = (
        "CV(n) = [Σ_{m≤n} (b_m − V_g[π_m, m])]₊, utility missing so far; zero: the constraint is met "
        "in the long run. Positive part: Σ_{m≤n} [b_m − V_g[π_m, m]]₊."
    )
    return Plot("Long-run violation", caption, _figure(run, lines, "utility"))


def _episode_regret(run: Run) -> Plot:
    window, words = _smoothing(run)
    lines = [
        _line(run, trailing_mean(run.regret, window), f"{run.info['agent']}, {words}", BLUE),
        _line(run, trailing_mean(run.baseline_regret, window), "uniform policy", GREY, "dash"),
    ]
    caption = (
        f"V_r*[m] − V_r[π_m, m], {words}; zero: as good as the best safe policy, below zero: more "
        "reward than any safe policy can earn."
    )
    return Plot("Regret per episode", caption, _figure(run, lines, "reward"))
