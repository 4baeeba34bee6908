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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.exact import mix_signal, transitions_of
from safedrift.kernels.memory import BERNSTEIN_BONUS, OBSERVED, PLAIN
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_part, jit_sums

# Columns of `Findings.worst`. Identities hold the largest residual, inequalities the smallest
# slack; (printed, repaired) pairs stand side by side.
POLICY, DUAL, EVALUATION, PERFORMANCE, EXPANSION = 0, 1, 2, 3, 4
DESCENT, PRIMAL, VISITATION, PREDICTION, OPTIMISM, TRANSITIONS, SIGNALS, ELLIPTICAL = (
    5, 7, 9, 11, 13, 15, 17, 19,
)  # fmt: skip
PROJECTION, NORMALISED = 21, 22
COLUMNS = 23
RESIDUALS = 5  # so many columns are identities
TOLERANCE = -1e-9  # a slack below this is a failure

# Columns of `Findings.terms`, each for reward and K utilities.
VALUE, OPTIMAL, ESTIMATE, IOTA_PATH, IOTA_OPTIMAL, MARTINGALE, BLOCK_STEP, OWN_STEP = range(8)
TERMS = 8


class Transcript(NamedTuple):
    """What a learner did in B consecutive episodes."""

    policies: FloatArray  # (B, H, S, A)
    q: FloatArray  # (B, C, H, S, A) reward, K utilities, K utilities without bonus if so fed
    v_start: FloatArray  # (B, C) V^m at the initial distribution
    mu: FloatArray  # (B, K) after the dual step
    states: NDArray[np.int64]  # (B, H)
    actions: NDArray[np.int64]  # (B, H)
    values: FloatArray  # (B, 1+K, H) observed


class Truth(NamedTuple):
    """Optimal policies and drift of the same B episodes."""

    place: NDArray[np.int64]  # (B,) which of the optimal policies is the episode's
    fresh: NDArray[np.bool_]  # (B,) whether the world differs from that of the episode before
    policies: FloatArray  # (n, H, S, A)
    change: FloatArray  # (B, 2, H) ‖ΔP_h‖: what the printed lemma multiplies, and l1
    # What the lemmas add for the drift inside a W-block, due to P and to the signal.
    printed_P: FloatArray  # (blocks, H)
    printed: FloatArray  # (blocks, 1+K, H)
    spread_P: FloatArray  # (blocks, H) largest |(P - P')V| between two episodes, V in [0, H-h]
    spread: FloatArray  # (blocks, 1+K, H) largest change of the signal


class Ledger(NamedTuple):
    """What an audit remembers from one episode to the next."""

    logit: FloatArray  # (H, S, A)
    visits: FloatArray  # (H, S, A)
    last: NDArray[np.int64]  # (H, S, A) the successor seen last
    kinds: NDArray[np.int64]  # (H, S, A) different successors seen: entries order[row + j]
    order: NDArray[np.int64]  # (entries,)
    times: FloatArray  # (entries,) visits of each successor, in the order of the world's lists
    gain: FloatArray  # (1+K, H, S, A)
    mu: FloatArray  # (K,)
    fed: FloatArray  # (K,)
    thresholds: FloatArray  # (K,)
    star: FloatArray  # (H, S, A) optimal policy of the episode before
    reach: FloatArray  # (2, H, S) its occupancy, and that of the first episode of the L-block
    least: FloatArray  # (COLUMNS,) smallest slack so far
    potential: FloatArray  # (4, 1+K, H) Σ‖φ‖², clipped sum, log det ratio, Σ φᵀΛ⁻¹φ
    # Regressions of Algorithm 2; empty with Algorithm 3.
    gram: FloatArray  # (C, H, d1, d1)
    moment: FloatArray  # (C, H, d1)
    noise: FloatArray  # (C, H, d1) Σ φ^τ (V^τ(x') - P^τ V^τ)
    gram_r: FloatArray  # (H, d2, d2)
    moment_r: FloatArray  # (1+K, H, d2)


