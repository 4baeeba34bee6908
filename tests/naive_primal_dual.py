"""A slow, obvious twin of the primal-dual family, written from its formulas. It shares no code.

Arrays are dense, axes [constraint, step, state, action, next state]; episodes count from 0.
The window is a list of (weight, episode), counted anew for every estimate.
"""

import numpy as np


def primal_dual(
    *, play, thresholds, sizes, initial, policy, multiplier, schedule, lam, bonus, utility,
    dual_signal, prompt, lagged, alpha, eta, xi, chi, theta, tau, kappa, every, gains, smoothing,
    steps, margin, scale, rounds=0, filters=None,
):  # fmt: skip
    """The family on whatever `play` returns; yields every quantity of every episode.

    play(m, pi) -> states (H,), actions (H,), rewards (H,), utilities (K, H)
    schedule(m) -> opens_window, drops, discount, restarts
    bonus(h, n, n3, V) -> (S, A), may be infinite at n = 0
    utility : sign of the bonus in Q_g; dual_signal : "policy", "observed" or a sign
    filters : decide what the window holds (`naive_filters.AdaptiveWindow`), or None
    """
    M, H, S, A, K = sizes
    uniform = np.full((H, S, A), 1 / A)
    log_pi = np.log(uniform)
    Q, V = np.zeros((1 + K, H, S, A)), np.zeros(1 + K)
    mu, seen, b_before = np.zeros(K), np.zeros(K), np.zeros(K)
    integral, error, value = np.zeros(K), None, None
    window, age, news = [], 0, False
    plans = policy in ("greedy", "softmax")
    pi = uniform

    def data():
        return count(window, sizes) if filters is None else filters.counts

    def estimates(pi, response, sign):
        """Q and V at the start of all channels; `response` is None or a function of Q at a step."""
        counts = data()
        signs = [1.0] + [sign] * K
        out_pi, out_Q, V_next = uniform.copy(), np.zeros((1 + K, H, S, A)), np.zeros((1 + K, S))
        for h in range(H - 1, -1, -1):
            for c in range(1 + K):
                most = H - h + (tau * np.log(A) * (H - h - 1) if c == 0 else 0.0)
                out_Q[c, h] = q_values(h, counts, c, V_next[c], signs[c], lam, bonus, most)
            out_pi[h] = pi[h] if response is None else response(out_Q[:, h])
            V_next = (out_pi[h] * out_Q[:, h]).sum(axis=-1)
            if tau > 0:
                logs = np.where(out_pi[h] > 0, np.log(np.maximum(out_pi[h], 1e-300)), 0.0)
                V_next[0] -= tau * (out_pi[h] * logs).sum(axis=-1)
        return out_pi, out_Q, V_next @ initial

    def dual_values(pi):
        if dual_signal in ("policy", "observed"):
            return None
        return signed_values(data(), sizes, pi, dual_signal, lam, bonus, initial)

    def response_to(multipliers):
        def response(Q_h):
            total = Q_h[0] + np.tensordot(multipliers, Q_h[1:], axes=1)
            top = total.max(axis=-1, keepdims=True)
            if policy == "greedy":
                weights = (total >= top - 1e-9 * (1 + top)).astype(float)
            else:
                weights = np.exp((total - top) / kappa)
            return weights / weights.sum(axis=-1, keepdims=True)

        return response

    def dual_step(b):
        nonlocal mu, integral, error, value
        if multiplier == "ascent":
            wanted = b_before if lagged else b
            unscaled = at(scale, age) * mu + eta * (wanted - seen - xi * mu)
            mu = np.clip(unscaled / at(scale, age + 1), 0, chi)
        if multiplier == "pid":
            d = b - seen
            if error is None:
                error, value, before = d, seen, seen
            else:
                before = value
                error = smoothing * error + (1 - smoothing) * d
                value = smoothing * value + (1 - smoothing) * seen
            rest = gains[0] * error + gains[2] * np.maximum(before - value, 0)
            grown = np.maximum(integral + d, 0)
            frozen = (d > 0) & (rest + gains[1] * grown > chi)
            integral = np.where(frozen, integral, grown)
            mu = np.clip(rest + gains[1] * integral, 0, chi)

    def improved(log_pi):
        if policy == "mixed":
            log_pi = np.log((1 - theta) * np.exp(log_pi) + theta / A)
        if policy == "regularised":
            log_pi = (1 - alpha * tau) * log_pi
        return normalised(log_pi + alpha * (Q[0] + np.tensordot(mu, Q[1:], axes=1)))

    for m in range(M):
        opens, drops, discount, restarts = schedule(m)
        if not restarts and not plans:
            log_pi = improved(log_pi)
        if opens:
            window = []
        if drops:
            window = window[1:]
        window = [(weight * discount, episode) for weight, episode in window]
        if restarts:
            log_pi, age = np.log(uniform), 0
            pi = uniform
        b = thresholds[m] + at(margin, age)
        for _ in range(rounds):
            pi = np.exp(log_pi)
            _, Q, V = estimates(pi, None, utility)
            seen = V[1:] if dual_signal == "policy" else dual_values(pi)
            dual_step(b)
            b_before = b
            log_pi = improved(log_pi)
        due = m % every == 0 or restarts or opens
        if plans and (due or news):
            if multiplier == "bisection" and due:
                mu = np.array([searched(estimates, response_to, utility, b[0], chi, steps)])
            pi, Q, V = estimates(None, response_to(mu), utility)
            V_dual = dual_values(pi)
        if not plans:
            pi = np.exp(log_pi)

        states, actions, rewards, utilities = play(m, pi)

        if not prompt:
            dual_step(b)
        if not plans:
            _, Q, V = estimates(pi, None, utility)
            V_dual = dual_values(pi)
        if dual_signal == "observed":
            seen = utilities.sum(axis=1)
        elif dual_signal == "policy":
            seen = V[1:]
        else:
            seen = V_dual
        if prompt:
            dual_step(b)
        b_before = b
        n = data()[1]
        news = any(n[h, states[h], actions[h]] <= 0 for h in range(H))
        window = [*window, (1.0, (states, actions, rewards, utilities))]
        if filters is not None:
            filters.add(states, actions, rewards, utilities)
        age += 1
        yield {"policy": pi, "mu": mu, "Q": Q, "V": V, "integral": integral}


