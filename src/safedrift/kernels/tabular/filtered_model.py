"""A model to plan on, made of what filters know (`kernels.tabular.filters`).

Transitions, reward and utilities are averages of the heaviest experts of each quantity. States at
step h are those that can be reached in the model; a pair of which nothing is known stays where it
is and pays 1 (its utility: 1 - caution). Known pairs get bonuses (`kernels.tabular.bonuses`).

Where common factors (`kernels.tabular.factors`) predict well, they are averaged with the filters,
with shares that are inverse to the variances in the pair, times the trust in factors (at most
`MOST_TRUST`): what was visited today is known from the visit, all others from what they have in
common with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.tabular.bonuses import add_bonuses
from safedrift.kernels.tabular.evidence import belongs
from safedrift.kernels.tabular.factors import (
    LEAST_V,
    MOST_TRUST,
    MOVE_FIRST,
    MOVE_SLOPE,
    Factors,
    fewness,
    inverse_of,
    loadings_of_signal,
    prior_slopes,
    times,
    variance_along,
)
from safedrift.kernels.tabular.filters import SPREAD, Cells, Experts, blend, experts_of, growth_of
from safedrift.kernels.tabular.model_states import write_successors
from safedrift.kernels.types import FloatArray, IndexArray, jit_inline, jit_part, jit_shared

CHOSEN = 3  # experts that a model averages at most, ...
WEIGHT = 0.05  # ... each with at least this share of the heaviest one's weight


class Plan(NamedTuple):
    """The policy in use, and values of it in the model it was made for."""

    local: IndexArray  # (H, S) number of a state at step h in the model, or -1
    count: NDArray[np.int64]  # type: ignore[assignment]  # (H,) states at each step
    reach: IndexArray  # (H, S) which they are
    policy: FloatArray  # (H, S, A); uniform where nothing was planned
    values: FloatArray  # (1+K, H, S) V_r + Σ μ V_g, then V_g
    pair: IndexArray  # (2, H, S) unsafe and safe actions that the policy is a mixture of, if K = 1
    mu: FloatArray  # (K,)
    optimism: FloatArray  # (1,) c_g in use: grows while no policy looks safe
    found: FloatArray  # (2+K,) whether some policy looked safe; reward, utilities of the plan
    slack: FloatArray  # (1,) Slater gap of the model
    known: NDArray[np.int64]  # (6,) what `reach` was written for, and entries and states it needs


class Knowledge(NamedTuple):
    """What is known of the world."""

    own: Cells  # of (h, s, a)
    pooled: Cells  # of (s, a), all steps together
    moves: Experts
    signals: Experts  # of 1+K quantities: reward, utilities
    factors: Factors  # of drift that pairs have in common
    binary: NDArray[np.bool_]  # (1+K,) only 0 and 1 seen so far
    mean: FloatArray  # (1+K,) of all observations, old ones forgotten slowly
    seen: FloatArray  # (1,) observations in `mean`
    episode: NDArray[np.int64]  # (1,) episodes finished


class Model(NamedTuple):
    """The model, N states per step."""

    written_for: NDArray[np.int64]  # (4,) `Plan.known` that the next four were written for
    offsets: NDArray[np.int64]  # (H*N*A + 1,)
    states: NDArray[np.uint32]  # (entries,)
    edge: IndexArray  # (entries,) edge of `own`, or -1
    pooled_edge: IndexArray  # (entries,) edge of `pooled`, or -1
    p: FloatArray  # (entries,)
    signals: FloatArray  # (1+K, H, N, A) with bonuses
    means: FloatArray  # (1+K, H, N, A) without
    place: IndexArray  # (S,) scratch, all -1
    row: FloatArray  # (N, A+1, 2(1+K) + 1) scratch: two moments of each value, n; their average
    visits: FloatArray  # (N, A) scratch: visits of each pair that the heaviest expert counts
    factor: FloatArray  # (2, CHOSEN) scratch
    worth: FloatArray  # (2, 5, N) scratch of `plans.take_policy` and `exploration.cost_of`
    chosen: FloatArray  # (2+K, CHOSEN, 3) k, o and weight of experts, quantity by quantity


# ---------------------------------------------------------------- experts


@jit_part
def choose(know, chosen):
    """Write the experts that the model averages; whether any pools transitions."""
    pools = choose_of(know.moves, chosen[0])
    for i in range(know.mean.size):
        choose_of(experts_of(know.signals, i), chosen[1 + i])
    return pools


@jit_part
def choose_of(experts, chosen):
    """Write k, o and weight of the heaviest experts, weights adding to 1; whether any pools."""
    kk, ll = experts.weight.shape
    best, total, pools = 0.0, 0.0, False
    for n in range(chosen.shape[0]):
        chosen[n, 2] = 0.0
        for k in range(kk):
            for o in range(ll):
                w = experts.weight[k, o]
                taken = False
                for before in range(n):
                    taken |= chosen[before, 0] == k and chosen[before, 1] == o
                if not taken and w > chosen[n, 2] and w >= WEIGHT * best:
                    chosen[n, 0], chosen[n, 1], chosen[n, 2] = k, o, w
        best = max(best, chosen[n, 2])
        total += chosen[n, 2]
        pools |= chosen[n, 2] > 0.0 and chosen[n, 1] > 0.0
    for n in range(chosen.shape[0]):
        chosen[n, 2] /= total
    return pools


@jit_part
def matters(experts, part, k):
    """Whether planning may use one of filter k's experts on own (part 0) or pooled cells."""
    best, own = 0.0, 0.0
    for i in range(experts.weight.shape[0]):
        for o in range(experts.weight.shape[1]):
            best = max(best, experts.weight[i, o])
            if i == k and belongs(experts, part, o):
                own = max(own, experts.weight[i, o])
    return own >= WEIGHT * best


