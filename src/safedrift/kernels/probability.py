"""What models compute once: a walk on the probability simplex, running sums for sampling."""

from __future__ import annotations

from safedrift.kernels.types import jit


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
