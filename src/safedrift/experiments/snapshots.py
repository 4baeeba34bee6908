"""Telling episodes of a world: where the best safe policy goes there, and where a learner goes."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.display import Display, Quantity
from safedrift.experiments.playing import play_chunks
from safedrift.experiments.simulation import Progress, check_sizes
from safedrift.experiments.streams import seeds
from safedrift.learners import Learner
from safedrift.models import DriftingWorld
from safedrift.oracles import expected, occupancy, optima, solve
from safedrift.problems import display

__all__ = [
    "Snapshots",
    "expected_quantity",
    "learned_policies",
    "smallest_gap",
    "representative_episodes",
    "representative_snapshots",
]


class Snapshots(NamedTuple):
    """The representative episodes of a display, n of them, with the occupancies of two policies."""

    display: Display
    best: FloatArray  # (n, H, S, A) of the best safe policy of each
    learned: FloatArray | None  # (n, H, S, A) of what a learner played there


def smallest_gap(world: DriftingWorld) -> float:
    """Return the smallest Slater gap of all episodes: what a learner may be told."""
    return float(optima(world, world.distinct[0]).gamma.min())


def representative_episodes(world: DriftingWorld) -> IntArray:
    """Return the representative episodes (n,) of a world, in the order of its display."""
    return np.array([snapshot.episode for snapshot in display(world).snapshots], dtype=np.int64)


def representative_snapshots(world: DriftingWorld, learned: FloatArray | None = None) -> Snapshots:
    """Return the representative episodes of a world.

    Parameters
    ----------
    learned : (n, H, S, A), optional
        Policies of a learner in these episodes, from `learned_policies`.
    """
    seen = display(world)
    shape = (len(seen.snapshots), world.H, world.S, world.A)
    if learned is not None:
        learned = _check.floats("learned", learned, shape)
    best, played = np.empty(shape), np.empty(shape)
    for i, snapshot in enumerate(seen.snapshots):
        today = world.at(snapshot.episode)
        best[i] = occupancy(today, solve(today).policy)
        if learned is not None:
            played[i] = occupancy(today, learned[i])
    return Snapshots(seen, best, None if learned is None else played)


def expected_quantity(quantity: Quantity, measures: FloatArray) -> FloatArray:
    """Return what a quantity is on average (n, H) under occupancies (n, H, S, A)."""
    values = np.broadcast_to(quantity.values, measures.shape)
    return np.stack([expected(d, q) for d, q in zip(measures, values, strict=True)])


def learned_policies(
    world: DriftingWorld,
    agent: Learner,
    episodes: IntArray,
    seed: int = 0,
    *,
    window: int = 1,
    progress: Progress | None = None,
) -> FloatArray:
    """Play a fresh copy of `agent`; return its policies (n, H, S, A) in the listed episodes.

    The same numbers as in `simulate` with this seed. `progress` is called as there.

    Parameters
    ----------
    window
        Episodes up to each listed one whose policies are averaged: the policy returned visits
        every pair as often as these do on average, all of them in the world of the listed one.
    """
    _check.kind("world", world, get_args(DriftingWorld))
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    window = _check.integer("window", window)
    check_sizes(world, agent)
    sums = np.zeros((episodes.size, world.H, world.S, world.A))
    today = [world.at(int(m)) for m in episodes] if window > 1 else []
    before = episodes[:, None] - np.arange(window)
    listed = np.unique(before[before >= 0])
    learner = agent.fresh(seeds(seed)["learner"])
    for part in play_chunks(world, learner, seed, False, listed):
        for m, policy in zip(part.measured, part.policies, strict=True):
            for i in np.flatnonzero((before == m).any(axis=1)):
                sums[i] += policy if window == 1 else occupancy(today[i], policy)
        if progress:
            progress("learning", part.first + part.count, world.M)
    total = sums.sum(axis=-1, keepdims=True)
    even = np.full(sums.shape, 1 / world.A)  # where the learner never came
    return np.asarray(np.divide(sums, total, out=even, where=total > 0))
