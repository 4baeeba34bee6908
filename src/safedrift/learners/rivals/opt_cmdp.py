"""OptCMDP-bonus (Efroni, Mannor and Pirotta 2020, arXiv 2003.02189): optimistic planning.

    r~ = r̂ + b, g~ = ĝ + b,   b(h, x, a) = scale (√(L/2n) + (H-h) √(2 S L/n)),   n = n(h, x, a)
    L = log(2 S A H (2 + K) M / δ),   δ = 0.05
    π = the constrained optimum of (P̂, r~, g~, b)

"printed" has scale 1: Hoeffding's inequality for rewards and utilities, Weissman's for transitions
and a union bound. The paper's bonus has this form; its own constants were recalled, not verified.
They are vacuous for any M that one can run. "practical" is b = scale/√n with scale 0.1. Signals
with bonus are cut at H-h, the largest value. Discounted counts fall below 1 and the bonus of a pair
rises again until it is tried once more.

The paper keeps all data, plans before every episode and has no drift; forgetting and
`replan_every` are ours. Scale and default forgetting were chosen on six worlds of `problems.random`
(seeds 1001 and 1002, three drifts) and on nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from safedrift import _check
from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.planner import Estimate, Planner

__all__ = ["TUNABLE", "build"]

TUNABLE = {"bonus_scale": (0.01, 1.0, "log")}
_FAILURE = 0.05  # δ
_PRACTICAL = 0.1


def build(
    world: Problem,
    *,
    constants: str = "practical",
    bonus_scale: float | None = None,
    forgetting: str = "discounted",
    window: int | None = None,
    replan_every: int = 25,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the learner.

    Parameters
    ----------
    constants
        "printed" or "practical".
    bonus_scale
        Multiplies the bonus; by default 1 (printed) or 0.1 (practical).
    forgetting, window
        As in `learners.forgetting.named_forgetting`.
    replan_every
        Episodes between two plans.
    """
    setup = tabular_setup(world)
    sizes = setup.sizes
    _check.choice("constants", constants, ("printed", "practical"))
    scale = (1.0 if constants == "printed" else _PRACTICAL) if bonus_scale is None else bonus_scale
    if not 0 <= _check.real("bonus_scale", scale) < np.inf:
        _check.fail("bonus_scale", "finite and >= 0", scale)
    factor = scale * (printed_factor(sizes) if constants == "printed" else np.ones(sizes.H))
    settings: dict[str, Any] = {"told": [], "constants": constants, "bonus_scale": float(scale)}
    kept = named_forgetting(forgetting, window, sizes.M)
    rule = partial(with_bonus, factor)
    planner = Planner(setup, "opt-cmdp", rule, kept, replan_every, settings, seed)
    return CheckedLearner(planner, seed)


def printed_factor(sizes: Sizes) -> np.ndarray:
    """Return √n times the bonus of each step (H,)."""
    _, H, S, A, K = sizes
    M = sizes.known_M("unless constants is 'practical'")
    L = np.log(2 * S * A * H * (2 + K) * M / _FAILURE)
    left = H - np.arange(H)
    return np.asarray(np.sqrt(L / 2) + left * np.sqrt(2 * S * L))


def with_bonus(factor: np.ndarray, estimate: Estimate, generator: np.random.Generator) -> Estimate:
    """Return the model with factor[h]/√n on rewards and utilities of pairs with data."""
    visits = estimate.model.visits
    H = factor.size
    bonus = factor[:, None, None] / np.sqrt(np.where(visits > 0, visits, 1.0))
    left = (H - np.arange(H, dtype=float))[:, None, None]
    signals = np.where(visits > 0, np.minimum(estimate.signals + bonus, left), estimate.signals)
    return estimate._replace(signals=signals)
