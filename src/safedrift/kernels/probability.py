"""What models are made of: simplex walks, sums for sampling, binomials, normals, quadrature."""

from __future__ import annotations

from safedrift.kernels.elementary import cdf_of, cos_of, density_of, quantile_of
from safedrift.kernels.types import jit, jit_part

NEWTON = 8  # steps: the first guess is right to a few digits, each step doubles them


@jit
def walk_on_simplex(steps, ordered, weights):
    """weights[m] = projection of weights[m-1] + steps[m] onto the simplex; weights[0] is given.

    The projection of x is (x_n - t)_+ with t such that it sums to 1: with the x_n in descending
    order, t = (x_1 + ... + x_k - 1)/k for the largest k that leaves x_k - t positive.

    Parameters
    ----------
    steps, weights : (M, N)
    ordered : (N,) scratch
    """
    M, N = weights.shape
    for m in range(1, M):
        for n in range(N):  # insertion sort: there are few scenarios
            x = weights[m - 1, n] + steps[m, n]
            weights[m, n] = x
            k = n
            while k > 0 and ordered[k - 1] < x:
                ordered[k] = ordered[k - 1]
                k -= 1
            ordered[k] = x
        total, shift = 0.0, 0.0
        for k in range(N):
            total += ordered[k]
            if ordered[k] > (total - 1.0) / (k + 1):
                shift = (total - 1.0) / (k + 1)
        total = 0.0
        for n in range(N):
            weights[m, n] = max(weights[m, n] - shift, 0.0)
            total += weights[m, n]
        for n in range(N):
            weights[m, n] /= total


@jit
def running_sums(offsets, probabilities, out):
    """Cumulative probabilities within each row of each scenario, 1 from the last positive entry on.

    Parameters
    ----------
    offsets : (rows + 1,)
    probabilities, out : (N, entries)
    """
    for n in range(probabilities.shape[0]):
        for row in range(offsets.size - 1):
            total = 0.0
            last = offsets[row]
            for j in range(offsets[row], offsets[row + 1]):
                total += probabilities[n, j]
                out[n, j] = total
                if probabilities[n, j] > 0.0:
                    last = j
            for j in range(last, offsets[row + 1]):
                out[n, j] = 1.0


@jit
def binomial_each(k, n, p, out):
    """out ← probability of k successes of n, each with probability p.

    From the most likely number on, each term is the one beside it times a ratio, and their sum is 1
    in the end: nothing overflows, and no logarithm is needed.

    Parameters
    ----------
    k, n : (size,) integers
    p, out : (size,)
    """
    for i in range(out.size):
        most = min(int((n[i] + 1) * p[i]), n[i])
        found, total, term = 1.0, 1.0, 1.0
        for j in range(most, n[i]):
            term *= ((n[i] - j) * p[i]) / ((j + 1) * (1.0 - p[i]))
            total += term
            if j + 1 == k[i]:
                found = term
        term = 1.0
        for j in range(most, 0, -1):
            term *= (j * (1.0 - p[i])) / ((n[i] - j + 1) * p[i])
            total += term
            if j - 1 == k[i]:
                found = term
        out[i] = found / total if 0 <= k[i] <= n[i] else 0.0


@jit
def gauss_legendre_rule(points, weights):
    """Nodes and weights of the Gauss-Legendre rule on [-1, 1], by Newton's method.

    Nodes are the roots of P_n, weights 2 / ((1 - x²) P_n'(x)²), with

        (j+1) P_{j+1}(x) = (2j+1) x P_j(x) - j P_{j-1}(x),  (x² - 1) P_n'(x) = n (x P_n - P_{n-1}).

    Parameters
    ----------
    points, weights : (n,) written, points ascending
    """
    n = points.size
    total = 0.0
    for i in range((n + 1) // 2):
        x = cos_of((i + 0.75) / (2 * n + 1))  # near the i-th root from above
        slope = 1.0
        for _ in range(NEWTON):
            before, here = 0.0, 1.0
            for j in range(n):
                before, here = here, ((2 * j + 1) * x * here - j * before) / (j + 1)
            slope = n * (x * here - before) / (x * x - 1.0)
            x -= here / slope
        if 2 * i + 1 == n:
            x = 0.0
        points[i], points[n - 1 - i] = -x, x
        weights[i] = weights[n - 1 - i] = 2.0 / ((1.0 - x * x) * slope * slope)
    for i in range(n):
        total += weights[i]
    for i in range(n):
        weights[i] *= 2.0 / total


@jit_part
def cut_normal(centre, sd, low, high):
    """Which side is counted from, and Φ at both ends of an interval, of a normal cut there.

    Left of the interval it is the upper tail that counts: mirrored, it keeps its digits.
    """
    side = -1.0 if centre < low else 1.0
    return side, cdf_of(side * (low - centre) / sd), cdf_of(side * (high - centre) / sd)


@jit
def truncated_normal_density(centre, sd, low, high, y, mass, out):
    """Density of independent normals that are cut at a box.

    Parameters
    ----------
    centre : (p, n)
    sd, low, high : (n,)
    y : (q, n)
    mass : (p, n) written: what the cut leaves of each normal
    out : (p, q) written
    """
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            out[p, q] = 1.0
        for i in range(sd.size):
            _, left, right = cut_normal(centre[p, i], sd[i], low[i], high[i])
            mass[p, i] = abs(right - left)
            for q in range(out.shape[1]):
                z = (y[q, i] - centre[p, i]) / sd[i]
                out[p, q] *= density_of(z) / (sd[i] * mass[p, i])


@jit
def truncated_normal_draw(centre, sd, low, high, u, mass, out):
    """A draw from them by the inverse distribution function at u.

    Parameters
    ----------
    centre, sd, low, high, u : (n,)
    mass, out : (n,) written
    """
    for i in range(sd.size):
        side, left, right = cut_normal(centre[i], sd[i], low[i], high[i])
        mass[i] = abs(right - left)
        z = side * quantile_of(left + u[i] * (right - left))
        out[i] = min(max(centre[i] + sd[i] * z, low[i]), high[i])
