"""Events as the kernels keep them, in words."""

from __future__ import annotations

from safedrift._check import FloatArray
from safedrift.events import Event
from safedrift.kernels.tabular import events as columns

__all__ = ["Event", "events_of"]


def events_of(table: FloatArray, count: int) -> list[Event]:
    """Return the events in a table of the kernels, the oldest first."""
    n = len(table)
    rows = [table[i % n] for i in range(max(count - n, 0), count)]
    return sorted((_event(row) for row in rows), key=lambda event: event.episode)


def _event(row: FloatArray) -> Event:
    quantity, successor = int(row[columns.QUANTITY]), int(row[columns.SUCCESSOR])
    name = ("transition", "reward")[quantity] if quantity < 2 else f"utility {quantity - 2}"
    return Event(
        episode=int(row[columns.EPISODE]),
        quantity=name,
        step=int(row[columns.STEP]),
        state=int(row[columns.STATE]),
        action=int(row[columns.ACTION]),
        successor=successor if quantity == 0 else None,
        before=float(row[columns.BEFORE]),
        after=float(row[columns.AFTER]),
        alarms=int(row[columns.ALARMS]),
    )
