"""The best policy and the best model at once: a linear program over extended occupancies.

Given intervals low ≤ P_h(y|x,a) ≤ high, choose a policy and a model inside them:

    maximise   Σ_h,x,a z_h(x,a) r_h(x,a)
    subject to Σ_a z_1(x,a) = initial(x)
               Σ_a z_{h+1}(y,a) = Σ_x,a q_h(x,a,y)
               Σ_y q_h(x,a,y) = z_h(x,a)
               low z_h(x,a) ≤ q_h(x,a,y) ≤ high z_h(x,a)
               Σ_h,x,a z_h(x,a) g_k,h(x,a) ≥ b_k,   z, q ≥ 0

The policy is z_h(x,a) / Σ_a z_h(x,a), the model q_h(x,a,y) / z_h(x,a). Rewards and utilities may
leave [0, 1]. Solved by HiGHS: where several policies are optimal, another version of it may return
another one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedrift._check import FloatArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["ExtendedPlan", "plan_within_intervals", "program_size"]

_TINY = 1e-12  # an occupancy below it is zero


class ExtendedPlan(NamedTuple):
    """An optimum of the program."""

    value: float
    occupancy: FloatArray  # (H, S, A) z
    flow: FloatArray  # (H-1, S, A, S) q


def program_size(H: int, S: int, A: int) -> int:
    """Return the number of variables.

    Examples
    --------
    >>> from safedrift.planning.extended_program import program_size
    >>> program_size(H=10, S=20, A=5)
    19000
    """
    return H * S * A + (H - 1) * S * A * S


def plan_within_intervals(
    low: FloatArray,
    high: FloatArray,
    rewards: FloatArray,
    utilities: FloatArray,
    thresholds: FloatArray,
    initial: FloatArray,
) -> ExtendedPlan | None:
    """Solve the program; None where no policy and model meet the constraints.

    Parameters
    ----------
    low, high : arrays (H-1, S, A, S)
    rewards : array (H, S, A)
    utilities : array (K, H, S, A)
    thresholds : array (K,)
    initial : array (S,)
    """
    H, S, A = rewards.shape
    K, n = len(utilities), H * S * A
    A_eq = _equalities(H, S, A)
    b_eq = np.zeros(A_eq.shape[0])
    b_eq[:S] = initial
    A_ub = _inequalities(low, high, utilities)
    b_ub = np.zeros(A_ub.shape[0])
    b_ub[:K] = -thresholds
    cost = np.zeros(program_size(H, S, A))
    cost[:n] = -rewards.ravel()
    from scipy.optimize import linprog  # takes a while to import

    found = linprog(cost, A_ub=A_ub, b_ub=b_ub, A_eq=A_eq, b_eq=b_eq, method="highs")
    if found.status != 0:
        return None
    x = np.maximum(found.x, 0.0)
    x[x < _TINY] = 0.0
    return ExtendedPlan(-float(found.fun), x[:n].reshape(H, S, A), x[n:].reshape(H - 1, S, A, S))


def _equalities(H: int, S: int, A: int) -> csr_array:
    """Rows: occupancy of each state (H*S), then the sum of the flows out of each pair."""
    n, pairs = H * S * A, (H - 1) * S * A
    z = np.arange(n).reshape(H, S, A)
    q = n + np.arange(pairs * S).reshape(H - 1, S, A, S)
    state = np.arange(H * S).reshape(H, S)
    pair = H * S + np.arange(pairs).reshape(H - 1, S, A)
    entries = (
        (np.broadcast_to(state[:, :, None], z.shape), z, 1.0),
        (np.broadcast_to(state[1:, None, None, :], q.shape), q, -1.0),
        (np.broadcast_to(pair[..., None], q.shape), q, 1.0),
        (pair, z[:-1], -1.0),
    )
    return _sparse(entries, (H * S + pairs, n + pairs * S))


def _inequalities(low: FloatArray, high: FloatArray, utilities: FloatArray) -> csr_array:
    """Rows: the constraints (K), then upper and lower ends of those intervals that say anything."""
    K, H, S, A = utilities.shape
    n = H * S * A
    q = n + np.arange(low.size).reshape(low.shape)
    z = np.broadcast_to(np.arange(n).reshape(H, S, A)[:-1, ..., None], low.shape)
    above, below = high < 1.0, low > 0.0
    rows_above = K + np.arange(int(above.sum()))
    rows_below = K + rows_above.size + np.arange(int(below.sum()))
    entries = (
        (np.repeat(np.arange(K), n), np.tile(np.arange(n), K), -utilities.ravel()),
        (rows_above, q[above], 1.0),
        (rows_above, z[above], -high[above]),
        (rows_below, q[below], -1.0),
        (rows_below, z[below], low[below]),
    )
    return _sparse(entries, (K + rows_above.size + rows_below.size, n + low.size))


def _sparse(entries: tuple[tuple[Any, Any, Any], ...], shape: tuple[int, int]) -> csr_array:
    """A sparse matrix of (rows, columns, values)."""
    from scipy.sparse import coo_array, csr_array

    rows = np.concatenate([np.ravel(row) for row, _, _ in entries])
    columns = np.concatenate([np.ravel(column) for _, column, _ in entries])
    values = [np.broadcast_to(value, np.size(column)) for _, column, value in entries]
    return csr_array(coo_array((np.concatenate(values), (rows, columns)), shape=shape))
