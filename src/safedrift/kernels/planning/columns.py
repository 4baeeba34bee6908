"""Constrained optima with any number of constraints, by column generation.

    V_r* = max { Σ_i λ_i V_r(π_i) : Σ_i λ_i V_g(π_i) ≥ b, λ a distribution }

over the deterministic policies π_i (Dantzig and Wolfe 1960). A master program (`master`) holds a
few of them. Its multipliers μ make a reward r + μ·g, whose best policy by backward induction either
gains over all that the master holds, and joins it, or proves the master's answer optimal:

    V_r* ≤ D(μ) = max_π V_r(π) + μ·(V_g(π) - b).

The Slater gap γ = max_π min_k (V_g,k(π) - b_k) comes first, in the same way; it says whether the
world is feasible, and its mixture of policies is where the search for the optimum starts.

Rounding. A utility is known to about 1e-15 H. γ ≥ -1e-12 H counts as feasible, as with one
constraint (`exact.intersect_lines`). Where γ < 1e-13 H all thresholds are lowered by 1e-13 H - γ,
at most 1.1e-12 H, so that policies which meet them but for rounding stay in, and Σμ ≤ 1e13. The gap
is then that of the thresholds which the returned policy reaches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.exact import (
    INFEASIBLE,
    OPTIMAL,
    mix_signal,
    occupancy,
    policy_value,
    record_policy,
    start_value,
    transitions_of,
)
from safedrift.kernels.planning import double_double as dd
from safedrift.kernels.planning.master import (
    OPTIMUM,
    SLATER_GAP,
    UNIFORM_SLACK,
    Master,
    drop_anchor,
    is_basic,
    make_master,
    optimise,
    reduced_cost,
)
from safedrift.kernels.types import FloatArray, IndexArray, jit, jit_part

ALLOWANCE = 1e-12  # times H: a world that misses its thresholds by no more is feasible
MARGIN = 1e-13  # times H: the least Slater gap of the program that is solved
TOLERANCE = 1e-14  # times H (1 + Σμ): a column that gains less does not join
MOST_PRICINGS = 2000


class Answers(NamedTuple):
    """What is found in n episodes."""

    status: FloatArray  # (n,) OPTIMAL or INFEASIBLE
    value: FloatArray  # (n,)
    utilities: FloatArray  # (n, K)
    multipliers: FloatArray  # (n, K)
    gap: FloatArray  # (n,)
    gamma: FloatArray  # (n,)
    iterations: FloatArray  # (n,) backward inductions


class Scratch(NamedTuple):
    """Working arrays of one chunk."""

    p: FloatArray  # (entries,) or (0,) where no transitions are mixed
    signals: FloatArray  # (1+K, H, S, A) r and g
    V: FloatArray  # (2, S)
    weights: FloatArray  # (1+K,) of r and g
    total: FloatArray  # (1+K, 2)
    actions: IndexArray  # (C, H, S) the policy of each column
    keep: NDArray[np.bool_]  # (C,) columns that the next episode starts from
    latest: NDArray[np.int64]  # (1,) the column generated last: the best policy at its weights
    master: Master
    reach_one: FloatArray  # (H, S) of one column
    reach: FloatArray  # (2, H, S) of this episode and the one before, in turn
    policy: FloatArray  # (2, H, S, A)


def make_answers(n: int, K: int) -> Answers:
    """Return room for the answers of n episodes."""
    return Answers(
        np.empty(n),
        np.empty(n),
        np.empty((n, K)),
        np.empty((n, K)),
        np.empty(n),
        np.empty(n),
        np.empty(n),
    )


def make_scratch(entries: int, H: int, S: int, A: int, K: int) -> Scratch:
    """Return working arrays for worlds of these sizes."""
    C = max(2 * K + 4, min(64, 2**22 // (H * S)))  # few columns where one is large
    return Scratch(
        p=np.empty(entries),
        signals=np.empty((1 + K, H, S, A)),
        V=np.empty((2, S)),
        weights=np.empty(1 + K),
        total=np.empty((1 + K, 2)),
        actions=np.empty((C, H, S), np.int32),
        keep=np.zeros(C, np.bool_),
        latest=np.zeros(1, np.int64),
        master=make_master(C, K),
        reach_one=np.empty((H, S)),
        reach=np.empty((2, H, S)),
        policy=np.empty((2, H, S, A)),
    )


# ---------------------------------------------------------------- columns


@jit_part
def mean_ahead(start, stop, states, p, V):
    """Σ_e p[e] V[states[e]] over start .. stop, as four sums: they need not wait for each other."""
    w = x = y = z = 0.0
    whole = start + (stop - start) // 4 * 4
    for e in range(start, whole, 4):
        w += p[e] * V[states[e]]
        x += p[e + 1] * V[states[e + 1]]
        y += p[e + 2] * V[states[e + 2]]
        z += p[e + 3] * V[states[e + 3]]
    for e in range(whole, stop):
        w += p[e] * V[states[e]]
    return (w + x) + (y + z)


@jit_part
def price(tables, p, signals, weights, actions, V):
    """Maximise Σ_c weights[c] V_c by backward induction; actions (H, S) are written.

    Of equally good actions the first is taken.
    """
    C, H, S, A = signals.shape
    now, ahead = 0, 1
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for s in range(S):
            best, best_a = -np.inf, 0
            for a in range(A):
                q = 0.0
                for c in range(C):
                    q += weights[c] * signals[c, h, s, a]
                if h + 1 < H:
                    row = (h * S + s) * A + a
                    q += mean_ahead(
                        tables.offsets[row], tables.offsets[row + 1], tables.states, p, V[ahead]
                    )
                if q > best:
                    best, best_a = q, a
            actions[h, s] = best_a
            V[now, s] = best
    return start_value(tables, V[now])


@jit_part
def measure(tables, p, signals, b, actions, V, total, master, column):
    """Write V_r and V_g - b of a deterministic policy (H, S) into a column, by its occupancy."""
    C, H, S, A = signals.shape
    for c in range(C):
        total[c, 0] = total[c, 1] = 0.0
    now, ahead = 0, 1
    for s in range(S):
        V[now, s] = 0.0
    for i in range(tables.initial.size):
        V[now, tables.initial_states[i]] = tables.initial[i]
    for h in range(H):
        for s in range(S):
            V[ahead, s] = 0.0
        for s in range(S):
            reach = V[now, s]
            if reach > 0.0:
                a = actions[h, s]
                for c in range(C):
                    total[c, 0], error = dd.two_sum(total[c, 0], reach * signals[c, h, s, a])
                    total[c, 1] += error
                if h + 1 < H:
                    row = (h * S + s) * A + a
                    for e in range(tables.offsets[row], tables.offsets[row + 1]):
                        V[ahead, tables.states[e]] += reach * p[e]
        now, ahead = ahead, now
    master.reward[column] = total[0, 0] + total[0, 1]
    for k in range(C - 1):
        master.slack[column, k] = (total[1 + k, 0] - b[k]) + total[1 + k, 1]


@jit_part
def free_column(scratch, program):
    """A place for a new policy: an unused one, or that of the column furthest from use."""
    master = scratch.master
    found, worst = -1, np.inf
    for i in range(master.active.size):
        if not master.active[i]:
            return i
        if not is_basic(master, i):
            gained = reduced_cost(master, i, program)
            if gained < worst:
                found, worst = i, gained
    master.active[found] = scratch.keep[found] = False
    return found


@jit_part
def generate(tables, p, b, scratch, program):
    """Price with the weights in `scratch`; return the place of the policy, not yet active."""
    column = free_column(scratch, program)
    scratch.latest[0] = column
    actions = scratch.actions[column]
    price(tables, p, scratch.signals, scratch.weights, actions, scratch.V)
    measure(
        tables, p, scratch.signals, b, actions, scratch.V, scratch.total, scratch.master, column
    )
    return column


@jit_part
def set_weights(master, reward_weight, weights):
    """Weights (1+K,) of r and g: a given one and the master's multipliers μ ≥ 0."""
    weights[0] = reward_weight
    total = 0.0
    for k in range(weights.size - 1):
        weights[1 + k] = -master.y[k, 0] if master.y[k, 0] < 0.0 else 0.0
        total += weights[1 + k]
    return total


