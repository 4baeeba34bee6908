"""PID multiplier (Stooke, Achiam and Abbeel, ICML 2020, arXiv 2007.03964) with a mirror step.

    π ∝ π exp(α (Q_r + μ·Q_g)),   Q = optimistic evaluation
    μ = clip(K_P d + K_I I + K_D D, 0, χ)
    d = b - V_g,   I ← (I + d)_+,   D = (V_g before - V_g)_+

The proportional term acts at once and damps the swings of dual ascent (K_I alone). At the cap I
does not grow, so that the multiplier comes down as soon as the constraint is met (anti-windup). In
d and D enter running means with weight `smoothing` on the past.

The paper has deep policies; what it controls with is here an estimate of V_g. "printed" has the
gains (0.05, 0.0005, 0.1) of the public library FSRL, no smoothing and no cap. "practical" has
(1, 0.03, 0.1), smoothing 0.95, and χ = 20 where no gap is given. Both have α = 0.15 and a Bernstein
bonus (`rivals.primal_dual` says how they were chosen).
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.primal_dual import (
    CAP,
    CONSTANTS,
    Design,
    build_with,
    checked_gap,
    practical,
    told_gap,
)

__all__ = ["TUNABLE", "build"]

TUNABLE = {
    "alpha": (0.02, 1.0, "log"),
    "proportional": (0.05, 5.0, "log"),
    "integral": (0.001, 0.1, "log"),
}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    forgetting: str = "sliding",
    window: int | None = None,
    gamma: float | None = None,
    alpha: float | None = None,
    proportional: float | None = None,
    integral: float | None = None,
    derivative: float | None = None,
    smoothing: float | None = None,
    chi: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the PID-controlled multiplier as a learner.

    Parameters
    ----------
    constants
        "printed" or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    gamma
        Slater gap, where it is known: the cap is then 2H/gamma.
    alpha, proportional, integral, derivative, smoothing, chi
        Instead of the constants above.
    """
    sizes = tabular_setup(world).sizes
    gap = checked_gap(gamma, sizes.H, "practical")
    chosen = design(sizes.H, gap, constants)
    given = (proportional, integral, derivative)
    gains = tuple(own if new is None else new for own, new in zip(chosen.gains, given, strict=True))
    return build_with(
        "pid-lagrangian",
        world,
        chosen,
        constants=constants,
        forgetting=named_forgetting(forgetting, window, sizes.M),
        told=told_gap(gap),
        seed=seed,
        alpha=alpha,
        gains=gains,
        smoothing=smoothing,
        chi=chi,
    )


def design(H: int, gamma: float | None, constants: str) -> Design:
    """Return the PID multiplier with its constants."""
    _check.choice("constants", constants, CONSTANTS)
    printed = constants == "printed"
    cap = np.inf if printed else CAP
    return practical(
        "mirror",
        "pid",
        prompt=True,
        lagged=False,
        alpha=0.15,
        gains=(0.05, 0.0005, 0.1) if printed else (1.0, 0.03, 0.1),
        smoothing=0.0 if printed else 0.95,
        chi=cap if gamma is None else 2 * H / gamma,
    )
