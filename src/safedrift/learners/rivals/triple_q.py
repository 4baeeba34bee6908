"""Triple-Q: model-free, with a virtual queue for each constraint; for worlds that do not drift.

Paper
    Wei, Liu and Ying, "Triple-Q: a model-free algorithm for constrained reinforcement learning
    with sublinear regret and zero constraint violation", AISTATS 2022 (arXiv 2106.01577).
Idea
    Greedy in Q + Σ_k Z_k/η C_k. Visit counts start anew in every frame of M^0.6 episodes; Q is then
    raised by `lift` (and set to H, with C, where either reaches H), so that old estimates are
    relearnt with large rates but not forgotten. Queues change at the end of frames only.
Constants
    `printed`: χ = η = M^0.2, ε, ι, bonus and lift as in `learners.rivals.model_free`. The formulas
    are recalled, not verified against the paper's text. They are vacuous at any M one can run: ε
    exceeds H, and the bonus of a first visit too, which lifts an action that was tried above those
    that were not: the first one is played for ever.
    `practical`: those of the authors' notebook (honghaow/Triple-Q, Triple_Q_tabular.ipynb): η, χ,
    frame, bonus and the factor 0.01 as they stand there. Its ε = 0.5 at H = 25 became 0.02 H, and
    its lift of 3, where a return is at most 100 · 25, became 0.0012 H.
Changed
    The notebook also plays random actions (3 percent, and more in the beginning), breaks ties at
    random and counts C_1 after its update; here the policy is greedy, ties go to the lowest action,
    and C_1 is the estimate that the action was chosen with, as printed. Several constraints have a
    queue and a table each (the paper has one), thresholds that change are averaged over the frame.
    The last, unfinished frame updates no queue.
"""

from __future__ import annotations

import numpy as np

from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.model_free import POWERS, ModelFree, Triple, triple_q_rule

__all__ = ["TUNABLE", "build"]

TUNABLE = {"eta": (0.03, 30.0, "log"), "bonus": (0.01, 1.0, "log")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    frame: int | None = None,
    chi: float | None = None,
    eta: float | None = None,
    epsilon: float | None = None,
    bonus: float | None = None,
    utility_bonus: float | None = None,
    lift: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return Triple-Q as a learner.

    Parameters
    ----------
    constants
        "practical" or "printed"; each of the following replaces one of them.
    frame
        Episodes between two updates of the queues.
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
    lift
        Added to Q at the beginning of a frame.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=1024)
    >>> sd.learners.make("triple-q", world).settings()["frame"]
    64
    """
    setup = tabular_setup(world)
    options = Triple(constants, frame, chi, eta, epsilon, bonus, utility_bonus, lift=lift)
    M = setup.sizes.known_M(POWERS)
    rule = triple_q_rule(setup.sizes, options, budget=1.0, episodes=M, restarts=False)
    recorded = {"told": [], "constants": constants}
    return CheckedLearner(ModelFree(setup, "triple-q", rule, recorded, constrained=True), seed)
