"""Events: what changed when a filter was found wrong.

An event names the pair whose estimate differs most between the filter that was wrong and the one
that was right, and both estimates. Alarms of the same quantity that follow each other within
`BURST` episodes are one event; it keeps the largest difference. The last `len(table)` events are
kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.types import FloatArray, jit_part

BURST = 50
EPISODE, QUANTITY, STEP, STATE, ACTION, SUCCESSOR, BEFORE, AFTER, ALARMS = range(9)
"""Columns: QUANTITY is 0 for transitions, 1 for the reward, 2, ... for utilities."""


class Events(NamedTuple):
    """The last events."""

    table: FloatArray  # (n, 9)
    count: NDArray[np.int64]  # type: ignore[assignment]  # (1,) events so far
    place: NDArray[np.int64]  # (2+K,) row of the last event of each quantity, or -1
    last: NDArray[np.int64]  # (2+K,) episode of its last alarm


def make_events(n, quantities):
    """Return room for n events of so many quantities."""
    return Events(
        np.zeros((n, 9)),
        np.zeros(1, np.int64),
        np.full(quantities, -1),
        np.zeros(quantities, np.int64),
    )


@jit_part
def note_signal(events, own, cells, plan, i, k, j, since, m):
    """Note that filter k was wrong about signal i since an episode, and j right.

    `own` has the pairs that were visited, `cells` what was wrong of them: `own`, or pooled cells.
    """
    row = open_event(events, 1 + i, m)
    _, S, A = plan.policy.shape
    for c in range(own.used[0]):
        if own.last[c] >= since:
            d = cells.index[own.key[c] % cells.index.size]
            if cells.signal[d, i, j, 0] > 0.0:
                before, after = cells.signal[d, i, k, 1], cells.signal[d, i, j, 1]
                keep_larger(events.table[row], own.key[c], S, A, -1, before, after)


@jit_part
def note_move(events, own, cells, plan, k, j, since, m):
    """Note that filter k was wrong about transitions since an episode, and j right."""
    row = open_event(events, 0, m)
    _, S, A = plan.policy.shape
    for c in range(own.used[0]):
        if own.last_move[c] < since:
            continue
        d = cells.index[own.key[c] % cells.index.size]
        if cells.n[d, k] > 0.0 and cells.n[d, j] > 0.0:
            e = cells.head[d]
            while e >= 0:
                before = cells.edge_count[e, k] * cells.scale[d, k] / cells.n[d, k]
                after = cells.edge_count[e, j] * cells.scale[d, j] / cells.n[d, j]
                state = cells.edge_state[e]
                keep_larger(events.table[row], own.key[c], S, A, state, before, after)
                e = cells.edge_next[e]


@jit_part
def open_event(events, quantity, m):
    """Return the row of the event that an alarm belongs to, a new one if need be."""
    row = events.place[quantity]
    fresh = row < 0 or m - events.last[quantity] > BURST
    events.last[quantity] = m
    if fresh or events.table[row, QUANTITY] != quantity:
        row = events.count[0] % events.table.shape[0]
        for other in range(events.place.size):
            if events.place[other] == row:
                events.place[other] = -1
        events.count[0] += 1
        events.place[quantity] = row
        for column in range(events.table.shape[1]):
            events.table[row, column] = 0.0
        events.table[row, EPISODE] = m
        events.table[row, QUANTITY] = quantity
        events.table[row, STEP] = -1.0  # no pair yet
    events.table[row, ALARMS] += 1.0
    return row


@jit_part
def keep_larger(event, pair, S, A, successor, before, after):
    """Write a pair and its estimates, if they differ more than those that stand there.

    The first pair is written in any case: filters that pool may disagree where all estimates of
    single pairs agree.
    """
    if event[STEP] < 0.0 or abs(after - before) > abs(event[AFTER] - event[BEFORE]):
        event[STEP] = pair // (S * A)
        event[STATE] = pair // A % S
        event[ACTION] = pair % A
        event[SUCCESSOR] = successor
        event[BEFORE] = before
        event[AFTER] = after
