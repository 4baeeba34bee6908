"""Gymnasium's FrozenLake on ice that thaws and freezes: reach the goal, avoid the holes.

Description
    The lake of Gymnasium's FrozenLake-v1. In winter the ice is slippery and only one step in three
    goes in the chosen direction; in summer every step does. In between the two are mixed. The goal
    is fixed as in Gymnasium, or moves to another cell from time to time.
States
    Cells of the map, row by row from the top left, and one more, "over", where an ended episode
    stays.
Actions
    0 left, 1 down, 2 right, 3 up.
Reward
    1 for the step that reaches the goal, which ends the episode.
Utility and threshold
    1 for every step that does not fall into a hole; falling ends the episode. The threshold
    H - `risk` allows a probability `risk` of falling per episode.
Drift
    Transitions, rewards and utilities: the slipperiness follows `cycles` cosine waves, winter
    first. A reward or utility is an average over where a step may end, so it changes with the
    ice. With `goal=moving` (or a list of cells, row and column) the goal moves `moves` times,
    cyclically through its list of cells. The threshold is fixed.
Knowledge
    Some policy never falls on any ice: `Slater(gamma)` with gamma up to `risk` holds.
Budgets
    With the default options and M = 2000: B_P = 635, B_r = 97.98, B_g = 304.6, B_b = 0, gamma
    >= 0.1.
Source
    The transition tables of Gymnasium's FrozenLake-v1, maps 4x4 and 8x8.
Version
    0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import MAPS

from safedrift import _check
from safedrift.adapters.toy_text import from_table, thawing
from safedrift.adapters.transitions import Transition
from safedrift.display import Board, Display, Drifting, Snapshot, chosen, last_peak, shares
from safedrift.models import DriftingCMDP, drift

_GOALS = {"4x4": ((3, 3), (0, 3), (3, 1)), "8x8": ((7, 7), (0, 7), (7, 0))}


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    map_name: str = "4x4",
    horizon: int = 30,
    risk: float = 0.1,
    cycles: float = 2.0,
    goal: str | Sequence[Sequence[int]] = "fixed",
    moves: int = 3,
) -> DriftingCMDP:
    """Return the lake; see the module docstring. Nothing is random: `seed` is unused."""
    M = _check.integer("episodes", episodes)
    _check.choice("map_name", map_name, ("4x4", "8x8"))
    H = _check.integer("horizon", horizon, lower=2)
    risk = _check.positive("risk", risk, upper=1.0)
    _check.positive("cycles", cycles)
    moves = min(_check.integer("moves", moves, lower=0), M - 1)
    goals = _goals(map_name, goal)
    ground = [
        from_table("FrozenLake-v1", H, dry_feet, H - risk, desc=_map(map_name, g), is_slippery=icy)
        for g in goals
        for icy in (True, False)
    ]
    which = np.asarray(drift.abrupt(M, len(goals), moves))  # (M, goals), one-hot
    weights = which[:, :, None] * np.asarray(thawing(M, cycles))[:, None, :]
    return DriftingCMDP(ground, weights.reshape(M, -1), thresholds=np.full((M, 1), H - risk))


def display(world: DriftingCMDP) -> Display:
    """Return a map: holes, goal, and where the policies walk."""
    map_name = chosen(world, build, "map_name")
    goals = _goals(map_name, chosen(world, build, "goal"))
    each = shares(world.transition_path, 2 * len(goals)).reshape(world.M, len(goals), 2)
    ice, where = each.sum(axis=1), each.sum(axis=2)
    snapshots = (
        Snapshot("winter", last_peak(ice[:, 0])),
        Snapshot("summer", last_peak(ice[:, 1])),
        Snapshot("in between", last_peak(-np.abs(ice[:, 0] - 0.5))),
    )
    cells = np.array([list(row) for row in MAPS[map_name]])
    there = [goals[int(where[snapshot.episode].argmax())] for snapshot in snapshots]
    board = Board(
        rows=cells.shape[0],
        columns=cells.shape[1],
        start=int(world.initial.argmax()),
        goals=tuple(row * cells.shape[1] + column for row, column in there),
        hazards=np.flatnonzero(cells.ravel() == "H"),
        hazard="hole",
        goal="goal",
    )
    drifts = [Drifting("ice", ("slippery (winter)", "dry (summer)"), ice)]
    if len(goals) > 1:
        names = tuple(f"row {row + 1}, column {column + 1}" for row, column in goals)
        drifts.append(Drifting("goal", names, where))
    return Display(snapshots, tuple(drifts), board=board)


def dry_feet(step: Transition) -> float:
    """0 for the step that ends in a hole: it terminates without reward."""
    return 0.0 if step.terminated and step.reward == 0 else 1.0


def _goals(map_name: str, goal: str | Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Cells (row, column) of the goal, in order."""
    if isinstance(goal, str):
        _check.choice("goal", goal, ("fixed", "moving"))
        return list(_GOALS[map_name][: 1 if goal == "fixed" else None])
    size = len(MAPS[map_name])
    cells = []
    for n, cell in enumerate(goal):
        place = _check.integers(f"goal[{n}]", cell, 0, size - 1)
        if place.size != 2 or MAPS[map_name][place[0]][place[1]] in "SH":
            free = "a row and a column of a cell that is neither the start nor a hole"
            _check.fail(f"goal[{n}]", free, cell)
        cells.append((int(place[0]), int(place[1])))
    if not cells:
        _check.fail("goal", "'fixed', 'moving' or at least one cell", "none")
    return cells


def _map(map_name: str, goal: tuple[int, int]) -> list[str]:
    """The map with its goal in another cell."""
    rows = [list(row.replace("G", "F")) for row in MAPS[map_name]]
    rows[goal[0]][goal[1]] = "G"
    return ["".join(row) for row in rows]
