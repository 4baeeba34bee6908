"""PROPD-PPO with Algorithm 2 where states fill a box, compiled: what happens off the nodes.

Estimates and policies live at the nodes of a quadrature rule (`kernels.linear.propd_ppo`). At a
visited state that is not a node, Q^τ of every episode τ since the last policy restart is computed
from its stored coefficients, and the policy from their sum.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.elementary import exp_of
from safedrift.kernels.linear import least_squares as ls
from safedrift.kernels.linear.integrals import integrate_row
from safedrift.kernels.linear.propd_ppo import (
    evaluate,
    learn_signals,
    learn_value,
    multipliers,
    refresh_sometimes,
    window_of,
)
from safedrift.kernels.tabular import propd_ppo as tabular
from safedrift.kernels.types import jit, jit_inline, jit_part


@jit_part
def point_q(feature, phi, R, w, R_r, u, scale, scale_r, lv, most, one, two):
    """Q of one channel at one pair: as in `evaluate`, for features given one by one."""
    mean, norm = ls.predict_one(R, w, feature, one)
    mean_r, norm_r = ls.predict_one(R_r, u, phi, two)
    return max(min(mean + mean_r + scale * norm + scale_r * norm_r + lv, most), 0.0)


@jit_part
def policy_from(h, n, ahead, phi, hyper, history, memory, logits, pi):
    """Policy at one state: sum the estimates of the n episodes since the policy restart.

    Parameters
    ----------
    ahead : (1+K, at least n, A*d1) ∫ψV^τ of the actions there, zero at the last step
    phi : (A, d2)
    logits : (2, A) scratch: α Σ_τ (Q_r + μ·Q_g) minus that of action 0, in two floats
    pi : (A,) written
    """
    scratch = memory.scratch
    H, A, _ = memory.policy.pi.shape
    K = memory.dual.mu.size
    d1 = ahead.shape[2] // A
    most = float(H - h)
    for a in range(A):
        logits[0, a] = 0.0
        logits[1, a] = 0.0
    for t in range(n):
        first = 0.0
        for a in range(A):
            step = 0.0
            for c in range(1 + K):
                scale, scale_r, lv = multipliers(c, h, history.window[t], history.past[t], K, hyper)
                q = point_q(
                    ahead[c, t, a * d1 : (a + 1) * d1],
                    phi[a],
                    history.factor[h, t, c],
                    history.w[h, t, c],
                    history.factor_r[h, t],
                    history.u[h, t, c],
                    scale,
                    scale_r,
                    lv,
                    most,
                    scratch.vectors[0],
                    scratch.vectors[1],
                )
                step += q if c == 0 else history.mu[t, c - 1] * q
            if a == 0:
                first = step
            logits[0, a], logits[1, a] = ls.add_two(
                logits[0, a], logits[1, a], hyper.alpha * (step - first), 0.0
            )
    soften(logits, pi)


@jit_part
def soften(logits, pi):
    """pi (A,) ∝ exp of the logits (2, A) in two floats."""
    top, most, total = logits[0, 0], -np.inf, 0.0
    for a in range(pi.size):
        top = max(top, logits[0, a])
    for a in range(pi.size):
        pi[a] = (logits[0, a] - top) + logits[1, a]
        most = max(most, pi[a])
    for a in range(pi.size):
        pi[a] = exp_of(pi[a] - most)
        total += pi[a]
    for a in range(pi.size):
        pi[a] /= total


@jit
def replay(h, n, ahead, phi, hyper, history, memory, logits, pi):
    """Policy at P points: `policy_from` with ahead (P, 1+K, n, A*d1), phi (P, A, d2), pi (P, A)."""
    for p in range(pi.shape[0]):
        policy_from(h, n, ahead[p], phi[p], hyper, history, memory, logits, pi[p])


@jit
def end_on_box(
    thresholds, psi, phi, pi, actions, signals, hyper, features, memory, history, point_v
):
    """Entry point of `end_episode`."""
    return end_episode(
        thresholds, psi, phi, pi, actions, signals, hyper, features, memory, history, point_v
    )


@jit_part
def end_episode(
    thresholds, psi, phi, pi, actions, signals, hyper, features, memory, history, point_v
):
    """`kernels.linear.propd_ppo.end_episode` where the visited states are not nodes.

    Parameters
    ----------
    psi : (H, A, J, d1), phi : (H, A, d2), pi : (H, A) features and policy at the visited states
    point_v : (C, H+1) written: V of this episode at the visited states
    """
    values, scratch = memory.values, memory.scratch
    tabular.update_dual(thresholds, hyper, memory.dual)
    evaluate(hyper, features, memory)
    tabular.set_dual_signal(signals, hyper.dual_signal, memory)
    C, H, A, _ = values.q.shape
    K = memory.dual.mu.size
    window, past = window_of(hyper, memory.clock)
    keep_estimates(window, past, memory, history)
    at_cap = 0
    for c in range(C):
        for h in range(H + 1):
            point_v[c, h] = 0.0
    for h in range(H - 1, -1, -1):
        for a in range(A):
            point_features(h, psi[h, a], features, memory)
            for c in range(C):
                source = c if c <= K else c - K
                scale, scale_r, lv = multipliers(c, h, window, past, K, hyper)
                q = point_q(
                    scratch.sums[c],
                    phi[h, a],
                    memory.window.factor[c, h],
                    values.w[c, h],
                    memory.window.factor_r[h],
                    values.u[source, h],
                    scale,
                    scale_r,
                    lv,
                    float(H - h),
                    scratch.vectors[0],
                    scratch.vectors[1],
                )
                point_v[c, h] += pi[h, a] * q
                if c <= K and a == actions[h]:
                    at_cap += q >= H - h
    for h in range(H):
        a = actions[h]
        if h + 1 < H:
            point_features(h, psi[h, a], features, memory)
            for c in range(C):
                for i in range(scratch.sums.shape[1]):
                    scratch.x[i] = scratch.sums[c, i]
                learn_value(c, h, point_v[c, h + 1], memory)
        for i in range(phi.shape[2]):
            scratch.x[i] = phi[h, a, i]
        learn_signals(h, signals, memory)
    refresh_sometimes(memory)
    tabular.advance(memory.clock)
    return at_cap


@jit_inline
def point_features(h, psi, features, memory):
    """sums[c] ← Σ_j ψ_j V_c(node j) with V of step h+1 and ψ (J, d1)."""
    sums, v, nodes = memory.scratch.sums, memory.values.v, features.states  # the first J of them
    integrate_row(np.int64(0), np.int64(psi.shape[0]), psi, nodes, v, np.int64(h + 1), sums)


@jit_inline
def keep_estimates(window, past, memory, history):
    """Write the estimates of this episode into the history."""
    values = memory.values
    place = memory.clock.policy_age[0]
    H, _, C, J = history.v.shape
    d1, d2 = history.w.shape[3], history.u.shape[3]
    history.window[place] = window
    history.past[place] = past
    for k in range(memory.dual.mu.size):
        history.mu[place, k] = memory.dual.mu[k]
    for h in range(H):
        for c in range(C):
            for j in range(J):
                history.v[h, place, c, j] = values.v[c, h + 1, j]
            for i in range(d1):
                history.w[h, place, c, i] = values.w[c, h, i]
                for j in range(d1):
                    history.factor[h, place, c, i, j] = memory.window.factor[c, h, i, j]
            for i in range(d2):
                history.u[h, place, c, i] = values.u[c, h, i]
        for i in range(d2):
            for j in range(d2):
                history.factor_r[h, place, i, j] = memory.window.factor_r[h, i, j]
