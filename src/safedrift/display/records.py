"""What a picture of a world shows, as data.

A quantity q_h(x, a) is drawn as its expectation under a policy at every step:

    E^π[ q_h(x_h, a_h) ] = Σ_{x,a} d^π_h(x, a) q_h(x, a)
"""

from __future__ import annotations

from typing import NamedTuple

from safedrift._check import FloatArray, IntArray

__all__ = ["Board", "BoardFrames", "Display", "Drifting", "Quantity", "Snapshot", "Snapshots"]


class Snapshot(NamedTuple):
    """A representative episode and its name."""

    name: str
    episode: int


class Quantity(NamedTuple):
    """A quantity of every step, and its target."""

    label: str  # with its unit
    values: FloatArray  # (H, S, A), or (snapshots, H, S, A) where it depends on the episode
    band: tuple[float, float] | None = None  # target interval
    limits: FloatArray | None = None  # (1,) or (snapshots,) levels to compare with
    wanted: str = ""  # label of the band or the limits


class Drifting(NamedTuple):
    """A quantity that changes over the episodes."""

    label: str
    names: tuple[str, ...]  # of the columns
    values: FloatArray  # (M, columns)
    shares: bool = True  # the columns add up to 1


class Board(NamedTuple):
    """States that are cells of a grid, row by row; states beyond the last cell are not shown."""

    rows: int
    columns: int
    start: int
    goals: tuple[int, ...]  # one per snapshot
    hazards: IntArray  # cells
    hazard: str  # label of the hazards
    goal: str  # label of the goals


class Display(NamedTuple):
    """What a picture of a world shows."""

    snapshots: tuple[Snapshot, ...]
    drifts: tuple[Drifting, ...]
    quantities: tuple[Quantity, ...] = ()
    step: str = "step"
    times: FloatArray | None = None  # (H,) of the steps, 0 to H - 1 by default
    board: Board | None = None


class Snapshots(NamedTuple):
    """The n representative episodes of a display, with occupancies and q expected quantities."""

    display: Display
    best: FloatArray  # (n, H, S, A), best safe policy of each episode
    best_quantities: FloatArray  # (q, n, H)
    learned: FloatArray | None = None  # (n, H, S, A), policies of a learner
    learned_quantities: FloatArray | None = None  # (q, n, H)


class BoardFrames(NamedTuple):
    """Where L policies go in each of n episodes of a world whose states are cells of a board."""

    board: Board  # with a goal for each of the n episodes
    episodes: IntArray  # (n,)
    names: tuple[str, ...]  # of the L policies
    visits: FloatArray  # (L, n, cells), expected steps that begin in the cell
    moves: FloatArray  # (L, n, cells, 2), expected step from the cell: columns, rows
