"""Algorithm 1 of the paper with the evaluation of Algorithm 3, compiled: PROPD-PPO with counts.

`play` is the whole algorithm, in the order of the listing:

    begin_episode     restart, or π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g))       (lines 3 to 8)
    act, step         draw a_h ~ π_m, observe, move on                      (lines 9 to 11)
    end_episode       dual step, evaluation of π_m on the window            (lines 12 to 14)

Two facts make an episode cheap. A (step, state) not visited in the current window has the same Q
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

from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.tabular import window as data
from safedrift.kernels.tabular.adaptive_window import follow, keep_alarms
from safedrift.kernels.tabular.homogeneity import compare
from safedrift.kernels.tabular.improvement import (
    add_successors,
    finish_step,
    improve_step,
    start_step,
)
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS, OBSERVED, PLAIN
from safedrift.kernels.types import jit, jit_inline, jit_source_inline

# ---------------------------------------------------------------- Algorithm 1


@jit
def play(arrays, hyper, memory, schedule, inputs, buffer, out, trace, log):
    """Play B episodes from `memory.clock.episode` on.

    Parameters
    ----------
    arrays : TableArrays, the world
    hyper : Hyperparameters
    memory : Memory
    schedule : Schedule, what to forget before each episode
    inputs : ChunkInput
    buffer : EpisodeBuffer, scratch
    out : ChunkOutput, written
    trace : Trace, written
    log : Log, written where it has room
    """
    B, H = inputs.action_uniforms.shape
    K = memory.dual.mu.size
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    written = 0
    for e in range(B):  # Alg. 1, line 2: for m = 1, ..., M
        m = memory.clock.episode[0]
        begin_episode(
            schedule.opens_window[e],
            schedule.drops[e],
            schedule.discount[e],
            schedule.restarts[e],
            hyper,
            memory,
        )
        if inputs.measured[e]:
            write_policy(memory, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])  # Alg. 1, line 3: x_1
        for h in range(H):
            states[h] = s
            actions[h] = act(h, s, inputs.action_uniforms[e, h], memory)
            observe(arrays, m, h, s, actions[h], inputs.noisy, u, H + h * (1 + K), signals)
            if h + 1 < H:
                s = next_state(arrays, m, h, s, actions[h], u[h + 1])
        at_cap = end_episode(arrays.thresholds[m], states, actions, signals, hyper, memory)
        keep(e, at_cap, signals, memory, out, trace)
        keep_alarms(e, memory.filters, trace.alarm)
        keep_alarms(e, memory.test, trace.alarm)
        if log.states.shape[0] > 0:
            write_estimates(memory, log.q[e])
            keep_episode(e, buffer, log)


@jit_source_inline
def begin_episode(opens_window, drops, discount, restarts, hyper, memory):
    """Policy of the next episode: mirror step or restart; then forget what is to be forgotten."""
    if not restarts:
        improve_policy(hyper.alpha, memory)
    forget(opens_window, drops, discount, hyper, memory)
    if restarts:  # Alg. 1, line 4: m = ℓ_π
        restart_policy(memory)
        memory.clock.policy_age[0] = 0


@jit_source_inline
def forget(opens_window, drops, discount, hyper, memory):
    """Forget data, as a `Forgetting` has decided."""
    if opens_window:  # Alg. 1, line 3: m = ℓ_Q, no data yet
        data.open_window(memory)
        memory.clock.window[0] += 1
        memory.clock.window_age[0] = 0
    if drops:
        data.drop_oldest(hyper, memory)
    if discount < 1.0:
        data.discount(discount, hyper, memory)


@jit_inline
def restart_policy(memory):
    """π ← uniform; states without data give up their slots."""
    policy = memory.policy
    A = policy.pi.shape[1]
    for h in range(policy.slots.size):
        policy.slots[h] = memory.window.active[h]
        for a in range(A):
            for i in range(policy.slots[h]):  # Alg. 1, line 5
                policy.logit[h, a, i] = 0.0
                policy.logit_low[h, a, i] = 0.0
                policy.pi[h, a, i] = 1.0 / A


@jit_inline
def improve_policy(alpha, memory):
    """π_m ∝ π_{m-1} exp(α (Q_r + Σ_k μ_k Q_g,k)) on the states of the window."""
    policy, q, mu, work = memory.policy, memory.values.q, memory.dual.mu, memory.scratch.mantissa
    logit, low, pi = policy.logit, policy.logit_low, policy.pi
    for h in range(q.shape[1]):  # Alg. 1, line 7
        n = memory.window.active[h]
        # Alg. 1, line 8. Differences to action 0 are taken before they are summed, so a large
        # part common to all actions costs no digits.
        improve_step(q, mu, logit, low, pi, work, alpha, np.int64(h), n)


@jit_inline
def exponentials(h, start, end, memory):
    """x ← exp(x) for x in pi_flat[h, start:end], to the last digit; x ≤ 0 or hardly above.

    exp(x) = 2^k exp(r) with |r| ≤ ln 2 / 2. Adding 1.5 · 2^52 rounds x / ln 2 to the integer k and
    leaves it in the low bits, from where it is moved to the exponent. Straight-line code that the
    compiler vectorises (unsigned indices need no test for negative ones): two to three times as
    fast as calling exp.
    """
    pi, scratch = memory.policy.pi_flat, memory.scratch
    scale, bits, result = scratch.scale, scratch.scale_bits, scratch.mantissa
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
    i = data.find(h, s, memory.policy)
    if i < 0:
        A = memory.policy.pi.shape[1]
        return min(int(u * A), A - 1)
    return pick(h, i, u, memory.policy.pi)


@jit_inline
def pick(h, i, u, pi):
    """Draw an action from the policy pi (H, A, cap) in slot i with the uniform u."""
    A = pi.shape[1]
    below = 0.0
    chosen = 0
    for a in range(A):  # Alg. 1, line 9; counting instead of stopping avoids a branch per action
        below += pi[h, a, i]
        chosen += u >= below
    while chosen >= A or pi[h, chosen, i] == 0.0:  # u beyond a sum that rounded below 1
        chosen -= 1
    return chosen


@jit_source_inline
def end_episode(thresholds, states, actions, signals, hyper, memory):
    """Dual step, evaluation of π_m on the window, then the episode enters the window.

    Parameters
    ----------
    thresholds : (K,) b_m
    states, actions : (H,) Alg. 1, line 10: what was visited
    signals : (1+K, H) observed reward and utilities

    Returns
    -------
    How many of the H*(1+K) optimistic estimates at the visited pairs sit at their cap H-h+1.
    """
    update_dual(thresholds, hyper, memory.dual)
    evaluate(hyper, memory)
    set_dual_signal(signals, hyper.dual_signal, memory)
    at_cap = data.absorb(states, actions, signals, hyper, memory)
    if memory.episodes.states.shape[0] > 0:
        data.hold(states, actions, signals, memory.episodes)
    follow(states, actions, signals, memory.filters, hyper, memory)
    compare(states, actions, signals, memory.test, hyper, memory)
    advance(memory.clock)
    return at_cap


@jit_inline
def advance(clock):
    """On to the next episode."""
    clock.episode[0] += 1
    clock.window_age[0] += 1
    clock.policy_age[0] += 1


@jit_inline
def update_dual(thresholds, hyper, dual):
    """μ^m = clip(μ^{m-1} + η (b - V_g^{m-1}(x1) - ξ μ^{m-1}), 0, χ)."""
    for k in range(dual.mu.size):
        mu = dual.mu[k]
        b = dual.last_thresholds[k] if hyper.lagged else thresholds[k]
        # Alg. 1, line 12
        step = hyper.eta * (b - dual.signal[k] - hyper.xi * mu)
        dual.mu[k] = min(max(mu + step, 0.0), hyper.chi)
        dual.last_thresholds[k] = thresholds[k]


@jit_inline
def set_dual_signal(signals, dual_signal, memory):
    """Keep what the next dual step sees of V_g of this episode's policy."""
    dual, v_start = memory.dual, memory.values.v_start
    K = dual.mu.size
    for k in range(K):
        if dual_signal == OBSERVED:
            dual.signal[k] = 0.0
            for h in range(signals.shape[1]):
                dual.signal[k] += signals[1 + k, h]
        else:
            dual.signal[k] = v_start[1 + K + k if dual_signal == PLAIN else 1 + k]


