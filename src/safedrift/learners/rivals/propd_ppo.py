"""PROPD-PPO (Ding and Lavaei, AAAI 2023) under its name, for comparisons.

    π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), uniform every L episodes
    μ ← clip(μ + η (b - V_g - ξ μ), 0, χ)
    Q = optimistic evaluation on windows of W episodes

`safedrift.PROPDPPO` is the learner; `learners.propd_ppo.parameters` has its constants. It knows the
Slater gap: `gamma` has to be given.

With knowledge=None it is told nothing and is not the paper's any more: policy and multipliers are
damped and take several steps per episode, and data are forgotten when filters say so
(`learners.propd_ppo.told_nothing`). No theorem covers that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safedrift import _check
from safedrift.knowledge import Slater
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.propd_ppo import PROPDPPO
from safedrift.learners.protocol import Problem

__all__ = ["TUNABLE", "build"]

TUNABLE = {"alpha": (0.02, 1.0, "log"), "eta": (0.003, 0.3, "log")}


def build(
    world: Problem,
    *,
    gamma: float | None = None,
    knowledge: str | None = "slater",
    mode: str = "practical",
    forgetting: str | None = None,
    window: int | None = None,
    alpha: float | None = None,
    eta: float | None = None,
    noisy: bool = False,
    seed: int | np.random.SeedSequence = 0,
) -> PROPDPPO:
    """Return PROPD-PPO as a learner.

    Parameters
    ----------
    gamma
        Slater gap.
    knowledge
        "slater", or None: told nothing. Local budgets are forecasts of the drift:
        `PROPDPPO.for_problem` takes them.
    mode
        "practical"; the others need variation budgets: `PROPDPPO.for_problem` takes them.
    forgetting, window
        As in `learners.forgetting.named_forgetting`; by default the paper's restarts, or
        "adaptive" where nothing is told.
    alpha, eta
        Step sizes instead of the mode's.
    noisy
        Whether observed rewards and utilities are random around their means.
    """
    if knowledge is not None:
        _check.choice("knowledge", knowledge, ("slater",))
    _check.choice("mode", mode, ("practical",))
    if knowledge is None and gamma is not None:
        _check.fail("gamma", "None with knowledge=None", gamma)
    if knowledge is not None and gamma is None:
        raise TypeError(
            "gamma must be given: propd-ppo knows the Slater gap (with knowledge=None it is told "
            "nothing); got None"
        )
    kept = None if forgetting is None else named_forgetting(forgetting, window, world.M)
    steps: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    steps |= {} if eta is None else {"eta": eta}
    known = None if gamma is None else Slater(gamma)
    return PROPDPPO.for_problem(
        world, known, mode=mode, noisy=noisy, seed=seed, forgetting=kept, **steps
    )
