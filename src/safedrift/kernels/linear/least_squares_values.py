"""Optimistic least-squares value iteration with a multiplier, compiled.

Before episode m, backwards over the steps, for reward and utilities:

    w = Λ⁻¹ Σ_τ ζ^(m-1-τ) φ^τ V^τ(x'),      Λ = λI + Σ_τ ζ^(m-1-τ) φ^τ φ^τᵀ,  φ^τ = ∫ψ V^τ
    Q = min(⟨φ, u⟩ + β_r |φ| + ⟨φ^m, w⟩ + β |φ^m|, H-h+1)_+
    π_h(·|x) ∝ exp(α (Q_r + Σ_k μ_k Q_g,k)),  V = ⟨π, Q⟩

with u the same regression of reward or utility on φ(x, a). Without a discount (ζ = 1) the norm is
|x|² = xᵀΛ⁻¹x. With one it is that of the weighted estimator's variance,

    |x|² = xᵀ Λ⁻¹ Λ' Λ⁻¹ x,  Λ' = λI + Σ_τ ζ^(2(m-1-τ)) φ^τ φ^τᵀ.

After the episode μ_k ← clip(μ_k + η (b_k - V_g,k(x_1)), 0, χ), and its rows enter the sums. Where
there is a discount the sums are multiplied by it first, with (1 - ζ)λI added, and every factor is
computed from its sums anew.

Regressions, integrals and predictions are those of `kernels.linear.propd_ppo`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.linear import least_squares as ls
from safedrift.kernels.linear.memory import LinearMemory
from safedrift.kernels.linear.propd_ppo import (
    act,
    empty_window,
    integrate,
    learn_signals,
    learn_value,
    predict,
    refresh_sometimes,
    reward_coefficients,
    reward_norms,
    value_bonus,
    value_features,
    write_policy,
)
from safedrift.kernels.stepping import first_state, next_linear, observe_linear, row_of
from safedrift.kernels.tabular.propd_ppo import advance, exponentials, keep
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_part, jit_source_inline


class ValueHyperparameters(NamedTuple):
    """What the compiled parts need to know."""

    alpha: float  # inverse temperature of the softmax
    eta: float  # dual: step size
    chi: float  # dual: upper bound of the multipliers
    lam: float  # ridge parameter λ
    discount: float  # ζ in (0, 1]; 1 discounts nothing
    beta: FloatArray  # (H,) transition bonus
    beta_r: FloatArray  # (H,) reward bonus


class SquaredSums(NamedTuple):
    """Λ' of all regressions: as Λ, with squared weights. Used where there is a discount."""

    gram: FloatArray  # (1+K, H, d1, d1) upper triangles
    gram_r: FloatArray  # (H, d2, d2) upper triangles
    visits: FloatArray  # (H, A*S) where one-hot, without λ


def make_squared_sums(memory: LinearMemory) -> SquaredSums:
    """Return room for the squared sums of a learner with this memory."""
    window = memory.window
    return SquaredSums(*(np.zeros_like(x) for x in (window.gram, window.gram_r, window.visits)))


# ---------------------------------------------------------------- one episode


@jit
def play(arrays, hyper, memory, squares, schedule, inputs, buffer, out, trace):
    """Play and learn B episodes.

    Parameters
    ----------
    arrays : LinearArrays, the world
    schedule : Schedule, of which `opens_window` and `restarts` (the multipliers) are used
    buffer : EpisodeBuffer, scratch
    out : ChunkOutput, written
    trace : Trace, written
    """
    B, H = inputs.action_uniforms.shape
    K, A = memory.dual.mu.size, memory.policy.pi.shape[1]
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    written = 0
    for e in range(B):
        m = memory.clock.episode[0]
        begin_episode(
            schedule.opens_window[e],
            schedule.restarts[e],
            hyper,
            arrays.features,
            memory,
            squares,
        )
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
            arrays.thresholds[m],
            states,
            actions,
            signals,
            hyper,
            arrays.features,
            memory,
            squares,
        )
        keep(e, at_cap, signals, memory, out, trace)


@jit
def begin_episode(opens_window, restarts, hyper, features, memory, squares):
    """Forget what is to be forgotten, then the policy of the next episode by value iteration."""
    if opens_window:
        memory.clock.window[0] += 1
        memory.clock.window_age[0] = 0
        empty_window(hyper.lam, memory)
        empty_squares(hyper.lam, squares)
    if restarts:
        memory.clock.policy_age[0] = 0
        for k in range(memory.dual.mu.size):
            memory.dual.mu[k] = 0.0
    iterate_values(hyper, features, memory, squares)


