"""Plain NumPy twin of least-squares value iteration with a multiplier, written from the papers.

Every estimate is computed from all stored rows each time; no code is shared with the kernels.
"""

import numpy as np


def ridge(rows, targets, weights, lam):
    """Coefficients, and x -> norm: sqrt(x' L^-1 L2 L^-1 x), L2 with squared weights."""
    d = rows.shape[1]
    L = lam * np.eye(d) + (rows * weights[:, None]).T @ rows
    L2 = lam * np.eye(d) + (rows * weights[:, None] ** 2).T @ rows
    solution = np.linalg.solve(L, (rows * weights[:, None]).T @ targets)

    def norm(x):
        y = np.linalg.solve(L, x.reshape(-1, d).T)
        return np.sqrt(np.einsum("ip,ij,jp->p", y, L2, y)).reshape(x.shape[:-1])

    return solution, norm


def softmax(logits):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def value_iteration(past, weights, psi, phi, mu, alpha, lam, beta, beta_r):
    """Q (1+K, H, S, A), policy (H, S, A), V (1+K, H+1, S), w (1+K, H, d1) of an episode."""
    H, S, A, _, d1 = psi.shape
    K, d2 = len(mu), phi.shape[-1]
    Q, V = np.zeros((1 + K, H, S, A)), np.zeros((1 + K, H + 1, S))
    pi, w = np.zeros((H, S, A)), np.zeros((1 + K, H, d1))
    for h in reversed(range(H)):
        x_r = np.array([one["phi"][h] for one in past]).reshape(-1, d2)
        for c in range(1 + K):
            y_r = np.array([one["signals"][c, h] for one in past])
            u, norm_r = ridge(x_r, y_r, weights, lam)
            total = phi[h] @ u + beta_r[h] * norm_r(phi[h])
            if h + 1 < H:
                x = np.array([one["x"][c, h] for one in past]).reshape(-1, d1)
                y = np.array([one["y"][c, h] for one in past])
                w[c, h], norm = ridge(x, y, weights, lam)
                ahead = np.einsum("saxi,x->sai", psi[h], V[c, h + 1])
                total = total + ahead @ w[c, h] + beta[h] * norm(ahead)
            Q[c, h] = np.clip(total, 0, H - h)
        pi[h] = softmax(alpha * (Q[0, h] + np.tensordot(mu, Q[1:, h], axes=1)))
        V[:, h] = (pi[h] * Q[:, h]).sum(axis=-1)
    return Q, pi, V, w


def least_squares_values(
    *, play, thresholds, sizes, initial, psi, phi, alpha, eta, chi, lam, beta, beta_r,
    window=None, restart_multipliers=False, discount=1.0,
):  # fmt: skip
    """Yield every quantity of every episode.

    play(m, policy) -> states (H,), actions (H,), rewards (H,), utilities (K, H)
    psi (H, S, A, S, d1), phi (H, S, A, d2)
    """
    M, H, _, _, K = sizes
    mu, past = np.zeros(K), []
    for m in range(M):
        if window is not None and m % window == 0:
            past = []
            if restart_multipliers:
                mu = np.zeros(K)
        weights = discount ** np.arange(len(past) - 1, -1, -1.0)  # the latest episode counts fully
        Q, pi, V, w = value_iteration(past, weights, psi, phi, mu, alpha, lam, beta, beta_r)
        states, actions, rewards, utilities = play(m, pi)
        start = V[:, 0] @ initial
        mu = np.clip(mu + eta * (thresholds[m] - start[1:]), 0, chi)
        x, y = np.zeros((1 + K, H, psi.shape[-1])), np.zeros((1 + K, H))
        for c in range(1 + K):
            for h in range(H - 1):
                x[c, h] = V[c, h + 1] @ psi[h, states[h], actions[h]]
                y[c, h] = V[c, h + 1, states[h + 1]]
        past.append({
            "x": x, "y": y, "signals": np.vstack([rewards, utilities]),
            "phi": np.stack([phi[h, states[h], actions[h]] for h in range(H)]),
        })  # fmt: skip
        at_cap = sum(
            Q[c, h, states[h], actions[h]] >= H - h for c in range(1 + K) for h in range(H)
        )
        yield {
            "policy": pi, "Q": Q, "w": w, "start": start, "mu": mu, "at_cap": at_cap / (H * (1 + K))
        }  # fmt: skip
