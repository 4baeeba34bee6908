"""Matrix products whose sums have one order, the same on every machine.

    out[i, q] = ((0 + a[i, 0] b[0, q]) + a[i, 1] b[1, q]) + ...

A BLAS adds in whatever order suits the processor, so the last digit of its sums cannot be promised.
Here the order is written down, and without fast-math the compiler has to keep it: it may compute
several entries at once, but each one as written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safedrift.kernels.types import FloatArray, jit, jit_inline, prepared

__all__ = ["matrix_product", "product"]

TILE = 512  # columns worked on at once, so that they stay in the cache


def product(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """Return a @ b for a (..., J) and b (J, ...), each sum from first to last."""
    left, right = np.asarray(a), np.asarray(b)
    rows = prepared(left.reshape(-1, left.shape[-1]))
    columns = prepared(right.reshape(len(right), -1))
    out = np.empty((len(rows), columns.shape[1]))
    matrix_product(rows, columns, out)
    return out.reshape(*left.shape[:-1], *right.shape[1:])


@jit
def matrix_product(a, b, out):
    """out ← a b, each sum from first to last.

    Parameters
    ----------
    a : (n, J)
    b : (J, Q)
    out : (n, Q) written
    """
    n, J = a.shape
    Q = np.uint64(b.shape[1])
    whole = n - n % 4
    for start in range(np.uint64(0), Q, np.uint64(TILE)):
        end = min(start + np.uint64(TILE), Q)
        for i in range(0, whole, 4):
            four_rows(i, start, end, J, a, b, out)
        for i in range(whole, n):
            one_row(i, start, end, J, a, b, out)


@jit_inline
def four_rows(i, start, end, J, a, b, out):
    """Rows i to i+3, columns start to end: b is read once for all four."""
    for q in range(start, end):
        out[i, q] = 0.0
        out[i + 1, q] = 0.0
        out[i + 2, q] = 0.0
        out[i + 3, q] = 0.0
    for j in range(J):
        w, x, y, z = a[i, j], a[i + 1, j], a[i + 2, j], a[i + 3, j]
        for q in range(start, end):
            out[i, q] += w * b[j, q]
            out[i + 1, q] += x * b[j, q]
            out[i + 2, q] += y * b[j, q]
            out[i + 3, q] += z * b[j, q]


@jit_inline
def one_row(i, start, end, J, a, b, out):
    """Row i, columns start to end."""
    for q in range(start, end):
        out[i, q] = 0.0
    for j in range(J):
        x = a[i, j]
        for q in range(start, end):
            out[i, q] += x * b[j, q]
