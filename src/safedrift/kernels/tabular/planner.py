"""Planning on filters, compiled: play, learn, notice changes, and plan as often as it pays.

`filters` has what is learnt, `evidence` the alarms, `plans` the plans and when they are made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.tabular import events, factors
from safedrift.kernels.tabular.bonuses import is_trial
from safedrift.kernels.tabular.evidence import (
    alarmed,
    clear_alarm,
    correct_signals,
    correct_transitions,
    forget_losses,
    jump,
    settle,
    strength_of,
)
from safedrift.kernels.tabular.exploration import spend
from safedrift.kernels.tabular.filtered_model import matters
from safedrift.kernels.tabular.filters import (
    age_signals,
    age_transitions,
    cell_of,
    experts_of,
    see_signal,
    see_successor,
)
from safedrift.kernels.tabular.plans import is_due, plan, wait_on
from safedrift.kernels.tabular.reserve import see_returns
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_part


class Trace(NamedTuple):
    """What the learner shows of B episodes."""

    mu: FloatArray  # (B, K)
    estimated_reward: FloatArray  # (B,) of the plan in use, without bonuses
    estimated_utility: FloatArray  # (B, K)
    feasible: NDArray[np.bool_]  # (B,) some policy looked safe
    replanned: NDArray[np.bool_]  # (B,) before this episode
    alarm: NDArray[np.bool_]  # (B,) after it: a filter that planning uses was wrong


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
        m = memory.know.episode[0]
        due = is_due(memory.clock, m, settings)
        if due and not plan(memory, settings, work, one, several, arrays.thresholds[m]):
            return e
        trace.replanned[e] = due
        show(memory.plan, e, trace)
        if inputs.measured[e]:
            copy_table(memory.plan.policy, out.policies[written])
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
        trace.alarm[e] = learn(states, actions, signals, settings, memory)
    return B


@jit_part
def copy_table(source, target):
    """Copy a policy (H, S, A)."""
    H, S, A = source.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                target[h, s, a] = source[h, s, a]


@jit_part
def show(plan, e, trace):
    """Write what there is to show of the plan in episode number e of a chunk."""
    trace.feasible[e] = plan.found[0] > 0.0
    trace.estimated_reward[e] = plan.found[1]
    for k in range(plan.mu.size):
        trace.mu[e, k] = plan.mu[k]
        trace.estimated_utility[e, k] = plan.found[2 + k]


@jit_inline
def act(plan, h, s, u):
    """Draw an action with the uniform u."""
    below, last = 0.0, 0
    for a in range(plan.policy.shape[2]):
        if plan.policy[h, s, a] > 0.0:
            below += plan.policy[h, s, a]
            last = a
            if u < below:
                break
    return np.int64(last)


# ---------------------------------------------------------------- learning


@jit
def learn(states, actions, signals, settings, memory):
    """Learn from a finished episode; whether a filter that planning uses was found wrong."""
    know, plan, clock = memory.know, memory.plan, memory.clock
    H, C = states.size, signals.shape[0]
    S, A = plan.policy.shape[1], plan.policy.shape[2]
    m, tried = know.episode[0], False
    factors.predict(know.factors)
    for h in range(H):
        pair = states[h] * A + actions[h]
        tried |= is_trial(know.own, h * S * A + pair, m, H)
        c, p = cell_of(know.own, h * S * A + pair, m), cell_of(know.pooled, pair, m)
        age_signals(know.own, c, m, settings.signals)
        age_signals(know.pooled, p, m, settings.signals)
        know.seen[0] += 1.0
        rate = max(1.0 / know.seen[0], 1e-4)
        for i in range(C):
            x = signals[i, h]
            if know.binary[i] and x != 0.0 and x != 1.0:
                know.binary[i] = False
                forget_losses(experts_of(know.signals, i))
                know.factors.charged[1 + i, 0], know.factors.charged[1 + i, 1] = 0.0, 1.0
            experts, key = experts_of(know.signals, i), h * S * A + pair
            factors.hear_signal(know.factors, c, key, i, x, know.binary[i], know.mean[i])
            see_signal(know.own, know.pooled, c, p, i, x, know.binary[i], experts, settings.signals)
            know.mean[i] += (x - know.mean[i]) * rate
        if h + 1 < H:
            age_transitions(know.own, c, m, settings.moves)
            age_transitions(know.pooled, p, m, settings.moves)
            factors.hear_successor(know.factors, know.own, c, h * S * A + pair, states[h + 1], S)
            see_successor(know.own, know.pooled, c, p, states[h + 1], S, know.moves, settings.moves)
    learn_factors(states, actions, signals, know, A)
    wrong = False
    if H > 1:
        factors.weigh(know.factors, know.moves, 0, -1.0)
        settle(know.moves, settings.moves, -1.0, H - 1.0, m)
        wrong |= answer_alarms_of_moves(memory, settings.limits[0], m)
    for i in range(C):
        experts = experts_of(know.signals, i)
        sign = -1.0 if know.binary[i] else 0.5
        factors.weigh(know.factors, experts, 1 + i, sign)
        settle(experts, settings.signals, sign, float(H), m)
        wrong |= answer_alarms_of_signals(memory, settings.limits[1], i, m)
    know.episode[0] = m + 1
    spend(memory.exploration, settings.exploration, m + 1.0, know.own.used[0] / H)
    if plan.local[0, states[0]] >= 0:
        see_returns(memory.returns, plan.values[1:, 0, states[0]], signals)
    wait_on(clock, m, H, plan.known[4], wrong, tried, settings)
    return wrong


@jit_inline
def learn_factors(states, actions, signals, know, A):
    """Let factors and their loadings learn from the episode that they predicted."""
    factors.locate(know.factors)
    H, S = states.size, know.own.index.size // (states.size * A)
    for h in range(H):
        c = know.own.index[(h * S + states[h]) * A + actions[h]]
        factors.load(know.factors, c, h, signals)
        if h + 1 < H:
            factors.load_successor(know.factors, know.own, c, states[h + 1])


@jit_part
def answer_alarms_of_moves(memory, limit, m):
    """Correct filters of transitions that were found wrong; whether planning uses one of them."""
    know, experts, used = memory.know, memory.know.moves, False
    for part in range(experts.C.shape[0]):
        cells = know.own if part == 0 else know.pooled
        for k in range(experts.weight.shape[0]):
            j = alarmed(experts, part, k, limit)
            if j < 0:
                continue
            since, J = experts.since[part, k, j], jump(experts, part, k, j, 2.0, 1.0)
            clear_alarm(experts, part, k, j, m)
            if matters(experts, part, k):
                used = True
                events.note_move(memory.events, know.own, cells, memory.plan, k, j, since, m)
            correct_transitions(cells, k, j, since, J)
            memory.clock.alarms[0, k] += 1
    return used


@jit_part
def answer_alarms_of_signals(memory, limit, i, m):
    """Correct filters of signal i that were found wrong; whether planning uses one of them."""
    know, experts, used = memory.know, experts_of(memory.know.signals, i), False
    for part in range(experts.C.shape[0]):
        cells = know.own if part == 0 else know.pooled
        for k in range(experts.weight.shape[0]):
            j = alarmed(experts, part, k, limit)
            if j < 0:
                continue
            v = experts.v[j, strength_of(experts, part)]
            since, J = experts.since[part, k, j], jump(experts, part, k, j, 1.0, v)
            clear_alarm(experts, part, k, j, m)
            if matters(experts, part, k):
                used = True
                events.note_signal(memory.events, know.own, cells, memory.plan, i, k, j, since, m)
            correct_signals(cells, i, k, j, since, J)
            memory.clock.alarms[1 + i, k] += 1
    return used


# ---------------------------------------------------------------- entry points for Python


@jit
def due(memory, settings):
    """Entry point of `is_due`."""
    return is_due(memory.clock, memory.know.episode[0], settings)


@jit
def draw(plan, h, s, u):
    """Entry point of `act`."""
    return act(plan, h, s, u)
