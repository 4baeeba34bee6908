"""Grid worlds with a ring of walls: cells inside the ring are states, row by row.

A move goes to the neighbour, or stays where the neighbour is a wall. With probability p a random
direction replaces the chosen one:

    P(x' | x, a) = (1 - p) 1{x' = end(x, a)} + p/4 Σ_b 1{x' = end(x, b)}

Rewards and costs belong to the cell that is entered; their means are those of (x, a).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.kernels.types import Successors
from safedrift.models.outcomes import outcomes

__all__ = ["MOVES", "Grid", "distances", "entered", "transitions"]

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Grid(NamedTuple):
    """A square of n x n cells inside the ring; the first cell is (1, 1)."""

    n: int
    start: int
    goal: int
    obstacles: IntArray  # cells

    def ends(self) -> IntArray:
        """Return the cell (S, 4) in which each move ends."""
        row, column = np.divmod(np.arange(self.n * self.n), self.n)
        moved = []
        for down, right in MOVES:
            to = np.clip(row + down, 0, self.n - 1) * self.n
            moved.append(to + np.clip(column + right, 0, self.n - 1))
        return np.stack(moved, axis=1)


def distances(grid: Grid) -> FloatArray:
    """Return the Euclidean distance (S,) of each cell to the goal."""
    row, column = np.divmod(np.arange(grid.n * grid.n), grid.n)
    goal = divmod(grid.goal, grid.n)
    squares = (row - goal[0]) ** 2 + (column - goal[1]) ** 2
    return np.asarray(np.sqrt(squares.astype(np.float64)))


def transitions(grid: Grid, p: float, H: int) -> Successors:
    """Return P for random moves of probability p."""
    ends = grid.ends()
    random = np.broadcast_to(ends[:, None, :], (*ends.shape, 4))
    after = np.concatenate((ends[..., None], random), axis=2)
    return outcomes(after, np.array([1 - p, *(p / 4,) * 4]), H)


def entered(grid: Grid, p: float, values: FloatArray) -> FloatArray:
    """Return the mean (S, 4) of values (S,) at the cell that is entered."""
    found = values[grid.ends()]
    random = (found[:, 0] + found[:, 1] + found[:, 2] + found[:, 3]) / 4
    return (1 - p) * found + p * random[:, None]