@jit
def end_episode(thresholds, states, actions, signals, hyper, features, memory, squares):
    """Dual step, then the episode enters the regressions.

    Returns how many of the H*(1+K) estimates at the visited pairs sit at their cap.
    """
    values, dual, scratch = memory.values, memory.dual, memory.scratch
    H, A, S = memory.policy.pi.shape
    for k in range(dual.mu.size):
        step = hyper.eta * (thresholds[k] - values.v_start[1 + k])
        dual.mu[k] = min(max(dual.mu[k] + step, 0.0), hyper.chi)
    if hyper.discount < 1.0:
        discount_sums(hyper.discount, hyper.lam, memory, squares)
    at_cap = 0
    for h in range(H):
        s, a = states[h], actions[h]
        for c in range(signals.shape[0]):
            at_cap += values.q[c, h, a, s] >= H - h
        if h + 1 < H:
            integrate(row_of(h, s, a, A, features), h, features, memory)
            for c in range(scratch.sums.shape[0]):
                for i in range(scratch.sums.shape[1]):
                    scratch.x[i] = scratch.sums[c, i]
                add_square(scratch.x, squares.gram[c, h])
                learn_value(c, h, values.v[c, h + 1, states[h + 1]], memory)
        if features.one_hot:
            memory.window.visits[h, a * S + s] += 1.0
            squares.visits[h, a * S + s] += 1.0
            for c in range(signals.shape[0]):
                memory.window.signal_sums[c, h, a * S + s] += signals[c, h]
        else:
            step_ = h if features.phi.shape[0] > 1 else 0
            for i in range(features.phi.shape[1]):
                scratch.x[i] = features.phi[step_, i, a * S + s]
            add_square(scratch.x, squares.gram_r[h])
            learn_signals(h, signals, memory)
    refresh_sometimes(memory)
    advance(memory.clock)
    return at_cap


# ---------------------------------------------------------------- value iteration


@jit_source_inline
def iterate_values(hyper, features, memory, squares):
    """Q, the softmax policy and V of all steps, from the last one on."""
    values, pi = memory.values, memory.policy.pi
    C, H, A, S = values.q.shape
    for h in range(H - 1, -1, -1):
        if h + 1 < H:  # after the last step V = 0: nothing to regress, no bonus
            value_features(h, features, memory)
            for c in range(C):
                ls.solve(memory.window.factor[c, h], memory.window.target[c, h, 0], values.w[c, h])
                if hyper.discount < 1.0:
                    weighted_value_bonus(c, h, hyper.beta[h], memory, squares)
                else:
                    value_bonus(c, h, hyper.beta[h], memory)
        if hyper.discount < 1.0:
            weighted_reward_norms(h, hyper.lam, features, memory, squares)
        else:
            reward_norms(h, hyper.lam, features, memory)
        for c in range(C):
            reward_coefficients(c, h, hyper.lam, features, memory)
            predict(c, h, hyper.beta_r[h], 0.0, features, memory)
        soften(h, hyper.alpha, memory)
        for c in range(C):
            for s in range(S):
                values.v[c, h, s] = 0.0
            for a in range(A):
                for s in range(S):
                    values.v[c, h, s] += pi[h, a, s] * values.q[c, h, a, s]
    for c in range(C):
        value = 0.0
        for s in range(S):
            value += values.initial[s] * values.v[c, 0, s]
        values.v_start[c] = value


@jit_inline
def soften(h, alpha, memory):
    """π_h ∝ exp(α (Q_r + Σ_k μ_k Q_g,k)), by differences to action 0."""
    q, mu, pi, scratch = memory.values.q, memory.dual.mu, memory.policy.pi, memory.scratch
    top, total = scratch.top, scratch.step
    _, A, S = pi.shape
    for s in range(S):
        top[s] = 0.0
        total[s] = 0.0
    for a in range(A):
        for s in range(S):
            better = q[0, h, a, s] - q[0, h, 0, s]
            for k in range(mu.size):
                better += mu[k] * (q[1 + k, h, a, s] - q[1 + k, h, 0, s])
            pi[h, a, s] = alpha * better
            top[s] = max(top[s], pi[h, a, s])
    for a in range(A):
        for s in range(S):
            pi[h, a, s] -= top[s]
    exponentials(h, np.uint64(0), np.uint64(A * S), memory)
    for a in range(A):
        for s in range(S):
            total[s] += pi[h, a, s]
    for a in range(A):
        for s in range(S):
            pi[h, a, s] /= total[s]


@jit_part
def weighted_norm(R, square, x):
    """√(xᵀ Λ⁻¹ Λ' Λ⁻¹ x) with Λ = RᵀR and the upper triangle of Λ'. x (d,) is used up."""
    d = R.shape[0]
    for i in range(d):  # x ← R⁻ᵀ x
        for j in range(i):
            x[i] -= R[j, i] * x[j]
        x[i] /= R[i, i]
    for i in range(d - 1, -1, -1):  # x ← R⁻¹ x
        for j in range(i + 1, d):
            x[i] -= R[i, j] * x[j]
        x[i] /= R[i, i]
    total = 0.0
    for i in range(d):
        row = 0.5 * square[i, i] * x[i]
        for j in range(i + 1, d):
            row += square[i, j] * x[j]
        total += 2.0 * x[i] * row
    return np.sqrt(max(total, 0.0))


