"""Planning on filters, compiled: play, learn, notice changes, and write down a model to plan on.

The model averages the heaviest experts of each quantity. Its states at step h are those that can be
reached in it; a pair of which nothing is known stays where it is and pays 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels import exact
from safedrift.kernels.elementary import log_of
from safedrift.kernels.planning import columns
from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.tabular.filters import (
    SPREAD,
    Cells,
    Experts,
    Grid,
    age_signals,
    age_transitions,
    alarmed,
    blend,
    cell_of,
    clear_alarm,
    correct_signals,
    correct_transitions,
    heaviest,
    jump,
    see_signal,
    see_successor,
    settle,
)
from safedrift.kernels.types import FloatArray, IndexArray, TableArrays, jit, jit_inline, jit_part

CHOSEN = 3  # experts that a model averages at most, ...
MOST_MU = 10.0  # multiplier that bonuses and the next plan start from, at most
WEIGHT = 0.05  # ... each with at least this share of the heaviest one's weight


class Clock(NamedTuple):
    """Episodes."""

    episode: NDArray[np.int64]  # (1,) episodes finished
    next_plan: NDArray[np.int64]  # (1,) episode before which to plan
    last_alarm: NDArray[np.int64]  # (1,) episode after which planning experts were alarmed last
    alarms: NDArray[np.int64]  # (1+C, kk) alarms per quantity and filter


class Plan(NamedTuple):
    """The policy in use, and values of it in the model it was made for."""

    local: IndexArray  # (H, S) number of a state at step h in the model, or -1
    count: NDArray[np.int64]  # (H,) states at each step
    reach: IndexArray  # (H, cap) which they are
    policy: FloatArray  # (H, cap, A)
    values: FloatArray  # (1+K, H, S) V_r and V_g
    spread: FloatArray  # (1+K, H, S) as `values`, of V_r + mu V_g and V_g, the largest lately
    mu: FloatArray  # (K,)
    known: NDArray[np.int64]  # (6,) what `reach` was written for, and entries and states it needs


class Memory(NamedTuple):
    """Everything the learner knows."""

    own: Cells
    pooled: Cells
    moves: Experts
    signals: tuple[Experts, ...]  # 1+K
    binary: NDArray[np.bool_]  # (C,) only 0 and 1 seen so far
    mean: FloatArray  # (C,) of all observations, old ones forgotten slowly
    seen: FloatArray  # (1,) observations in `mean`
    clock: Clock
    plan: Plan


class Settings(NamedTuple):
    """Numbers the learner is built with."""

    moves: Grid
    signals: Grid
    limits: FloatArray  # (2,) of C for transitions and signals
    every: float  # most episodes between two plans
    reward_bonus: float
    utility_bonus: float
    visit_bonus: float
    pace: float  # episodes since the last alarm over episodes between two plans
    fade: float  # share by which the largest values lately shrink with each plan
    growth: float
    range_bonus: float


class Model(NamedTuple):
    """A model to plan on; N states per step."""

    offsets: NDArray[np.int64]  # (H*N*A + 1,)
    states: NDArray[np.uint32]  # (entries,)
    p: FloatArray  # (entries,)
    signals: FloatArray  # (1+K, H, N, A) with bonuses
    means: FloatArray  # (1+K, H, N, A) without
    place: IndexArray  # (S,) scratch, all -1
    row: FloatArray  # (A, 2(1+K) + 1) scratch: moments of values, and n
    chosen: FloatArray  # (1+C, CHOSEN, 3) k, l and weight of experts, quantity by quantity


class Work(NamedTuple):
    """Where plans are made."""

    model: Model
    tables: TableArrays  # the same, as a world of one episode
    rewards: FloatArray  # its rewards with a signal axis
    initial: FloatArray  # (S,)
    support: IndexArray  # states with initial > 0
    episodes: NDArray[np.int64]  # (1,) 0
    numbers: FloatArray  # (1, 8)
    answers: columns.Answers
    changes: FloatArray  # (1, H)
    policies: FloatArray  # (1, H, N, A)
    ends: exact.Ends


class Trace(NamedTuple):
    """What the learner shows of B episodes."""

    mu: FloatArray  # (B, K)
    replanned: NDArray[np.bool_]  # (B,)


# ---------------------------------------------------------------- playing


@jit
def play(arrays, settings, memory, work, one, several, inputs, first, buffer, out, written, trace):
    """Play episodes of a chunk from number `first` on.

    Returns how many episodes of the chunk are finished: fewer than B where `work` has too little
    room for the next plan.
    """
    B, H = inputs.action_uniforms.shape
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    C = signals.shape[0]
    for e in range(first, B):
        m = memory.clock.episode[0]
        if m >= memory.clock.next_plan[0]:
            if not plan(memory, settings, work, one, several, arrays.thresholds[m]):
                return e
            trace.replanned[e] = True
        show(memory, e, trace)
        if inputs.measured[e]:
            write_policy(memory.plan, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            states[h] = s
            actions[h] = act(memory.plan, h, s, inputs.action_uniforms[e, h])
            observe(arrays, m, h, s, actions[h], inputs.noisy, u, H + h * C, signals)
            for c in range(C):
                out.returns[e, c] += signals[c, h]
            if h + 1 < H:
                s = next_state(arrays, m, h, s, actions[h], u[h + 1])
        learn(states, actions, signals, settings, memory)
    return B


@jit_part
def show(memory, e, trace):
    """Write what there is to show of episode number e of a chunk."""
    for k in range(memory.plan.mu.size):
        trace.mu[e, k] = memory.plan.mu[k]


@jit_inline
def act(plan, h, s, u):
    """Draw an action; states outside the plan have the uniform policy."""
    A = plan.policy.shape[2]
    i = plan.local[h, s]
    if i < 0:
        return min(np.int64(u * A), A - 1)
    below, last = 0.0, 0
    for a in range(A):
        if plan.policy[h, i, a] > 0.0:
            below += plan.policy[h, i, a]
            last = a
            if u < below:
                break
    return np.int64(last)


@jit_part
def write_policy(plan, out):
    """Write the policy (H, S, A)."""
    H, S, A = out.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                i = plan.local[h, s]
                out[h, s, a] = plan.policy[h, i, a] if i >= 0 else 1.0 / A


# ---------------------------------------------------------------- learning


@jit_part
def learn(states, actions, signals, settings, memory):
    """Learn from a finished episode, and decide when to plan next."""
    H, S = states.size, memory.plan.local.shape[1]
    A = memory.plan.policy.shape[2]
    m = memory.clock.episode[0]
    own, pooled = memory.own, memory.pooled
    C = signals.shape[0]
    for h in range(H):
        pair = states[h] * A + actions[h]
        c, p = cell_of(own, h * S * A + pair, m), cell_of(pooled, pair, m)
        age_signals(own, c, m, settings.signals.kappa)
        age_signals(pooled, p, m, settings.signals.kappa)
        memory.seen[0] += 1.0
        rate = max(1.0 / memory.seen[0], 1e-4)
        for i in range(C):
            x = signals[i, h]
            if memory.binary[i] and x != 0.0 and x != 1.0:
                memory.binary[i] = False
                turn_continuous(memory.signals[i])
            see_signal(own, pooled, c, p, i, x, memory.binary[i], memory.signals[i], settings.signals)
            memory.mean[i] += (x - memory.mean[i]) * rate
        if h + 1 < H:
            age_transitions(own, c, m, settings.moves.kappa)
            age_transitions(pooled, p, m, settings.moves.kappa)
            see_successor(own, pooled, c, p, states[h + 1], S, memory.moves, settings.moves)
    urgent = False
    if H > 1:
        settle(memory.moves, -1.0, H - 1.0, m)
        urgent |= answer_alarms_of_moves(memory, settings, m)
    for i in range(C):
        settle(memory.signals[i], -1.0 if memory.binary[i] else 0.5, float(H), m)
        urgent |= answer_alarms_of_signals(memory, settings, i, m)
    memory.clock.episode[0] = m + 1
    if urgent:
        memory.clock.last_alarm[0] = m + 1
        memory.clock.next_plan[0] = m + 1


@jit_part
def turn_continuous(experts):
    """Put probabilities of 0 and 1 seen so far in this episode among the losses."""
    for k in range(experts.loss.shape[0]):
        for l in range(experts.loss.shape[1]):
            experts.product[k, l] = 1.0
            experts.loss[k, l] = 0.0


@jit_part
def matters(weight, k):
    """Whether one of filter k's experts is used in planning."""
    best = 0.0
    for i in range(weight.shape[0]):
        for l in range(weight.shape[1]):
            best = max(best, weight[i, l])
    for l in range(weight.shape[1]):
        if weight[k, l] >= WEIGHT * best:
            return True
    return False


