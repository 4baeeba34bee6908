"""Climb a ladder whose good side changes as soon as a learner may have found it.

Description
    Lower bounds for learning in drifting worlds hide one good action in a chain and move it as soon
    as it may have been found. Here two worlds alternate: in the first, the first direction leads
    up; in the second, the last one. Each attempt is an effort, and efforts are limited.
States
    Rungs 0 to `rungs` of a ladder. An episode starts at rung 0.
Actions
    0 rest, 1 to `directions` try to climb in that direction.
Transitions
    Below the top: resting stays; trying leads one rung up with probability 1/2 + `gap` in the good
    direction and 1/2 - `gap` in any other, and stays otherwise. At the top, resting falls to rung
    0 with probability 0.1, trying with certainty.
Reward
    Height: rung / `rungs`.
Utility and threshold
    1 for a step of rest, 0 for an effort. The threshold H - `efforts` allows `efforts` expected
    efforts per episode.
Drift
    Transitions only, and abruptly: the good direction changes sides every `period` episodes.
    Rewards, utilities and threshold are fixed. By symmetry V_r* and μ* are the same in both
    worlds, and the optimal policy of one hardly climbs in the other.
Knowledge
    Resting is no effort: `Slater(efforts)` holds in every episode with equality, 1.5 with the
    default options. The multiplier μ* is positive in both worlds.
Why this period
    Switches every τ episodes make the budgets B_Δ and B_* grow like M/τ, and Theorem 4 bounds the
    regret by (B_Δ + B_*)^(1/3) M^(2/3) up to constants. With τ ~ M^(2/3) that is M^(7/9): regret
    per episode still vanishes, slowly, for a learner that forgets. A learner that does not is wrong
    half of the time. With τ = 1 only the average of the two worlds can be learned.
Budgets
    With the default options and M = 2000: B_P = 13.58, B_r = 0, B_g = 0, B_b = 0, gamma >= 1.5.
Source
    After the two-state chains in the lower bounds of Jaksch, Ortner and Auer (2010) and of later
    work on non-stationary MDPs; the rationed efforts are added.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain, outcomes

_FALL = 0.1  # probability to fall from the top while resting


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    rungs: int = 2,
    directions: int = 3,
    horizon: int = 6,
    gap: float = 0.4,
    efforts: float = 1.5,
    period: int | None = None,
) -> DriftingCMDP:
    """Return the ladder; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    gap
        Half the difference between the good direction and the others, in (0, 1/2].
    efforts
        Allowed expected efforts per episode.
    period
        Episodes between two switches; 8 M^(2/3), at most M/2, by default.
    """
    M, rungs = _check.integer("episodes", episodes), _check.integer("rungs", rungs)
    H = _check.integer("horizon", horizon, lower=rungs + 1)
    directions = _check.integer("directions", directions, lower=2)
    gap = _check.positive("gap", gap, upper=0.5)
    efforts = _check.positive("efforts", efforts, upper=H, closed=False)
    every = min(round(8 * M ** (2 / 3)), -(-M // 2))
    if period is not None:
        every = _check.integer("period", period)
    S, A = rungs + 1, 1 + directions
    height = np.arange(S) / rungs
    rewards = np.broadcast_to(height[:, None], (H, S, A))
    tries = np.broadcast_to(np.arange(A) > 0, (1, H, S, A)).astype(np.float64)
    utilities, threshold = from_costs(tries, np.array([efforts]))
    scenarios = []
    for good in (1, directions):
        P = _ladder(rungs, directions, gap, good, H)
        scenarios.append(TabularCMDP(P, rewards, utilities, threshold, certain(0, S)))
    return DriftingCMDP(scenarios, drift.alternating(M, 2, every))


def _ladder(rungs: int, directions: int, gap: float, good: int, H: int) -> Successors:
    """P of the world in which direction `good` leads up."""
    a = np.arange(1 + directions)
    up = np.where(a == 0, 0.0, np.where(a == good, 0.5 + gap, 0.5 - gap))
    moves = np.tile(up, (rungs + 1, 1))
    moves[-1] = np.where(a == 0, _FALL, 1.0)
    stay = np.arange(rungs + 1)
    moved = np.append(stay[1:], 0)
    after = np.stack((stay, moved), axis=-1)[:, None]
    return outcomes(after, np.stack((1 - moves, moves), axis=-1), H)
