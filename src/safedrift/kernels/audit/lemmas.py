"""The lemmas of the paper, checked episode by episode on what a learner did.

An audit reads a `Transcript` (policies, estimates, multipliers, trajectories) and the world; it
knows nothing of how the learner computes them. It keeps its own `Ledger` of visits, sums and
log-policies, so that each line of the algorithm can be done again from its definition, and writes
for each episode the smallest slack of each inequality, the largest residual of each identity and
the terms from which the lemmas on whole runs are put together (`theory.certificate_rules`).

One episode, top to bottom, is in `audit_tables`. What is estimated is in `estimates`, what is
made of it at a step in `steps`, the arrays in `memory`, and the tests of what was drawn in `draws`.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.audit.draws import check_draws
from safedrift.kernels.audit.estimates import (
    clear,
    clear_regressions,
    count,
    estimate_by_counts,
    estimate_by_regression,
    potential_of_counts,
    regress,
)
from safedrift.kernels.audit.memory import (
    COLUMNS,
    DESCENT,
    DUAL,
    LOG_ROUNDING,
    POLICY,
    PRIMAL,
    RESIDUALS,
    SMALLEST,
    TERMS,
    TOLERANCE,
    VISITATION,
    note,
    note_within,
)
from safedrift.kernels.audit.steps import close_identities, examine_step
from safedrift.kernels.exact import mix_signal, transitions_of
from safedrift.kernels.tabular.memory import OBSERVED, PLAIN
from safedrift.kernels.types import jit, jit_inline, jit_part

# ---------------------------------------------------------------- entry points


@jit
def audit_tables(world, rewards, episodes, first, settings, script, truth, ledger, work, bets, out):
    """Audit B episodes of Algorithm 1 with Algorithm 3.

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (B,) where each episode is in `world`
    first : number of the first episode
    """
    for i in range(episodes.size):
        e, m = episodes[i], first + i
        block = m // settings.W
        p = transitions_of(world, e, work)
        open_episode(world, p, rewards, e, i, m, settings, script, truth, ledger, work, out)
        check_draws(world, p, i, m, truth.fresh[i], script, ledger, work, bets, out)
        if m % settings.W == 0:
            clear(ledger)
        for h in range(script.states.shape[1] - 1, -1, -1):
            estimate_by_counts(h, m, world, settings, truth, ledger, work)
            examine_step(world, p, i, block, h, settings.LV, script, truth, ledger, work, out)
        close_identities(world, i, script, work, out)
        potential_of_counts(i, settings, script, ledger, out)
        count(i, world, script, ledger)
        keep_step(i, settings, script, ledger)
        close_episode(world, e, i, settings, script, ledger, work, out)


@jit
def audit_linear(
    world, rewards, features, episodes, first, settings, script, truth, ledger, work, bets, out
):
    """Audit B episodes of Algorithm 1 with Algorithm 2: the same, with other estimates."""
    for i in range(episodes.size):
        e, m = episodes[i], first + i
        block = m // settings.W
        p = transitions_of(world, e, work)
        open_episode(world, p, rewards, e, i, m, settings, script, truth, ledger, work, out)
        check_draws(world, p, i, m, truth.fresh[i], script, ledger, work, bets, out)
        if m % settings.W == 0:
            clear(ledger)
            clear_regressions(settings.lam, ledger)
        for h in range(script.states.shape[1] - 1, -1, -1):
            estimate_by_regression(h, i, m, features, settings, script, truth, ledger, work, out)
            examine_step(world, p, i, block, h, settings.LV, script, truth, ledger, work, out)
        close_identities(world, i, script, work, out)
        if features.one_hot:
            count(i, world, script, ledger)
        regress(i, world, p, features, script, ledger, work)
        keep_step(i, settings, script, ledger)
        close_episode(world, e, i, settings, script, ledger, work, out)


# ---------------------------------------------------------------- the lines of Algorithm 1


@jit_part
def open_episode(world, p, rewards, e, i, m, settings, script, truth, ledger, work, out):
    """The world of the episode, V^m, the lines of Algorithm 1, the optimal policy's occupancy."""
    _, H, S, A = script.policies.shape
    K = script.mu.shape[1]
    C = script.q.shape[1]
    for j in range(COLUMNS):
        out.worst[i, j] = 0.0 if j < RESIDUALS else np.inf
        out.where[i, j] = -1
        out.broken[i, j] = 0
    for t in range(TERMS):
        for c in range(1 + K):
            out.terms[i, t, c] = 0.0
    if truth.fresh[i]:
        mix_signal(rewards, world.reward_path, e, 0, work.signal[0])
        for k in range(K):
            mix_signal(world.utilities, world.utility_path, e, k, work.signal[1 + k])
    pi, q = script.policies[i], script.q[i]
    for c in range(C):
        for h in range(H):
            for s in range(S):
                x = 0.0
                for a in range(A):
                    x += pi[h, s, a] * q[c, h, s, a]
                work.V[c, h, s] = x
    check_policy(i, m, settings, script, ledger, work.weight, out)
    if m % settings.L != 0:
        check_mirror_step(i, settings, script, ledger, out)
    for k in range(K):  # Alg. 1, line 12
        b = ledger.thresholds[k] if settings.lagged else world.thresholds[e, k]
        step = settings.eta * (b - ledger.dual_signal[k] - settings.xi * ledger.mu[k])
        wanted = min(max(ledger.mu[k] + step, 0.0), settings.chi)
        note(i, DUAL, abs(wanted - script.mu[i, k]) / max(1.0, wanted), -1, out)
    star = truth.policies[truth.place[i]]
    if truth.fresh[i]:
        occupy(world, p, star, work.reach)
    compare_visits(i, m, truth, star, ledger, work, out)
    if m % settings.L == 0:
        for h in range(H):
            for s in range(S):
                ledger.reach[1, h, s] = work.reach[h, s]


