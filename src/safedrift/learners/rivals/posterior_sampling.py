"""Posterior sampling: plan on a model drawn from what the window leaves possible.

    P ~ Dirichlet(n(x, a, x') of the observed successors, and `prior` for all others together)
    r, g = means of the window's data;  π = the constrained optimum of (P, r, g, b)

Drawn anew for every plan. "All others together" is a state that pays reward and utility 1 in every
step, so a small prior is optimism of size prior/n. Osband, Russo and Van Roy 2013 (no constraint);
with constraints Provodin, Kaptein and Pechenizkiy 2024 (arXiv 2405.19017), who start from
Dirichlet(max(n, 0.05)) for every state; ours differs in the sum of the prior, which does not grow
with S. A window widens the posterior by itself: no bonus, and nothing else to tune.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from safedrift import _check
from safedrift.kernels.tabular import estimated
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.generators import standard_gamma
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.planner import Estimate, Planner

__all__ = ["TUNABLE", "build"]

TUNABLE = {"prior": (0.001, 1.0, "log")}


def build(
    world: Problem,
    *,
    prior: float = 0.05,
    forgetting: str = "sliding",
    window: int | None = None,
    replan_every: int = 25,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the learner.

    Parameters
    ----------
    prior
        Weight, in visits, of all successors that were not observed together.
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    replan_every
        Episodes between two plans.
    """
    setup = tabular_setup(world)
    _check.positive("prior", prior)
    kept = named_forgetting(forgetting, window, setup.sizes.M)
    settings: dict[str, Any] = {"told": [], "constants": "practical", "prior": float(prior)}
    rule = partial(drawn, prior)
    planner = Planner(setup, "posterior-sampling", rule, kept, replan_every, settings, seed)
    return CheckedLearner(planner, seed)


def drawn(prior: float, estimate: Estimate, generator: np.random.Generator) -> Estimate:
    """Return the model with transitions drawn from their posterior; gammas, then shares."""
    model = estimate.model
    H, N, A = model.visits.shape
    rows = H * N * A
    # One more entry in every row, for what was not observed: the last state.
    offsets = model.offsets + np.arange(rows + 1)
    last = offsets[1:] - 1
    weights = np.empty(model.times.size + rows)
    states = np.empty(weights.size, np.uint32)
    kept = np.ones(weights.size, bool)
    kept[last] = False
    weights[kept], states[kept] = model.times, model.states
    weights[last], states[last] = prior, N - 1
    gammas = np.maximum(standard_gamma(weights, generator), 1e-300)
    shares = np.empty(weights.size)
    estimated.normalise(offsets, gammas, shares)
    changed = model._replace(offsets=offsets, states=states, times=weights)
    return estimate._replace(model=changed, probabilities=shares)
