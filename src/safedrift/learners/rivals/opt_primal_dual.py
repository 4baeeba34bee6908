"""OptPrimalDual-CMDP (Efroni, Mannor and Pirotta 2020, arXiv 2003.02189): both sides move.

    π_{m+1} ∝ π_m exp(α (Q_r + μ·Q_g)),   Q = optimistic evaluation of π_m
    μ_{m+1} = clip(μ_m + η (b - V_g(π_m)), 0, ρ)

"printed" has α = √(2 log A/(H² (1 + Kρ)² M)), η = ρ/(H √(K M)) with ρ = H/γ, and a Hoeffding bonus
(recalled, not verified). "practical" has α = 0.15, η = 0.03, a Bernstein bonus, and the cap 20
where no gap is given (`rivals.primal_dual` says how they were chosen). The paper keeps all data:
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

TUNABLE = {"alpha": (0.02, 1.0, "log"), "eta": (0.003, 0.3, "log")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    forgetting: str = "sliding",
    window: int | None = None,
    gamma: float | None = None,
    alpha: float | None = None,
    eta: float | None = None,
    chi: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return OptPrimalDual-CMDP as a learner.

    Parameters
    ----------
    constants
        "printed" (needs `gamma`) or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    gamma
        Slater gap, where it is known: the multipliers' cap is then H/gamma.
    alpha, eta, chi
        Instead of the constants above.
    """
    sizes = tabular_setup(world).sizes
    gap = checked_gap(gamma, sizes.H, constants)
    return build_with(
        "opt-primal-dual",
        world,
        design(sizes, gap, constants),
        constants=constants,
        forgetting=named_forgetting(forgetting, window, sizes.M),
        told=told_gap(gap),
        seed=seed,
        alpha=alpha,
        eta=eta,
        chi=chi,
    )


def design(sizes: Sizes, gamma: float | None, constants: str) -> Design:
    """Return OptPrimalDual-CMDP with its constants."""
    _, H, _, A, K = sizes
    rho = CAP if gamma is None else H / gamma
    if constants == "practical":
        return practical("mirror", "ascent", alpha=0.15, eta=0.03, chi=rho)
    M = sizes.known_M(PRINTED)
    return Design(
        "mirror",
        "ascent",
        confidence_bonus(sizes),
        lam=NO_RIDGE,
        alpha=float(np.sqrt(2 * log(max(A, 2)) / (H**2 * (1 + K * rho) ** 2 * M))),
        eta=float(rho / (H * np.sqrt(K * M))),
        chi=rho,
    )