@jit_part
def answer_alarms_of_moves(memory, settings, m):
    """Correct filters of transitions that were shown to be wrong; whether to plan at once."""
    experts, urgent = memory.moves, False
    for k in range(experts.weight.shape[0]):
        j = alarmed(experts, k, settings.limits[0])
        if j >= 0:
            urgent |= matters(experts.weight, k)
            J = jump(experts, k, j, 2.0, 1.0)
            correct_transitions(memory.own, k, j, experts.since[k, j], J)
            correct_transitions(memory.pooled, k, j, experts.since[k, j], J)
            clear_alarm(experts, k, j, m)
            urgent |= heaviest(experts.weight) // experts.weight.shape[1] == k
            memory.clock.alarms[0, k] += 1
    return urgent


@jit_part
def answer_alarms_of_signals(memory, settings, i, m):
    """Correct filters of signal i that were shown to be wrong; whether to plan at once."""
    experts, urgent = memory.signals[i], False
    ll = experts.weight.shape[1]
    for k in range(experts.weight.shape[0]):
        j = alarmed(experts, k, settings.limits[1])
        if j >= 0:
            urgent |= matters(experts.weight, k)
            J = jump(experts, k, j, 1.0, experts.v[j, heaviest(experts.weight) % ll])
            correct_signals(memory.own, i, k, j, experts.since[k, j], J)
            correct_signals(memory.pooled, i, k, j, experts.since[k, j], J)
            clear_alarm(experts, k, j, m)
            urgent |= heaviest(experts.weight) // ll == k
            memory.clock.alarms[1 + i, k] += 1
    return urgent


