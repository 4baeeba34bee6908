"""PROPD-PPO with Algorithm 3 as compiled parts whose cost follows the data in the window.

Two facts make an episode cheap. A (step, state) not visited in the current W-block has the same Q
for every action: its policy does not move and its V is one known number per step. For a visited
one, Σ_x' P̂(x'|x,a) V(x') runs over *observed* successors. So one backward pass costs
O(active states × A + observed transitions), whatever S is; the numbers are those of the textbook
loop (tests/naive.py), to rounding. `kernels.tabular.memory` says how the window is stored.

Log-policies. `logit[h, a, i]` is log π(a|x) - log π(0|x), summed in two floats and never
renormalised: an action whose probability has underflowed comes back exactly when its estimates
do, however large μ is.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS, OBSERVED, PLAIN
from safedrift.kernels.types import jit, jit_inline, jit_open, jit_part

# ---------------------------------------------------------------- Algorithm 1: one episode


@jit_open
def begin_episode(m, settings, memory):
    """Policy of episode m (from 0): mirror step or restart."""
    A = memory.pi.shape[1]
    opens_window = m % settings.W == 0
    restarts = m % settings.L == 0
    if not restarts:
        improve_policy(settings.alpha, memory)
    if opens_window or restarts:
        for h in range(memory.slots.size):
            if opens_window:  # Alg. 1, line 3: m = ℓ_Q, no data yet
                memory.active[h] = 0
                memory.edges[h] = 0
            if restarts:  # Alg. 1, line 4: m = ℓ_π
                memory.slots[h] = memory.active[h]
                for a in range(A):
                    for i in range(memory.slots[h]):  # Alg. 1, line 5
                        memory.logit[h, a, i] = 0.0
                        memory.logit_low[h, a, i] = 0.0
                        memory.pi[h, a, i] = 1.0 / A


@jit_inline
def improve_policy(alpha, memory):
    """π_m ∝ π_{m-1} exp(α (Q_r + Σ_k μ_k Q_g,k)) on the states of the window."""
    H, A, _ = memory.pi.shape
    K = memory.mu.size
    q, mu, pi, logit, low = memory.q, memory.mu, memory.pi, memory.logit, memory.logit_low
    top, step = memory.top, memory.step
    for h in range(H):  # Alg. 1, line 7
        n = memory.active[h]
        # Alg. 1, line 8. Differences to action 0 are taken before they are summed, so a large
        # part common to all actions costs no digits.
        for a in range(1, A):
            for i in range(n):
                step[i] = (q[0, h, a, i] - q[0, h, 0, i]) + mu[0] * (q[1, h, a, i] - q[1, h, 0, i])
            for k in range(1, K):
                for i in range(n):
                    step[i] += mu[k] * (q[1 + k, h, a, i] - q[1 + k, h, 0, i])
            for i in range(n):
                old = logit[h, a, i]
                add = alpha * step[i] + low[h, a, i]
                new = old + add
                back = new - old
                low[h, a, i] = (old - (new - back)) + (add - back)
                logit[h, a, i] = new
                top[i] = max(top[i] if a > 1 else 0.0, new)
        for a in range(A):
            for i in range(n):
                pi[h, a, i] = (logit[h, a, i] - top[i]) + low[h, a, i]
        if n == pi.shape[2]:  # no gaps between the actions: all at once
            exponentials(h, np.uint64(0), np.uint64(A * n), memory)
        else:
            for a in range(A):
                start = np.uint64(a * pi.shape[2])
                exponentials(h, start, start + np.uint64(n), memory)
        for a in range(A):
            for i in range(n):
                total = (step[i] if a > 0 else 0.0) + pi[h, a, i]
                step[i] = total if a + 1 < A else 1.0 / total
        for a in range(A):
            for i in range(n):
                pi[h, a, i] *= step[i]


@jit_inline
def exponentials(h, start, end, memory):
    """x ← exp(x) for x in pi_flat[h, start:end], to the last digit; x ≤ 0 or hardly above.

    exp(x) = 2^k exp(r) with |r| ≤ ln 2 / 2. Adding 1.5 · 2^52 rounds x / ln 2 to the integer k and
    leaves it in the low bits, from where it is moved to the exponent. Straight-line code that the
    compiler vectorises (unsigned indices need no test for negative ones): two to three times as
    fast as calling exp.
    """
    pi, scale, bits, result = memory.pi_flat, memory.scale, memory.scale_bits, memory.mantissa
    for j in range(start, end):
        x = max(pi[h, j], -708.0)
        shifted = x * 1.4426950408889634 + 6755399441055744.0
        k = shifted - 6755399441055744.0
        r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10
        y = 1.6059043836821613e-10
        y = y * r + 2.08767569878681e-09
        y = y * r + 2.505210838544172e-08
        y = y * r + 2.755731922398589e-07
        y = y * r + 2.7557319223985893e-06
        y = y * r + 2.48015873015873e-05
        y = y * r + 0.0001984126984126984
        y = y * r + 0.001388888888888889
        y = y * r + 0.008333333333333333
        y = y * r + 0.041666666666666664
        y = y * r + 0.16666666666666666
        y = y * r + 0.5
        y = y * r + 1.0
        scale[j] = shifted
        result[j] = y * r + 1.0
    for j in range(start, end):
        bits[j] = (bits[j] + 1023) << 52
    for j in range(start, end):
        pi[h, j] = result[j] * scale[j] if pi[h, j] > -708.0 else 0.0


@jit_inline
def act(h, s, u, memory):
    """Draw an action from π_h(·|s) with the uniform u."""
    i = find(h, s, memory)
    if i < 0:
        A = memory.pi.shape[1]
        return min(int(u * A), A - 1)
    return pick(h, i, u, memory)


@jit_inline
def pick(h, i, u, memory):
    """Draw an action from the policy in slot i with the uniform u."""
    A = memory.pi.shape[1]
    below = 0.0
    chosen = 0
    for a in range(A):  # Alg. 1, line 9; counting instead of stopping avoids a branch per action
        below += memory.pi[h, a, i]
        chosen += u >= below
    while chosen >= A or memory.pi[h, chosen, i] == 0.0:  # u beyond a sum that rounded below 1
        chosen -= 1
    return chosen


@jit_open
def end_episode(m, thresholds, states, actions, values, settings, memory):
    """Dual step, evaluation of π_m on the window, then the episode enters the window.

    Parameters
    ----------
    thresholds : (K,) b_m
    states, actions : (H,) Alg. 1, line 10: what was visited
    values : (1+K, H) observed reward and utilities

    Returns
    -------
    How many of the H*(1+K) optimistic estimates at the visited pairs sit at their cap H-h+1.
    """
    update_dual(thresholds, settings, memory)
    evaluate(m // settings.W, settings, memory)
    feed_dual(values, settings.feed, memory)
    memory.episode[0] = m + 1
    return absorb(states, actions, values, settings, memory)


@jit_inline
def update_dual(thresholds, settings, memory):
    """μ^m = clip(μ^{m-1} + η (b - V_g^{m-1}(x1) - ξ μ^{m-1}), 0, χ)."""
    for k in range(memory.mu.size):
        mu = memory.mu[k]
        b = memory.last_thresholds[k] if settings.lagged else thresholds[k]
        # Alg. 1, line 12
        step = settings.eta * (b - memory.fed[k] - settings.xi * mu)
        memory.mu[k] = min(max(mu + step, 0.0), settings.chi)
        memory.last_thresholds[k] = thresholds[k]


@jit_inline
def feed_dual(values, feed, memory):
    """Keep what the next dual step is told about V_g of this episode's policy."""
    K = memory.mu.size
    for k in range(K):
        if feed == OBSERVED:
            memory.fed[k] = 0.0
            for h in range(values.shape[1]):
                memory.fed[k] += values[1 + k, h]
        else:
            memory.fed[k] = memory.v_start[1 + K + k if feed == PLAIN else 1 + k]


