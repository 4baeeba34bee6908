"""The plots of a page: reward, utility, dynamic regret, violation, multipliers and drift.

Episodes count from 0. A long line is downsampled to the minimum and maximum of each segment, so
that no extreme is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from safedrift._check import FloatArray, IntArray
from safedrift.results.run import Run
from safedrift.results.wording import (
    ROUNDING,
    episodes_label,
    is_cost,
    percent,
    reward_unit,
    utility_unit,
)

__all__ = [
    "MOST_MARKS",
    "MOST_POINTS",
    "Plot",
    "all_plots",
    "downsample",
    "events",
    "trailing_mean",
]

MOST_POINTS = 2000  # per line
MOST_MARKS = 60  # restart lines of each kind in a plot; more would hide the curves

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"
BLACK, GREY, FAINT = "#222222", "#767676", "#D0D5DB"
# What a colour stands for in every plot of a run.
LEARNER, OPTIMUM, THRESHOLD, UNIFORM = BLUE, GREEN, ORANGE, GREY
AMBER, VIOLET, BROWN = "#E69F00", "#7A5195", "#8C564B"
SERIES = (BLUE, PURPLE, AMBER, SKY, VIOLET, BROWN)  # constraints or learners, side by side


# ---------------------------------------------------------------- lines


def downsample(values: FloatArray, most: int = MOST_POINTS) -> IntArray:
    """Return the indices, at most `most`, of the points that are drawn.

    A longer line is cut into segments of equal length; each keeps its minimum and its maximum. Both
    ends are kept.
    """
    n = values.size
    if n <= most:
        return np.arange(n)
    size = -(-n // (most // 2 - 1))
    segments = np.pad(values, (0, -n % size), mode="edge").reshape(-1, size)
    start = size * np.arange(len(segments))
    kept = (start + segments.argmin(axis=1), start + segments.argmax(axis=1), [0, n - 1])
    return np.unique(np.concatenate(kept))


def trailing_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` values at each index; of fewer at the start."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    end = np.arange(1, values.size + 1)
    start = np.maximum(end - window, 0)
    return np.asarray((sums[end] - sums[start]) / (end - start))


def _smoothing(run: Run) -> tuple[int, str]:
    """Window of the moving average, a hundredth of the run, and its label."""
    window = max(2, run.episodes.size // 100)
    return window, f"mean of the last {window:,} {episodes_label(run)}"


def _line(
    run: Run,
    values: FloatArray,
    name: str,
    colour: str,
    dash: str = "solid",
    opacity: float = 1,
    width: float = 1.8,
) -> go.Scatter:
    gaps = np.isnan(values)
    kept = downsample(gaps.astype(np.float64) if gaps.any() else values)
    return go.Scatter(
        x=run.episodes[kept],
        y=values[kept],
        name=escape(name, quote=False),  # Plotly takes it as HTML
        mode="lines" if kept.size > 1 else "markers",
        line={"color": colour, "dash": dash, "width": width},
        opacity=opacity,
        hovertemplate="episode %{x:,}: %{y:.4~g}",
    )


def _pairs(
    run: Run, first: tuple[str, FloatArray], second: tuple[str, FloatArray], dash: str
) -> list[go.Scatter]:
    """Lines of two (name, values (n, K)), a colour per constraint, the second dashed."""
    K = run.manifest.sizes.K
    return [
        _line(run, values[:, k], name + _of(run, k), SERIES[k % len(SERIES)], style)
        for k in range(K)
        for (name, values), style in ((first, "solid"), (second, dash))
    ]


def _of(run: Run, k: int) -> str:
    alone = run.manifest.sizes.K == 1 and run.manifest.constraints is None
    return "" if alone else f", {run.constraint(k)}"


def _common_unit(run: Run) -> str:
    """The unit of all constraints, for a plot of all."""
    units = {utility_unit(run, k) for k in range(run.manifest.sizes.K)}
    return units.pop() if len(units) == 1 else "own unit of each"


def events(run: Run) -> dict[str, IntArray]:
    """Episodes of each event that the learner's trace marks (its boolean columns), by name.

    Periodic restarts are known in every episode, others where episodes were measured.
    """
    found = {
        name: run.episodes[values]
        for name, values in run.trace.items()
        if values.dtype == bool and values.ndim == 1 and name != "feasible"
    }
    if run.manifest.learner.events:  # better than the trace, which has measured episodes only
        found.pop("alarm", None)
        found["change"] = np.array([event.episode for event in run.manifest.learner.events])
    periods = _periods(run)
    if periods is not None:
        every = dict(zip(("policy_restart", "window_restart"), periods, strict=True))
        found |= {name: np.arange(0, run.manifest.sizes.M, n) for name, n in every.items()}
    return found


def _periods(run: Run) -> tuple[int, int] | None:
    """Periods (L, W) of a learner that restarts periodically."""
    forgetting = run.manifest.learner.settings.get("forgetting")
    if not isinstance(forgetting, dict) or forgetting.get("kind") != "Periodic":
        return None
    return int(forgetting["L"]), int(forgetting["W"])


_DASHES = {"policy_restart": "solid", "window_restart": "dot"}


def _layout(run: Run, **more: object) -> dict[str, Any]:
    """Common style of the plots; restarts are faint vertical lines."""
    marks = [
        {
            "type": "line",
            "x0": m,
            "x1": m,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "layer": "below",
            "line": {"color": FAINT, "width": 1, "dash": dash},
        }
        for name, starts in events(run).items()
        for dash in [_DASHES.get(name, "dash")]
        for m in (starts[starts > 0].tolist() if len(starts) <= MOST_MARKS else ())
    ]
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
    """A figure, its title, and a caption that defines what it shows."""

    title: str
    caption: str
    figure: go.Figure


def all_plots(run: Run) -> Iterator[Plot]:
    """Yield the plots of a page from top to bottom; without a model, only what was observed.

    In the world's own units, where it has them.
    """
    run = run.in_units
    if not run.truth.known:
        yield from observed_plots(run)
        return
    yield _reward(run)
    for k in range(run.manifest.sizes.K):
        yield _utility(run, k)
    yield _regret(run)
    yield _violation(run)
    if "mu" in run.trace:
        yield _multipliers(run)
    yield from _other_traces(run)
    yield from _drift(run)


def _plot(run: Run, title: str, unit: str, caption: str, lines: list[go.Scatter]) -> Plot:
    axis = {"title": {"text": escape(unit, quote=False), "standoff": 6}}
    figure = go.Figure(lines, _layout(run, yaxis=axis))
    figure.update_xaxes(_episode_axis(run))
    return Plot(title, caption, figure)


def _episode_axis(run: Run) -> dict[str, Any]:
    title = {"text": "episode", "standoff": 6}
    return {"title": title, "range": [-0.5, run.manifest.sizes.M - 0.5], "tickformat": ",d"}


def _regret(run: Run) -> Plot:
    uniform = run.cumulative_baseline_regret
    lines = [
        _line(run, run.dynamic_regret, "DR(n)", LEARNER),
        _line(run, run.positive_regret, "positive part", SKY, "dot"),
        _line(run, uniform, "uniform policy", UNIFORM, "dash"),
    ]
    caption = (
        "DR(n) = Σ_{m≤n} (V_r*[m] − V_r[π_m, m]), the reward lost so far against the best safe "
        "policy of each episode; its positive part is Σ_{m≤n} [V_r*[m] − V_r[π_m, m]]₊."
    )
    return _plot(run, "Dynamic regret", reward_unit(run), caption, lines)


def _violation(run: Run) -> Plot:
    lines = _pairs(run, ("CV(n)", run.violation), ("positive part", run.positive_violation), "dot")
    caption = (
        "CV(n) = [Σ_{m≤n} (b_m − V_g[π_m, m])]₊, the utility missing so far, zero where the "
        "constraint is met in the long run; its positive part is Σ_{m≤n} [b_m − V_g[π_m, m]]₊."
    )
    return _plot(run, "Long-run violation", _common_unit(run), caption, lines)


def _reward(run: Run) -> Plot:
    window, label = _smoothing(run)
    lines = [
        _line(run, trailing_mean(run.outcome.reward, window), f"learner, {label}", LEARNER),
        _line(run, run.truth.optimal_reward, "best safe policy of each episode", OPTIMUM),
        _line(run, run.truth.baseline_reward, "uniform policy", UNIFORM, "dash"),
    ]
    caption = (
        f"V_r[π_m, m], the expected reward of the policy played, {label}; V_r*[m], that of the "
        "best safe policy of the same episode; and that of the uniform policy. Above the optimum, "
        "the learner earns more than any safe policy can: it breaks the constraint."
    )
    return _plot(run, "Reward and optimum", reward_unit(run), caption, lines)


def _utility(run: Run, k: int) -> Plot:
    window, label = _smoothing(run)
    sign = -1 if is_cost(run, k) else 1  # costs are kept as -cost
    utility = sign * run.outcome.utility[:, k]
    lines = [
        _line(run, utility, "learner, each episode", SKY, opacity=0.5),
        _line(run, trailing_mean(utility, window), f"learner, {label}", LEARNER),
        _line(run, sign * run.truth.baseline_utility[:, k], "uniform policy", UNIFORM, "dash"),
        *_best_utility(run, k, sign),
        _line(run, sign * run.truth.thresholds[:, k], "threshold b", THRESHOLD, "dash"),
    ]
    caption = (
        "V_g[π_m, m], the expected utility of the policy played, and the threshold b_m that it "
        "must reach in the long run; an episode below the threshold is unsafe."
    )
    if is_cost(run, k):
        caption = (
            "The expected cost of the policy played, and the threshold b_m that it may not exceed "
            "in the long run; an episode above the threshold is unsafe."
        )
    caption += _where_the_optimum_is(run, k)
    word = "Cost" if is_cost(run, k) else "Utility"
    return _plot(run, f"{word} and threshold{_of(run, k)}", utility_unit(run, k), caption, lines)


def _best_utility(run: Run, k: int, sign: int) -> Iterator[go.Scatter]:
    """Yield the utility of the best safe policies: that of the threshold where μ* > 0."""
    binding = run.truth.optimal_mu[:, k] > ROUNDING
    if binding.any():
        level = np.where(binding, sign * run.truth.thresholds[:, k], np.nan)
        name = "best safe policy" if binding.all() else "best safe policy, where μ* > 0"
        yield _line(run, level, name, OPTIMUM, opacity=0.5, width=5)


def _where_the_optimum_is(run: Run, k: int) -> str:
    """By complementary slackness: at the threshold where its price is positive."""
    binding = float((run.truth.optimal_mu[:, k] > ROUNDING).mean())
    if binding == 0:
        return " The best safe policy never needs the threshold: μ* is 0 in all episodes."
    where = f"all {episodes_label(run)}" if binding == 1 else percent(binding)
    of = "" if binding == 1 else f" of the {episodes_label(run)}"
    return f" The best safe policy is at the threshold in {where}{of}, those with μ* > 0."


def _multipliers(run: Run) -> Plot:
    lines = _pairs(run, ("μ", run.trace["mu"]), ("μ*", run.truth.optimal_mu), "dash")
    if run.manifest.sizes.K == 1:
        lines[1].line = {"color": OPTIMUM, "dash": "solid", "width": 1.8}
    caption = (
        "μ_m, the learner's price for a unit of missing utility, and μ*[m] = −∂V_r*[m]/∂b_m, the "
        "optimal price: reward lost per unit increase of the threshold."
    )
    return _plot(run, "Multiplier", "reward per utility", caption, lines)


def _drift(run: Run) -> Iterator[Plot]:
    """Yield one row per kind of drift that there is and one for restarts; nothing if none."""
    truth = run.truth
    rows = {
        "transitions P": truth.drift_P,
        "rewards r": truth.drift_r,
        "utilities g": truth.drift_g,
        "thresholds b": truth.drift_b,
        "optimal policy π*": truth.drift_star,
    }
    rows = {name: change for name, change in rows.items() if np.nan_to_num(change).any()}
    marked = events(run)
    last = len(rows) + bool(marked)
    if last == 0:
        return
    titles = [*rows, *([_events_title(run)] if marked else [])]
    figure = make_subplots(last, 1, shared_xaxes=True, subplot_titles=titles)
    for i, (name, change) in enumerate(rows.items(), start=1):
        figure.add_trace(_line(run, change, name, BLUE), i, 1)
    figure.update_traces(line_shape="vh")  # a change belongs to the gap before its episode
    for name, starts in reversed(marked.items()):
        figure.add_trace(_ticks(starts, name.removesuffix("_restart")), last, 1)
    figure.update_layout(_layout(run, height=110 * last + 30, showlegend=False))
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_xaxes(_episode_axis(run) | {"title": None})
    figure.update_xaxes(_episode_axis(run), row=last)
    figure.update_yaxes(rangemode="tozero", nticks=4)
    still = "What never changes is left out. " if len(rows) < 5 else ""
    caption = (
        f"{still}Change since the last measured episode: Σ_h ‖ΔP_h‖₂, Σ_h ‖Δr_h‖₂, Σ_h ‖Δg_h‖₂ (in "
        "a linear-kernel world, of their coefficients θ) and |Δb| (both summed over constraints), "
        "Σ_h max_x ‖Δπ*_h(·|x)‖₁."
    )
    if marked:
        caption += " Bottom row: the episodes in which the learner restarts, or reports an event."
    yield Plot("Drift and restarts" if marked else "Drift", caption, figure)


def _events_title(run: Run) -> str:
    periods = _periods(run)
    if periods is None:
        return "restarts and events"
    L, W = periods
    return f"restarts: policy every {L:,}, window every {W:,}"


_SHOWN = ("mu", "estimated_reward", "estimated_utility", "at_cap")


def _other_traces(run: Run) -> Iterator[Plot]:
    """Yield a plot of every column of the trace that no other plot shows."""
    for name, values in run.trace.items():
        if name in _SHOWN or values.dtype == bool:
            continue
        wide = values.reshape(len(values), -1).astype(np.float64)
        lines = [
            _line(
                run,
                column,
                name if wide.shape[1] == 1 else f"{name} {i + 1}",
                SERIES[i % len(SERIES)],
            )
            for i, column in enumerate(wide.T)
        ]
        said = name.replace("_", " ")
        caption = f"{said.capitalize()}, as the learner shows it after each episode."
        yield _plot(run, f"Learner: {said}", said, caption, lines)


# ---------------------------------------------------------------- where the world has no model


def observed_plots(run: Run) -> Iterator[Plot]:
    """Yield the plots of observed sums, which are noisy."""
    window, label = _smoothing(run)
    mean = trailing_mean(run.outcome.reward, window)
    line = _line(run, mean, f"learner, {label}", LEARNER)
    scaled = ", scaled to [0, 1] per step" if run.scale is None else ""
    caption = (
        f"Sum of the rewards of an episode{scaled}, {label}. Without a model "
        "there is no optimum to compare it with."
    )
    yield _plot(run, "Observed reward", reward_unit(run), caption, [line])
    for k in range(run.manifest.sizes.K):
        sign = -1 if is_cost(run, k) else 1  # costs are kept as -cost
        lines = [
            _line(
                run,
                trailing_mean(sign * run.outcome.utility[:, k], window),
                f"learner, {label}",
                LEARNER,
            ),
            _line(run, sign * run.truth.thresholds[:, k], "threshold b", THRESHOLD, "dash"),
        ]
        what, must = ("costs", "may not exceed") if is_cost(run, k) else ("utilities", "must reach")
        caption = (
            f"Sum of the {what} of an episode, {label}, and the threshold b_m that its "
            f"expectation {must} in the long run."
        )
        title = f"Observed {'cost' if is_cost(run, k) else 'utility'} and threshold{_of(run, k)}"
        yield _plot(run, title, utility_unit(run, k), caption, lines)
    K = run.manifest.sizes.K
    each = [(k, SERIES[k % len(SERIES)]) for k in range(K)]
    lines = [_line(run, run.violation[:, k], "CV(n)" + _of(run, k), colour) for k, colour in each]
    caption = (
        "CV(n) = [Σ_{m≤n} (b_m − observed utility)]₊, the utility missing so far, zero where the "
        "constraint is met in the long run."
    )
    yield _plot(run, "Observed long-run violation", _common_unit(run), caption, lines)
    if "mu" in run.trace:
        mu = run.trace["mu"]
        lines = [_line(run, mu[:, k], "μ" + _of(run, k), colour) for k, colour in each]
        caption = "μ_m, the learner's price for a unit of missing utility."
        yield _plot(run, "Multiplier", "reward per utility", caption, lines)
    yield from _other_traces(run)


def _ticks(starts: IntArray, row: str) -> go.Scatter:
    row = escape(row, quote=False)
    shown = starts[:: max(1, -(-len(starts) // MOST_POINTS))]
    return go.Scatter(
        x=shown.tolist(),
        y=[row] * len(shown),
        name=row,
        mode="markers",
        marker={"symbol": "line-ns", "size": 12, "line": {"width": 1.5, "color": BLACK}},
        hovertemplate="episode %{x:,}",
    )