# ---------------------------------------------------------------- numbers


@jit_shared
def write_model(know, plan, moves, signals, bonuses, share, pools, model):
    """Write the model that the chosen experts have of the coming episode.

    `moves` and `signals` are the grids of their filters, `share` that of the reward's bonuses.
    """
    write_successors(know, plan, pools, model)
    H = plan.count.size
    for h in range(H):
        if h + 1 < H:
            write_rows(h, know, plan, moves, pools, model)
        write_estimates(h, know, plan, signals, bonuses.unknown_utility, model)
        signal_strength = signals.omega[int(model.chosen[1, 0, 1])]
        move_strength = moves.omega[int(model.chosen[0, 0, 1])]
        add_bonuses(h, know, plan, signal_strength, move_strength, bonuses, share, model)


@jit_part
def write_rows(h, know, plan, grid, pools, model):
    """Write probabilities of the successors of all pairs at step h, and moments of values there."""
    A = plan.policy.shape[2]
    for i in range(plan.count[h]):
        for a in range(A):
            write_row(know, plan, grid, pools, h, i, np.int64(plan.reach[h, i]), a, model)


@jit_part
def write_estimates(h, know, plan, grid, unknown_utility, model):
    """Write means of rewards and utilities at step h, and their variances in place of `signals`."""
    C, _, N, A = model.signals.shape
    S = plan.local.shape[1]
    for i in range(plan.count[h]):
        s = np.int64(plan.reach[h, i])
        for a in range(A):
            c, q = know.own.index[(h * S + s) * A + a], know.pooled.index[s * A + a]
            for g in range(C):
                mean, u = estimate_signal(know, grid, g, c, q, model.chosen[1 + g])
                if c >= 0 and know.factors.trust[1 + g] > WEIGHT:
                    mean, u = with_factors(know, c, g, mean, u)
                if c < 0 and q < 0:
                    mean = 1.0 if g == 0 else unknown_utility
                model.means[g, h, i, a] = mean
                model.signals[g, h, i, a] = u
    for i in range(plan.count[h], N):
        for a in range(A):
            for g in range(C):
                model.means[g, h, i, a] = 0.0
                model.signals[g, h, i, a] = 0.0


@jit_inline
def now(n, grid, k, passed):
    """Effective observations after `passed` episodes without a visit."""
    growth = growth_of(grid, k, passed)
    return n / (1.0 + growth * n) if growth > 0.0 else n


