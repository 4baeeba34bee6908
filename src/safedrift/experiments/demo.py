"""The demonstration: learners in the drifting maze, where they go, and how they compare.

A cell s of the board is visited Σ_{h,a} d_h(s, a) times per episode, and left in the direction

    Σ_{h,a} d_h(s, a) Σ_s' P_h(s' | s, a) (place of s' - place of s) / visits

on average, where d is the occupancy of the policy in the world of the episode.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.display import BoardFrames
from safedrift.experiments.comparison import compare
from safedrift.experiments.entrants import entrants
from safedrift.experiments.simulation import Progress, measure_truth, simulate
from safedrift.experiments.snapshots import learned_policies
from safedrift.models import DriftingCMDP, TabularCMDP
from safedrift.oracles import occupancy
from safedrift.problems import display, make
from safedrift.results import Comparison, Run

__all__ = ["LEARNERS", "Demo", "board_frames", "play_demo", "telling_episodes"]

LEARNERS = ("propd-ppo", "adaptive-planner", "opt-cmdp", "optimum")
FRAMES = 120
RARE = 1e-3  # fewer visits have no direction


class Demo(NamedTuple):
    """What the page of the demonstration shows."""

    runs: tuple[Run, ...]  # of LEARNERS
    frames: BoardFrames
    comparison: Comparison


def play_demo(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    seeds: int = 5,
    frames: int = FRAMES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Demo:
    """Play the demonstration.

    Parameters
    ----------
    episodes
        M of the maze.
    seed
        Of the runs that are drawn.
    seeds
        Of the comparison.
    frames
        Episodes whose policies are drawn, most of them soon after the target has moved.
    workers, progress
        As in `compare`; stages are the names of the learners, and those of `compare`.
    """
    world = cast(DriftingCMDP, make("maze", episodes))
    truth = measure_truth(world, progress=progress)
    moved = truth.episodes[truth.drift_r > 0]
    listed = telling_episodes(world.M, moved, frames)
    runs, policies = [], []
    for entrant in entrants(LEARNERS):
        learner = entrant.build(world, float(truth.gamma.min()), False)
        runs.append(simulate(world, learner, seed, truth=truth))
        policies.append(learned_policies(world, learner, listed, seed))
        if progress:
            progress("playing", len(runs), len(LEARNERS))
    pictures = board_frames(world, listed, LEARNERS, np.stack(policies))
    who = [*LEARNERS[:-1], "uniform", LEARNERS[-1]]
    ranked = compare({"maze": world}, who, seeds, workers=workers, progress=progress)
    return Demo(tuple(runs), pictures, ranked)


def telling_episodes(M: int, changes: IntArray, frames: int) -> IntArray:
    """Return about `frames` of M episodes, dense where learners learn anew.

    Between two changes they are spaced geometrically: the first, and the last before the next
    change, are always among them.

    Examples
    --------
    >>> from safedrift.experiments.demo import telling_episodes
    >>> telling_episodes(200, np.array([100]), 10).tolist()
    [0, 2, 9, 31, 99, 100, 102, 109, 131, 199]
    """
    begins = np.array([0, *changes.tolist()])
    each = max(2, frames // begins.size)
    spans = [
        begin + np.round(np.geomspace(1, end - begin, each)).astype(np.int64) - 1
        for begin, end in zip(begins, [*begins[1:], M], strict=True)
    ]
    return np.unique(np.concatenate(spans))


def board_frames(
    world: DriftingCMDP, episodes: IntArray, names: tuple[str, ...], policies: FloatArray
) -> BoardFrames:
    """Return where policies (L, n, H, S, A) go in episodes (n,) of a world with a board."""
    board = display(world).board
    if board is None:
        raise ValueError(f"world must have a board; got {world.name}")
    cells = board.rows * board.columns
    visits = np.empty((*policies.shape[:2], cells))
    moves = np.empty((*visits.shape, 2))
    goals = []
    for i, m in enumerate(episodes.tolist()):
        today = world.at(m)
        goals.append(int(today.rewards[0, :, 0].argmax()))
        steps = _steps(today, board.columns)
        for j in range(len(names)):
            measure = occupancy(today, policies[j, i])
            visits[j, i] = measure.sum(axis=(0, 2))[:cells]
            moved = (measure[..., None] * steps).sum(axis=(0, 2))[:cells]
            moves[j, i] = moved / np.maximum(visits[j, i], RARE)[:, None]
    drawn = board._replace(goals=tuple(goals))
    return BoardFrames(drawn, episodes, names, visits, moves)


def _steps(today: TabularCMDP, columns: int) -> FloatArray:
    """Expected steps (H, S, A, 2) on the board: columns, rows."""
    H, S, A, _ = today.shape
    places = np.stack((np.arange(S) % columns, np.arange(S) // columns)).astype(np.float64)
    offsets, states, probabilities = today.successors
    pairs = np.repeat(np.arange(H * S * A), np.diff(offsets))
    arrived = [np.bincount(pairs, probabilities * place[states], H * S * A) for place in places]
    steps = np.stack([x.reshape(H, S, A) for x in arrived], axis=-1)
    return np.asarray(steps - places.T[None, :, None])
