"""Gymnasium's FrozenLake on ice that thaws and freezes: reach the goal, keep out of the holes.

Story
    The lake of Gymnasium's FrozenLake-v1. In winter the ice is slippery and a step goes where it is
    meant to in one of three cases only; in summer it always does. In between the two are mixed.
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
    first. A reward or utility is an average over where a step may end, so it moves with the ice.
    The threshold stays.
Knowledge
    Some policy never falls, whatever the ice: `Slater(gamma)` with gamma up to `risk` holds.
Source
    The transition tables of Gymnasium's FrozenLake-v1, maps 4x4 and 8x8.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.models import DriftingCMDP
from safedrift.problems.toy_text import from_table, thawing


def frozen_lake(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    map_name: str = "4x4",
    horizon: int = 30,
    risk: float = 0.1,
    cycles: float = 2.0,
) -> DriftingCMDP:
    """Return the lake; see the module for its story. `seed` is not used: nothing here is random."""
    M = _check.integer("episodes", episodes)
    _check.choice("map_name", map_name, ("4x4", "8x8"))
    H = _check.integer("horizon", horizon, lower=2)
    risk = _check.positive("risk", risk, upper=1.0)
    _check.positive("cycles", cycles)
    ground = [
        from_table("FrozenLake-v1", H, dry_feet, H - risk, map_name=map_name, is_slippery=slippery)
        for slippery in (True, False)
    ]
    return DriftingCMDP(ground, thawing(M, cycles), thresholds=np.full((M, 1), H - risk))


def dry_feet(s: int, a: int, after: int, reward: float, terminated: bool) -> float:
    """0 for the step that ends in a hole: it terminates without reward."""
    return 0.0 if terminated and reward == 0 else 1.0
