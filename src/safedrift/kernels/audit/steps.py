"""What the lemmas relate at one step of an episode: prediction errors, exact values, bounds.

With ι_c = c + P V_c^m - Q_c^m the model prediction error of channel c (0 the reward, k the k-th
utility), Q^π and V^π the exact values of the policy played, and V* those of the optimal one. One
pass over the successors of every pair serves all channels.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.audit.memory import (
    BLOCK_STEP,
    ESTIMATE,
    EVALUATION,
    IOTA_OPTIMAL,
    IOTA_PATH,
    MARTINGALE,
    OPTIMAL,
    OWN_STEP,
    PERFORMANCE,
    PREDICTION,
    START,
    TOLERANCE,
    VALUE,
    note,
)
from safedrift.kernels.types import jit_part, jit_reordered, jit_shared


@jit_shared
def examine_step(world, p, i, block, h, LV, script, truth, ledger, work, out):
    """All channels of step h, from the estimates in `work`; steps are taken backwards.

    `block` is the window of the episode, `LV` (windows, K, H) what its estimates are raised by.
    """
    K = script.mu.shape[1]
    if h + 1 < script.states.shape[1]:
        expect_step(h, world, p, work)
    for c in range(script.q.shape[1]):
        lv = LV[block, c - 1, h] if 1 <= c <= K else 0.0
        if c > K:
            check_estimates(i, c, h, lv, script, work, out)
        else:
            examine_channel(world, p, i, block, c, h, lv, script, truth, ledger, work, out)


@jit_part
def check_estimates(i, c, h, lv, script, work, out):
    """Alg. 2, line 11, or Alg. 3, line 7: Q from the auditor's own estimates.

    `examine_channel` does the same where there is more to look at.
    """
    _, H, S, A = script.policies.shape
    most = float(H - h)
    q, mean, ahead, bonus = script.q[i, c, h], work.mean[c], work.ahead[c], work.bonus[c]
    worst, at = -1.0, 0
    for s in range(S):
        for a in range(A):
            wanted = max(min(mean[s, a] + ahead[s, a] + bonus[s, a] + lv, most), 0.0)
            off = abs(wanted - q[s, a])
            if not off <= worst:
                worst, at = off, (h * S + s) * A + a
    note(i, EVALUATION, worst / most, at, out)


@jit_part
def examine_channel(world, p, i, block, c, h, lv, script, truth, ledger, work, out):
    """One channel at one step: ι, exact values, and the slack of every bound on ι."""
    _, H, S, A = script.policies.shape
    pi, q = script.policies[i, h], script.q[i, c, h]
    star = truth.policies[truth.place[i], h]
    signals = work.signal[c, h]
    offsets, states = world.offsets, world.states
    V_star, expected, lane = work.V_star[c, (h + 1) % 2], work.expected[c // 2], c % 2 * 2
    values, bests = work.V_pi[c, h], work.V_star[c, h % 2]
    terms, slack = out.terms[i], work.slack
    bonus, bonus_P, bonus_S = work.bonus[c], work.bonus_P[c], work.bonus_S[c]
    mean, ahead = work.mean[c], work.ahead[c]
    covered, drift, drift_P = work.covered[c], work.drift[c], work.drift_P[c]
    printed, printed_P = truth.printed[block, c, h], truth.printed_P[block, h]
    s_now, a_now = script.states[i, h], script.actions[i, h]
    whole = ledger.counts.size > 0  # Algorithm 3 has one bonus for both errors
    most, worst, worst_at = float(H - h), -1.0, 0
    fresh = truth.fresh[i]  # else V* is that of the episode before
    for s in range(S):
        value, best, inner, moved = 0.0, 0.0, 0.0, 0.0
        needed = fresh and work.reach[h, s] > 0.0  # V* matters nowhere else
        for a in range(A):
            row = (h * S + s) * A + a
            wanted = max(min(mean[s, a] + ahead[s, a] + bonus[s, a] + lv, most), 0.0)
            if not abs(wanted - q[s, a]) <= worst:
                worst, worst_at = abs(wanted - q[s, a]), row
            Pm, P_pi, P_star = 0.0, 0.0, 0.0
            if h + 1 < H:
                Pm, P_pi = expected[s, a, lane], expected[s, a, lane + 1]
                if needed and star[s, a] > 0.0:
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
        if fresh:
            bests[s] = best
        terms[OWN_STEP, c] += work.reach[h, s] * inner
        terms[BLOCK_STEP, c] += ledger.reach[1, h, s] * inner
        terms[IOTA_OPTIMAL, c] += work.reach[h, s] * moved
    note(i, EVALUATION, worst / most, worst_at, out)
    for j in range(8):
        if j in (2, 3) and c == 0:  # optimism concerns the utilities only
            continue
        if j in (4, 5) and h + 1 == H:  # there is nothing to estimate after the last step
            continue
        least, broken = smallest(slack[j])
        column = PREDICTION + j
        out.broken[i, column] += broken
        if least < out.worst[i, column]:
            out.worst[i, column] = least
            if least < ledger.least[column]:  # only then is its place needed
                ledger.least[column] = least
                at = 0
                while at + 1 < slack.shape[1] and slack[j, at] > least:
                    at += 1
                out.where[i, column] = h * S * A + at


@jit_reordered
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


@jit_reordered
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
def close_identities(world, i, script, work, out):
    """Performance difference, V^m at the start, and the martingale of the value expansion.

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
        start, wanted = 0.0, 0.0
        for j in range(world.initial.size):
            s = world.initial_states[j]
            start += world.initial[j] * (work.V[c, 0, s] - work.V_pi[c, 0, s])
            wanted += world.initial[j] * work.V[c, 0, s]
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
        note(i, START, abs(estimate - wanted) / H, -1, out)
    for c in range(terms.shape[1], script.v_start.shape[1]):
        wanted = 0.0
        for j in range(world.initial.size):
            wanted += world.initial[j] * work.V[c, 0, world.initial_states[j]]
        note(i, START, abs(script.v_start[i, c] - wanted) / H, -1, out)
