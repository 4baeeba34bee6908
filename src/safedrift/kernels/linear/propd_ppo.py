"""PROPD-PPO with Algorithm 2 as compiled parts: least squares on value targets.

The cost of an episode does not depend on its place in the window (unless a Gram matrix is nearly
singular: then its factor is recomputed each time). It consists of integrals of V against ψ over the
successors of every pair, one triangular substitution per pair and regression, and one row rotated
into each regression (`kernels.linear.least_squares`). Regressors φ^τ and targets V^τ are those of
episode τ; they enter the sums once and are never recomputed.

Policy improvement and dual update are those of `kernels.tabular.propd_ppo`.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.linear import least_squares as ls
from safedrift.kernels.linear.integrals import integrate_row
from safedrift.kernels.stepping import first_state, next_linear, observe_linear, row_of
from safedrift.kernels.tabular import propd_ppo as tabular
from safedrift.kernels.types import jit, jit_inline, jit_part, jit_source_inline

REFRESH = 256  # episodes of a window between two exact refreshes of the factors

# ---------------------------------------------------------------- Algorithm 1: one episode


@jit
def play(arrays, hyper, memory, schedule, inputs, buffer, out, trace, log):
    """`kernels.tabular.propd_ppo.play` in a linear-kernel world with finitely many states."""
    B, H = inputs.action_uniforms.shape
    K, A = memory.dual.mu.size, memory.policy.pi.shape[1]
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    written = 0
    for e in range(B):
        m = memory.clock.episode[0]
        begin_episode(schedule.opens_window[e], schedule.restarts[e], hyper, memory)
        if inputs.measured[e]:
            write_policy(memory, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            states[h] = s
            actions[h] = act(h, s, inputs.action_uniforms[e, h], memory)
            first = H + h * (1 + K)
            observe_linear(arrays, m, h, s, actions[h], inputs.noisy, u, first, signals, A)
            if h + 1 < H:
                s = next_linear(arrays, m, h, s, actions[h], u[h + 1], A)
        at_cap = end_episode(
            arrays.thresholds[m], states, actions, signals, hyper, arrays.features, memory
        )
        tabular.keep(e, at_cap, signals, memory, out, trace)
        if log.states.shape[0] > 0:
            write_estimates(memory, log.q[e])
            tabular.keep_episode(e, buffer, log)


@jit_source_inline
def begin_episode(opens_window, restarts, hyper, memory):
    """Policy of the next episode: mirror step or restart; an empty window where one opens."""
    policy = memory.policy
    H, A, S = policy.pi.shape
    if not restarts:
        tabular.improve_policy(hyper.alpha, memory)
    else:
        memory.clock.policy_age[0] = 0
        for h in range(H):
            for a in range(A):
                for s in range(S):
                    policy.logit[h, a, s] = 0.0
                    policy.logit_low[h, a, s] = 0.0
                    policy.pi[h, a, s] = 1.0 / A
    if opens_window:
        memory.clock.window[0] += 1
        memory.clock.window_age[0] = 0
        empty_window(hyper.lam, memory)


@jit_inline
def act(h, s, u, memory):
    """Draw an action from π_h(·|s) with the uniform u."""
    return tabular.pick(h, s, u, memory.policy.pi)


@jit_source_inline
def end_episode(thresholds, states, actions, signals, hyper, features, memory):
    """Dual step, evaluation of π_m on the window, then the episode enters the window.

    Parameters and result as in `kernels.tabular.propd_ppo.end_episode`.
    """
    values, scratch = memory.values, memory.scratch
    tabular.update_dual(thresholds, hyper, memory.dual)
    evaluate(hyper, features, memory)
    tabular.set_dual_signal(signals, hyper.dual_signal, memory)
    H, A, S = memory.policy.pi.shape
    at_cap = 0
    for h in range(H):
        s, a = states[h], actions[h]
        for c in range(signals.shape[0]):
            at_cap += values.q[c, h, a, s] >= H - h
        if h + 1 < H:
            row = row_of(h, s, a, A, features)
            integrate(row, h, features, memory)
            for c in range(scratch.sums.shape[0]):
                for i in range(scratch.sums.shape[1]):
                    scratch.x[i] = scratch.sums[c, i]
                learn_value(c, h, values.v[c, h + 1, states[h + 1]], memory)
        if features.one_hot:
            memory.window.visits[h, a * S + s] += 1.0
            for c in range(signals.shape[0]):
                memory.window.signal_sums[c, h, a * S + s] += signals[c, h]
        else:
            step = h if features.phi.shape[0] > 1 else 0
            for i in range(features.phi.shape[1]):
                scratch.x[i] = features.phi[step, i, a * S + s]
            learn_signals(h, signals, memory)
    refresh_sometimes(memory)
    tabular.advance(memory.clock)
    return at_cap


# ---------------------------------------------------------------- Algorithm 2: evaluation


@jit_source_inline
def evaluate(hyper, features, memory):
    """Optimistic evaluation of the current policy on the window's data (Alg. 1, line 13).

    Alg. 2, line 1: the data are the regressions that `learn_value` and `learn_signals` have kept.
    """
    values = memory.values
    C, H, A, S = values.q.shape
    K = memory.dual.mu.size
    window, past = window_of(hyper, memory.clock)
    for h in range(H - 1, -1, -1):  # Alg. 2, line 2
        if h + 1 < H:  # after the last step V = 0: nothing to regress, no bonus
            for c in range(C):  # Alg. 2, lines 3 and 4; Λ is kept as a factor
                ls.solve(memory.window.factor[c, h], memory.window.target[c, h, 0], values.w[c, h])
            value_features(h, features, memory)  # Alg. 2, line 5
        for c in range(1 + K):
            # Alg. 2, lines 6 and 7: β, LV, and Γ_⋄
            scale, _, _ = multipliers(c, h, window, past, K, hyper)
            value_bonus(c, h, scale, memory)
        for c in range(1 + K):
            reward_coefficients(c, h, hyper.lam, features, memory)  # Alg. 2, lines 8 and 9
        reward_norms(h, hyper.lam, features, memory)  # Alg. 2, line 10, without β
        for c in range(C):
            _, scale_r, lv = multipliers(c, h, window, past, K, hyper)
            predict(c, h, scale_r, lv, features, memory)  # Alg. 2, line 11
            for s in range(S):
                values.v[c, h, s] = 0.0
            for a in range(A):  # Alg. 2, line 12
                for s in range(S):
                    values.v[c, h, s] += memory.policy.pi[h, a, s] * values.q[c, h, a, s]
    for c in range(C):  # Alg. 2, line 14: V_1, here at the initial distribution
        value = 0.0
        for s in range(S):
            value += values.initial[s] * values.v[c, 0, s]
        values.v_start[c] = value


@jit_inline
def window_of(hyper, clock):
    """Row of the constants that belong to the window, and how many episodes it holds."""
    return min(clock.window[0], hyper.LV.shape[0] - 1), clock.window_age[0]


@jit_inline
def integrate(row, h, features, memory):
    """sums[c] ← ∫ψ(x,a,x') V_c(x') dx' with V of step h+1, all channels."""
    first = np.int64(features.offsets[row])
    count = np.int64(features.offsets[row + 1]) - first
    step, sums = np.int64(h + 1), memory.scratch.sums
    integrate_row(first, count, features.psi, features.states, memory.values.v, step, sums)


