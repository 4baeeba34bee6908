"""Occupancy of a policy, and the expectation of any quantity at every step.

d_h(x, a) = P^π(x_h = x, a_h = a),   E^π[ q_h(x_h, a_h) ] = Σ_{x,a} d_h(x, a) q_h(x, a)
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.models import TabularCMDP

__all__ = ["expected", "occupancy"]


def occupancy(cmdp: TabularCMDP, policy: FloatArray) -> FloatArray:
    """Return the probabilities (H, S, A) of the pairs that a policy (H, S, A) visits."""
    H, S, A, _ = _check.kind("cmdp", cmdp, TabularCMDP).shape
    policy = _check.floats("policy", policy, (H, S, A))
    _check.distribution("policy", policy)
    offsets, states, probabilities = cmdp.successors
    found = np.empty((H, S, A))
    reach = cmdp.initial
    for h in range(H):
        found[h] = reach[:, None] * policy[h]
        rows = offsets[h * S * A : (h + 1) * S * A + 1]
        step = slice(rows[0], rows[-1])
        moved = np.repeat(found[h].ravel(), np.diff(rows)) * probabilities[step]
        reach = np.bincount(states[step], moved, minlength=S).astype(np.float64)
    return found


def expected(measure: FloatArray, quantity: FloatArray) -> FloatArray:
    """Return the expectation (H,) of a quantity (H, S, A) under an occupancy (H, S, A)."""
    return np.asarray((measure * quantity).sum(axis=(1, 2)))
