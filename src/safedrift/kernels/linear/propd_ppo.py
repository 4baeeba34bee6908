"""PROPD-PPO with Algorithm 2 as compiled parts: least squares on value targets.

An episode costs the same wherever it stands in its window (while no Gram matrix is nearly singular:
then its factor is computed anew each time): integrals of V against ψ over the
successors of every pair, one triangular substitution per pair and regression, and one row rotated
into each regression (`kernels.linear.least_squares`). Regressors φ^τ and targets V^τ are those of the
episode τ; they enter the sums once and are never computed again.

Policy improvement and dual update are those of `kernels.tabular.propd_ppo`.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.linear import least_squares as ls
from safedrift.kernels.tabular import propd_ppo as learner
from safedrift.kernels.types import jit, jit_inline, jit_open, jit_part

REFRESH = 256  # episodes of a window between two exact refreshes of the factors

# ---------------------------------------------------------------- Algorithm 1: one episode


@jit_open
def begin_episode(m, settings, memory):
    """Policy of episode m (from 0): mirror step or restart; an empty window where one begins."""
    H, A, S = memory.pi.shape
    if m % settings.L != 0:
        learner.improve_policy(settings.alpha, memory)
    else:
        for h in range(H):
            for a in range(A):
                for s in range(S):
                    memory.logit[h, a, s] = 0.0
                    memory.logit_low[h, a, s] = 0.0
                    memory.pi[h, a, s] = 1.0 / A
    if m % settings.W == 0:
        empty_window(settings.lam, memory)


@jit_inline
def act(h, s, u, memory):
    """Draw an action from π_h(·|s) with the uniform u."""
    return learner.pick(h, s, u, memory)


@jit_open
def end_episode(m, thresholds, states, actions, values, settings, features, memory):
    """Dual step, evaluation of π_m on the window, then the episode enters the window.

    Parameters and result as in `learner.end_episode`.
    """
    learner.update_dual(thresholds, settings, memory)
    evaluate(m, settings, features, memory)
    learner.feed_dual(values, settings.feed, memory)
    memory.episode[0] = m + 1
    H, A, S = memory.pi.shape
    at_cap = 0
    for h in range(H):
        s, a = states[h], actions[h]
        for c in range(values.shape[0]):
            at_cap += memory.q[c, h, a, s] >= H - h
        if h + 1 < H:
            row = row_of(h, s, a, S, A, features)
            integrate(row, h, features, memory)
            for c in range(memory.sums.shape[0]):
                for i in range(memory.sums.shape[1]):
                    memory.x[i] = memory.sums[c, i]
                learn_value(c, h, memory.v[c, h + 1, states[h + 1]], memory)
        if features.one_hot:
            memory.visits[h, a * S + s] += 1.0
            for c in range(values.shape[0]):
                memory.gain[c, h, a * S + s] += values[c, h]
        else:
            step = h if features.phi.shape[0] > 1 else 0
            for i in range(features.phi.shape[1]):
                memory.x[i] = features.phi[step, i, a * S + s]
            learn_signals(h, values, memory)
    refresh_sometimes(m, settings, memory)
    return at_cap


# ---------------------------------------------------------------- Algorithm 2: evaluation


@jit_open
def evaluate(m, settings, features, memory):
    """Optimistic evaluation of the current policy on the window's data (Alg. 1, line 13).

    Alg. 2, line 1: the data are the regressions that `learn_value` and `learn_signals` have fed.
    """
    C, H, A, S = memory.q.shape
    K = memory.mu.size
    block, past = m // settings.W, m % settings.W
    for h in range(H - 1, -1, -1):  # Alg. 2, line 2
        if h + 1 < H:  # after the last step V = 0: nothing to regress, no bonus
            for c in range(C):  # Alg. 2, lines 3 and 4; Λ is kept as a factor
                ls.solve(memory.factor[c, h], memory.target[c, h, 0], memory.w[c, h])
            value_features(h, features, memory)  # Alg. 2, line 5
        for c in range(1 + K):
            # Alg. 2, lines 6 and 7: β, LV, and Γ_⋄
            scale, _, _ = multipliers(c, h, block, past, K, settings)
            value_bonus(c, h, scale, memory)
        for c in range(1 + K):
            reward_coefficients(c, h, settings.lam, features, memory)  # Alg. 2, lines 8 and 9
        reward_norms(h, settings.lam, features, memory)  # Alg. 2, line 10, without β
        for c in range(C):
            _, scale_r, lv = multipliers(c, h, block, past, K, settings)
            predict(c, h, scale_r, lv, features, memory)  # Alg. 2, line 11
            for s in range(S):
                memory.v[c, h, s] = 0.0
            for a in range(A):  # Alg. 2, line 12
                for s in range(S):
                    memory.v[c, h, s] += memory.pi[h, a, s] * memory.q[c, h, a, s]
    for c in range(C):  # Alg. 2, line 14: V_1, here at the initial distribution
        value = 0.0
        for s in range(S):
            value += memory.initial[s] * memory.v[c, 0, s]
        memory.v_start[c] = value


@jit_open
def row_of(h, s, a, S, A, features):
    """Row of ψ that belongs to (h, s, a)."""
    step = h if features.offsets.size > S * A + 1 else 0
    return (step * S + s) * A + a


@jit_inline
def integrate(row, h, features, memory):
    """sums[c] ← ∫ψ(x,a,x') V_c(x') dx' with V of step h+1, all channels at once."""
    C, d1 = memory.sums.shape
    sums, v, psi = memory.sums, memory.v, features.psi
    for c in range(C):
        for i in range(d1):
            sums[c, i] = 0.0
    for e in range(np.uint64(features.offsets[row]), np.uint64(features.offsets[row + 1])):
        for c in range(C):
            ahead = v[c, h + 1, features.states[e]]
            for i in range(d1):
                sums[c, i] += psi[e, i] * ahead


