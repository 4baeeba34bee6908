"""One episode's world: a finite-horizon constrained MDP with finitely many states and actions.

    maximise   V_r(π) = E[ Σ_h r_h(x_h, a_h) ]
    subject to V_g,k(π) = E[ Σ_h g_k,h(x_h, a_h) ] ≥ b_k   for k = 1..K

over policies π_h(a | x), with x_1 ~ initial and x_{h+1} ~ P_h(· | x_h, a_h), h = 1..H
(eq. 2 of the paper). The sign is the paper's: **utility ≥ threshold**.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.successors import successor_lists
from safedrift.kernels.types import Successors

__all__ = ["Successors", "TabularCMDP", "distinct_rows", "from_costs", "successor_lists"]


W = TypeVar("W")


class Shape(NamedTuple):
    """Sizes of a world: steps, states, actions, constraints."""

    H: int
    S: int
    A: int
    K: int


@dataclass(frozen=True, eq=False)
class TabularCMDP:
    """A constrained MDP of one episode. All arrays are validated when it is built.

    Parameters
    ----------
    transitions : array (H, S, A, S) or Successors
        P_h(x' | x, a), dense, or as successor lists when S*S numbers are too many.
    rewards : array (H, S, A)
        In [0, 1].
    utilities : array (K, H, S, A)
        In [0, 1], one slice per constraint.
    thresholds : array (K,)
        b_k in (0, H].
    initial : array (S,)
        Distribution of the first state.

    Examples
    --------
    One state, two steps. Action 0 earns reward, action 1 is safe:

    >>> import numpy as np
    >>> import safedrift as sd
    >>> cmdp = sd.TabularCMDP(
    ...     transitions=np.ones((2, 1, 2, 1)),
    ...     rewards=np.broadcast_to([1.0, 0.0], (2, 1, 2)),
    ...     utilities=np.broadcast_to([0.0, 1.0], (1, 2, 1, 2)),
    ...     thresholds=[0.5],
    ...     initial=[1.0],
    ... )
    >>> cmdp.shape
    Shape(H=2, S=1, A=2, K=1)
    """

    transitions: FloatArray | Successors
    rewards: FloatArray
    utilities: FloatArray
    thresholds: FloatArray
    initial: FloatArray

    def __post_init__(self) -> None:
        rewards = _check.floats("rewards", self.rewards, ("H", "S", "A"))
        H, S, A = rewards.shape
        utilities = _check.floats("utilities", self.utilities, ("K", H, S, A))
        thresholds = _check.floats("thresholds", self.thresholds, (utilities.shape[0],))
        initial = _check.floats("initial", self.initial, (S,))
        for name, values in (("rewards", rewards), ("utilities", utilities)):
            _check.everywhere(name, values, (values >= 0) & (values <= 1), "in [0, 1]")
        ok = (thresholds > 0) & (thresholds <= H)
        _check.everywhere("thresholds", thresholds, ok, f"in (0, H] = (0, {H}]")
        _check.distribution("initial", initial)
        transitions: FloatArray | Successors
        if isinstance(self.transitions, Successors):
            transitions = _check.successors("transitions", self.transitions, H, S, A)
        else:
            transitions = _check.floats("transitions", self.transitions, (H, S, A, S))
            _check.distribution("transitions", transitions)
        for name, value in (
            ("transitions", transitions),
            ("rewards", rewards),
            ("utilities", utilities),
            ("thresholds", thresholds),
            ("initial", initial),
        ):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> Shape:
        """Sizes (H, S, A, K)."""
        K, H, S, A = self.utilities.shape
        return Shape(H, S, A, K)

    @cached_property
    def successors(self) -> Successors:
        """The transitions as successor lists, without zeros."""
        if isinstance(self.transitions, Successors):
            return self.transitions
        return successor_lists(self.transitions)

    def dense_transitions(self) -> FloatArray:
        """Return P as an array (H, S, A, S)."""
        if not isinstance(self.transitions, Successors):
            return self.transitions
        H, S, A, _ = self.shape
        offsets, states, probabilities = self.transitions
        dense = np.zeros((H * S * A, S))
        rows = np.repeat(np.arange(H * S * A), np.diff(offsets))
        np.add.at(dense, (rows, states), probabilities)
        return dense.reshape(H, S, A, S)


ROWS_AT_ONCE = 2**16  # where temporary arrays of all M episodes would be the peak of memory


def row_blocks(M: int) -> Iterator[slice]:
    """Yield slices that cover M rows, a bounded number of rows each."""
    return (slice(start, start + ROWS_AT_ONCE) for start in range(0, M, ROWS_AT_ONCE))


def distinct_rows(*parts: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """First index of each distinct row, in order of appearance, and the number of each row.

    A row is a row (M, n) of all parts together. Only rows that differ from the one before are
    copied, so that a path with few jumps needs little memory.
    """
    M = parts[0].shape[0]
    changed = np.zeros(M, np.bool_)
    changed[:1] = True
    for part in parts:
        for block in row_blocks(M - 1):
            now, before = part[1:][block], part[:-1][block]
            changed[1:][block] |= (now != before).any(axis=1)
    starts = np.flatnonzero(changed)
    rows = np.ascontiguousarray(np.hstack([part[starts] for part in parts]), np.float64)
    rows += 0.0  # -0.0 becomes 0.0: rows are compared byte by byte
    packed = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    number = np.cumsum(changed, dtype=np.int64)
    number -= 1
    return starts[first[order]], rank[inverse][number]


def checked_thresholds(thresholds: ArrayLike, M: int, K: int, H: int) -> FloatArray:
    """Check the thresholds (M, K) of a drifting world."""
    checked = _check.floats("thresholds", thresholds, (M, K))
    ok = (checked > 0) & (checked <= H)
    _check.everywhere("thresholds", checked, ok, f"in (0, H] = (0, {H}]")
    return checked


def replace_thresholds(world: W, thresholds: ArrayLike) -> W:
    """Return a copy of a drifting world with other thresholds (M, K)."""
    other: Any = copy(world)
    other.__dict__.pop("distinct", None)
    other.thresholds = checked_thresholds(thresholds, other.M, other.K, other.H)
    if "arrays" in other.__dict__:
        other.__dict__["arrays"] = other.arrays._replace(thresholds=other.thresholds.copy())
    same: W = other
    return same


def from_costs(costs: ArrayLike, limits: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Turn costs in [0, 1] with limits on their sum into utilities and thresholds.

    The only place where "cost ≤ limit" becomes "utility ≥ threshold":
    g = 1 - c and b = H - limit.

    Parameters
    ----------
    costs : array (K, H, S, A)
    limits : array (..., K)
        Largest allowed expected cost of an episode, in [0, H).

    Examples
    --------
    >>> import numpy as np, safedrift as sd
    >>> utilities, thresholds = sd.from_costs(np.full((1, 5, 2, 3), 0.25), [1.5])
    >>> utilities.shape, thresholds
    ((1, 5, 2, 3), array([3.5]))
    """
    costs = _check.floats("costs", costs, ("K", "H", "S", "A"))
    K, H = costs.shape[:2]
    _check.everywhere("costs", costs, (costs >= 0) & (costs <= 1), "in [0, 1]")
    limits = np.asarray(limits, dtype=np.float64)
    if limits.ndim == 0 or limits.shape[-1] != K:
        _check.fail("limits", f"one for each of the K = {K} costs", f"shape {limits.shape}")
    _check.everywhere("limits", limits, (limits >= 0) & (limits < H), f"in [0, H) = [0, {H})")
    return 1.0 - costs, H - limits
