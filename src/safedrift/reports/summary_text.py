"""The text of a page: headline, key figures with their definitions, parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from safedrift._check import FloatArray
from safedrift.results.manifest import Manifest
from safedrift.results.run import Run
from safedrift.results.wording import (
    ROUNDING,
    close_numbers,
    constraint_subject,
    episodes_label,
    is_cost,
    number,
    percent,
    reward_unit,
    utility_unit,
)

__all__ = [
    "CHANGES_CAPTION",
    "CHANGES_HEAD",
    "configuration",
    "episodes_label",
    "flatten",
    "headline",
    "is_cost",
    "key_figures",
    "noticed_changes",
    "number",
    "reward_unit",
    "utility_unit",
]


def configuration(run: Run) -> str:
    """Return mode and knowledge where the learner has them, seed and sizes, in one line."""
    settings, parts = run.manifest.learner.settings, []
    parameters, known = settings.get("parameters"), settings.get("knowledge")
    if isinstance(parameters, dict) and "mode" in parameters:
        parts.append(f"mode {parameters['mode']}")
    if isinstance(known, dict) and "name" in known:
        gamma = [f"gamma = {number(known['gamma'])}"] if "gamma" in known else []
        parts.append(f"knowledge {', '.join([str(known['name']), *gamma])}")
    sizes = ", ".join(f"{name} = {size:,}" for name, size in run.manifest.sizes)
    return " · ".join([*parts, f"seed {run.manifest.seed}", sizes])


def headline(run: Run) -> str:
    """Return what happened, in two or three sentences."""
    found = run.summary()
    if not run.truth.known:
        return (
            f"In {found['sizes']['M']:,} episodes {found['learner']} earned "
            f"{number(found['reward_per_episode'])} {reward_unit(run)} per episode, "
            f"{number(found['last_tenth_reward_per_episode'])} in the last tenth of them. "
        ) + " ".join(_observed_verdict(run, k) for k in range(run.manifest.sizes.K))
    lost, uniform = found["dynamic_regret_per_episode"], found["uniform_regret_per_episode"]
    verb = "lost" if lost >= 0 else "gained"
    return (
        f"In {found['sizes']['M']:,} episodes {found['learner']} {verb} {number(abs(lost))} "
        f"{reward_unit(run)} per episode against the best safe policy of each episode; "
        f"the uniform policy {'loses' if uniform >= 0 else 'gains'} {number(abs(uniform))}. "
    ) + " ".join(_verdict(run, k) for k in range(run.manifest.sizes.K))


def _verdict(run: Run, k: int) -> str:
    """Return whether constraint `k` was met, in the long run and in single episodes."""
    name = constraint_subject(run, k)
    violation, missed = run.summary()["violation_per_episode"][k], _missed(run)[k]
    single = f"missed in {percent(missed)} of the {episodes_label(run)}"
    if violation > ROUNDING:
        by = number(violation)
        unit = utility_unit(run, k)
        return f"{name} was missed in the long run, by {by} {unit} per episode, and {single}."
    if missed:
        return f"{name} was met in the long run, though {single}."
    return f"{name} was met in all {episodes_label(run)}."


def _observed_verdict(run: Run, k: int) -> str:
    """Return whether the observed sums meet constraint `k`."""
    found = run.summary()
    violation = found["violation_per_episode"][k]
    got, required = close_numbers(
        found["utility_per_episode"][k], found["threshold_per_episode"][k]
    )
    met = "met" if violation <= ROUNDING else "missed"
    wanted = "allowed" if is_cost(run, k) else "required"
    return (
        f"{constraint_subject(run, k)} was {met} in the long run: {got} {utility_unit(run, k)} "
        f"per episode observed, {required} {wanted}."
    )


def _missed(run: Run) -> FloatArray:
    """Share of the measured episodes that miss each constraint (K,)."""
    return np.asarray((run.shortfall > ROUNDING).mean(axis=0))


def key_figures(run: Run) -> list[tuple[str, str, str]]:
    """Return rows (figure, value, definition); with several constraints, one value for each."""
    found = run.summary()
    if not run.truth.known:
        return _observed_figures(run, found)
    rows = [
        ("Strict score", _score(found["strict_score"]),
         "(Σ_m [V_r*[m] − V_r[π_m, m]]₊ + Σ_m [b_m − V_g[π_m, m]]₊) / the uniform policy's: 0 is "
         "the best safe policy of each episode, 1 the uniform policy; good episodes do not pay for "
         "bad ones"),
        ("… last tenth", _score(found["last_tenth_strict_score"]),
         "the same over the last tenth of the episodes"),
        ("Dynamic regret DR(M)", number(found["dynamic_regret"]),
         "Σ_m (V_r*[m] − V_r[π_m, m]): reward lost against the best safe policy of each episode"),
        ("Regret per episode", number(found["dynamic_regret_per_episode"]), "DR(M) / M"),
        ("… positive part", number(found["positive_regret_per_episode"]),
         "Σ_m [V_r*[m] − V_r[π_m, m]]₊ / M: extra reward of unsafe episodes does not count"),
        ("… last tenth", number(found["last_tenth_regret_per_episode"]),
         "mean of V_r*[m] − V_r[π_m, m] over the last tenth of the episodes"),
        ("… uniform policy", number(found["uniform_regret_per_episode"]),
         "mean of V_r*[m] − V_r[uniform, m]: regret without learning"),
        ("Long-run violation CV(M)", _each(run, found["violation"]),
         "[Σ_m (b_m − V_g[π_m, m])]₊: missing utility; safe episodes make up for unsafe ones"),
        ("Violation per episode", _each(run, found["violation_per_episode"]), "CV(M) / M"),
        ("… positive part", _each(run, found["positive_violation_per_episode"]),
         "Σ_m [b_m − V_g[π_m, m]]₊ / M: safe episodes do not make up for unsafe ones"),
        ("… last tenth", _each(run, found["last_tenth_shortfall_per_episode"]),
         "mean of b_m − V_g[π_m, m] over the last tenth of the episodes; negative if above b"),
        ("Episodes that miss", _each(run, _missed(run).tolist(), percent),
         "share of the episodes with V_g[π_m, m] < b_m"),
        ("Smallest Slater gap", number(found["smallest_slater_gap"]),
         "min_m max_π min_k (V_{g,k}[π, m] − b_{m,k}): largest slack in the tightest episode"),
        *_constraint_figures(run, found),
        *_trace_figures(found),
    ]  # fmt: skip
    cost = found["discretisation"]
    if cost is not None:
        coarse, fine = cost["nodes"]
        rows.append(
            ("Grid error", f"{number(cost['regret'])}; {number(cost['utility'])}",
             f"largest change of V_r* − V_r and of V_g when {coarse} nodes per direction become "
             f"{fine}, in {len(cost['episodes'])} episodes picked at random (others may be worse): "
             "states are continuous, and the figures above are exact for the grid of nodes")
        )  # fmt: skip
    return rows


def _score(value: float | None) -> str:
    return "none: the uniform policy loses nothing" if value is None else number(value)


def _each(run: Run, values: list[float], write: Callable[[float], str] = number) -> str:
    """A figure of every constraint, with their names where they have any."""
    names = run.manifest.constraints
    if names is None or len(names) == 1:
        return "; ".join(map(write, values))
    return "; ".join(f"{name} {write(x)}" for name, x in zip(names, values, strict=True))


def _constraint_figures(run: Run, found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """A row for each constraint that has a name: its level, and what is required."""
    if run.manifest.constraints is None:
        return []
    rows = []
    for k, name in enumerate(run.manifest.constraints):
        late, b = found["last_tenth_utility_per_episode"][k], found["threshold_per_episode"][k]
        side = "at most" if is_cost(run, k) else "at least"
        sentence = f"last tenth of the episodes; on average {side} {number(b)} is required"
        rows.append((f"“{name}”", f"{number(late)} {utility_unit(run, k)}", sentence))
    return rows


def _observed_figures(run: Run, found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The rows that do not need a model."""
    units = "scaled to [0, 1] per step" if run.scale is None else f"in {reward_unit(run)}"
    return [
        ("Observed reward per episode", number(found["reward_per_episode"]),
         f"mean of the sums of rewards, {units}"),
        ("… last tenth", number(found["last_tenth_reward_per_episode"]),
         "the same over the last tenth of the episodes"),
        ("Observed violation CV(M)", _each(run, found["violation"]),
         "[Σ_m (b_m − observed utility)]₊: missing utility; safe episodes make up for unsafe ones"),
        ("Violation per episode", _each(run, found["violation_per_episode"]), "CV(M) / M"),
        ("… last tenth", _each(run, found["last_tenth_shortfall_per_episode"]),
         "mean of b_m − observed utility over the last tenth; negative if above b"),
        *_constraint_figures(run, found),
        *_trace_figures(found),
    ]  # fmt: skip


