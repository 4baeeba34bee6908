"""A planner on filtered coefficients, compiled: play, learn, notice changes.

Before an episode the planner plans if it is time to (`plans`). After it

    all filters age by one episode                                    (`filters.age`)
    step by step, experts pay for what they predicted, then learn it  (`experts`, `filters`)
    weights and alarm statistics are brought up to date               (`experts.settle`)
    filters with an alarm go on from a faster one                     (`filters.follow`)

The filter for all steps together sees the successors of an episode at once, at its end, and
signals as they come. The next plan is due after (m - last alarm)/10 episodes, at least 1 and at
most `every`; at once where a filter that plans are made with had an alarm, or a threshold moved.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.linear.adaptive_memory import experts_of, filters_of, read_phi, row_at
from safedrift.kernels.linear.experts import (
    SLOWEST,
    alarmed,
    forgive,
    heaviest,
    matters,
    pay,
    pay_signal,
    settle,
    start_again,
)
from safedrift.kernels.linear.filters import (
    absorb,
    absorb_rows,
    age,
    chance,
    entry_of,
    expected,
    follow,
    observe_row,
    spread,
)
from safedrift.kernels.linear.plans import copy, prepare
from safedrift.kernels.stepping import first_state, next_linear, observe_linear
from safedrift.kernels.types import jit, jit_inline, jit_part

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


@jit
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
        for pool in range(2):
            slot = h if pool == 0 else H
            mean, cov = filters.mean[k, slot], filters.cov[k, slot]
            guess = expected(mean, work.phi, hot)
            u = spread(cov, work.phi, hot, work.moved)
            pay_signal(experts, k, pool, y, guess, u, binary, rate)
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


# ---------------------------------------------------------------- entry points for Python


@jit
def draw(plan, h, s, u):
    """Entry point of `act`."""
    return act(plan.policy[h, s], u)
