"""Representative episodes of a world: occupancies of the best safe policies and of a learner."""

from __future__ import annotations

from typing import get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.display import Quantity, Snapshots
from safedrift.experiments.playing import play_chunks
from safedrift.experiments.simulation import Progress, check_sizes
from safedrift.experiments.streams import seeds
from safedrift.learners import Learner
from safedrift.models import DriftingWorld
from safedrift.oracles import expected, occupancy, solve
from safedrift.problems import display

__all__ = [
    "expected_quantity",
    "learned_policies",
    "representative_episodes",
    "representative_snapshots",
]


def representative_episodes(world: DriftingWorld) -> IntArray:
    """Return the representative episodes (n,) of a world, in the order of its display."""
    return np.array([snapshot.episode for snapshot in display(world).snapshots], dtype=np.int64)


def representative_snapshots(world: DriftingWorld, learned: FloatArray | None = None) -> Snapshots:
    """Solve the representative episodes of a world and return what a picture shows of them.

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
    found = Snapshots(seen, best, _expected_quantities(seen.quantities, best))
    if learned is None:
        return found
    return found._replace(
        learned=played, learned_quantities=_expected_quantities(seen.quantities, played)
    )


def _expected_quantities(quantities: tuple[Quantity, ...], measures: FloatArray) -> FloatArray:
    """Expected values of q quantities, (q, n, H)."""
    out = np.empty((len(quantities), *measures.shape[:2]))
    for row, quantity in zip(out, quantities, strict=True):
        row[:] = expected_quantity(quantity, measures)
    return out


def expected_quantity(quantity: Quantity, measures: FloatArray) -> FloatArray:
    """Return the expected value (n, H) of a quantity under occupancies (n, H, S, A)."""
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

    The policies are those of `simulate` with this seed. `progress` is called as in `simulate`.

    Parameters
    ----------
    window
        Number of episodes, up to each listed one, whose policies are averaged: the occupancy of the
        result is the mean of their occupancies, all in the world of the listed episode.
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
            progress("learning", part.first + part.size, world.M)
    total = sums.sum(axis=-1, keepdims=True)
    even = np.full(sums.shape, 1 / world.A)  # where the learner never was
    return np.asarray(np.divide(sums, total, out=even, where=total > 0))
