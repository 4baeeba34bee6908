"""Changes of the world that a learner noticed, in the words of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safedrift.events import Event
from safedrift.learners import Learner

__all__ = ["noticed_events"]


def noticed_events(learner: Learner, names: Sequence[str]) -> list[Event]:
    """Return what `learner.events()` tells, with the names of the constraints where they have any.

    Parameters
    ----------
    names
        Of the K constraints; none where they have only numbers.
    """
    noticed = getattr(learner, "events", None)
    found: list[Event] = [] if noticed is None else noticed()
    if not names and learner.sizes.K > 1:
        return found
    called = {f"utility {k}": name for k, name in enumerate(names or ("utility",))}
    return [replace(x, quantity=called.get(x.quantity, x.quantity)) for x in found]
