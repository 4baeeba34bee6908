"""Certainty equivalence: play the constrained optimum of the empirical model as if it were true.

No bonus and no multiplier with a memory: means and shares of the window's data are planned on as
they are, and pairs without data pay reward and utility 1 in every step, so that each is tried. The
window decides how long data count. The method is folklore; in this setting it is the simplest
learner that can be good, and hard to beat where signals are not noisy.
"""

from __future__ import annotations

import numpy as np

from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.planner import Estimate, Planner

__all__ = ["build"]


def build(
    world: Problem,
    *,
    forgetting: str = "sliding",
    window: int | None = None,
    replan_every: int = 25,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the learner.

    Parameters
    ----------
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    replan_every
        Episodes between two plans.
    """
    setup = tabular_setup(world)
    kept = named_forgetting(forgetting, window, setup.sizes.M)
    settings = {"told": [], "constants": "none", "rule": "empirical model"}
    planner = Planner(setup, "certainty-equivalence", as_it_is, kept, replan_every, settings, seed)
    return CheckedLearner(planner, seed)


def as_it_is(estimate: Estimate, generator: np.random.Generator) -> Estimate:
    """Return the empirical model unchanged."""
    return estimate