# ---------------------------------------------------------------- planning


@jit_part
def plan(memory, settings, work, one, several, thresholds):
    """Take over the constrained optimum of the model; False where there is too little room.

    `one` is scratch of `exact` where there is one constraint, `several` that of `columns` where
    there are more; the other is None.
    """
    model, tables, clock = work.model, work.tables, memory.clock
    pools = choose(memory, model.chosen)
    known = memory.plan.known
    if (
        known[0] != memory.own.used[0]
        or known[1] != memory.own.used[1]
        or known[2] != memory.pooled.used[1]
        or known[3] != pools
    ):
        most = find_states(memory, work.initial, pools, known)
        known[0] = memory.own.used[0]
        known[1] = memory.own.used[1]
        known[2] = memory.pooled.used[1]
        known[3] = pools
        known[5] = most
    if known[4] > model.p.size or known[5] > model.means.shape[2]:
        return False
    write_model(memory, settings, pools, model)
    K = thresholds.size
    for i in range(tables.initial_states.size):
        tables.initial_states[i] = memory.plan.local[0, work.support[i]]
    for k in range(K):
        tables.thresholds[0, k] = thresholds[k]
    solve(tables, work, one, several, memory.plan.mu)
    take_policy(memory, settings, model, work.policies[0])
    m = clock.episode[0]
    wait = min(max((m - clock.last_alarm[0]) / settings.pace, 1.0), settings.every)
    clock.next_plan[0] = m + np.int64(wait)
    return True


@jit_part
def solve(tables, work, one, several, mu):
    """Write the optimal policy and its multipliers; where no policy is safe, 10 for all."""
    if several is None:
        exact.solve_episodes(
            tables,
            work.rewards,
            work.episodes,
            mu,
            work.numbers,
            work.changes,
            work.policies,
            work.ends,
            one,
        )
        mu[0] = work.numbers[0, 1] if work.numbers[0, 0] == exact.OPTIMAL else MOST_MU
        mu[0] = min(mu[0], MOST_MU)
    else:
        columns.solve_episodes(
            tables,
            work.rewards,
            work.episodes,
            mu,
            work.answers,
            work.changes,
            work.policies,
            work.ends,
            several,
        )
        for k in range(mu.size):
            feasible = work.answers.status[0] == exact.OPTIMAL
            mu[k] = min(work.answers.multipliers[0, k] if feasible else MOST_MU, MOST_MU)


# ---------------------------------------------------------------- the model: which states


@jit_part
def choose(memory, chosen):
    """Write the experts that the model averages; whether any pools transitions."""
    pools = choose_of(memory.moves, chosen[0])
    for i in range(memory.mean.size):
        choose_of(memory.signals[i], chosen[1 + i])
    return pools