# ---------------------------------------------------------------- Algorithm 3: evaluation


@jit_open
def evaluate(block, settings, memory):
    """Optimistic evaluation of the current policy on the window's data (Alg. 1, line 13).

    Alg. 3, line 1: the data are the counts and sums that `absorb` has kept.
    """
    C, H, A, _ = memory.q.shape
    K = memory.mu.size
    for h in range(H - 1, -1, -1):  # Alg. 3, line 2
        sum_ahead(h, memory)  # Alg. 3, lines 3 and 4
        unseen = bonus_of_count(h, 0.0, settings)  # Alg. 3, line 5, at n = 0
        for c in range(C):
            optimistic = c <= K
            if optimistic and settings.bonus == BERNSTEIN_BONUS and h + 1 < H:
                add_spread(c, h, settings, memory)
            # Alg. 3, line 6
            lv = settings.LV[block, c - 1, h] if 1 <= c <= K else 0.0
            finish(c, h, lv, optimistic, memory)  # Alg. 3, lines 7 and 8
            memory.v_unseen[c, h] = min(unseen + lv if optimistic else np.inf, float(H - h))
    for c in range(C):  # Alg. 3, line 10: V_1, here at the initial distribution
        inside = 0.0
        value = 0.0
        for i in range(memory.active[0]):
            p = memory.initial[memory.state[0, i]]
            inside += p
            value += p * memory.v[c, 0, i]
        memory.v_start[c] = value + max(1.0 - inside, 0.0) * memory.v_unseen[c, 0]