@jit_part
def lagrangian(master, column, weights):
    """weights[0] V_r + Σ_k weights[1+k] (V_g,k - b_k) of a column."""
    total = weights[0] * master.reward[column]
    for k in range(weights.size - 1):
        total += weights[1 + k] * master.slack[column, k]
    return total


# ---------------------------------------------------------------- the two programs


@jit_part
def first_basis(master):
    """The column with the largest least slack, t, and the slacks of the other rows."""
    K = master.slack.shape[1]
    best, column, tightest = -np.inf, 0, 0
    for i in range(master.active.size):
        if master.active[i]:
            least = 0
            for k in range(K):
                if master.slack[i, k] < master.slack[i, least]:
                    least = k
            if master.slack[i, least] > best:
                best, column, tightest = master.slack[i, least], i, least
    for k in range(K):
        master.basis[k] = -2 - k
    master.basis[tightest] = UNIFORM_SLACK
    master.basis[K] = column
    drop_anchor(master)


@jit_part
def slater_gap(tables, p, b, scratch, H):
    """max_π min_k (V_g,k - b_k), and the backward inductions it took; the basis attains it."""
    master, weights = scratch.master, scratch.weights
    pricings = 0
    warm = False
    for i in range(master.active.size):
        if master.active[i]:
            warm = True
            measure(
                tables,
                p,
                scratch.signals,
                b,
                scratch.actions[i],
                scratch.V,
                scratch.total,
                master,
                i,
            )
    if not warm:
        for k in range(b.size):
            weights[1 + k] = 1.0
        weights[0] = 0.0
        master.active[generate(tables, p, b, scratch, SLATER_GAP)] = True
        pricings += 1
    first_basis(master)
    while pricings < MOST_PRICINGS:
        optimise(master, SLATER_GAP, 0.0, TOLERANCE * H)
        set_weights(master, 0.0, weights)
        column = generate(tables, p, b, scratch, SLATER_GAP)
        pricings += 1
        if lagrangian(master, column, weights) <= master.y[b.size, 0] + TOLERANCE * H:
            break
        master.active[column] = True
    return master.y[b.size, 0], pricings, warm