@jit_part
def choose_of(experts, chosen):
    """Write k, l and weight of the heaviest experts, weights adding to 1."""
    kk, ll = experts.weight.shape
    best = 0.0
    for n in range(chosen.shape[0]):
        chosen[n, 2] = 0.0
        for k in range(kk):
            for l in range(ll):
                w = experts.weight[k, l]
                taken = False
                for before in range(n):
                    taken |= chosen[before, 0] == k and chosen[before, 1] == l
                if not taken and w > chosen[n, 2] and w >= WEIGHT * best:
                    chosen[n, 0], chosen[n, 1], chosen[n, 2] = k, l, w
        best = max(best, chosen[n, 2])
    total, pools = 0.0, False
    for n in range(chosen.shape[0]):
        total += chosen[n, 2]
        pools |= chosen[n, 2] > 0.0 and chosen[n, 1] > 0.0
    for n in range(chosen.shape[0]):
        chosen[n, 2] /= total
    return pools


@jit_part
def find_states(memory, initial, pools, known):
    """Write which states can be reached at each step; returns most states and all entries."""
    plan, own, pooled = memory.plan, memory.own, memory.pooled
    H, S = plan.local.shape
    A = plan.policy.shape[2]
    for h in range(H):
        for i in range(plan.count[h]):
            plan.local[h, plan.reach[h, i]] = -1
        plan.count[h] = 0
    for s in range(S):
        if initial[s] > 0.0:
            add_state(plan, 0, s)
    entries = 0
    for h in range(H):
        for i in range(plan.count[h]):
            s = plan.reach[h, i]
            for a in range(A):
                if h + 1 == H:
                    continue
                before = entries
                c = own.index[(h * S + s) * A + a]
                e = own.head[c] if c >= 0 else np.int32(-1)
                while e >= 0:
                    add_state(plan, h + 1, own.edge_state[e])
                    entries += 1
                    e = own.edge_next[e]
                if pools:
                    c = pooled.index[s * A + a]
                    e = pooled.head[c] if c >= 0 else np.int32(-1)
                    while e >= 0:
                        add_state(plan, h + 1, pooled.edge_state[e])
                        entries += 1
                        e = pooled.edge_next[e]
                if entries == before:
                    add_state(plan, h + 1, s)
                    entries += 1
    most = 0
    for h in range(H):
        most = max(most, plan.count[h])
    known[4] = entries + 1
    return most


@jit_inline
def add_state(plan, h, s):
    """Give state s a number at step h."""
    if plan.local[h, s] < 0:
        plan.local[h, s] = plan.count[h]
        plan.reach[h, plan.count[h]] = s
        plan.count[h] += 1


# ---------------------------------------------------------------- the model: numbers


@jit_part
def write_model(memory, settings, pools, model):
    """Write the model that the chosen experts have of the coming episode."""
    plan = memory.plan
    C, H, N, A = model.signals.shape
    S = plan.local.shape[1]
    place = 0
    model.offsets[0] = 0
    for h in range(H):
        for i in range(N):
            inside = i < plan.count[h]
            s = np.int64(plan.reach[h, i]) if inside else np.int64(0)
            for a in range(A):
                if inside and h + 1 < H:
                    place = write_row(memory, settings, pools, h, s, a, place, model)
                model.offsets[(h * N + i) * A + a + 1] = place
            if inside:
                write_signals(memory, settings, h, i, s, model)
            else:
                for c in range(C):
                    for a in range(A):
                        model.signals[c, h, i, a] = 0.0
                        model.means[c, h, i, a] = 0.0


@jit_inline
def now(n, kappa, passed):
    """Effective observations after `passed` episodes without a visit."""
    return n / (1.0 + kappa * n * passed)


