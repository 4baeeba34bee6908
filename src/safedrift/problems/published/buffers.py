"""A buffer of packets that a link fills and a player empties.

One more with probability μ(1 - ℓ), one less with (1 - μ)ℓ, else the same: μ is the probability that
a packet arrives, ℓ that one leaves. A full and an empty buffer stay so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from safedrift.kernels.types import Successors
from safedrift.models.outcomes import outcomes

__all__ = ["buffer_transitions"]


def buffer_transitions(S: int, links: Sequence[float], playout: float, H: int) -> Successors:
    """Return P of a buffer with states 0 to S - 1; each action is a link."""
    x = np.arange(S)[:, None, None]
    after = np.clip(x + np.array([-1, 0, 1]), 0, S - 1)
    mu = np.asarray(links, dtype=np.float64)[:, None]
    less, more = (1 - mu) * playout, mu * (1 - playout)
    chance = np.concatenate((less, mu * playout + (1 - mu) * (1 - playout), more), axis=1)
    return outcomes(np.broadcast_to(after, (S, mu.size, 3)), chance, H)
