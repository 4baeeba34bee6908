"""The extended linear program, written densely over q(h, s, a, s') alone, and counting by hand."""

import numpy as np
from scipy.optimize import linprog


def best_value(low, high, rewards, utilities, thresholds, initial):
    """Optimal value over policies and models in the intervals, or None where infeasible.

    q has H steps; after the last one the intervals are [0, 1].
    """
    K, H, S, A = utilities.shape
    low = np.concatenate([low, np.zeros((1, S, A, S))])
    high = np.concatenate([high, np.ones((1, S, A, S))])
    shape = (H, S, A, S)
    unit = np.eye(H * S * A * S).reshape(-1, *shape)  # unit[i] picks variable i
    at = np.arange(H * S * A * S).reshape(shape)
    A_eq, b_eq, A_ub, b_ub = [], [], [], []
    for h in range(H):
        for s in range(S):
            row = np.zeros(shape)
            row[h, s] = 1
            if h > 0:
                row[h - 1, :, :, s] -= 1
            A_eq.append(row.ravel())
            b_eq.append(initial[s] if h == 0 else 0.0)
            for a in range(A):
                total = np.zeros(shape)
                total[h, s, a] = 1
                for y in range(S):
                    one = unit[at[h, s, a, y]]
                    A_ub += [(one - high[h, s, a, y] * total).ravel()]
                    A_ub += [(low[h, s, a, y] * total - one).ravel()]
                    b_ub += [0.0, 0.0]
    for k in range(K):
        A_ub.append(-np.repeat(utilities[k][..., None], S, axis=-1).ravel())
        b_ub.append(-thresholds[k])
    c = -np.repeat(rewards[..., None], S, axis=-1).ravel()
    found = linprog(c, np.array(A_ub), b_ub, np.array(A_eq), b_eq, method="highs")
    return -found.fun if found.status == 0 else None


def weighted_counts(episodes, weights, H, S, A, K):
    """Counts and sums of (states, actions, signals), each episode with its weight."""
    visits, transitions = np.zeros((H, S, A)), np.zeros((H - 1, S, A, S))
    signals = np.zeros((1 + K, H, S, A))
    for (states, actions, seen), weight in zip(episodes, weights, strict=True):
        for h in range(H):
            visits[h, states[h], actions[h]] += weight
            signals[:, h, states[h], actions[h]] += weight * seen[:, h]
            if h + 1 < H:
                transitions[h, states[h], actions[h], states[h + 1]] += weight
    return visits, transitions, signals
