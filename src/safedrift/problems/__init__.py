"""Named worlds. `make("maze", episodes=20_000, seed=0)` returns one, ready to simulate.

`blend` and `thermostat` are `LinearKernelCMDP`s, all others are `DriftingCMDP`s.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from safedrift import _check
from safedrift.models import DriftingWorld
from safedrift.problems._look import Board, Drifting, Look, Quantity, Scene, generic_look
from safedrift.problems.adversary import adversary
from safedrift.problems.blend import blend
from safedrift.problems.cliff_walking import cliff_walking
from safedrift.problems.commute import commute
from safedrift.problems.departures import departures
from safedrift.problems.dosing import dosing
from safedrift.problems.driving import driving
from safedrift.problems.energy import energy
from safedrift.problems.environment import register
from safedrift.problems.frozen_lake import frozen_lake
from safedrift.problems.inventory import inventory
from safedrift.problems.maze import maze
from safedrift.problems.queue import queue
from safedrift.problems.random import random, with_gap
from safedrift.problems.stationary import stationary
from safedrift.problems.taxi import taxi
from safedrift.problems.thermostat import thermostat

__all__ = [
    "PROBLEMS",
    "Board",
    "Drifting",
    "Look",
    "Quantity",
    "Scene",
    "look",
    "make",
    "options",
    "story",
    "with_gap",
]

PROBLEMS: dict[str, Callable[..., DriftingWorld]] = {
    "maze": maze,
    "energy": energy,
    "inventory": inventory,
    "queue": queue,
    "dosing": dosing,
    "driving": driving,
    "commute": commute,
    "departures": departures,
    "frozen_lake": frozen_lake,
    "cliff_walking": cliff_walking,
    "taxi": taxi,
    "blend": blend,
    "thermostat": thermostat,
    "random": random,
    "adversary": adversary,
    "stationary": stationary,
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
        Options of the problem; see `options(name)` and `story(name)`.
    """
    _check.choice("problem", name, tuple(PROBLEMS))
    build = PROBLEMS[name]
    for given in chosen:
        _check.choice(f"option of {name}", given, tuple(options(name)))
    _check.integer("seed", seed, lower=0)
    world = build(episodes, seed, **chosen)
    world.name = name
    plain = {key: x.tolist() if hasattr(x, "tolist") else x for key, x in chosen.items()}
    world.recipe = {"episodes": int(episodes), "seed": int(seed), **plain}
    return world


def story(name: str) -> str:
    """Return the story of a problem: states, actions, reward, utility, drift, knowledge."""
    _check.choice("problem", name, tuple(PROBLEMS))
    return inspect.getdoc(sys.modules[PROBLEMS[name].__module__]) or ""


def look(world: DriftingWorld) -> Look:
    """Return how a world wants to be looked at: its problem's own way, or a generic one."""
    if world.name in PROBLEMS:
        own = getattr(sys.modules[PROBLEMS[world.name].__module__], "look", None)
        if own is not None:
            return own(world)  # type: ignore[no-any-return]
    return generic_look(world)


def options(name: str) -> dict[str, Any]:
    """Return the options of a problem and their defaults."""
    _check.choice("problem", name, tuple(PROBLEMS))
    known = inspect.signature(PROBLEMS[name]).parameters
    return {key: p.default for key, p in known.items() if key not in ("episodes", "seed")}
