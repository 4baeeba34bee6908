"""OptDual-CMDP (Efroni, Mannor and Pirotta 2020, arXiv 2003.02189): best response, dual ascent.

    π_m = the best policy for r + μ·g on the optimistic model
    μ ← (μ + η (b - V_g(π_m)))_+

The optimistic model is r̂ and ĝ with a bonus and P̂; equally good actions share. "printed" has
η = ρ/(H √(K M)) with ρ = H/γ, the bound on the optimal multiplier, and a Hoeffding bonus (recalled,
not verified). "practical" has η = 0.01 and a Bernstein bonus (`rivals.primal_dual` says how they
were chosen). The paper keeps all data: forgetting="never".
"""

from __future__ import annotations

import numpy as np

from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.primal_dual import (
    NO_RIDGE,
    PRINTED,
    Design,
    build_with,
    checked_gap,
    confidence_bonus,
    practical,
    told_gap,
)

__all__ = ["TUNABLE", "build"]

TUNABLE = {"eta": (0.001, 0.1, "log")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    forgetting: str = "sliding",
    window: int | None = None,
    gamma: float | None = None,
    eta: float | None = None,
    chi: float | None = None,
    replan_every: int = 1,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return OptDual-CMDP as a learner.

    Parameters
    ----------
    constants
        "printed" (needs `gamma`) or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    gamma
        Slater gap, where it is known; only the printed step size uses it.
    eta, chi
        Step size instead of the one above, and a cap on the multipliers, of which there is none.
    replan_every
        Episodes between two plans, at most: a pair seen for the first time asks for a new one.
    """
    sizes = tabular_setup(world).sizes
    gap = checked_gap(gamma, sizes.H, constants)
    return build_with(
        "opt-dual",
        world,
        design(sizes, gap, constants),
        constants=constants,
        forgetting=named_forgetting(forgetting, window, sizes.M),
        told=told_gap(gap) if constants == "printed" else (),
        seed=seed,
        eta=eta,
        chi=chi,
        replan_every=replan_every,
    )


def design(sizes: Sizes, gamma: float | None, constants: str) -> Design:
    """Return OptDual-CMDP with its constants."""
    if constants == "practical" or gamma is None:
        return practical("greedy", "ascent", prompt=True, lagged=False, eta=0.01)
    return Design(
        "greedy",
        "ascent",
        confidence_bonus(sizes),
        lam=NO_RIDGE,
        prompt=True,
        lagged=False,
        eta=float((sizes.H / gamma) / (sizes.H * np.sqrt(sizes.K * sizes.known_M(PRINTED)))),
    )
