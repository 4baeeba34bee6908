"""Plans on filtered coefficients, compiled: a model of the coming episode and its optimum.

A plan averages the heaviest experts of each quantity: with weights w_i, means θ_i, covariances Σ_i

    θ = Σ_i w_i θ_i,    cov = Σ_i w_i (v_i Σ_i + (θ_i - θ)(θ_i - θ)ᵀ)     (transitions: v_i = 1)

makes rows P̂ (negative entries 0, divided by their sum), r̂ = ⟨φ, θ_r⟩ and ĝ = ⟨φ, θ_g⟩, both
within [0, 1]. With multipliers μ and values V of the last plan, ψ^V(x, a) = Σ_y x_y V(y), and
|x|² = xᵀ cov x,

    r̃ = r̂ + c_r √(|φ|²_r + Σ_k μ_k² |φ|²_g,k + |ψ^(V_r + μ·V_g)|²),
    g̃ = min(1, ĝ + c_g √(|φ|²_g + |ψ^V_g|²)),

each |φ|² at most 0.1, and the constrained optimum of (P̂, r̃, g̃, b) is played. Where no policy of
that model is safe, c_g is multiplied by 5, at most twice: what might be safe has to be tried, or
a wrong estimate of it would never be corrected.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels import exact
from safedrift.kernels.linear.adaptive_memory import experts_of, filters_of, read_phi, row_at
from safedrift.kernels.linear.experts import CHOSEN, SPREAD, choose
from safedrift.kernels.linear.filters import expected, raw, spread
from safedrift.kernels.planning import columns
from safedrift.kernels.types import jit, jit_inline, jit_part

MOST_MU = 10.0  # multiplier that bonuses and the next plan start from, at most
ATTEMPTS, BOLDER = 3, 5.0  # plans with ever larger c_g, where no policy seems safe


@jit_part
def copy(policy, out):
    """Copy a policy (H, S, A)."""
    H, S, A = policy.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                out[h, s, a] = policy[h, s, a]


@jit
def prepare(memory, settings, work, one, several, thresholds):
    """Plan for the coming episode, if it is time to or a threshold moved."""
    clock, plan = memory.clock, memory.plan
    m = clock.episode[0]
    due = m >= clock.next_plan[0]
    for k in range(thresholds.size):
        due |= m > 0 and abs(thresholds[k] - plan.thresholds[k]) > settings.moved
    clock.replanned[0] = due
    if not due:
        return
    for k in range(thresholds.size):
        plan.thresholds[k] = thresholds[k]
        work.tables.thresholds[0, k] = thresholds[k]
    average(memory, work)
    bonus = settings.utility_bonus
    for _ in range(ATTEMPTS):
        write_model(plan, settings.reward_bonus, bonus, work)
        solve(work, one, several, plan)
        if plan.feasible[0]:
            break
        bonus *= BOLDER
    copy_multipliers(work.mu, plan.mu)
    copy(work.policies[0], plan.policy)
    evaluate(plan, work)
    wait = min(max((m - clock.last_alarm[0]) / settings.pace, 1.0), settings.every)
    clock.next_plan[0] = m + np.int64(wait)


@jit_part
def average(memory, work):
    """Write mean and covariance of the heaviest experts, for every step."""
    choose(memory.move_experts.weight, work.chosen)
    average_of(memory.moves, memory.move_experts.v, True, work.chosen, work.move, work.move_cov)
    for c in range(work.signal.shape[0]):
        filters, experts = filters_of(memory, c), experts_of(memory, c)
        choose(experts.weight, work.chosen)
        average_of(filters, experts.v, False, work.chosen, work.signal[c], work.signal_cov[c])


@jit_part
def average_of(filters, v, absolute, chosen, mean, cov):
    """Mean (H, d) and covariance (H, d, d or 1) of a mixture of experts.

    `absolute` says that covariances are not in units of v.
    """
    H, d, width = cov.shape
    for h in range(H):
        for i in range(d):
            mean[h, i] = 0.0
            for n in range(CHOSEN):
                if chosen[n, 2] > 0.0:
                    k, pool = int(chosen[n, 0]), int(chosen[n, 1])
                    mean[h, i] += chosen[n, 2] * filters.mean[k, H if pool else h, i]
        for i in range(d):
            for j in range(width):
                cov[h, i, j] = 0.0
                for n in range(CHOSEN):
                    if chosen[n, 2] > 0.0:
                        k, pool = int(chosen[n, 0]), int(chosen[n, 1])
                        slot = H if pool else h
                        other = j if width > 1 else i
                        apart = filters.mean[k, slot, i] - mean[h, i]
                        apart *= filters.mean[k, slot, other] - mean[h, other]
                        own = filters.cov[k, slot, i, j] * (1.0 if absolute else v[k, pool])
                        cov[h, i, j] += chosen[n, 2] * (own + apart)


@jit_part
def write_model(plan, reward_bonus, utility_bonus, work):
    """Write the estimated model, and signals with bonuses c_r and c_g."""
    basis = work.basis
    C, H, S, A = work.means.shape
    p, offsets = work.tables.probabilities[0], work.tables.offsets
    for h in range(H):
        for s in range(S):
            for a in range(A):
                pair = s * A + a
                hot = read_phi(basis, h, pair, work.phi)
                for c in range(C):
                    mean = expected(work.signal[c, h], work.phi, hot)
                    work.means[c, h, s, a] = min(max(mean, 0.0), 1.0)
                    u = spread(work.signal_cov[c, h], work.phi, hot, work.moved)
                    work.spreads[c] = min(u, SPREAD)
                if h + 1 < H:
                    row = row_at(basis, h, pair, S * A)
                    write_row(
                        basis,
                        row,
                        work.move[h],
                        plan.values[:, h + 1],
                        p,
                        offsets[(h * S + s) * A + a],
                        work.ahead,
                    )
                add_bonuses(reward_bonus, utility_bonus, plan.mu, h, s, a, work)


@jit_part
def write_row(basis, row, z, values, p, first, ahead):
    """Write P̂ of a row from entry `first` on, and ψ^V for values (1+K, S)."""
    C, f = ahead.shape
    low, high = basis.offsets[row], basis.offsets[row + 1]
    for c in range(C):
        for i in range(f):
            ahead[c, i] = 0.0
    total = 0.0
    for e in range(low, high):
        p[first + e - low] = max(raw(basis, e, z), 0.0)
        total += p[first + e - low]
        for c in range(C):
            V = values[c, basis.states[e]]
            for i in range(f):
                ahead[c, i] += V * basis.x[e, i]
    for e in range(first, first + high - low):
        p[e] = p[e] / total if total > 0.0 else 1.0 / (high - low)


@jit_part
def add_bonuses(reward_bonus, utility_bonus, mu, h, s, a, work):
    """Write r̃ and g̃ of (h, s, a); uses up `work.ahead`."""
    C, H = work.means.shape[:2]
    whole = work.spreads[0]
    for c in range(1, C):
        u = work.spreads[c]
        whole += mu[c - 1] * mu[c - 1] * u
        if h + 1 < H:
            u += square(work.move_cov[h], work.ahead[c])
            for i in range(work.rest.size):
                work.ahead[0, i] += mu[c - 1] * work.ahead[c, i]
        g = work.means[c, h, s, a] + utility_bonus * np.sqrt(u)
        work.bonused[c, h, s, a] = min(g, 1.0)
    if h + 1 < H:
        whole += square(work.move_cov[h], work.ahead[0])
    work.bonused[0, h, s, a] = work.means[0, h, s, a] + reward_bonus * np.sqrt(whole)


@jit_inline
def square(cov, x):
    """xᵀ cov x, at least 0."""
    total = 0.0
    for i in range(x.size):
        for j in range(x.size):
            total += x[i] * cov[i, j] * x[j]
    return max(total, 0.0)


@jit_part
def solve(work, one, several, plan):
    """Write the optimal policy and its multipliers; where no policy is safe, `MOST_MU` for all.

    The search starts from the multipliers of the last plan.
    """
    mu = work.mu
    copy_multipliers(plan.mu, mu)
    if one is not None:
        exact.solve_episodes(
            work.tables,
            work.rewards,
            work.episodes,
            mu,
            work.numbers,
            work.changes,
            work.policies,
            work.ends,
            one,
        )
        plan.feasible[0] = work.numbers[0, 0] == exact.OPTIMAL
        mu[0] = min(work.numbers[0, 1], MOST_MU) if plan.feasible[0] else MOST_MU
    if several is not None:  # not "else": Numba drops a branch only if its own argument is None
        columns.solve_episodes(
            work.tables,
            work.rewards,
            work.episodes,
            mu,
            work.answers,
            work.changes,
            work.policies,
            work.ends,
            several,
        )
        plan.feasible[0] = work.answers.status[0] == exact.OPTIMAL
        for k in range(mu.size):
            found = work.answers.multipliers[0, k]
            mu[k] = min(found, MOST_MU) if plan.feasible[0] else MOST_MU


@jit_inline
def copy_multipliers(mu, out):
    """Copy multipliers (K,)."""
    for k in range(mu.size):
        out[k] = mu[k]


@jit_part
def evaluate(plan, work):
    """Write the values of the plan's policy in the model without bonuses."""
    C, H, S, A = work.means.shape
    p, offsets, states = work.tables.probabilities[0], work.tables.offsets, work.tables.states
    for h in range(H - 1, -1, -1):
        for s in range(S):
            for c in range(C):
                plan.values[c, h, s] = 0.0
            for a in range(A):
                share = plan.policy[h, s, a]
                if share > 0.0:
                    row = (h * S + s) * A + a
                    for c in range(C):
                        q = work.means[c, h, s, a]
                        for e in range(offsets[row], offsets[row + 1]):
                            q += p[e] * plan.values[c, h + 1, states[e]]
                        plan.values[c, h, s] += share * q
    for c in range(C):
        plan.start[c] = 0.0
        for s in range(S):
            plan.start[c] += work.initial[s] * plan.values[c, 0, s]
