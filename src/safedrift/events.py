"""Events: changes of the world that a learner noticed, in words.

episode 5,020: reward at step 3, state 14, action 1: 1.00 -> 0.00
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Event"]


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
    >>> from safedrift.events import Event
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
