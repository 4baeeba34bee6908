"""Environments of other libraries, adapted to Gymnasium's interface for `from_gymnasium`.

Safety-Gymnasium's `step` returns six values; the third, the cost, moves to info["cost"]. NS-Gym's
observations are dictionaries of the state and notices of change; the state becomes the observation,
the notices move to `info`, and a structured reward becomes a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import spaces

from safedrift import _check

__all__ = ["from_ns_gym", "six_tuple"]

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


def six_tuple(env: Any) -> gymnasium.Env[Any, Any]:
    """Convert an environment whose step returns six values to one with five and info["cost"].

    Parameters
    ----------
    env
        A Safety-Gymnasium environment, or any object with `reset`, the two spaces, and
        a `step` that returns (observation, reward, cost, terminated, truncated, info).

    Examples
    --------
    >>> import gymnasium
    >>> from safedrift.adapters.third_party import six_tuple
    >>> class Six(gymnasium.Env):
    ...     observation_space = action_space = gymnasium.spaces.Discrete(2)
    ...     def step(self, action):
    ...         return 0, 1.0, 0.25, False, False, {}
    >>> six_tuple(Six()).step(0)
    (0, 1.0, False, False, {'cost': 0.25})
    """
    return _Adapted(env, env.observation_space, lambda seen, info: (seen, info), _five_of_six)


def from_ns_gym(env: Any) -> gymnasium.Env[Any, Any]:
    """Convert an NS-Gym environment to one whose observation is the state.

    Its notices ("env_change", "delta_change", "relative_time") are in `info`. NS-Gym restarts
    its drift at every reset, unless it is made with `persistent_params=True`.

    Examples
    --------
    >>> import gymnasium
    >>> from safedrift.adapters.third_party import from_ns_gym
    >>> class Drifting(gymnasium.Env):  # as NS-Gym returns it
    ...     observation_space = gymnasium.spaces.Dict({"state": gymnasium.spaces.Discrete(2)})
    ...     action_space = gymnasium.spaces.Discrete(2)
    ...     def step(self, action):
    ...         return {"state": 1, "env_change": 0}, 1.0, False, False, {}
    >>> from_ns_gym(Drifting()).step(0)
    (1, 1.0, False, False, {'env_change': 0})
    """
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or "state" not in space.spaces:
        _check.fail("observation_space", "a Dict with 'state', as NS-Gym has it", space)

    def step(outcome: Any) -> Step:
        seen, reward, terminated, truncated, info = outcome
        state, told = _state_alone(seen, info)
        return state, getattr(reward, "reward", reward), terminated, truncated, told

    return _Adapted(env, space["state"], _state_alone, step)


def _five_of_six(outcome: Any) -> Step:
    if len(outcome) != 6:
        _check.fail("what step returns", "six things, the third of them a cost", len(outcome))
    seen, reward, cost, terminated, truncated, info = outcome
    return seen, reward, terminated, truncated, {**info, "cost": cost}


def _state_alone(seen: dict[str, Any], info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    notices = {key: value for key, value in seen.items() if key != "state"}
    return seen["state"], {**info, **notices}


class _Adapted(gymnasium.Env[Any, Any]):
    """An adapted environment of another library, which may use an older Gymnasium."""

    def __init__(
        self,
        env: Any,
        observation_space: spaces.Space[Any],
        first: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]]],
        later: Callable[[Any], Step],
    ) -> None:
        self.env = env
        self.observation_space = observation_space
        self.action_space = env.action_space
        self.spec = getattr(env, "spec", None)
        self.render_mode = getattr(env, "render_mode", None)
        self._first, self._later = first, later

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        return self._first(*self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        """Make one step: observation, reward, terminated, truncated, info."""
        return self._later(self.env.step(action))

    def render(self) -> Any:
        """Return what the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
