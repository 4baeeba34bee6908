"""Gymnasium's CliffWalking where rain makes the edge slippery: reach home, do not fall.

Description
    The grid of Gymnasium's CliffWalking-v1. The shortest way home leads along the edge of a cliff;
    a fall leads back to the start. In dry weather every step goes in the chosen direction; in rain
    two steps in three slip to either side.
States
    48 cells, row by row from the top left, and one more, "over", where an ended episode stays.
Actions
    0 up, 1 right, 2 down, 3 left.
Reward
    1 for every step that is left when home is reached (Gymnasium's -1 per step, shifted to [0, 1]).
    Its -100 for a fall is left out: the constraint limits falls.
Utility and threshold
    1 for every step that does not fall. The threshold H - `falls` allows `falls` expected falls per
    episode.
Drift
    Transitions and utilities: rain comes and goes in `cycles` cosine waves, rain first. Rewards and
    threshold are fixed.
Knowledge
    Some policy never falls in any weather: `Slater(gamma)` with gamma up to `falls` holds.
Budgets
    With the default options and M = 2000: B_P = 1265, B_r = 0, B_g = 452.5, B_b = 0, gamma >=
    0.1.
Source
    The transition tables of Gymnasium's CliffWalking-v1.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.adapters.toy_text import from_table, thawing
from safedrift.adapters.transitions import Transition
from safedrift.display import Board, Display, Drifting, Snapshot, last_peak, shares
from safedrift.models import DriftingCMDP


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 30,
    falls: float = 0.1,
    cycles: float = 2.0,
) -> DriftingCMDP:
    """Return the cliff; see the module docstring. Nothing is random: `seed` is unused."""
    M = _check.integer("episodes", episodes)
    H = _check.integer("horizon", horizon, lower=2)
    falls = _check.positive("falls", falls, upper=H, closed=False)
    _check.positive("cycles", cycles)
    ground = [
        from_table("CliffWalking-v1", H, on_the_path, H - falls, reward=one_step, is_slippery=rain)
        for rain in (True, False)
    ]
    return DriftingCMDP(ground, thawing(M, cycles), thresholds=np.full((M, 1), H - falls))


def display(world: DriftingCMDP) -> Display:
    """Return a map: the edge, home, and where the policies walk."""
    weights = shares(world.transition_path, 2)
    snapshots = (
        Snapshot("rain", last_peak(weights[:, 0])),
        Snapshot("dry", last_peak(weights[:, 1])),
        Snapshot("showers", last_peak(-np.abs(weights[:, 0] - 0.5))),
    )
    rows, columns = 4, 12
    start = int(world.initial.argmax())  # bottom left; the cliff lies between it and home
    home = rows * columns - 1
    board = Board(rows, columns, start, (home,) * 3, np.arange(start + 1, home), "cliff", "home")
    return Display(snapshots, (Drifting("weather", ("rain", "dry"), weights),), board=board)


def on_the_path(step: Transition) -> float:
    """0 for a step over the edge, which Gymnasium charges with -100."""
    return 0.0 if step.reward == -100 else 1.0


def one_step(step: Transition) -> float:
    """-1 for every step, falls included."""
    return -1.0
