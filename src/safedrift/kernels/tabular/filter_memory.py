"""What the filters of an adaptive window remember: room for them, and more of it.

Memory follows what was visited: at most H·S·A pairs with their observed successors, for ever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.tabular.filters import (
    Cells,
    Experts,
    Grid,
    make_cells,
    make_experts,
    make_several_experts,
    with_room,
)
from safedrift.kernels.types import FloatArray


class FilterSettings(NamedTuple):
    """Numbers that filters are built with."""

    moves: Grid
    signals: Grid
    limits: FloatArray  # (2,) of the alarm statistics of transitions and of signals


class Filters(NamedTuple):
    """What the filters of one learner know, and which of them its window follows."""

    own: Cells
    pooled: Cells
    moves: Experts
    signals: Experts  # of 1+K quantities
    binary: NDArray[np.bool_]  # (1+K,) only 0 and 1 were ever seen
    followed: NDArray[np.int64]  # (2+K,) filter of transitions, of reward and of utilities
    alarm: NDArray[np.bool_]  # (2+K,) raised by the last episode on the filter followed
    settings: FilterSettings


def make_filters(H: int, S: int, A: int, K: int, settings: FilterSettings) -> Filters:
    """Return filters that have seen nothing."""
    kinds = settings.moves.kappa.size, settings.signals.kappa.size
    pooling = settings.moves.omega.size
    return Filters(
        own=make_cells(H * S * A, 1 + K, *kinds),
        pooled=make_cells(S * A, 1 + K, *kinds),
        moves=make_experts(kinds[0], pooling, 0.5 / S),
        signals=make_several_experts(1 + K, kinds[1], pooling, 0.1),
        binary=np.ones(1 + K, bool),
        followed=np.zeros(2 + K, np.int64),
        alarm=np.zeros(2 + K, bool),
        settings=settings,
    )


def with_filter_room(filters: Filters, visits: int) -> Filters:
    """Return the same filters with room for so many more visits of pairs."""
    own, pooled = (with_room(cells, visits) for cells in (filters.own, filters.pooled))
    return filters._replace(own=own, pooled=pooled)