@jit_inline
def sum_ahead(h, memory):
    """q ← Σ observed signal + Σ_x' n(x,a,x') V(x'): the numerators of r̂ + P̂V, all channels.

    Alg. 3, lines 3 and 4: the denominators n + λ are in `weight`.
    """
    C, H, A, _ = memory.q.shape
    K = memory.mu.size
    n = memory.active[h]
    q, q_flat, v = memory.q, memory.q_flat, memory.v
    for c in range(C):
        source = c if c <= K else c - K
        for a in range(A):
            for i in range(n):
                q[c, h, a, i] = memory.gain[source, h, a, i]
        if h + 1 < H:
            for e in range(memory.edges[h]):
                value = memory.edge_times[h, e] * v[c, h + 1, memory.edge_next[h, e]]
                q_flat[c, h, memory.edge_pair[h, e]] += value


@jit_inline
def add_spread(c, h, settings, memory):
    """Add c sqrt(Var_n[V] / n), the variance over observed successors, to r̂ + P̂V."""
    A, n = memory.pi.shape[1], memory.active[h]
    q, v, gain, visits = memory.q, memory.v, memory.gain, memory.visits
    mean, square = memory.mean, memory.square
    mean_flat, square_flat = memory.mean_flat, memory.square_flat
    for a in range(A):
        for i in range(n):
            mean[a, i] = (q[c, h, a, i] - gain[c, h, a, i]) / max(visits[h, a, i], 1.0)
            square[a, i] = 0.0
    for e in range(memory.edges[h]):
        pair = memory.edge_pair[h, e]
        x = v[c, h + 1, memory.edge_next[h, e]] - mean_flat[pair]
        square_flat[pair] += memory.edge_times[h, e] * x * x
    for a in range(A):
        for i in range(n):
            spread = settings.c * np.sqrt(square[a, i]) / max(visits[h, a, i], 1.0)
            q[c, h, a, i] += spread * (visits[h, a, i] + settings.lam)


@jit_inline
def finish(c, h, lv, optimistic, memory):
    """Divide by n + λ, add bonus and LV, clip to [0, H-h+1], average over the policy."""
    H, A, _ = memory.pi.shape
    n = memory.active[h]
    most = float(H - h)
    q, v, pi, weight, extra = memory.q, memory.v, memory.pi, memory.weight, memory.extra
    for a in range(A):
        if optimistic:
            for i in range(n):  # Alg. 3, lines 5, 7 and 8
                x = q[c, h, a, i] * weight[h, a, i] + (extra[h, a, i] + lv)
                x = max(min(x, most), 0.0)
                q[c, h, a, i] = x
                v[c, h, i] = (v[c, h, i] if a > 0 else 0.0) + pi[h, a, i] * x
        else:
            for i in range(n):
                x = max(min(q[c, h, a, i] * weight[h, a, i], most), 0.0)
                x = x if memory.visits[h, a, i] > 0.0 else most
                q[c, h, a, i] = x
                v[c, h, i] = (v[c, h, i] if a > 0 else 0.0) + pi[h, a, i] * x


@jit_inline
def bonus_of_count(h, n, settings):
    """Part of the bonus that depends on the step and the visit count alone."""
    if settings.bonus == BERNSTEIN_BONUS:
        if n == 0.0:
            return np.inf
        H = settings.root.size
        return settings.c * settings.c * (H - h) / n + settings.lam / (n + settings.lam)
    d = n + settings.shift
    if d <= 0.0:
        d = 1.0
    return settings.root[h] / np.sqrt(d) + settings.tail[h] / (n + settings.lam)


# ---------------------------------------------------------------- the window


