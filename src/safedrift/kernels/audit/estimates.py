"""The estimates of Algorithms 2 and 3 again, from an audit's own ledger.

Written for the audit of a run and independent of the learner's code: counts by successor, Gram
matrices summed and factorised anew in every episode. They fill `Work.mean`, `ahead` and `bonus`
of one step, and keep the sums of the elliptical potential lemma.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.audit.memory import ELLIPTICAL, NORMALISED, PROJECTION, note
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS
from safedrift.kernels.types import jit_inline, jit_part, jit_reordered

# ---------------------------------------------------------------- Algorithm 3 again


@jit_part
def clear(ledger):
    """Forget the data of the window."""
    _, H, S, A = ledger.signal_sums.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                ledger.visits[h, s, a] = 0.0
                ledger.seen[h, s, a] = 0
                for c in range(ledger.signal_sums.shape[0]):
                    ledger.signal_sums[c, h, s, a] = 0.0
        for t in range(4):
            for c in range(ledger.potential.shape[1]):
                ledger.potential[t, c, h] = 0.0
    for e in range(ledger.counts.size):
        ledger.counts[e] = 0.0


@jit_part
def estimate_by_counts(h, m, world, settings, truth, ledger, work):
    """Alg. 3, lines 3 to 5, at step h: r̂, P̂V and the bonus from the visits of the window."""
    C, S, A = work.mean.shape
    H, K = settings.root.size, ledger.mu.size
    block = m // settings.W
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
                seen = ledger.seen[h, s, a] if h + 1 < H else 0
                start = world.offsets[(h * S + s) * A + a]
                four_sums(
                    ledger.order[start : start + seen],
                    ledger.last[h, s, a],
                    world.states,
                    ledger.counts,
                    work.stack[g],
                    work.four,
                )
                for c in range(4 * g, min(4 * g + 4, C)):
                    source = c if c <= K else c - K
                    bonus = fixed
                    if c > K:
                        bonus = 0.0 if n > 0.0 else np.inf
                    elif settings.bonus == BERNSTEIN_BONUS and n > 0.0:
                        bonus += settings.c * np.sqrt(work.four[1, c % 4]) / n
                    # The paper's algorithm adds 2Γ, one Γ for each error.
                    half = bonus / 2.0 if settings.shift > 0.0 else bonus
                    work.mean[c, s, a] = ledger.signal_sums[source, h, s, a] * share
                    work.ahead[c, s, a] = work.four[0, c % 4] * share
                    work.bonus[c, s, a] = bonus
                    work.bonus_P[c, s, a] = half
                    work.bonus_S[c, s, a] = half
                    work.drift_P[c, s, a] = truth.repaired_P[block, h]
                    work.drift[c, s, a] = truth.repaired[block, source, h]


@jit_reordered
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
        return settings.c * settings.c * (settings.root.size - h) / n + settings.lam * share
    root = n + settings.shift if n + settings.shift > 0.0 else 1.0
    return settings.root[h] / np.sqrt(root) + settings.tail[h] * share


@jit_part
def count(i, world, script, ledger):
    """The episode enters the window."""
    H, S, A = ledger.visits.shape
    for h in range(H):
        s, a = script.states[i, h], script.actions[i, h]
        ledger.visits[h, s, a] += 1.0
        for c in range(ledger.signal_sums.shape[0]):
            ledger.signal_sums[c, h, s, a] += script.values[i, c, h]
        if h + 1 < H and ledger.counts.size > 0:
            ledger.last[h, s, a] = script.states[i, h + 1]
            row = (h * S + s) * A + a
            for e in range(world.offsets[row], world.offsets[row + 1]):
                if world.states[e] == script.states[i, h + 1]:
                    if ledger.counts[e] == 0.0:
                        ledger.order[world.offsets[row] + ledger.seen[h, s, a]] = e
                        ledger.seen[h, s, a] += 1
                    ledger.counts[e] += 1.0


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
    C, S, A = work.mean.shape
    H, K = script.states.shape[1], ledger.mu.size
    d1, d2 = features.psi.shape[1], features.phi.shape[1]
    block, past = m // settings.W, float(m % settings.W)
    step = h if features.phi.shape[0] > 1 else 0
    if not features.one_hot:
        cholesky(ledger.gram_r[h], work.chol_r)
    for c in range(C):
        source = c if c <= K else c - K
        beta, beta_r, grown, grown_r = settings.beta[h], settings.beta_r[h], 0.0, 0.0
        if 1 <= c <= K:  # β grows with the drift that is known
            grown = settings.window_drift_P[block, h] * np.sqrt(past)
            grown_r = settings.window_drift_g[block, c - 1, h] * np.sqrt(past)
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
                work.ahead[c, s, a] = total
                played = s == script.states[i, h] and a == script.actions[i, h]
                if played and h + 1 < H and c <= K:
                    share = trace_share(ledger.gram[c, h], settings.lam, work)
                    share -= ledger.potential[3, c, h]
                    add_potential(i, c, h, norm, np.log1p(norm), share, float(d1), ledger, out)
                bonus = beta * np.sqrt(norm)
                work.bonus_P[c, s, a] = bonus
                work.drift_P[c, s, a] = truth.repaired_P[block, h] * np.sqrt(past * norm)
                cover = grown * np.sqrt(norm)
                if features.one_hot:
                    n = ledger.visits[h, s, a] + settings.lam
                    work.mean[c, s, a] = ledger.signal_sums[source, h, s, a] / n
                    norm = 1.0 / n
                else:
                    total = 0.0
                    for j in range(d2):
                        work.x[j] = features.phi[step, j, a * S + s]
                        total += work.x[j] * u[j]
                    work.mean[c, s, a] = total
                    norm = forward(work.chol_r, work.x, work.y, d2)
                work.bonus_S[c, s, a] = beta_r * np.sqrt(norm)
                work.bonus[c, s, a] = bonus + beta_r * np.sqrt(norm)
                work.drift[c, s, a] = truth.repaired[block, source, h] * np.sqrt(past * norm)
                work.covered[c, s, a] = cover + grown_r * np.sqrt(norm)


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
