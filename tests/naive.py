"""Slow, obvious twins of the compiled code, written from the paper. They share no code with it.

Arrays are dense, axes [constraint, step, state, action, next state]. Episodes and steps count from
0, the paper's from 1. Nothing here is optimised; nothing here may import safedrift.
"""

import itertools
import math
import operator
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

# ---------------------------------------------------------------- PROPD-PPO, Algorithms 1 and 3


def propd_ppo(
    *, play, thresholds, sizes, initial, alpha, L, eta, xi, chi, W, lam, bonus, LV,
    lagged=False, dual_signal="optimistic",
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
        if dual_signal == "observed":
            V_fed = utilities.sum(axis=1)
        if dual_signal == "plain":
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


# ---------------------------------------------------------------- PROPD-PPO, Algorithms 1 and 2


def propd_ppo_linear(
    *, play, thresholds, sizes, initial, psi, phi, alpha, L, eta, xi, chi, W, lam, beta, beta_r, LV,
    window_drift_P, window_drift_g, lagged=False, dual_signal="optimistic",
):  # fmt: skip
    """Algorithm 1 with Algorithm 2 on finite states; yields every quantity.

    play(m, policy) -> states (H,), actions (H,), rewards (H,), utilities (K, H)
    psi (H, S, A, S, d1), phi (H, S, A, d2); beta, beta_r (H,)
    LV (W-blocks, K, H), window_drift_P (W-blocks, H), window_drift_g (W-blocks, K, H)
    Channels: 0 is r, 1..K are g, K+1..2K (dual_signal "plain") are g without bonus and LV.
    """
    M, H, S, A, K = sizes
    d1 = psi.shape[-1]
    mu, V_fed, b_before = np.zeros(K), np.zeros(K), np.zeros(K)
    for m in range(M):
        if m % L == 0:  # m = ℓ_π: uniform policy, zero Q
            Q = np.zeros((1 + K, H, S, A))
            log_pi = np.full((H, S, A), -np.log(A))
        log_pi = improved(log_pi, alpha * (Q[0] + np.tensordot(mu, Q[1 : 1 + K], axes=1)))
        pi = np.exp(log_pi)

        states, actions, rewards, utilities = play(m, pi)

        b = b_before if lagged else thresholds[m]
        mu = np.clip(mu + eta * (b - V_fed - xi * mu), 0, chi)
        b_before = thresholds[m]

        if m % W == 0:  # m = ℓ_Q: the window is empty
            past = []
        channels = lstd_channels(
            m // W, m % W, beta, beta_r, LV, window_drift_P, window_drift_g, dual_signal == "plain"
        )
        lstds = [lstd(past, psi, phi, pi, lam, c, *channel) for c, channel in enumerate(channels)]
        Q = np.stack([one["Q"] for one in lstds])
        V = np.stack([one["V"] for one in lstds])
        V_fed = seen_by_dual(dual_signal, V[:, 0] @ initial, utilities)

        features = np.zeros((len(channels), H, d1))  # φ^τ(x_h, a_h), fixed from now on
        targets = np.zeros((len(channels), H))  # V^τ_{h+1}(x_{h+1}), fixed from now on
        for c in range(len(channels)):
            for h in range(H - 1):
                features[c, h] = V[c, h + 1] @ psi[h, states[h], actions[h]]
                targets[c, h] = V[c, h + 1, states[h + 1]]
        past.append({
            "features": features, "targets": targets, "signals": np.vstack([rewards, utilities]),
            "phi": np.stack([phi[h, states[h], actions[h]] for h in range(H)]),
        })  # fmt: skip
        at_cap = sum(
            Q[c, h, states[h], actions[h]] >= H - h for c in range(1 + K) for h in range(H)
        )
        yield {
            "policy": pi, "mu": mu, "V_fed": V_fed, "states": states, "actions": actions,
            "at_cap": at_cap,
            **lstd_report(lstds, K, initial),
        }  # fmt: skip


def propd_ppo_box(
    *, play, thresholds, sizes, initial, psi, phi, psi_at, phi_at, alpha, L, eta, xi, chi, W, lam,
    beta, beta_r, LV, window_drift_P, window_drift_g, lagged=False, dual_signal="optimistic",
):  # fmt: skip
    """Algorithm 1 with Algorithm 2 on states in R^n: tables at S nodes, replay everywhere else.

    play(m, policy_at) -> states (H, n), actions (H,), rewards (H,), utilities (K, H), where
    policy_at(h, x) -> (A,)
    psi (S, A, J, d1), phi (S, A, d2) at the nodes; the first J nodes, whose quadrature weights
    are in psi, are the successors. psi_at(x) -> (A, J, d1), phi_at(x) -> (A, d2).
    initial (S,) is a distribution over the nodes. The rest as in `propd_ppo_linear`.
    """
    M, H, S, A, K = sizes
    d1 = psi.shape[-1]
    J = psi.shape[2]
    psi_steps, phi_steps = np.stack([psi] * H), np.stack([phi] * H)
    mu, V_fed, b_before = np.zeros(K), np.zeros(K), np.zeros(K)
    for m in range(M):
        if m % L == 0:  # m = ℓ_π: uniform policy, zero Q
            Q = np.zeros((1 + K, H, S, A))
            log_pi = np.full((H, S, A), -np.log(A))
            replay = []
        log_pi = improved(log_pi, alpha * (Q[0] + np.tensordot(mu, Q[1 : 1 + K], axes=1)))
        pi = np.exp(log_pi)
        policy_at = replayed_policy(replay, alpha, A)

        states, actions, rewards, utilities = play(m, policy_at)

        b = b_before if lagged else thresholds[m]
        mu = np.clip(mu + eta * (b - V_fed - xi * mu), 0, chi)
        b_before = thresholds[m]

        if m % W == 0:  # m = ℓ_Q: the window is empty
            past = []
        channels = lstd_channels(
            m // W, m % W, beta, beta_r, LV, window_drift_P, window_drift_g, dual_signal == "plain"
        )
        lstds = [
            lstd(past, psi_steps, phi_steps, pi, lam, c, *channel)
            for c, channel in enumerate(channels)
        ]
        Q = np.stack([one["Q"] for one in lstds])
        V = np.stack([one["V"] for one in lstds])
        V_fed = seen_by_dual(dual_signal, V[:, 0] @ initial, utilities)
        Q_at = q_anywhere(lstds, psi_at, phi_at)

        policy_visited = np.stack([policy_at(h, states[h]) for h in range(H)])
        features = np.zeros((len(channels), H, d1))  # φ^τ(x_h, a_h), fixed from now on
        targets = np.zeros((len(channels), H))  # V^τ_{h+1}(x_{h+1}), fixed from now on
        for c in range(len(channels)):
            for h in range(H - 1):
                features[c, h] = V[c, h + 1, :J] @ psi_at(states[h])[actions[h]]
                targets[c, h] = policy_visited[h + 1] @ Q_at(c, h + 1, states[h + 1])
        past.append({
            "features": features, "targets": targets, "signals": np.vstack([rewards, utilities]),
            "phi": np.stack([phi_at(states[h])[actions[h]] for h in range(H)]),
        })  # fmt: skip
        replay = [*replay, (mu, Q_at)]
        at_cap = sum(
            Q_at(c, h, states[h])[actions[h]] >= H - h for c in range(1 + K) for h in range(H)
        )
        yield {
            "policy": pi, "mu": mu, "V_fed": V_fed, "states": states, "actions": actions,
            "at_cap": at_cap,
            "policy_visited": policy_visited, **lstd_report(lstds, K, initial),
        }  # fmt: skip


def improved(log_pi, step):
    """log π ∝ log π + step, normalised over the last axis."""
    log_pi = log_pi + step
    top = log_pi.max(axis=-1, keepdims=True)
    return log_pi - top - np.log(np.exp(log_pi - top).sum(axis=-1, keepdims=True))


def seen_by_dual(dual_signal, V_initial, utilities):
    """What the dual sees (K,); V_initial (channels,) holds the estimates at the first step."""
    K = len(utilities)
    if dual_signal == "observed":
        return utilities.sum(axis=1)
    if dual_signal == "plain":
        return V_initial[1 + K :]
    return V_initial[1:]


def lstd_channels(block, n, beta, beta_r, LV, window_drift_P, window_drift_g, plain):
    """For each channel: its signal, the multipliers of Γ_⋄ and Γ, and LV; the last three (H,)."""
    K, H = LV.shape[1:]
    nothing = np.zeros(H)
    channels = [(0, beta, beta_r, nothing)]
    for k in range(K):
        multiplier = beta + window_drift_P[block] * np.sqrt(n)
        multiplier_r = beta_r + window_drift_g[block, k] * np.sqrt(n)
        channels.append((1 + k, multiplier, multiplier_r, LV[block, k]))
    if plain:
        channels += [(1 + k, nothing, nothing, nothing) for k in range(K)]
    return channels


def lstd(past, psi, phi, pi, lam, channel, signal, multiplier, multiplier_r, LV):
    """Algorithm 2 for one channel, on the past episodes of the window.

    psi (H, S, A, J, d1), phi (H, S, A, d2), pi (H, S, A); multiplier, multiplier_r, LV (H,)
    """
    H, S, A, J, d1 = psi.shape
    d2 = phi.shape[-1]
    out = {
        "Q": np.zeros((H, S, A)), "V": np.zeros((H, S)), "w": np.zeros((H, d1)),
        "u": np.zeros((H, d2)), "Gamma": np.zeros((H, S, A)), "Gamma_r": np.zeros((H, S, A)),
        "fits": [None] * H,
    }  # fmt: skip
    V_next = np.zeros(S)
    for h in range(H - 1, -1, -1):
        gram, w = ridge(
            [old["features"][channel, h] for old in past],
            [old["targets"][channel, h] for old in past], d1, lam,
        )  # fmt: skip
        gram_r, u = ridge(
            [old["phi"][h] for old in past], [old["signals"][signal, h] for old in past], d2, lam
        )
        fit = {
            "gram": gram, "w": w, "gram_r": gram_r, "u": u, "V_next": V_next[:J], "cap": H - h,
            "multiplier": multiplier[h], "multiplier_r": multiplier_r[h], "LV": LV[h],
        }  # fmt: skip
        Q, Gamma, Gamma_r = lstd_q(fit, psi[h], phi[h])
        V_next = (pi[h] * Q).sum(axis=1)
        out["Q"][h], out["V"][h], out["w"][h], out["u"][h] = Q, V_next, w, u
        out["Gamma"][h], out["Gamma_r"][h], out["fits"][h] = Gamma, Gamma_r, fit
    return out


def lstd_q(fit, psi, phi):
    """Lines 5 to 11 of Algorithm 2 wherever psi (..., J, d1) and phi (..., d2) are: Q, Γ_⋄, Γ."""
    features = np.einsum("...jd,j->...d", psi, fit["V_next"])
    Gamma = fit["multiplier"] * inverse_norm(fit["gram"], features)
    Gamma_r = fit["multiplier_r"] * inverse_norm(fit["gram_r"], phi)
    Q = phi @ fit["u"] + features @ fit["w"] + Gamma + Gamma_r + fit["LV"]
    return np.maximum(np.minimum(Q, fit["cap"]), 0), Gamma, Gamma_r


def ridge(features, targets, d, lam):
    """Λ = Σ f fᵀ + λI (d, d) and Λ⁻¹ Σ f y (d,)."""
    gram, right = lam * np.eye(d), np.zeros(d)
    for f, y in zip(features, targets, strict=True):
        gram = gram + np.outer(f, f)
        right = right + f * y
    return gram, np.linalg.solve(gram, right)


def inverse_norm(gram, features):
    """(fᵀ Λ⁻¹ f)^½ over the last axis of features (..., d)."""
    solved = np.linalg.solve(gram, features.reshape(-1, len(gram)).T).T.reshape(features.shape)
    return np.sqrt(np.maximum((features * solved).sum(axis=-1), 0))


def lstd_report(lstds, K, initial):
    """The quantities of one evaluation that `propd_ppo_linear` and `propd_ppo_box` yield."""
    table = {name: np.stack([one[name] for one in lstds])
             for name in ("Q", "V", "w", "u", "Gamma", "Gamma_r")}  # fmt: skip
    V = table["V"][: 1 + K]
    return {
        "Q_r": table["Q"][0], "Q_g": table["Q"][1 : 1 + K], "V": V,
        "V_r": V[0, 0] @ initial, "V_g": V[1:, 0] @ initial,
        "w": table["w"], "u": table["u"][: 1 + K],
        "Gamma": table["Gamma"][: 1 + K], "Gamma_r": table["Gamma_r"][: 1 + K],
    }  # fmt: skip


def q_anywhere(lstds, psi_at, phi_at):
    """Q^τ of every channel as a function (channel, h, x) -> (A,)."""
    return lambda c, h, x: lstd_q(lstds[c]["fits"][h], psi_at(x), phi_at(x))[0]


def replayed_policy(replay, alpha, A):
    """π(h, x) ∝ exp(α Σ_τ (Q_r^τ + Σ_k μ_k^τ Q_g,k^τ)(h, x)) from the list of (μ^τ, Q^τ)."""

    def policy_at(h, x):
        total = np.zeros(A)
        for mu, Q_at in replay:
            total = total + Q_at(0, h, x) + sum(mu[k] * Q_at(1 + k, h, x) for k in range(len(mu)))
        return np.exp(improved(np.zeros(A), alpha * total))

    return policy_at


def linear_kernel(psi, theta):
    """P (H, S, A, S) from psi (H, S, A, S, d1) and theta (H, d1)."""
    return np.einsum("hxayd,hd->hxay", psi, theta)


# ---------------------------------------------------------------- audit of a run


def audit(
    *, worlds, fresh, stars, script, thresholds, initial, drift, alpha, L, eta, xi, chi, lagged,
    dual_signal, W, lam, LV, bonus=None, halved=False, features=None, local=False,
):  # fmt: skip
    """The lemmas on single episodes: residuals of identities, slacks (printed, repaired), terms.

    worlds : M times (P (H,S,A,S), signals (1+K,H,S,A)); fresh (M,) whether it is a new one
    stars : (M, H, S, A) an optimal policy of each episode
    script : policies, q, v_start, mu, states, actions, values of M episodes
    drift : "P_l2", "P_l1" (M, H), "c_l2", "c_l1" (M, 1+K, H), changes from the episode before, as
        the printed and the repaired lemmas measure them
    bonus, halved : of Algorithm 3 as in `propd_ppo`, and whether it is twice the paper's Γ
    local : whether the learner is told local budgets
    features : of Algorithm 2 as in `propd_ppo_linear`: psi, phi, beta, beta_r, window_drift_P, _g
    Returns "terms" (M, 8, 1+K), "fed" (M, K), "star_change" (M, H), and for each statement its
    residuals (M,) or slacks (M, 2).
    """
    policies, q, v_start, mus, states, actions, values = script
    M, H, S, A = policies.shape
    K = mus.shape[1]
    logit, mu, fed, b_before = np.zeros((H, S, A)), np.zeros(K), np.zeros(K), np.zeros(K)
    episodes, d_before, d_block, weighted = [], None, None, None
    for m in range(M):
        P, signals = worlds[m]
        pi, path = policies[m], (np.arange(H), states[m], actions[m])
        V = np.concatenate([(pi * q[m]).sum(axis=-1), np.zeros((q.shape[1], 1, S))], axis=1)
        found = {"star_change": np.zeros(H)}
        if m % L == 0:
            logit = np.zeros((H, S, A))
        low = logit - logit.max(axis=-1, keepdims=True)
        wanted = np.exp(low) / np.exp(low).sum(axis=-1, keepdims=True)
        found["policy"] = (np.abs(pi - wanted) / np.maximum(1, 1e-4 * np.abs(low))).max()
        b = b_before if lagged else thresholds[m]
        wanted = np.clip(mu + eta * (b - fed - xi * mu), 0, chi)
        found["dual"] = (np.abs(wanted - mus[m]) / np.maximum(1, wanted)).max()

        found["descent"] = found["primal"] = np.inf, np.inf
        if m % L:  # a mirror step led from the policy before to this one
            size = alpha * (1 + mus[m - 1].sum()) ** 2
            lost, left = mirror_loss(policies[m - 1], pi, weighted, alpha), np.arange(H, 0, -1)
            found["descent"] = (size * H**2 / 2 - lost).min(), (size * left**2 / 8 - lost).min()
            found["primal"] = size * H**2 / 2 - lost.sum(), size * (left**2).sum() / 8 - lost.sum()
        weighted = q[m, 0] + np.tensordot(mus[m], q[m, 1 : 1 + K], axes=1)

        d = occupancy(P, stars[m], initial)
        found["visitation"] = np.inf, np.inf
        if m > 0 and fresh[m]:
            turned = np.abs(stars[m] - stars[m - 1]).sum(axis=-1).max(axis=-1)
            found["star_change"] = turned
            moved = np.abs(d - d_before)
            root = 1 if features is None else np.sqrt(features["psi"].shape[-1])
            found["visitation"] = tuple(
                min([(moves + turned)[: h + also].sum() - off[h] for h in range(1, H)],
                    default=np.inf)
                for moves, off, also in (
                    (root * drift["P_l2"][m], moved.max(axis=1), 1),  # the paper sums j <= h
                    (drift["P_l1"][m], moved.sum(axis=1), 0),
                )
            )  # fmt: skip
        d_before = d
        d_block = d if m % L == 0 else d_block
        found |= expansions(
            P, signals, pi, stars[m], initial, V, q[m], v_start[m], d, d_block, path
        )

        if m % W == 0:
            past = []
        first = m // W * W + 1  # the change into the first episode of a window is none inside it
        inside = {name: part[first : first + W - 1].sum(axis=0) for name, part in drift.items()}
        if features is None:
            parts = counted_parts(past, V, lam, bonus, halved, inside, (H, S, A, K))
        else:
            parts = regressed_parts(past, V, lam, features, m // W, inside, K)
        told = LV[m // W], local
        found |= error_slacks(P, signals, V, q[m], parts, inside, *told, features, W)

        entry = {"pairs": list(zip(*path, strict=True)), "signals": values[m], "states": states[m]}
        if features is not None:
            entry |= regression_rows(P, V, path, features)
        found |= potentials(past, entry, lam, features, (H, S, A, K))
        past = [*past, entry]

        logit = logit + alpha * weighted
        mu, b_before = mus[m], thresholds[m]
        if dual_signal == "observed":
            fed = values[m, 1:].sum(axis=1)
        else:
            fed = V[1 + K :, 0] @ initial if dual_signal == "plain" else V[1 : 1 + K, 0] @ initial
        episodes.append(found | {"fed": fed})
    return {name: np.array([found[name] for found in episodes]) for name in episodes[0]}


def mirror_loss(pi, new, Q, alpha):
    """Largest ⟨Q, π* - π⟩ - (D(π*|π) - D(π*|π'))/α over states and π*, (H,), not below 0.

    It is linear in π*, so comparators that always take one action are enough; those of which the
    logarithm has no digits left are not asked.
    """
    H, S, A = pi.shape
    lost = np.zeros(H)
    for h, x, a in np.ndindex(H, S, A):
        if alpha > 0 and pi[h, x, a] >= 1e-300:
            star = np.eye(A)[a]
            before, after = -np.log(pi[h, x, a]), -np.log(max(new[h, x, a], 1e-300))
            here = Q[h, x] @ (star - pi[h, x]) - (before - after) / alpha
            lost[h] = max(lost[h], here)
    return lost


def occupancy(P, pi, initial):
    """State occupancy (H, S)."""
    d = [initial]
    for h in range(len(P) - 1):
        d.append(np.einsum("x,xa,xay->y", d[h], pi[h], P[h]))
    return np.array(d)


def state_values(P, signal, pi):
    """V (H+1, S) and Q (H, S, A) of a policy by the Bellman equation."""
    H, S, A, _ = P.shape
    V, Q = np.zeros((H + 1, S)), np.zeros((H, S, A))
    for h in range(H - 1, -1, -1):
        Q[h] = signal[h] + P[h] @ V[h + 1]
        V[h] = (pi[h] * Q[h]).sum(axis=1)
    return V, Q


def expansions(P, signals, pi, star, initial, V, q, v_start, d, d_block, path):
    """Performance difference, value expansion and V^m at the start, with all their terms."""
    H = len(P)
    h, x, a = path
    terms, off = np.zeros((8, len(signals))), np.zeros((2, len(signals)))
    for c, signal in enumerate(signals):
        V_pi, Q_pi = state_values(P, signal, pi)
        V_star, _ = state_values(P, signal, star)
        ahead = np.stack([P[i] @ V[c, i + 1] for i in range(H)])
        iota = signal + ahead - q[c]
        inner = ((star - pi) * q[c]).sum(axis=-1)
        gap, gap_q = V[c] - V_pi, q[c] - Q_pi
        martingale = initial @ gap[0] - gap[0, x[0]]  # of the first state
        for i in range(H):
            martingale += gap[i, x[i]] - gap_q[i, x[i], a[i]]
            martingale += P[i, x[i], a[i]] @ gap[i + 1]
            martingale -= gap[i + 1, x[i + 1]] if i + 1 < H else 0.0
        terms[:, c] = (
            initial @ V_pi[0], initial @ V_star[0], v_start[c], iota[h, x, a].sum(),
            (d * (star * iota).sum(axis=-1)).sum(), martingale, (d_block * inner).sum(),
            (d * inner).sum(),
        )  # fmt: skip
        value, best, estimate, on_path, optimal, _, _, own = terms[:, c]
        off[:, c] = (best - estimate) - (own + optimal), (estimate - value) - (martingale - on_path)
    return {
        "terms": terms, "performance": np.abs(off[0]).max() / H,
        "expansion": np.abs(off[1]).max() / H,
        "start": np.abs(V[:, 0] @ initial - v_start).max() / H,
    }  # fmt: skip


def counted_parts(past, V, lam, bonus, halved, inside, sizes):
    """Algorithm 3 on a window: what Q is made of and what may be wrong with it, (C, H, S, A)."""
    H, S, A, K = sizes
    n2, n3, sums = np.zeros((H, S, A)), np.zeros((H, S, A, S)), np.zeros((1 + K, H, S, A))
    for old in past:
        for h, x, a in old["pairs"]:
            n2[h, x, a] += 1
            sums[:, h, x, a] += old["signals"][:, h]
            if h + 1 < H:
                n3[h, x, a, old["states"][h + 1]] += 1
    parts = {name: np.zeros((len(V), H, S, A)) for name in ("mean", "ahead", "bonus", "drift_P",
                                                           "drift", "covered")}  # fmt: skip
    for c in range(len(V)):
        source = c if c <= K else c - K
        for h in range(H):
            parts["mean"][c, h] = sums[source, h] / (n2[h] + lam)
            parts["ahead"][c, h] = n3[h] @ V[c, h + 1] / (n2[h] + lam)
            added = bonus if c <= K else no_bonus
            parts["bonus"][c, h] = added(h, n2[h], n3[h], V[c, h + 1])
            parts["drift_P"][c, h] = (H - 1 - h) / 2 * inside["P_l1"][h]
            parts["drift"][c, h] = inside["c_l1"][source, h]
    share = 0.5 if halved else 1.0
    parts["printed_P"] = parts["printed_S"] = share * parts["bonus"]
    parts["repaired_P"] = parts["repaired_S"] = parts["bonus"]
    return parts


def regressed_parts(past, V, lam, features, block, inside, K):
    """Algorithm 2 on a window: the same, with a bonus for each error."""
    psi, phi = features["psi"], features["phi"]
    H, S, A, _, d1 = psi.shape
    n, d2 = len(past), phi.shape[-1]
    names = ("mean", "ahead", "printed_P", "printed_S", "drift_P", "drift", "covered")
    parts = {name: np.zeros((len(V), H, S, A)) for name in names}
    parts["noise"] = np.full((1 + K, H), -np.inf)
    for c in range(len(V)):
        source = c if c <= K else c - K
        for h in range(H):
            beta, beta_r = (features[name][h] if c <= K else 0.0 for name in ("beta", "beta_r"))
            grown = grown_r = 0.0
            if 1 <= c <= K:
                grown = features["window_drift_P"][block, h] * np.sqrt(n)
                grown_r = features["window_drift_g"][block, c - 1, h] * np.sqrt(n)
            gram_r, u = ridge([old["phi"][h] for old in past],
                              [old["signals"][source, h] for old in past], d2, lam)  # fmt: skip
            norm_r = inverse_norm(gram_r, phi[h])
            norm = np.zeros((S, A))
            if h + 1 < H:
                rows = [old["features"][c, h] for old in past]
                gram, w = ridge(rows, [old["targets"][c, h] for old in past], d1, lam)
                here = np.einsum("xayd,y->xad", psi[h], V[c, h + 1])
                parts["ahead"][c, h] = here @ w
                norm = inverse_norm(gram, here)
                if c <= K:
                    noise = sum((old["features"][c, h] * (old["targets"][c, h] - old["means"][c, h])
                                 for old in past), np.zeros(d1))  # fmt: skip
                    parts["noise"][c, h] = features["beta"][h] - inverse_norm(gram, noise)
            parts["mean"][c, h] = phi[h] @ u
            parts["printed_P"][c, h] = (beta + grown) * norm
            parts["printed_S"][c, h] = (beta_r + grown_r) * norm_r
            parts["drift_P"][c, h] = (H - 1 - h) / 2 * inside["P_l1"][h] * np.sqrt(n) * norm
            parts["drift"][c, h] = inside["c_l1"][source, h] * np.sqrt(n) * norm_r
            parts["covered"][c, h] = grown * norm + grown_r * norm_r
    parts["bonus"] = parts["printed_P"] + parts["printed_S"]
    parts["repaired_P"], parts["repaired_S"] = parts["printed_P"], parts["printed_S"]
    return parts


def error_slacks(P, signals, V, q, parts, inside, LV, local, features, W):
    """Residual of Q, and the slacks of every bound on ι and on its two parts."""
    C, H, S, A = q.shape
    K = len(signals) - 1
    factor_P, factor = float(H), 1.0
    if features is not None:
        d1, d2 = features["psi"].shape[-1], features["phi"].shape[-1]
        factor_P, factor = H**2 * d1 * np.sqrt(d1 * W), np.sqrt(d2 * W)
    residual = 0.0
    slacks = {name: ([], []) for name in ("prediction", "optimism", "transitions", "signals")}
    for c in range(C):
        for h in range(H):
            lv = LV[c - 1, h] if 1 <= c <= K else 0.0
            part = {name: value[c, h] for name, value in parts.items() if name != "noise"}
            wanted = part["mean"] + part["ahead"] + part["bonus"] + lv
            wanted = np.maximum(np.minimum(wanted, H - h), 0)
            residual = max(residual, np.abs(wanted - q[c, h]).max() / (H - h))
            if c > K:
                continue
            ahead = P[h] @ V[c, h + 1]
            iota = signals[c, h] + ahead - q[c, h]
            drift_P, drift = factor_P * inside["P_l2"].sum(), factor * inside["c_l2"][c].sum()
            total, kept = drift_P + drift, local and c >= 1
            sides = [(0.0 if kept else total,
                      -2 * part["bonus"] - (2 * total if kept else total))]  # fmt: skip
            true = part["drift_P"] + part["drift"]
            sides.append((np.maximum(true - part["covered"] - lv, 0),
                          -2 * part["bonus"] - true - lv))  # fmt: skip
            drifts = [(drift_P, drift), (part["drift_P"], part["drift"])]
            for form, name in enumerate(("printed", "repaired")):
                upper, lower = sides[form]
                slacks["prediction"][form].append(np.minimum(upper - iota, iota - lower))
                if c >= 1:
                    slacks["optimism"][form].append(upper - iota)
                if h + 1 < H:
                    room = part[f"{name}_P"] + drifts[form][0]
                    slacks["transitions"][form].append(room - abs(part["ahead"] - ahead))
                room = part[f"{name}_S"] + drifts[form][1]
                slacks["signals"][form].append(room - abs(part["mean"] - signals[c, h]))
    noise = parts["noise"][:, : H - 1] if features is not None else np.zeros((0, 0))
    found = {"evaluation": residual, "normalised": noise.min(initial=np.inf)}
    found |= {"normalised count": ((noise < -1e-9).sum(), noise.size)}
    for name, forms in slacks.items():
        forms = [np.array(form) for form in forms]
        found[name] = [form.min(initial=np.inf) for form in forms]
        found[f"{name} count"] = [((form < -1e-9).sum(), form.size) for form in forms]
    return found


def regression_rows(P, V, path, features):
    """φ^τ(x_h, a_h), V^τ(x_{h+1}) and P^τ V^τ(x_h, a_h) of one episode for each channel."""
    psi, phi = features["psi"], features["phi"]
    h, x, a = path
    C, H = len(V), len(h)
    rows = {"features": np.zeros((C, H, psi.shape[-1])), "targets": np.zeros((C, H)),
            "means": np.zeros((C, H)), "phi": phi[h, x, a]}  # fmt: skip
    for c in range(C):
        for i in range(H - 1):
            rows["features"][c, i] = V[c, i + 1] @ psi[i, x[i], a[i]]
            rows["targets"][c, i] = V[c, i + 1, x[i + 1]]
            rows["means"][c, i] = P[i, x[i], a[i]] @ V[c, i + 1]
    return rows


def potentials(past, entry, lam, features, sizes):
    """Elliptical potential and Lemma D.1 with the episodes of a window, this one included.

    In Algorithm 2 the lemma is asked of the episodes before this one.
    """
    H, S, A, K = sizes
    ellipse, projection = ([np.inf], [np.inf]), [np.inf]
    for c in range(1 if features is None else 1 + K):
        for h in range(H if features is None else H - 1):
            if features is None:
                unit = np.eye(S * A).reshape(S, A, S * A)
                rows = [unit[old["pairs"][h][1:]] for old in [*past, entry]]
            else:
                rows = [old["features"][c, h] for old in [*past, entry]]
            d = len(rows[0])
            grams = [lam * np.eye(d) + sum((np.outer(f, f) for f in rows[:t]), np.zeros((d, d)))
                     for t in range(len(rows) + 1)]  # fmt: skip
            norms = np.array([inverse_norm(grams[t], rows[t]) ** 2 for t in range(len(rows))])
            grown = np.linalg.slogdet(grams[-1])[1] - np.linalg.slogdet(grams[0])[1]
            for form, kept in enumerate((norms, np.minimum(norms, 1))):
                ellipse[form].append(min(2 * grown - kept.sum(), norms.sum() - grown))
            within, gram = (rows, grams[-1]) if features is None else (rows[:-1], grams[-2])
            projection.append(d - sum(inverse_norm(gram, f) ** 2 for f in within))
    return {"ellipse": (min(ellipse[0]), min(ellipse[1])), "projection": min(projection)}


def audit_sums(found, *, mu, b, optimum, multipliers, B_P, B_P_l1, norm, A, told, p=0.05):
    """Left and right sides, (left, printed, repaired), of the lemmas on whole runs.

    found : of `audit`; optimum (M,), multipliers (M, K); norm : √d1, or 1 in tables
    told : alpha, L, eta, xi, chi, lagged of the learner
    """
    terms, fed = found["terms"], found["fed"]
    M, K = mu.shape
    H = found["star_change"].shape[1]
    alpha, L, eta, xi, chi = (told[name] for name in ("alpha", "L", "eta", "xi", "chi"))
    V, best, estimate, on_path, optimal, martingale, block, own = terms.transpose(1, 0, 2)
    B_star, price = found["star_change"].sum(), 1 + mu.sum(axis=1)
    c = H * (H + 1) * (2 * H + 1) / 48
    mirror = (
        H * M * np.log(A) / (alpha * L) + alpha * H**2 * (1 + (mu**2).sum(axis=1)).sum(),
        H * np.ceil(M / L) * np.log(A) / alpha + alpha * c * (price**2).sum(),
    )
    turned = H**2 * L * B_star, price.max() * H**2 * L * B_star
    moved = 2 * H**2 * L * (norm * B_P + B_star), H**2 * L * (B_P_l1 + B_star)
    policy = mirror[0] + turned[0] + moved[0], mirror[1] + turned[1] + price.max() * moved[1]
    errors = (optimal[:, 0] - on_path[:, 0] + (mu * optimal[:, 1:]).sum(axis=1)).sum()
    rest = errors + martingale[:, 0].sum()
    priced = rest - (mu * (best - estimate)[:, 1:]).sum()
    shrink = (eta * xi**2 - xi) * (mu**2).sum()
    dual = eta * H**2 * (M + 1) + shrink
    paired = b if told["lagged"] else np.vstack([b[1:], b[-1:]])
    off = np.abs(paired - b)  # between the b that V_g^m is paired with and b_m
    sides = {
        "primal-blocks": (block[:, 0].sum() + (mu * block[:, 1:]).sum(),
                          mirror[0] + turned[0], mirror[1] + turned[1]),
        "comparator-drift": ((own - block)[:, 0].sum(), *moved),
        "regret-chain": ((optimum - V[:, 0]).sum(), policy[0] + priced, policy[1] + priced),
        "primal-violation": ((mu * (b - estimate[:, 1:])).sum(), H * M + policy[0] + dual + rest,
                             H * M + policy[1] + rest),
        "dual-regret": (-(mu * (best[:, 1:] - fed)).sum(), dual,
                        (mu[0] ** 2).sum() / (2 * eta) + K * eta * H**2 * M + shrink
                        + (mu * off).sum()),
        "martingale-r": (abs(martingale[:, 0].sum()), 4 * H * np.sqrt(H * M * np.log(4 / p)), None),
        "martingale-g": (abs(martingale[:, 1:].sum(axis=0)).max(),
                         4 * H * np.sqrt(H * M * np.log(4 / p)), None),
    }  # fmt: skip
    if np.isfinite(chi) and 2 * multipliers.sum(axis=1).max() <= chi:
        short = b - V[:, 1:]
        delta = (optimum - V[:, 0]).sum() + chi * short.sum()
        sides["slater-run"] = short.sum(), 2 * delta / chi, None
        sides["slater-run repaired"] = ((chi - multipliers) * short).sum(), None, delta
    free = np.isinf(chi)

    def violation(k, form, fixed):
        """Right minus left side of the second dual lemma at a fixed price."""
        left = ((fixed - mu[:, k]) * (b - fed)[:, k]).sum()
        if form == 0:
            right = eta * H**2 * M / (1 if free else 2) + fixed**2 / (2 * eta)
            return right + (xi * M / 2 * fixed**2 if free else 0.0) - left
        right = eta * H**2 * M + (eta * xi**2 - xi / 2) * (mu[:, k] ** 2).sum()
        right += (fixed - mu[0, k]) ** 2 / (2 * eta) + xi * M / 2 * fixed**2
        return right + ((fixed + mu[:, k]) * off[:, k]).sum() - left

    smallest = []
    for form in range(2):
        slacks = []
        for k in range(K):
            a2, a1, _ = np.polyfit((0, 1, 2), [violation(k, form, x) for x in (0, 1, 2)], 2)
            slacks.append(violation(k, form, np.clip(-a1 / (2 * a2), 0, chi)))
        smallest.append(min(slacks))
    return sides | {"dual-violation": (0.0, *smallest)}


# ---------------------------------------------------------------- what was drawn


def draws(worlds, script, initial, noisy):
    """Tests of a run's draws by betting against them.

    worlds : M times (P (H,S,A,S), signals (1+K,H,S,A)); script : as in `audit`
    Returns "possible" (M,), 1 where something impossible was drawn, "observations" (M,), and the
    logarithms "evidence" (M, 4) of the money after each episode, against actions, states, signals
    and returns.
    """
    policies, _, _, mus, states, actions, values = script
    M, H, S, A = policies.shape
    C = 1 + mus.shape[1]
    bettors = [{}, {}, {}, {}]  # (row, name) -> log wealth
    for c in range(C):
        for h in range(H + 1):
            for name in signal_bets(None, None, None):
                bettors[2][c, h, name] = 0.0
    for h in range(H + 1):
        for name in range(4 + 2 * A):
            bettors[0][h, name] = 0.0
        for name in range(6 + A - 1):
            bettors[1][h, name] = 0.0
    for c, low, share in np.ndindex(C, 2, 2):
        bettors[3][c, low, share] = 0.0
    found = {"possible": np.zeros(M), "observations": np.zeros(M), "evidence": np.zeros((M, 4))}

    def stake(kind, channel, h, name, p, q, y):
        """Bet on q at step h, and over all steps."""
        assert q is None or q[p > 0].sum() <= 1 + 1e-9
        ratio = 1.0 if q is None else min(q[y] / p[y], 1e300)
        for row in (0, 1 + h):
            bettors[kind][(*channel, row, name)] += np.log((1 + ratio) / 2)

    for m in range(M):
        P, signals = worlds[m]
        x0 = states[m, 0]
        if initial[x0] > 0:
            for name, q in enumerate(shapes(initial, (initial > 0).sum())):
                stake(1, (), H - 1, name, initial, q, x0)
        else:
            found["possible"][m] = 1
        for h in range(H):
            x, a = states[m, h], actions[m, h]
            pi = policies[m, h, x]
            if pi[a] > 0:
                qs = [*shapes(pi, A), policies[m - 1, h, x] if m else None]
                for j in range(A):
                    centred = np.eye(A)[j] - pi[j]
                    qs += [pi * (1 + centred), pi * (1 - centred)]
                for name, q in enumerate(qs):
                    stake(0, (), h, name, pi, q, a)
            else:
                found["possible"][m] = 1
            if h + 1 < H and P[h, x, a, states[m, h + 1]] > 0:
                p = P[h, x, a]
                qs = [*shapes(p, (p > 0).sum()), P[h, x].mean(axis=0), worlds[0][0][h, x, a],
                      P[h - 1, x, a] if h else None]  # fmt: skip
                qs += [P[h, x, (a + j) % A] for j in range(1, A)]
                for name, q in enumerate(qs):
                    stake(1, (), h, name, p, q, states[m, h + 1])
            elif h + 1 < H:
                found["possible"][m] = 1
            for c in range(C):
                mean, value = signals[c, h, x, a], values[m, c, h]
                if not noisy:
                    off = abs(value - mean)
                    found["observations"][m] = max(found["observations"][m], off)
                    continue
                p = np.array([1 - mean, mean])
                if value not in (0, 1) or p[int(value)] <= 0:
                    found["observations"][m] = 1
                    continue
                past = None
                if m:
                    at = h, states[m - 1, h], actions[m - 1, h]
                    before = worlds[m - 1][1][c]
                    past = (values[m - 1, c, h], before[at], before[h, x, a],
                            worlds[0][1][c, h, x, a])  # fmt: skip
                here = signals[c, h, x].mean(), signals[c, h - 1, x, a] if h else None
                for name, q in signal_bets(past, here, mean).items():
                    stake(2, (c,), h, name, p, q, int(value))
        returns, truth = values[m].sum(axis=1), [
            initial @ state_values(P, signal, policies[m])[0][0] for signal in signals
        ]  # fmt: skip
        for c, low, share in np.ndindex(C, 2, 2):
            G, V = (H - returns[c], H - truth[c]) if low else (returns[c], truth[c])
            ratio = G / V if V > 1e-9 * H else 1.0
            bettors[3][c, low, share] += np.log1p((0.5, 0.1)[share] * (ratio - 1))
        for kind in range(4):
            found["evidence"][m, kind] = money(bettors[kind], kind, H)
    if not noisy:
        found["evidence"][:, 2] = 0
    return found


def shapes(p, outcomes):
    """Uniform, flatter and sharper than p."""
    return np.ones(len(p)) / outcomes, np.sqrt(p) / np.sqrt(p).sum(), p**2 / (p**2).sum()


def signal_bets(past, here, mean):
    """name -> (probability of 0, of 1) that a bettor on a noisy signal believes in, or None."""
    names = (
        "copied",
        "last pair",
        "last world",
        "first world",
        "average",
        "earlier",
        "high",
        "low",
    )
    if here is None:
        return dict.fromkeys(names)
    chances = [*(past or [None] * 4), *here, mean + mean * (1 - mean), mean - mean * (1 - mean)]
    pairs = [None if x is None else np.array([1 - x, x]) for x in chances]
    if past and past[0] not in (0, 1):  # what was seen there cannot come again
        pairs[0] = np.zeros(2)
    return dict(zip(names, pairs, strict=True))


def money(bettors, kind, H):
    """Logarithm of the average wealth: half of it over all steps, half over single ones."""
    if kind == 3:
        return np.logaddexp.reduce(list(bettors.values())) - np.log(len(bettors))
    whole = [wealth for (*_, row, _), wealth in bettors.items() if row == 0]
    steps = [wealth for (*_, row, _), wealth in bettors.items() if row > 0]
    means = [np.logaddexp.reduce(part) - np.log(len(part)) for part in (whole, steps)]
    return np.logaddexp.reduce(means) - np.log(2)


# ---------------------------------------------------------------- sums, functions and normals


def product(a, b):
    """a b with every sum from first to last, in Python's own arithmetic."""
    n, J = a.shape
    out = np.empty((n, b.shape[1]))
    for i in range(n):
        for q in range(b.shape[1]):
            total = 0.0
            for j in range(J):
                total += float(a[i, j]) * float(b[j, q])
            out[i, q] = total
    return out


def binomial(k, n, p):
    """Probability of k successes of n as a float, from exact fractions."""
    if not 0 <= k <= n:
        return 0.0
    share = Fraction(p)
    return float(math.comb(n, k) * share**k * (1 - share) ** (n - k))


def exact_exp(x):
    """e^x to 60 digits."""
    with localcontext(prec=60):
        return Decimal(float(x)).exp()


def exact_log(x):
    """ln x to 60 digits."""
    with localcontext(prec=60):
        return Decimal(float(x)).ln()


def exact_cos_turns(t):
    """cos(2πt) to 50 digits, by its power series."""
    with localcontext(prec=80):
        angle = 2 * _PI * (Decimal(float(t)) % 1)
        term = total = Decimal(1)
        for n in range(1, 60):
            term *= -angle * angle / ((2 * n - 1) * (2 * n))
            total += term
        return total


def exact_normal_cdf(z):
    """Φ(z) = 1/2 + φ(0) Σ_n (-1)^n z^(2n+1)/(2^n n! (2n+1)) to 40 digits and more.

    The terms of a large z are large and cancel, hence the digits.
    """
    with localcontext(prec=1000):
        z = Decimal(float(z))
        power = total = z
        for n in range(1, 4000):
            power *= -z * z / (2 * n)
            step = power / (2 * n + 1)
            total += step
            if abs(step) < Decimal(10) ** -900:
                break
        return Decimal(1) / 2 + total / (2 * _PI).sqrt()


# fmt: off
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
    "2117067982148086513282306647093844609550582231725359408128481117450284102701938521105559644622"
)
# fmt: on


# ---------------------------------------------------------------- planning


def every_policy(P, signals, initial):
    """Values of all deterministic policies as exact fractions: a list of tuples, one per policy."""
    H, S, A, _ = P.shape
    P, signals, initial = (_fractions(x) for x in (P, signals, initial))
    found = set()
    for actions in itertools.product(range(A), repeat=H * S):
        V = [[Fraction(0)] * S for _ in signals]
        for h in range(H - 1, -1, -1):
            act = actions[h * S : (h + 1) * S]
            V = [
                [q[h][s][a] + sum(map(operator.mul, P[h][s][a], v)) for s, a in enumerate(act)]
                for q, v in zip(signals, V, strict=True)
            ]
        found.add(tuple(sum(initial[s] * v[s] for s in range(S)) for v in V))
    return sorted(found)


def _fractions(array):
    return [_fractions(x) for x in array] if np.ndim(array) else Fraction(float(array))


def exact_optimum(P, r, g, b, initial):
    """Constrained optimum and Slater gap as exact fractions, by trying every basis; tiny worlds."""
    b, K = _fractions(b), len(b)
    columns = [
        (v[0], [*(u - t for u, t in zip(v[1:], b, strict=True)), 1])
        for v in every_policy(P, (r, *g), initial)
    ]
    slacks = [(0, [-int(k == j) for j in range(K)] + [0]) for k in range(K)]
    uniform = (1, [-1] * K + [0])
    safest = [(0, column) for _, column in columns]
    gamma = _best_basis([*safest, *slacks], K + 1, [uniform])
    return _best_basis([*columns, *slacks], K + 1, []), gamma


def _best_basis(columns, n, always):
    """max c·x, A x = (0, ..., 0, 1), x ≥ 0 but for the columns that are always in; None if none."""
    best = None
    for chosen in itertools.combinations(columns, n - len(always)):
        basis = [*always, *chosen]
        x = _solve_fractions([[column[i] for _, column in basis] for i in range(n)])
        if x is not None and min(x[len(always) :]) >= 0:
            value = sum(c * y for (c, _), y in zip(basis, x, strict=True))
            best = value if best is None else max(best, value)
    return best


def _solve_fractions(matrix):
    """Solve matrix · x = (0, ..., 0, 1) exactly; None if singular."""
    n = len(matrix)
    rows = [[Fraction(y) for y in row] + [Fraction(i == n - 1)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next((j for j in range(i, n) if rows[j][i]), None)
        if pivot is None:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [y / rows[i][i] for y in rows[i]]
        for j in range(n):
            if j != i and rows[j][i]:
                rows[j] = [y - rows[j][i] * z for y, z in zip(rows[j], rows[i], strict=True)]
    return [row[n] for row in rows]


# ---------------------------------------------------------------- other ways of forgetting


def propd_ppo_forgetting(
    *, play, thresholds, sizes, initial, alpha, eta, xi, chi, lam, bonus, window, restarts,
    lagged=False, dual_signal="optimistic",
):  # fmt: skip
    """Algorithm 1 with Algorithm 3 on whatever is not forgotten; yields every quantity.

    window(m) -> [(past episode, weight), ...], the data on which the policy of episode m is
        evaluated; counts and sums are made anew from them in every episode
    restarts(m) -> whether the policy of episode m is uniform
    The others are those of `propd_ppo`. There are no local variation terms.
    """
    M, H, S, A, K = sizes
    uniform = np.full((H, S, A), -np.log(A))
    log_pi, Q_r, Q_g = uniform, np.zeros((H, S, A)), np.zeros((K, H, S, A))
    mu, V_fed, b_before = np.zeros(K), np.zeros(K), np.zeros(K)
    past = []
    for m in range(M):
        log_pi = log_pi + alpha * (Q_r + sum(mu[k] * Q_g[k] for k in range(K)))
        log_pi = log_pi - log_pi.max(axis=2, keepdims=True)
        log_pi = log_pi - np.log(np.exp(log_pi).sum(axis=2, keepdims=True))
        if restarts(m):
            log_pi = uniform
        pi = np.exp(log_pi)
        episode = play(m, pi)
        b = b_before if lagged else thresholds[m]
        mu = np.clip(mu + eta * (b - V_fed - xi * mu), 0, chi)
        b_before = thresholds[m]

        n3, n2, sums = weighted_counts([(*past[tau], w) for tau, w in window(m)], sizes)
        none = np.zeros(H)
        Q_r, V_r = evaluate(n3, n2, sums[0], pi, lam, bonus, none)
        found = [evaluate(n3, n2, sums[1 + k], pi, lam, bonus, none) for k in range(K)]
        Q_g, V_g = np.stack([Q for Q, _ in found]), np.array([initial @ V for _, V in found])
        V_fed = V_g
        if dual_signal == "observed":
            V_fed = episode[3].sum(axis=1)
        if dual_signal == "plain":
            found = [evaluate(n3, n2, sums[1 + k], pi, lam, no_bonus, none) for k in range(K)]
            V_fed = np.array([initial @ V for _, V in found])
        past.append(episode)
        yield {
            "policy": pi, "mu": mu, "Q_r": Q_r, "Q_g": Q_g, "V_r": initial @ V_r, "V_g": V_g,
        }  # fmt: skip


def weighted_counts(episodes, sizes):
    """n(x, a, x') (H, S, A, S), n(x, a) (H, S, A) and sums (1+K, H, S, A) of weighted episodes."""
    _, H, S, A, K = sizes
    n3, n2, sums = np.zeros((H, S, A, S)), np.zeros((H, S, A)), np.zeros((1 + K, H, S, A))
    for states, actions, rewards, utilities, weight in episodes:
        for h in range(H):
            x, a = states[h], actions[h]
            n2[h, x, a] += weight
            sums[:, h, x, a] += weight * np.append(rewards[h], utilities[:, h])
            if h + 1 < H:
                n3[h, x, a, states[h + 1]] += weight
    return n3, n2, sums


def weighted_bernstein_bonus(c, H, lam):
    """c sqrt(Var_n[V] / n) + c² (H-h+1) / n + λ / (n + λ) for counts n that may be fractions."""

    def bonus(h, n, n3, V):
        value = np.full(n.shape, np.inf)
        for x, a in np.argwhere(n > 0):
            p = n3[x, a] / n[x, a]
            # At the last step nothing follows: V is 0.
            variance = p @ (V - p @ V) ** 2
            value[x, a] = c * np.sqrt(variance / n[x, a]) + c**2 * (H - h) / n[x, a]
            value[x, a] += lam / (n[x, a] + lam)
        return value

    return bonus
