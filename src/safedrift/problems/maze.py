"""Reach a moving target in a maze without stepping on hazards too often.

Description
    A robot starts at the bottom of a small maze. A target above a row of hazards pays while the
    robot stands on it. The short path crosses the hazards, the safe path avoids them. The
    target moves from time to time.
States
    Cells of a `size` x `size` grid, row by row from the top left.
Actions
    0 up, 1 right, 2 down, 3 left. With probability `slip` the robot moves in a random direction;
    walls keep it in place.
Reward
    1 for every step that starts on the target.
Utility and threshold
    1 for every step that does not start on a hazard. The threshold H - `hazard_budget` allows
    `hazard_budget` expected hazard steps per episode.
Drift
    Rewards only: the target jumps to another place `moves` times, evenly spaced. Transitions,
    utilities and threshold are fixed.
Knowledge
    The constraint does not drift, so its local budgets are zero: `LocalBudgets()`. Staying at the
    bottom is safe, so `Slater(gamma)` with gamma up to almost `hazard_budget` holds too.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 101.8, B_g = 0, B_b = 0, gamma >=
    0.4981.
Source
    Invented; the motivating example "collision avoidance in a maze with a moving target" of the
    paper.
Version
    0
"""

from __future__ import annotations

import math

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Board, Display, Drifting, Snapshot, last_peak, shares
from safedrift.models import DriftingCMDP, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain

_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    size: int = 5,
    horizon: int = 12,
    slip: float = 0.1,
    hazard_budget: float = 0.5,
    moves: int = 3,
) -> DriftingCMDP:
    """Return the maze; see the module docstring. Nothing is random: `seed` is unused."""
    size = _check.integer("size", size, lower=4)
    H = _check.integer("horizon", horizon, lower=size)
    M = _check.integer("episodes", episodes)
    moves = min(_check.integer("moves", moves, lower=0), M - 1)
    hazard_budget = _check.positive("hazard_budget", hazard_budget, upper=H, closed=False)
    if not 0 <= _check.real("slip", slip) < 1:
        _check.fail("slip", "in [0, 1)", slip)
    P, hazard, start, targets = _layout(size, slip)
    S = size * size
    costs = np.broadcast_to(hazard[None, None, :, None], (1, H, S, 4)).astype(np.float64)
    utilities, thresholds = from_costs(costs, np.array([hazard_budget]))
    transitions = np.broadcast_to(P, (H, S, 4, S))
    scenarios = []
    for target in targets:
        rewards = np.zeros((H, S, 4))
        rewards[:, target] = 1.0
        scenarios.append(
            TabularCMDP(transitions, rewards, utilities, thresholds, certain(start, S))
        )
    return DriftingCMDP(scenarios, drift.abrupt(M, len(scenarios), moves))


def display(world: DriftingCMDP) -> Display:
    """Return a map: hazards, target, and where the robot spends its time."""
    names = ("target top", "target left", "target right")
    weights = shares(world.reward_path, len(names))
    seen = [n for n in range(len(names)) if weights[:, n].any()]
    snapshots = [Snapshot(names[n], last_peak(weights[:, n])) for n in seen]
    goals = [int(world.at(snapshot.episode).rewards[0, :, 0].argmax()) for snapshot in snapshots]
    size = math.isqrt(world.S)
    hazards = np.flatnonzero(world.scenarios[0].utilities[0, 0, :, 0] == 0)
    board = Board(
        size, size, int(world.initial.argmax()), tuple(goals), hazards, "hazard", "target"
    )
    return Display(
        tuple(snapshots), (Drifting("place of the target", names, weights),), board=board
    )


def _layout(size: int, slip: float) -> tuple[FloatArray, np.ndarray, int, list[int]]:
    """Transitions (S, 4, S), hazard cells (S,), start cell and target cells."""
    cells = [(i, j) for i in range(size) for j in range(size)]
    number = {cell: s for s, cell in enumerate(cells)}
    P = np.zeros((len(cells), 4, len(cells)))
    for s, (i, j) in enumerate(cells):
        ends = []
        for di, dj in _MOVES:
            ends.append(number.get((i + di, j + dj), s))
        for a in range(4):
            P[s, a, ends[a]] += 1 - slip
            for end in ends:
                P[s, a, end] += slip / 4
    wall = size // 2
    hazard = np.array([i == wall and 0 < j < size - 1 for i, j in cells])
    middle = size // 2
    targets = [(0, middle), (1, 1), (1, size - 2), (0, middle)]  # top, left, right, top
    return P, hazard, number[(size - 1, middle)], [number[t] for t in dict.fromkeys(targets)]