@jit_inline
def value_features(h, features, memory):
    """φ^m(x, a) = ∫ψ(x,a,x') V^m(x') dx' of all pairs and channels."""
    scratch = memory.scratch
    C, d1 = scratch.sums.shape
    _, A, S = memory.policy.pi.shape
    for s in range(S):
        for a in range(A):
            integrate(row_of(h, s, a, A, features), h, features, memory)
            for c in range(C):
                for i in range(d1):
                    scratch.feature[c, i, a * S + s] = scratch.sums[c, i]


@jit_inline
def multipliers(c, h, window, past, K, hyper):
    """What the two norms of channel c are multiplied with, and LV."""
    if c > K:
        return 0.0, 0.0, 0.0
    # β; where the drift is known, the repaired LV lets it grow with √n instead.
    scale, scale_r, lv = hyper.beta[h], hyper.beta_r[h], 0.0
    if c >= 1:
        lv = hyper.LV[window, c - 1, h]
        scale += hyper.window_drift_P[window, h] * np.sqrt(float(past))
        scale_r += hyper.window_drift_g[window, c - 1, h] * np.sqrt(float(past))
    return scale, scale_r, lv


@jit_inline
def value_bonus(c, h, scale, memory):
    """Γ_⋄ = β ‖φ^m‖_{Λ⁻¹} of all pairs, for a channel with bonus."""
    scratch = memory.scratch
    pairs = np.uint64(scratch.norm.size)
    if h + 1 < memory.policy.pi.shape[0]:
        for start in range(np.uint64(0), pairs, np.uint64(ls.TILE)):
            end = min(start + np.uint64(ls.TILE), pairs)
            ls.norms(
                memory.window.factor[c, h],
                scratch.feature[c],
                start,
                end,
                scratch.solved,
                scratch.norm,
            )
            for p in range(start, end):
                memory.values.bonus[c, h, p] = scale * scratch.norm[p]


