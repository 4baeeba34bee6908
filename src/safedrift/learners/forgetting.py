"""Forgetting: which data and which policy a learner gives up before each episode.

    Periodic(W, L)           discard all data every W episodes, the policy every L (the paper)
    Never()                  keep everything, for worlds that do not drift
    SlidingWindow(W, L)      keep a window of W episodes, the current one included
    Discount(factor, L)      multiply all counts and sums by `factor` after every episode

A forgetting decides, kernels obey: they are told `opens_window`, `drops`, `discount` and `restarts`
for each episode and do no arithmetic on episode numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from safedrift import _check
from safedrift._check import IntArray
from safedrift.kernels.records import Schedule

__all__ = [
    "Discount",
    "Forgetting",
    "Never",
    "Periodic",
    "SlidingWindow",
    "forgetting_from",
    "named_forgetting",
]


class Forgetting(Protocol):
    """A rule that says what to forget before each episode."""

    @property
    def held(self) -> int:
        """Episodes that must be held one by one; 0 where none is ever dropped alone."""

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0)."""


@dataclass(frozen=True)
class Periodic:
    """Discard all data every `W` episodes and the policy every `L` episodes, as in the paper.

    Examples
    --------
    >>> from safedrift.learners.forgetting import Periodic
    >>> Periodic(W=2, L=3).schedule(first=0, episodes=4).opens_window
    array([ True, False,  True, False])
    """

    W: int
    L: int

    held = 0

    def __post_init__(self) -> None:
        _check.integer("W", self.W)
        _check.integer("L", self.L)

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0)."""
        m = np.arange(first, first + episodes)
        return _schedule(m, opens_window=m % self.W == 0, restarts=m % self.L == 0)


@dataclass(frozen=True)
class Never:
    """Keep all data and never restart the policy."""

    held = 0

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0)."""
        return _schedule(np.arange(first, first + episodes))


@dataclass(frozen=True)
class SlidingWindow:
    """Keep a window of `W` episodes; restart the policy every `L`, or never.

    The window ends with the current episode, as a W-block of `Periodic` does: its policy is
    evaluated on the W - 1 episodes before it. Memory holds the W episodes themselves, and the cost
    of an episode follows what they visited.
    """

    W: int
    L: int | None = None

    def __post_init__(self) -> None:
        _check.integer("W", self.W)
        _check_period(self.L)

    @property
    def held(self) -> int:
        """Episodes that must be held one by one: W."""
        return self.W

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0)."""
        m = np.arange(first, first + episodes)
        return _schedule(m, drops=m >= self.W, restarts=_restarts(m, self.L))


@dataclass(frozen=True)
class Discount:
    """Multiply counts and sums by `factor` in (0, 1) before every episode.

    Data of age n count factor^n; 1/(1 - factor) episodes is the effective window. Restart the
    policy every `L` episodes, or never.
    """

    factor: float
    L: int | None = None

    held = 0

    def __post_init__(self) -> None:
        _check.positive("factor", self.factor, upper=1.0, closed=False)
        _check_period(self.L)

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0)."""
        m = np.arange(first, first + episodes)
        factor = np.where(m > 0, self.factor, 1.0)
        return _schedule(m, discount=factor, restarts=_restarts(m, self.L))


_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Periodic, Never, SlidingWindow, Discount)
}


def record(forgetting: Forgetting) -> dict[str, Any]:
    """Return a forgetting as plain data."""
    return {"kind": type(forgetting).__name__, **asdict(forgetting)}  # type: ignore[call-overload]


def forgetting_from(data: dict[str, Any]) -> Forgetting:
    """Read what `record` returned."""
    chosen = dict(data)
    kind = _KINDS[_check.choice("forgetting", chosen.pop("kind", ""), tuple(_KINDS))]
    found: Forgetting = kind(**chosen)
    return found


def named_forgetting(kind: str, window: int | None, M: int | None) -> Forgetting:
    """Return a forgetting by name, with a window of so many episodes.

    Parameters
    ----------
    kind
        "never", "periodic", "sliding" or "discounted" (by 1 - 1/window). A periodic one restarts
        the policy with the data, the last two never do.
    window
        By default M^(3/4) (periodic, sliding) or M^(2/3) (discounted), rounded: the best of three
        that were tried for planning learners on the worlds of `problems.random`, M = 20,000.
    M
        Number of episodes; None where there is no last one: a window must then be given.

    Examples
    --------
    >>> from safedrift.learners.forgetting import named_forgetting
    >>> named_forgetting("sliding", None, M=1000)
    SlidingWindow(W=178, L=None)
    """
    _check.choice("forgetting", kind, ("never", "periodic", "sliding", "discounted"))
    exponent = 2 / 3 if kind == "discounted" else 3 / 4
    if window is not None:
        W = _check.integer("window", window)
    elif kind == "never":
        return Never()
    elif M is None:
        _check.fail("M", "an integer >= 1 unless window is given", None)
    else:
        W = round(M**exponent)
    if kind == "never":
        return Never()
    if kind == "periodic":
        return Periodic(W, W)
    return SlidingWindow(W) if kind == "sliding" else Discount(1 - 1 / max(W, 2))


def _check_period(L: int | None) -> None:
    if L is not None:
        _check.integer("L", L)


def _restarts(m: IntArray, L: int | None) -> np.ndarray:
    return np.asarray(m % (L or np.iinfo(np.int64).max) == 0)


def _schedule(
    m: IntArray,
    *,
    opens_window: np.ndarray | None = None,
    drops: np.ndarray | None = None,
    discount: np.ndarray | None = None,
    restarts: np.ndarray | None = None,
) -> Schedule:
    """Fill in what is not given: a window opens and a policy starts at episode 0, once."""
    first = m == 0
    return Schedule(
        opens_window=first if opens_window is None else opens_window,
        drops=np.zeros(m.size, bool) if drops is None else drops,
        discount=np.ones(m.size) if discount is None else discount,
        restarts=first if restarts is None else restarts,
    )
