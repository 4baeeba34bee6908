"""Slow, obvious twins of the compiled code, written from the paper. They share no code with it.

Arrays are dense, axes [constraint, step, state, action, next state]. Episodes and steps count from
0, the paper's from 1. Nothing here is optimised; nothing here may import safedrift.
"""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

# ---------------------------------------------------------------- PROPD-PPO, Algorithms 1 and 3


def propd_ppo(
    *, play, thresholds, sizes, initial, alpha, L, eta, xi, chi, W, lam, bonus, LV,
    lagged=False, feed="optimistic",
):  # fmt: skip
    """Algorithm 1 with Algorithm 3 on whatever `play` returns; yields every quantity.

    play(m, policy) -> states (H,), actions (H,), rewards (H,), utilities (K, H)
    bonus(h, n, n3, V) -> what lines 5 and 7 of Algorithm 3 add to r̂ + P̂V, arrays (S, A)
    LV : (W-blocks, K, H)
    """
    M, H, S, A, K = sizes
    Q_r, Q_g = np.zeros((H, S, A)), np.zeros((K, H, S, A))
    log_pi = np.full((H, S, A), -np.log(A))
    mu = np.zeros(K)
    V_fed, b_before = np.zeros(K), np.zeros(K)
    for m in range(M):
        if m % L == 0:  # m = ℓ_π: uniform policy, zero Q
            Q_r, Q_g = np.zeros((H, S, A)), np.zeros((K, H, S, A))
            log_pi = np.full((H, S, A), -np.log(A))
        log_pi = log_pi + alpha * (Q_r + np.tensordot(mu, Q_g, axes=1))
        top = log_pi.max(axis=2, keepdims=True)
        log_pi = log_pi - top - np.log(np.exp(log_pi - top).sum(axis=2, keepdims=True))
        pi = np.exp(log_pi)

        states, actions, rewards, utilities = play(m, pi)

        b = b_before if lagged else thresholds[m]
        mu = np.clip(mu + eta * (b - V_fed - xi * mu), 0, chi)
        b_before = thresholds[m]

        if m % W == 0:  # m = ℓ_Q: the window is empty
            n3, n2 = np.zeros((H, S, A, S)), np.zeros((H, S, A))
            sum_r, sum_g = np.zeros((H, S, A)), np.zeros((K, H, S, A))
        Q_r, V_r = evaluate(n3, n2, sum_r, pi, lam, bonus, np.zeros(H))
        Q_g, V_g = np.zeros((K, H, S, A)), np.zeros(K)
        for k in range(K):
            Q_g[k], value = evaluate(n3, n2, sum_g[k], pi, lam, bonus, LV[m // W, k])
            V_g[k] = initial @ value
        V_fed = V_g.copy()
        if feed == "observed":
            V_fed = utilities.sum(axis=1)
        if feed == "plain":
            for k in range(K):
                _, value = evaluate(n3, n2, sum_g[k], pi, lam, no_bonus, np.zeros(H))
                V_fed[k] = initial @ value

        for h in range(H):  # the episode enters the window
            x, a = states[h], actions[h]
            n2[h, x, a] += 1
            sum_r[h, x, a] += rewards[h]
            sum_g[:, h, x, a] += utilities[:, h]
            if h + 1 < H:
                n3[h, x, a, states[h + 1]] += 1
        yield {
            "policy": pi, "mu": mu, "Q_r": Q_r, "Q_g": Q_g, "V_r": initial @ V_r, "V_g": V_g,
            "V_fed": V_fed, "states": states, "actions": actions,
        }  # fmt: skip


def evaluate(n3, n2, sums, pi, lam, bonus, LV):
    """Algorithm 3 for one signal: Q (H, S, A) and V at the first step (S,)."""
    H, S, A = n2.shape
    Q = np.zeros((H, S, A))
    V = np.zeros(S)
    for h in range(H - 1, -1, -1):
        n = n2[h]
        P_hat = n3[h] / (n[:, :, None] + lam)
        estimate = sums[h] / (n + lam)
        Q[h] = estimate + P_hat @ V + bonus(h, n, n3[h], V) + LV[h]
        Q[h] = np.maximum(np.minimum(Q[h], H - h), 0)
        V = (pi[h] * Q[h]).sum(axis=1)
    return Q, V


def no_bonus(h, n, n3, V):
    """Nothing where there is data; unvisited pairs go to their cap."""
    return np.where(n > 0, 0.0, np.inf)


def printed_bonus(beta, lam):
    return lambda h, n, n3, V: 2 * beta * (n + lam) ** -0.5


def repaired_bonus(root, tail, lam):
    return lambda h, n, n3, V: root[h] / np.sqrt(np.maximum(n, 1)) + tail[h] / (n + lam)


def bernstein_bonus(c, H, lam):
    def bonus(h, n, n3, V):
        seen = np.maximum(n, 1)
        mean = (n3 @ V) / seen
        variance = (n3 * (V - mean[:, :, None]) ** 2).sum(axis=2) / seen
        value = c * np.sqrt(variance / seen) + c**2 * (H - h) / seen + lam / (n + lam)
        return np.where(n > 0, value, np.inf)

    return bonus


# ---------------------------------------------------------------- simulation


def simulated_play(at, action_uniforms, world_uniforms, noisy=False):
    """A `play` that samples by inverse distribution functions from given uniforms.

    at(m) -> P (H, S, A, S), r (H, S, A), g (K, H, S, A), initial (S,)
    """

    def draw(probabilities, u):
        return min(int(np.searchsorted(np.cumsum(probabilities), u, side="right")),
                   len(probabilities) - 1)  # fmt: skip

    def play(m, pi):
        P, r, g, initial = at(m)
        H, K = r.shape[0], g.shape[0]
        states, actions = np.zeros(H, int), np.zeros(H, int)
        rewards, utilities = np.zeros(H), np.zeros((K, H))
        u = world_uniforms[m]
        x = draw(initial, u[0])
        for h in range(H):
            a = draw(pi[h, x], action_uniforms[m, h])
            states[h], actions[h] = x, a
            rewards[h], utilities[:, h] = r[h, x, a], g[:, h, x, a]
            if noisy:
                v = u[H + h * (1 + K) :]
                rewards[h] = float(v[0] < rewards[h])
                utilities[:, h] = v[1 : 1 + K] < utilities[:, h]
            if h + 1 < H:
                x = draw(P[h, x, a], u[h + 1])
        return states, actions, rewards, utilities

    return play


# ---------------------------------------------------------------- oracles


def policy_value(P, signal, initial, pi):
    """E[Σ_h signal_h(x_h, a_h)] by the Bellman equation."""
    V = np.zeros(P.shape[1])
    for h in range(P.shape[0] - 1, -1, -1):
        V = (pi[h] * (signal[h] + P[h] @ V)).sum(axis=1)
    return initial @ V


def occupancy_lp(P, r, g, b, initial, tolerance=1e-10):
    """The constrained optimum as a linear program in occupancy measures; scipy's result object."""
    H, S, A, _ = P.shape
    equal, right = flow_constraints(P, initial)
    return linprog(
        -r.ravel(), A_ub=-g.reshape(g.shape[0], -1), b_ub=-np.asarray(b), A_eq=equal, b_eq=right,
        method="highs", options={"primal_feasibility_tolerance": tolerance,
                                 "dual_feasibility_tolerance": tolerance},
    )  # fmt: skip


def flow_constraints(P, initial):
    """Σ_a q_h(x', a) - Σ_{x,a} q_{h-1}(x, a) P(x'|x, a) = 0, and Σ_a q_0(x, a) = initial(x)."""
    H, S, A, _ = P.shape
    h, x, a = np.unravel_index(np.arange(H * S * A), (H, S, A))
    rows, columns, values = [h * S + x], [np.arange(H * S * A)], [np.ones(H * S * A)]
    flat = P[:-1].reshape(-1, S)
    source, target = np.nonzero(flat)
    rows.append((h[source] + 1) * S + target)
    columns.append(source)
    values.append(-flat[source, target])
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(H * S, H * S * A),
    ).tocsr()
    return matrix, np.concatenate([initial, np.zeros((H - 1) * S)])


def largest_slack(P, g, b, initial):
    """max_π min_k (V_g,k(π) - b_k), as a linear program."""
    K = g.shape[0]
    equal, right = flow_constraints(P, initial)
    equal = coo_array(equal)
    n = equal.shape[1]
    wide = coo_array((equal.data, (equal.row, equal.col)), shape=(equal.shape[0], n + 1)).tocsr()
    result = linprog(
        np.concatenate([np.zeros(n), [-1.0]]),
        A_ub=np.hstack([-g.reshape(K, -1), np.ones((K, 1))]), b_ub=-np.asarray(b),
        A_eq=wide, b_eq=right, bounds=[(0, None)] * n + [(None, None)], method="highs",
    )  # fmt: skip
    return -result.fun


# ---------------------------------------------------------------- variation budgets


def variation(cmdps):
    """Changes between consecutive CMDPs (P, r, g, b): the paper's l2 norms and those of E8."""
    M = len(cmdps)
    P, r, g, b = (np.stack([cmdp[i] for cmdp in cmdps]) for i in range(4))
    K, H = g.shape[1], r.shape[1]
    out = {
        "P_l2": np.zeros((M, H)), "P_l1": np.zeros((M, H)),
        "r_l2": np.zeros((M, H)), "r_l1": np.zeros((M, H)),
        "g_l2": np.zeros((M, K, H)), "g_l1": np.zeros((M, K, H)), "b": np.zeros((M, K)),
    }  # fmt: skip
    for m in range(1, M):
        out["b"][m] = np.abs(b[m] - b[m - 1])
        for h in range(H):
            dP, dr = P[m, h] - P[m - 1, h], r[m, h] - r[m - 1, h]
            out["P_l2"][m, h] = np.sqrt((dP**2).sum())
            out["P_l1"][m, h] = np.abs(dP).sum(axis=-1).max()
            out["r_l2"][m, h] = np.sqrt((dr**2).sum())
            out["r_l1"][m, h] = np.abs(dr).max()
            for k in range(K):
                dg = g[m, k, h] - g[m - 1, k, h]
                out["g_l2"][m, k, h] = np.sqrt((dg**2).sum())
                out["g_l1"][m, k, h] = np.abs(dg).max()
    return out


# ---------------------------------------------------------------- drift


def project_to_simplex(x):
    """argmin ‖y - x‖ over the simplex: (x - t)_+ with the t, found by bisection, that sums to 1."""
    low, high = x.min() - 1, x.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(x - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(x - high, 0)
