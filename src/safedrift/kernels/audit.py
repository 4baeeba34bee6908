"""The lemmas of the paper, checked episode by episode on what a learner did.

An audit reads a `Transcript` (policies, estimates, multipliers, trajectories) and the world; it
knows nothing of how the learner computes them. It keeps its own `Ledger` of visits, sums and
log-policies, so that each line of the algorithm can be done again from its definition, and writes
for each episode the smallest slack of each inequality, the largest residual of each identity and
the terms from which the lemmas on whole runs are put together (`theory.certificates`).

Only the chunk in work is in memory. One pass over the successors of every pair serves all channels:
with ι_c = c + P V_c^m - Q_c^m the model prediction error of channel c (0 the reward, k the k-th
utility), Q^π and V^π the exact values of the policy played, and V* those of the optimal one.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.audit_estimates import (
    clear,
    clear_regressions,
    count,
    estimate_by_counts,
    estimate_by_regression,
    potential_of_counts,
    regress,
)
from safedrift.kernels.audit_memory import (
    BLOCK_STEP,
    COLUMNS,
    DESCENT,
    DUAL,
    ESTIMATE,
    EVALUATION,
    EXPANSION,
    IOTA_OPTIMAL,
    IOTA_PATH,
    MARTINGALE,
    OPTIMAL,
    OWN_STEP,
    PERFORMANCE,
    POLICY,
    PREDICTION,
    PRIMAL,
    RESIDUALS,
    TERMS,
    TOLERANCE,
    VALUE,
    VISITATION,
    note,
)
from safedrift.kernels.exact import mix_signal, transitions_of
from safedrift.kernels.memory import OBSERVED, PLAIN
from safedrift.kernels.types import jit, jit_inline, jit_part, jit_sums

# ---------------------------------------------------------------- entry points


@jit
def audit_tables(world, rewards, episodes, first, settings, script, truth, ledger, work, out):
    """Audit B episodes of Algorithm 1 with Algorithm 3.

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (B,) where each episode is in `world`
    first : number of the first episode
    """
    for i in range(episodes.size):
        m = first + i
        p = transitions_of(world, episodes[i], work)
        open_episode(
            world, p, rewards, episodes[i], i, m, settings, script, truth, ledger, work, out
        )
        if m % settings.W == 0:
            clear(ledger)
        estimate_by_counts(m, world, settings, truth, ledger, work)
        examine(world, p, i, m, settings, script, truth, ledger, work, out)
        potential_of_counts(i, settings, script, ledger, out)
        count(i, world, script, ledger)
        close_episode(world, episodes[i], i, settings, script, ledger, work, out)


@jit
def audit_linear(
    world, rewards, features, episodes, first, settings, script, truth, ledger, work, out
):
    """Audit B episodes of Algorithm 1 with Algorithm 2."""
    for i in range(episodes.size):
        m = first + i
        p = transitions_of(world, episodes[i], work)
        open_episode(
            world, p, rewards, episodes[i], i, m, settings, script, truth, ledger, work, out
        )
        if m % settings.W == 0:
            clear(ledger)
            clear_regressions(settings.lam, ledger)
        for h in range(script.states.shape[1]):
            estimate_by_regression(h, i, m, features, settings, script, truth, ledger, work, out)
        examine(world, p, i, m, settings, script, truth, ledger, work, out)
        if features.one_hot:
            count(i, world, script, ledger)
        regress(i, world, p, features, script, ledger, work)
        close_episode(world, episodes[i], i, settings, script, ledger, work, out)


# ---------------------------------------------------------------- around an episode


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
    for k in range(K):  # Alg. 1, line 12
        b = ledger.thresholds[k] if settings.lagged else world.thresholds[e, k]
        step = settings.eta * (b - ledger.fed[k] - settings.xi * ledger.mu[k])
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
            top = logit[h, s, 0]
            for a in range(1, A):
                top = max(top, logit[h, s, a])
            total = 0.0
            for a in range(A):
                weight[a] = np.exp(logit[h, s, a] - top)
                total += weight[a]
            for a in range(A):
                wanted = weight[a] / total
                off = abs(pi[h, s, a] - wanted)
                if not off <= out.worst[i, POLICY]:
                    note(i, POLICY, off, (h * S + s) * A + a, out)


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
        if h > 0:  # first states never move
            note(i, VISITATION, printed - largest, (h * S + at) * A, out)
            note(i, VISITATION + 1, repaired - total, (h * S + at) * A, out)
        for s in range(S):
            off = 0.0
            for a in range(A):
                off += abs(star[h, s, a] - ledger.star[h, s, a])
            out.star_change[i, h] = max(out.star_change[i, h], off)
        printed += truth.change[i, 0, h] + out.star_change[i, h]
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


@jit_part
def close_episode(world, e, i, settings, script, ledger, work, out):
    """What the next episode's lines start from."""
    _, H, S, A = script.policies.shape
    K = script.mu.shape[1]
    q = script.q[i]
    for h in range(H):
        for s in range(S):
            for a in range(A):
                x = q[0, h, s, a]
                for k in range(K):
                    x += script.mu[i, k] * q[1 + k, h, s, a]
                ledger.logit[h, s, a] += settings.alpha * x
            low = ledger.logit[h, s, 0]
            for a in range(A):
                low = max(low, ledger.logit[h, s, a])
            for a in range(A):
                ledger.logit[h, s, a] -= low
    for k in range(K):
        fed = 0.0
        if settings.feed == OBSERVED:
            for h in range(H):
                fed += script.values[i, 1 + k, h]
        else:
            c = 1 + K + k if settings.feed == PLAIN else 1 + k
            for j in range(world.initial.size):
                fed += world.initial[j] * work.V[c, 0, world.initial_states[j]]
        ledger.fed[k] = fed
        out.fed[i, k] = fed
        ledger.mu[k] = script.mu[i, k]
        ledger.thresholds[k] = world.thresholds[e, k]


