"""Transitions as outcomes: with probability chance[j], action a in state x leads to after[j].

P_h(x' | x, a) = Σ_j chance[h,x,a,j] 1{after[h,x,a,j] = x'}
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safedrift._check import FloatArray
from safedrift.kernels.probability import binomial_each
from safedrift.kernels.types import Successors


def outcomes(after: ArrayLike, chance: ArrayLike, H: int) -> Successors:
    """Return successor lists; outcomes of probability 0 are dropped, equal ones are added up.

    Parameters
    ----------
    after, chance : arrays (S, A, J) or (H, S, A, J), or such that they broadcast to it
        Next states and their probabilities; without an axis of steps all steps are equal.
    """
    from scipy.sparse import csr_array  # takes a while to import

    after, chance = np.broadcast_arrays(after, chance)
    S, A, J = after.shape[-3:]
    after, chance = (np.broadcast_to(x, (H, S, A, J)).flatten() for x in (after, chance))
    rows = np.arange(0, after.size + 1, J)
    P = csr_array((chance, after, rows), shape=(H * S * A, S))
    P.sum_duplicates()
    P.eliminate_zeros()
    return Successors(P.indptr.astype(np.int64), P.indices.astype(np.int32), P.data)


def certain(state: int, S: int) -> FloatArray:
    """Return the distribution (S,) concentrated on one state."""
    start = np.zeros(S)
    start[state] = 1.0
    return start


def binomial(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> FloatArray:
    """Return the probability of k successes of n, each with probability p; arrays broadcast."""
    k, n, p = np.broadcast_arrays(k, n, p)
    out = np.empty(k.shape)
    binomial_each(
        k.flatten().astype(np.int64),
        n.flatten().astype(np.int64),
        p.flatten().astype(np.float64),
        out.reshape(-1),
    )
    return out