@jit_inline
def reward_coefficients(c, h, lam, features, memory):
    """u = Λ⁻¹ Σ φ ⋄; with one-hot features Λ is diagonal, visits + λ."""
    window, values = memory.window, memory.values
    if features.one_hot:
        for p in range(values.u.shape[2]):
            values.u[c, h, p] = window.signal_sums[c, h, p] / (window.visits[h, p] + lam)
    else:
        ls.solve(window.factor_r[h], window.target_r[h, c], values.u[c, h])


@jit_inline
def reward_norms(h, lam, features, memory):
    """norm_r ← ‖φ‖_{Λ⁻¹} of all pairs, the same for all channels."""
    window, scratch = memory.window, memory.scratch
    pairs = np.uint64(scratch.norm_r.size)
    if features.one_hot:
        for p in range(pairs):
            scratch.norm_r[p] = 1.0 / np.sqrt(window.visits[h, p] + lam)
    else:
        step = h if features.phi.shape[0] > 1 else 0
        for start in range(np.uint64(0), pairs, np.uint64(ls.TILE)):
            end = min(start + np.uint64(ls.TILE), pairs)
            ls.norms(
                window.factor_r[h], features.phi[step], start, end, scratch.solved, scratch.norm_r
            )


@jit_inline
def predict(c, h, scale_r, lv, features, memory):
    """Q = ⟨φ, u⟩ + ⟨φ^m, w⟩ + bonuses + LV, clipped to [0, H-h+1]; no bonus in channels above K."""
    values, scratch = memory.values, memory.scratch
    H, K = memory.policy.pi.shape[0], memory.dual.mu.size
    source = c if c <= K else c - K
    most = float(H - h)
    if features.one_hot:
        for p in range(scratch.mean_r.size):
            scratch.mean_r[p] = values.u[source, h, p]
    else:
        step = h if features.phi.shape[0] > 1 else 0
        ls.dots(values.u[source, h], features.phi[step], scratch.mean_r)
    if h + 1 < H:
        ls.dots(values.w[c, h], scratch.feature[c], scratch.mean)
        for p in range(scratch.mean.size):
            scratch.mean_r[p] += scratch.mean[p]
    if c <= K:
        for p in range(scratch.mean_r.size):
            values.bonus_r[c, h, p] = scale_r * scratch.norm_r[p]
            scratch.mean_r[p] += values.bonus[c, h, p] + values.bonus_r[c, h, p] + lv
    for p in range(scratch.mean_r.size):
        values.q_flat[c, h, p] = max(min(scratch.mean_r[p], most), 0.0)


# ---------------------------------------------------------------- the window


