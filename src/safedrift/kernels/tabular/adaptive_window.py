"""A window that filters decide: data weigh what the best predictions so far say they weigh.

`filters` keeps beliefs about transitions, reward and utilities for several drift rates κ, scores
them by their predictions and raises alarms. Here the window of a learner (`window`) is made to hold
what the heaviest filter of each quantity believes:

    n(x, a)        effective observations of its transitions: 1/n ← 1/n + κ Δ in Δ episodes
    n(x, a, x')    n(x, a) times the shares of its successors
    sums           n(x, a) times the means of reward and utilities

so that every estimate and every bonus that a learner computes from counts follows the drift there
is. κ = 0 keeps all data, a large κ the last few. At an alarm a filter that was wrong takes over
what a faster one knows; the window's alarms are those of the filters that it follows. A pair is
forgotten, n(x, a) = 0, as soon as a followed filter of a signal knows no more of it than before its
first visit: v/n > `SPREAD`, the variance between pairs.

After an episode its own pairs are written to the window. All pairs are when the heaviest filter of
a quantity changes or is corrected, and every `REFRESH` episodes, because counts shrink while nobody
visits. Filters and window see the same transitions in the same order, so that the successors of a
pair stand in the same order in both.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.tabular import window as data
from safedrift.kernels.tabular.evidence import (
    alarmed,
    clear_alarm,
    correct_signals,
    correct_transitions,
    forget_losses,
    heaviest,
    jump,
    settle,
)
from safedrift.kernels.tabular.filters import (
    SPREAD,
    age_signals,
    age_transitions,
    cell_of,
    experts_of,
    growth_of,
    see_signal,
    see_successor,
)
from safedrift.kernels.types import jit_inline, jit_part, jit_shared

REFRESH = 64  # episodes


@jit_shared
def follow(states, actions, signals, filters, hyper, memory):
    """Let the filters learn from an episode that is in the window, and rewrite the window.

    Parameters
    ----------
    states, actions : (H,)
    signals : (1+K, H)
    filters : Filters, or None: the window forgets in another way
    """
    if filters is None:
        return
    m = memory.clock.episode[0]
    S, A = memory.policy.slot_of.shape[1], memory.policy.pi.shape[1]
    observe_episode(states, actions, signals, m, S, A, filters)
    changed = answer_alarms(m, filters)
    if changed or m % REFRESH == 0:
        for c in range(filters.own.used[0]):
            write_pair(np.int64(c), m, filters, hyper, memory)
    else:
        for h in range(states.size):
            c = filters.own.index[(h * S + states[h]) * A + actions[h]]
            write_pair(np.int64(c), m, filters, hyper, memory)


@jit_part
def stops(filters):
    """Whether the last episode raised an alarm."""
    found = False
    if filters is not None:
        for q in range(filters.alarm.size):
            found |= filters.alarm[q]
    return found


@jit_part
def keep_alarms(e, filters, alarms):
    """Record which alarms were raised by episode e of a chunk: alarms (B, 2+K)."""
    if filters is None:
        return
    for q in range(filters.alarm.size):
        alarms[e, q] = filters.alarm[q]


# ---------------------------------------------------------------- learning


@jit_part
def observe_episode(states, actions, signals, m, S, A, filters):
    """Score all filters on an episode, then let them take it in."""
    own, pooled = filters.own, filters.pooled
    moves, rates = filters.settings.moves, filters.settings.signals
    H = states.size
    for h in range(H):
        pair = states[h] * A + actions[h]
        c, p = cell_of(own, h * S * A + pair, m), cell_of(pooled, pair, m)
        age_signals(own, c, m, rates)
        age_signals(pooled, p, m, rates)
        for i in range(signals.shape[0]):
            x = signals[i, h]
            if filters.binary[i] and x != 0.0 and x != 1.0:
                filters.binary[i] = False
                forget_losses(experts_of(filters.signals, i))
            experts = experts_of(filters.signals, i)
            see_signal(own, pooled, c, p, i, x, filters.binary[i], experts, rates)
        age_transitions(own, c, m, moves)
        age_transitions(pooled, p, m, moves)
        if h + 1 < H:
            see_successor(own, pooled, c, p, states[h + 1], S, filters.moves, moves)
        else:  # nothing to predict, but n(x, a) counts visits at every step
            for k in range(moves.kappa.size):
                own.n[c, k] += 1.0
    if H > 1:
        settle(filters.moves, moves, -1.0, H - 1.0, m)
    for i in range(signals.shape[0]):
        experts = experts_of(filters.signals, i)
        settle(experts, rates, -1.0 if filters.binary[i] else 0.5, float(H), m)


@jit_part
def answer_alarms(m, filters):
    """Correct filters that were shown to be wrong; whether the window must be written anew."""
    changed = False
    for q in range(filters.followed.size):
        experts = filters.moves if q == 0 else experts_of(filters.signals, q - 1)
        kk, ll = experts.weight.shape
        filters.alarm[q] = False
        for k in range(kk):
            j = alarmed(experts, 0, k, filters.settings.limits[min(q, 1)])
            if j < 0:
                continue
            since = experts.since[0, k, j]
            if q == 0:
                J = jump(experts, 0, k, j, 2.0, 1.0)
                correct_transitions(filters.own, k, j, since, J)
            else:
                J = jump(experts, 0, k, j, 1.0, experts.v[j, 0])
                correct_signals(filters.own, q - 1, k, j, since, J)
            clear_alarm(experts, 0, k, j, m)
            filters.alarm[q] |= k == filters.followed[q]
        best = heaviest(experts.weight) // ll
        changed |= filters.alarm[q] or best != filters.followed[q]
        filters.followed[q] = best
    return changed


# ---------------------------------------------------------------- the window


@jit_inline
def write_pair(c, m, filters, hyper, memory):
    """Write to the window what the followed filters believe of the pair of cell c."""
    own, window, policy = filters.own, memory.window, memory.policy
    S, A = policy.slot_of.shape[1], policy.pi.shape[1]
    h, rest = divmod(own.key[c], S * A)
    s, a = divmod(rest, A)
    i = np.int64(policy.slot_of[h, s])  # active: the window never drops a state
    k = filters.followed[0]
    counted = own.n[c, k]
    n = 0.0
    if not forgotten(c, m, filters):
        passed = float(m - own.last_move[c])
        n = counted / (1.0 + growth_of(filters.settings.moves, k, passed) * counted)
    data.set_count(h, a, i, n, hyper, window)
    for j in range(window.signal_sums.shape[0]):
        window.signal_sums[j, h, a, i] = n * own.signal[c, j, filters.followed[1 + j], 1]
    unit = own.scale[c, k] * (n / counted) if n > 0.0 else 0.0
    e, f = np.int64(window.last[h, a, i]), np.int64(own.head[c])
    while e >= 0:
        window.edge_times[h, e] = own.edge_count[f, k] * unit
        e, f = np.int64(window.edge_before[h, e]), np.int64(own.edge_next[f])


@jit_inline
def forgotten(c, m, filters):
    """Whether a followed filter of a signal knows nothing of cell c any more."""
    own, rates = filters.own, filters.settings.signals
    passed = float(m - own.last[c])
    lost = False
    for j in range(own.signal.shape[1]):
        k = filters.followed[1 + j]
        n = own.signal[c, j, k, 0]
        v = filters.signals.v[j, k, 0]
        lost |= passed > 0.0 and v * (1.0 + growth_of(rates, k, passed) * n) > SPREAD * n
    return lost
