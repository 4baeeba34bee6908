"""Bonuses of a model: what is tried again, and how little that may cost safety.

Known pairs get bonuses. With n effective observations, N visits, the last of them Δ rounds ago or
Δ rounds apart on average, whichever is more (a round is as long as it takes to visit every known
pair once), u the variance of a mean, V_r and V_g values of the last plan, μ its multipliers, and
L = 1 + log(1 + Δ):

    r̃ = r̂ + c_r √(L (u_r + Σ μ² u_g + Var(V_r + Σ μ V_g)/n)) + c_h L (H - h - 1)/N²
    g̃ = min(1, ĝ + c_g √(L (u_g + Var(V_g)/n)))

Variances of values are taken under P̂ mixed with half an observation of the average over the known
actions of the same state: what was seen twice need not be certain. Bonuses grow while nobody
visits, so that no wrong belief stays for ever; a useless trial follows the one before after a time
that is exponential in N, so that there are logarithmically many. One visit does not end a trial of
a pair of which little is known: it was visited rarely, and its bonus stays large until N is larger.
Where exploration has cost much, bonuses of the reward are multiplied by a share
(`kernels.tabular.exploration`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.elementary import log_of
from safedrift.kernels.types import jit_inline, jit_part

FEWEST = 0.25  # effective observations that bonuses assume at least
OVERDUE = 5.0  # rounds without a visit after which the next one is a trial


class Bonuses(NamedTuple):
    """Numbers of the formulas above."""

    reward: float  # c_r
    utility: float  # c_g, where some policy looks safe
    range: float  # c_h
    unknown_utility: float  # of a pair of which nothing is known


@jit_part
def add_bonuses(h, know, plan, signal_strength, move_strength, bonuses, share, model):
    """Write rewards and utilities with bonuses in place of the variances of step h.

    Strengths are those with which the heaviest experts of the reward and of transitions pool.
    """
    C, H, _, A = model.signals.shape
    S, K = plan.local.shape[1], C - 1
    for i in range(plan.count[h]):
        s, row = np.int64(plan.reach[h, i]), model.row[i]
        if h + 1 < H:
            average_rows(row)
        for a in range(A):
            c, q = know.own.index[(h * S + s) * A + a], know.pooled.index[s * A + a]
            n = row[a, 2 * C] if h + 1 < H else 1.0
            least = max(n, FEWEST)
            spread = model.signals[0, h, i, a]
            for k in range(K):
                spread += plan.mu[k] * plan.mu[k] * model.signals[1 + k, h, i, a]
            if h + 1 < H:
                spread += value_variance(row, a, 0) / least
            growth = 1.0 + log_of(1.0 + rounds_between(know, c, q, H, signal_strength))
            bonus = bonuses.reward * np.sqrt(growth * spread)
            if h + 1 < H:
                visits, moves = max(model.visits[i, a], 1.0), growth
                if move_strength != signal_strength:
                    moves = 1.0 + log_of(1.0 + rounds_between(know, c, q, H, move_strength))
                bonus += bonuses.range * moves * (H - h - 1) / (visits * visits)
            model.signals[0, h, i, a] = model.means[0, h, i, a] + share * bonus
            for g in range(1, C):
                spread = model.signals[g, h, i, a]
                if h + 1 < H:
                    spread += value_variance(row, a, g) / least
                utility = model.means[g, h, i, a] + plan.optimism[0] * np.sqrt(growth * spread)
                model.signals[g, h, i, a] = max(min(utility, 1.0), 0.0)


@jit_inline
def rounds_between(know, c, q, H, omega):
    """Δ of cells c and q, by those visits that count for this strength of pooling."""
    m, known = know.episode[0], know.own.used[0]
    last, visits = 0, 1.0
    if c >= 0 and omega < np.inf:
        last, visits = know.own.last[c], know.factors.visits[c]
    elif q >= 0 and omega > 0.0:
        known = know.pooled.used[0]
        last, visits = know.pooled.last[q], know.pooled.visits[q]
    return max(float(m - last), float(m) / max(visits, 1.0)) * H / max(known, 1)


@jit_inline
def is_trial(cells, pair, m, H):
    """Whether a visit in episode m says much: it is the first ever, or for `OVERDUE` rounds."""
    c = cells.index[pair]
    return c < 0 or float(m - cells.last[c]) * H >= OVERDUE * cells.used[0]


@jit_inline
def average_rows(row):
    """Average moments over the known actions of a state; their number in place of n."""
    A, last = row.shape[0] - 1, row.shape[1] - 1
    for x in range(last + 1):
        row[A, x] = 0.0
    for a in range(A):
        if row[a, last] > 0.0:
            for x in range(last):
                row[A, x] += row[a, x]
            row[A, last] += 1.0
    for x in range(last):
        row[A, x] /= max(row[A, last], 1.0)


@jit_inline
def value_variance(row, a, g):
    """Variance of value g after action a, under P̂ and half an observation of the average row."""
    A, last = row.shape[0] - 1, row.shape[1] - 1
    if row[A, last] == 0.0:
        return 0.0
    n = row[a, last]
    mean = (n * row[a, 2 * g] + 0.5 * row[A, 2 * g]) / (n + 0.5)
    square = (n * row[a, 2 * g + 1] + 0.5 * row[A, 2 * g + 1]) / (n + 0.5)
    return max(square - mean * mean, 0.0)