@jit_part
def check_policy(i, m, settings, script, ledger, weight, out):
    """Alg. 1, lines 4 to 8: π_m ∝ exp(Σ α (Q_r + μ·Q_g)) over the L-block."""
    _, H, S, A = script.policies.shape
    pi, logit = script.policies[i], ledger.logit
    if m % settings.L == 0:
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    logit[h, s, a] = 0.0
    for h in range(H):
        for s in range(S):
            total = 0.0
            for a in range(A):  # the largest is 0
                weight[a] = np.exp(logit[h, s, a])
                total += weight[a]
            for a in range(A):
                wanted = weight[a] / total
                off = abs(pi[h, s, a] - wanted)
                if not off <= out.worst[i, POLICY]:
                    note(i, POLICY, off, (h * S + s) * A + a, out)


@jit_part
def check_mirror_step(i, settings, script, ledger, out):
    """What the mirror step from the policy before to policy i loses (E3), both as recorded."""
    _, H, S, A = script.policies.shape
    alpha, price = settings.alpha, ledger.price[0]
    size = alpha * price * price
    allowed = TOLERANCE - (LOG_ROUNDING / alpha if alpha > 0.0 else 0.0)
    lost, sharp = 0.0, 0.0
    for h in range(H):
        gap, at = 0.0, 0
        for s in range(S):
            new = script.policies[i, h, s]
            here = descent_gap(alpha, ledger.policy[h, s], new, ledger.step[h, s])
            if not here <= gap:
                gap, at = here, s
        most = float(H - h)
        place = (h * S + at) * A
        note_within(i, DESCENT, size * H * H / 2.0 - gap, allowed, place, out)
        note_within(i, DESCENT + 1, size * most * most / 8.0 - gap, allowed, place, out)
        lost += gap
        sharp += size * most * most / 8.0
    note_within(i, PRIMAL, size * H * H / 2.0 - lost, H * allowed, -1, out)
    note_within(i, PRIMAL + 1, sharp - lost, H * allowed, -1, out)


@jit_inline
def descent_gap(alpha, pi, new, Q):
    """Largest ⟨Q, π* - π⟩ - (D(π*|π) - D(π*|π'))/α over comparators π*, with Q = Q_r + μ·Q_g.

    It is linear in π*, so the largest is at one action a: Q(a) - log(π'(a)/π(a))/α - ⟨Q, π⟩. After
    an exact mirror step it is the same at every action, (1/α) log E_π[exp(α Q)] - E_π[Q].
    """
    if alpha == 0.0:
        return 0.0
    mean, top = 0.0, -np.inf
    for a in range(pi.size):
        mean += pi[a] * Q[a]
        if pi[a] >= SMALLEST:
            top = max(top, Q[a] - log_ratio(max(new[a], SMALLEST), pi[a]) / alpha)
    return top - mean


