"""Which episodes of a run are measured and recorded.

    every n-th         0, n, 2n, ...
    log-spaced, q      0, 1, 2, ..., then m + ⌊m/q⌋ after m: a q-th further each time

The second grows like q·ln(M/q), so M = 10⁷ episodes need some thousand records. It is defined by
integers: the same episodes on every machine, and those of a longer run begin with those of a
shorter one.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import IntArray

__all__ = ["measured_episodes"]


def measured_episodes(M: int, every: int = 1, log: int | None = None) -> IntArray:
    """Return the numbers (n,) of the measured ones of M episodes, from 0.

    Parameters
    ----------
    every
        n of every n-th.
    log
        q of log-spaced ones; `every` must then be 1.

    Examples
    --------
    >>> from safedrift.results.measured import measured_episodes
    >>> measured_episodes(20, every=6).tolist()
    [0, 6, 12, 18]
    >>> measured_episodes(40, log=4).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33]
    """
    every = _check.integer("measure_every", every, upper=M)
    if log is None:
        return np.arange(0, M, every)
    log = _check.integer("measure_log", log, upper=10**6)
    if every != 1:
        _check.fail("measure_every", "1 where measure_log is given", every)
    found = [0]
    while (after := found[-1] + max(1, found[-1] // log)) < M:
        found.append(after)
    return np.array(found, np.int64)
