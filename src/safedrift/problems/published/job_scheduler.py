"""Work off a stack of jobs while electricity is dear for some hours (Ghosh et al. 2024).

Description
    A machine has jobs to do. Working costs power, more so in the middle of the day, and most of the
    jobs must be done by the end of it.
States
    Jobs left, 0 to 9. An episode starts with 9.
Actions
    0 rest, 1 work.
Transitions
    Work finishes two jobs with probability 0.8, one with 0.1, none with 0.1, and not more than are
    left. Resting changes nothing.
Reward
    1 - 0.9 a in the dear steps `first` to `first` + 3, counted from 0, else 1 - 0.2 a. A published
    reward is V_r.
Utility and threshold
    Half the number of jobs finished, on average: (x - x')/2. The threshold is `required`. A
    published utility is V_g.
Drift
    None: P, r, g and b are fixed.
Knowledge
    Working in every step finishes almost all jobs, 4.4998 of 4.5: `Slater(0.999)` with the default
    options. With other options, see `sd.optima(world).gamma`.
Closed form
    The six cheap steps are enough and equal, so their order does not matter, nor does it whether
    steps count from 0 or 1. While two jobs are left, a step of work earns a utility of 0.85 on
    average: μ* = 0.2/0.85, and V_r* = 10 - 3.5 μ* = 9.176 with the default options.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 0.9997.
Source
    A. Ghosh, X. Zhou and N. Shroff, Towards achieving sub-linear regret and hard constraint
    violation in model-free RL, AISTATS 2024, appendix K.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.display import Display, Drifting, Quantity, Snapshot
from safedrift.models import DriftingCMDP, TabularCMDP, drift
from safedrift.models.outcomes import certain, outcomes
from safedrift.problems.published.scaling import SAME, Published

PUBLISHED = Published(
    "Ghosh et al., AISTATS 2024", episodes=300_000, runs=1, reward=SAME, constraint=SAME
)

_DONE, _CHANCE = np.array([0, 1, 2]), np.array([0.1, 0.1, 0.8])
_DEAR, _CHEAP, _HOURS = 0.9, 0.2, 4  # power for a step of work, and how long it is dear


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    jobs: int = 9,
    horizon: int = 10,
    first: int = 3,
    required: float = 3.5,
) -> DriftingCMDP:
    """Return the machine; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    jobs
        Jobs in the morning: S = jobs + 1.
    first
        First dear step, from 0.
    required
        Required utility, half the number of jobs.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    S = 1 + _check.integer("jobs", jobs)
    first = _check.integer("first", first, lower=0)
    required = _check.positive("required", required, upper=H)
    x = np.arange(S)
    worked = np.maximum(x[:, None] - _DONE, 0)
    after = np.stack((np.broadcast_to(x[:, None], worked.shape), worked), axis=1)
    chance = np.stack((np.array([1.0, 0.0, 0.0]), _CHANCE))
    finished = (x[:, None] - worked) * _CHANCE
    done = np.stack((np.zeros(S), (finished[:, 0] + finished[:, 1] + finished[:, 2]) / 2), axis=1)
    h = np.arange(H)
    power = np.where((h >= first) & (h < first + _HOURS), _DEAR, _CHEAP)
    paid = 1 - power[:, None, None] * np.array([0.0, 1.0])
    rewards, utilities = np.broadcast_to(paid, (H, S, 2)), np.broadcast_to(done, (1, H, S, 2))
    P, threshold = outcomes(after, chance, H), np.array([required])
    cmdp = TabularCMDP(P, rewards, utilities, threshold, certain(S - 1, S))
    return DriftingCMDP([cmdp], drift.stationary(M, 1))


def display(world: DriftingCMDP) -> Display:
    """Return the jobs left and the work over the steps."""
    shape = (world.H, world.S, world.A)
    work = np.array([0.0, 1.0])
    return Display(
        (Snapshot("always", world.M - 1),),
        (Drifting("threshold b", ("b",), world.thresholds, shares=False),),
        (
            Quantity("jobs left", np.broadcast_to(np.arange(world.S)[:, None], shape)),
            Quantity("working, share of episodes", np.broadcast_to(work, shape)),
            Quantity("power used", 1 - world.scenarios[0].rewards),
        ),
    )
