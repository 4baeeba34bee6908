"""Policies as learners return them: sparse tables in, np.asarray(policy) (H, S, A) out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray

__all__ = ["TabularPolicy", "draw_action"]


class TabularPolicy:
    """A snapshot of π_m: `policy[h, s]` is a distribution, np.asarray(policy) is (H, S, A).

    States without an entry have the uniform policy.

    Parameters
    ----------
    shape : (H, S, A)
    slots : (H,) how many states have an entry at each step
    state : (H, cap) which they are
    pi : (H, A, cap) their action probabilities
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        slots: NDArray[Any],
        state: NDArray[Any],
        pi: FloatArray,
    ) -> None:
        self.shape = shape
        self._slots, self._state, self._pi = slots, state, pi

    def __getitem__(self, key: tuple[int, int]) -> FloatArray:
        H, S, A = self.shape
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"policy[h, s] needs a step and a state; got {key!r}")
        h = _check.integer("h", key[0], lower=0, upper=H - 1)
        s = _check.integer("s", key[1], lower=0, upper=S - 1)
        found = np.flatnonzero(self._state[h, : self._slots[h]] == s)
        if found.size:
            return np.asarray(self._pi[h, :, found[0]])
        return np.full(A, 1 / A)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        H, _, A = self.shape
        dense = np.full(self.shape, 1 / A)
        for h in range(H):
            n = self._slots[h]
            dense[h, self._state[h, :n]] = self._pi[h, :, :n].T
        return dense if dtype is None else dense.astype(dtype)


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
