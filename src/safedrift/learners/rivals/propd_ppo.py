"""PROPD-PPO (Ding and Lavaei, AAAI 2023) under its name, for comparisons.

    π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), uniform every L episodes
    μ ← clip(μ + η (b - V_g - ξ μ), 0, χ)
    Q = optimistic evaluation on windows of W episodes

`safedrift.PROPDPPO` is the learner; `learners.propd_ppo.parameters` has its constants. It knows the
Slater gap: `gamma` has to be given.
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
    knowledge: str = "slater",
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
        "slater". Local budgets are forecasts of the drift: `PROPDPPO.for_problem` takes them.
    mode
        "practical"; the others need variation budgets: `PROPDPPO.for_problem` takes them.
    forgetting, window
        As in `learners.forgetting.named_forgetting`; by default the paper's restarts.
    alpha, eta
        Step sizes instead of the mode's.
    noisy
        Whether observed rewards and utilities are random around their means.
    """
    _check.choice("knowledge", knowledge, ("slater",))
    _check.choice("mode", mode, ("practical",))
    if gamma is None:
        raise TypeError("gamma must be given: propd-ppo knows the Slater gap; got None")
    kept = None if forgetting is None else named_forgetting(forgetting, window, world.M)
    steps: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    steps |= {} if eta is None else {"eta": eta}
    return PROPDPPO.for_problem(
        world, Slater(gamma), mode=mode, noisy=noisy, seed=seed, forgetting=kept, **steps
    )
