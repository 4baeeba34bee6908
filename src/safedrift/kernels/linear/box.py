"""PROPD-PPO with Algorithm 2 where states fill a box, compiled: what happens off the nodes.

Estimates and policies live at the nodes of a quadrature rule (`kernels.linear.propd_ppo`). At a
visited state that is not a node, Q^τ of every episode τ since the last policy restart is computed
from its stored coefficients, and the policy from their sum.
"""

from __future__ import annotations

from safedrift.kernels.linear import least_squares as ls
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


@jit
def replay(h, n, ahead, phi, hyper, history, memory, logits):
    """Policy at P points: sum the estimates of the n episodes since the policy restart.

    Parameters
    ----------
    ahead : (n, 1+K, P, A, d1) ∫ψV^τ at the points, zero at the last step
    phi : (P, A, d2)
    logits : (2, P, A) written: α Σ_τ (Q_r + μ·Q_g) minus that of action 0, in two floats
    """
    scratch = memory.scratch
    H = memory.policy.pi.shape[0]
    K = memory.dual.mu.size
    P, A = phi.shape[:2]
    most = float(H - h)
    one, two = scratch.vectors[0], scratch.vectors[1]
    for p in range(P):
        for a in range(A):
            logits[0, p, a] = 0.0
            logits[1, p, a] = 0.0
        for t in range(n):
            first = 0.0
            for a in range(A):
                step = 0.0
                for c in range(1 + K):
                    scale, scale_r, lv = multipliers(
                        c, h, history.window[t], history.past[t], K, hyper
                    )
                    q = point_q(
                        ahead[t, c, p, a],
                        phi[p, a],
                        history.factor[h, t, c],
                        history.w[h, t, c],
                        history.factor_r[h, t],
                        history.u[h, t, c],
                        scale,
                        scale_r,
                        lv,
                        most,
                        one,
                        two,
                    )
                    step += q if c == 0 else history.mu[t, c - 1] * q
                if a == 0:
                    first = step
                logits[0, p, a], logits[1, p, a] = ls.add_two(
                    logits[0, p, a], logits[1, p, a], hyper.alpha * (step - first), 0.0
                )


@jit
def end_on_box(
    thresholds,
    psi,
    phi,
    pi,
    actions,
    signals,
    hyper,
    features,
    memory,
    history,
    point_v,
):
    """`end_episode` where the visited states are not nodes.

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
    J = psi.shape[2]
    window, past = window_of(hyper, memory.clock)
    keep_estimates(window, past, memory, history)
    at_cap = 0
    for c in range(C):
        point_v[c, H] = 0.0
    for h in range(H - 1, -1, -1):
        for c in range(C):
            source = c if c <= K else c - K
            scale, scale_r, lv = multipliers(c, h, window, past, K, hyper)
            value = 0.0
            for a in range(A):
                point_feature(c, h, psi[h, a], J, memory)
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
                value += pi[h, a] * q
                if c <= K and a == actions[h]:
                    at_cap += q >= H - h
            point_v[c, h] = value
    for h in range(H):
        a = actions[h]
        if h + 1 < H:
            for c in range(C):
                point_feature(c, h, psi[h, a], J, memory)
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
def point_feature(c, h, psi, J, memory):
    """sums[c] ← Σ_j ψ_j V_c(node j) with V of step h+1 and ψ (J, d1)."""
    scratch = memory.scratch
    for i in range(scratch.sums.shape[1]):
        scratch.sums[c, i] = 0.0
    for j in range(J):
        for i in range(scratch.sums.shape[1]):
            scratch.sums[c, i] += psi[j, i] * memory.values.v[c, h + 1, j]


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