@jit_inline
def value_features(h, features, memory):
    """φ^m(x, a) = ∫ψ(x,a,x') V^m(x') dx' of all pairs and channels."""
    C, d1 = memory.sums.shape
    _, A, S = memory.pi.shape
    for s in range(S):
        for a in range(A):
            integrate(row_of(h, s, a, S, A, features), h, features, memory)
            for c in range(C):
                for i in range(d1):
                    memory.feature[c, i, a * S + s] = memory.sums[c, i]


@jit_inline
def multipliers(c, h, block, past, K, settings):
    """What the two norms of channel c are multiplied with, and LV."""
    if c > K:
        return 0.0, 0.0, 0.0
    # β; where the drift is known, the repaired LV lets it grow with √n instead.
    scale, scale_r, lv = settings.beta[h], settings.beta_r[h], 0.0
    if c >= 1:
        lv = settings.LV[block, c - 1, h]
        scale += settings.spread_P[block, h] * np.sqrt(float(past))
        scale_r += settings.spread_g[block, c - 1, h] * np.sqrt(float(past))
    return scale, scale_r, lv


@jit_inline
def value_bonus(c, h, scale, memory):
    """Γ_⋄ = β ‖φ^m‖_{Λ⁻¹} of all pairs, for a channel with bonus."""
    pairs = np.uint64(memory.norm.size)
    if h + 1 < memory.pi.shape[0]:
        for start in range(np.uint64(0), pairs, np.uint64(ls.TILE)):
            end = min(start + np.uint64(ls.TILE), pairs)
            ls.norms(memory.factor[c, h], memory.feature[c], start, end, memory.solved, memory.norm)
            for p in range(start, end):
                memory.bonus[c, h, p] = scale * memory.norm[p]


@jit_inline
def reward_coefficients(c, h, lam, features, memory):
    """u = Λ⁻¹ Σ φ ⋄; with one-hot features Λ is diagonal, visits + λ."""
    if features.one_hot:
        for p in range(memory.u.shape[2]):
            memory.u[c, h, p] = memory.gain[c, h, p] / (memory.visits[h, p] + lam)
    else:
        ls.solve(memory.factor_r[h], memory.target_r[h, c], memory.u[c, h])


@jit_inline
def reward_norms(h, lam, features, memory):
    """norm_r ← ‖φ‖_{Λ⁻¹} of all pairs, the same for all channels."""
    pairs = np.uint64(memory.norm_r.size)
    if features.one_hot:
        for p in range(pairs):
            memory.norm_r[p] = 1.0 / np.sqrt(memory.visits[h, p] + lam)
    else:
        step = h if features.phi.shape[0] > 1 else 0
        for start in range(np.uint64(0), pairs, np.uint64(ls.TILE)):
            end = min(start + np.uint64(ls.TILE), pairs)
            ls.norms(
                memory.factor_r[h], features.phi[step], start, end, memory.solved, memory.norm_r
            )


@jit_inline
def predict(c, h, scale_r, lv, features, memory):
    """Q = ⟨φ, u⟩ + ⟨φ^m, w⟩ + bonuses + LV, clipped to [0, H-h+1]; no bonus in channels above K."""
    H, K = memory.pi.shape[0], memory.mu.size
    source = c if c <= K else c - K
    most = float(H - h)
    if features.one_hot:
        for p in range(memory.mean_r.size):
            memory.mean_r[p] = memory.u[source, h, p]
    else:
        step = h if features.phi.shape[0] > 1 else 0
        ls.dots(memory.u[source, h], features.phi[step], memory.mean_r)
    if h + 1 < H:
        ls.dots(memory.w[c, h], memory.feature[c], memory.mean)
        for p in range(memory.mean.size):
            memory.mean_r[p] += memory.mean[p]
    if c <= K:
        for p in range(memory.mean_r.size):
            memory.bonus_r[c, h, p] = scale_r * memory.norm_r[p]
            memory.mean_r[p] += memory.bonus[c, h, p] + memory.bonus_r[c, h, p] + lv
    for p in range(memory.mean_r.size):
        memory.q_flat[c, h, p] = max(min(memory.mean_r[p], most), 0.0)


