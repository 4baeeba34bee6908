"""Counts and sums over a window of episodes, in NumPy: for learners whose planning costs more.

    visits (H, S, A), transitions (H-1, S, A, S), signals (1+K, H, S, A)

What is forgotten before an episode is what a `Schedule` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray
from safedrift.kernels.records import Schedule

__all__ = ["WindowCounts"]


class WindowCounts:
    """Visits, transitions and sums of signals.

    Parameters
    ----------
    held
        Episodes that are held one by one, to be dropped one by one; 0 if none ever is.
    """

    def __init__(self, H: int, S: int, A: int, K: int, held: int) -> None:
        self.visits = np.zeros((H, S, A))
        self.transitions = np.zeros((H - 1, S, A, S))
        self.signals = np.zeros((1 + K, H, S, A))
        self._states = np.zeros((held, H), np.int64)  # a ring: episode m in row m % held
        self._actions = np.zeros((held, H), np.int64)
        self._signals = np.zeros((held, 1 + K, H))
        self._added = 0

    def forget(self, schedule: Schedule) -> None:
        """Forget what row 0 of the schedule says."""
        if schedule.opens_window[0]:
            for sums in (self.visits, self.transitions, self.signals):
                sums[:] = 0.0
        if schedule.drops[0]:
            row = self._added % len(self._states)  # the oldest
            self._count(self._states[row], self._actions[row], self._signals[row], -1.0)
        if schedule.discount[0] < 1.0:
            for sums in (self.visits, self.transitions, self.signals):
                sums *= schedule.discount[0]

    def add(self, states: NDArray[Any], actions: NDArray[Any], signals: FloatArray) -> None:
        """Count an episode: states and actions (H,), signals (1+K, H)."""
        self._count(states, actions, signals, 1.0)
        if len(self._states):
            row = self._added % len(self._states)
            self._states[row], self._actions[row] = states, actions
            self._signals[row] = signals
        self._added += 1

    def _count(
        self, states: NDArray[Any], actions: NDArray[Any], signals: FloatArray, weight: float
    ) -> None:
        h = np.arange(len(self.visits))
        self.visits[h, states, actions] += weight
        self.transitions[h[:-1], states[:-1], actions[:-1], states[1:]] += weight
        self.signals[:, h, states, actions] += weight * signals

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays that are nobody else's."""
        return {f"counts.{name}": np.array(value) for name, value in vars(self).items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        for name in vars(self):
            value = np.array(state[f"counts.{name}"])
            setattr(self, name, int(value) if name == "_added" else value)
