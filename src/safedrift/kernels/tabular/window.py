"""The window of a learner with counts: what it has seen and not forgotten.

An episode enters the window (`absorb`) as counts n(x, a), n(x, a, x') and sums of observed rewards
and utilities. It leaves with all others (`open_window`), alone and oldest first (`drop_oldest`), or
gradually (`discount`). `kernels.tabular.memory` says how the window is stored.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS
from safedrift.kernels.types import jit_inline, jit_part, jit_shared, jit_source_inline


@jit_inline
def bonus_of_count(h, n, hyper):
    """Part of the bonus that depends on the step and the visit count alone."""
    if hyper.bonus == BERNSTEIN_BONUS:
        if n == 0.0:
            return np.inf
        H = hyper.root.size
        return hyper.c * hyper.c * (H - h) / n + hyper.lam / (n + hyper.lam)
    d = n + hyper.shift
    if hyper.shift == 0.0 and d < 1.0:  # discounted counts may be fractions
        d = 1.0
    return hyper.root[h] / np.sqrt(d) + hyper.tail[h] / (n + hyper.lam)


# ---------------------------------------------------------------- an episode enters


@jit_source_inline
def absorb(states, actions, signals, hyper, memory):
    """Put a finished episode into the window: counts, sums and transitions. Returns cap hits."""
    H = states.size
    q, window = memory.values.q, memory.window
    ahead = np.int64(-1)
    at_cap = 0
    for h in range(H - 1, -1, -1):
        i = find(h, states[h], memory.policy)
        if i < 0 or i >= window.active[h]:
            i = np.int64(activate(h, states[h], i, hyper, memory))
        a = actions[h]
        for c in range(signals.shape[0]):
            at_cap += q[c, h, a, i] >= H - h
        set_count(h, a, i, window.visits[h, a, i] + 1.0, hyper, window)
        for c in range(signals.shape[0]):
            window.signal_sums[c, h, a, i] += signals[c, h]
        if h + 1 < H:
            add_transition(h, a, i, ahead, memory)
        ahead = i
    return at_cap


@jit_inline
def set_count(h, a, i, n, hyper, window):
    """n(x, a) ← n, and what is computed from it."""
    window.visits[h, a, i] = n
    window.weight[h, a, i] = 1.0 / (n + hyper.lam)
    window.count_bonus[h, a, i] = bonus_of_count(h, n, hyper)


@jit_inline
def find(h, s, policy):
    """Slot of state s at step h, or -1 if its policy is uniform and it is not in the window."""
    i = policy.slot_of[h, s]
    if i < policy.slots[h] and policy.state[h, i] == s:
        return np.int64(i)
    return np.int64(-1)


@jit_part
def activate(h, s, i, hyper, memory):
    """Move state s from slot i (-1: from nowhere) behind the active slots and make it active."""
    policy, window, values = memory.policy, memory.window, memory.values
    A = policy.pi.shape[1]
    if i < 0:
        i = policy.slots[h]
        policy.slots[h] += 1
        policy.state[h, i] = s
        for a in range(A):
            policy.logit[h, a, i] = 0.0
            policy.logit_low[h, a, i] = 0.0
            policy.pi[h, a, i] = 1.0 / A
    j = window.active[h]
    window.active[h] += 1
    moved = policy.state[h, j]
    policy.state[h, i], policy.slot_of[h, moved] = moved, i
    policy.state[h, j], policy.slot_of[h, s] = s, j
    unseen = bonus_of_count(h, 0.0, hyper)
    for a in range(A):
        for array in (policy.logit, policy.logit_low, policy.pi):
            array[h, a, i], array[h, a, j] = array[h, a, j], array[h, a, i]
        window.visits[h, a, j] = 0.0
        window.weight[h, a, j] = 1.0 / hyper.lam
        window.count_bonus[h, a, j] = unseen
        window.last[h, a, j] = -1
        for c in range(window.signal_sums.shape[0]):
            window.signal_sums[c, h, a, j] = 0.0
        for c in range(values.q.shape[0]):  # equal for all actions, as it was when unvisited
            values.q[c, h, a, j] = values.v_unseen[c, h]
    return j


@jit_inline
def add_transition(h, a, i, ahead, memory):
    """Count one more transition from action a in slot i to slot `ahead` of step h+1."""
    window = memory.window
    e = find_transition(h, a, i, ahead, window)
    if e >= 0:
        window.edge_times[h, e] += 1.0
        return
    e = window.edges[h]
    window.edges[h] += 1
    window.edge_pair[h, e] = a * memory.policy.pi.shape[2] + i
    window.edge_next[h, e] = ahead
    window.edge_times[h, e] = 1.0
    window.edge_before[h, e] = window.last[h, a, i]
    window.last[h, a, i] = e


@jit_inline
def find_transition(h, a, i, ahead, window):
    """Number of the transition from action a in slot i to slot `ahead`, or -1."""
    e = np.int64(window.last[h, a, i])
    while e >= 0 and window.edge_next[h, e] != ahead:
        e = np.int64(window.edge_before[h, e])
    return e


# ---------------------------------------------------------------- forgetting


@jit_inline
def open_window(memory):
    """Discard all data; policies stay."""
    for h in range(memory.window.active.size):
        memory.window.active[h] = 0
        memory.window.edges[h] = 0


@jit_part
def discount(factor, hyper, memory):
    """Multiply all counts and sums by `factor`."""
    window = memory.window
    H, A, _ = window.visits.shape
    for h in range(H):
        for a in range(A):
            for i in range(window.active[h]):
                set_count(h, a, i, factor * window.visits[h, a, i], hyper, window)
                for c in range(window.signal_sums.shape[0]):
                    window.signal_sums[c, h, a, i] *= factor
        for e in range(window.edges[h]):
            window.edge_times[h, e] *= factor


@jit_part
def hold(states, actions, signals, episodes):
    """Remember a finished episode, so that a sliding window can drop it later."""
    row = episodes.next[0]
    for h in range(states.size):
        episodes.states[row, h] = states[h]
        episodes.actions[row, h] = actions[h]
        for c in range(signals.shape[0]):
            episodes.signals[row, c, h] = signals[c, h]
    episodes.next[0] = (row + 1) % episodes.states.shape[0]
    episodes.held[0] += 1


@jit_shared
def drop_oldest(hyper, memory):
    """Take the oldest episode out of a sliding window.

    Once per turn of the ring the window is built anew from the episodes it holds: rounding errors
    of the subtractions do not add up, and transitions that nobody makes any more are released.
    """
    episodes, window = memory.episodes, memory.window
    W, H = episodes.states.shape
    oldest = (episodes.next[0] - episodes.held[0]) % W
    episodes.held[0] -= 1
    if episodes.next[0] == 0:
        open_window(memory)
        for j in range(oldest + 1, oldest + 1 + episodes.held[0]):
            row = j % W
            absorb(
                episodes.states[row], episodes.actions[row], episodes.signals[row], hyper, memory
            )
        return
    ahead = np.int64(-1)
    for h in range(H - 1, -1, -1):
        i, a = find(h, episodes.states[oldest, h], memory.policy), episodes.actions[oldest, h]
        n = window.visits[h, a, i] - 1.0
        set_count(h, a, i, n, hyper, window)
        for c in range(window.signal_sums.shape[0]):
            rest = window.signal_sums[c, h, a, i] - episodes.signals[oldest, c, h]
            window.signal_sums[c, h, a, i] = rest if n > 0.0 else 0.0
        if h + 1 < H:
            window.edge_times[h, find_transition(h, a, i, ahead, window)] -= 1.0
        ahead = i