@jit_inline
def write_row(know, plan, grid, pools, h, i, s, a, model):
    """Write probabilities of the successors of (h, s, a), s number i of its step."""
    N, S, A = model.signals.shape[2], plan.local.shape[1], plan.policy.shape[2]
    row, last = (h * N + i) * A + a, 2 * (1 + plan.mu.size)
    first, end = np.uint64(model.offsets[row]), np.uint64(model.offsets[row + 1])
    c = know.own.index[(h * S + s) * A + a]
    q = know.pooled.index[s * A + a] if pools else np.int32(-1)
    for x in range(last + 1):
        model.row[i, a, x] = 0.0
    spread = share_out(know, grid, c, q, model)
    mine, others = blend(
        know.own.visits[c] if c >= 0 else 0.0,
        know.pooled.visits[q] if q >= 0 else 0.0,
        grid.omega[int(model.chosen[0, 0, 1])],
    )
    model.visits[i, a] = mine + others
    if spread == 0.0:
        model.p[first] = 1.0
        return
    total = add_counts(
        first,
        end,
        model.edge,
        model.pooled_edge,
        know.own.edge_count,
        know.pooled.edge_count,
        model.chosen[0],
        model.factor,
        model.p,
    )
    scale = 1.0 / total
    if c >= 0 and know.factors.trust[0] > WEIGHT:
        few, trust = blend_factors(know, c, first, end, scale, spread, model)
        spread += trust * (few - spread)
        scale = 1.0
    for x in range(1 + plan.mu.size):
        model.row[i, a, 2 * x], model.row[i, a, 2 * x + 1] = moments(
            first, end, model.states, plan.reach[h + 1], plan.values[x, h + 1], scale, model.p
        )
        scale = 1.0
    model.row[i, a, last] = 1.0 / spread


@jit_inline
def add_counts(first, end, edge, pooled_edge, own, pooled, chosen, factor, p):
    """Write the sums of counts of the three chosen experts, times their factors; returns the total.

    Parameters
    ----------
    own, pooled : (edges, k) counts
    chosen : (CHOSEN, 3), factor : (2, CHOSEN)
    """
    i, j, k = np.uint32(chosen[0, 0]), np.uint32(chosen[1, 0]), np.uint32(chosen[2, 0])
    total = 0.0
    for entry in range(first, end):
        e, f = edge[entry], pooled_edge[entry]
        share = 0.0
        if e >= 0 and f >= 0:
            x, y = own[np.uint32(e)], pooled[np.uint32(f)]
            share += factor[0, 0] * x[i] + factor[1, 0] * y[i]
            share = share + factor[0, 1] * x[j] + factor[1, 1] * y[j]
            share = share + factor[0, 2] * x[k] + factor[1, 2] * y[k]
        elif e >= 0:
            x = own[np.uint32(e)]
            share += factor[0, 0] * x[i]
            share += factor[0, 1] * x[j]
            share += factor[0, 2] * x[k]
        elif f >= 0:
            y = pooled[np.uint32(f)]
            share += factor[1, 0] * y[i]
            share += factor[1, 1] * y[j]
            share += factor[1, 2] * y[k]
        p[entry] = share
        total += share
    return total


@jit_inline
def moments(first, end, states, reach, V, scale, p):
    """Multiply entries of p by `scale`; mean of V (S,) and of its square under them."""
    mean, square = 0.0, 0.0
    for e in range(first, end):
        p[e] *= scale
        v = V[np.uint32(reach[states[e]])]
        mean += p[e] * v
        square += p[e] * v * v
    return mean, square


@jit_inline
def blend_factors(know, c, first, end, scale, spread, model):
    """Average entries of p, times `scale`, with what factors say; returns their 1/n and share.

    `spread` is 1/n of the entries.
    """
    factors, z = know.factors, know.factors.z
    inverse = inverse_of(factors, c, MOVE_FIRST, MOVE_SLOPE)
    omega = times(inverse, 1.0, z[0], z[1])
    total, pair = 0.0, know.own.key[c]
    slope = MOVE_SLOPE * (factors.visits[c] + 1.0) / factors.gram[c, 0]
    for entry in range(first, end):
        e = model.edge[entry]
        if e >= 0:
            total += max(share_of(factors.edge[e], omega, pair, know.own.edge_state[e], slope), 0.0)
    few = fewness(factors, c, inverse)
    trust = share_of_factors(factors.trust[0], few, spread)
    rest = (1.0 - trust) * scale
    if total <= 0.0:
        trust, rest, total = 0.0, scale, 1.0
    for entry in range(first, end):
        e = model.edge[entry]
        share = 0.0
        if e >= 0:
            share = share_of(factors.edge[e], omega, pair, know.own.edge_state[e], slope)
        model.p[entry] = rest * model.p[entry] + trust / total * max(share, 0.0)
    return few, trust


