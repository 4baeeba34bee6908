"""Filters that differ in how fast they believe the world moves, scored by what they predict.

For the transitions, the reward and each utility: experts (k, l), a drift rate κ_k with a power p_k,
times a strength ω_l of pooling over steps. Of every pair (h, s, a) an expert keeps an effective
number of observations n and a mean (of successors: counts), and of every pair (s, a) the same for
all steps together. On a visit Δ episodes after the last one

    1/n ← 1/n + κ Δ^p                             p = 1: a mean that moves like a random walk,
                                                  p = 2: one that keeps its direction
    prediction (n mean + w pooled)/(n + w),       w = min(ω, n_pooled); ω = ∞: pooled only
    n ← n + 1,  mean ← mean + (x - mean)/n

and the expert pays minus the logarithm of the probability that it gave to what was seen:

    successors       (count + w pooled share + α)/(n + w + S α)
    only 0 and 1     p = (n mean + 1/2)/(n + 1)
    other signals    normal, variance v (1 + 1/n), v the expert's own mean squared error

α, the concentration of a symmetric Dirichlet prior, is the expert's own: it climbs the gradient of
the logarithm of its own predictions. A fixed α makes filters that forget look good wherever rows
have many successors, because forgetting smooths. Weights of experts follow the fixed-share rule
(Herbster and Warmuth 1998).
`evidence` says what an episode's losses change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.types import FloatArray, IndexArray, jit_inline, jit_part

SHARE = 1e-4  # of the weight that is spread over all experts after each episode
SPREAD = 0.1  # variance of means between pairs, before anything is known
MOST = 30.0  # nats by which an expert may fall behind the best in one episode
FLOOR, LEAST = 1e-6, 1e-7  # of v, and of the variance of a prediction
TINY = 1e-150
POWERS = np.array([-1.0, 1.0, -2.0, 2.0])  # λ
FARTHEST, PRIOR, SLOWEST = 8.0, 20.0, 1e-4  # |z|; weight of normal noise and least rate in `tails`


class Grid(NamedTuple):
    """Drift rates and pooling strengths."""

    kappa: FloatArray  # (k,) per episode
    power: FloatArray  # (k,) 1: means move like random walks; 2: they keep their direction
    omega: FloatArray  # (l,) the last may be infinite


class Cells(NamedTuple):
    """What is known of pairs: of (h, s, a), or of (s, a) for all steps together."""

    index: IndexArray  # type: ignore[assignment]  # (pairs,) number of a pair's cell, or -1
    used: NDArray[np.int64]  # (2,) cells and edges in use
    key: NDArray[np.int64]  # (cap,) pair of a cell
    last: NDArray[np.int64]  # (cap,) episode of the last visit
    last_move: NDArray[np.int64]  # (cap,) of the last visit whose successor was seen
    visits: FloatArray  # (cap,) whose successor was seen, nothing forgotten
    n: FloatArray  # (cap, kP) transitions: effective observations, and ...
    scale: FloatArray  # (cap, kP) ... what stored counts are to be multiplied by
    head: IndexArray  # (cap,) first edge, or -1
    signal: FloatArray  # (cap, C, kS, 2) signals: effective observations and mean
    edge_next: IndexArray  # (edges,) next edge of the same cell, or -1
    edge_state: IndexArray  # (edges,) successor
    edge_count: FloatArray  # (edges, kP)


class Experts(NamedTuple):
    """Weights and alarms of the experts of one quantity; of several: one more axis in front."""

    weight: FloatArray  # (k, l)
    v: FloatArray  # (k, l) mean squared error of predictions; of transitions: α
    seen: FloatArray  # (1,) observations so far
    best: NDArray[np.int64]  # (own or pooled,) heaviest filter there
    tails: (
        FloatArray  # (own or pooled, 4) means of e^(λz), λ of `POWERS`, z its standardised errors
    )
    C: FloatArray  # (own or pooled, k, k)
    since: NDArray[np.int64]  # (own or pooled, k, k) first episode after C was 0
    excess: FloatArray  # (own or pooled, k, k, 2) excess squared error since then, observations
    loss: FloatArray  # (k, l) of this episode
    product: FloatArray  # (k, l) probabilities, or variances, not yet in `loss`
    square: FloatArray  # (k, l) squared errors of this episode


# ---------------------------------------------------------------- room (plain Python)


def make_cells(pairs, C, kP, kS):
    """Return cells for so many pairs, C signals, kP and kS filters; nothing is known yet."""
    cap = min(64, pairs)
    return Cells(
        index=np.full(pairs, -1, np.int32),
        used=np.zeros(2, np.int64),
        key=np.zeros(cap, np.int64),
        last=np.zeros(cap, np.int64),
        last_move=np.zeros(cap, np.int64),
        visits=np.zeros(cap),
        n=np.zeros((cap, kP)),
        scale=np.ones((cap, kP)),
        head=np.full(cap, -1, np.int32),
        signal=np.zeros((cap, C, kS, 2)),
        edge_next=np.full(64, -1, np.int32),
        edge_state=np.zeros(64, np.int32),
        edge_count=np.zeros((64, kP)),
    )


def with_room(cells, more):
    """Return cells with room for so many more pairs and edges; the same ones if there is room."""
    used, edges = int(cells.used[0]), int(cells.used[1])
    changed = {}
    if used + more > len(cells.key) and len(cells.key) < cells.index.size:
        size = min(max(2 * len(cells.key), used + more), cells.index.size)
        for name in ("key", "last", "last_move", "visits", "n", "scale", "head", "signal"):
            changed[name] = _longer(getattr(cells, name), size)
    if edges + more > len(cells.edge_next):
        size = max(2 * len(cells.edge_next), edges + more)
        for name in ("edge_next", "edge_state", "edge_count"):
            changed[name] = _longer(getattr(cells, name), size)
    return cells._replace(**changed) if changed else cells


def _longer(array, size):
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def make_experts(kk, ll, v):
    """Return kk x ll experts of equal weight; `v` as in `Experts`."""
    parts = min(ll, 2)
    return Experts(
        weight=np.full((kk, ll), 1 / (kk * ll)),
        v=np.full((kk, ll), float(v)),
        seen=np.zeros(1),
        best=np.zeros(parts, np.int64),
        tails=np.stack([np.exp(0.5 * POWERS**2)] * parts),
        C=np.zeros((parts, kk, kk)),
        since=np.zeros((parts, kk, kk), np.int64),
        excess=np.zeros((parts, kk, kk, 2)),
        loss=np.zeros((kk, ll)),
        product=np.ones((kk, ll)),
        square=np.zeros((kk, ll)),
    )


def make_several_experts(quantities, kk, ll, v):
    """Return kk x ll experts of each of several quantities."""
    return Experts(*(np.stack([x] * quantities) for x in make_experts(kk, ll, v)))


@jit_inline
def experts_of(several, i):
    """Experts of quantity number i."""
    return Experts(
        several.weight[i],
        several.v[i],
        several.seen[i],
        several.best[i],
        several.tails[i],
        several.C[i],
        several.since[i],
        several.excess[i],
        several.loss[i],
        several.product[i],
        several.square[i],
    )


# ---------------------------------------------------------------- pairs


@jit_inline
def cell_of(cells, pair, m):
    """Return the number of a pair's cell, a new one if need be."""
    c = cells.index[pair]
    if c >= 0:
        return np.int64(c)
    c = np.int32(cells.used[0])
    cells.used[0] += 1
    cells.index[pair] = c
    cells.key[c] = pair
    cells.last[c] = m
    cells.last_move[c] = m
    cells.head[c] = -1
    cells.visits[c] = 0.0
    for k in range(cells.n.shape[1]):
        cells.n[c, k] = 0.0
        cells.scale[c, k] = 1.0
    for i in range(cells.signal.shape[1]):
        for k in range(cells.signal.shape[2]):
            cells.signal[c, i, k, 0] = 0.0
            cells.signal[c, i, k, 1] = 0.0
    return np.int64(c)


