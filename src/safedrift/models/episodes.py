"""Episodes that stand for all of them."""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import IntArray

__all__ = ["evenly_spaced"]

MOST = 200  # episodes by default


def evenly_spaced(M: int, most: int = MOST) -> IntArray:
    """Return at most `most` of M episodes, evenly spaced, including the first and the last.

    Examples
    --------
    >>> from safedrift.models import evenly_spaced
    >>> evenly_spaced(1000, most=5).tolist()
    [0, 250, 500, 749, 999]
    """
    _check.integer("M", M)
    _check.integer("most", most, lower=2)
    return np.unique(np.linspace(0, M - 1, min(M, most)).round().astype(np.int64))