def _trace_figures(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows about the learner's own trace, where it has them."""
    share = found["last_tenth_trace"].get("at_cap")
    if share is None:
        return []
    meaning = (
        "share of the learner's estimates at H − h + 1, last tenth; near 100% they are vacuous"
    )
    return [("Estimates at their cap", percent(share), meaning)]


CHANGES_HEAD = ("Noticed after episode", "What", "Where it changed most", "Estimate")
CHANGES_CAPTION = (
    "A filter that planning relied on was found wrong about a reward, a utility or a transition. "
    "Each row names the pair whose estimate changed most; alarms that follow each other closely "
    "are one row. The last 256 are kept."
)


def noticed_changes(manifest: Manifest) -> list[tuple[str, str, str, str]]:
    """Return a row for each change that the learner noticed; `CHANGES_HEAD` names the columns."""
    return [
        (
            f"{x.episode:,}",
            x.quantity,
            f"step {x.step}, state {x.state}, action {x.action}"
            + ("" if x.successor is None else f", to state {x.successor}"),
            f"{x.before:.3f} → {x.after:.3f}",
        )
        for x in manifest.learner.events
    ]


def flatten(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested data as rows (dotted name, value)."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _brief(value)


def _brief(value: object, most: int = 6) -> str:
    """Return a value as text; of a long array, the first entries and the shape."""
    if not isinstance(value, list):
        return "none" if value is None or value == {} else str(value)
    if not value:
        return "none"
    array = np.asarray(value)
    shown = ", ".join(map(str, array.ravel()[:most].tolist()))
    if array.size <= most:
        return f"[{shown}]"
    return f"[{shown}, …] ({' × '.join(map(str, array.shape))} entries)"
