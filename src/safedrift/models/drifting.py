"""Drifting CMDPs: N scenarios, and convex weights of the scenarios in every episode.

    P^m = Σ_n w_P[m,n] P_n,  r^m = Σ_n w_r[m,n] r_n,  g^m = Σ_n w_g[m,n] g_n,  b_m = thresholds[m]

The model is linear in the weights. So variation budgets follow from distances between scenarios
instead of M passes over the arrays, and simulation draws first a scenario and then a successor
instead of computing P^m.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.probability import running_sums
from safedrift.kernels.sums import product
from safedrift.kernels.types import Successors, TableArrays, WeightPath
from safedrift.models.linear import LinearKernelCMDP
from safedrift.models.reductions import linear_kernel_of
from safedrift.models.tabular import (
    TabularCMDP,
    checked_thresholds,
    distinct_rows,
    replace_thresholds,
    row_blocks,
)
from safedrift.scale import Scale

__all__ = ["DriftingCMDP"]


class DriftingCMDP:
    """A constrained MDP that changes from episode to episode.

    Parameters
    ----------
    scenarios : sequence of TabularCMDP
        N worlds of one shape and one initial distribution.
    weights : array (M, N) of floats, or array (M,) of ints
        Convex weights of the scenarios in each episode; an int selects one scenario.
    transition_weights, reward_weights, utility_weights : like `weights`, optional
        Separate paths; each defaults to `weights`.
    thresholds : array (M, K), optional
        b_m; by default the scenarios' thresholds mixed by `weights`.
    scale : Scale, optional
        Units of rewards and constraints, for results; the arrays are in [0, 1] all the same.

    Examples
    --------
    A threshold that rises linearly from 0.5 to 1.5:

    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> world
    DriftingCMDP(M=5, H=2, S=1, A=2, K=1, scenarios=2)
    >>> world.thresholds[:, 0].tolist()
    [0.5, 0.75, 1.0, 1.25, 1.5]
    """

    def __init__(
        self,
        scenarios: Sequence[TabularCMDP],
        weights: ArrayLike | None = None,
        *,
        transition_weights: ArrayLike | None = None,
        reward_weights: ArrayLike | None = None,
        utility_weights: ArrayLike | None = None,
        thresholds: ArrayLike | None = None,
        scale: Scale | None = None,
    ) -> None:
        self.name: str | None = None  # of a named problem, and how it was made;
        self.recipe: dict[str, object] = {}  # both are kept in results
        self.labels: tuple[str, ...] = ()  # of the scenarios, for pictures
        self.constraint_names: tuple[str, ...] = ()  # for pages; numbers if empty
        self.scenarios = tuple(scenarios)
        _check_scenarios(self.scenarios)
        N = len(self.scenarios)
        common = None if weights is None else _as_path("weights", weights, N)
        self.transition_path = _own_or_common("transition_weights", transition_weights, common, N)
        self.reward_path = _own_or_common("reward_weights", reward_weights, common, N)
        self.utility_path = _own_or_common("utility_weights", utility_weights, common, N)
        self.H, self.S, self.A, self.K = self.scenarios[0].shape
        self.M = self.transition_path.scenario.shape[0]
        for name, path in (
            ("reward_weights", self.reward_path),
            ("utility_weights", self.utility_path),
            ("weights", common),
        ):
            if path is not None and path.scenario.shape[0] != self.M:
                _check.fail(name, f"of length M = {self.M}", f"length {path.scenario.shape[0]}")
        if thresholds is None:
            if common is None:
                raise TypeError("thresholds must be given when weights is not; got None")
            scenario_thresholds = np.stack([s.thresholds for s in self.scenarios])
            mixed = (common.weight[:, :, None] * scenario_thresholds[common.scenario]).sum(axis=1)
            thresholds = np.minimum(mixed, self.H)  # a convex mixture may round above H
        self.thresholds = checked_thresholds(thresholds, self.M, self.K, self.H)
        self.scale = scale
        if scale is not None:
            self.constraint_names = _check.kind("scale", scale, Scale).names
            if len(scale.names) != self.K:
                _check.fail("scale", f"of K = {self.K} constraints", f"{len(scale.names)}")

    @property
    def initial(self) -> FloatArray:
        """Distribution of the first state (S,), the same in every episode."""
        return self.scenarios[0].initial

    @classmethod
    def from_sequence(cls, episodes: Iterable[TabularCMDP]) -> DriftingCMDP:
        """Return a world with one CMDP per episode; the same object may occur many times."""
        number: dict[int, int] = {}
        scenarios: list[TabularCMDP] = []
        path: list[int] = []
        for cmdp in episodes:
            if id(cmdp) not in number:
                number[id(cmdp)] = len(scenarios)
                scenarios.append(cmdp)
            path.append(number[id(cmdp)])
        if not path:
            _check.fail("episodes", "at least one CMDP", "none")
        return cls(scenarios, np.array(path))

    def with_thresholds(self, thresholds: ArrayLike) -> DriftingCMDP:
        """Return the same world with other thresholds (M, K)."""
        return replace_thresholds(self, thresholds)

    def at(self, m: int) -> TabularCMDP:
        """Return the world of episode m (from 0)."""
        m = _check.integer("m", m, lower=0, upper=self.M - 1)
        world = self.arrays
        mixed = _mix(world.transition_path, m, world.probabilities)
        return TabularCMDP(
            Successors(world.offsets, world.states.astype(np.int32), mixed),
            _mix(world.reward_path, m, world.rewards).clip(0, 1),
            _mix(world.utility_path, m, world.utilities).clip(0, 1),
            self.thresholds[m],
            self.initial,
        )

    @cached_property
    def arrays(self) -> TableArrays:
        """The arrays that the kernels use."""
        offsets, states, probabilities = _common_successors(self.scenarios)
        cumulative = np.empty_like(probabilities)
        running_sums(offsets, probabilities, cumulative)
        initial = self.initial
        support = np.flatnonzero(initial)
        paths = (self.transition_path, self.reward_path, self.utility_path)
        transition_path, reward_path, utility_path = _thawed(*paths)
        return TableArrays(
            offsets,
            states.astype(np.uint32),
            probabilities,
            cumulative,
            np.stack([s.rewards for s in self.scenarios]),
            np.stack([s.utilities for s in self.scenarios]),
            support.astype(np.int32),
            initial[support],
            transition_path,
            reward_path,
            utility_path,
            self.thresholds.copy(),
        )

    @cached_property
    def distinct(self) -> tuple[IntArray, IntArray]:
        """First episode of each distinct world, and for each episode the number of its world."""
        paths = (self.transition_path, self.reward_path, self.utility_path)
        different = {id(path): path for path in paths}.values()
        return distinct_rows(self.thresholds, *(array for path in different for array in path))

    chunk = 32  # episodes that the oracles process at once

    def tables(self, episodes: IntArray) -> tuple[TableArrays, IntArray]:
        """Return P, r and g of (at least) the listed episodes, and the index of each episode."""
        return self.arrays, episodes

    def as_linear_kernel(
        self, features: str = "scenarios", rewards: str = "scenarios"
    ) -> LinearKernelCMDP:
        """Return this world as a linear-kernel CMDP (Assumption 1).

        Parameters
        ----------
        features
            "scenarios": ψ(x,a,x') = (P_1(x'|x,a), ..., P_N(x'|x,a)), θ = the weights, d1 = number
            of different transition models. "tabular": the paper's reduction, ψ = e_{x,a,x'} and
            d1 = S²A, for small worlds only.
        rewards
            "scenarios": φ(x,a) = all scenarios' rewards and utilities, scaled to norm at most 1.
            "one-hot": φ = e_{x,a}, d2 = S*A.
        """
        other = linear_kernel_of(self.arrays, self.initial, features, rewards)
        other.name, other.recipe = self.name, self.recipe
        return other

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n}={getattr(self, n)}" for n in ("M", "H", "S", "A", "K"))
        return f"DriftingCMDP({sizes}, scenarios={len(self.scenarios)})"


def _check_scenarios(scenarios: tuple[TabularCMDP, ...]) -> None:
    if not scenarios:
        _check.fail("scenarios", "at least one TabularCMDP", "none")
    for n, cmdp in enumerate(scenarios):
        if not isinstance(cmdp, TabularCMDP):
            raise TypeError(f"scenarios[{n}] must be a TabularCMDP; got {type(cmdp).__name__}")
        if cmdp.shape != scenarios[0].shape:
            _check.fail("scenarios", f"of one shape {tuple(scenarios[0].shape)}", cmdp.shape, n)
        if not np.array_equal(cmdp.initial, scenarios[0].initial):
            _check.fail("scenarios", "of one initial distribution", "another", n)


def _own_or_common(
    name: str, own: ArrayLike | None, common: WeightPath | None, N: int
) -> WeightPath:
    """Return the separate path if given, otherwise the common one."""
    if own is not None:
        return _as_path(name, own, N)
    if common is None:
        raise TypeError(f"weights or {name} must be given; got None for both")
    return common


def _as_path(name: str, weights: ArrayLike, N: int) -> WeightPath:
    """Check weights and keep the non-zero ones of each row."""
    raw = np.asarray(weights)
    if raw.dtype.kind in "iu" and raw.ndim == 1:
        numbers = _check.integers(name, raw, 0, N - 1)
        return _frozen(WeightPath(numbers.astype(np.int32)[:, None], np.ones((raw.size, 1))))
    dense = _check.floats(name, weights, ("M", N))
    _check.distribution(name, dense)
    M = dense.shape[0]
    J = max(int((dense[block] > 0).sum(axis=1).max()) for block in row_blocks(M))
    path = WeightPath(np.empty((M, J), np.int32), np.empty((M, J)))
    for block in row_blocks(M):
        rows = dense[block]
        # The J largest of a row contain all its non-zero weights; scenario order keeps sums stable.
        index = np.sort(np.argsort(-rows, axis=1, kind="stable")[:, :J], axis=1)
        kept = np.take_along_axis(rows, index, axis=1)
        path.scenario[block] = index
        path.weight[block] = kept / kept.sum(axis=1, keepdims=True)
    return _frozen(path)


def _frozen(path: WeightPath) -> WeightPath:
    for array in path:
        array.setflags(write=False)
    return path


def _thawed(*paths: WeightPath) -> list[WeightPath]:
    """Copies for the kernels, which are compiled for writable arrays; one of the same path."""
    copies: dict[int, WeightPath] = {}
    for path in paths:
        if id(path) not in copies:
            copies[id(path)] = WeightPath(path.scenario.copy(), path.weight.copy())
    return [copies[id(path)] for path in paths]


def _mix(path: WeightPath, m: int, bank: FloatArray) -> FloatArray:
    """Σ_n w[m, n] bank[n]."""
    return product(path.weight[m], bank[path.scenario[m]])


def _common_successors(
    scenarios: tuple[TabularCMDP, ...],
) -> tuple[NDArray[np.int64], NDArray[np.int32], FloatArray]:
    """Put all scenarios on the union of their successor lists: probabilities (N, entries)."""
    lists = [s.successors for s in scenarios]
    offsets, states, _ = lists[0]
    if all(np.array_equal(x.offsets, offsets) and np.array_equal(x.states, states) for x in lists):
        return offsets.copy(), states.copy(), np.stack([x.probabilities for x in lists])
    S = scenarios[0].shape.S
    rows = offsets.size - 1
    keys = [np.repeat(np.arange(rows), np.diff(x.offsets)) * S + x.states for x in lists]
    union = np.unique(np.concatenate(keys))
    probabilities = np.zeros((len(lists), union.size))
    for n, (key, x) in enumerate(zip(keys, lists, strict=True)):
        np.add.at(probabilities[n], np.searchsorted(union, key), x.probabilities)
    counts = np.bincount(union // S, minlength=rows)
    new_offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return new_offsets, (union % S).astype(np.int32), probabilities