# ---------------------------------------------------------------- the window


@jit_part
def empty_window(lam, memory):
    """Forget all data."""
    C, H, _, _ = memory.q.shape
    for h in range(H):
        for c in range(C):
            ls.clear(
                lam, memory.factor[c, h], memory.target[c, h], memory.gram[c, h],
                memory.gram_low[c, h], memory.moment[c, h], memory.moment_low[c, h],
            )  # fmt: skip
        ls.clear(
            lam, memory.factor_r[h], memory.target_r[h], memory.gram_r[h], memory.gram_r_low[h],
            memory.moment_r[h], memory.moment_r_low[h],
        )  # fmt: skip
        for p in range(memory.visits.shape[1]):
            memory.visits[h, p] = 0.0
            for c in range(memory.gain.shape[0]):
                memory.gain[c, h, p] = 0.0


@jit_inline
def learn_value(c, h, value, memory):
    """Regress V(x_{h+1}) on the feature in x (first d1 entries)."""
    memory.y[0] = value
    d1 = memory.w.shape[2]
    ls.add_row(
        memory.x[:d1], memory.y, memory.factor[c, h], memory.target[c, h], memory.gram[c, h],
        memory.gram_low[c, h], memory.moment[c, h], memory.moment_low[c, h],
    )  # fmt: skip


@jit_inline
def learn_signals(h, values, memory):
    """Regress reward and utilities of step h on the feature in x (first d2 entries)."""
    for c in range(values.shape[0]):
        memory.y[c] = values[c, h]
    d2 = memory.factor_r.shape[1]
    ls.add_row(
        memory.x[:d2], memory.y, memory.factor_r[h], memory.target_r[h], memory.gram_r[h],
        memory.gram_r_low[h], memory.moment_r[h], memory.moment_r_low[h],
    )  # fmt: skip


@jit_part
def refresh_sometimes(m, settings, memory):
    """Compute factors from their sums.

    All of them every REFRESH episodes of a window; the residual is how far they had moved by then.
    One that is nearly singular after every episode, before it is used, because there a rounding
    error of a rotation is multiplied by the condition number.
    """
    due = (m % settings.W + 1) % REFRESH == 0
    C, H, _, _ = memory.q.shape
    d2 = memory.factor_r.shape[1]
    low, one, two, old = memory.low, memory.vectors[0], memory.vectors[1], memory.coefficients
    for h in range(H):
        for c in range(C):
            singular = ls.nearly_singular(memory.factor[c, h])
            if h + 1 < H and (due or singular):
                off = ls.refresh(
                    memory.factor[c, h], memory.target[c, h], memory.gram[c, h],
                    memory.gram_low[c, h], memory.moment[c, h], memory.moment_low[c, h], low,
                    one, two, old,
                )  # fmt: skip
                if not singular or off == np.inf:
                    memory.residual[0] = max(memory.residual[0], off)
        singular = d2 > 0 and ls.nearly_singular(memory.factor_r[h])
        if d2 > 0 and (due or singular):
            off = ls.refresh(
                memory.factor_r[h], memory.target_r[h], memory.gram_r[h], memory.gram_r_low[h],
                memory.moment_r[h], memory.moment_r_low[h], low, one, two, old,
            )  # fmt: skip
            if not singular or off == np.inf:
                memory.residual[0] = max(memory.residual[0], off)


# ---------------------------------------------------------------- states that are not nodes


@jit_part
def point_q(feature, phi, R, w, R_r, u, scale, scale_r, lv, most, one, two):
    """Q of one channel at one pair: as in `evaluate`, for features given one by one."""
    mean, norm = ls.predict_one(R, w, feature, one)
    mean_r, norm_r = ls.predict_one(R_r, u, phi, two)
    return max(min(mean + mean_r + scale * norm + scale_r * norm_r + lv, most), 0.0)


