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
    """Return the probabilities (H, S, A) of the pairs that a policy (H, S, A) visits.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.oracles import occupancy
    >>> uniform = np.full((world.H, world.S, world.A), 1 / world.A)
    >>> occupancy(world.at(0), uniform).sum(axis=(1, 2))[:3].round(9).tolist()
    [1.0, 1.0, 1.0]
    """
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
    """Return the expectation (H,) of a quantity (H, S, A) under an occupancy (H, S, A).

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.oracles import expected, occupancy
    >>> cmdp = world.at(0)
    >>> uniform = np.full((world.H, world.S, world.A), 1 / world.A)
    >>> expected(occupancy(cmdp, uniform), cmdp.rewards)[:2].round(3).tolist()
    [0.5, 0.483]
    """
    return np.asarray((measure * quantity).sum(axis=(1, 2)))