@jit_inline
def log_ratio(x, y):
    """log(x/y) for positive x and y; a short series where they are close."""
    off = (x - y) / y
    if -0.003 < off < 0.003:
        return off * (1 - off * (1 / 2 - off * (1 / 3 - off * (1 / 4 - off * (1 / 5 - off / 6)))))
    return np.log(x / y)


@jit_part
def keep_step(i, settings, script, ledger):
    """Remember policy i, and take the mirror step after it: the log-policies it leads to."""
    _, H, S, A = script.policies.shape
    mu, q, logit, step = script.mu[i], script.q[i], ledger.logit, ledger.step
    ledger.price[0] = 1.0
    for k in range(mu.size):
        ledger.price[0] += mu[k]
    for h in range(H):
        for s in range(S):
            top = -np.inf
            for a in range(A):
                ledger.policy[h, s, a] = script.policies[i, h, s, a]
                x = q[0, h, s, a]
                for k in range(mu.size):
                    x += mu[k] * q[1 + k, h, s, a]
                step[h, s, a] = x
                logit[h, s, a] += settings.alpha * x
                top = max(top, logit[h, s, a])
            for a in range(A):
                logit[h, s, a] -= top


@jit_part
def close_episode(world, e, i, settings, script, ledger, work, out):
    """What the next dual step starts from."""
    H, K = script.states.shape[1], script.mu.shape[1]
    for k in range(K):
        signal = 0.0
        if settings.dual_signal == OBSERVED:
            for h in range(H):
                signal += script.values[i, 1 + k, h]
        else:
            c = 1 + K + k if settings.dual_signal == PLAIN else 1 + k
            for j in range(world.initial.size):
                signal += world.initial[j] * work.V[c, 0, world.initial_states[j]]
        ledger.dual_signal[k] = signal
        out.dual_signal[i, k] = signal
        ledger.mu[k] = script.mu[i, k]
        ledger.thresholds[k] = world.thresholds[e, k]


# ---------------------------------------------------------------- where the optimal policy goes


@jit_part
def occupy(world, p, policy, reach):
    """State occupancy (H, S) of a policy (H, S, A)."""
    H, S, A = policy.shape
    for h in range(H):
        for s in range(S):
            reach[h, s] = 0.0
    for j in range(world.initial.size):
        reach[0, world.initial_states[j]] = world.initial[j]
    for h in range(H - 1):
        for s in range(S):
            for a in range(A):
                share = reach[h, s] * policy[h, s, a]
                if share > 0.0:
                    row = (h * S + s) * A + a
                    for e in range(world.offsets[row], world.offsets[row + 1]):
                        reach[h + 1, world.states[e]] += share * p[e]


@jit_part
def compare_visits(i, m, truth, star, ledger, work, out):
    """Smoothness of the visitation measure between episode m-1 and m (E13)."""
    H, S, A = star.shape
    for h in range(H):
        out.star_change[i, h] = 0.0
    if not truth.fresh[i] or m == 0:
        if m == 0:
            keep_star(star, ledger, work)
        return
    printed, repaired = 0.0, 0.0
    for h in range(H):
        largest, total, at = 0.0, 0.0, 0
        for s in range(S):
            off = abs(work.reach[h, s] - ledger.reach[0, h, s])
            total += off
            if off > largest:
                largest, at = off, s
        for s in range(S):
            off = 0.0
            for a in range(A):
                off += abs(star[h, s, a] - ledger.star[h, s, a])
            out.star_change[i, h] = max(out.star_change[i, h], off)
        printed += truth.change[i, 0, h] + out.star_change[i, h]  # the paper sums j ≤ h
        if h > 0:  # first states never move
            note(i, VISITATION, printed - largest, (h * S + at) * A, out)
            note(i, VISITATION + 1, repaired - total, (h * S + at) * A, out)
        repaired += truth.change[i, 1, h] + out.star_change[i, h]
    keep_star(star, ledger, work)


@jit_part
def keep_star(star, ledger, work):
    """Remember optimal policy and occupancy for the next episode."""
    H, S, A = star.shape
    for h in range(H):
        for s in range(S):
            ledger.reach[0, h, s] = work.reach[h, s]
            for a in range(A):
                ledger.star[h, s, a] = star[h, s, a]
