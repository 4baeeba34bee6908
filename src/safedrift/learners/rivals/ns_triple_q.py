"""NS-Triple-Q: Triple-Q that forgets its tables at the end of every frame.

Paper
    Wei, Ghosh, Shroff, Ying and Zhou, "Provably efficient model-free algorithms for non-stationary
    CMDPs", AISTATS 2023 (arXiv 2303.05733).
Idea
    Greedy in Q + Σ_k Z_k/η C_k, learnt by rates (χ + 1)/(χ + t) with bonuses. Frames have
    M^0.6/B^(2/3) episodes, B being the variation budget; at the end of a frame the queues are
    updated, and all of Q and C return to H. The queues are kept.
Constants
    `printed`: those of `learners.rivals.model_free`. The paper adds 2 H b~ to every bonus, b~ being
    a bound on the variation inside a frame; here b~ = B · frame / M, the average. How ε and η
    depend on B is recalled, not verified. Vacuous at any M one can run, as in `triple_q`.
    `practical`: the scaling of the authors' notebook for Triple-Q (see `triple_q`), with η times
    B^(1/3); there is no public code for this algorithm.
Changed
    Several constraints have a queue and a table each (the paper has one), thresholds that change
    are averaged over the frame. The last, unfinished frame updates no queue.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.model_free import POWERS, ModelFree, Triple, triple_q_rule

__all__ = ["TUNABLE", "build"]

TUNABLE = {"eta": (0.03, 30.0, "log"), "bonus": (0.01, 1.0, "log"), "frame": (100, 10_000, "log")}


def build(
    world: Problem,
    *,
    budget: float | None = None,
    constants: str = "practical",
    frame: int | None = None,
    chi: float | None = None,
    eta: float | None = None,
    epsilon: float | None = None,
    bonus: float | None = None,
    utility_bonus: float | None = None,
    offset: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return NS-Triple-Q as a learner.

    Parameters
    ----------
    budget
        Variation of the world over all episodes, B > 0: `safedrift.budgets(world).delta` where the
        world is known. Not told: 1.
    constants
        "practical" or "printed"; each of the following replaces one of them.
    frame
        Episodes between two restarts.
    chi
        χ of the learning rates (χ + 1)/(χ + t).
    eta
        Unit of the queues: the multiplier is Z/η.
    epsilon
        Utility asked for beyond the threshold.
    bonus
        Width of the bonus of the first visit.
    utility_bonus
        Bonuses of utilities, as a multiple of those of the reward.
    offset
        Added to every bonus: 2 H b~ where a bound b~ on the variation inside a frame is known.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=1024)
    >>> sd.learners.make("ns-triple-q", world, budget=8.0).settings()["frame"]
    16
    """
    setup = tabular_setup(world)
    told = [] if budget is None else ["variation budget"]
    budget = 1.0 if budget is None else _check.positive("budget", budget)
    options = Triple(constants, frame, chi, eta, epsilon, bonus, utility_bonus, offset)
    M = setup.sizes.known_M(POWERS)
    rule = triple_q_rule(setup.sizes, options, budget=budget, episodes=M, restarts=True)
    recorded = {"told": told, "constants": constants, "budget": budget}
    return CheckedLearner(ModelFree(setup, "ns-triple-q", rule, recorded, constrained=True), seed)