@jit_inline
def weighted_value_bonus(c, h, scale, memory, squares):
    """The transition bonus of all pairs, with the norm of a discounted regression."""
    scratch = memory.scratch
    R, square = memory.window.factor[c, h], squares.gram[c, h]
    for p in range(scratch.norm.size):
        for i in range(R.shape[0]):
            scratch.x[i] = scratch.feature[c, i, p]
        memory.values.bonus[c, h, p] = scale * weighted_norm(R, square, scratch.x)


@jit_inline
def weighted_reward_norms(h, lam, features, memory, squares):
    """norm_r ← the norm of φ of all pairs in a discounted regression."""
    window, scratch = memory.window, memory.scratch
    if features.one_hot:
        for p in range(scratch.norm_r.size):
            square = squares.visits[h, p] + lam
            scratch.norm_r[p] = np.sqrt(square) / (window.visits[h, p] + lam)
    else:
        step = h if features.phi.shape[0] > 1 else 0
        for p in range(scratch.norm_r.size):
            for i in range(features.phi.shape[1]):
                scratch.x[i] = features.phi[step, i, p]
            scratch.norm_r[p] = weighted_norm(window.factor_r[h], squares.gram_r[h], scratch.x)


# ---------------------------------------------------------------- sums with squared weights


@jit_part
def empty_squares(lam, squares):
    """Λ' = λI for all regressions."""
    for h in range(squares.gram.shape[1]):
        for c in range(squares.gram.shape[0]):
            reset_square(lam, squares.gram[c, h])
        reset_square(lam, squares.gram_r[h])
        for p in range(squares.visits.shape[1]):
            squares.visits[h, p] = 0.0


@jit_inline
def reset_square(lam, square):
    """Λ' = λI."""
    for i in range(square.shape[0]):
        for j in range(square.shape[0]):
            square[i, j] = lam if i == j else 0.0


@jit_inline
def add_square(x, square):
    """Λ' ← Λ' + x xᵀ, upper triangle."""
    for i in range(square.shape[0]):
        for j in range(i, square.shape[0]):
            square[i, j] += x[i] * x[j]


@jit_part
def discount_sums(factor, lam, memory, squares):
    """Λ ← ζΛ + (1-ζ)λI, b ← ζb, Λ' ← ζ²Λ' + (1-ζ²)λI, for all regressions."""
    window, scratch = memory.window, memory.scratch
    C, H, _, _ = memory.values.q.shape
    low, one, two, old = scratch.low, scratch.vectors[0], scratch.vectors[1], scratch.coefficients
    for h in range(H):
        for c in range(C):
            if h + 1 < H:
                discount_regression(
                    factor,
                    lam,
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
                discount_square(factor, lam, squares.gram[c, h])
        if window.factor_r.shape[1] > 0:
            discount_regression(
                factor,
                lam,
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
            discount_square(factor, lam, squares.gram_r[h])
        for p in range(window.visits.shape[1]):
            window.visits[h, p] *= factor
            squares.visits[h, p] *= factor * factor
            for c in range(C):
                window.signal_sums[c, h, p] *= factor


@jit_part
def discount_regression(
    factor, lam, R, z, gram, gram_low, moment, moment_low, R_low, z_low, w, old_w
):
    """Discount the sums of one regression and compute its factor from them."""
    d, T = R.shape[0], z.shape[0]
    for i in range(d):
        for j in range(i, d):
            high, low = scaled(factor, gram[i, j], gram_low[i, j])
            if i == j:
                high, low = ls.add_two(high, low, lam, 0.0)
                product, rest = ls.split_product(-factor, lam)
                high, low = ls.add_two(high, low, product, rest)
            gram[i, j], gram_low[i, j] = high, low
        for t in range(T):
            moment[t, i], moment_low[t, i] = scaled(factor, moment[t, i], moment_low[t, i])
    ls.refresh(R, z, gram, gram_low, moment, moment_low, R_low, z_low, w, old_w)


@jit_inline
def scaled(factor, high, low):
    """(high + low) * factor, in two floats."""
    product, rest = ls.split_product(factor, high)
    return ls.add_two(product, rest, factor * low, 0.0)


@jit_inline
def discount_square(factor, lam, square):
    """Λ' ← ζ²Λ' + (1-ζ²)λI."""
    for i in range(square.shape[0]):
        for j in range(i, square.shape[0]):
            square[i, j] *= factor * factor
        square[i, i] += (1.0 - factor * factor) * lam
