"""OptPess-PrimalDual (Liu, Zhou, Kalathil, Kumar and Tian, NeurIPS 2021, arXiv 2106.02684).

    π_m = the best policy for r + (λ/η_m)·g on the optimistic model
    λ ← (λ + b + ε_m - V_g(π_m))_+,   V_g with the bonus subtracted

Optimism where the policy is chosen, pessimism and a shrinking margin ε_m where the multiplier is.
"printed" has η_m = γ H √m, ε_m = 5 H² √(S³ A) (l + 1)/√(m l) with l = ln(16 S² A H m/p), and a
Hoeffding bonus (the abstract was read; all constants are recalled, not verified): the margin
exceeds H for any m that one can run. "practical" has η_m = H √m, ε_m = 0.1 H/√m, a Bernstein
bonus and multipliers λ/η_m of at most 20 (`rivals.primal_dual` says how they were chosen). m counts
from the last restart, and no further than the window is long. The paper keeps all data:
forgetting="never".
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.elementary import log
from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.primal_dual import (
    CAP,
    FAILURE,
    NO_RIDGE,
    Design,
    build_with,
    checked_gap,
    confidence_bonus,
    practical,
    span,
    told_gap,
)

__all__ = ["TUNABLE", "build"]

TUNABLE = {"eta": (0.1, 10.0, "log")}


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
    """Return OptPess-PrimalDual as a learner.

    Parameters
    ----------
    constants
        "printed" (needs `gamma`) or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    gamma
        Slater gap, where it is known; only the printed η_m uses it.
    eta
        Step size of λ, by default 1.
    chi
        Largest λ/η_m.
    replan_every
        Episodes between two plans, at most: a pair seen for the first time asks for a new one.
    """
    sizes = tabular_setup(world).sizes
    gap = checked_gap(gamma, sizes.H, constants)
    kept = named_forgetting(forgetting, window, sizes.M)
    return build_with(
        "opt-pess-primal-dual",
        world,
        design(sizes, gap, constants, span(kept, sizes)),
        constants=constants,
        forgetting=kept,
        told=told_gap(gap) if constants == "printed" else (),
        seed=seed,
        eta=eta,
        chi=chi,
        replan_every=replan_every,
    )


def design(sizes: Sizes, gamma: float | None, constants: str, episodes: int) -> Design:
    """Return OptPess-PrimalDual with its constants, margin and η_m for so many episodes."""
    _, H, S, A, _ = sizes
    m = np.arange(1, episodes + 1.0)
    steps = {"dual_signal": "pessimistic", "prompt": True, "lagged": False, "eta": 1.0}
    if constants == "practical" or gamma is None:
        margin, scale = 0.1 * H / np.sqrt(m), H * np.sqrt(m)
        return practical("greedy", "ascent", margin=margin, scale=scale, chi=CAP, **steps)
    logs = log(16 * S**2 * A * H * m / FAILURE)
    return Design(
        "greedy",
        "ascent",
        confidence_bonus(sizes),
        lam=NO_RIDGE,
        margin=5 * H**2 * np.sqrt(S**3 * A) * (logs + 1) / np.sqrt(m * logs),
        scale=gamma * H * np.sqrt(m),
        **steps,  # type: ignore[arg-type]
    )
