"""One step through a world, compiled: first state, successor, observed reward and utilities.

Uniforms are drawn outside. An episode uses, in this order, 1 number for the first state, the same
number for each of H-1 successors, then 1+K for the observations of each of H steps (used only where
these are noisy).
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.types import jit, jit_inline, jit_source_inline


@jit_inline
def first_state(arrays, u):
    """Draw the first state."""
    below = 0.0
    for i in range(arrays.initial.size):
        below += arrays.initial[i]
        if u < below:
            return np.int64(arrays.initial_states[i])
    return np.int64(arrays.initial_states[arrays.initial.size - 1])


@jit_source_inline
def toss(h, uniforms, first, signals):
    """Replace the means in signals[:, h] by Bernoulli draws."""
    for c in range(signals.shape[0]):
        signals[c, h] = 1.0 if uniforms[first + c] < signals[c, h] else 0.0


# ---------------------------------------------------------------- tables


@jit_inline
def next_state(arrays, m, h, s, a, u):
    """Draw x' ~ P^m_h(·|s,a): a scenario by its weight, then a successor in that scenario."""
    _, _, S, A = arrays.rewards.shape
    scenario, weight = arrays.transition_path.scenario, arrays.transition_path.weight
    j = 0
    while j + 1 < scenario.shape[1] and (u >= weight[m, j] or weight[m, j] == 0.0):
        u -= weight[m, j]
        j += 1
    while weight[m, j] == 0.0:  # rounding pushed u past the last scenario in use
        j -= 1
    u = min(u / weight[m, j], 1.0 - 1e-16)
    n = scenario[m, j]
    row = (h * S + s) * A + a
    low, high = arrays.offsets[row], arrays.offsets[row + 1] - 1
    while high - low > 8:
        middle = (low + high) // 2
        if u < arrays.cumulative[n, middle]:
            high = middle
        else:
            low = middle + 1
    place = low
    for e in range(low, high):  # counting instead of stopping avoids a branch per successor
        place += u >= arrays.cumulative[n, e]
    return np.int64(arrays.states[place])


@jit_inline
def observe(arrays, m, h, s, a, noisy, uniforms, first, signals):
    """Write reward and utilities of (h, s, a) to signals[:, h].

    Where noisy, they are Bernoulli draws with the uniforms from number `first` on.
    """
    scenario, weight = arrays.reward_path.scenario, arrays.reward_path.weight
    mean = 0.0
    for j in range(scenario.shape[1]):
        mean += weight[m, j] * arrays.rewards[scenario[m, j], h, s, a]
    signals[0, h] = mean
    scenario, weight = arrays.utility_path.scenario, arrays.utility_path.weight
    for k in range(signals.shape[0] - 1):
        mean = 0.0
        for j in range(scenario.shape[1]):
            mean += weight[m, j] * arrays.utilities[scenario[m, j], k, h, s, a]
        signals[1 + k, h] = mean
    if noisy:
        toss(h, uniforms, first, signals)


# ---------------------------------------------------------------- linear kernels


@jit_source_inline
def row_of(h, s, a, A, features):
    """Row of ψ that belongs to (h, s, a); features that are the same at every step have one set."""
    pairs = features.phi.shape[2]
    return (h * pairs if features.offsets.size > pairs + 1 else 0) + s * A + a


@jit_inline
def next_linear(arrays, m, h, s, a, u, A):
    """Draw x' ~ ⟨ψ(s,a,·), θ⟩ by running through the successors of the pair."""
    features, theta = arrays.features, arrays.theta
    row = row_of(h, s, a, A, features)
    below = 0.0
    last = features.offsets[row]
    for e in range(features.offsets[row], features.offsets[row + 1]):
        p = 0.0
        for i in range(theta.shape[2]):
            p += features.psi[e, i] * theta[m, h, i]
        if p > 0.0:
            below += p
            last = e
            if u < below:
                break
    return np.int64(features.states[last])


@jit_inline
def observe_linear(arrays, m, h, s, a, noisy, uniforms, first, signals, A):
    """`observe` in a linear-kernel world: r = ⟨φ, θ_r⟩ and g = ⟨φ, θ_g⟩, clipped to [0, 1]."""
    features, d2 = arrays.features, arrays.theta_r.shape[2]
    S = features.phi.shape[2] // A
    step = h if features.phi.shape[0] > 1 else 0
    for c in range(signals.shape[0]):
        mean = 0.0
        if features.one_hot:
            i = s * A + a
            mean = arrays.theta_r[m, h, i] if c == 0 else arrays.theta_g[m, c - 1, h, i]
        else:
            for i in range(d2):
                x = features.phi[step, i, a * S + s]
                mean += x * (arrays.theta_r[m, h, i] if c == 0 else arrays.theta_g[m, c - 1, h, i])
        signals[c, h] = min(max(mean, 0.0), 1.0)
    if noisy:
        toss(h, uniforms, first, signals)


# ---------------------------------------------------------------- entry points for Python


@jit
def draw_first(arrays, u):
    """Entry point of `first_state`, for either kind of world."""
    return first_state(arrays, u)


@jit
def draw_next(arrays, m, h, s, a, u):
    """Entry point of `next_state`."""
    return next_state(arrays, m, h, s, a, u)


@jit
def draw_signals(arrays, m, h, s, a, noisy, uniforms, signals):
    """Entry point of `observe`: writes column h of `signals` (1+K, H), with uniforms (1+K,)."""
    observe(arrays, m, h, s, a, noisy, uniforms, 0, signals)


@jit
def draw_next_linear(arrays, m, h, s, a, u, A):
    """Entry point of `next_linear`."""
    return next_linear(arrays, m, h, s, a, u, A)


@jit
def draw_signals_linear(arrays, m, h, s, a, noisy, uniforms, signals, A):
    """Entry point of `observe_linear`."""
    observe_linear(arrays, m, h, s, a, noisy, uniforms, 0, signals, A)