@jit_part
def optimum(tables, p, b, scratch, H, floor, warm, start):
    """The optimum, from a basis of uniform slack ≥ floor; return D(μ) and backward inductions."""
    master, weights = scratch.master, scratch.weights
    pricings = 0
    drop_anchor(master)
    if start.size > 0 or not warm:
        weights[0] = 1.0
        for k in range(b.size):
            weights[1 + k] = start[k] if start.size > 0 else 0.0
        column = generate(tables, p, b, scratch, SLATER_GAP)
        master.active[column] = True
        pricings += 1
    dual = np.inf
    while pricings < MOST_PRICINGS:
        optimise(master, OPTIMUM, floor, TOLERANCE * H)
        total = set_weights(master, 1.0, weights)
        column = generate(tables, p, b, scratch, OPTIMUM)
        pricings += 1
        theta = master.y[b.size, 0]
        dual = max(lagrangian(master, column, weights), theta)
        if dual <= theta + TOLERANCE * H * (1.0 + total):
            break
        master.active[column] = True
    return dual, pricings


@jit_part
def keep_basis(scratch):
    """Mark the columns of the basis for the next episode."""
    for i in range(scratch.master.basis.size):
        if scratch.master.basis[i] >= 0:
            scratch.keep[scratch.master.basis[i]] = True