# ---------------------------------------------------------------- Algorithm 3: evaluation


@jit_source_inline
def evaluate(hyper, memory):
    """Optimistic evaluation of the current policy on the window's data (Alg. 1, line 13).

    Alg. 3, line 1: the data are the counts and sums that `absorb` has kept.
    """
    values, active, initial = memory.values, memory.window.active, memory.values.initial
    C, H, A, _ = values.q.shape
    K = memory.dual.mu.size
    window = min(memory.clock.window[0], hyper.LV.shape[0] - 1)
    for h in range(H - 1, -1, -1):  # Alg. 3, line 2
        two = hyper.bonus != BERNSTEIN_BONUS and K == 1
        if two:  # reward and utility, both optimistic, side by side
            evaluate_two(h, hyper.LV[window, 0, h], memory)
        for c in range(2 if two else 0, C):
            sum_channel(c, h, memory)  # Alg. 3, lines 3 and 4
            optimistic = c <= K
            # Alg. 3, line 5: the bonus is kept with the counts, but for what values add to it
            if optimistic and hyper.bonus == BERNSTEIN_BONUS and h + 1 < H:
                add_variance_bonus(c, h, hyper, memory)
            # Alg. 3, line 6
            lv = hyper.LV[window, c - 1, h] if 1 <= c <= K else 0.0
            finish(c, h, lv, optimistic, memory)  # Alg. 3, lines 7 and 8
        unseen = data.bonus_of_count(h, 0.0, hyper)
        for c in range(C):  # the same for a state that the window has not seen
            optimistic = c <= K
            lv = hyper.LV[window, c - 1, h] if 1 <= c <= K else 0.0
            values.v_unseen[c, h] = min(unseen + lv if optimistic else np.inf, float(H - h))
    for c in range(C):  # Alg. 3, line 10: V_1, here at the initial distribution
        inside = 0.0
        value = 0.0
        for i in range(active[0]):
            p = initial[memory.policy.state[0, i]]
            inside += p
            value += p * values.v[c, 0, i]
        values.v_start[c] = value + max(1.0 - inside, 0.0) * values.v_unseen[c, 0]


