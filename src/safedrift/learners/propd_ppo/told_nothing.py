"""PROPD-PPO that is told nothing: no budgets, no Slater gap, no M. Practical, and no theorem's.

    π ← π^(1-ατ) exp(α (Q_r + μ·Q_g)) / Z,    Q_r with τ times the entropy of the steps to come
    d = b - V_g,  I ← (I + d)_+,  μ = clip(K_P d + η I, 0, χ)

after each episode, V_g being the window's estimate for the policy just played, and `rounds` more
times before the next one. The paper's algorithm has τ = K_P = 0 and swings around the threshold,
because policy and multiplier each answer to where the other was. What settles it here:

    τ > 0       logits stay bounded by Q/τ, so that a policy can be left as fast as it was found
    K_P > 0     the multiplier answers to the present violation, not only to the sum of past ones
    Adaptive    data are forgotten when predictions say so (`learners.forgetting`), not by a clock

The constants were chosen by the strict score on calibration worlds (`experiments.evaluation`,
family "calibration", kind "long", exact signals) and on no others. τ = 0.01 and 0.06 were worse
than 0.03, K_P from 1 to 10 and η from 0.1 to 0.3 within noise of each other, dual ascent without
K_P a little worse. With K_P, one to three rounds were no better than none and cost as much again
each.
Ridge and bonus are those of the mode told a gap; c = 0.02 and 0.15 were worse than 0.05.
"""

from __future__ import annotations

import numpy as np

from safedrift.knowledge import Sizes
from safedrift.learners.propd_ppo.components import (
    BernsteinBonus,
    CountEvaluation,
    DualStep,
    MirrorStep,
    Settling,
)
from safedrift.learners.propd_ppo.parameters import Parameters

__all__ = ["CONSTANTS", "told_nothing"]

CONSTANTS = {
    "alpha": 1.0,
    "tau": 0.03,
    "eta": 0.1,
    "proportional": 3.0,
    "rounds": 0,
    "chi": 20.0,
    "lam": 0.004,
    "c": 0.05,
}


def told_nothing(sizes: Sizes, *, noisy: bool = False, lam: float | None = None) -> Parameters:
    """Return the parameters of a learner that is told nothing; `lam` replaces its own.

    Examples
    --------
    >>> from safedrift.knowledge import Sizes
    >>> from safedrift.learners.propd_ppo.told_nothing import told_nothing
    >>> told_nothing(Sizes(M=None, H=5, S=4, A=3, K=1)).settling
    Settling(tau=0.03, proportional=3.0, rounds=0)
    """
    one_block = sizes.M or 1  # W and L are those of the forgetting, if it has any
    own = CONSTANTS
    ridge = own["lam"] if lam is None else lam
    no_variation = np.zeros((1, sizes.K, sizes.H))
    return Parameters(
        improvement=MirrorStep(own["alpha"], one_block),
        dual=DualStep(own["eta"], 0.0, own["chi"], lagged=True),
        evaluation=CountEvaluation(one_block, ridge, BernsteinBonus(own["c"]), no_variation),
        source="no theorem",
        mode="practical",
        noisy=noisy,
        settling=Settling(own["tau"], own["proportional"], int(own["rounds"])),
    )