def at(table, age):
    return table[min(age, len(table) - 1)]


def normalised(log_pi):
    top = log_pi.max(axis=-1, keepdims=True)
    return log_pi - top - np.log(np.exp(log_pi - top).sum(axis=-1, keepdims=True))


def searched(estimates, response_to, sign, b, chi, steps):
    """The smallest μ in [0, χ] whose response has V_g ≥ b, by bisection."""

    def value(mu):
        return estimates(None, response_to(np.array([mu])), sign)[2][1]

    if value(0.0) >= b:
        return 0.0
    if value(chi) < b:
        return chi
    low, high = 0.0, chi
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if value(middle) >= b else (middle, high)
    return high


def count(window, sizes):
    """Weighted counts n3 (H, S, A, S), n (H, S, A) and sums (1+K, H, S, A)."""
    _, H, S, A, K = sizes
    n3, n, sums = np.zeros((H, S, A, S)), np.zeros((H, S, A)), np.zeros((1 + K, H, S, A))
    for weight, (states, actions, rewards, utilities) in window:
        for h in range(H):
            x, a = states[h], actions[h]
            n[h, x, a] += weight
            sums[0, h, x, a] += weight * rewards[h]
            sums[1:, h, x, a] += weight * utilities[:, h]
            if h + 1 < H:
                n3[h, x, a, states[h + 1]] += weight
    return n3, n, sums


def q_values(h, counts, channel, V, sign, lam, bonus, most):
    """clip(r̂ + P̂V + sign · bonus, 0, most); without bonus unvisited pairs are at the cap."""
    n3, n, sums = counts
    value = (sums[channel, h] + n3[h] @ V) / (n[h] + lam)
    if sign == 0:
        return np.where(n[h] > 0, np.clip(value, 0, most), most)
    return np.clip(value + sign * bonus(h, n[h], n3[h], V), 0, most)


def signed_values(counts, sizes, pi, sign, lam, bonus, initial):
    """V_g (K,) of a policy at the start, with bonuses of one sign."""
    _, H, S, _, K = sizes
    V = np.zeros((K, S))
    for h in range(H - 1, -1, -1):
        for k in range(K):
            Q = q_values(h, counts, 1 + k, V[k], sign, lam, bonus, H - h)
            V[k] = (pi[h] * Q).sum(axis=-1)
    return V @ initial


def bernstein_bonus(c, H, lam):
    """c √(Var/n) + c² (H-h+1)/n + λ/(n + λ), n a weight that may be below 1; infinite at n = 0."""

    def bonus(h, n, n3, V):
        weight = np.where(n > 0, n, 1.0)
        mean = (n3 @ V) / weight
        variance = (n3 * (V - mean[:, :, None]) ** 2).sum(axis=2) / weight
        value = c * np.sqrt(variance / weight) + c**2 * (H - h) / weight + lam / (n + lam)
        return np.where(n > 0, value, np.inf)

    return bonus


def count_bonus(root, tail, lam):
    """root/√max(n, 1) + tail/(n + λ)."""
    return lambda h, n, n3, V: root[h] / np.sqrt(np.maximum(n, 1)) + tail[h] / (n + lam)