@jit_part
def forget_others(scratch):
    """Leave only marked columns, without their marks."""
    for i in range(scratch.keep.size):
        scratch.master.active[i] = scratch.keep[i]
        scratch.keep[i] = False


# ---------------------------------------------------------------- the policy


@jit_part
def mix_columns(tables, p, scratch, policy, reach):
    """Markov policy whose occupancy is Σ_i λ_i that of column i; its reach (H, S).

    Where it never goes it is the best policy at the final multipliers, wherever the search began.
    """
    H, S, A = policy.shape
    master = scratch.master
    total = 0.0
    for i in range(master.basis.size):
        if master.basis[i] >= 0:
            total += max(master.x[i, 0], 0.0)
    for h in range(H):
        for s in range(S):
            reach[h, s] = 0.0
            for a in range(A):
                policy[h, s, a] = 0.0
    for i in range(master.basis.size):
        if master.basis[i] >= 0 and master.x[i, 0] > 0.0:
            share = master.x[i, 0] / total
            actions = scratch.actions[master.basis[i]]
            occupancy(tables, p, A, actions, scratch.reach_one)
            for h in range(H):
                for s in range(S):
                    reach[h, s] += share * scratch.reach_one[h, s]
                    policy[h, s, actions[h, s]] += share * scratch.reach_one[h, s]
    actions = scratch.actions[scratch.latest[0]]
    for h in range(H):
        for s in range(S):
            if reach[h, s] > 0.0:
                for a in range(A):
                    policy[h, s, a] /= reach[h, s]
            else:
                policy[h, s, actions[h, s]] = 1.0


@jit
def solve_episodes(tables, rewards, episodes, start, answers, changes, policies, ends, scratch):
    """Constrained optimum of each listed episode.

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (n,)
    start : (K,) multipliers from which the first episode starts, or (0,)
    answers : Answers, written
    changes : (n, H) written: change of the optimal policy since the episode listed before, 0 first
    policies : (n, H, S, A) written, or (0, H, S, A)
    ends : Ends, written: policy and reach of the first and the last episode
    """
    _, _, H, S, A = rewards.shape
    K = tables.thresholds.shape[1]
    signals = scratch.signals
    none = start[:0]
    for i in range(episodes.size):
        m = episodes[i]
        b = tables.thresholds[m]
        p = transitions_of(tables, m, scratch)
        mix_signal(rewards, tables.reward_path, m, 0, signals[0])
        for k in range(K):
            mix_signal(tables.utilities, tables.utility_path, m, k, signals[1 + k])
        gamma, pricings, warm = slater_gap(tables, p, b, scratch, H)
        keep_basis(scratch)
        feasible = gamma >= -ALLOWANCE * H
        dual, more = np.nan, 0
        if feasible:
            floor = min(0.0, gamma - MARGIN * H)
            first = start if i == 0 else none
            dual, more = optimum(tables, p, b, scratch, H, floor, warm, first)
            keep_basis(scratch)
        policy, reach = scratch.policy[i % 2], scratch.reach[i % 2]
        mix_columns(tables, p, scratch, policy, reach)
        answers.status[i] = OPTIMAL if feasible else INFEASIBLE
        answers.gamma[i] = max(gamma, 0.0) if feasible else gamma
        answers.iterations[i] = pricings + more
        answers.value[i] = policy_value(tables, p, signals[0], policy, scratch.V)
        for k in range(K):
            reached = policy_value(tables, p, signals[1 + k], policy, scratch.V)
            mu = scratch.weights[1 + k] if feasible else np.inf
            answers.utilities[i, k] = reached
            answers.multipliers[i, k] = mu
            # A policy that misses b by rounding is certified for the threshold it reaches.
            dual += mu * (b[k] - min(b[k], reached)) if feasible else np.nan
        answers.gap[i] = dual - answers.value[i]
        forget_others(scratch)
        record_policy(i, episodes.size, scratch, changes, policies, ends)
