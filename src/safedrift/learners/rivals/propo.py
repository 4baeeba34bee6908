"""PROPO (Zhong, Yang, Wang and Szepesvári 2021, arXiv 2110.08984): PROPD-PPO without constraint.

    π_m ∝ π_{m-1} exp(α Q_r), uniform every L episodes
    Q_r = optimistic evaluation on a sliding window of W episodes

It ignores utilities: a reference for what the constraint costs, and for what ignoring it does. The
paper has linear kernels; here the values come from counts. Window and restarts have one length.
"printed" has α = √(2 log A/(H² L)) and the bonus 2β (n + 1)^(-1/2), β = H √(S ln(S A H W/p)) (the
abstract was read; constants are recalled, not verified). "practical" has α = 0.15 and a Bernstein
bonus (`rivals.primal_dual` says how they were chosen).
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.kernels.elementary import log
from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import SlidingWindow, named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.primal_dual import (
    CONSTANTS,
    Design,
    build_with,
    practical,
    ridge_bonus,
    span,
)

__all__ = ["TUNABLE", "build"]

TUNABLE = {"alpha": (0.02, 1.0, "log")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    forgetting: str = "sliding",
    window: int | None = None,
    alpha: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return PROPO as a learner.

    Parameters
    ----------
    constants
        "printed" or "practical".
    forgetting, window
        As in `learners.forgetting.named_forgetting`; a sliding window here also restarts the policy
        once per window, as in the paper.
    alpha
        Step size instead of the one above.
    """
    sizes = tabular_setup(world).sizes
    kept = named_forgetting(forgetting, window, sizes.M)
    if isinstance(kept, SlidingWindow):
        kept = SlidingWindow(kept.W, kept.W)
    return build_with(
        "propo",
        world,
        design(sizes, constants, span(kept, sizes)),
        constants=constants,
        forgetting=kept,
        seed=seed,
        alpha=alpha,
    )


def design(sizes: Sizes, constants: str, episodes: int) -> Design:
    """Return PROPO with its constants, for windows of so many episodes."""
    _check.choice("constants", constants, CONSTANTS)
    if constants == "practical":
        return practical("mirror", "ascent", alpha=0.15)
    alpha = float(np.sqrt(2 * log(max(sizes.A, 2)) / (sizes.H**2 * episodes)))
    return Design("mirror", "ascent", ridge_bonus(sizes, episodes), lam=1.0, alpha=alpha)
