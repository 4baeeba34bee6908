"""Worlds that test nothing: a learner does well there without learning to be safe.

Over the solved episodes m that some policy meets, with V_r^free the best value without the
constraint and π_u the uniform policy, a world is suspect if

    the constraint binds (μ* > 0) in no episode, or in less than `RARELY` of them,
    Σ_m (V_r^free - V_r*) < `CHEAP` Σ_m (V_r^free - V_r(π_u))                    (hardly any price),
    π_u is safe and V_r* - V_r(π_u) ≤ `NEARLY` (max_π V_r - min_π V_r) in `MOSTLY` of the episodes,
    r_h + g_h,k is the same for all states and actions, so that V_r + V_g,k is for all policies.

In the last case a policy is optimal if and only if it meets the threshold with equality, where the
constraint binds: there is nothing to gain beyond the right multiplier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift._check import FloatArray

__all__ = ["CHEAP", "MOSTLY", "NEARLY", "RARELY", "Evidence", "sum_is_constant", "warnings_of"]

RARELY = 0.1  # share of the episodes
CHEAP = 0.02  # of what the best policy earns more than the uniform one
NEARLY = 0.05  # of the range of all policies' rewards
MOSTLY = 0.5  # share of the episodes
_ROUNDING = 1e-9
_EXACT = 1e-12


class Evidence(NamedTuple):
    """What n episodes, all of them feasible, say of a world.

    Attributes
    ----------
    binds : (n, K) whether μ* > 0
    value, free_value, lowest_value : (n,) V_r*, max_π V_r and min_π V_r over all policies
    uniform_reward, uniform_utility : (n,), (n, K) values of the uniform policy
    thresholds : (n, K)
    constant_sum : (K,) whether r + g_k is constant in every episode
    """

    binds: np.ndarray
    value: FloatArray
    free_value: FloatArray
    lowest_value: FloatArray
    uniform_reward: FloatArray
    uniform_utility: FloatArray
    thresholds: FloatArray
    constant_sum: np.ndarray


def warnings_of(found: Evidence) -> tuple[str, ...]:
    """Return one sentence for each reason why a world tests nothing; none if all is well."""
    if not found.value.size:
        return ()
    told = [_binding(share, k, found.binds.shape[1]) for k, share in enumerate(found.binds.mean(0))]
    told += [_price(found), _uniform(found)]
    several = found.constant_sum.size > 1
    for k in np.flatnonzero(found.constant_sum):
        told.append(
            f"r + g{f' {k + 1}' if several else ''} is constant: V_r + V_g is the same for all "
            "policies, and every policy that meets the threshold exactly is optimal."
        )
    return tuple(sentence for sentence in told if sentence)


def sum_is_constant(rewards: FloatArray, utilities: FloatArray) -> np.ndarray:
    """Return for each k (K,) whether r + g_k is the same for all states and actions of a step.

    Parameters
    ----------
    rewards : (H, S, A)
    utilities : (K, H, S, A)
    """
    return np.asarray(np.ptp(rewards + utilities, axis=(2, 3)).max(axis=1) <= _EXACT)


def _binding(share: float, k: int, K: int) -> str:
    which = "The constraint" if K == 1 else f"Constraint {k + 1}"
    if share == 0:
        return f"{which} never binds: the best policy without it is safe."
    if share < RARELY:
        return f"{which} hardly binds: in {share:.1%} of these episodes."
    return ""


def _price(found: Evidence) -> str:
    if not found.binds.any():
        return ""
    price = float((found.free_value - found.value).sum())
    gain = float((found.free_value - found.uniform_reward).sum())
    if price >= CHEAP * gain:
        return ""
    return (
        f"Safety costs hardly anything: {price / gain:.1%} of what the best policy earns more than "
        "the uniform one."
    )


def _uniform(found: Evidence) -> str:
    safe = (found.uniform_utility >= found.thresholds - _ROUNDING).all(axis=1)
    lost, span = found.value - found.uniform_reward, found.free_value - found.lowest_value
    share = float((safe & (lost <= NEARLY * span + _ROUNDING)).mean())
    if share < MOSTLY:
        return ""
    return f"The uniform policy is safe and nearly optimal in {share:.0%} of these episodes."
