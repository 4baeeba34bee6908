"""The constrained optimum of an episode, with a certificate.

    V_r* = max_π { V_r(π) : V_g(π) ≥ b } = min_{μ ≥ 0} max_π V_r(π) + μ·(V_g(π) - b)

One constraint: the dual is a convex piecewise linear function of one number, minimised exactly by
intersecting lines (`kernels.exact`). Several: the linear program over occupancy measures, by HiGHS.
The answer includes a certificate: a feasible policy with its exact value, multipliers whose dual
value bounds the value of every feasible policy, and the gap between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, hstack

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels import exact
from safedrift.kernels.types import TableArrays
from safedrift.models import DriftingCMDP, DriftingWorld, TabularCMDP
from safedrift.oracles.chunks import Progress, in_chunks

__all__ = [
    "Optima",
    "Optimum",
    "evaluate",
    "evaluate_episodes",
    "optima",
    "optimal_policies",
    "safest_utilities",
    "solve",
]


@dataclass(frozen=True, eq=False)
class Optimum:
    """Constrained optimum of one CMDP.

    Attributes
    ----------
    status : "optimal" or "infeasible"
    value : V_r of `policy`, NaN if infeasible
    utilities : (K,) V_g of `policy`
    multipliers : (K,) μ*, infinite if infeasible
    policy : (H, S, A) optimal, or the one with the largest min_k slack if infeasible
    gap : dual value at μ* minus `value`; bounds how far `value` is from the optimum (of the
        threshold that `policy` reaches, where that misses b by up to 1e-12 H of rounding)
    gamma : Slater gap, max_π min_k (V_g,k(π) - b_k); negative if infeasible
    iterations : lines intersected, or simplex iterations
    """

    status: str
    value: float
    utilities: FloatArray
    multipliers: FloatArray
    policy: FloatArray
    gap: float
    gamma: float
    iterations: int


@dataclass(frozen=True, eq=False)
class Optima:
    """Constrained optima of n episodes of a world; fields as in `Optimum`, first axis n."""

    episodes: IntArray
    thresholds: FloatArray
    feasible: np.ndarray
    value: FloatArray
    utilities: FloatArray
    multipliers: FloatArray
    gap: FloatArray
    gamma: FloatArray
    policy_change: FloatArray
    """(n,) Σ_h max_x ‖π*_h - previous π*_h‖₁ over states either policy reaches; 0 for the first."""


def evaluate(cmdp: TabularCMDP, policy: FloatArray) -> FloatArray:
    """Return the exact values (V_r, V_g,1, ..., V_g,K) of a policy (H, S, A).

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> cmdp = sd.TabularCMDP(P, r, 1 - r[None], [0.5], [1.0])
    >>> uniform = np.full((2, 1, 2), 0.5)
    >>> sd.evaluate(cmdp, uniform).tolist()  # one action pays, the other is safe
    [1.0, 1.0]
    """
    _check.kind("cmdp", cmdp, TabularCMDP)
    checked = _check.floats("policy", policy, cmdp.shape[:3])
    _check.distribution("policy", checked)
    world = DriftingCMDP([cmdp], np.zeros(1, np.int64))
    return np.asarray(evaluate_episodes(world, np.zeros(1, np.int64), checked[None])[0])


def evaluate_episodes(world: DriftingWorld, episodes: IntArray, policies: FloatArray) -> FloatArray:
    """Return the exact values (n, 1+K) of policies (n, H, S, A), one for each listed episode.

    A single policy (1, H, S, A) is used for all of them.
    """
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    policies = np.array(policies, dtype=np.float64, order="C", copy=None)
    shape = (world.H, world.S, world.A)
    if policies.shape not in ((episodes.size, *shape), (1, *shape)):
        _check.fail("policies", f"of shape {(episodes.size, *shape)}", policies.shape)
    if not policies.flags.writeable:
        policies = policies.copy()  # the kernels are compiled for writable arrays
    out = np.empty((episodes.size, 1 + world.K))

    def work(part: slice) -> None:
        own = policies[part] if len(policies) > 1 else policies
        arrays, place = world.tables(episodes[part])
        rewards = arrays.rewards[:, None]
        exact.evaluate_policies(arrays, rewards, place, own, out[part], scratch_for(arrays))

    in_chunks(work, episodes.size, world.chunk)
    return out


def safest_utilities(world: DriftingWorld, episodes: IntArray) -> FloatArray:
    """Return the utilities (n, K) of the policy that maximises their sum in each listed episode."""
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    out = np.empty((episodes.size, world.K))

    def work(part: slice) -> None:
        arrays, place = world.tables(episodes[part])
        exact.safest_utilities(arrays, place, out[part], scratch_for(arrays))

    in_chunks(work, episodes.size, world.chunk)
    return out


def solve(cmdp: TabularCMDP) -> Optimum:
    """Return the constrained optimum of one CMDP.

    Examples
    --------
    In each of two steps, action 0 earns 1 and action 1 has utility 1; the threshold is 0.5:

    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> cmdp = sd.TabularCMDP(P, r, 1 - r[None], [0.5], [1.0])
    >>> best = sd.solve(cmdp)
    >>> best.status, round(float(best.value), 6), best.multipliers.round(6).tolist()
    ('optimal', 1.5, [1.0])
    >>> round(float(best.gamma), 6), bool(abs(best.gap) < 1e-9)  # Slater gap, duality gap
    (1.5, True)
    """
    _check.kind("cmdp", cmdp, TabularCMDP)
    if cmdp.shape.K > 1:
        return _solve_lp(cmdp)[0]
    world = DriftingCMDP([cmdp], np.zeros(1, np.int64))
    policies = np.empty((1, *cmdp.shape[:3]))
    numbers, _ = _solve_lines(world, np.zeros(1, np.int64), policies)
    status, mu, _, value, utility, dual, gamma, iterations = numbers[0]
    optimal = status == exact.OPTIMAL
    return Optimum(
        status="optimal" if optimal else "infeasible",
        value=value if optimal else np.nan,
        utilities=np.array([utility]),
        multipliers=np.array([mu]),
        policy=policies[0],
        gap=dual - value if optimal else np.nan,
        gamma=gamma,
        iterations=int(iterations),
    )


def optima(
    world: DriftingWorld, episodes: IntArray | None = None, progress: Progress | None = None
) -> Optima:
    """Return the constrained optimum of each listed episode (all by default).

    Consecutive episodes with the same world are solved once. `progress` is called with numbers
    that add up to the number of listed episodes.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> found = sd.optima(world)
    >>> found.value.round(6).tolist(), found.multipliers[:, 0].round(6).tolist()
    ([1.5, 1.25, 1.0, 0.75, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0])
    >>> found.gamma.round(6).tolist()
    [1.5, 1.25, 1.0, 0.75, 0.5]
    """
    return _optima(world, episodes, progress, keep_policies=False)[0]


def optimal_policies(
    world: DriftingWorld, episodes: IntArray | None = None
) -> tuple[Optima, FloatArray, IntArray]:
    """Return the optima, optimal policies (n, H, S, A), and the index of each episode's policy.

    There is one policy for each run of consecutive listed episodes with the same world.
    """
    return _optima(world, episodes, None, keep_policies=True)


def _optima(
    world: DriftingWorld,
    episodes: IntArray | None,
    progress: Progress | None,
    *,
    keep_policies: bool,
) -> tuple[Optima, FloatArray, IntArray]:
    _check.kind("world", world, get_args(DriftingWorld))
    if episodes is None:
        episodes = np.arange(world.M)
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    _, version = world.distinct
    # Keep the first of consecutive episodes with the same world.
    fresh = np.concatenate(([True], np.diff(version[episodes]) != 0))
    listed = episodes[fresh]
    run = np.cumsum(fresh) - 1
    sizes = np.bincount(run)
    policies = np.empty((listed.size if keep_policies else 0, world.H, world.S, world.A))
    if world.K == 1:
        numbers, changes = _solve_lines(world, listed, policies, progress=progress, sizes=sizes)
        status, mu, _, value, utility, dual, gamma, _ = numbers.T
        utilities, multipliers, gap = utility[:, None], mu[:, None], dual - value
        feasible = status == exact.OPTIMAL
    else:
        found = _solve_lps(world, listed, version[listed], sizes, policies, progress)
        feasible, value, utilities, multipliers, gap, gamma, changes = found
    change = np.zeros(episodes.size)
    change[np.flatnonzero(fresh)] = changes.sum(axis=1)
    answer = Optima(
        episodes=episodes,
        thresholds=world.thresholds[episodes],
        feasible=feasible[run],
        value=np.where(feasible, value, np.nan)[run],
        utilities=utilities[run],
        multipliers=multipliers[run],
        gap=np.where(feasible, gap, np.nan)[run],
        gamma=gamma[run],
        policy_change=change,
    )
    return answer, policies, run


def scratch_for(arrays: TableArrays) -> exact.Scratch:
    mixed = arrays.transition_path.scenario.shape[1] > 1
    _, H, S, A = arrays.rewards.shape
    return exact.make_scratch(arrays.states.size if mixed else 0, H, S, A)


def _solve_lines(
    world: DriftingWorld,
    episodes: IntArray,
    policies: FloatArray,
    *,
    progress: Progress | None = None,
    sizes: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Numbers and policy changes of each episode; `policies` is written where it has room."""
    n = episodes.size
    numbers, changes = np.empty((n, 8)), np.empty((n, world.H))

    ends: dict[int, exact.Ends] = {}

    def work(part: slice) -> None:
        shape = (2, world.H, world.S)
        ends[part.start] = end = exact.Ends(np.empty((*shape, world.A)), np.empty(shape))
        arrays, place = world.tables(episodes[part])
        exact.solve_episodes(
            arrays, arrays.rewards[:, None], place, numbers[part], changes[part], policies[part],
            end, scratch_for(arrays),
        )  # fmt: skip
        if progress and sizes is not None:
            progress(int(sizes[part].sum()))

    in_chunks(work, n, world.chunk)
    for before, start in pairwise(sorted(ends)):
        old, new = ends[before], ends[start]
        exact.policy_change(
            new.policy[0], old.policy[1], new.reach[0], old.reach[1], changes[start]
        )
    return numbers, changes


