"""Forgetting: which data and which policy a learner gives up before each episode.

    Periodic(W, L)           discard all data every W episodes, the policy every L (the paper)
    Never()                  keep everything, for worlds that do not drift
    SlidingWindow(W, L)      keep a window of W episodes, the current one included
    Discount(factor, L)      multiply all counts and sums by `factor` after every episode
    Homogeneity()            keep what looks like the present: a test of old against new data
    Adaptive()               as filters say that predict what is seen next; told nothing

A forgetting decides, kernels obey: they are told `opens_window`, `drops`, `discount` and `restarts`
for each episode and do no arithmetic on episode numbers. Only the last two depend on the data: test
and filters are part of a learner's memory and decide in compiled code.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.elementary import log
from safedrift.kernels.records import Schedule
from safedrift.kernels.tabular.filter_memory import Filters, FilterSettings, make_filters
from safedrift.kernels.tabular.filters import Grid
from safedrift.kernels.tabular.homogeneity_memory import HomogeneityTest, make_test
from safedrift.kernels.tabular.memory import Memory, make_memory
from safedrift.knowledge import Sizes

__all__ = [
    "Adaptive",
    "Discount",
    "Forgetting",
    "Homogeneity",
    "Never",
    "Periodic",
    "SlidingWindow",
    "alarmed",
    "forgetting_from",
    "named_forgetting",
    "record",
    "shown_alarms",
    "window_memory",
]


class Forgetting(Protocol):
    """A rule that says what to forget before each episode.

    Examples
    --------
    >>> import safedrift as sd
    >>> rule = sd.learners.SlidingWindow(W=100)
    >>> rule.held  # episodes that must be held one by one
    100
    """

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
    """Keep all data and never restart the policy.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.learners.Never()
    Never()
    """

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

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.learners.SlidingWindow(W=500).held
    500
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

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.learners.Discount(factor=0.99)  # 100 episodes count
    Discount(factor=0.99, L=None)
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


@dataclass(frozen=True)
class Homogeneity:
    """Keep all data until old and new ones differ, then keep the new ones.

    Nothing is told, neither M nor a length. After every visit of a pair its rewards, utilities and
    successors are cut in two at some twenty places, and the two parts are compared by a generalised
    likelihood ratio for numbers in [0, 1] (`kernels.tabular.homogeneity`). Where they differ too
    much, that is an alarm: the trace has it under "alarm", for transitions, reward, utility 1, ...,
    and what all pairs showed before the cut is dropped. Policies are not restarted.

    The test assumes nothing of the noise. So it takes as long to notice a change where signals are
    exact as where they are 0 or 1 at random, and slow drift is followed in jumps.

    Parameters
    ----------
    false_alarm_rate
        Upper bound on alarms per episode, of all pairs and quantities together, while the world
        stands still, in (0, 1]. Of 0.1, 10⁻², 10⁻³ and 10⁻⁵ the last was the best for `opt-cmdp`
        on six calibration worlds (`experiments.evaluation`), by little.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=100)
    >>> learner = sd.learners.make("opt-cmdp", world, forgetting="homogeneity")
    >>> learner.settings()["forgetting"]
    {'kind': 'Homogeneity', 'false_alarm_rate': 1e-05}
    """

    false_alarm_rate: float = 1e-5

    held = 0

    def __post_init__(self) -> None:
        _check.positive("false_alarm_rate", self.false_alarm_rate, upper=1.0)

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0): a test decides."""
        return _schedule(np.arange(first, first + episodes))

    def test(self, sizes: Sizes) -> HomogeneityTest:
        """Return a test that has seen nothing, for a problem of these sizes."""
        _, H, S, A, K = sizes
        streams = H * (1 + K) + (H - 1) * S
        return make_test(H, A, K, float(log([streams / self.false_alarm_rate])[0]))


# Drift rates per episode of the filters, each ten times the one before; 1 forgets all but the last.
MOVE_RATES = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SIGNAL_RATES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0)