class Work(NamedTuple):
    """Scratch of an audit."""

    p: FloatArray  # (entries,) or (0,)
    signal: FloatArray  # (1+K, H, S, A)
    V: FloatArray  # (C, H+1, S) V^m
    V_pi: FloatArray  # (1+K, H+1, S)
    V_star: FloatArray  # (1+K, 2, S)
    reach: FloatArray  # (H, S)
    mean: FloatArray  # (C, H, S, A) estimate of the signal
    ahead: FloatArray  # (C, H, S, A) estimate of P V
    bonus: FloatArray  # (C, H, S, A) all that is added but LV
    bonus_P: FloatArray  # (C, H, S, A) what of it is meant for the error of P V,
    bonus_S: FloatArray  # (C, H, S, A) and for that of the signal, as printed
    covered: FloatArray  # (C, H, S, A) the part of it that is meant for drift
    drift_P: FloatArray  # (C, H, S, A) what drift inside the window may add to the error of P V,
    drift: FloatArray  # (C, H, S, A) and to that of the signal
    stack: FloatArray  # (G, S, 4) functions of the next state, four side by side
    expected: FloatArray  # (G, S, A, 4) P of each of them
    slack: FloatArray  # (8, S*A) of the step in work
    weight: FloatArray  # (A,)
    four: FloatArray  # (2, 4)
    chol: FloatArray  # (d, d)
    chol_r: FloatArray  # (d, d)
    x: FloatArray  # (d,)
    y: FloatArray  # (d,)
    w: FloatArray  # (3, d)


class Findings(NamedTuple):
    """What an audit finds in B episodes."""

    worst: FloatArray  # (B, COLUMNS)
    where: NDArray[np.int64]  # (B, COLUMNS) (h*S + x)*A + a of the worst place, or -1
    broken: NDArray[np.int64]  # (B, COLUMNS) places where an inequality fails
    terms: FloatArray  # (B, TERMS, 1+K)
    fed: FloatArray  # (B, K) V_g^m as the dual is told
    star_change: FloatArray  # (B, H) max_x ‖π*_h - π*_h of the episode before‖₁


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
def note(i, column, value, place, out):
    """Keep the largest residual or smallest slack of episode i."""
    identity = column < RESIDUALS
    kept = out.worst[i, column]
    if (not value <= kept) if identity else (not value >= kept):  # a nan is the worst there is
        out.worst[i, column] = value
        out.where[i, column] = place
    if not identity and not value >= TOLERANCE:
        out.broken[i, column] += 1


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
                # A log-policy of size t is known to t times a rounding error.
                off = abs(pi[h, s, a] - wanted) / max(1.0, 1e-4 * abs(logit[h, s, a] - top))
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
            check_estimates(i, c, h, lv, script, work, out)
            if c <= K:
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
    """Alg. 2, line 11, or Alg. 3, line 7: Q from the auditor's own estimates."""
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
    for s in range(S):
        value, best, inner, moved = 0.0, 0.0, 0.0, 0.0
        for a in range(A):
            row = (h * S + s) * A + a
            Pm, P_pi, P_star = 0.0, 0.0, 0.0
            if h + 1 < H:
                Pm, P_pi = expected[s, a, lane], expected[s, a, lane + 1]
                if star[s, a] > 0.0:
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
            local = c >= 1 and lv > 0.0
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
                while slack[j, at] > least:
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


# ---------------------------------------------------------------- Algorithm 3 again


@jit_part
def clear(ledger):
    """Forget the data of the window."""
    _, H, S, A = ledger.gain.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                ledger.visits[h, s, a] = 0.0
                ledger.kinds[h, s, a] = 0
                for c in range(ledger.gain.shape[0]):
                    ledger.gain[c, h, s, a] = 0.0
        for t in range(4):
            for c in range(ledger.potential.shape[1]):
                ledger.potential[t, c, h] = 0.0
    for e in range(ledger.times.size):
        ledger.times[e] = 0.0


