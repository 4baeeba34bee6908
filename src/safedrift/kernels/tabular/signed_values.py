"""Values of a policy on the window, each channel with a bonus of its own sign; or best responses.

One backward pass over the states of the window, as in `propd_ppo.evaluate`, with three additions:

    sign        Q = clip(r̂ + P̂V + sign · bonus, 0, H-h+1): +1 is optimistic, -1 pessimistic, and
                0 has no bonus where there is data and the cap where there is none
    responds    the policy of a step is chosen between its Q and its V, from Q_r + Σ_k μ_k Q_g,k
    entropy     V_r is the value of r plus τ times the entropy of the policy, from its step on

A (step, state) outside the window has the same Q for every action and the uniform policy.
With signs +1, no response and τ = 0 the numbers are those of `propd_ppo.evaluate`, bit for bit.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.elementary import log_of
from safedrift.kernels.tabular import window as data
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS
from safedrift.kernels.tabular.propd_ppo import exponentials, sum_ahead
from safedrift.kernels.types import jit_inline, jit_part

TIE = 1e-9  # actions this close to the best share a greedy policy


@jit_part
def estimate(responds, greedy, temperature, tau, signs, hyper, memory):
    """Evaluate the policy, or the response to the multipliers, on the window's data.

    Parameters
    ----------
    responds : bool
        Choose the policy on the way: greedy, or softmax with a temperature.
    tau : float
        Weight of the entropy in V_r.
    signs : (C,) of the bonuses
    """
    values, active, initial = memory.values, memory.window.active, memory.values.initial
    C, H, A, _ = values.q.shape
    most_entropy = tau * log_of(float(A))
    for h in range(H - 1, -1, -1):
        sum_ahead(h, memory)
        unseen = data.bonus_of_count(h, 0.0, hyper)
        for c in range(C):
            if signs[c] != 0.0 and hyper.bonus == BERNSTEIN_BONUS and h + 1 < H:
                add_signed_variance(c, h, signs[c], hyper, memory)
            most = float(H - h)
            if c == 0:
                most += most_entropy * (H - h - 1)
            clip(c, h, signs[c], most, memory)
            values.v_unseen[c, h] = clipped(signs[c], 0.0, unseen, most)
        if responds:
            respond(h, greedy, temperature, memory)
        for c in range(C):
            average(c, h, memory)
        if tau > 0.0:
            for i in range(active[h]):
                values.v[0, h, i] += tau * entropy(h, i, memory)
            values.v_unseen[0, h] += most_entropy
    for c in range(C):
        inside = 0.0
        value = 0.0
        for i in range(active[0]):
            p = initial[memory.policy.state[0, i]]
            inside += p
            value += p * values.v[c, 0, i]
        values.v_start[c] = value + max(1.0 - inside, 0.0) * values.v_unseen[c, 0]
    if tau > 0.0:  # first states outside the window whose policy is not uniform
        for i in range(active[0], memory.policy.slots[0]):
            lost = most_entropy - tau * entropy(0, i, memory)
            values.v_start[0] -= initial[memory.policy.state[0, i]] * lost


@jit_inline
def clipped(sign, value, bonus, most):
    """clip(value + sign · bonus, 0, most) of an unvisited pair; without bonus it is at its cap."""
    if sign == 0.0:
        return most
    return max(min(value + sign * bonus, most), 0.0)


@jit_inline
def add_signed_variance(c, h, sign, hyper, memory):
    """Add sign · c sqrt(Var_n[V] / n), the variance over observed successors, to r̂ + P̂V."""
    window, scratch = memory.window, memory.scratch
    q, v, sums, visits = memory.values.q, memory.values.v, window.signal_sums, window.visits
    mean, square = scratch.mean, scratch.square
    mean_flat, square_flat = scratch.mean_flat, scratch.square_flat
    A, n, K = memory.policy.pi.shape[1], window.active[h], memory.dual.mu.size
    source = c if c <= K else c - K
    for a in range(A):
        for i in range(n):
            times = visits[h, a, i] if visits[h, a, i] > 0.0 else 1.0
            mean[a, i] = (q[c, h, a, i] - sums[source, h, a, i]) / times
            square[a, i] = 0.0
    for e in range(window.edges[h]):
        pair = window.edge_pair[h, e]
        x = v[c, h + 1, window.edge_next[h, e]] - mean_flat[pair]
        square_flat[pair] += window.edge_times[h, e] * x * x
    for a in range(A):
        for i in range(n):
            times = visits[h, a, i] if visits[h, a, i] > 0.0 else 1.0
            deviation = sign * hyper.c * np.sqrt(square[a, i]) / times
            q[c, h, a, i] += deviation * (visits[h, a, i] + hyper.lam)


@jit_inline
def clip(c, h, sign, most, memory):
    """Q = clip((r̂ + P̂V) + sign · bonus, 0, most), the numerators being in q."""
    window, q = memory.window, memory.values.q
    weight, bonus = window.weight, window.count_bonus
    for a in range(q.shape[2]):
        if sign != 0.0:
            for i in range(window.active[h]):
                x = q[c, h, a, i] * weight[h, a, i] + sign * bonus[h, a, i]
                q[c, h, a, i] = max(min(x, most), 0.0)
        else:
            for i in range(window.active[h]):
                x = max(min(q[c, h, a, i] * weight[h, a, i], most), 0.0)
                q[c, h, a, i] = x if window.visits[h, a, i] > 0.0 else most


@jit_inline
def average(c, h, memory):
    """V = Σ_a π(a) Q(a)."""
    q, v, pi = memory.values.q, memory.values.v, memory.policy.pi
    for a in range(pi.shape[1]):
        for i in range(memory.window.active[h]):
            v[c, h, i] = (v[c, h, i] if a > 0 else 0.0) + pi[h, a, i] * q[c, h, a, i]


@jit_inline
def respond(h, greedy, temperature, memory):
    """π = the best actions for Q_r + Σ_k μ_k Q_g,k, or its softmax; uniform outside the window."""
    q, mu, pi = memory.values.q, memory.dual.mu, memory.policy.pi
    top, step = memory.scratch.top, memory.scratch.step
    A, n = pi.shape[1], memory.window.active[h]
    memory.policy.slots[h] = n
    for a in range(A):
        for i in range(n):
            pi[h, a, i] = q[0, h, a, i]
        for k in range(mu.size):
            for i in range(n):
                pi[h, a, i] += mu[k] * q[1 + k, h, a, i]
        for i in range(n):
            top[i] = max(top[i], pi[h, a, i]) if a > 0 else pi[h, a, i]
    if greedy:
        for a in range(A):
            for i in range(n):
                pi[h, a, i] = 1.0 if pi[h, a, i] >= top[i] - TIE * (1.0 + top[i]) else 0.0
    else:
        for a in range(A):
            for i in range(n):
                pi[h, a, i] = (pi[h, a, i] - top[i]) / temperature
            start = np.uint64(a * pi.shape[2])
            exponentials(h, start, start + np.uint64(n), memory)
    for a in range(A):
        for i in range(n):
            step[i] = (step[i] if a > 0 else 0.0) + pi[h, a, i]
    for a in range(A):
        for i in range(n):
            pi[h, a, i] /= step[i]


@jit_inline
def entropy(h, i, memory):
    """Entropy of π in slot i, by log π(a) = log π(best) + logit(a) - logit(best)."""
    logit, pi = memory.policy.logit, memory.policy.pi
    A = pi.shape[1]
    best = 0
    for a in range(1, A):
        if pi[h, a, i] > pi[h, best, i]:
            best = a
    total = -log_of(pi[h, best, i])
    for a in range(A):
        total += pi[h, a, i] * (logit[h, best, i] - logit[h, a, i])
    return total