@jit_inline
def edge_of(cells, c, state):
    """Return the number of the edge from cell c to a successor, a new one if need be."""
    e = cells.head[c]
    while e >= 0:
        if cells.edge_state[e] == state:
            return np.int64(e)
        e = cells.edge_next[e]
    e = np.int32(cells.used[1])
    cells.used[1] += 1
    cells.edge_state[e] = state
    cells.edge_next[e] = cells.head[c]
    cells.head[c] = e
    for k in range(cells.edge_count.shape[1]):
        cells.edge_count[e, k] = 0.0
    return np.int64(e)


@jit_inline
def growth_of(grid, k, passed):
    """What is added to 1/n over `passed` episodes."""
    if grid.power[k] == 2.0:
        return grid.kappa[k] * passed * passed
    return grid.kappa[k] * passed


@jit_inline
def age_transitions(cells, c, m, grid):
    """Let the effective observations of cell c shrink to episode m."""
    passed = float(m - cells.last_move[c])
    cells.last_move[c] = m
    if passed > 0.0:
        for k in range(grid.kappa.size):
            if grid.kappa[k] > 0.0 and cells.n[c, k] > 0.0:
                factor = 1.0 / (1.0 + growth_of(grid, k, passed) * cells.n[c, k])
                shrink(cells, c, k, factor)


@jit_inline
def shrink(cells, c, k, factor):
    """Multiply all counts of filter k in cell c."""
    cells.n[c, k] *= factor
    cells.scale[c, k] *= factor
    if cells.scale[c, k] < 1e-100:
        e = cells.head[c]
        while e >= 0:
            cells.edge_count[e, k] *= cells.scale[c, k]
            e = cells.edge_next[e]
        cells.scale[c, k] = 1.0


