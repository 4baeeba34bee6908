"""Constrained optima of a chunk of episodes, by the method that fits the number of constraints.

One constraint: the dual is a convex piecewise linear function of one number, minimised exactly by
intersecting lines (`kernels.exact`). Several: column generation (`kernels.planning.columns`).

Within a chunk an episode starts from the answer of the one before it. Chunks are independent.
"""

from __future__ import annotations

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.kernels import exact
from safedrift.kernels.exact import OPTIMAL, Ends
from safedrift.kernels.planning import columns
from safedrift.kernels.planning.columns import Answers, make_answers
from safedrift.kernels.types import TableArrays

__all__ = [
    "OPTIMAL",
    "Answers",
    "Ends",
    "make_answers",
    "make_ends",
    "mixed_entries",
    "solve_chunk",
]


def make_ends(tables: TableArrays) -> Ends:
    """Return room for the policy and reach of a chunk's first and last episode."""
    _, H, S, A = tables.rewards.shape
    return Ends(np.empty((2, H, S, A)), np.empty((2, H, S)))


def solve_chunk(
    tables: TableArrays,
    episodes: IntArray,
    answers: Answers,
    changes: FloatArray,
    policies: FloatArray,
    ends: Ends,
    start: FloatArray | None = None,
) -> None:
    """Write the constrained optimum of each listed episode.

    Parameters
    ----------
    episodes : (n,)
    answers : first axes n, written
    changes : (n, H), written: change of the optimal policy since the episode listed before, 0 first
    policies : (n, H, S, A), written; or (0, H, S, A)
    ends : written
    start : (K,) multipliers from which the first episode starts, if any
    """
    _, K, H, S, A = tables.utilities.shape
    rewards = tables.rewards[:, None]
    start = np.empty(0) if start is None else start
    if K > 1:
        columns.solve_episodes(
            tables,
            rewards,
            episodes,
            start,
            answers,
            changes,
            policies,
            ends,
            columns.make_scratch(mixed_entries(tables), H, S, A, K),
        )
        return
    numbers = np.empty((episodes.size, 8))
    exact.solve_episodes(
        tables,
        rewards,
        episodes,
        start,
        numbers,
        changes,
        policies,
        ends,
        exact.make_scratch(mixed_entries(tables), H, S, A),
    )
    status, mu, _, value, utility, dual, gamma, iterations = numbers.T
    answers.status[:], answers.value[:], answers.gap[:] = status, value, dual - value
    answers.utilities[:, 0], answers.multipliers[:, 0] = utility, mu
    answers.gamma[:], answers.iterations[:] = gamma, iterations


def mixed_entries(tables: TableArrays) -> int:
    """How many transitions are mixed in scratch: none where an episode has one scenario."""
    return tables.states.size if tables.transition_path.scenario.shape[1] > 1 else 0
