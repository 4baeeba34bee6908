"""What the filters of an adaptive window remember: room for them, and more of it.

Memory follows what was visited: at most H·S·A pairs with their observed successors, for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.tabular.filters import Cells, Experts, Grid
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
    signals: tuple[Experts, ...]  # 1+K
    binary: NDArray[np.bool_]  # (1+K,) only 0 and 1 were ever seen
    followed: NDArray[np.int64]  # (2+K,) filter of transitions, of reward and of utilities
    alarm: NDArray[np.bool_]  # (2+K,) raised by the last episode on the filter followed
    settings: FilterSettings


def make_filters(H: int, S: int, A: int, K: int, settings: FilterSettings) -> Filters:
    """Return filters that have seen nothing."""
    kinds = settings.moves.kappa.size, settings.signals.kappa.size
    pooling = settings.moves.omega.size
    return Filters(
        own=_make_cells(H * S * A, 1 + K, *kinds),
        pooled=_make_cells(S * A, 1 + K, *kinds),
        moves=_make_experts(kinds[0], pooling),
        signals=tuple(_make_experts(kinds[1], pooling) for _ in range(1 + K)),
        binary=np.ones(1 + K, bool),
        followed=np.zeros(2 + K, np.int64),
        alarm=np.zeros(2 + K, bool),
        settings=settings,
    )


def _make_cells(pairs: int, C: int, moves: int, signals: int) -> Cells:
    return Cells(
        index=np.full(pairs, -1, np.int32),
        used=np.zeros(2, np.int64),
        key=np.zeros(0, np.int64),
        last=np.zeros(0, np.int64),
        last_move=np.zeros(0, np.int64),
        n=np.zeros((0, moves)),
        scale=np.zeros((0, moves)),
        head=np.zeros(0, np.int32),
        signal=np.zeros((0, C, signals, 2)),
        edge_next=np.zeros(0, np.int32),
        edge_state=np.zeros(0, np.int32),
        edge_count=np.zeros((0, moves)),
    )


def _make_experts(rates: int, pooling: int) -> Experts:
    table = (rates, pooling)
    return Experts(
        weight=np.full(table, 1 / (rates * pooling)),
        v=np.full(table, 0.1),
        seen=np.zeros(1),
        C=np.zeros((rates, rates)),
        since=np.zeros((rates, rates), np.int64),
        excess=np.zeros((rates, rates, 2)),
        loss=np.zeros(table),
        product=np.ones(table),
        square=np.zeros(table),
    )


_PER_PAIR = ("key", "last", "last_move", "n", "scale", "head", "signal")
_PER_EDGE = ("edge_next", "edge_state", "edge_count")


def with_filter_room(filters: Filters, visits: int) -> Filters:
    """Return the same filters with room for so many more visits of pairs."""
    own, pooled = (_with_cells(cells, visits) for cells in (filters.own, filters.pooled))
    return filters._replace(own=own, pooled=pooled)


def _with_cells(cells: Cells, visits: int) -> Cells:
    pairs, edges = (int(count) for count in cells.used)
    pairs = min(pairs + visits, cells.index.size)
    return _longer(_longer(cells, _PER_PAIR, pairs), _PER_EDGE, edges + visits)


def _longer(cells: Cells, names: tuple[str, ...], wanted: int) -> Cells:
    """Return cells whose named arrays have at least `wanted` rows."""
    have = len(getattr(cells, names[0]))
    if wanted <= have:
        return cells
    changed: dict[str, NDArray[Any]] = {}
    for name in names:
        array = getattr(cells, name)
        changed[name] = np.zeros((max(wanted, 2 * have), *array.shape[1:]), array.dtype)
        changed[name][:have] = array
    return cells._replace(**changed)
