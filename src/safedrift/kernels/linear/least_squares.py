"""Ridge regression that grows row by row, at a cost that does not depend on how many rows came.

    Λ = λI + Σ x xᵀ,  b = Σ x y,  w = Λ⁻¹ b

Two things are kept. The *factor* R (upper triangular, Λ = RᵀR) with z = R⁻ᵀb: a new row is rotated
into both (Givens rotations, d² operations), so errors grow with the condition number of R, the
square root of that of Λ. And the *sums* Λ and b themselves in two floats each, exact to about
1e-32: every so often, and after every row while Λ is nearly singular, the factor is computed from
them anew, in two floats throughout. How far the rotated factor had moved away by then is the
residual that the learner reports.

Several targets may share the rows: z and b then have one row per target.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.types import jit, jit_inline, jit_part

# ---------------------------------------------------------------- numbers of two floats


@jit_inline
def split_product(a, b):
    """a*b as a float and what rounding dropped from it (Dekker)."""
    product = a * b
    t = 134217729.0 * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = 134217729.0 * b
    b_high = t - (t - b)
    b_low = b - b_high
    low = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, low


@jit_inline
def add_two(high, low, add_high, add_low):
    """(high + low) + (add_high + add_low), normalised."""
    total = high + add_high
    back = total - high
    rest = ((high - (total - back)) + (add_high - back)) + low + add_low
    new = total + rest
    return new, rest - (new - total)


@jit_inline
def subtract_product(high, low, a, a_low, b, b_low):
    """(high + low) - (a + a_low)*(b + b_low)."""
    product, rest = split_product(a, b)
    return add_two(high, low, -product, -(rest + a * b_low + a_low * b))


@jit_inline
def divide_two(high, low, b, b_low):
    """(high + low) / (b + b_low)."""
    first = high / b
    rest, rest_low = subtract_product(high, low, first, 0.0, b, b_low)
    second = (rest + rest_low) / b
    new = first + second
    return new, second - (new - first)


@jit_inline
def root_two(high, low):
    """Square root of high + low > 0."""
    first = np.sqrt(high)
    rest, rest_low = subtract_product(high, low, first, 0.0, first, 0.0)
    second = (rest + rest_low) / (2.0 * first)
    new = first + second
    return new, second - (new - first)


# ---------------------------------------------------------------- one regression


@jit_part
def clear(lam, R, z, gram, gram_low, moment, moment_low):
    """No rows: Λ = λI, b = 0."""
    d = R.shape[0]
    for i in range(d):
        for j in range(d):
            R[i, j] = np.sqrt(lam) if i == j else 0.0
            gram[i, j] = lam if i == j else 0.0
            gram_low[i, j] = 0.0
    for t in range(z.shape[0]):
        for i in range(d):
            z[t, i] = 0.0
            moment[t, i] = 0.0
            moment_low[t, i] = 0.0


@jit_part
def add_row(x, y, R, z, gram, gram_low, moment, moment_low):
    """Add the row x (d,) with targets y (T,). Both are used up.

    Parameters
    ----------
    R : (d, d) upper triangular
    z : (T, d)
    gram, gram_low : (d, d) upper triangle of Λ
    moment, moment_low : (T, d) b
    """
    d, T = R.shape[0], z.shape[0]
    for i in range(d):
        for j in range(i, d):
            product, rest = split_product(x[i], x[j])
            gram[i, j], gram_low[i, j] = add_two(gram[i, j], gram_low[i, j], product, rest)
        for t in range(T):
            product, rest = split_product(x[i], y[t])
            moment[t, i], moment_low[t, i] = add_two(moment[t, i], moment_low[t, i], product, rest)
    for k in range(d):
        if x[k] != 0.0:
            r = np.hypot(R[k, k], x[k])
            c, s = R[k, k] / r, x[k] / r
            R[k, k] = r
            for i in range(k + 1, d):
                old = R[k, i]
                R[k, i] = c * old + s * x[i]
                x[i] = c * x[i] - s * old
            for t in range(T):
                old = z[t, k]
                z[t, k] = c * old + s * y[t]
                y[t] = c * y[t] - s * old


@jit_part
def solve(R, z, w):
    """w = R⁻¹ z = Λ⁻¹ b, by substitution from the last coefficient on."""
    d = R.shape[0]
    for i in range(d - 1, -1, -1):
        value = z[i]
        for j in range(i + 1, d):
            value -= R[i, j] * w[j]
        w[i] = value / R[i, i]


@jit_part
def nearly_singular(R):
    """Whether the diagonal of R betrays a condition number of Λ above 1e9."""
    least, most = np.inf, 0.0
    for i in range(R.shape[0]):
        least = min(least, R[i, i])
        most = max(most, R[i, i])
    return most * most > 1e9 * least * least


@jit_part
def refresh(R, z, gram, gram_low, moment, moment_low, R_low, z_low, w, old_w):
    """Compute R and z from the sums. Returns the residual: how far the rotated ones were off.

    It is the largest relative change of a diagonal entry of R or, relative to the largest
    coefficient of its target, of a coefficient; infinite if Λ is singular to 32 digits.

    Parameters
    ----------
    R_low : (d, d), z_low, w : (d,), old_w : (T, d) scratch
    """
    d, T = R.shape[0], z.shape[0]
    residual = 0.0
    for t in range(T):
        solve(R, z[t], old_w[t])
    for k in range(d):
        high, low = gram[k, k], gram_low[k, k]
        for j in range(k):
            high, low = subtract_product(high, low, R[j, k], R_low[j, k], R[j, k], R_low[j, k])
        old = R[k, k]
        if high <= 0.0:  # Λ is numerically singular in two floats: keep the rotated pivot, say so
            high, low = old * old, 0.0
            residual = np.inf
        R[k, k], R_low[k, k] = root_two(high, low)
        residual = max(residual, abs(old / R[k, k] - 1.0))
        for i in range(k + 1, d):
            high, low = gram[k, i], gram_low[k, i]
            for j in range(k):
                high, low = subtract_product(high, low, R[j, k], R_low[j, k], R[j, i], R_low[j, i])
            R[k, i], R_low[k, i] = divide_two(high, low, R[k, k], R_low[k, k])
    for t in range(T):
        for k in range(d):
            high, low = moment[t, k], moment_low[t, k]
            for j in range(k):
                high, low = subtract_product(high, low, R[j, k], R_low[j, k], z[t, j], z_low[j])
            z[t, k], z_low[k] = divide_two(high, low, R[k, k], R_low[k, k])
        solve(R, z[t], w)
        largest, off = 0.0, 0.0
        for i in range(d):
            largest = max(largest, abs(w[i]))
            off = max(off, abs(w[i] - old_w[t, i]))
        if off > 0.0:
            residual = max(residual, off / max(largest, 1e-300))
    return residual


# ---------------------------------------------------------------- many points at once

TILE = 128  # points whose vectors fit into the first-level cache


@jit_inline
def dots(w, x, mean):
    """mean ← ⟨x, w⟩ for all points of x (d, points)."""
    for p in range(mean.size):
        mean[p] = 0.0
    for i in range(w.size):
        for p in range(mean.size):
            mean[p] += w[i] * x[i, p]


@jit_inline
def norms(R, x, start, end, scratch, norm):
    """norm ← ‖x‖_{Λ⁻¹} = ‖R⁻ᵀx‖ for the points start .. end of x (d, points)."""
    for p in range(start, end):
        norm[p] = 0.0
    for i in range(R.shape[0]):
        for p in range(start, end):
            scratch[i, p] = x[i, p]
        for j in range(i):
            r = R[j, i]
            for p in range(start, end):
                scratch[i, p] -= r * scratch[j, p]
        inverse = 1.0 / R[i, i]
        for p in range(start, end):
            scratch[i, p] *= inverse
            norm[p] += scratch[i, p] * scratch[i, p]
    for p in range(start, end):
        norm[p] = np.sqrt(norm[p])


@jit_part
def predict_one(R, w, x, scratch):
    """⟨x, w⟩ and ‖x‖_{Λ⁻¹} for one point x (d,)."""
    d = R.shape[0]
    mean, square = 0.0, 0.0
    for i in range(d):
        mean += w[i] * x[i]
        value = x[i]
        for j in range(i):
            value -= R[j, i] * scratch[j]
        scratch[i] = value / R[i, i]
        square += scratch[i] * scratch[i]
    return mean, np.sqrt(square)


# ---------------------------------------------------------------- entry points for tests


@jit
def regress(rows, targets, lam, every, R, z, gram, gram_low, moment, moment_low, scratch, w):
    """Add rows (n, d) with targets (n, T), refreshing as the learner does; w (T, d) is written.

    `every` is the number of rows between two refreshes, 0 for none at all.

    `scratch` is (d + 4, at least d). Returns the largest residual seen.
    """
    n, d = rows.shape
    T = targets.shape[1]
    residual = 0.0
    clear(lam, R, z, gram, gram_low, moment, moment_low)
    for r in range(n):
        x, y = scratch[d], scratch[d + 1]
        for i in range(d):
            x[i] = rows[r, i]
        for t in range(T):
            y[t] = targets[r, t]
        add_row(x, y, R, z, gram, gram_low, moment, moment_low)
        if every > 0 and ((r + 1) % every == 0 or nearly_singular(R)):
            off = refresh(
                R,
                z,
                gram,
                gram_low,
                moment,
                moment_low,
                scratch,
                scratch[d + 2],
                scratch[d + 3],
                w,
            )
            residual = max(residual, off)
    for t in range(T):
        solve(R, z[t], w[t])
    return residual
