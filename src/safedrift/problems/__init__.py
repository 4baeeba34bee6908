"""Named worlds. `make("maze", episodes=20_000, seed=0)` returns one, ready to simulate.

One module per problem: its docstring describes the world, `build` makes it, and `display`, if
defined, returns what a picture of it shows. `blend` and `thermostat` are `LinearKernelCMDP`s, all
others are `DriftingCMDP`s. Those in `published` are the worlds of other papers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from safedrift import _check
from safedrift.adapters.registration import register

if TYPE_CHECKING:
    from safedrift.adapters.environment import DriftingEnv
    from safedrift.display import Display
    from safedrift.models import DriftingWorld

__all__ = ["PROBLEMS", "display", "documentation", "make", "make_environment", "options"]

_OURS = (
    "maze", "energy", "inventory", "queue", "dosing", "driving", "commute", "departures",
    "frozen_lake", "cliff_walking", "taxi", "reservoir", "data_centre", "ward", "blend",
    "thermostat", "random", "adversary", "stationary",
)  # fmt: skip
_PUBLISHED = (
    "drifting_grid", "triple_q_grid", "media", "dope_inventory", "factored", "job_scheduler",
    "kitamura_random", "kitamura_streaming", "complementary", "combination_lock",
)  # fmt: skip


class _Modules(Mapping[str, ModuleType]):
    """Modules by name, each loaded when it is asked for."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> ModuleType:
        return import_module(self.places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places


PROBLEMS: Mapping[str, ModuleType] = _Modules(
    {name: f"{__name__}.{name}" for name in _OURS}
    | {name: f"{__name__}.published.{name}" for name in _PUBLISHED}
)


def make(name: str, episodes: int = 20_000, seed: int = 0, **chosen: Any) -> DriftingWorld:
    """Build a named problem.

    Parameters
    ----------
    name
        One of `PROBLEMS`.
    episodes
        M.
    seed
        Seed of the random parts of the world.
    **chosen
        Options of the problem; see `options(name)` and `documentation(name)`.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.problems.make("maze", episodes=100, size=4)
    DriftingCMDP(M=100, H=12, S=16, A=4, K=1, scenarios=3)
    """
    _check.choice("problem", name, tuple(PROBLEMS))
    for given in chosen:
        _check.choice(f"option of {name}", given, tuple(options(name)))
    _check.integer("seed", seed, lower=0)
    world: DriftingWorld = PROBLEMS[name].build(episodes, seed, **chosen)
    world.name = name
    plain = {key: x.tolist() if hasattr(x, "tolist") else x for key, x in chosen.items()}
    world.recipe = {"episodes": int(episodes), "seed": int(seed), **plain}
    return world


def documentation(name: str) -> str:
    """Return the description of a problem: states, actions, reward, utility, drift, knowledge.

    Examples
    --------
    >>> import safedrift as sd
    >>> print(sd.problems.documentation("maze").splitlines()[0])
    Reach a moving target in a maze without stepping on hazards too often.
    """
    _check.choice("problem", name, tuple(PROBLEMS))
    return inspect.getdoc(PROBLEMS[name]) or ""


def display(world: DriftingWorld) -> Display:
    """Return what a picture of a world shows: as its problem defines it, or a generic display.

    Examples
    --------
    >>> import safedrift as sd
    >>> shown = sd.problems.display(sd.problems.make("maze", episodes=20))
    >>> type(shown).__name__
    'Display'
    """
    from safedrift.display import generic_display

    own = getattr(PROBLEMS.get(world.name or ""), "display", None)
    return generic_display(world) if own is None else own(world)


def options(name: str) -> dict[str, Any]:
    """Return the options of a problem and their defaults.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.problems.options("maze")["slip"]
    0.1
    """
    _check.choice("problem", name, tuple(PROBLEMS))
    known = inspect.signature(PROBLEMS[name].build).parameters
    return {key: p.default for key, p in known.items() if key not in ("episodes", "seed")}


def make_environment(
    problem: str,
    episodes: int = 20_000,
    world_seed: int = 0,
    *,
    noisy: bool = False,
    render_mode: str | None = None,
    **options: Any,
) -> DriftingEnv:
    """Return a named problem as a Gymnasium environment; `gymnasium.make` calls this.

    Examples
    --------
    >>> import safedrift as sd
    >>> env = sd.problems.make_environment("maze", episodes=10)
    >>> state, info = env.reset(seed=0)
    >>> int(state), info["episode"]
    (22, 0)
    """
    from safedrift.adapters.environment import DriftingEnv

    world = make(problem, episodes, world_seed, **options)
    return DriftingEnv(world, noisy=noisy, render_mode=render_mode)


register(PROBLEMS, f"{__name__}:make_environment")