@jit_part
def estimate_by_counts(m, world, settings, truth, ledger, work):
    """Alg. 3, lines 3 to 5: r̂, P̂V and the bonus from the visits of the window."""
    C, H, S, A = work.mean.shape
    K = ledger.mu.size
    block = m // settings.W
    for h in range(H):
        if h + 1 < H:
            for c in range(C):
                for s in range(S):
                    work.stack[c // 4, s, c % 4] = work.V[c, h + 1, s]
        for g in range((C + 3) // 4):
            for s in range(S):
                for a in range(A):
                    n = ledger.visits[h, s, a]
                    share = 1.0 / (n + settings.lam)
                    fixed = fixed_bonus(h, n, share, settings)
                    seen = ledger.kinds[h, s, a] if h + 1 < H else 0
                    start = world.offsets[(h * S + s) * A + a]
                    four_sums(
                        ledger.order[start : start + seen], ledger.last[h, s, a], world.states,
                        ledger.times, work.stack[g], work.four,
                    )  # fmt: skip
                    for c in range(4 * g, min(4 * g + 4, C)):
                        source = c if c <= K else c - K
                        total, square = work.four[0, c % 4], work.four[1, c % 4]
                        bonus = fixed
                        if c > K:
                            bonus = 0.0 if n > 0.0 else np.inf
                        elif settings.bonus == BERNSTEIN_BONUS and n > 0.0:
                            bonus += settings.c * np.sqrt(square) / n
                        # The paper's algorithm adds 2Γ, one Γ for each error.
                        half = bonus / 2.0 if settings.shift > 0.0 else bonus
                        work.mean[c, h, s, a] = ledger.gain[source, h, s, a] * share
                        work.ahead[c, h, s, a] = total * share
                        work.bonus[c, h, s, a] = bonus
                        work.bonus_P[c, h, s, a] = half
                        work.bonus_S[c, h, s, a] = half
                        work.drift_P[c, h, s, a] = truth.spread_P[block, h]
                        work.drift[c, h, s, a] = truth.spread[block, source, h]


@jit_sums
def four_sums(entries, last, states, times, stack, out):
    """Σ n(x') V(x') and n Var_n[V] of four functions over the successors seen.

    Around one observed value: no digits are lost where all are the same.
    """
    m0, m1, m2, m3 = stack[last, 0], stack[last, 1], stack[last, 2], stack[last, 3]
    x0, x1, x2, x3, n = 0.0, 0.0, 0.0, 0.0, 0.0
    y0, y1, y2, y3 = 0.0, 0.0, 0.0, 0.0
    for j in range(entries.size):
        e = np.uint64(entries[j])
        t, s = times[e], states[e]
        n += t
        d0, d1, d2, d3 = stack[s, 0] - m0, stack[s, 1] - m1, stack[s, 2] - m2, stack[s, 3] - m3
        x0 += t * d0
        x1 += t * d1
        x2 += t * d2
        x3 += t * d3
        y0 += t * d0 * d0
        y1 += t * d1 * d1
        y2 += t * d2 * d2
        y3 += t * d3 * d3
    per = 1.0 / max(n, 1.0)
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = x0 + n * m0, x1 + n * m1, x2 + n * m2, x3 + n * m3
    out[1, 0], out[1, 1] = max(y0 - x0 * x0 * per, 0.0), max(y1 - x1 * x1 * per, 0.0)
    out[1, 2], out[1, 3] = max(y2 - x2 * x2 * per, 0.0), max(y3 - x3 * x3 * per, 0.0)


@jit_inline
def fixed_bonus(h, n, share, settings):
    """What Alg. 3 adds at n visits whatever the values are; share = 1/(n + λ)."""
    if settings.bonus == BERNSTEIN_BONUS:
        if n == 0.0:
            return np.inf
        extra = settings.c * settings.c * (settings.root.size - h) / n
        return extra + settings.lam * share
    root = n + settings.shift if n + settings.shift > 0.0 else 1.0
    return settings.root[h] / np.sqrt(root) + settings.tail[h] * share


@jit_part
def count(i, world, script, ledger):
    """The episode enters the window."""
    H, S, A = ledger.visits.shape
    for h in range(H):
        s, a = script.states[i, h], script.actions[i, h]
        ledger.visits[h, s, a] += 1.0
        for c in range(ledger.gain.shape[0]):
            ledger.gain[c, h, s, a] += script.values[i, c, h]
        if h + 1 < H and ledger.times.size > 0:
            ledger.last[h, s, a] = script.states[i, h + 1]
            row = (h * S + s) * A + a
            for e in range(world.offsets[row], world.offsets[row + 1]):
                if world.states[e] == script.states[i, h + 1]:
                    if ledger.times[e] == 0.0:
                        ledger.order[world.offsets[row] + ledger.kinds[h, s, a]] = e
                        ledger.kinds[h, s, a] += 1
                    ledger.times[e] += 1.0


@jit_part
def potential_of_counts(i, settings, script, ledger, out):
    """Elliptical potential of one-hot features: Λ = diag(n + λ) (E12)."""
    H = script.states.shape[1]
    lam = settings.lam
    for h in range(H):
        s, a = script.states[i, h], script.actions[i, h]
        n = ledger.visits[h, s, a]
        step = np.log((n + 1.0 + lam) / (n + lam))
        share = (n + 1.0) / (n + 1.0 + lam) - n / (n + lam)
        d = ledger.visits[h].size
        add_potential(i, 0, h, 1.0 / (n + lam), step, share, float(d), ledger, out)


@jit_part
def add_potential(i, c, h, norm, step, share, d, ledger, out):
    """Sums of ‖φ‖² in Λ⁻¹ against 2 log det Λ_t/Λ_1, and Lemma D.1 against d."""
    sums = ledger.potential
    sums[0, c, h] += norm
    sums[1, c, h] += min(norm, 1.0)
    sums[2, c, h] += step
    sums[3, c, h] += share
    A = ledger.visits.shape[2]
    place = h * ledger.visits.shape[1] * A
    for form in range(2):
        slack = 2.0 * sums[2, c, h] - sums[form, c, h]
        note(i, ELLIPTICAL + form, min(slack, sums[0, c, h] - sums[2, c, h]), place, out)
    note(i, PROJECTION, d - sums[3, c, h], place, out)


# ---------------------------------------------------------------- Algorithm 2 again


@jit_part
def clear_regressions(lam, ledger):
    """Gram matrices λI, no data."""
    C, H, d1, _ = ledger.gram.shape
    for h in range(H):
        for c in range(C):
            for j in range(d1):
                ledger.moment[c, h, j] = 0.0
                ledger.noise[c, h, j] = 0.0
                for k in range(d1):
                    ledger.gram[c, h, j, k] = lam if j == k else 0.0
        for j in range(ledger.gram_r.shape[1]):
            for c in range(ledger.moment_r.shape[0]):
                ledger.moment_r[c, h, j] = 0.0
            for k in range(ledger.gram_r.shape[1]):
                ledger.gram_r[h, j, k] = lam if j == k else 0.0


@jit_part
def cholesky(gram, low):
    """Lower triangular factor of a positive definite matrix."""
    d = gram.shape[0]
    for j in range(d):
        for k in range(j + 1):
            x = gram[j, k]
            for t in range(k):
                x -= low[j, t] * low[k, t]
            low[j, k] = np.sqrt(x) if j == k else x / low[k, k]


@jit_part
def forward(low, x, y, d):
    """y = L⁻¹ x; returns ‖y‖², the squared norm of x in Λ⁻¹."""
    total = 0.0
    for j in range(d):
        z = x[j]
        for t in range(j):
            z -= low[j, t] * y[t]
        y[j] = z / low[j, j]
        total += y[j] * y[j]
    return total


@jit_part
def backward(low, y, d):
    """y ← L⁻ᵀ y."""
    for j in range(d - 1, -1, -1):
        z = y[j]
        for t in range(j + 1, d):
            z -= low[t, j] * y[t]
        y[j] = z / low[j, j]


@jit_part
def integral(row, c, h, features, V, x):
    """x = Σ_x' ψ(x, a, x') V_c(x') with V of step h+1."""
    d1 = features.psi.shape[1]
    for j in range(d1):
        x[j] = 0.0
    for e in range(features.offsets[row], features.offsets[row + 1]):
        value = V[c, h + 1, features.states[e]]
        for j in range(d1):
            x[j] += features.psi[e, j] * value


@jit_part
def psi_row(h, s, a, S, A, features):
    """Row of ψ that belongs to (h, s, a)."""
    step = h if features.offsets.size > S * A + 1 else 0
    return (step * S + s) * A + a


@jit_part
def estimate_by_regression(h, i, m, features, settings, script, truth, ledger, work, out):
    """Alg. 2, lines 3 to 10: ⟨φ, u⟩, ⟨φ^m, w⟩ and the bonuses, with the potentials of the pair."""
    C, H, S, A = work.mean.shape
    K = ledger.mu.size
    d1, d2 = features.psi.shape[1], features.phi.shape[1]
    block, past = m // settings.W, float(m % settings.W)
    step = h if features.phi.shape[0] > 1 else 0
    if not features.one_hot:
        cholesky(ledger.gram_r[h], work.chol_r)
    for c in range(C):
        source = c if c <= K else c - K
        beta, beta_r, grown, grown_r = settings.beta[h], settings.beta_r[h], 0.0, 0.0
        if 1 <= c <= K:  # β grows with the drift that is known
            grown = settings.spread_P[block, h] * np.sqrt(past)
            grown_r = settings.spread_g[block, c - 1, h] * np.sqrt(past)
        if c > K:
            beta, beta_r = 0.0, 0.0
        beta, beta_r = beta + grown, beta_r + grown_r
        w, u = work.w[0], work.w[1]
        if h + 1 < H:
            cholesky(ledger.gram[c, h], work.chol)
            forward(work.chol, ledger.moment[c, h], w, d1)
            backward(work.chol, w, d1)
            if c <= K:
                noise = np.sqrt(forward(work.chol, ledger.noise[c, h], work.y, d1))
                note(i, NORMALISED, settings.beta[h] - noise, h * S * A, out)
        if not features.one_hot:
            forward(work.chol_r, ledger.moment_r[source, h], u, d2)
            backward(work.chol_r, u, d2)
        for s in range(S):
            for a in range(A):
                total, norm = 0.0, 0.0
                if h + 1 < H:
                    integral(psi_row(h, s, a, S, A, features), c, h, features, work.V, work.x)
                    for j in range(d1):
                        total += work.x[j] * w[j]
                    norm = forward(work.chol, work.x, work.y, d1)
                work.ahead[c, h, s, a] = total
                played = s == script.states[i, h] and a == script.actions[i, h]
                if played and h + 1 < H and c <= K:
                    share = trace_share(ledger.gram[c, h], settings.lam, work)
                    share -= ledger.potential[3, c, h]
                    add_potential(i, c, h, norm, np.log1p(norm), share, float(d1), ledger, out)
                bonus = beta * np.sqrt(norm)
                work.bonus_P[c, h, s, a] = bonus
                spread = truth.spread_P[block, h] * np.sqrt(past * norm)
                work.drift_P[c, h, s, a] = spread
                cover = grown * np.sqrt(norm)
                if features.one_hot:
                    n = ledger.visits[h, s, a] + settings.lam
                    work.mean[c, h, s, a] = ledger.gain[source, h, s, a] / n
                    norm = 1.0 / n
                else:
                    total = 0.0
                    for j in range(d2):
                        work.x[j] = features.phi[step, j, a * S + s]
                        total += work.x[j] * u[j]
                    work.mean[c, h, s, a] = total
                    norm = forward(work.chol_r, work.x, work.y, d2)
                work.bonus_S[c, h, s, a] = beta_r * np.sqrt(norm)
                work.bonus[c, h, s, a] = bonus + beta_r * np.sqrt(norm)
                work.drift[c, h, s, a] = truth.spread[block, source, h] * np.sqrt(past * norm)
                work.covered[c, h, s, a] = cover + grown_r * np.sqrt(norm)


@jit_part
def trace_share(gram, lam, work):
    """Σ φ_iᵀ Λ⁻¹ φ_i = d - λ tr Λ⁻¹, from the factor in `chol`."""
    d = gram.shape[0]
    total = float(d)
    for j in range(d):
        for t in range(d):
            work.w[2, t] = 1.0 if t == j else 0.0
        total -= lam * forward(work.chol, work.w[2], work.y, d)
    return total


@jit_part
def regress(i, world, p, features, script, ledger, work):
    """The episode enters the regressions, with its value targets and their noise."""
    C, H, _ = ledger.moment.shape
    _, S, A = ledger.visits.shape
    d1, d2 = features.psi.shape[1], features.phi.shape[1]
    for h in range(H):
        s, a = script.states[i, h], script.actions[i, h]
        if h + 1 < H:
            nxt = script.states[i, h + 1]
            for c in range(C):
                integral(psi_row(h, s, a, S, A, features), c, h, features, work.V, work.x)
                mean = 0.0
                row = (h * S + s) * A + a
                for e in range(world.offsets[row], world.offsets[row + 1]):
                    mean += p[e] * work.V[c, h + 1, world.states[e]]
                target = work.V[c, h + 1, nxt]
                for j in range(d1):
                    ledger.moment[c, h, j] += work.x[j] * target
                    ledger.noise[c, h, j] += work.x[j] * (target - mean)
                    for k in range(d1):
                        ledger.gram[c, h, j, k] += work.x[j] * work.x[k]
        if not features.one_hot:
            step = h if features.phi.shape[0] > 1 else 0
            for j in range(d2):
                work.x[j] = features.phi[step, j, a * S + s]
            for j in range(d2):
                for c in range(ledger.moment_r.shape[0]):
                    ledger.moment_r[c, h, j] += work.x[j] * script.values[i, c, h]
                for k in range(d2):
                    ledger.gram_r[h, j, k] += work.x[j] * work.x[k]


# ---------------------------------------------------------------- room


def make_ledger(H: int, S: int, A: int, K: int, C: int, entries: int, d1: int, d2: int) -> Ledger:
    """Return an empty ledger; d1 = d2 = 0 with Algorithm 3, entries = 0 with Algorithm 2."""
    zeros = np.zeros
    return Ledger(
        zeros((H, S, A)), zeros((H, S, A)), zeros((H, S, A), np.int64),
        zeros((H, S, A), np.int64), zeros(entries, np.int64), zeros(entries),
        zeros((1 + K, H, S, A)), zeros(K), zeros(K), zeros(K), zeros((H, S, A)), zeros((2, H, S)),
        np.full(COLUMNS, np.inf), zeros((4, 1 + K, H)),
        zeros((C, H, d1, d1)), zeros((C, H, d1)), zeros((C, H, d1)), zeros((H, d2, d2)),
        zeros((1 + K, H, d2)),
    )  # fmt: skip


def make_work(H: int, S: int, A: int, K: int, C: int, entries: int, d: int) -> Work:
    """Return scratch for an audit; `entries` is 0 where no transitions are mixed."""
    zeros = np.zeros
    pairs, G = (C, H, S, A), -(-2 * C // 4)
    return Work(
        zeros(entries), zeros((1 + K, H, S, A)), zeros((C, H + 1, S)), zeros((1 + K, H + 1, S)),
        zeros((1 + K, 2, S)), zeros((H, S)), zeros(pairs), zeros(pairs), zeros(pairs),
        zeros(pairs), zeros(pairs), zeros(pairs), zeros(pairs), zeros(pairs), zeros((G, S, 4)),
        zeros((G, S, A, 4)), zeros((8, S * A)), zeros(A), zeros((2, 4)), zeros((d, d)),
        zeros((d, d)), zeros(d), zeros(d), zeros((3, d)),
    )  # fmt: skip


def make_findings(B: int, H: int, K: int) -> Findings:
    """Return room for the findings of B episodes."""
    return Findings(
        np.zeros((B, COLUMNS)), np.zeros((B, COLUMNS), np.int64), np.zeros((B, COLUMNS), np.int64),
        np.zeros((B, TERMS, 1 + K)), np.zeros((B, K)), np.zeros((B, H)),
    )  # fmt: skip


def make_transcript(B: int, H: int, S: int, A: int, K: int, C: int) -> Transcript:
    """Return room for what a learner does in B episodes."""
    return Transcript(
        np.zeros((B, H, S, A)), np.zeros((B, C, H, S, A)), np.zeros((B, C)), np.zeros((B, K)),
        np.zeros((B, H), np.int64), np.zeros((B, H), np.int64), np.zeros((B, 1 + K, H)),
    )  # fmt: skip