@jit_part
def empty_window(lam, memory):
    """Forget all data."""
    window = memory.window
    C, H, _, _ = memory.values.q.shape
    for h in range(H):
        for c in range(C):
            ls.clear(
                lam,
                window.factor[c, h],
                window.target[c, h],
                window.gram[c, h],
                window.gram_low[c, h],
                window.moment[c, h],
                window.moment_low[c, h],
            )
        ls.clear(
            lam,
            window.factor_r[h],
            window.target_r[h],
            window.gram_r[h],
            window.gram_r_low[h],
            window.moment_r[h],
            window.moment_r_low[h],
        )
        for p in range(window.visits.shape[1]):
            window.visits[h, p] = 0.0
            for c in range(window.signal_sums.shape[0]):
                window.signal_sums[c, h, p] = 0.0


@jit_inline
def learn_value(c, h, value, memory):
    """Regress V(x_{h+1}) on the feature in x (first d1 entries)."""
    window, scratch = memory.window, memory.scratch
    scratch.y[0] = value
    d1 = memory.values.w.shape[2]
    ls.add_row(
        scratch.x[:d1],
        scratch.y,
        window.factor[c, h],
        window.target[c, h],
        window.gram[c, h],
        window.gram_low[c, h],
        window.moment[c, h],
        window.moment_low[c, h],
    )


@jit_inline
def learn_signals(h, signals, memory):
    """Regress reward and utilities of step h on the feature in x (first d2 entries)."""
    window, scratch = memory.window, memory.scratch
    for c in range(signals.shape[0]):
        scratch.y[c] = signals[c, h]
    d2 = window.factor_r.shape[1]
    ls.add_row(
        scratch.x[:d2],
        scratch.y,
        window.factor_r[h],
        window.target_r[h],
        window.gram_r[h],
        window.gram_r_low[h],
        window.moment_r[h],
        window.moment_r_low[h],
    )


@jit_part
def refresh_sometimes(memory):
    """Compute factors from their sums.

    All of them every REFRESH episodes of a window; the residual is how far they had moved by then.
    One that is nearly singular after every episode, before it is used, because there a rounding
    error of a rotation is multiplied by the condition number.
    """
    window, scratch = memory.window, memory.scratch
    due = (memory.clock.window_age[0] + 1) % REFRESH == 0
    C, H, _, _ = memory.values.q.shape
    d2 = window.factor_r.shape[1]
    low, one, two, old = scratch.low, scratch.vectors[0], scratch.vectors[1], scratch.coefficients
    for h in range(H):
        for c in range(C):
            singular = ls.nearly_singular(window.factor[c, h])
            if h + 1 < H and (due or singular):
                off = ls.refresh(
                    window.factor[c, h],
                    window.target[c, h],
                    window.gram[c, h],
                    window.gram_low[c, h],
                    window.moment[c, h],
                    window.moment_low[c, h],
                    low,
                    one,
                    two,
                    old,
                )
                if not singular or off == np.inf:
                    window.residual[0] = max(window.residual[0], off)
        singular = d2 > 0 and ls.nearly_singular(window.factor_r[h])
        if d2 > 0 and (due or singular):
            off = ls.refresh(
                window.factor_r[h],
                window.target_r[h],
                window.gram_r[h],
                window.gram_r_low[h],
                window.moment_r[h],
                window.moment_r_low[h],
                low,
                one,
                two,
                old,
            )
            if not singular or off == np.inf:
                window.residual[0] = max(window.residual[0], off)


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(opens_window, restarts, hyper, memory):
    """Entry point of `begin_episode` for an episode at a time."""
    begin_episode(opens_window, restarts, hyper, memory)


@jit
def draw(h, s, u, memory):
    """Entry point of `act`."""
    return act(h, s, u, memory)


@jit
def end(thresholds, states, actions, signals, hyper, features, memory):
    """Entry point of `end_episode`."""
    return end_episode(thresholds, states, actions, signals, hyper, features, memory)


@jit
def write_policy(memory, policy):
    """Write the current policy to `policy` (H, S, A)."""
    H, A, S = memory.policy.pi.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                policy[h, s, a] = memory.policy.pi[h, a, s]


@jit
def write_estimates(memory, q):
    """Write the Q estimates of the last episode to `q` (C, H, S, A)."""
    values = memory.values
    C, H, A, S = values.q.shape
    for c in range(C):
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    q[c, h, s, a] = values.q[c, h, a, s]