@jit_open
def absorb(states, actions, values, settings, memory):
    """Put a finished episode into the window: counts, sums and transitions. Returns cap hits."""
    H = states.size
    ahead = np.int64(-1)
    at_cap = 0
    for h in range(H - 1, -1, -1):
        i = find(h, states[h], memory)
        if i < 0 or i >= memory.active[h]:
            i = np.int64(activate(h, states[h], i, settings, memory))
        a = actions[h]
        for c in range(values.shape[0]):
            at_cap += memory.q[c, h, a, i] >= H - h
        n = memory.visits[h, a, i] + 1.0
        memory.visits[h, a, i] = n
        memory.weight[h, a, i] = 1.0 / (n + settings.lam)
        memory.extra[h, a, i] = bonus_of_count(h, n, settings)
        for c in range(values.shape[0]):
            memory.gain[c, h, a, i] += values[c, h]
        if h + 1 < H:
            add_transition(h, a, i, ahead, memory)
        ahead = i
    return at_cap


@jit_inline
def find(h, s, memory):
    """Slot of state s at step h, or -1 if its policy is uniform and it is not in the window."""
    i = memory.slot_of[h, s]
    if i < memory.slots[h] and memory.state[h, i] == s:
        return np.int64(i)
    return np.int64(-1)


@jit_part
def activate(h, s, i, settings, memory):
    """Move state s from slot i (-1: from nowhere) behind the active slots and make it active."""
    A = memory.pi.shape[1]
    if i < 0:
        i = memory.slots[h]
        memory.slots[h] += 1
        memory.state[h, i] = s
        for a in range(A):
            memory.logit[h, a, i] = 0.0
            memory.logit_low[h, a, i] = 0.0
            memory.pi[h, a, i] = 1.0 / A
    j = memory.active[h]
    memory.active[h] += 1
    moved = memory.state[h, j]
    memory.state[h, i], memory.slot_of[h, moved] = moved, i
    memory.state[h, j], memory.slot_of[h, s] = s, j
    unseen = bonus_of_count(h, 0.0, settings)
    for a in range(A):
        for array in (memory.logit, memory.logit_low, memory.pi):
            array[h, a, i], array[h, a, j] = array[h, a, j], array[h, a, i]
        memory.visits[h, a, j] = 0.0
        memory.weight[h, a, j] = 1.0 / settings.lam
        memory.extra[h, a, j] = unseen
        memory.last[h, a, j] = -1
        for c in range(memory.gain.shape[0]):
            memory.gain[c, h, a, j] = 0.0
        for c in range(memory.q.shape[0]):  # equal for all actions, as it was when unvisited
            memory.q[c, h, a, j] = memory.v_unseen[c, h]
    return j


@jit_inline
def add_transition(h, a, i, ahead, memory):
    """Count one more transition from action a in slot i to slot `ahead` of step h+1."""
    e = memory.last[h, a, i]
    while e >= 0:
        if memory.edge_next[h, e] == ahead:
            memory.edge_times[h, e] += 1.0
            return
        e = memory.edge_before[h, e]
    e = memory.edges[h]
    memory.edges[h] += 1
    memory.edge_pair[h, e] = a * memory.pi.shape[2] + i
    memory.edge_next[h, e] = ahead
    memory.edge_times[h, e] = 1.0
    memory.edge_before[h, e] = memory.last[h, a, i]
    memory.last[h, a, i] = e


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(m, settings, memory):
    """Entry point of `begin_episode` for a user's own loop."""
    begin_episode(m, settings, memory)


@jit
def draw(h, s, u, memory):
    """Entry point of `act`."""
    return act(h, s, u, memory)


@jit
def end(m, thresholds, states, actions, values, settings, memory):
    """Entry point of `end_episode`."""
    return end_episode(m, thresholds, states, actions, values, settings, memory)


@jit
def write_policy(memory, policy):
    """Write the current policy to `policy` (H, S, A)."""
    H, A, _ = memory.pi.shape
    for h in range(H):
        for s in range(policy.shape[1]):
            for a in range(A):
                policy[h, s, a] = 1.0 / A
        for i in range(memory.slots[h]):
            for a in range(A):
                policy[h, memory.state[h, i], a] = memory.pi[h, a, i]


@jit
def write_estimates(memory, q):
    """Write the Q estimates of the last episode to `q` (C, H, S, A)."""
    C, H, A, _ = memory.q.shape
    A = memory.pi.shape[1]
    for c in range(C):
        for h in range(H):
            for s in range(q.shape[2]):
                for a in range(A):
                    q[c, h, s, a] = memory.v_unseen[c, h]
            for i in range(memory.active[h]):
                for a in range(A):
                    q[c, h, memory.state[h, i], a] = memory.q[c, h, a, i]
