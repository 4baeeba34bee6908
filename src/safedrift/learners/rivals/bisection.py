"""The multiplier by bisection inside the episode (Ghosh, Zhou and Shroff, AISTATS 2024), K = 1.

    μ_m = the smallest μ in [0, χ] with V_g(π^μ) ≥ b_m,   π^μ ∝ exp((Q_r + μ Q_g)/κ)
    Q = optimistic values of π^μ itself, step by step backwards

A multiplier that is searched anew cannot lag behind the world or wind up. V_g(π^μ) need not grow
with μ on an optimistic model; bisection then finds a crossing. Their algorithm is model-free for
linear models; here the values come from counts. "printed" has the constants seen in the public code
of a comparison with it: 20 halvings of [0, 300], κ = 0.1, every episode, and a Hoeffding bonus
(recalled, not verified). "practical" has 16 halvings of [0, 20], κ = 0.03, a Bernstein bonus and a
search every 10 episodes; in between, an episode that visits a pair for the first time gives a new
π^μ for the same μ (`rivals.primal_dual` says how they were chosen). The paper keeps all data:
forgetting="never".
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.primal_dual import (
    CAP,
    CONSTANTS,
    NO_RIDGE,
    Design,
    build_with,
    confidence_bonus,
    practical,
)

__all__ = ["TUNABLE", "build"]

TUNABLE = {"kappa": (0.005, 0.5, "log"), "margin": (0.0, 0.2, "linear")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    forgetting: str = "sliding",
    window: int | None = None,
    kappa: float | None = None,
    margin: float = 0.0,
    chi: float | None = None,
    steps: int | None = None,
    replan_every: int | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the learner that searches its multiplier.

    Parameters
    ----------
    constants
        "printed" or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    margin
        Added to the thresholds.
    kappa, chi, steps, replan_every
        Temperature, largest multiplier, halvings and episodes between two searches instead of the
        constants above.
    """
    sizes = tabular_setup(world).sizes
    return build_with(
        "bisection",
        world,
        design(sizes, constants),
        constants=constants,
        forgetting=named_forgetting(forgetting, window, sizes.M),
        seed=seed,
        kappa=kappa,
        margin=np.array([margin]),
        chi=chi,
        steps=steps,
        replan_every=replan_every,
    )


def design(sizes: Sizes, constants: str) -> Design:
    """Return the searched multiplier with its constants."""
    _check.choice("constants", constants, CONSTANTS)
    if constants == "practical":
        return practical(
            "softmax", "bisection", prompt=True, kappa=0.03, chi=CAP, steps=16, replan_every=10
        )
    return Design(
        "softmax",
        "bisection",
        confidence_bonus(sizes),
        lam=NO_RIDGE,
        prompt=True,
        kappa=0.1,
        chi=300.0,
        steps=20,
    )