@jit_inline
def evaluate_two(h, lv, memory):
    """Q and V of reward and the only utility at step h: what two channels share is read once."""
    window, values, scratch = memory.window, memory.values, memory.scratch
    H, A, _ = memory.policy.pi.shape
    n, c, step = window.active[h], np.int64(0), np.int64(h)
    sums, ahead = scratch.sums, scratch.ahead
    start_step(sums, window.signal_sums, c, step, n)  # as `sum_channel`
    if h + 1 < H:
        add_successors(
            sums,
            window.edge_pair[h],
            window.edge_next[h],
            window.edge_times[h],
            ahead,
            window.edges[h],
        )
    finish_step(  # as `finish`
        values.q,
        values.v,
        sums,
        ahead,
        window.weight,
        window.count_bonus,
        memory.policy.pi,
        (0.0, lv),
        float(H - h),
        c,
        step,
        n,
    )


@jit_inline
def sum_ahead(h, memory):
    """`sum_channel` for all channels."""
    for c in range(memory.values.q.shape[0]):
        sum_channel(c, h, memory)


@jit_inline
def sum_channel(c, h, memory):
    """q ← Σ observed signal + Σ_x' n(x,a,x') V(x'): the numerators of r̂ + P̂V.

    Alg. 3, lines 3 and 4: the denominators n + λ are in `weight`.
    """
    window = memory.window
    q, q_flat, v = memory.values.q, memory.values.q_flat, memory.values.v
    _, H, A, _ = q.shape
    K = memory.dual.mu.size
    source = c if c <= K else c - K
    for a in range(A):
        for i in range(window.active[h]):
            q[c, h, a, i] = window.signal_sums[source, h, a, i]
    if h + 1 < H:
        for e in range(window.edges[h]):
            value = window.edge_times[h, e] * v[c, h + 1, window.edge_next[h, e]]
            q_flat[c, h, window.edge_pair[h, e]] += value


