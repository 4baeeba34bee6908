"""Policies as learners return them: views of their tables; np.asarray(policy) is (H, S, A).

A policy of an episode copies nothing until it is asked for an array, so that an episode among
100,000 states costs what it visits. It can be read until the learner begins the next episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray

__all__ = ["DensePolicy", "GreedyPolicy", "Lease", "TabularPolicy", "draw_action"]


class Lease:
    """Whether a policy may still be read: not after its learner has moved on."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False

    def end(self) -> None:
        """Let the policy refuse to be read from now on."""
        self.over = True

    def check(self) -> None:
        """Refuse to read a policy whose tables have changed."""
        if self.over:
            raise RuntimeError(
                "this policy belongs to an earlier episode; np.array(policy) makes a copy to keep, "
                "before the next begin_episode"
            )


class TabularPolicy:
    """π_m as a view: `policy[h, s]` is a distribution, np.asarray(policy) a copy (H, S, A).

    States without an entry have the uniform policy. It can be read until the learner begins the
    next episode.

    Parameters
    ----------
    shape : (H, S, A)
    slots : (H,) how many states have an entry at each step
    state : (H, cap) which they are
    pi : (H, A, cap) their action probabilities

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> learner = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2))
    >>> policy = learner.begin_episode(world.thresholds[0])
    >>> type(policy).__name__, np.asarray(policy).shape, policy[0, 0].round(2).tolist()
    ('TabularPolicy', (10, 8, 3), [0.33, 0.33, 0.33])
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        slots: NDArray[Any],
        state: NDArray[Any],
        pi: FloatArray,
    ) -> None:
        self.shape = shape
        self.lease = Lease()
        self._slots, self._state, self._pi = slots, state, pi

    def __getitem__(self, key: tuple[int, int]) -> FloatArray:
        h, s = _step_and_state(key, self.shape)
        self.lease.check()
        found = np.flatnonzero(self._state[h, : self._slots[h]] == s)
        if found.size:
            return np.array(self._pi[h, :, found[0]])
        return np.full(self.shape[2], 1 / self.shape[2])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        self.lease.check()
        H, _, A = self.shape
        dense = np.full(self.shape, 1 / A)
        for h in range(H):
            n = self._slots[h]
            dense[h, self._state[h, :n]] = self._pi[h, :, :n].T
        return dense if dtype is None else dense.astype(dtype)


class GreedyPolicy:
    """A policy of one action per step and state, as a view of a table of actions.

    It can be read until the learner begins the next episode.

    Parameters
    ----------
    actions : (H, S)
    A : number of actions

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> policy = sd.learners.GreedyPolicy(np.array([[0, 1], [1, 1]]), A=2)
    >>> np.asarray(policy)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, actions: NDArray[Any], A: int) -> None:
        self.shape = (*actions.shape, A)
        self.lease = Lease()
        self._actions = actions

    def __getitem__(self, key: tuple[int, int]) -> FloatArray:
        h, s = _step_and_state(key, self.shape)
        self.lease.check()
        row = np.zeros(self.shape[2])
        row[self._actions[h, s]] = 1.0
        return row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        self.lease.check()
        dense: FloatArray = np.eye(self.shape[2])[self._actions]
        return dense if dtype is None else dense.astype(dtype)


class DensePolicy:
    """A policy as a view of a table (H, S, A) that the learner will change.

    It can be read until the learner begins the next episode.
    """

    def __init__(self, table: FloatArray) -> None:
        self.shape: tuple[int, int, int] = table.shape
        self.lease = Lease()
        self._table = table

    def __getitem__(self, key: tuple[int, int]) -> FloatArray:
        h, s = _step_and_state(key, self.shape)
        self.lease.check()
        return np.array(self._table[h, s])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        self.lease.check()
        return np.array(self._table, dtype=dtype)


def _step_and_state(key: object, shape: tuple[int, int, int]) -> tuple[int, int]:
    if not isinstance(key, tuple) or len(key) != 2:
        raise TypeError(f"policy[h, s] needs a step and a state; got {key!r}")
    h = _check.integer("h", key[0], lower=0, upper=shape[0] - 1)
    return h, _check.integer("s", key[1], lower=0, upper=shape[1] - 1)


def draw_action(distribution: FloatArray, u: float) -> int:
    """Return the action that a uniform u in [0, 1) draws from a distribution (A,).

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.learners import draw_action
    >>> [draw_action(np.array([0.5, 0.0, 0.5]), u) for u in (0.0, 0.49, 0.5, 0.99)]
    [0, 0, 2, 2]
    """
    chosen = int((u >= np.cumsum(distribution)).sum())
    while chosen >= len(distribution) or distribution[chosen] == 0.0:
        chosen -= 1  # u beyond a sum that rounded below 1
    return chosen
