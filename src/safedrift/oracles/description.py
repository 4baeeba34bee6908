"""A world in numbers: optima over the episodes, the price of safety, variation budgets.

    price[m] = max_π V_r(π) - max { V_r(π) : V_g(π) ≥ b_m }

Optima are computed at a few episodes, budgets over all of them. Worlds that test nothing get a
warning; see `degeneracy`.
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels import exact
from safedrift.knowledge import Budgets, Sizes
from safedrift.models import DriftingWorld, evenly_spaced
from safedrift.oracles.chunks import Progress, in_chunks
from safedrift.oracles.degeneracy import Evidence, sum_is_constant, warnings_of
from safedrift.oracles.optimality import Optima, evaluate_episodes, optima, scratch_for
from safedrift.oracles.variations import variation
from safedrift.results.description import BINDS, Description

__all__ = ["Description", "describe", "free_values", "smallest_gap"]


def describe(
    world: DriftingWorld, episodes: IntArray | None = None, progress: Progress | None = None
) -> Description:
    """Return optima, prices of safety and variation budgets of a world.

    Parameters
    ----------
    episodes : (n,) increasing
        Where the optimum is computed; by default at most 200, evenly spaced, ends included.
    progress
        Called with numbers that add up to n.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> found = sd.describe(world)
    >>> found.value.round(6).tolist()  # V_r*
    [1.5, 1.25, 1.0, 0.75, 0.5]
    >>> found.price.round(6).tolist()  # the best value without the constraint is 2
    [0.5, 0.75, 1.0, 1.25, 1.5]
    >>> found.binding.tolist()
    [1.0]
    """
    _check.kind("world", world, get_args(DriftingWorld))
    if episodes is None:
        episodes = evenly_spaced(world.M)
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    _check.everywhere("episodes", episodes[1:], np.diff(episodes) > 0, "increasing")
    change = variation(world)
    found = optima(world, episodes, progress)
    free = free_values(world, episodes)
    whole = episodes.size == world.M and found.feasible.all()
    moved = float(found.policy_change.sum()) if whole else np.nan
    safe = found.multipliers[found.feasible]
    return Description(
        name=world.name,
        sizes=Sizes(world.M, world.H, world.S, world.A, world.K),
        episodes=episodes,
        feasible=found.feasible,
        gamma=found.gamma,
        multipliers=found.multipliers,
        value=found.value,
        free_value=free,
        thresholds=found.thresholds,
        binding=(safe > BINDS).mean(axis=0) if len(safe) else np.full(world.K, np.nan),
        budgets=Budgets(
            P=float(change.P.sum()),
            r=float(change.r.sum()),
            g=float(change.g.sum()),
            star=moved,
            b=float(change.b.sum()),
        ),
        warnings=warnings_of(_evidence(world, episodes, found, free)),
        constraints=tuple(getattr(world, "constraint_names", ())),
    )


def smallest_gap(world: DriftingWorld) -> float:
    """Return the smallest Slater gap γ of all episodes, e.g. for `Slater(gamma)`.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.oracles import smallest_gap
    >>> round(smallest_gap(world), 9)
    0.5
    """
    return float(optima(world, world.distinct[0]).gamma.min())


def free_values(world: DriftingWorld, episodes: IntArray) -> FloatArray:
    """Return max_π V_r (n,) of each listed episode over all policies, safe or not.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.oracles import free_values
    >>> free_values(world, np.array([0])).round(3).tolist()  # the best safe policy has 6.387
    [6.717]
    """
    listed, number = _different(world, _check.integers("episodes", episodes, 0, world.M - 1))
    return _extreme(world, listed, highest=True)[number]


def _evidence(
    world: DriftingWorld, episodes: IntArray, found: Optima, free: FloatArray
) -> Evidence:
    """What the feasible ones of these episodes say of the world."""
    safe = found.feasible
    listed, number = _different(world, episodes)
    uniform = np.full((1, world.H, world.S, world.A), 1 / world.A)
    values = evaluate_episodes(world, listed, uniform)[number][safe]
    constant = np.ones(world.K, dtype=bool)
    for m in listed[evenly_spaced(listed.size, 3)]:
        if constant.any():
            today = world.at(int(m))
            constant &= sum_is_constant(today.rewards, today.utilities)
    return Evidence(
        binds=found.multipliers[safe] > BINDS,
        value=found.value[safe],
        free_value=free[safe],
        lowest_value=_extreme(world, listed, highest=False)[number][safe],
        uniform_reward=values[:, 0],
        uniform_utility=values[:, 1:],
        thresholds=found.thresholds[safe],
        constant_sum=constant,
    )


def _different(world: DriftingWorld, episodes: IntArray) -> tuple[IntArray, IntArray]:
    """Those of the episodes that differ, and for each episode the place of its world in them."""
    _, version = world.distinct
    _, first, number = np.unique(version[episodes], return_index=True, return_inverse=True)
    return episodes[first], number


def _extreme(world: DriftingWorld, listed: IntArray, *, highest: bool) -> FloatArray:
    """max_π V_r (n,) of each listed episode, or min_π V_r."""
    out = np.empty((listed.size, 1))

    def work(part: slice) -> None:
        arrays, place = world.tables(listed[part])
        # With rewards in place of utilities, the safest policy maximises V_r; with 1 - r, H - V_r.
        wanted = arrays.rewards if highest else 1 - arrays.rewards
        rich = arrays._replace(utilities=wanted[:, None], utility_path=arrays.reward_path)
        exact.safest_utilities(rich, place, out[part], scratch_for(arrays))

    in_chunks(work, listed.size, world.chunk)
    return np.asarray(out[:, 0] if highest else world.H - out[:, 0])
