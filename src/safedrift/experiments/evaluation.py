"""Families of random worlds: one to choose constants on, one to report, with no world in common.

A family has worlds of every kind of drift, with sizes S 4 to 30, A 2 to 5, H 3 to 10, a Slater gap
of 4 to 12 percent of H, all successors or few. One world in three has the same P, r and g at every
step. Both families are drawn in the same way from seeds that do not overlap:

    calibration   10^6 + 1000, 10^6 + 1001, ...
    evaluation    2·10^6, 2·10^6 + 1, ...

`--tune` (`experiments.calibration`) has worlds of its own, from 10^6 on.

Each comes in three kinds:

    long    M = 50,000, every drift, 28 worlds
    short   the same worlds with M = 2,000: the drift is as much, in fewer episodes
    fast    M = 20,000, periodic with a period of 500 episodes, 10 worlds
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from safedrift import _check
from safedrift.models import DriftingWorld
from safedrift.problems import make

__all__ = ["EPISODES", "FAMILIES", "KINDS", "drift_of", "evaluation_worlds", "make_worlds"]

FAMILIES = {"calibration": 10**6 + 1000, "evaluation": 2 * 10**6}
"""Seed of the first world of each family."""

EPISODES = {"long": 50_000, "short": 2_000, "fast": 20_000}
KINDS = tuple(EPISODES)
FAST_SEEDS = 500  # those of the kind "fast" come so much later
PERIOD = 500  # episodes per cycle of the kind "fast"

# The pace of each world, where it is a length as a share of all episodes.
LONG: tuple[tuple[str, Mapping[str, float]], ...] = (
    *(("abrupt", {"switches": n}) for n in (1, 2, 2, 4, 4, 8)),
    *(("linear", {}) for _ in range(5)),
    *(("periodic", {"period": share}) for share in (1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 8)),
    *(("random_walk", {"step": size}) for size in (0.005, 0.005, 0.01, 0.02, 0.02)),
    *(("alternating", {"every": share}) for share in (1 / 5, 1 / 10, 1 / 10, 1 / 20)),
    *(("stationary", {}) for _ in range(3)),
)
FAST: tuple[tuple[str, Mapping[str, float]], ...] = tuple(("periodic", {}) for _ in range(10))


def evaluation_worlds(kind: str, family: str = "evaluation") -> dict[str, dict[str, Any]]:
    """Return the worlds of a family: by label, what `problems.make("random", ...)` is given.

    Parameters
    ----------
    kind
        long, short or fast.
    family
        evaluation, or calibration to choose constants on.

    Examples
    --------
    >>> from safedrift.experiments.evaluation import evaluation_worlds
    >>> worlds = evaluation_worlds("short")
    >>> len(worlds), worlds["abrupt 1"]["episodes"], worlds["abrupt 1"]["seed"]
    (28, 2000, 2000000)
    """
    _check.choice("kind", kind, KINDS)
    first = FAMILIES[_check.choice("family", family, tuple(FAMILIES))]
    M = EPISODES[kind]
    first += FAST_SEEDS if kind == "fast" else 0
    found: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}
    for number, (drift, pace) in enumerate(FAST if kind == "fast" else LONG):
        counts[drift] = counts.get(drift, 0) + 1
        options = {"episodes": M, "seed": first + number, "drift": drift}
        options |= _sizes(first + number) | _pace(pace, M) | {"per_step": number % 3 != 2}
        if kind == "fast":
            options["period"] = PERIOD
        found[f"{drift} {counts[drift]}"] = options
    return found


def make_worlds(kind: str, family: str = "evaluation") -> dict[str, DriftingWorld]:
    """Build the worlds of a family; see `evaluation_worlds`."""
    return {
        label: make("random", **options)
        for label, options in evaluation_worlds(kind, family).items()
    }


def drift_of(label: str) -> str:
    """Return the kind of drift that a label of these worlds names."""
    return label.rpartition(" ")[0]


def _sizes(seed: int) -> dict[str, Any]:
    """Random sizes and Slater gap; not the seed's own stream, which draws the world."""
    rng = np.random.default_rng([seed, 1])
    states = int(np.floor(4 * (31 / 4) ** rng.random()))  # 4 to 30, small ones more often
    horizon = int(rng.integers(3, 11))
    few = int(rng.integers(2, 5))
    return {
        "states": states,
        "actions": int(rng.integers(2, 6)),
        "horizon": horizon,
        "gamma": round(float(rng.uniform(0.04, 0.12)) * horizon, 3),
        "successors": few if rng.random() < 0.5 else None,
    }


def _pace(pace: Mapping[str, float], M: int) -> dict[str, Any]:
    """Shares of all episodes as episodes; numbers of switches and sizes of steps as they are."""
    found: dict[str, Any] = dict(pace)
    for name in ("period", "every"):
        if name in found:
            found[name] = round(found[name] * M)
    return found