@jit_inline
def add_variance_bonus(c, h, hyper, memory):
    """Add c sqrt(Var_n[V] / n), the variance over observed successors, to r̂ + P̂V."""
    window, scratch = memory.window, memory.scratch
    q, v, sums, visits = memory.values.q, memory.values.v, window.signal_sums, window.visits
    mean, square = scratch.mean, scratch.square
    mean_flat, square_flat = scratch.mean_flat, scratch.square_flat
    A, n = memory.policy.pi.shape[1], window.active[h]
    for a in range(A):
        for i in range(n):
            times = visits[h, a, i] if visits[h, a, i] > 0.0 else 1.0
            mean[a, i] = (q[c, h, a, i] - sums[c, h, a, i]) / times
            square[a, i] = 0.0
    for e in range(window.edges[h]):
        pair = window.edge_pair[h, e]
        x = v[c, h + 1, window.edge_next[h, e]] - mean_flat[pair]
        square_flat[pair] += window.edge_times[h, e] * x * x
    for a in range(A):
        for i in range(n):
            times = visits[h, a, i] if visits[h, a, i] > 0.0 else 1.0
            deviation = hyper.c * np.sqrt(square[a, i]) / times
            q[c, h, a, i] += deviation * (visits[h, a, i] + hyper.lam)


@jit_inline
def finish(c, h, lv, optimistic, memory):
    """Divide by n + λ, add bonus and LV, clip to [0, H-h+1], average over the policy."""
    window, pi = memory.window, memory.policy.pi
    q, v, weight, bonus = memory.values.q, memory.values.v, window.weight, window.count_bonus
    H, A, _ = pi.shape
    n = window.active[h]
    most = float(H - h)
    for a in range(A):
        if optimistic:
            for i in range(n):  # Alg. 3, lines 5, 7 and 8
                x = q[c, h, a, i] * weight[h, a, i] + (bonus[h, a, i] + lv)
                x = max(min(x, most), 0.0)
                q[c, h, a, i] = x
                v[c, h, i] = (v[c, h, i] if a > 0 else 0.0) + pi[h, a, i] * x
        else:
            for i in range(n):
                x = max(min(q[c, h, a, i] * weight[h, a, i], most), 0.0)
                x = x if window.visits[h, a, i] > 0.0 else most
                q[c, h, a, i] = x
                v[c, h, i] = (v[c, h, i] if a > 0 else 0.0) + pi[h, a, i] * x


# ---------------------------------------------------------------- recording


@jit_inline
def keep(e, at_cap, signals, memory, out, trace):
    """Record episode e of the chunk."""
    mu, v_start = memory.dual.mu, memory.values.v_start
    H, K = signals.shape[1], mu.size
    trace.at_cap[e] = at_cap / (H * (1 + K))
    for k in range(K):
        trace.mu[e, k] = mu[k]
    for c in range(v_start.size):
        trace.v_start[e, c] = v_start[c]
    for c in range(1 + K):
        for h in range(H):
            out.returns[e, c] += signals[c, h]


@jit_inline
def keep_episode(e, buffer, log):
    """Log the trajectory of episode e of the chunk."""
    for h in range(buffer.states.size):
        log.states[e, h] = buffer.states[h]
        log.actions[e, h] = buffer.actions[h]
        for c in range(buffer.signals.shape[0]):
            log.signals[e, c, h] = buffer.signals[c, h]


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(opens_window, drops, discount, restarts, hyper, memory):
    """Entry point of `begin_episode` for an episode at a time."""
    begin_episode(opens_window, drops, discount, restarts, hyper, memory)


@jit
def draw(h, s, u, memory):
    """Entry point of `act`."""
    return act(h, s, u, memory)


@jit
def end(thresholds, states, actions, signals, hyper, memory):
    """Entry point of `end_episode`."""
    return end_episode(thresholds, states, actions, signals, hyper, memory)


@jit
def write_policy(memory, policy):
    """Write the current policy to `policy` (H, S, A)."""
    table = memory.policy
    H, A, _ = table.pi.shape
    for h in range(H):
        for s in range(policy.shape[1]):
            for a in range(A):
                policy[h, s, a] = 1.0 / A
        for i in range(table.slots[h]):
            for a in range(A):
                policy[h, table.state[h, i], a] = table.pi[h, a, i]


@jit
def write_estimates(memory, q):
    """Write the Q estimates of the last episode to `q` (C, H, S, A)."""
    values = memory.values
    C, H, A, _ = values.q.shape
    for c in range(C):
        for h in range(H):
            for s in range(q.shape[2]):
                for a in range(A):
                    q[c, h, s, a] = values.v_unseen[c, h]
            for i in range(memory.window.active[h]):
                for a in range(A):
                    q[c, h, memory.policy.state[h, i], a] = values.q[c, h, a, i]