@jit_inline
def share_of(u, omega, pair, state, slope):
    """What factors give a successor with sums u = Σ f x."""
    one, two = prior_slopes(pair * 5 + state * 3 + 1)
    p = slope * u[0]
    return omega[0] * u[0] + omega[1] * (u[1] + p * one) + omega[2] * (u[2] + p * two)


@jit_inline
def share_out(know, grid, c, q, model):
    """Write what a count of each chosen expert is worth; returns the mean of 1/n, or 0.

    `model.factor[0]` is for counts of cell c, `model.factor[1]` for those of pooled cell q.
    """
    own, pooled, m = know.own, know.pooled, know.episode[0]
    spread, known = 0.0, False
    for x in range(CHOSEN):
        weight = model.chosen[0, x, 2]
        model.factor[0, x], model.factor[1, x] = 0.0, 0.0
        if weight == 0.0:
            continue
        k, o = np.uint32(model.chosen[0, x, 0]), np.uint32(model.chosen[0, x, 1])
        n, N = 0.0, 0.0
        if c >= 0:
            n = now(own.n[c, k], grid, k, float(m - own.last_move[c]))
        if q >= 0:
            N = now(pooled.n[q, k], grid, k, float(m - pooled.last_move[q]))
        mine, others = blend(n, N, grid.omega[o])
        total = mine + others
        spread += weight / max(total, 0.01)
        if mine > 0.0:
            model.factor[0, x] = weight * mine / total / own.n[c, k] * own.scale[c, k]
        if others > 0.0:
            model.factor[1, x] = weight * others / total / pooled.n[q, k] * pooled.scale[q, k]
        known |= total > 0.0
    return spread if known else 0.0


@jit_inline
def estimate_signal(know, grid, g, c, q, chosen):
    """Mean of signal g in a pair, averaged over the chosen experts, and its variance."""
    own, pooled, m = know.own, know.pooled, know.episode[0]
    mean, u, square = 0.0, 0.0, 0.0
    for x in range(CHOSEN):
        weight = chosen[x, 2]
        if weight == 0.0:
            break
        k, o = np.uint32(chosen[x, 0]), np.uint32(chosen[x, 1])
        n, N, total_mean = 0.0, 0.0, 0.0
        if c >= 0 and grid.omega[o] < np.inf:
            n = now(own.signal[c, g, k, 0], grid, k, float(m - own.last[c]))
        if q >= 0 and grid.omega[o] > 0.0:
            N = now(pooled.signal[q, g, k, 0], grid, k, float(m - pooled.last[q]))
        mine, others = blend(n, N, grid.omega[o])
        if mine > 0.0:
            total_mean += mine * own.signal[c, g, k, 1]
        if others > 0.0:
            total_mean += others * pooled.signal[q, g, k, 1]
        total = mine + others
        v = know.signals.v[g, k, o]
        if know.binary[g]:
            b = (total_mean + 0.5) / (total + 1.0)
            v = b * (1.0 - b)
        prior = v / SPREAD  # shrinks to the mean of all pairs
        guess = (total_mean + prior * know.mean[g]) / (total + prior)
        mean += weight * guess
        square += weight * guess * guess
        u += weight * min(v / (total + prior), SPREAD)
    return mean, min(u + max(square - mean * mean, 0.0), SPREAD)


@jit_inline
def with_factors(know, c, g, mean, u):
    """Mean and variance of signal g in cell c, averaged over filters (`mean`, u) and factors."""
    factors, z = know.factors, know.factors.z
    beta, inverse = loadings_of_signal(factors, c, know.own.key[c], g, know.mean[g])
    few = fewness(factors, c, inverse)
    guess = min(max(beta[0] + beta[1] * z[0] + beta[2] * z[1], 0.0), 1.0)
    own = min(
        max(factors.v[g], LEAST_V) * few + variance_along(factors.spread, beta[1], beta[2]), SPREAD
    )
    share, gap = share_of_factors(factors.trust[1 + g], own, u), guess - mean
    both = (1.0 - share) * u + share * own + share * (1.0 - share) * gap * gap
    return mean + share * gap, min(both, SPREAD)


@jit_inline
def share_of_factors(trust, own, others):
    """Share of factors in an average with filters, where both have these variances."""
    odds = min(trust, MOST_TRUST)
    one, two = odds * others, (1.0 - odds) * own
    return one / max(one + two, 1e-300)
