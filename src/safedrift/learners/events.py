"""Events: changes of the world that a learner noticed, in words.

episode 5,020: reward at step 3, state 14, action 1: 1.00 -> 0.00
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from safedrift._check import FloatArray
from safedrift.kernels.tabular import events as columns

__all__ = ["Event", "events_of"]


@dataclass(frozen=True)
class Event:
    """A change that was noticed after an episode.

    Attributes
    ----------
    episode : after which it was noticed first
    quantity : "transition", "reward", or "utility 0", "utility 1", ...
    step, state, action : the pair whose estimate changed most
    successor : of a transition, else None
    before, after : estimates
    alarms : how many in a row belong to it

    Examples
    --------
    >>> from safedrift.learners.events import Event
    >>> str(Event(5020, "reward", 3, 14, 1, None, 1.0, 0.0, 2))
    'episode 5,020: reward at step 3, state 14, action 1: 1.00 -> 0.00'
    """

    episode: int
    quantity: str
    step: int
    state: int
    action: int
    successor: int | None
    before: float
    after: float
    alarms: int

    def __str__(self) -> str:
        where = f"step {self.step}, state {self.state}, action {self.action}"
        to = "" if self.successor is None else f", to state {self.successor}"
        change = f"{self.before:.2f} -> {self.after:.2f}"
        return f"episode {self.episode:,}: {self.quantity} at {where}{to}: {change}"

    def record(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


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
