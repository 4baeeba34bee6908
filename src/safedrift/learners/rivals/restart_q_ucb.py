"""RestartQ-UCB: Q-learning with upper confidence bounds, restarted; it knows of no constraint.

Paper
    Mao, Zhang, Zhu, Simchi-Levi and Başar, "Near-optimal model-free reinforcement learning in
    non-stationary episodic MDPs", ICML 2021 (arXiv 2010.03161); Algorithm 1, Hoeffding version
    without local budgets.
Idea
    Greedy in Q, learnt by stages (`kernels.tabular.model_free`). Everything is forgotten at the end
    of each of D = S^(-1/3) A^(-1/3) Δ^(2/3) H^(-2/3) T^(1/3) epochs of ⌈M/D⌉ episodes, with
    T = H M and Δ the variation budget of rewards and transitions.
Constants
    `printed`: bonus (H + 1) √(ι/n) after a stage of n visits, ι = log(2/δ) with δ = 1/T. D, ι and
    the stages were read in the paper; the bonus is recalled, not verified. With rewards of 1/2, Q
    leaves its first value after a stage of about 4 (H + 1)² ι visits: too many for most M.
    `practical`: bonus 0.05 H/√n, as in the authors' experiments (their replication package).
Changed
    D is rounded to an integer, at least 1. Utilities and thresholds are not looked at. The version
    with Freedman bonuses is not built.
"""

from __future__ import annotations

import math

import numpy as np

from safedrift import _check
from safedrift.kernels.tabular.model_free import Rule
from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.model_free import CONSTANTS, ModelFree, chosen, logarithm, power

__all__ = ["TUNABLE", "build"]

TUNABLE = {"bonus": (0.01, 1.0, "log"), "epoch": (100, 10_000, "log")}


def build(
    world: Problem,
    *,
    budget: float | None = None,
    constants: str = "practical",
    epoch: int | None = None,
    bonus: float | None = None,
    offset: float = 0.0,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return RestartQ-UCB as a learner.

    Parameters
    ----------
    budget
        Variation of rewards and transitions over all episodes, Δ > 0. Not told: 1.
    constants
        "practical" or "printed"; `epoch` and `bonus` replace one of them each.
    epoch
        Episodes between two restarts.
    bonus
        Width of the bonus: it is added as bonus/√n.
    offset
        Added to every bonus: 2 (Δ_r + H Δ_P) where the variation inside an epoch is known.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=1000)
    >>> sd.learners.make("restart-q-ucb", world, epoch=250).settings()["frame"]
    250
    """
    setup = tabular_setup(world)
    told = [] if budget is None else ["variation budget"]
    budget = 1.0 if budget is None else _check.positive("budget", budget)
    rule = _rule(setup.sizes, budget, constants, epoch, bonus, chosen("offset", offset, 0.0))
    recorded = {"told": told, "constants": constants, "budget": budget}
    algorithm = ModelFree(setup, "restart-q-ucb", rule, recorded, constrained=False)
    return CheckedLearner(algorithm, seed)


def _rule(
    sizes: Sizes,
    budget: float,
    constants: str,
    epoch: int | None,
    bonus: float | None,
    offset: float,
) -> Rule:
    _, H, S, A, _ = sizes
    if epoch is None:
        M = sizes.known_M("unless epoch is given")
        epochs = max(round(power(budget**2 * (H * M) / (S * A * H**2), 1 / 3)), 1)
        length = math.ceil(M / epochs)
    else:
        length = _check.integer("epoch", epoch)
    if _check.choice("constants", constants, CONSTANTS) == "printed":
        T = H * sizes.known_M("unless constants is 'practical'")
        width = (H + 1) * math.sqrt(logarithm(2 * T))  # ι = log(2/δ), δ = 1/T
    else:
        width = 0.05 * H
    return Rule(
        staged=True,
        restarts=True,
        frame=length,
        chi=0.0,
        chi_bonus=0.0,
        width=chosen("bonus", bonus, width),
        utility_width=0.0,
        offset=offset,
        eta=1.0,
        epsilon=0.0,
        lift=0.0,
    )
