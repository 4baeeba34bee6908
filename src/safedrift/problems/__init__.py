"""Named worlds. `make("maze", episodes=20_000, seed=0)` returns a `DriftingCMDP`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from safedrift import _check
from safedrift.models import DriftingCMDP
from safedrift.problems.maze import maze
from safedrift.problems.random import random, with_gap

__all__ = ["PROBLEMS", "describe", "make", "with_gap"]

PROBLEMS: dict[str, Callable[..., DriftingCMDP]] = {"maze": maze, "random": random}


def make(name: str, episodes: int = 20_000, seed: int = 0, **options: Any) -> DriftingCMDP:
    """Build a named problem.

    Parameters
    ----------
    name
        One of `PROBLEMS`.
    episodes
        M.
    seed
        Of whatever is random in the world itself.
    **options
        Of the problem; see `describe(name)`.
    """
    _check.choice("problem", name, tuple(PROBLEMS))
    build = PROBLEMS[name]
    known = [p for p in inspect.signature(build).parameters if p not in ("episodes", "seed")]
    for option in options:
        _check.choice(f"option of {name}", option, known)
    world = build(episodes, seed, **options)
    world.name = name
    return world


def describe(name: str) -> str:
    """Return the story of a problem: states, actions, reward, utility, drift, knowledge."""
    _check.choice("problem", name, tuple(PROBLEMS))
    return inspect.getdoc(sys.modules[PROBLEMS[name].__module__]) or ""