# ---------------------------------------------------------------- several constraints


def _solve_lps(
    world: DriftingWorld,
    episodes: IntArray,
    versions: IntArray,
    sizes: IntArray,
    policies: FloatArray,
    progress: Progress | None,
) -> tuple[np.ndarray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    known: dict[int, tuple[Optimum, FloatArray]] = {}
    n, K, H = episodes.size, world.K, world.H
    feasible, value, gap, gamma = np.empty(n, bool), np.empty(n), np.empty(n), np.empty(n)
    utilities, multipliers, changes = np.empty((n, K)), np.empty((n, K)), np.zeros((n, H))
    before: tuple[Optimum, FloatArray] | None = None
    for i, (m, version) in enumerate(zip(episodes, versions, strict=True)):
        if int(version) not in known:
            known[int(version)] = _solve_lp(world.at(int(m)))
        found, reach = known[int(version)]
        feasible[i], value[i] = found.status == "optimal", found.value
        gap[i], gamma[i] = found.gap, found.gamma
        utilities[i], multipliers[i] = found.utilities, found.multipliers
        if before is not None:
            exact.policy_change(found.policy, before[0].policy, reach, before[1], changes[i])
        before = (found, reach)
        if len(policies):
            policies[i] = found.policy
        if progress:
            progress(int(sizes[i]))
    return feasible, value, utilities, multipliers, gap, gamma, changes


_HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def _solve_lp(cmdp: TabularCMDP) -> tuple[Optimum, FloatArray]:
    """Occupancy-measure LP by HiGHS; returns the optimum and the state occupancy (H, S)."""
    H, S, A, K = cmdp.shape
    flow, inflow = _flow(cmdp)
    g = csr_array(cmdp.utilities.reshape(K, -1))
    b = cmdp.thresholds
    # Largest uniform slack t: V_g,k - b_k ≥ t for all k.
    slack = linprog(
        np.append(np.zeros(H * S * A), -1.0),
        A_ub=hstack([-g, csr_array(np.ones((K, 1)))]),
        b_ub=-b,
        A_eq=hstack([flow, csr_array((H * S, 1))]),
        b_eq=inflow,
        bounds=[(0, None)] * (H * S * A) + [(None, None)],
        method="highs",
        options=_HIGHS,
    )
    best = linprog(
        -cmdp.rewards.ravel(), A_ub=-g, b_ub=-b, A_eq=flow, b_eq=inflow, method="highs",
        options=_HIGHS,
    )  # fmt: skip
    for result, answers in ((slack, (0,)), (best, (0, 2))):
        if result.status not in answers:
            raise RuntimeError(f"HiGHS stopped without an answer: {result.message}")
    gamma = -float(slack.fun)
    optimal = best.status == 0
    measure = (best.x if optimal else slack.x[:-1]).clip(0).reshape(H, S, A)
    policy, reach = _policy_of(measure)
    values = evaluate(cmdp, policy)
    multipliers = np.abs(best.ineqlin.marginals.clip(max=0)) if optimal else np.full(K, np.inf)
    dual = np.nan
    if optimal:
        dual = _dual_value(cmdp, multipliers)
    found = Optimum(
        status="optimal" if optimal else "infeasible",
        value=float(values[0]) if optimal else np.nan,
        utilities=values[1:],
        multipliers=multipliers,
        policy=policy,
        gap=dual - float(values[0]) if optimal else np.nan,
        gamma=gamma,
        iterations=int(best.nit),
    )
    return found, reach


def _flow(cmdp: TabularCMDP) -> tuple[csr_array, FloatArray]:
    """Flow conservation: what enters a (step, state) leaves it through its actions."""
    H, S, A, _ = cmdp.shape
    offsets, states, probabilities = cmdp.successors
    pairs = np.arange(H * S * A)
    source = np.repeat(pairs, np.diff(offsets))
    inner = source < (H - 1) * S * A
    rows = np.concatenate((pairs // A, (source[inner] // (S * A) + 1) * S + states[inner]))
    columns = np.concatenate((pairs, source[inner]))
    entries = np.concatenate((np.ones(pairs.size), -probabilities[inner]))
    matrix = coo_array((entries, (rows, columns)), shape=(H * S, H * S * A)).tocsr()
    return matrix, np.concatenate((cmdp.initial, np.zeros((H - 1) * S)))


def _policy_of(measure: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Policy of an occupancy measure (H, S, A), uniform where it is 0; and its (H, S) sums."""
    reach = measure.sum(axis=2)
    arrives = reach[:, :, None] > 1e-14
    policy = np.where(
        arrives, measure / np.where(arrives, reach[:, :, None], 1), 1 / measure.shape[2]
    )
    return policy / policy.sum(axis=2, keepdims=True), np.where(arrives[:, :, 0], reach, 0.0)


def _dual_value(cmdp: TabularCMDP, multipliers: FloatArray) -> float:
    """max_π V_r + μ·(V_g - b), by dynamic programming."""
    H, S, A, _ = cmdp.shape
    offsets, states, probabilities = cmdp.successors
    signal = cmdp.rewards + np.tensordot(multipliers, cmdp.utilities, axes=1)
    V = np.zeros(S)
    for h in range(H - 1, -1, -1):
        rows = slice(offsets[h * S * A], offsets[(h + 1) * S * A])
        starts = offsets[h * S * A : (h + 1) * S * A] - offsets[h * S * A]
        ahead = np.add.reduceat(probabilities[rows] * V[states[rows]], starts)
        V = (signal[h] + ahead.reshape(S, A)).max(axis=1)
    return float(cmdp.initial @ V - multipliers @ cmdp.thresholds)
