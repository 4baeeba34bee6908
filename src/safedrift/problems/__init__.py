"""Named worlds. `make("maze", episodes=20_000, seed=0)` returns one, ready to simulate.

`maze` and `random` are `DriftingCMDP`s, `blend` and `thermostat` are `LinearKernelCMDP`s.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from safedrift import _check
from safedrift.models import DriftingWorld
from safedrift.problems.blend import blend
from safedrift.problems.environment import register
from safedrift.problems.maze import maze
from safedrift.problems.random import random, with_gap
from safedrift.problems.thermostat import thermostat

__all__ = ["PROBLEMS", "describe", "make", "options", "with_gap"]

PROBLEMS: dict[str, Callable[..., DriftingWorld]] = {
    "maze": maze,
    "blend": blend,
    "thermostat": thermostat,
    "random": random,
}


register(tuple(PROBLEMS))


def make(name: str, episodes: int = 20_000, seed: int = 0, **chosen: Any) -> DriftingWorld:
    """Build a named problem.

    Parameters
    ----------
    name
        One of `PROBLEMS`.
    episodes
        M.
    seed
        Of whatever is random in the world itself.
    **chosen
        Options of the problem; see `options(name)` and `describe(name)`.
    """
    _check.choice("problem", name, tuple(PROBLEMS))
    build = PROBLEMS[name]
    for given in chosen:
        _check.choice(f"option of {name}", given, tuple(options(name)))
    _check.integer("seed", seed, lower=0)
    world = build(episodes, seed, **chosen)
    world.name = name
    world.recipe = {"episodes": episodes, "seed": seed, **chosen}
    return world


def describe(name: str) -> str:
    """Return the story of a problem: states, actions, reward, utility, drift, knowledge."""
    _check.choice("problem", name, tuple(PROBLEMS))
    return inspect.getdoc(sys.modules[PROBLEMS[name].__module__]) or ""


def options(name: str) -> dict[str, Any]:
    """Return the options of a problem and their defaults."""
    _check.choice("problem", name, tuple(PROBLEMS))
    known = inspect.signature(PROBLEMS[name]).parameters
    return {key: p.default for key, p in known.items() if key not in ("episodes", "seed")}
