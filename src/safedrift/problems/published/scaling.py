"""Published numbers and ours: a sum over an episode in one scale, and in the other.

    published = per_unit * V + per_step * H

Rewards and utilities lie in [0, 1] here and constraints ask for utility. A published cost c with a
limit C is a utility 1 - c/c_max and a threshold H - C/c_max: per_unit = -c_max, per_step = c_max.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COST", "SAME", "Published", "Scale"]


class Scale(NamedTuple):
    """How a published sum over an episode follows from a value.

    Examples
    --------
    >>> COST.published(18.5, H=20), COST.ours(1.5, H=20)  # of 20 steps, 18.5 cost nothing
    (1.5, 18.5)
    """

    per_unit: float
    per_step: float

    def published(self, value: float, H: int) -> float:
        """Return the published number for a value."""
        return self.per_unit * value + self.per_step * H

    def ours(self, number: float, H: int) -> float:
        """Return the value for a published number."""
        return (number - self.per_step * H) / self.per_unit


SAME = Scale(1.0, 0.0)
COST = Scale(-1.0, 1.0)  # costs in [0, 1]


class Published(NamedTuple):
    """An experiment as its authors ran it.

    Attributes
    ----------
    reward, constraint
        Scales of their reward, or what they minimise, and of their cost or utility.
    """

    paper: str
    episodes: int
    runs: int
    reward: Scale
    constraint: Scale
