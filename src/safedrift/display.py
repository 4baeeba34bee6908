"""What a picture of a world shows: representative episodes, and quantities that an expert knows.

A quantity q_h(x, a) is drawn as its expectation under a policy at every step:

    E^π[ q_h(x_h, a_h) ] = Σ_{x,a} d^π_h(x, a) q_h(x, a)

A problem's module may define `display(world) -> Display`; otherwise `generic_display` is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.kernels.types import WeightPath
from safedrift.models import DriftingCMDP, DriftingWorld
from safedrift.oracles import evenly_spaced

__all__ = [
    "Board",
    "Display",
    "Drifting",
    "Quantity",
    "Snapshot",
    "Snapshots",
    "allowed_per_step",
    "chosen",
    "generic_display",
    "last_peak",
    "shares",
]

MOST_SNAPSHOTS = 4


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


def last_peak(values: FloatArray, first: int = 0) -> int:
    """Return the last episode, from `first` on, where values (M,) are largest up to rounding."""
    late = values[first:]
    return first + int(np.flatnonzero(late >= late.max() - 1e-9)[-1])


def shares(path: WeightPath, N: int) -> FloatArray:
    """Return the weights (M, N) of a path."""
    weights = np.zeros((len(path.scenario), N))
    np.put_along_axis(weights, path.scenario.astype(np.int64), path.weight, axis=1)
    return weights


def chosen(world: DriftingWorld, build: Callable[..., Any], option: str) -> Any:
    """Return the value of an option with which a world was built."""
    default = inspect.signature(build).parameters[option].default
    return world.recipe.get(option, default)


def allowed_per_step(world: DriftingWorld, snapshots: Sequence[Snapshot]) -> FloatArray:
    """Return 1 - b/H (snapshots,): the mean cost in [0, 1] that a step may have."""
    return np.array([1 - world.thresholds[snapshot.episode, 0] / world.H for snapshot in snapshots])


def generic_display(world: DriftingWorld) -> Display:
    """Return the default display: drift of scenarios or thresholds, reward and utility per step."""
    representative = evenly_spaced(world.M, 3)
    names: tuple[str, ...] = (
        ("first", "middle", "last") if representative.size > 2 else ("first", "last")
    )
    if world.distinct[0].size == 1:
        names, representative = ("always",), representative[-1:]
    snapshots = [Snapshot(name, int(m)) for name, m in zip(names, representative, strict=True)]
    drifts = []
    if isinstance(world, DriftingCMDP) and len(world.scenarios) > 1:
        weights = shares(world.transition_path, len(world.scenarios))
        names = world.labels or tuple(f"scenario {n + 1}" for n in range(weights.shape[1]))
        drifts.append(Drifting("scenario", names, weights))
        if len(names) <= MOST_SNAPSHOTS:
            snapshots = [Snapshot(names[n], last_peak(weights[:, n])) for n in range(len(names))]
    if not drifts or np.ptp(world.thresholds, axis=0).any():
        names = tuple(f"b {k + 1}" if world.K > 1 else "b" for k in range(world.K))
        drifts.append(Drifting("threshold b", names, world.thresholds, shares=False))
    days = [world.at(snapshot.episode) for snapshot in snapshots]
    quantities = [Quantity("reward per step", np.stack([day.rewards for day in days]))]
    for k in range(world.K):
        number = f" {k + 1}" if world.K > 1 else ""
        limits = np.stack([day.thresholds[k] for day in days]) / world.H
        utility = np.stack([day.utilities[k] for day in days])
        quantities.append(
            Quantity(f"utility{number} per step", utility, limits=limits, wanted="b/H, on average")
        )
    return Display(tuple(snapshots), tuple(drifts), tuple(quantities))