@jit_part
def write_row(memory, settings, pools, h, s, a, first, model):
    """Write successors of (h, s, a) from entry `first` on; returns the entry after the last."""
    own, pooled, plan = memory.own, memory.pooled, memory.plan
    grid, m = settings.moves, memory.clock.episode[0]
    _, S = plan.local.shape
    A = plan.policy.shape[2]
    c, q = own.index[(h * S + s) * A + a], pooled.index[s * A + a]
    if not pools:
        q = np.int32(-1)
    place = first
    e = own.head[c] if c >= 0 else np.int32(-1)
    while e >= 0:
        model.place[own.edge_state[e]] = place
        model.states[place] = plan.local[h + 1, own.edge_state[e]]
        model.p[place] = 0.0
        place += 1
        e = own.edge_next[e]
    e = pooled.head[q] if q >= 0 else np.int32(-1)
    while e >= 0:
        if model.place[pooled.edge_state[e]] < 0:
            model.place[pooled.edge_state[e]] = place
            model.states[place] = plan.local[h + 1, pooled.edge_state[e]]
            model.p[place] = 0.0
            place += 1
        e = pooled.edge_next[e]
    spread = 0.0  # 1/n
    for x in range(CHOSEN):
        weight = model.chosen[0, x, 2]
        if weight == 0.0:
            break
        k, l = int(model.chosen[0, x, 0]), int(model.chosen[0, x, 1])
        n, N = 0.0, 0.0
        if c >= 0:
            n = now(own.n[c, k], grid.kappa[k], float(m - own.last_move[c]))
        if q >= 0:
            N = now(pooled.n[q, k], grid.kappa[k], float(m - pooled.last_move[q]))
        mine, others = blend(n, N, grid.omega[l])
        total = mine + others
        spread += weight / max(total, 0.01)
        if mine > 0.0:
            factor = weight * mine / total / own.n[c, k] * own.scale[c, k]
            e = own.head[c]
            while e >= 0:
                model.p[model.place[own.edge_state[e]]] += factor * own.edge_count[e, k]
                e = own.edge_next[e]
        if others > 0.0:
            factor = weight * others / total / pooled.n[q, k] * pooled.scale[q, k]
            e = pooled.head[q]
            while e >= 0:
                model.p[model.place[pooled.edge_state[e]]] += factor * pooled.edge_count[e, k]
                e = pooled.edge_next[e]
    e = own.head[c] if c >= 0 else np.int32(-1)
    while e >= 0:
        model.place[own.edge_state[e]] = -1
        e = own.edge_next[e]
    e = pooled.head[q] if q >= 0 else np.int32(-1)
    while e >= 0:
        model.place[pooled.edge_state[e]] = -1
        e = pooled.edge_next[e]
    total = 0.0
    for e in range(first, place):
        total += model.p[e]
    K = plan.mu.size
    for x in range(model.row.shape[1]):
        model.row[a, x] = 0.0
    if total <= 0.0:
        model.states[first] = plan.local[h + 1, s]
        model.p[first] = 1.0
        return first + 1
    model.row[a, 2 * K + 2] = 1.0 / spread
    for e in range(first, place):
        model.p[e] /= total
    for e in range(first, place):
        state = plan.reach[h + 1, model.states[e]]
        whole = plan.spread[0, h + 1, state]
        for k in range(K):
            V = plan.spread[1 + k, h + 1, state]
            model.row[a, 2 + 2 * k] += model.p[e] * V
            model.row[a, 3 + 2 * k] += model.p[e] * V * V
        model.row[a, 0] += model.p[e] * whole
        model.row[a, 1] += model.p[e] * whole * whole
    return place


