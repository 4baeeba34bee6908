"""What the losses of an episode change: weights of experts, and alarms on filters that are wrong.

Alarms. For filters k and j, where j is faster at any distance (κ_j >= κ_k and p_j >= p_k),
C = max(0, C + loss_k - loss_j), once with the losses of experts that know own cells only (part 0)
and once with those that know pooled cells only (part 1). Where filter k is right, e^C is at most a
sum of martingales that start at 1 in each episode; so in n episodes C passes a limit c with
probability at most n e^-c (Ville's inequality). When it does, filter k is wrong about the cells of
this part: it takes over the state of filter j in all of them visited since C was last 0, and trusts
what it knows of all others less: n ← n/(1 + √(J n))², where J estimates the squared jump in units
of v. It also gets the weight of j, if that is more: once corrected, it may be the best again. Where
a policy changes, pooled means move though no pair does: then pooled cells are corrected, own ones
are not.

The inequality needs losses of the true distribution. Errors that are predicted as normal and are
not make C grow too fast, so losses are divided by the excess of their tails,

    s = max(1, max_λ 2 log E[e^(λ z)]/λ²),        λ = ±1, ±2,

with z the standardised error of the heaviest filter, cut at ±8, and a running mean for E: errors
that are sub-Gaussian with s times the variance of their prediction. For normal errors s = 1.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.tabular.filters import MOST, POWERS, SHARE, shrink
from safedrift.kernels.types import jit_inline, jit_part


@jit_part
def heaviest(weight):
    """Number k * (pooling strengths) + o of the heaviest expert."""
    best, found = -1.0, 0
    for k in range(weight.shape[0]):
        for o in range(weight.shape[1]):
            if weight[k, o] > best:
                best, found = weight[k, o], k * weight.shape[1] + o
    return found


@jit_part
def settle(experts, grid, sign, observations, m):
    """Turn the episode's losses into weights and alarm statistics; clears them.

    `sign` is -1 where `product` holds probabilities, 1/2 where it holds variances.
    """
    kk, ll = experts.weight.shape
    best = np.inf
    for k in range(kk):
        for o in range(ll):
            experts.loss[k, o] += sign * log_of(experts.product[k, o])
            best = min(best, experts.loss[k, o])
    for part in range(experts.C.shape[0]):
        temper = excess_of_tails(experts.tails[part]) if sign > 0.0 else 1.0
        collect(experts, part, grid, temper, observations, m)
    total = 0.0
    for k in range(kk):
        for o in range(ll):
            loss = min(experts.loss[k, o] - best, MOST)
            experts.weight[k, o] *= exp_of(-loss)
            total += experts.weight[k, o]
    for k in range(kk):
        for o in range(ll):
            share = (1.0 - SHARE) * experts.weight[k, o] / total + SHARE / (kk * ll)
            experts.weight[k, o] = share
            experts.loss[k, o] = 0.0
            experts.product[k, o] = 1.0
            experts.square[k, o] = 0.0
    for part in range(experts.C.shape[0]):
        o = strength_of(experts, part)
        experts.best[part] = 0
        for k in range(1, kk):
            if experts.weight[k, o] > experts.weight[experts.best[part], o]:
                experts.best[part] = k


@jit_part
def collect(experts, part, grid, temper, observations, m):
    """Let this episode's losses over `temper` count for and against filters: own, or pooled."""
    o = strength_of(experts, part)
    best = np.inf
    for k in range(grid.kappa.size):
        best = min(best, experts.loss[k, o])
    for k in range(grid.kappa.size):
        behind = min((experts.loss[k, o] - best) / temper, MOST)
        for j in range(k + 1, grid.kappa.size):
            if grid.power[j] < grid.power[k] or grid.kappa[j] < grid.kappa[k]:
                continue
            ahead = min((experts.loss[j, o] - best) / temper, MOST)
            C = experts.C[part, k, j] + behind - ahead
            if C > 0.0:
                experts.C[part, k, j] = C
                experts.excess[part, k, j, 0] += experts.square[k, o] - experts.square[j, o]
                experts.excess[part, k, j, 1] += observations
            else:
                start_again(experts, part, k, j, m)


