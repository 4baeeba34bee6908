"""The page of the demonstration: verdict, maps to scrub through, curves, comparison.

The page depends on stored results only. The maps are drawn by `static/demo.js` from visits and mean
steps of every cell (`display.BoardFrames`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from safedrift._check import FloatArray
from safedrift.display.records import BoardFrames
from safedrift.reports.comparison_page import ranking_section
from safedrift.reports.comparison_plots import ranking_plots, world_plots
from safedrift.reports.page import asset, page_html, plot_section, write_page
from safedrift.reports.plots import (
    BLACK,
    FAINT,
    OPTIMUM,
    SERIES,
    THRESHOLD,
    UNIFORM,
    Plot,
    downsample,
    trailing_mean,
)
from safedrift.results.comparison import Comparison
from safedrift.results.run import Run
from safedrift.results.scores import last_tenth, strict_score
from safedrift.results.verdicts import gap_closed, safety
from safedrift.results.wording import close_numbers, number

__all__ = ["report"]

POINTS = 800  # per line
WINDOW = 100  # the moving average takes so many parts of a run


def report(
    runs: Sequence[Run], frames: BoardFrames, comparison: Comparison, path: str | Path
) -> Path:
    """Write the page and return its path; the last run is the optimum's, an oracle."""
    return write_page(path, _page(runs, frames, comparison))


