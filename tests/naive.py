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


# ---------------------------------------------------------------- PROPD-PPO, Algorithms 1 and 2


def propd_ppo_linear(
    *, play, thresholds, sizes, initial, psi, phi, alpha, L, eta, xi, chi, W, lam, beta, beta_r, LV,
    spread_P, spread_g, lagged=False, feed="optimistic",
):  # fmt: skip
    """Algorithm 1 with Algorithm 2 on finite states; yields every quantity.

    play(m, policy) -> states (H,), actions (H,), rewards (H,), utilities (K, H)
    psi (H, S, A, S, d1), phi (H, S, A, d2); beta, beta_r (H,)
    LV (W-blocks, K, H), spread_P (W-blocks, H), spread_g (W-blocks, K, H)
    Channels: 0 is r, 1..K are g, K+1..2K (feed "plain") are g without bonus and LV.
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
            m // W, m % W, beta, beta_r, LV, spread_P, spread_g, feed == "plain"
        )
        lstds = [lstd(past, psi, phi, pi, lam, c, *channel) for c, channel in enumerate(channels)]
        Q = np.stack([one["Q"] for one in lstds])
        V = np.stack([one["V"] for one in lstds])
        V_fed = dual_feed(feed, V[:, 0] @ initial, utilities)

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
    beta, beta_r, LV, spread_P, spread_g, lagged=False, feed="optimistic",
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
            m // W, m % W, beta, beta_r, LV, spread_P, spread_g, feed == "plain"
        )
        lstds = [
            lstd(past, psi_steps, phi_steps, pi, lam, c, *channel)
            for c, channel in enumerate(channels)
        ]
        Q = np.stack([one["Q"] for one in lstds])
        V = np.stack([one["V"] for one in lstds])
        V_fed = dual_feed(feed, V[:, 0] @ initial, utilities)
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


def dual_feed(feed, V_initial, utilities):
    """What the dual sees (K,); V_initial (channels,) holds the estimates at the first step."""
    K = len(utilities)
    if feed == "observed":
        return utilities.sum(axis=1)
    if feed == "plain":
        return V_initial[1 + K :]
    return V_initial[1:]


def lstd_channels(block, n, beta, beta_r, LV, spread_P, spread_g, plain):
    """For each channel: its signal, the multipliers of Γ_⋄ and Γ, and LV; the last three (H,)."""
    K, H = LV.shape[1:]
    nothing = np.zeros(H)
    channels = [(0, beta, beta_r, nothing)]
    for k in range(K):
        multiplier = beta + spread_P[block] * np.sqrt(n)
        multiplier_r = beta_r + spread_g[block, k] * np.sqrt(n)
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