@dataclass(frozen=True)
class Adaptive:
    """Let filters with several drift rates decide, by what they predict, how much data count.

    Nothing is told: neither M nor budgets nor a gap. The counts of the window are those of the
    filter that has predicted best (`kernels.tabular.adaptive_window`), separately for transitions,
    reward and each utility. When the filter that is followed is shown to be wrong, that is an
    alarm: the trace has it under "alarm", for transitions, reward, utility 1, ..., in the episode
    that raised it. A slower change moves the weight to a faster filter without one. Policies are
    not restarted: one that is improved by mirror steps without entropy is slow to leave what it
    learnt before a change.

    Parameters
    ----------
    false_alarms
        Upper bound on alarms per episode and quantity while a filter is right, in (0, 1]: an alarm
        needs a likelihood ratio of (pairs of filters)/false_alarms, and Ville's inequality and a
        union bound give the rest.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=100)
    >>> learner = sd.learners.make("opt-cmdp", world, forgetting="adaptive")
    >>> sd.simulate(world, learner).trace["alarm"].shape  # transitions, reward, one utility
    (100, 3)
    """

    false_alarms: float = 1e-5

    held = 0

    def __post_init__(self) -> None:
        _check.positive("false_alarms", self.false_alarms, upper=1.0)

    def schedule(self, first: int, episodes: int) -> Schedule:
        """Return what to forget before episodes first, first + 1, ... (from 0): filters decide."""
        return _schedule(np.arange(first, first + episodes))

    def filters(self, sizes: Sizes) -> Filters:
        """Return filters that have seen nothing, for a problem of these sizes."""
        moves, signals = (np.array(rates) for rates in (MOVE_RATES, SIGNAL_RATES))
        alone = np.zeros(1)  # no pooling over steps
        pairs = np.array([rates.size * (rates.size - 1) / 2 for rates in (moves, signals)])
        limits = log(pairs / self.false_alarms)
        settings = FilterSettings(
            Grid(moves, np.ones(moves.size), alone),
            Grid(signals, np.ones(signals.size), alone),
            limits,
        )
        return make_filters(*sizes[1:], settings)


def window_memory(forgetting: Forgetting, sizes: Sizes, C: int, initial: FloatArray) -> Memory:
    """Return the memory of a learner with counts and C channels whose window forgets like this."""
    held = forgetting.held if sizes.M is None else min(forgetting.held, sizes.M)
    filters = forgetting.filters(sizes) if isinstance(forgetting, Adaptive) else None
    test = forgetting.test(sizes) if isinstance(forgetting, Homogeneity) else None
    return make_memory(*sizes[1:], C, initial, held, filters, test)


def alarmed(memory: Any) -> bool:
    """Whether the last episode of a learner with this memory, of any kind, raised an alarm."""
    alarm = _last_alarms(memory)
    return alarm is not None and bool(alarm.any())


def shown_alarms(memory: Any, alarms: NDArray[np.bool_] | None = None) -> dict[str, Any]:
    """Return the trace's column of alarms (..., 2+K), by default those of the last episode."""
    last = _last_alarms(memory)
    if last is None:
        return {}
    return {"alarm": last.copy() if alarms is None else alarms}


def _last_alarms(memory: Any) -> NDArray[np.bool_] | None:
    """Alarms (2+K,) of the last episode, where the window's filters or test raise any."""
    for name in ("filters", "test"):
        part: Filters | HomogeneityTest | None = getattr(memory, name, None)
        if part is not None:
            return part.alarm
    return None


_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Periodic, Never, SlidingWindow, Discount, Homogeneity, Adaptive)
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


NAMES = ("never", "periodic", "sliding", "discounted", "homogeneity", "adaptive")


def named_forgetting(kind: str, window: int | None, M: int | None) -> Forgetting:
    """Return a forgetting by name, with a window of so many episodes.

    Parameters
    ----------
    kind
        "never", "periodic", "sliding", "discounted" (by 1 - 1/window), "homogeneity" or "adaptive".
        A periodic one restarts the policy with the data, the others never do.
    window
        By default M^(3/4) (periodic, sliding) or M^(2/3) (discounted), rounded: the best of three
        that were tried for planning learners on the worlds of `problems.random`, M = 20,000.
        "never", "homogeneity" and "adaptive" have none.
    M
        Number of episodes; None where there is no last one: a window must then be given.

    Examples
    --------
    >>> from safedrift.learners.forgetting import named_forgetting
    >>> named_forgetting("sliding", None, M=1000)
    SlidingWindow(W=178, L=None)
    """
    _check.choice("forgetting", kind, NAMES)
    if kind == "adaptive":
        return Adaptive()
    if kind == "homogeneity":
        return Homogeneity()
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
