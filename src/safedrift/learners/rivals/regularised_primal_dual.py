"""Regularised primal-dual (Müller, Alatur, Cevher, Ramponi and He, ICML 2024, arXiv 2402.15776).

    π ∝ π^(1-ητ) exp(η (Q_r + μ·Q_g)),   Q_r with τ times the entropy of the steps to come
    μ ← clip((1-ητ) μ + η (b + ε - V_g), 0, χ)

Entropy and the square of μ make the saddle point unique: the last policy settles there instead of
swinging around it, at the price of a bias of order τ, which a margin ε can pay. "printed" has
η = M^(-5/7)/(H² √K), τ = M^(-1/7), χ = 4H/γ, ε = 0 and a Hoeffding bonus (recalled, not verified;
the abstract and the form of the updates were read). "practical" has the constant steps η = 1,
τ = 0.03, ε = 0.05, a Bernstein bonus, and χ = 20 where no gap is given (`rivals.primal_dual` says
how they were chosen). The paper keeps all data: forgetting="never".
"""

from __future__ import annotations

import numpy as np

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

TUNABLE = {"eta": (0.03, 3.0, "log"), "tau": (0.003, 0.3, "log"), "margin": (0.0, 0.2, "linear")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    forgetting: str = "sliding",
    window: int | None = None,
    gamma: float | None = None,
    eta: float | None = None,
    tau: float | None = None,
    margin: float | None = None,
    chi: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return regularised primal-dual as a learner.

    Parameters
    ----------
    constants
        "printed" (needs `gamma`) or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    gamma
        Slater gap, where it is known.
    eta, tau, margin, chi
        Instead of the constants above.
    """
    sizes = tabular_setup(world).sizes
    gap = checked_gap(gamma, sizes.H, constants)
    return build_with(
        "regularised-primal-dual",
        world,
        design(sizes, gap, constants),
        constants=constants,
        forgetting=named_forgetting(forgetting, window, sizes.M),
        told=told_gap(gap),
        seed=seed,
        alpha=eta,
        eta=eta,
        tau=tau,
        xi=tau,
        margin=None if margin is None else np.array([margin]),
        chi=chi,
    )


def design(sizes: Sizes, gamma: float | None, constants: str) -> Design:
    """Return regularised primal-dual with its constants."""
    _, H, _, _, K = sizes
    chi = CAP if gamma is None else 4 * H / gamma
    if constants == "practical":
        steps = {"alpha": 1.0, "eta": 1.0, "tau": 0.03, "xi": 0.03}
        return practical("regularised", "ascent", **steps, chi=chi, margin=np.array([0.05]))
    M = sizes.known_M(PRINTED)
    eta, tau = float(M ** (-5 / 7) / (H**2 * np.sqrt(K))), M ** (-1 / 7)
    bonus = confidence_bonus(sizes)
    return Design(
        "regularised", "ascent", bonus, NO_RIDGE, alpha=eta, eta=eta, tau=tau, xi=tau, chi=chi
    )