@jit
def replay(h, n, ahead, phi, settings, history, memory, logits):
    """Policy at P points: sum the estimates of the n episodes of the L-block.

    Parameters
    ----------
    ahead : (n, 1+K, P, A, d1) ∫ψV^τ at the points, zero at the last step
    phi : (P, A, d2)
    logits : (2, P, A) written: α Σ_τ (Q_r + μ·Q_g) minus that of action 0, in two floats
    """
    H = memory.pi.shape[0]
    K = memory.mu.size
    P, A = phi.shape[:2]
    most = float(H - h)
    one, two = memory.vectors[0], memory.vectors[1]
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
                        c, h, history.block[t], history.past[t], K, settings
                    )
                    q = point_q(
                        ahead[t, c, p, a], phi[p, a], history.factor[h, t, c], history.w[h, t, c],
                        history.factor_r[h, t], history.u[h, t, c], scale, scale_r, lv, most, one,
                        two,
                    )  # fmt: skip
                    step += q if c == 0 else history.mu[t, c - 1] * q
                if a == 0:
                    first = step
                logits[0, p, a], logits[1, p, a] = ls.add_two(
                    logits[0, p, a], logits[1, p, a], settings.alpha * (step - first), 0.0
                )


@jit
def end_on_box(
    m, thresholds, psi, phi, pi, actions, values, settings, features, memory, history, place,
    point_v,
):  # fmt: skip
    """`end_episode` where the visited states are not nodes.

    Parameters
    ----------
    psi : (H, A, J, d1), phi : (H, A, d2), pi : (H, A) features and policy at the visited states
    place : where in `history` the estimates of this episode go
    point_v : (C, H+1) written: V of this episode at the visited states
    """
    learner.update_dual(thresholds, settings, memory)
    evaluate(m, settings, features, memory)
    learner.feed_dual(values, settings.feed, memory)
    memory.episode[0] = m + 1
    C, H, A, _ = memory.q.shape
    K = memory.mu.size
    J = psi.shape[2]
    block, past = m // settings.W, m % settings.W
    keep(block, past, place, memory, history)
    at_cap = 0
    for c in range(C):
        point_v[c, H] = 0.0
    for h in range(H - 1, -1, -1):
        for c in range(C):
            source = c if c <= K else c - K
            scale, scale_r, lv = multipliers(c, h, block, past, K, settings)
            value = 0.0
            for a in range(A):
                point_feature(c, h, psi[h, a], J, memory)
                q = point_q(
                    memory.sums[c], phi[h, a], memory.factor[c, h], memory.w[c, h],
                    memory.factor_r[h], memory.u[source, h], scale, scale_r, lv, float(H - h),
                    memory.vectors[0], memory.vectors[1],
                )  # fmt: skip
                value += pi[h, a] * q
                if c <= K and a == actions[h]:
                    at_cap += q >= H - h
            point_v[c, h] = value
    for h in range(H):
        a = actions[h]
        if h + 1 < H:
            for c in range(C):
                point_feature(c, h, psi[h, a], J, memory)
                for i in range(memory.sums.shape[1]):
                    memory.x[i] = memory.sums[c, i]
                learn_value(c, h, point_v[c, h + 1], memory)
        for i in range(phi.shape[2]):
            memory.x[i] = phi[h, a, i]
        learn_signals(h, values, memory)
    refresh_sometimes(m, settings, memory)
    return at_cap


@jit_inline
def point_feature(c, h, psi, J, memory):
    """sums[c] ← Σ_j ψ_j V_c(node j) with V of step h+1 and ψ (J, d1)."""
    for i in range(memory.sums.shape[1]):
        memory.sums[c, i] = 0.0
    for j in range(J):
        for i in range(memory.sums.shape[1]):
            memory.sums[c, i] += psi[j, i] * memory.v[c, h + 1, j]


@jit_inline
def keep(block, past, place, memory, history):
    """Write the estimates of this episode into the history."""
    H, _, C, J = history.v.shape
    d1, d2 = history.w.shape[3], history.u.shape[3]
    history.block[place] = block
    history.past[place] = past
    for k in range(memory.mu.size):
        history.mu[place, k] = memory.mu[k]
    for h in range(H):
        for c in range(C):
            for j in range(J):
                history.v[h, place, c, j] = memory.v[c, h + 1, j]
            for i in range(d1):
                history.w[h, place, c, i] = memory.w[c, h, i]
                for j in range(d1):
                    history.factor[h, place, c, i, j] = memory.factor[c, h, i, j]
            for i in range(d2):
                history.u[h, place, c, i] = memory.u[c, h, i]
        for i in range(d2):
            for j in range(d2):
                history.factor_r[h, place, i, j] = memory.factor_r[h, i, j]


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
def end(m, thresholds, states, actions, values, settings, features, memory):
    """Entry point of `end_episode`."""
    return end_episode(m, thresholds, states, actions, values, settings, features, memory)


@jit
def write_policy(memory, policy):
    """Write the current policy to `policy` (H, S, A)."""
    H, A, S = memory.pi.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                policy[h, s, a] = memory.pi[h, a, s]


@jit
def write_estimates(memory, q):
    """Write the Q estimates of the last episode to `q` (C, H, S, A)."""
    C, H, A, S = memory.q.shape
    for c in range(C):
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    q[c, h, s, a] = memory.q[c, h, a, s]