@jit_part
def write_signals(memory, settings, h, i, s, model):
    """Write rewards and utilities of all actions in state s, number i of step h."""
    own, pooled, plan = memory.own, memory.pooled, memory.plan
    grid, m = settings.signals, memory.clock.episode[0]
    C, H, _, A = model.signals.shape
    S = plan.local.shape[1]
    K = C - 1
    last = h + 1 == H
    growth = 1.0 + settings.growth * log_of(1.0 + m)
    for a in range(A):
        c, q = own.index[(h * S + s) * A + a], pooled.index[s * A + a]
        u_r, u_g = 0.0, 0.0
        seen = False
        for g in range(C):
            mean, u, square = 0.0, 0.0, 0.0
            for x in range(CHOSEN):
                weight = model.chosen[1 + g, x, 2]
                if weight == 0.0:
                    break
                k, l = int(model.chosen[1 + g, x, 0]), int(model.chosen[1 + g, x, 1])
                n, N, average = 0.0, 0.0, 0.0
                if c >= 0:
                    n = now(own.signal[c, g, k, 0], grid.kappa[k], float(m - own.last[c]))
                if q >= 0:
                    N = now(pooled.signal[q, g, k, 0], grid.kappa[k], float(m - pooled.last[q]))
                mine, others = blend(n, N, grid.omega[l])
                if mine > 0.0:
                    average += mine * own.signal[c, g, k, 1]
                if others > 0.0:
                    average += others * pooled.signal[q, g, k, 1]
                total = mine + others
                seen |= total > 0.0
                v = memory.signals[g].v[k, l]
                if memory.binary[g]:
                    b = (average + 0.5) / (total + 1.0)
                    v = b * (1.0 - b)
                prior = v / SPREAD
                guess = (average + prior * memory.mean[g]) / (total + prior)
                mean += weight * guess
                square += weight * guess * guess
                u += weight * min(v / (total + prior), SPREAD)
            u = min(u + max(square - mean * mean, 0.0), SPREAD)
            model.means[g, h, i, a] = mean
            model.signals[g, h, i, a] = u
        if not seen:
            for g in range(C):
                model.means[g, h, i, a] = 1.0
                model.signals[g, h, i, a] = SPREAD
    # The average over known actions stands in for what a pair's own few visits do not show.
    known = 0.0
    width = 2 * C
    if not last:
        for a in range(A):
            if model.row[a, width] > 0.0:
                known += 1.0
    for a in range(A):
        spread_whole, spread_g, n = 0.0, 0.0, 0.0
        if not last:
            n = model.row[a, width]
        least = max(n, 0.25)
        for g in range(C):
            variance = 0.0
            if known > 0.0:
                first, second = 0.0, 0.0
                for other in range(A):
                    if model.row[other, width] > 0.0:
                        first += model.row[other, 2 * g] / known
                        second += model.row[other, 2 * g + 1] / known
                first = (n * model.row[a, 2 * g] + 0.5 * first) / (n + 0.5)
                second = (n * model.row[a, 2 * g + 1] + 0.5 * second) / (n + 0.5)
                variance = max(second - first * first, 0.0) / least
            if g == 0:
                whole = model.signals[0, h, i, a] + variance
                for k in range(K):
                    mu = plan.mu[k]
                    whole += mu * mu * model.signals[1 + k, h, i, a]
                bonus = settings.reward_bonus * np.sqrt(whole * growth)
                bonus += settings.range_bonus * (H - h - 1) / max(n, 1.0) if not last else 0.0
                bonus += settings.visit_bonus / np.sqrt(least if not last else 1.0)
            else:
                bonus = settings.utility_bonus * np.sqrt(model.signals[g, h, i, a] + variance)
                model.signals[g, h, i, a] = min(model.means[g, h, i, a] + bonus, 1.0)
                continue
            spread_whole = bonus
        model.signals[0, h, i, a] = model.means[0, h, i, a] + spread_whole


@jit_part
def take_policy(memory, settings, model, policy):
    """Take over a policy (H, N, A) of the model, and write its values there."""
    plan = memory.plan
    C, H, N, A = model.means.shape
    for h in range(H - 1, -1, -1):
        for i in range(plan.count[h]):
            s = plan.reach[h, i]
            for c in range(C):
                plan.values[c, h, s] = 0.0
            for a in range(A):
                share = policy[h, i, a]
                plan.policy[h, i, a] = share
                if share == 0.0:
                    continue
                for c in range(C):
                    plan.values[c, h, s] += share * model.means[c, h, i, a]
                if h + 1 < H:
                    row = (h * N + i) * A + a
                    for e in range(model.offsets[row], model.offsets[row + 1]):
                        state = plan.reach[h + 1, model.states[e]]
                        for c in range(C):
                            plan.values[c, h, s] += (
                                share * model.p[e] * plan.values[c, h + 1, state]
                            )
            whole = plan.values[0, h, s]
            for c in range(1, C):
                whole += plan.mu[c - 1] * plan.values[c, h, s]
                plan.spread[c, h, s] = plan.values[c, h, s]
            plan.spread[0, h, s] = max(whole, (1.0 - settings.fade) * plan.spread[0, h, s])


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(memory, settings, work, one, several, thresholds):
    """Entry point of `plan`."""
    return plan(memory, settings, work, one, several, thresholds)


@jit
def draw(plan, h, s, u):
    """Entry point of `act`."""
    return act(plan, h, s, u)


@jit
def end(states, actions, signals, settings, memory):
    """Entry point of `learn`."""
    learn(states, actions, signals, settings, memory)
