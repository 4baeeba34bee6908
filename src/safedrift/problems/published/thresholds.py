"""Random tables with a threshold that is a share of the largest utility: b = share max_π V_g."""

from __future__ import annotations

import numpy as np

from safedrift._check import FloatArray
from safedrift.kernels.sums import product
from safedrift.models import DriftingCMDP, TabularCMDP, drift
from safedrift.models.outcomes import certain

__all__ = ["largest_utility", "with_share"]


def largest_utility(P: FloatArray, utilities: FloatArray, start: int) -> float:
    """Return max_π V_g from a state, for P (H, S, A, S) and g (H, S, A): backward induction."""
    V = np.zeros(P.shape[1])
    for P_h, g_h in zip(P[::-1], utilities[::-1], strict=True):
        V = (g_h + product(P_h, V)).max(axis=1)
    return float(V[start])


def with_share(
    M: int, P: FloatArray, rewards: FloatArray, utilities: FloatArray, start: int, share: float
) -> DriftingCMDP:
    """Return a stationary world of tables whose threshold is a share of the largest utility."""
    threshold = share * largest_utility(P, utilities, start)
    first = certain(start, P.shape[1])
    cmdp = TabularCMDP(P, rewards, utilities[None], np.array([threshold]), first)
    return DriftingCMDP([cmdp], drift.stationary(M, 1))
