"""Every named world as a Gymnasium environment: `gymnasium.make("safedrift/maze-v0")`.

Each `reset` starts the next episode of the drift; the first one, and every one with a seed, starts
episode 0. An episode terminates after H steps: the horizon is part of the problem. Rewards are
those of the world. Utilities, whose expected sum must reach the threshold, are in `info`:

    info["utility"]    (K,) g_k(x, a) of the step just made; utility and cost are 0 after a reset
    info["threshold"]  (K,) b_m
    info["cost"]       (K,) 1 - utility; the expected sum may be at most H - threshold
    info["episode"], info["step"]   m and h, from 0

Observations are state numbers, or points where states are continuous. They do not contain the step,
which is in `info`.
"""

from __future__ import annotations

from typing import Any, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from safedrift import _check
from safedrift.models import DriftingWorld, LinearKernelCMDP
from safedrift.models.stepping import stepper_for

__all__ = ["DriftingEnv"]


class DriftingEnv(gymnasium.Env[Any, Any]):
    """A drifting world as a Gymnasium environment.

    Parameters
    ----------
    world
        A named problem or your own world.
    noisy
        Bernoulli rewards and utilities with the model's means instead of the means.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.adapters.environment import DriftingEnv
    >>> env = DriftingEnv(world)
    >>> state, info = env.reset(seed=0)
    >>> state, reward, terminated, truncated, info = env.step(1)
    >>> info["episode"], info["step"], info["threshold"]
    (0, 1, array([9.5]))
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self,
        world: DriftingWorld,
        *,
        noisy: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            _check.fail("render_mode", "None: there is nothing to render", repr(render_mode))
        self.world = _check.kind("world", world, get_args(DriftingWorld))
        self.noisy = _check.kind("noisy", noisy, bool)
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(world.A)
        self.observation_space = spaces.Discrete(world.S)
        self._stepper = stepper_for(world, noisy=noisy)
        self._on_box = isinstance(world, LinearKernelCMDP) and world.box is not None
        if isinstance(world, LinearKernelCMDP) and world.box is not None:
            self.observation_space = spaces.Box(world.box.low, world.box.high, dtype=np.float64)
        self.episode = -1
        self._step: int | None = None
        self._state: Any = None
        self._no_noise = np.zeros(1 + world.K)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the next episode, or options["episode"]; after the last one the world is fixed.

        A `seed` seeds states and noise and restarts at episode 0.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.episode = -1
        chosen = dict(options or {})
        wanted = chosen.pop("episode", min(self.episode + 1, self.world.M - 1))
        if chosen:
            _check.fail("options", "{'episode': m}", ", ".join(map(str, chosen)))
        self.episode = _check.integer("episode", wanted, lower=0, upper=self.world.M - 1)
        self._step = 0
        self._state = self._stepper.first(self.episode, self.np_random.random(1))
        nothing = np.zeros(self.world.K)
        return self._observation(), self._info(nothing) | {"cost": nothing.copy()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step; the last of H terminates the episode."""
        if self._step is None:
            raise RuntimeError("step was called before reset")
        if self._step >= self.world.H:
            raise RuntimeError(f"the episode of H = {self.world.H} steps is over; call reset")
        if isinstance(action, np.ndarray) and action.ndim == 0:
            action = action[()]
        a = _check.integer("action", action, lower=0, upper=self.world.A - 1)
        m, h, x = self.episode, self._step, self._state
        noise = self.np_random.random(1 + self.world.K) if self.noisy else self._no_noise
        values = self._stepper.signals(m, h, x, a, noise)
        if h + 1 < self.world.H:
            u = self.np_random.random(self._stepper.next_draws)
            self._state = self._stepper.next(m, h, x, a, u)
        self._step += 1
        over = self._step == self.world.H
        return self._observation(), float(values[0]), over, False, self._info(values[1:])

    def _observation(self) -> Any:
        return self._state.copy() if self._on_box else np.int64(self._state)

    def _info(self, utility: np.ndarray) -> dict[str, Any]:
        return {
            "utility": utility,
            "cost": 1.0 - utility,
            "threshold": np.array(self.world.thresholds[self.episode]),
            "episode": self.episode,
            "step": self._step,
        }