@jit_part
def excess_of_tails(tails):
    """By how much log E e^(λz) exceeds that of normal errors, λ²/2, at most; at least 1."""
    largest = 1.0
    for i in range(POWERS.size):
        largest = max(largest, 2.0 * log_of(tails[i]) / (POWERS[i] * POWERS[i]))
    return largest


@jit_inline
def strength_of(experts, part):
    """Pooling strength that knows the cells of a part only: the first, or the last."""
    return 0 if part == 0 else experts.loss.shape[1] - 1


@jit_inline
def start_again(experts, part, k, j, m):
    """Set the evidence against filter k and for filter j to 0 after episode m."""
    experts.C[part, k, j] = 0.0
    experts.excess[part, k, j, 0] = 0.0
    experts.excess[part, k, j, 1] = 0.0
    experts.since[part, k, j] = m + 1


@jit_part
def alarmed(experts, part, k, limit):
    """Return the filter j whose lead over k is largest and above the limit, or -1."""
    found, largest = -1, limit
    for j in range(k + 1, experts.C.shape[1]):
        if experts.C[part, k, j] > largest:
            found, largest = j, experts.C[part, k, j]
    return found


@jit_part
def jump(experts, part, k, j, times, over):
    """Estimated squared jump that filter k missed and filter j followed."""
    excess, observations = experts.excess[part, k, j, 0], experts.excess[part, k, j, 1]
    return times * max(excess / max(observations, 1.0), 0.0) / over


@jit_part
def correct_transitions(cells, k, j, since, J):
    """Let filter k take over what filter j knows of visited pairs, and doubt all others."""
    for c in range(cells.used[0]):
        if cells.last_move[c] >= since:
            cells.n[c, k] = cells.n[c, j]
            cells.scale[c, k] = cells.scale[c, j]
            e = cells.head[c]
            while e >= 0:
                cells.edge_count[e, k] = cells.edge_count[e, j]
                e = cells.edge_next[e]
        elif cells.n[c, k] > 0.0:
            n = cells.n[c, k]
            root = 1.0 + np.sqrt(J * n)
            shrink(cells, c, k, min(n / (root * root), cells.n[c, j]) / n)


@jit_part
def correct_signals(cells, i, k, j, since, J):
    """`correct_transitions` for signal number i."""
    for c in range(cells.used[0]):
        if cells.last[c] >= since:
            cells.signal[c, i, k, 0] = cells.signal[c, i, j, 0]
            cells.signal[c, i, k, 1] = cells.signal[c, i, j, 1]
        else:
            n = cells.signal[c, i, k, 0]
            root = 1.0 + np.sqrt(J * n)
            cells.signal[c, i, k, 0] = n / (root * root)


@jit_part
def forget_losses(experts):
    """Drop losses of this episode so far: they were those of a signal with two values."""
    for k in range(experts.loss.shape[0]):
        for o in range(experts.loss.shape[1]):
            experts.product[k, o] = 1.0
            experts.loss[k, o] = 0.0


@jit_part
def clear_alarm(experts, part, k, j, m):
    """Give filter k a new chance: the weight of j, and statistics that start again.

    Own cells (part 0) belong to all strengths but the last, pooled ones to the last.
    """
    for o in range(experts.weight.shape[1]):
        if belongs(experts, part, o):
            experts.weight[k, o] = max(experts.weight[k, o], experts.weight[j, o])
    for i in range(k + 1, experts.C.shape[1]):
        start_again(experts, part, k, i, m)


@jit_inline
def belongs(experts, part, o):
    """Whether experts of pooling strength number o live on the cells of a part."""
    return experts.C.shape[0] == 1 or (o == experts.weight.shape[1] - 1) == (part == 1)
