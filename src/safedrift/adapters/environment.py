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
from safedrift.models import DriftingWorld, LinearKernelCMDP, TabularCMDP
from safedrift.models.stepping import first_point, next_point, signals

__all__ = ["VERSION", "DriftingEnv", "register"]

VERSION = 0


class DriftingEnv(gymnasium.Env[Any, Any]):
    """A drifting world as a Gymnasium environment.

    Parameters
    ----------
    world
        A named problem or your own world.
    noisy
        Bernoulli rewards and utilities with the model's means instead of the means.
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
        self._on_box: LinearKernelCMDP | None = None
        if isinstance(world, LinearKernelCMDP) and world.box is not None:
            self._on_box = world
            self.observation_space = spaces.Box(world.box.low, world.box.high, dtype=np.float64)
        self.episode = -1
        self._step: int | None = None
        self._state: Any = None
        self._today: TabularCMDP  # of finitely many states, set by reset

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
        if self._on_box is not None:
            self._state = first_point(self._on_box, self.np_random.random())
        else:
            self._today = self.world.at(self.episode)
            self._state = self._drawn(np.arange(self.world.S), self.world.initial)
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
        means = self._signals(self._step, a)
        values = means
        if self.noisy:
            values = (self.np_random.random(means.size) < means).astype(np.float64)
        if self._step + 1 < self.world.H:
            self._state = self._next(self._step, a)
        self._step += 1
        over = self._step == self.world.H
        return self._observation(), float(values[0]), over, False, self._info(values[1:])

    def _signals(self, h: int, a: int) -> np.ndarray:
        """Mean reward and utilities (1+K,)."""
        x = self._state
        if self._on_box is not None:
            return signals(self._on_box, self.episode, h, x, a)
        return np.append(self._today.rewards[h, x, a], self._today.utilities[:, h, x, a])

    def _next(self, h: int, a: int) -> Any:
        x = self._state
        if self._on_box is not None:
            u = self.np_random.random(1 + x.size)
            return next_point(self._on_box, self.episode, h, x, a, u)
        lists = self._today.successors
        row = (h * self.world.S + x) * self.world.A + a
        part = slice(lists.offsets[row], lists.offsets[row + 1])
        return self._drawn(lists.states[part], lists.probabilities[part])

    def _drawn(self, states: np.ndarray, probabilities: np.ndarray) -> int:
        below = np.cumsum(probabilities)
        place = np.searchsorted(below, self.np_random.random() * below[-1], side="right")
        return int(states[min(int(place), states.size - 1)])

    def _observation(self) -> Any:
        return np.int64(self._state) if self._on_box is None else self._state.copy()

    def _info(self, utility: np.ndarray) -> dict[str, Any]:
        return {
            "utility": utility, "cost": 1.0 - utility,
            "threshold": np.array(self.world.thresholds[self.episode]),
            "episode": self.episode, "step": self._step,
        }  # fmt: skip


def register(names: tuple[str, ...], entry_point: str) -> None:
    """Register problems as safedrift/NAME-v0; `gymnasium.make` takes their options."""
    for name in names:
        id = f"safedrift/{name}-v{VERSION}"
        if id not in gymnasium.registry:
            gymnasium.register(id, entry_point=entry_point, kwargs={"problem": name})
