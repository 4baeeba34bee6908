"""What is true of the measured episodes, whoever plays, and what came out of playing.

`Truth` belongs to a world: it can be computed once and shared by many runs (`simulate(truth=...)`).
`Outcome` belongs to one run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from safedrift._check import FloatArray, IntArray

__all__ = ["Outcome", "Truth", "unknown_truth"]


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact facts about n measured episodes of a world with K constraints.

    Where the world has no model, only `episodes` and `thresholds` are known; the rest is NaN.

    Attributes
    ----------
    episodes : (n,) which episodes were measured, from 0
    thresholds : (n, K) b_m
    optimal_reward : (n,) V_r*[m], the best value of a safe policy
    optimal_mu : (n, K) μ*, its multipliers
    gamma : (n,) Slater gap
    drift_P, drift_r, drift_g, drift_b, drift_star : (n,) change since the last measured episode
        of transitions, rewards, utilities (l2, summed over steps; in a linear-kernel world of their
        coefficients), thresholds and optimal policy
    baseline_reward, baseline_utility : (n,), (n, K) exact values of the uniform policy

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> run.truth.optimal_reward.shape, run.truth.optimal_mu.shape
    ((50,), (50, 1))
    >>> round(float(run.truth.optimal_reward[0]), 3)
    6.387
    """

    episodes: IntArray
    thresholds: FloatArray
    optimal_reward: FloatArray
    optimal_mu: FloatArray
    gamma: FloatArray
    drift_P: FloatArray
    drift_r: FloatArray
    drift_g: FloatArray
    drift_b: FloatArray
    drift_star: FloatArray
    baseline_reward: FloatArray
    baseline_utility: FloatArray

    @property
    def known(self) -> bool:
        """Whether the world has a model, so that values, optima and regret are exact."""
        return not bool(np.isnan(self.optimal_reward).all())


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a learner achieved in n measured episodes.

    Attributes
    ----------
    reward : (n,) V_r[π_m, m]; exact, or the observed sum where the world has no model
    utility : (n, K) V_g[π_m, m]; likewise
    observed : (n, 1+K) sums of the observed rewards and utilities

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> run.outcome.reward.shape, run.outcome.utility.shape
    ((50,), (50, 1))
    """

    reward: FloatArray
    utility: FloatArray
    observed: FloatArray


def unknown_truth(episodes: IntArray, thresholds: FloatArray) -> Truth:
    """Return the truth about a world without a model.

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.results import unknown_truth
    >>> unknown_truth(np.arange(3), np.full((3, 1), 2.0)).known
    False
    """
    columns: dict[str, Any] = {item.name: np.full(len(episodes), np.nan) for item in fields(Truth)}
    for name in ("optimal_mu", "baseline_utility"):
        columns[name] = np.full(thresholds.shape, np.nan)
    return Truth(**columns | {"episodes": episodes, "thresholds": thresholds})
