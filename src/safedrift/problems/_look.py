"""How a world wants to be looked at: quantities that its trade knows, and telling episodes.

A quantity q_h(x, a) is drawn as its expectation under a policy, step by step:

    E^π[ q_h(x_h, a_h) ] = Σ_{x,a} d^π_h(x, a) q_h(x, a)

A problem's module may have a function `look(world) -> Look`; others get `generic_look`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.kernels.types import Path
from safedrift.models import DriftingCMDP, DriftingWorld
from safedrift.oracles import spread

__all__ = [
    "Board", "Drifting", "Look", "Quantity", "Scene", "allowed_per_step", "chosen", "generic_look",
    "last_peak", "shares",
]  # fmt: skip

MOST_SCENES = 4


class Scene(NamedTuple):
    """A telling episode and its name."""

    name: str
    episode: int


class Quantity(NamedTuple):
    """Something measured at every step, and what is wanted of it."""

    label: str  # with its unit
    values: FloatArray  # (H, S, A), or (scenes, H, S, A) where it depends on the episode
    band: tuple[float, float] | None = None  # where it should be
    limits: FloatArray | None = None  # (1,) or (scenes,) levels to compare with
    wanted: str = ""  # what band or limits are


class Drifting(NamedTuple):
    """Something that changes over the episodes."""

    label: str
    names: tuple[str, ...]  # of the columns
    values: FloatArray  # (M, columns)
    shares: bool = True  # the columns add up to 1


class Board(NamedTuple):
    """States that are cells of a grid, row by row; states beyond the last cell are not shown."""

    rows: int
    columns: int
    start: int
    goals: tuple[int, ...]  # one per scene
    hazards: IntArray  # cells
    hazard: str  # what they are
    goal: str


class Look(NamedTuple):
    """What a picture of a world shows."""

    scenes: tuple[Scene, ...]
    drifts: tuple[Drifting, ...]
    quantities: tuple[Quantity, ...] = ()
    step: str = "step"
    times: FloatArray | None = None  # (H,) of the steps, 1 to H by default
    board: Board | None = None


def last_peak(values: FloatArray, first: int = 0) -> int:
    """Return the last episode at which values (M,) are largest from `first` on, up to rounding."""
    late = values[first:]
    return first + int(np.flatnonzero(late >= late.max() - 1e-9)[-1])


def shares(path: Path, N: int) -> FloatArray:
    """Return the weights (M, N) of a path."""
    weights = np.zeros((len(path.scenario), N))
    np.put_along_axis(weights, path.scenario.astype(np.int64), path.weight, axis=1)
    return weights


def chosen(world: DriftingWorld, build: Callable[..., Any], option: str) -> Any:
    """Return an option with which a world was built."""
    default = inspect.signature(build).parameters[option].default
    return world.recipe.get(option, default)


def allowed_per_step(world: DriftingWorld, scenes: Sequence[Scene]) -> FloatArray:
    """Return 1 - b/H (scenes,): how much of a cost in [0, 1] a step may have on average."""
    return np.array([1 - world.thresholds[scene.episode, 0] / world.H for scene in scenes])


def generic_look(world: DriftingWorld) -> Look:
    """Return scenarios or thresholds, and expected reward and utility at every step."""
    telling = spread(world.M, 3)
    names: tuple[str, ...] = ("first", "middle", "last") if telling.size > 2 else ("first", "last")
    if world.distinct[0].size == 1:
        names, telling = ("always",), telling[-1:]
    scenes = [Scene(name, int(m)) for name, m in zip(names, telling, strict=True)]
    drifts = []
    if isinstance(world, DriftingCMDP) and len(world.scenarios) > 1:
        weights = shares(world.transition_path, len(world.scenarios))
        names = world.labels or tuple(f"scenario {n + 1}" for n in range(weights.shape[1]))
        drifts.append(Drifting("scenario", names, weights))
        if len(names) <= MOST_SCENES:
            scenes = [Scene(names[n], last_peak(weights[:, n])) for n in range(len(names))]
    if not drifts or np.ptp(world.thresholds, axis=0).any():
        names = tuple(f"b {k + 1}" if world.K > 1 else "b" for k in range(world.K))
        drifts.append(Drifting("threshold b", names, world.thresholds, shares=False))
    days = [world.at(scene.episode) for scene in scenes]
    quantities = [Quantity("reward per step", np.stack([day.rewards for day in days]))]
    for k in range(world.K):
        number = f" {k + 1}" if world.K > 1 else ""
        limits = np.stack([day.thresholds[k] for day in days]) / world.H
        utility = np.stack([day.utilities[k] for day in days])
        quantities.append(
            Quantity(f"utility{number} per step", utility, limits=limits, wanted="b/H, on average")
        )
    return Look(tuple(scenes), tuple(drifts), tuple(quantities))
