"""A world in YAML: named scenarios, a drift and thresholds.

    horizon: 6
    states: [cool, hot]
    actions: [rest, work]
    start: cool
    episodes: 2000
    drift: {kind: periodic, period: 500}
    thresholds: 4
    scenarios:
      winter:
        transitions:
          cool: {rest: cool, work: {cool: 0.8, hot: 0.2}}
          hot: {rest: cool, work: hot}
        rewards: {cool: {rest: 0, work: 0.6}, hot: {rest: 0, work: 1}}
        utilities: {cool: 1, hot: 0}
      summer:
        like: winter
        transitions: {cool: {work: {cool: 0.4, hot: 0.6}}}

A value in place of a mapping applies to all its keys. `like` copies a scenario above; entries given
next to it replace single cells. With `constraints`, utilities and thresholds are given by
constraint name. A table may also be a list of H tables, one per step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.models import DriftingCMDP, TabularCMDP, drift
from safedrift.worldfiles.yaml_text import (
    Entry,
    fraction,
    integer,
    keyed,
    listed,
    names,
    number,
    one_of,
    read,
    refuse,
    word,
)

__all__ = ["KEYS", "load"]

KEYS = (
    "horizon",
    "states",
    "actions",
    "constraints",
    "start",
    "scenarios",
    "drift",
    "episodes",
    "thresholds",
)
NEEDED = ("horizon", "states", "actions", "start", "scenarios")
TABLES = ("transitions", "rewards", "utilities")
SIZES = ("episodes", "scenarios")  # arguments of every builder of `drift`, known from the file
EPISODES = 20_000  # if neither the file nor the caller gives a number
LONGEST = 10_000  # steps
CELLS = 5_000_000  # numbers in all tables; use an .npz or Python for larger worlds


class Names(NamedTuple):
    """The names of a file; `constraints` is None for one constraint without a name."""

    H: int
    states: dict[str, int]
    actions: dict[str, int]
    constraints: dict[str, int] | None


class Scenario(NamedTuple):
    """P (H, S, A, S), r (H, S, A), g (K, H, S, A) and b (K,); NaN where not yet given."""

    transitions: FloatArray
    rewards: FloatArray
    utilities: FloatArray
    thresholds: FloatArray


def load(path: Path, episodes: int | None = None) -> DriftingCMDP:
    """Return the world in a YAML file; `episodes` overrides the number in the file."""
    root = read(path)
    top = keyed(root, KEYS, NEEDED)
    H = integer(top["horizon"], LONGEST)
    constraints = names(top["constraints"]) if "constraints" in top else None
    known = Names(H, names(top["states"]), names(top["actions"]), constraints)
    initial = _distribution(top["start"], known.states)
    M = integer(top["episodes"]) if "episodes" in top else EPISODES
    M = M if episodes is None else _check.integer("episodes", episodes)
    found = _scenarios(top["scenarios"], known)
    weights = _weights(top.get("drift"), root, tuple(found), M)
    b = None
    if "thresholds" in top:
        b = _path_of_thresholds(top["thresholds"], known, M)
    _check_thresholds(found, root, b is not None)
    cmdps = [
        TabularCMDP(*scenario[:3], scenario.thresholds if b is None else b[0], initial)
        for scenario in found.values()
    ]
    world = DriftingCMDP(cmdps, weights, thresholds=b)
    world.labels = tuple(found)
    return world


# ---------------------------------------------------------------- scenarios


def _scenarios(entry: Entry, known: Names) -> dict[str, Scenario]:
    if not isinstance(entry.value, dict) or not entry.value:
        refuse(entry, "a mapping from names to scenarios")
    H, S, A, K = known.H, len(known.states), len(known.actions), len(known.constraints or "b")
    if len(entry.value) * H * S * A * (S + 1 + K) > CELLS:
        got = f"{len(entry.value)} scenarios with H = {H}, S = {S}, A = {A}"
        refuse(entry, f"small enough for {CELLS:,} numbers in all tables", got)
    found: dict[str, Scenario] = {}
    for name, body in entry.value.items():
        given = keyed(body, ("like", *TABLES, "thresholds"))
        if "like" in given:
            copied = found[one_of(given["like"], found, "a scenario written above")]
            scenario = Scenario(*(table.copy() for table in copied))
        else:
            keyed(body, tuple(given), TABLES)
            shapes = ((H, S, A, S), (H, S, A), (K, H, S, A), (K,))
            scenario = Scenario(*(np.full(shape, np.nan) for shape in shapes))
        _write(scenario, given, known)
        found[name] = scenario
    return found


def _write(scenario: Scenario, given: dict[str, Entry], known: Names) -> None:
    """Write the given entries into a scenario; without `like` all must be given."""
    axes = (known.states, known.actions)
    if "transitions" in given:
        _table(
            scenario.transitions,
            given["transitions"],
            axes,
            lambda entry: _distribution(entry, known.states),
        )
    if "rewards" in given:
        _table(scenario.rewards, given["rewards"], axes, _share)
    if "utilities" in given:
        every = "like" not in given
        for k, entry in _by_constraint(given["utilities"], known.constraints, every).items():
            _table(scenario.utilities[k], entry, axes, _share)
    if "thresholds" in given:
        for k, entry in _by_constraint(given["thresholds"], known.constraints).items():
            scenario.thresholds[k] = number(entry, known.H, zero=False)


def _share(entry: Entry) -> float:
    return number(entry, 1)


def _table(
    table: FloatArray,
    entry: Entry,
    axes: tuple[dict[str, int], ...],
    cell: Callable[[Entry], Any],
) -> None:
    """Fill a table (H, S, A, ...) from one mapping, or from a list with one for each step."""
    if isinstance(entry.value, list):
        for h, one in enumerate(listed(entry, len(table), "tables, one per step")):
            _fill(table[h : h + 1], one, axes, cell)
            _check_complete(table[h], one, axes)
    else:
        _fill(table, entry, axes, cell)
        _check_complete(table[0], entry, axes)


def _check_complete(table: FloatArray, entry: Entry, axes: tuple[dict[str, int], ...]) -> None:
    """Fail at the first cell of a step (S, A, ...) that is not given."""
    missing = np.argwhere(np.isnan(table.reshape(*table.shape[:2], -1)[:, :, 0]))
    if missing.size:
        names_there = (list(axis)[i] for axis, i in zip(axes, missing[0], strict=True))
        refuse(Entry(entry.file, ".".join((entry.place, *names_there)), ""), "given")


def _fill(
    table: FloatArray,
    entry: Entry,
    axes: tuple[dict[str, int], ...],
    cell: Callable[[Entry], Any],
    at: tuple[Any, ...] = (slice(None),),
) -> None:
    """Write into table[at]; a value in place of a mapping applies to all its keys."""
    if axes and isinstance(entry.value, dict):
        what = ("the actions", "the states")[len(axes) - 1]
        for name, below in keyed(entry, axes[0], what=what).items():
            _fill(table, below, axes[1:], cell, (*at, axes[0][name]))
    else:
        table[at] = cell(entry)


def _distribution(entry: Entry, states: dict[str, int]) -> FloatArray:
    """Return probabilities (S,): concentrated on one state, or as given with sum 1."""
    probabilities = np.zeros(len(states))
    if isinstance(entry.value, dict):
        for name, below in keyed(entry, states, what="the states").items():
            probabilities[states[name]] = number(below, 1)
        if abs(probabilities.sum() - 1) > 1e-9:
            refuse(entry, "a distribution (sum 1)", f"the sum {probabilities.sum():.12g}")
    else:
        probabilities[states[one_of(entry, states, "a state")]] = 1
    return probabilities


def _by_constraint(
    entry: Entry, constraints: dict[str, int] | None, every: bool = True
) -> dict[int, Entry]:
    """Return what is given for each constraint, by number."""
    if constraints is None:
        return {0: entry}
    given = keyed(entry, constraints, constraints if every else (), what="the constraints")
    return {constraints[name]: below for name, below in given.items()}


# ---------------------------------------------------------------- the path


def _weights(entry: Entry | None, root: Entry, scenarios: tuple[str, ...], M: int) -> FloatArray:
    """Return the weights (M, N) that the named builder of `drift` makes."""
    if entry is None:
        if len(scenarios) > 1:
            refuse(Entry(root.file, "drift", ""), "given where there are several scenarios")
        return drift.stationary(M, 1)
    given = {"kind": entry} if isinstance(entry.value, str) else entry.value
    if not isinstance(given, dict) or "kind" not in given:
        refuse(entry, "a kind of drift, or a mapping with the key kind")
    build = getattr(drift, one_of(given["kind"], drift.__all__, "a kind of drift"))
    if isinstance(entry.value, dict):
        known = [name for name in inspect.signature(build).parameters if name not in SIZES]
        keyed(entry, ("kind", *known), what=f"the keys of {given['kind'].value}:")
    arguments: dict[str, Any] = {}
    for name, value in given.items():
        if name == "scenario":
            arguments[name] = scenarios.index(one_of(value, scenarios, "a scenario"))
        elif name != "kind":
            arguments[name] = _argument(value)
    try:
        return np.asarray(build(M, len(scenarios), **arguments))
    except (ValueError, TypeError) as error:
        raise type(error)(f"drift in {root.file}: {error}") from None


def _argument(entry: Entry) -> Any:
    """Return an integer, another number, or a list of these."""
    if isinstance(entry.value, list):
        return [_argument(item) for item in entry.value]
    text = word(entry, "a number")
    for kind in (int, fraction):
        try:
            return kind(text)
        except (ValueError, ZeroDivisionError):
            continue
    refuse(entry, "a number")


def _path_of_thresholds(entry: Entry, known: Names, M: int) -> FloatArray:
    """Return b (M, K): constant, or linear from the first to the last episode."""
    columns = []
    for _, one in sorted(_by_constraint(entry, known.constraints).items()):
        ends = [one, one]
        if isinstance(one.value, dict):
            ends = [keyed(one, ("from", "to"), ("from", "to"))[end] for end in ("from", "to")]
        first, last = (number(end, known.H, zero=False) for end in ends)
        columns.append(np.linspace(first, last, M))
    return np.asarray(np.stack(columns, axis=1).clip(max=known.H))


def _check_thresholds(scenarios: dict[str, Scenario], root: Entry, given: bool) -> None:
    """Fail unless thresholds are given once: for the whole file, or in every scenario."""
    for name, scenario in scenarios.items():
        own = not np.isnan(scenario.thresholds).any()
        if own == given:
            got = f"both for {name}" if given else f"neither for {name}"
            allowed = "given either beside the scenarios or in every scenario"
            refuse(Entry(root.file, "thresholds", ""), allowed, got)
