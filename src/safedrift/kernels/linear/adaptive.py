"""Planning on filtered coefficients, compiled: play, learn, notice changes, and plan.

After an episode every expert is charged for what it predicted, then learns (`filters`, `experts`).
A plan averages the heaviest experts of each quantity: with weights w_i, means θ_i, covariances Σ_i

    θ = Σ_i w_i θ_i,    cov = Σ_i w_i (v_i Σ_i + (θ_i - θ)(θ_i - θ)ᵀ)     (transitions: v_i = 1)

makes rows P̂ (negative entries 0, divided by their sum), r̂ = ⟨φ, θ_r⟩ and ĝ = ⟨φ, θ_g⟩ within [0, 1].
With multipliers μ and values V of the last plan, ψ^V(x, a) = Σ_y x_y V(y), and |x|² = xᵀ cov x,

    r̃ = r̂ + c_r √(|φ|²_r + Σ_k μ_k² |φ|²_g,k + |ψ^(V_r + μ·V_g)|²),
    g̃ = min(1, ĝ + c_g √(|φ|²_g + |ψ^V_g|²)),

each |φ|² at most 0.1, and the constrained optimum of (P̂, r̃, g̃, b) is played. Where no policy of that
model is safe, c_g is multiplied by 5, at most twice: what might be safe has to be tried, or a wrong
estimate of it would never be corrected.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels import exact
from safedrift.kernels.linear.experts import (
    CHOSEN,
    SLOWEST,
    SPREAD,
    Experts,
    alarmed,
    choose,
    forgive,
    heaviest,
    matters,
    pay,
    pay_signal,
    settle,
    start_again,
)
from safedrift.kernels.linear.filters import (
    Basis,
    Filters,
    absorb,
    absorb_rows,
    age,
    chance,
    entry_of,
    expected,
    follow,
    observe_row,
    raw,
    spread,
)
from safedrift.kernels.planning import columns
from safedrift.kernels.stepping import first_state, next_linear, observe_linear
from safedrift.kernels.types import FloatArray, TableArrays, jit, jit_inline, jit_part

MOST_MU = 10.0  # multiplier that bonuses and the next plan start from, at most
ATTEMPTS, BOLDER = 3, 5.0  # plans with ever larger c_g, where no policy seems safe


class Settings(NamedTuple):
    """Numbers the learner is built with."""

    move_rates: FloatArray  # (kP,) κ of transitions
    signal_rates: FloatArray  # (kS,) κ of signals
    unit: FloatArray  # (2,) q of transitions and signals
    prior: FloatArray  # (2,) variance of a coefficient before anything is known, likewise
    limits: FloatArray  # (2,) of C, likewise
    doubt: float  # of a filter that was corrected
    every: float  # most episodes between two plans
    pace: float  # episodes since the last alarm over episodes between two plans
    reward_bonus: float  # c_r
    utility_bonus: float  # c_g
    moved: float  # change of a threshold that calls for a plan


class Clock(NamedTuple):
    """Episodes, and what happened after the last one."""

    episode: NDArray[np.int64]  # (1,) episodes finished
    next_plan: NDArray[np.int64]  # (1,) episode before which to plan
    last_alarm: NDArray[np.int64]  # (1,) episode after which planning experts were alarmed last
    alarms: NDArray[np.int64]  # (2+K, k) alarms so far, by quantity and filter
    changed: NDArray[np.bool_]  # (2+K,) which quantities had an alarm that matters, just now
    replanned: NDArray[np.bool_]  # (1,) before the episode just finished
    binary: NDArray[np.bool_]  # (1+K,) only 0 and 1 were seen so far


class Plan(NamedTuple):
    """The policy in use, and values of it in the model it was made for, without bonuses."""

    policy: FloatArray  # (H, S, A)
    values: FloatArray  # (1+K, H, S)
    start: FloatArray  # (1+K,) at the initial distribution
    mu: FloatArray  # (K,)
    thresholds: FloatArray  # (K,)
    feasible: NDArray[np.bool_]  # (1,)


class Memory(NamedTuple):
    """Everything the learner knows."""

    moves: Filters
    signals: Filters  # with a first axis of length 1+K
    move_experts: Experts
    signal_experts: Experts  # likewise
    clock: Clock
    plan: Plan


class Work(NamedTuple):
    """Where an episode is learnt from and plans are made; nothing is kept here."""

    basis: Basis
    phi: FloatArray  # (d2,) of the pair at hand
    moved: FloatArray  # (d2,)
    info: FloatArray  # (2, f, f) of a step, and of all steps of an episode
    score: FloatArray  # (2, f)
    rest: FloatArray  # (f,)
    chosen: FloatArray  # (CHOSEN, 3)
    move: FloatArray  # (H, f) z of the model
    move_cov: FloatArray  # (H, f, f)
    signal: FloatArray  # (1+K, H, d2)
    signal_cov: FloatArray  # (1+K, H, d2, d2 or 1)
    ahead: FloatArray  # (1+K, f) ψ^V of the pair at hand
    spreads: FloatArray  # (1+K,) |φ|² of the pair at hand
    means: FloatArray  # (1+K, H, S, A) r̂ and ĝ
    bonused: FloatArray  # (1+K, H, S, A) r̃ and g̃
    initial: FloatArray  # (S,) distribution of the first state
    tables: TableArrays  # the model, as a world of one episode
    rewards: FloatArray  # its rewards with a signal axis
    episodes: NDArray[np.int64]  # (1,) 0
    mu: FloatArray  # (K,) of the plan in the making
    numbers: FloatArray  # (1, 8)
    answers: columns.Answers
    changes: FloatArray  # (1, H)
    policies: FloatArray  # (1, H, S, A)
    ends: exact.Ends


class Trace(NamedTuple):
    """What the learner shows of B episodes."""

    mu: FloatArray  # (B, K)
    estimated_reward: FloatArray  # (B,)
    estimated_utility: FloatArray  # (B, K)
    feasible: NDArray[np.bool_]  # (B,)
    replanned: NDArray[np.bool_]  # (B,)
    changed: NDArray[np.bool_]  # (B, 2+K)


# ---------------------------------------------------------------- playing


@jit
def play(arrays, settings, memory, work, one, several, inputs, buffer, out, trace):
    """Play and learn B episodes.

    `one` is scratch of `exact` where there is one constraint, `several` that of `columns` where
    there are more; the other is None.
    """
    B, H = inputs.action_uniforms.shape
    A = memory.plan.policy.shape[2]
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    C = signals.shape[0]
    written = 0
    for e in range(B):
        m = memory.clock.episode[0]
        prepare(memory, settings, work, one, several, arrays.thresholds[m])
        if inputs.measured[e]:
            copy(memory.plan.policy, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            states[h] = s
            actions[h] = act(memory.plan.policy[h, s], inputs.action_uniforms[e, h])
            observe_linear(arrays, m, h, s, actions[h], inputs.noisy, u, H + h * C, signals, A)
            for c in range(C):
                out.returns[e, c] += signals[c, h]
            if h + 1 < H:
                s = next_linear(arrays, m, h, s, actions[h], u[h + 1], A)
        learn(states, actions, signals, settings, memory, work)
        show(memory, e, trace)


@jit_part
def copy(policy, out):
    """Copy a policy (H, S, A)."""
    H, S, A = policy.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                out[h, s, a] = policy[h, s, a]


@jit_part
def show(memory, e, trace):
    """Write what there is to show of the episode just finished, number e of a chunk."""
    plan, clock = memory.plan, memory.clock
    trace.estimated_reward[e] = plan.start[0]
    for k in range(plan.mu.size):
        trace.mu[e, k] = plan.mu[k]
        trace.estimated_utility[e, k] = plan.start[1 + k]
    trace.feasible[e] = plan.feasible[0]
    trace.replanned[e] = clock.replanned[0]
    for q in range(clock.changed.size):
        trace.changed[e, q] = clock.changed[q]


@jit_inline
def act(shares, u):
    """Draw an action."""
    below, last = 0.0, 0
    for a in range(shares.size):
        if shares[a] > 0.0:
            below += shares[a]
            last = a
            if u < below:
                break
    return np.int64(last)


# ---------------------------------------------------------------- learning


@jit_inline
def filters_of(memory, c):
    """Filters of signal c."""
    return Filters(memory.signals.mean[c], memory.signals.cov[c])


@jit_inline
def experts_of(memory, c):
    """Experts of signal c."""
    of = memory.signal_experts
    return Experts(of.weight[c], of.v[c], of.seen[c], of.C[c], of.loss[c], of.product[c])


@jit_inline
def row_at(basis, h, pair, pairs):
    """Row of a pair at step h; features that are the same at every step have one set of rows."""
    return (h * pairs if basis.offsets.size > pairs + 1 else 0) + pair


@jit_inline
def read_phi(basis, h, pair, phi):
    """Write φ of a pair; returns the number of its unit vector instead where it is one, or -1."""
    if basis.one_hot:
        return pair
    step = h if basis.phi.shape[0] > 1 else 0
    for i in range(phi.size):
        phi[i] = basis.phi[step, pair, i]
    return -1


@jit_part
def learn(states, actions, signals, settings, memory, work):
    """Learn from a finished episode, answer alarms, and decide when to plan next."""
    clock, experts = memory.clock, memory.move_experts
    C, H = signals.shape
    _, S, A = memory.plan.policy.shape
    age(memory.moves, settings.move_rates, settings.unit[0], settings.prior[0])
    for c in range(C):
        age(filters_of(memory, c), settings.signal_rates, settings.unit[1], settings.prior[1])
    clear(work, 1)
    for h in range(H):
        pair = states[h] * A + actions[h]
        hot = read_phi(work.basis, h, pair, work.phi)
        for c in range(C):
            y = signals[c, h]
            if clock.binary[c] and y != 0.0 and y != 1.0:
                clock.binary[c] = False
                start_again(experts_of(memory, c))
            see_signal(
                filters_of(memory, c), experts_of(memory, c), h, y, hot, clock.binary[c], work
            )
        if h + 1 < H:
            row = row_at(work.basis, h, pair, S * A)
            see_successor(memory.moves, memory.move_experts, h, row, states[h + 1], work)
    urgent = False
    for q in range(clock.changed.size):
        clock.changed[q] = False
    if H > 1:
        for k in range(settings.move_rates.size):
            filters = memory.moves
            absorb_rows(
                filters.mean[k, H], filters.cov[k, H], work.info[1], work.score[1], work.rest
            )
        settle(experts, -1.0)
        urgent |= answer(memory.moves, experts, 0, settings, clock, 0)
    for c in range(C):
        settle(experts_of(memory, c), -1.0 if clock.binary[c] else 0.5)
        urgent |= answer(filters_of(memory, c), experts_of(memory, c), 1, settings, clock, 1 + c)
    clock.episode[0] += 1
    if urgent:
        clock.last_alarm[0] = clock.episode[0]
        clock.next_plan[0] = clock.episode[0]


@jit_part
def clear(work, which):
    """Set information and score to zero."""
    f = work.rest.size
    for i in range(f):
        work.score[which, i] = 0.0
        for j in range(f):
            work.info[which, i, j] = 0.0


@jit_part
def see_signal(filters, experts, h, y, hot, binary, work):
    """Charge the experts of a signal for its value y at step h, then let them learn it."""
    experts.seen[0] += 1.0
    rate = max(1.0 / (experts.seen[0] + 1.0), SLOWEST)
    H = filters.mean.shape[1] - 1
    for k in range(filters.mean.shape[0]):
        for l in range(2):
            slot = h if l == 0 else H
            mean, cov = filters.mean[k, slot], filters.cov[k, slot]
            guess = expected(mean, work.phi, hot)
            u = spread(cov, work.phi, hot, work.moved)
            pay_signal(experts, k, l, y, guess, u, binary, rate)
            absorb(mean, cov, hot, work.moved, u, y - guess)


@jit_part
def see_successor(filters, experts, h, row, state, work):
    """Charge the experts of transitions for a successor, then let those of step h learn it."""
    basis, H = work.basis, filters.mean.shape[1] - 1
    hit = entry_of(basis, row, state)
    for k in range(filters.mean.shape[0]):
        pay(experts, k, 0, chance(basis, row, hit, filters.mean[k, h]))
        pay(experts, k, 1, chance(basis, row, hit, filters.mean[k, H]))
    clear(work, 0)
    observe_row(basis, row, hit, work.info[0], work.score[0])
    for i in range(work.rest.size):
        work.score[1, i] += work.score[0, i]
        for j in range(work.rest.size):
            work.info[1, i, j] += work.info[0, i, j]
    for k in range(filters.mean.shape[0]):
        absorb_rows(filters.mean[k, h], filters.cov[k, h], work.info[0], work.score[0], work.rest)


@jit_part
def answer(filters, experts, kind, settings, clock, quantity):
    """Correct filters that were shown to be wrong; whether to plan at once.

    `kind` is 0 for transitions and 1 for signals, `quantity` the row of `clock.alarms`.
    """
    for k in range(experts.weight.shape[0]):
        j = alarmed(experts, k, settings.limits[kind])
        if j >= 0:
            clock.alarms[quantity, k] += 1
            clock.changed[quantity] |= matters(experts.weight, k)
            v = 1.0 if kind == 0 else experts.v[j, heaviest(experts.weight) % 2]
            follow(filters, k, j, settings.doubt / v, settings.prior[kind])
            forgive(experts, k, j)
            clock.changed[quantity] |= heaviest(experts.weight) // 2 == k
    return clock.changed[quantity]


# ---------------------------------------------------------------- planning


@jit_part
def prepare(memory, settings, work, one, several, thresholds):
    """Plan for the coming episode, if it is time to or a threshold moved."""
    clock, plan = memory.clock, memory.plan
    m = clock.episode[0]
    due = m >= clock.next_plan[0]
    for k in range(thresholds.size):
        due |= m > 0 and abs(thresholds[k] - plan.thresholds[k]) > settings.moved
    clock.replanned[0] = due
    if not due:
        return
    for k in range(thresholds.size):
        plan.thresholds[k] = thresholds[k]
        work.tables.thresholds[0, k] = thresholds[k]
    average(memory, work)
    bonus = settings.utility_bonus
    for _ in range(ATTEMPTS):
        write_model(plan, settings.reward_bonus, bonus, work)
        solve(work, one, several, plan)
        if plan.feasible[0]:
            break
        bonus *= BOLDER
    copy_multipliers(work.mu, plan.mu)
    copy(work.policies[0], plan.policy)
    evaluate(plan, work)
    wait = min(max((m - clock.last_alarm[0]) / settings.pace, 1.0), settings.every)
    clock.next_plan[0] = m + np.int64(wait)


@jit_part
def average(memory, work):
    """Write mean and covariance of the heaviest experts, for every step."""
    choose(memory.move_experts.weight, work.chosen)
    average_of(memory.moves, memory.move_experts.v, True, work.chosen, work.move, work.move_cov)
    for c in range(work.signal.shape[0]):
        filters, experts = filters_of(memory, c), experts_of(memory, c)
        choose(experts.weight, work.chosen)
        average_of(filters, experts.v, False, work.chosen, work.signal[c], work.signal_cov[c])


@jit_part
def average_of(filters, v, absolute, chosen, mean, cov):
    """Mean (H, d) and covariance (H, d, d or 1) of a mixture of experts.

    `absolute` says that covariances are not in units of v.
    """
    H, d, width = cov.shape
    for h in range(H):
        for i in range(d):
            mean[h, i] = 0.0
            for n in range(CHOSEN):
                if chosen[n, 2] > 0.0:
                    k, l = int(chosen[n, 0]), int(chosen[n, 1])
                    mean[h, i] += chosen[n, 2] * filters.mean[k, H if l else h, i]
        for i in range(d):
            for j in range(width):
                cov[h, i, j] = 0.0
                for n in range(CHOSEN):
                    if chosen[n, 2] > 0.0:
                        k, l = int(chosen[n, 0]), int(chosen[n, 1])
                        slot = H if l else h
                        other = j if width > 1 else i
                        apart = filters.mean[k, slot, i] - mean[h, i]
                        apart *= filters.mean[k, slot, other] - mean[h, other]
                        own = filters.cov[k, slot, i, j] * (1.0 if absolute else v[k, l])
                        cov[h, i, j] += chosen[n, 2] * (own + apart)


@jit_part
def write_model(plan, reward_bonus, utility_bonus, work):
    """Write the estimated model, and signals with bonuses c_r and c_g."""
    basis = work.basis
    C, H, S, A = work.means.shape
    p, offsets = work.tables.probabilities[0], work.tables.offsets
    for h in range(H):
        for s in range(S):
            for a in range(A):
                pair = s * A + a
                hot = read_phi(basis, h, pair, work.phi)
                for c in range(C):
                    mean = expected(work.signal[c, h], work.phi, hot)
                    work.means[c, h, s, a] = min(max(mean, 0.0), 1.0)
                    u = spread(work.signal_cov[c, h], work.phi, hot, work.moved)
                    work.spreads[c] = min(u, SPREAD)
                if h + 1 < H:
                    row = row_at(basis, h, pair, S * A)
                    write_row(
                        basis,
                        row,
                        work.move[h],
                        plan.values[:, h + 1],
                        p,
                        offsets[(h * S + s) * A + a],
                        work.ahead,
                    )
                add_bonuses(reward_bonus, utility_bonus, plan.mu, h, s, a, work)


@jit_part
def write_row(basis, row, z, values, p, first, ahead):
    """Write P̂ of a row from entry `first` on, and ψ^V for values (1+K, S)."""
    C, f = ahead.shape
    low, high = basis.offsets[row], basis.offsets[row + 1]
    for c in range(C):
        for i in range(f):
            ahead[c, i] = 0.0
    total = 0.0
    for e in range(low, high):
        p[first + e - low] = max(raw(basis, e, z), 0.0)
        total += p[first + e - low]
        for c in range(C):
            V = values[c, basis.states[e]]
            for i in range(f):
                ahead[c, i] += V * basis.x[e, i]
    for e in range(first, first + high - low):
        p[e] = p[e] / total if total > 0.0 else 1.0 / (high - low)


@jit_part
def add_bonuses(reward_bonus, utility_bonus, mu, h, s, a, work):
    """Write r̃ and g̃ of (h, s, a); uses up `work.ahead`."""
    C, H = work.means.shape[:2]
    whole = work.spreads[0]
    for c in range(1, C):
        u = work.spreads[c]
        whole += mu[c - 1] * mu[c - 1] * u
        if h + 1 < H:
            u += square(work.move_cov[h], work.ahead[c])
            for i in range(work.rest.size):
                work.ahead[0, i] += mu[c - 1] * work.ahead[c, i]
        g = work.means[c, h, s, a] + utility_bonus * np.sqrt(u)
        work.bonused[c, h, s, a] = min(g, 1.0)
    if h + 1 < H:
        whole += square(work.move_cov[h], work.ahead[0])
    work.bonused[0, h, s, a] = work.means[0, h, s, a] + reward_bonus * np.sqrt(whole)


@jit_inline
def square(cov, x):
    """xᵀ cov x, at least 0."""
    total = 0.0
    for i in range(x.size):
        for j in range(x.size):
            total += x[i] * cov[i, j] * x[j]
    return max(total, 0.0)


@jit_part
def solve(work, one, several, plan):
    """Write the optimal policy and its multipliers; where no policy is safe, `MOST_MU` for all.

    The search starts from the multipliers of the last plan.
    """
    mu = work.mu
    copy_multipliers(plan.mu, mu)
    if one is not None:
        exact.solve_episodes(
            work.tables,
            work.rewards,
            work.episodes,
            mu,
            work.numbers,
            work.changes,
            work.policies,
            work.ends,
            one,
        )
        plan.feasible[0] = work.numbers[0, 0] == exact.OPTIMAL
        mu[0] = min(work.numbers[0, 1], MOST_MU) if plan.feasible[0] else MOST_MU
    if several is not None:  # not "else": Numba drops a branch only if its own argument is None
        columns.solve_episodes(
            work.tables,
            work.rewards,
            work.episodes,
            mu,
            work.answers,
            work.changes,
            work.policies,
            work.ends,
            several,
        )
        plan.feasible[0] = work.answers.status[0] == exact.OPTIMAL
        for k in range(mu.size):
            found = work.answers.multipliers[0, k]
            mu[k] = min(found, MOST_MU) if plan.feasible[0] else MOST_MU


@jit_inline
def copy_multipliers(mu, out):
    """Copy multipliers (K,)."""
    for k in range(mu.size):
        out[k] = mu[k]


@jit_part
def evaluate(plan, work):
    """Write the values of the plan's policy in the model without bonuses."""
    C, H, S, A = work.means.shape
    p, offsets, states = work.tables.probabilities[0], work.tables.offsets, work.tables.states
    for h in range(H - 1, -1, -1):
        for s in range(S):
            for c in range(C):
                plan.values[c, h, s] = 0.0
            for a in range(A):
                share = plan.policy[h, s, a]
                if share > 0.0:
                    row = (h * S + s) * A + a
                    for c in range(C):
                        q = work.means[c, h, s, a]
                        for e in range(offsets[row], offsets[row + 1]):
                            q += p[e] * plan.values[c, h + 1, states[e]]
                        plan.values[c, h, s] += share * q
    for c in range(C):
        plan.start[c] = 0.0
        for s in range(S):
            plan.start[c] += work.initial[s] * plan.values[c, 0, s]


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(memory, settings, work, one, several, thresholds):
    """Entry point of `prepare`."""
    prepare(memory, settings, work, one, several, thresholds)


@jit
def draw(plan, h, s, u):
    """Entry point of `act`."""
    return act(plan.policy[h, s], u)


@jit
def end(states, actions, signals, settings, memory, work):
    """Entry point of `learn`."""
    learn(states, actions, signals, settings, memory, work)
