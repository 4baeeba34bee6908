"""Slow twins of the planning rivals: counts from the list of episodes, plans from a linear program.

Shares nothing with the compiled code: no slots, no windows kept up to date, no column generation.
"""

import numpy as np
from scipy.optimize import linprog


def weights_of(forgetting, m):
    """How much each of the episodes 0 .. m-1 counts when the policy of episode m is planned."""
    age = m - np.arange(m)
    kind = type(forgetting).__name__
    if kind == "Never":
        return np.ones(m)
    if kind == "Periodic":
        return (np.arange(m) >= m // forgetting.W * forgetting.W).astype(float)
    if kind == "SlidingWindow":
        return (age < forgetting.W).astype(float)
    return forgetting.factor**age


def counts(episodes, weights, H, S, A, K):
    """n(h, x, a), n(h, x, a, x') and sums of signals, of weighted episodes."""
    n, successors = np.zeros((H, S, A)), np.zeros((H, S, A, S))
    sums = np.zeros((1 + K, H, S, A))
    for (states, actions, rewards, utilities), weight in zip(episodes, weights, strict=True):
        for h in range(H):
            s, a = states[h], actions[h]
            n[h, s, a] += weight
            sums[0, h, s, a] += weight * rewards[h]
            for k in range(K):
                sums[1 + k, h, s, a] += weight * utilities[k][h]
            if h + 1 < H:
                successors[h, s, a, states[h + 1]] += weight
    return n, successors, sums


def constrained_optimum(n, successors, signals, thresholds, initial):
    """Values (1+K,) of an optimum and whether thresholds can be reached; unseen pairs pay H-h.

    Occupancies q(h, x, a) of a linear program; a pair without data ends the episode.
    """
    C, H, S, A = signals.shape
    rows, right = [], []
    for h in range(H):
        for s in range(S):
            row = np.zeros((H, S, A))
            row[h, s] = 1.0
            if h:
                for x in range(S):
                    for a in range(A):
                        if n[h - 1, x, a] > 0:
                            row[h - 1, x, a] -= successors[h - 1, x, a, s] / n[h - 1, x, a]
            rows.append(row.ravel())
            right.append(initial[s] if h == 0 else 0.0)
    pays = signals.copy()
    for h in range(H):
        pays[:, h][:, n[h] == 0] = H - h
    flat = pays.reshape(C, -1)
    found = linprog(
        -flat[0], A_ub=-flat[1:], b_ub=-np.asarray(thresholds), A_eq=np.array(rows), b_eq=right
    )
    if found.status == 2:
        return None
    return flat @ found.x
