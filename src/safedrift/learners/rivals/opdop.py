"""OPDOP (Ding, Wei, Yang, Wang and Jovanović, AISTATS 2021, arXiv 2003.00534), with counts.

    π_m ∝ ((1-θ) π_{m-1} + θ uniform) exp(α (Q_r + μ·Q_g))
    μ ← clip(μ + η (b - V_g), 0, χ)                         V_g^0 = b: the first step is none
    Q = optimistic evaluation, bonus 2β (n + 1)^(-1/2)

PROPD-PPO is this algorithm with restarts. "printed" has α = √(log A/(H² M)), η = 1/√M, θ = 1/M,
χ = 2H/γ and β = H √(S ln(S A H M/p)), whose absolute constant the paper leaves open. "practical"
has α = 0.15, η = 0.03, a Bernstein bonus, and χ = 20 where no gap is given
(`rivals.primal_dual` says how they were chosen). The paper keeps all data: forgetting="never".
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
    PRINTED,
    Design,
    build_with,
    checked_gap,
    practical,
    ridge_bonus,
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
    theta: float | None = None,
    chi: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return OPDOP as a learner.

    Parameters
    ----------
    constants
        "printed" (needs `gamma`) or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    gamma
        Slater gap, where it is known.
    alpha, eta, theta, chi
        Instead of the constants above.
    """
    sizes = tabular_setup(world).sizes
    gap = checked_gap(gamma, sizes.H, constants)
    return build_with(
        "opdop",
        world,
        design(sizes, gap, constants, theta),
        constants=constants,
        forgetting=named_forgetting(forgetting, window, sizes.M),
        told=told_gap(gap),
        seed=seed,
        alpha=alpha,
        eta=eta,
        chi=chi,
    )


def design(sizes: Sizes, gamma: float | None, constants: str, theta: float | None = None) -> Design:
    """Return OPDOP with its constants."""
    _, H, _, A, _ = sizes
    chi = CAP if gamma is None else 2 * H / gamma
    if theta is None:
        theta = 1 / sizes.known_M("unless theta is given")
    if constants == "practical":
        return practical("mixed", "ascent", alpha=0.15, eta=0.03, theta=theta, chi=chi)
    M = sizes.known_M(PRINTED)
    return Design(
        "mixed",
        "ascent",
        ridge_bonus(sizes, M),
        lam=1.0,
        alpha=float(np.sqrt(log(max(A, 2)) / (H**2 * M))),
        eta=M**-0.5,
        theta=theta,
        chi=chi,
    )