# ---------------------------------------------------------------- what the lemmas relate


@jit_part
def examine(world, p, i, m, settings, script, truth, ledger, work, out):
    """Prediction errors, exact values and comparator sums of episode i, backwards in h."""
    _, H, S, A = script.policies.shape
    K = script.mu.shape[1]
    pi, q = script.policies[i], script.q[i]
    price = 1.0
    for k in range(K):
        price += script.mu[i, k]
    for t in range(TERMS):
        for c in range(1 + K):
            out.terms[i, t, c] = 0.0
    primal, sharp = 0.0, 0.0
    size = settings.alpha * price * price
    for h in range(H - 1, -1, -1):
        if h + 1 < H:
            expect_step(h, world, p, work)
        for c in range(script.q.shape[1]):
            lv = settings.LV[m // settings.W, c - 1, h] if 1 <= c <= K else 0.0
            if c > K:
                check_estimates(i, c, h, lv, script, work, out)
            else:
                examine_step(world, p, i, m, c, h, lv, settings, script, truth, ledger, work, out)
        gap, at = 0.0, 0
        for s in range(S):
            here = descent_gap(settings.alpha, script.mu[i], pi[h, s], q, h, s, work.weight)
            if here > gap:
                gap, at = here, s
        most = float(H - h)
        note(i, DESCENT, size * H * H / 2.0 - gap, (h * S + at) * A, out)
        note(i, DESCENT + 1, size * most * most / 8.0 - gap, (h * S + at) * A, out)
        primal += gap
        sharp += size * most * most / 8.0
    note(i, PRIMAL, size * H * H / 2.0 - primal, -1, out)
    note(i, PRIMAL + 1, sharp - primal, -1, out)
    close_identities(world, i, script, work, out)


@jit_part
def check_estimates(i, c, h, lv, script, work, out):
    """Alg. 2, line 11, or Alg. 3, line 7: Q from the auditor's own estimates.

    `examine_step` does the same where there is more to look at.
    """
    _, H, S, A = work.mean.shape
    most = float(H - h)
    q, mean, ahead, bonus = script.q[i, c, h], work.mean[c, h], work.ahead[c, h], work.bonus[c, h]
    worst, at = -1.0, 0
    for s in range(S):
        for a in range(A):
            wanted = max(min(mean[s, a] + ahead[s, a] + bonus[s, a] + lv, most), 0.0)
            off = abs(wanted - q[s, a])
            if not off <= worst:
                worst, at = off, (h * S + s) * A + a
    note(i, EVALUATION, worst / most, at, out)


@jit_part
def examine_step(world, p, i, m, c, h, lv, settings, script, truth, ledger, work, out):
    """One channel at one step: ι, exact values, and the slack of every bound on ι."""
    _, H, S, A = script.policies.shape
    block = m // settings.W
    pi, q = script.policies[i, h], script.q[i, c, h]
    star = truth.policies[truth.place[i], h]
    signals = work.signal[c, h]
    offsets, states = world.offsets, world.states
    V_star, expected, lane = work.V_star[c, (h + 1) % 2], work.expected[c // 2], c % 2 * 2
    values, bests = work.V_pi[c, h], work.V_star[c, h % 2]
    terms, slack = out.terms[i], work.slack
    bonus, bonus_P, bonus_S = work.bonus[c, h], work.bonus_P[c, h], work.bonus_S[c, h]
    mean, ahead = work.mean[c, h], work.ahead[c, h]
    covered, drift, drift_P = work.covered[c, h], work.drift[c, h], work.drift_P[c, h]
    printed, printed_P = truth.printed[block, c, h], truth.printed_P[block, h]
    s_now, a_now = script.states[i, h], script.actions[i, h]
    whole = ledger.times.size > 0  # Algorithm 3 has one bonus for both errors
    most, worst, worst_at = float(H - h), -1.0, 0
    for s in range(S):
        value, best, inner, moved = 0.0, 0.0, 0.0, 0.0
        reached = work.reach[h, s] > 0.0  # elsewhere V* is never asked for
        for a in range(A):
            row = (h * S + s) * A + a
            wanted = max(min(mean[s, a] + ahead[s, a] + bonus[s, a] + lv, most), 0.0)
            if not abs(wanted - q[s, a]) <= worst:
                worst, worst_at = abs(wanted - q[s, a]), row
            Pm, P_pi, P_star = 0.0, 0.0, 0.0
            if h + 1 < H:
                Pm, P_pi = expected[s, a, lane], expected[s, a, lane + 1]
                if star[s, a] > 0.0 and reached:
                    for e in range(offsets[row], offsets[row + 1]):
                        P_star += p[e] * V_star[states[e]]
            signal = signals[s, a]
            iota = signal + Pm - q[s, a]
            value += pi[s, a] * (signal + P_pi)
            best += star[s, a] * (signal + P_star)
            inner += (star[s, a] - pi[s, a]) * q[s, a]
            moved += star[s, a] * iota
            if s == s_now and a == a_now:
                terms[IOTA_PATH, c] += iota
                # D_1 + D_2 of the martingale, but for the values at the states
                terms[MARTINGALE, c] -= (q[s, a] - signal - P_pi) - (Pm - P_pi)
            # The lemmas on ι and on bonuses, as printed,
            b, total = bonus[s, a], printed + printed_P
            local = c >= 1 and truth.local
            upper = 0.0 if local else total
            lower = -2.0 * b - (2.0 * total if local else total)
            off_P, off = abs(ahead[s, a] - Pm), abs(mean[s, a] - signal)
            j = s * A + a
            slack[0, j] = min(upper - iota, iota - lower)
            slack[2, j] = upper - iota
            slack[4, j] = bonus_P[s, a] + printed_P - off_P
            slack[6, j] = bonus_S[s, a] + printed - off
            # and repaired.
            total = drift_P[s, a] + drift[s, a]
            upper = max(total - covered[s, a] - lv, 0.0)
            lower = -2.0 * b - total - lv
            slack[1, j] = min(upper - iota, iota - lower)
            slack[3, j] = upper - iota
            slack[5, j] = (b if whole else bonus_P[s, a]) + drift_P[s, a] - off_P
            slack[7, j] = (b if whole else bonus_S[s, a]) + drift[s, a] - off
        values[s] = value
        bests[s] = best
        terms[OWN_STEP, c] += work.reach[h, s] * inner
        terms[BLOCK_STEP, c] += ledger.reach[1, h, s] * inner
        terms[IOTA_OPTIMAL, c] += work.reach[h, s] * moved
    note(i, EVALUATION, worst / most, worst_at, out)
    for j in range(8):
        if j in (2, 3) and c == 0:  # optimism is asked of the utilities only
            continue
        if j in (4, 5) and h + 1 == H:  # there is nothing to estimate after the last step
            continue
        least, broken = smallest(slack[j])
        column = PREDICTION + j
        out.broken[i, column] += broken
        if least < out.worst[i, column]:
            out.worst[i, column] = least
            if least < ledger.least[column]:  # only then is its place ever asked for
                ledger.least[column] = least
                at = 0
                while at + 1 < slack.shape[1] and slack[j, at] > least:
                    at += 1
                out.where[i, column] = h * S * A + at


@jit_sums
def smallest(values):
    """The smallest of some numbers, and how many are failures."""
    least, broken = np.inf, 0
    for j in range(values.size):
        least = min(least, values[j])
        broken += values[j] < TOLERANCE
    return least, broken


@jit_part
def expect_step(h, world, p, work):
    """expected ← P_h of V^m_c (function 2c) and V^π_c (function 2c + 1), all channels."""
    S = work.reach.shape[1]
    for c in range(work.V_pi.shape[0]):
        for s in range(S):
            work.stack[c // 2, s, c % 2 * 2] = work.V[c, h + 1, s]
            work.stack[c // 2, s, c % 2 * 2 + 1] = work.V_pi[c, h + 1, s]
    for g in range((work.V_pi.shape[0] + 1) // 2):
        expect(h, world, p, work.stack[g], work.expected[g])


@jit_sums
def expect(h, world, p, stack, out):
    """P_h applied to four functions of the next state at once."""
    S, A, _ = out.shape
    offsets, states = world.offsets, world.states
    row = h * S * A
    for s in range(S):
        for a in range(A):
            x0, x1, x2, x3 = 0.0, 0.0, 0.0, 0.0
            for e in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
                x0 += p[e] * stack[states[e], 0]
                x1 += p[e] * stack[states[e], 1]
                x2 += p[e] * stack[states[e], 2]
                x3 += p[e] * stack[states[e], 3]
            out[s, a, 0], out[s, a, 1], out[s, a, 2], out[s, a, 3] = x0, x1, x2, x3
            row += 1


@jit_part
def descent_gap(alpha, mu, pi, q, h, s, weight):
    """(1/α) log E_π[exp(α Q)] - E_π[Q] with Q = Q_r + μ·Q_g: what one mirror step may lose.

    Whatever the comparator π*, it is ⟨Q, π* - π⟩ - (D(π*|π) - D(π*|π'))/α.
    """
    A = pi.size
    top, mean = -np.inf, 0.0
    for a in range(A):
        x = q[0, h, s, a]
        for k in range(mu.size):
            x += mu[k] * q[1 + k, h, s, a]
        weight[a] = x
        mean += pi[a] * x
        if pi[a] > 0.0:
            top = max(top, x)
    if alpha == 0.0 or top - mean == 0.0:
        return 0.0
    total = 0.0  # E[exp(α(Q - top))] - 1, without cancellation
    for a in range(A):
        if pi[a] > 0.0:
            total += pi[a] * expm1(alpha * (weight[a] - top))
    return np.log1p(total) / alpha + (top - mean)


@jit_inline
def expm1(x):
    """exp(x) - 1; a short series where that would lose digits."""
    if x > -0.01:
        return x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x / 120.0))))
    return np.exp(x) - 1.0


@jit_part
def close_identities(world, i, script, work, out):
    """Performance difference, and value expansion with its martingale, at the start.

    The first state is drawn too: its martingale difference is the first.
    """
    terms = out.terms[i]
    H = script.states.shape[1]
    x1 = script.states[i, 0]
    for c in range(terms.shape[1]):
        played, best = 0.0, 0.0
        for j in range(world.initial.size):
            s = world.initial_states[j]
            played += world.initial[j] * work.V_pi[c, 0, s]
            best += world.initial[j] * work.V_star[c, 0, s]
        estimate = script.v_start[i, c]
        terms[VALUE, c], terms[OPTIMAL, c], terms[ESTIMATE, c] = played, best, estimate
        # D_0 = (V^m - V^π)(initial) - (V^m - V^π)(x_1), then per step
        # D_1 = (V^m - V^π)(x_h) - (Q^m - Q^π)(x_h, a_h), D_2 = P(V^m - V^π) - (V^m - V^π)(x_{h+1})
        start = 0.0
        for j in range(world.initial.size):
            s = world.initial_states[j]
            start += world.initial[j] * (work.V[c, 0, s] - work.V_pi[c, 0, s])
        ahead = start - (work.V[c, 0, x1] - work.V_pi[c, 0, x1])
        for h in range(H):
            s = script.states[i, h]
            ahead += work.V[c, h, s] - work.V_pi[c, h, s]
            if h + 1 < H:
                s = script.states[i, h + 1]
                ahead -= work.V[c, h + 1, s] - work.V_pi[c, h + 1, s]
        terms[MARTINGALE, c] += ahead
        off = (best - estimate) - (terms[OWN_STEP, c] + terms[IOTA_OPTIMAL, c])
        note(i, PERFORMANCE, abs(off) / H, -1, out)
        off = (estimate - played) - (terms[MARTINGALE, c] - terms[IOTA_PATH, c])
        note(i, EXPANSION, abs(off) / H, -1, out)