def _page(runs: Sequence[Run], frames: BoardFrames, comparison: Comparison) -> str:
    learners = runs[:-1]
    M = runs[0].manifest.sizes.M
    curves = (_reward_plot(runs), _hazard_plot(runs))
    compared = [
        plot
        for plot in (*ranking_plots(comparison), *world_plots(comparison))
        if plot.title != "Performance profiles"  # of one world, no news
    ]
    every = max(2, M // WINDOW)
    commands = "".join(f"<li><code>{escape(a)}</code> {b}</li>" for a, b in _COMMANDS)
    body = f"""<h1>A robot, a row of hazards, and a target that moves</h1>
<p class="quiet">{M:,} episodes in the drifting maze, played and measured on this machine.</p>
<p class="lead">{escape(_lead(learners))}</p>
<p>The robot earns reward for every step on the target and may spend at most
{_budget(runs[0])} steps per episode on hazards, in expectation. Now and then the target jumps, and
nobody tells the robot. The best safe policy of every single episode is computed exactly, so what
each learner loses is known and not estimated.</p>
<div class="cards">{"".join(_card(run, _colour(i)) for i, run in enumerate(learners))}</div>
<section id="where">
<h2 class="apart">Where they go</h2>
<p class="quiet">Shade: expected steps per episode in a cell. Arrows: the mean step from there.
Hatched: hazards. Ring: the target. <span class="screen">Pull the slider, or press play: the picture
slows down where the target has just moved.</span></p>
<div class="scrub"><button id="play" class="screen" type="button">Play</button>
<input class="screen" id="frame" type="range" min="0" max="{len(frames.episodes) - 1}"
value="{_first_frame(frames)}" aria-label="episode"><output id="episode" for="frame"></output></div>
<div id="maps"></div>
</section>
<script type="application/json" id="maps-data">{_map_data(runs, frames)}</script>
{"".join(plot_section(i, plot, linked=True) for i, plot in enumerate(curves))}
<p class="quiet">Lines are means of the last {every:,} episodes.</p>
<h2 class="apart">Is that luck? {len(comparison.manifest.seeds)} seeds each</h2>
<p>{escape(comparison.verdict())}</p>
{ranking_section(comparison)}
{"".join(plot_section(10 + i, plot) for i, plot in enumerate(compared))}
<h2 class="apart">Go on</h2>
<p class="quiet">After <code>make demo</code>, <code>. .venv/bin/activate</code> lets the shell find
the command.</p>
<ul class="commands">{commands}</ul>"""
    return page_html("safedrift: a demonstration", body, asset("demo.css"), asset("demo.js"))


_COMMANDS = (
    ("safedrift run maze --learner adaptive-planner", "one run, with a page of its own"),
    ("safedrift certify runs/...", "the paper's lemmas, checked on a run of PROPD-PPO"),
    ("safedrift compare energy ward --learners propd-ppo adaptive-planner", "in other worlds"),
    ("safedrift problems", "the worlds"),
    ("safedrift learners", "who can play"),
)


def _colour(i: int) -> str:
    return SERIES[i % len(SERIES)]


def _lead(learners: Sequence[Run]) -> str:
    """Who closed how much of the gap, and what it cost in safety; the best first."""
    order = sorted(learners, key=lambda run: strict_score(run).whole)
    best, *others = ((run.manifest.learner.name, strict_score(run).whole) for run in order)
    rest = ", ".join(f"{name} {gap_closed(score)}" for name, score in others)
    steps = ", ".join(f"{run.manifest.learner.name} {_late_steps(run)}" for run in order[1:])
    return (
        f"{best[0]} closed {gap_closed(best[1])} of the gap between acting at random and the best "
        f"safe policy of every episode; {rest}. Of {_budget(order[0])} hazard steps allowed per "
        f"episode it took {_late_steps(order[0])} in the last tenth, {steps}."
    )


def _late_steps(run: Run) -> str:
    return _steps_and_budget(run, last_tenth(run))[0]


def _steps_and_budget(run: Run, part: slice) -> tuple[str, str]:
    """Mean hazard steps over a part of the run, and the allowed ones, told apart if unsafe."""
    mean, allowed = float(_hazard_steps(run)[part].mean()), _allowed(run)
    if mean > allowed:
        return close_numbers(mean, allowed)
    return number(mean), number(allowed)


def _card(run: Run, colour: str) -> str:
    score, found = strict_score(run), safety(run)
    badges = _badge(found.safe_in_the_long_run, "in the long run", run, slice(None))
    badges += _badge(found.safe_lately, "in the last tenth", run, last_tenth(run))
    count = len(run.manifest.learner.events)
    changes = f"It noticed {count} change{'s' * (count > 1)} of the world." if count else ""
    return (
        f'<div class="card"><h3><i class="dot" data-colour="{colour}"></i>'
        f"{escape(run.manifest.learner.name)}</h3>"
        f'<p class="big">{gap_closed(score.whole)}</p><p class="quiet">of the gap to the best safe '
        f"policy closed; {gap_closed(score.last_tenth)} in the last tenth. {changes}</p>"
        f"{badges}</div>"
    )


def _badge(safe: bool, when: str, run: Run, part: slice) -> str:
    steps, allowed = _steps_and_budget(run, part)
    kind = "good" if safe else "bad"
    return (
        f'<p><span class="{kind}">{"safe" if safe else "unsafe"}</span> {when}: '
        f"{steps} hazard steps, {allowed} allowed</p>"
    )


# ---------------------------------------------------------------- maps


def _first_frame(frames: BoardFrames) -> int:
    """Just before the target moves for the first time."""
    moved = np.flatnonzero(np.diff(frames.board.goals))
    return int(moved[0]) if moved.size else 0


def _hazard_steps(run: Run) -> FloatArray:
    """Expected steps on hazards (n,): H - utility."""
    return np.asarray(run.manifest.sizes.H - run.outcome.utility[:, 0])


def _allowed(run: Run) -> float:
    return float(run.manifest.sizes.H - run.truth.thresholds[0, 0])


def _budget(run: Run) -> str:
    return number(_allowed(run))


def _map_data(runs: Sequence[Run], frames: BoardFrames) -> str:
    """What `demo.js` draws, as JSON; integers are hundredths."""
    board, at = frames.board, frames.episodes
    colours = [*map(_colour, range(len(runs) - 1)), OPTIMUM]
    data: dict[str, Any] = {
        "rows": board.rows,
        "columns": board.columns,
        "start": board.start,
        "hazards": board.hazards.tolist(),
        "goals": board.goals,
        "episodes": at.tolist(),
        "allowed": _allowed(runs[0]),
        "best": _hundredths(runs[0].truth.optimal_reward[at]),
        "learners": [
            {
                "name": name,
                "colour": colour,
                "reward": _hundredths(run.outcome.reward[at]),
                "hazard": _hundredths(_hazard_steps(run)[at]),
                "visits": _hundredths(visits),
                "moves": _hundredths(moves),
            }
            for name, colour, run, visits, moves in zip(
                frames.names, colours, runs, frames.visits, frames.moves, strict=True
            )
        ],
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _hundredths(values: FloatArray) -> Any:
    return np.round(100 * values).astype(np.int64).tolist()


# ---------------------------------------------------------------- curves


def _reward_plot(runs: Sequence[Run]) -> Plot:
    truth = runs[0].truth
    lines = [
        _line(
            runs[0],
            truth.optimal_reward,
            "best safe policy of each episode",
            OPTIMUM,
            width=5,
            opacity=0.5,
        ),
        _line(runs[0], truth.baseline_reward, "uniform policy", UNIFORM, "dash"),
        *(_smooth(run, run.outcome.reward, i) for i, run in enumerate(runs[:-1])),
    ]
    caption = (
        "Expected reward per episode. The optimum changes when the target jumps (vertical lines); "
        "triangles: the learner says that it noticed a change. Above the optimum a learner earns "
        "more than any safe policy can."
    )
    return _with_changes("Reward against the optimum", "reward", caption, lines, runs)


def _hazard_plot(runs: Sequence[Run]) -> Plot:
    allowed = runs[0].manifest.sizes.H - runs[0].truth.thresholds[:, 0]
    lines = [
        _line(
            runs[0],
            _hazard_steps(runs[-1]),
            "best safe policy of each episode",
            OPTIMUM,
            width=5,
            opacity=0.5,
        ),
        *(_smooth(run, _hazard_steps(run), i) for i, run in enumerate(runs[:-1])),
        _line(runs[0], allowed, "allowed", THRESHOLD, "dash"),
    ]
    caption = (
        "Expected steps on hazards per episode, and the threshold that their mean may not exceed; "
        "above it, an episode is unsafe."
    )
    return _with_changes("Hazard steps against the threshold", "steps", caption, lines, runs)


def _smooth(run: Run, values: FloatArray, i: int) -> go.Scatter:
    window = max(2, run.episodes.size // WINDOW)
    return _line(run, trailing_mean(values, window), run.manifest.learner.name, _colour(i))


def _line(
    run: Run,
    values: FloatArray,
    name: str,
    colour: str,
    dash: str = "solid",
    width: float = 2,
    opacity: float = 1,
) -> go.Scatter:
    kept = downsample(values, POINTS)
    return go.Scatter(
        x=run.episodes[kept],
        y=values[kept],
        name=escape(name, quote=False),
        mode="lines",
        line={"color": colour, "dash": dash, "width": width},
        opacity=opacity,
        hovertemplate="episode %{x:,}: %{y:.4~g}",
    )


def _with_changes(
    title: str, unit: str, caption: str, lines: list[go.Scatter], runs: Sequence[Run]
) -> Plot:
    """A plot with the moves of the target, the changes that were noticed, and a cursor."""
    M, truth = runs[0].manifest.sizes.M, runs[0].truth
    moved = truth.episodes[truth.drift_r > 0].tolist()
    upright = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    shapes = [{**upright, "x0": 0, "x1": 0, "line": {"color": BLACK, "width": 1.5}}]  # the cursor
    shapes += [
        {**upright, "x0": m, "x1": m, "line": {"color": FAINT, "width": 1.5, "dash": "dot"}}
        for m in moved
    ]
    figure = go.Figure([*lines, *_noticed(runs)])
    figure.update_layout(
        template="plotly_white",
        height=340,
        margin={"l": 60, "r": 12, "t": 24, "b": 44},
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        shapes=shapes,
        yaxis={"title": {"text": unit, "standoff": 6}, "rangemode": "tozero"},
        xaxis={"title": {"text": "episode", "standoff": 6}, "range": [-0.5, M - 0.5],
               "tickformat": ",d"},
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
    )  # fmt: skip
    return Plot(title, caption, figure)


def _noticed(runs: Sequence[Run]) -> Iterator[go.Scatter]:
    """Triangles at the upper edge where a learner noticed a change."""
    for i, run in enumerate(runs[:-1]):
        found = run.manifest.learner.events
        if found:
            yield go.Scatter(
                x=[event.episode for event in found],
                y=[0.98] * len(found),
                yaxis="y2",
                mode="markers",
                name=f"change noticed by {escape(run.manifest.learner.name, quote=False)}",
                marker={"symbol": "triangle-down", "size": 11, "color": _colour(i)},
                text=[escape(str(event), quote=False) for event in found],
                hovertemplate="%{text}<extra></extra>",
            )
