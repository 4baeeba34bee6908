"""Helpers for the displays of worlds, and the display of a world that has none of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from safedrift._check import FloatArray
from safedrift.display.records import Display, Drifting, Quantity, Snapshot
from safedrift.kernels.types import WeightPath
from safedrift.models import DriftingCMDP, DriftingWorld, evenly_spaced

__all__ = ["allowed_per_step", "chosen", "generic_display", "last_peak", "shares"]

MOST_SNAPSHOTS = 4


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
