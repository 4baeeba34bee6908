"""How fast something goes on, from what was seen of it lately."""

from __future__ import annotations

from collections import deque
from time import monotonic

__all__ = ["Pace"]

_WINDOW = 20.0  # seconds


class Pace:
    """Counts that were seen in the last seconds.

    Examples
    --------
    >>> from safedrift.watching.pace import Pace
    >>> pace = Pace()
    >>> pace.see(10, at=0.0), pace.see(30, at=4.0)
    (None, None)
    >>> pace.rate, pace.left(80)
    (5.0, 10.0)
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, count: int, at: float | None = None) -> None:
        """Note a count; one that is smaller than the last, or a first one again, starts again."""
        now = monotonic() if at is None else at
        waits = len(self._seen) == 1 and count == self._seen[0][1]
        if waits or (self._seen and count < self._seen[-1][1]):
            self._seen.clear()
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """How many per second; None if nothing has moved."""
        if len(self._seen) < 2:
            return None
        (start, before), (end, now) = self._seen[0], self._seen[-1]
        return (now - before) / (end - start) if now > before and end > start else None

    def left(self, total: int) -> float | None:
        """Seconds until `total` is reached."""
        rate = self.rate
        return None if rate is None else (total - self._seen[-1][1]) / rate