@jit_inline
def age_signals(cells, c, m, grid):
    """Let the effective observations of signals in cell c shrink to episode m."""
    passed = float(m - cells.last[c])
    cells.last[c] = m
    if passed > 0.0:
        for k in range(grid.kappa.size):
            growth = growth_of(grid, k, passed)
            if growth > 0.0:
                for i in range(cells.signal.shape[1]):
                    n = cells.signal[c, i, k, 0]
                    cells.signal[c, i, k, 0] = n / (1.0 + growth * n)


# ---------------------------------------------------------------- predictions


@jit_inline
def blend(n, n_pooled, omega):
    """Effective observations of the pair itself and of the pooled pair in a prediction."""
    if omega == np.inf:
        return 0.0, n_pooled
    return n, min(omega, n_pooled)


@jit_part
def see_successor(own, pooled, c, p, state, S, experts, grid):
    """Score the experts on a successor, then count it."""
    e, f = edge_of(own, c, state), edge_of(pooled, p, state)
    own.visits[c] += 1.0
    pooled.visits[p] += 1.0
    experts.seen[0] += 1.0
    rate, least = 0.5 / np.sqrt(1.0 + 0.02 * experts.seen[0]), 0.05 / S
    for k in range(grid.kappa.size):
        n, N = own.n[c, k], pooled.n[p, k]
        count = own.edge_count[e, k] * own.scale[c, k]
        share = pooled.edge_count[f, k] * pooled.scale[p, k] / N if N > 0.0 else 0.0
        for o in range(grid.omega.size):
            a, b = blend(n, N, grid.omega[o])
            prior = experts.v[k, o]
            top = (count if a > 0.0 else 0.0) + b * share + prior
            inverse = 1.0 / (a + b + S * prior)
            q = top * inverse
            pay(experts, k, o, q)
            prior *= 1.0 + rate * prior * (1.0 / top - S * inverse)
            experts.v[k, o] = min(max(prior, least), 2.0)
            experts.square[k, o] += (1.0 - q) * (1.0 - q)
        own.n[c, k] += 1.0
        own.edge_count[e, k] += 1.0 / own.scale[c, k]
        pooled.n[p, k] += 1.0
        pooled.edge_count[f, k] += 1.0 / pooled.scale[p, k]


@jit_inline
def pay(experts, k, o, q):
    """Charge expert (k, l) for an observation that it gave probability q."""
    experts.product[k, o] *= q
    if experts.product[k, o] < TINY:
        experts.loss[k, o] -= log_of(experts.product[k, o])
        experts.product[k, o] = 1.0


@jit_part
def see_signal(own, pooled, c, p, i, x, binary, experts, grid):
    """Score the experts on an observed signal number i, then average it in."""
    experts.seen[0] += 1.0
    rate = max(1.0 / (experts.seen[0] + 1.0), 1e-3)
    for k in range(grid.kappa.size):
        n, mean = own.signal[c, i, k, 0], own.signal[c, i, k, 1]
        N, pooled_mean = pooled.signal[p, i, k, 0], pooled.signal[p, i, k, 1]
        for o in range(grid.omega.size):
            a, b = blend(n, N, grid.omega[o])
            total = a + b
            guess = (a * mean + b * pooled_mean) / total if total > 0.0 else 0.5
            error = (x - guess) * (x - guess)
            v = experts.v[k, o]
            variance = v + SPREAD
            if total > 0.0:
                variance = max(min(v * (1.0 + 1.0 / total), variance), LEAST)
            if binary:
                q = (total * guess + 0.5) / (total + 1.0)
                pay(experts, k, o, q if x == 1.0 else 1.0 - q)
            else:
                if o == 0 and k == experts.best[0]:
                    see_error(experts, 0, (x - guess) / np.sqrt(variance))
                elif o == grid.omega.size - 1 and k == experts.best[-1]:
                    see_error(experts, 1, (x - guess) / np.sqrt(variance))
                experts.loss[k, o] += 0.5 * error / variance
                experts.product[k, o] *= variance
                if experts.product[k, o] < TINY:
                    experts.loss[k, o] += 0.5 * log_of(experts.product[k, o])
                    experts.product[k, o] = 1.0
            experts.square[k, o] += error
            experts.v[k, o] = max(v + (error * v / variance - v) * rate, FLOOR)
        own.signal[c, i, k, 0] = n + 1.0
        own.signal[c, i, k, 1] = mean + (x - mean) / (n + 1.0)
        pooled.signal[p, i, k, 0] = N + 1.0
        pooled.signal[p, i, k, 1] = pooled_mean + (x - pooled_mean) / (N + 1.0)


@jit_inline
def see_error(experts, part, z):
    """Average e^(λz) in, for a standardised error z of the heaviest filter of a part."""
    up = exp_of(max(min(z, FARTHEST), -FARTHEST))
    rate = max(1.0 / (experts.seen[0] + PRIOR), SLOWEST)
    tails = experts.tails[part]
    tails[0] += (1.0 / up - tails[0]) * rate
    tails[1] += (up - tails[1]) * rate
    tails[2] += (1.0 / (up * up) - tails[2]) * rate
    tails[3] += (up * up - tails[3]) * rate
