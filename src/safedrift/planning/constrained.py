"""The constrained optimum of one episode, with a certificate.

    V_r* = max_π { V_r(π) : V_g(π) ≥ b } = min_{μ ≥ 0} max_π V_r(π) + μ·(V_g(π) - b)

The answer carries its proof: a feasible policy with its exact value, multipliers whose dual value
bounds every policy's value from above, and the gap between the two.

Rounding. Utilities are sums of H numbers of size 1. A world whose Slater gap is at least -1e-12 H
counts as feasible, and thresholds may then be missed by up to 1.1e-12 H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.successors import successor_lists
from safedrift.kernels.types import Successors, TableArrays, WeightPath
from safedrift.planning.episodes import (
    OPTIMAL,
    Answers,
    make_answers,
    make_ends,
    solve_chunk,
)

__all__ = ["Plan", "plan", "plan_of"]


@dataclass(frozen=True, eq=False)
class Plan:
    """Constrained optimum of one CMDP.

    Attributes
    ----------
    status : "optimal" or "infeasible"
    value : V_r of `policy`, NaN if infeasible
    utilities : (K,) V_g of `policy`; if infeasible, those with the largest least slack
    multipliers : (K,) μ*, infinite if infeasible
    policy : (H, S, A) optimal, or the safest one if infeasible
    gap : dual value at μ* minus `value`; bounds how far `value` is from the optimum (of the
        thresholds that `policy` reaches, where that misses b by up to 1.1e-12 H of rounding)
    gamma : Slater gap, max_π min_k (V_g,k(π) - b_k); negative if infeasible
    iterations : multipliers tried (K = 1), or backward inductions

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> best = sd.solve(world.at(0))
    >>> best.status, best.multipliers.round(3).tolist()
    ('optimal', [0.845])
    >>> round(float(best.value), 3), round(float(best.gap), 9)
    (6.387, 0.0)
    """

    status: str
    value: float
    utilities: FloatArray
    multipliers: FloatArray
    policy: FloatArray
    gap: float
    gamma: float
    iterations: int


def plan(
    transitions: ArrayLike | Successors,
    rewards: ArrayLike,
    utilities: ArrayLike,
    thresholds: ArrayLike,
    initial: ArrayLike,
    *,
    multipliers: ArrayLike | None = None,
) -> Plan:
    """Return the constrained optimum of a finite-horizon CMDP given by its arrays.

    Parameters
    ----------
    transitions : array (H, S, A, S) or Successors
        P_h(x' | x, a), dense or as successor lists.
    rewards : array (H, S, A)
        Any finite numbers; the rounding above supposes that they are of size 1.
    utilities : array (K, H, S, A)
        Likewise, one slice per constraint.
    thresholds : array (K,)
        V_g,k ≥ thresholds[k] is asked for.
    initial : array (S,)
        Distribution of the first state.
    multipliers : array (K,), optional
        Where to start: those of a similar problem save time. The answer is as good without them.

    Examples
    --------
    One step, one state and two arms: the first earns, the second is safe.

    >>> from safedrift.planning import plan
    >>> found = plan([[[[1.0], [1.0]]]], [[[1.0, 0.0]]], [[[[0.0, 1.0]]]], [0.25], [1.0])
    >>> print(found.status, found.value, found.multipliers, found.policy[0, 0])
    optimal 0.75 [1.] [0.75 0.25]
    """
    tables = _tables(transitions, rewards, utilities, thresholds, initial)
    _, K, H, S, A = tables.utilities.shape
    start = None
    if multipliers is not None:
        start = _check.floats("multipliers", multipliers, (K,)).copy()
        _check.everywhere("multipliers", start, start >= 0, ">= 0")
    answers, policies = make_answers(1, K), np.empty((1, H, S, A))
    only, changes = np.zeros(1, np.int64), np.empty((1, H))
    solve_chunk(tables, only, answers, changes, policies, make_ends(tables), start)
    return plan_of(answers, policies, 0)


def plan_of(answers: Answers, policies: FloatArray, i: int) -> Plan:
    """Return answer number i as a `Plan`."""
    optimal = bool(answers.status[i] == OPTIMAL)
    return Plan(
        status="optimal" if optimal else "infeasible",
        value=answers.value[i] if optimal else np.nan,
        utilities=answers.utilities[i],
        multipliers=answers.multipliers[i],
        policy=policies[i],
        gap=answers.gap[i] if optimal else np.nan,
        gamma=answers.gamma[i],
        iterations=int(answers.iterations[i]),
    )


def _tables(
    transitions: ArrayLike | Successors,
    rewards: ArrayLike,
    utilities: ArrayLike,
    thresholds: ArrayLike,
    initial: ArrayLike,
) -> TableArrays:
    """Check the arrays and return them as the kernels want them: a world of one episode."""
    r = _check.floats("rewards", rewards, ("H", "S", "A"))
    H, S, A = r.shape
    g = _check.floats("utilities", utilities, ("K", H, S, A))
    b = _check.floats("thresholds", thresholds, (g.shape[0],))
    start = _check.floats("initial", initial, (S,))
    _check.distribution("initial", start)
    if isinstance(transitions, Successors):
        lists = _check.successors("transitions", transitions, H, S, A)
    else:
        dense = _check.floats("transitions", transitions, (H, S, A, S))
        _check.distribution("transitions", dense)
        lists = successor_lists(dense)
    support = np.flatnonzero(start)
    path = WeightPath(np.zeros((1, 1), np.int32), np.ones((1, 1)))
    # Copies: the kernels are compiled for writable arrays only.
    return TableArrays(
        lists.offsets.copy(),
        lists.states.astype(np.uint32),
        lists.probabilities[None].copy(),
        np.empty((1, 0)),  # cumulative: nothing is drawn here
        r[None].copy(),
        g[None].copy(),
        support.astype(np.int32),
        start[support],
        path,
        path,
        path,
        b[None].copy(),
    )
