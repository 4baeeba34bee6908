"""One step through a world: draw the first state, observe a pair, draw the next state.

A *stepper* is a world seen one step at a time. Simulations, Gymnasium environments and users' own
loops all step through one; compiled learners call the same compiled draws (`kernels.stepping`).
Randomness comes in as uniforms. An episode uses, in this order, 1 number for the first state,
`next_draws` for each of H-1 successors, then 1+K for the observations of each of H steps:

    uniforms_per_episode = 1 + (H-1) next_draws + H (1+K)

which `split_uniforms` cuts into these parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels import stepping
from safedrift.kernels.sums import product
from safedrift.models.continuous import Box, draw
from safedrift.models.densities import called
from safedrift.models.drifting import DriftingCMDP
from safedrift.models.features import ROUNDING
from safedrift.models.linear import LinearKernelCMDP

__all__ = ["Stepper", "Uniforms", "split_uniforms", "stepper_for", "uniforms_per_episode"]


class Stepper(Protocol):
    """A world seen one step at a time; m, h, states and actions count from 0."""

    next_draws: int  # uniforms that `next` takes; 0 where the world has a generator of its own

    def first(self, m: int, u: FloatArray) -> Any:
        """Draw the first state of episode m with u (1,)."""

    def signals(self, m: int, h: int, x: Any, a: int, u: FloatArray) -> FloatArray:
        """Observe reward and utilities (1+K,) of action a in state x; u (1+K,) makes the noise."""

    def next(self, m: int, h: int, x: Any, a: int, u: FloatArray) -> Any:
        """Draw the state after action a in state x with u (next_draws,)."""


class Uniforms(NamedTuple):
    """The uniforms of an episode."""

    first: FloatArray  # (1,)
    next: FloatArray  # (H-1, next_draws)
    signals: FloatArray  # (H, 1+K)


def uniforms_per_episode(H: int, K: int, next_draws: int) -> int:
    """How many uniforms an episode takes; none where the world draws its own."""
    return 1 + (H - 1) * next_draws + H * (1 + K) if next_draws else 0


def split_uniforms(u: FloatArray, H: int, K: int, next_draws: int) -> Uniforms:
    """Cut the uniforms of an episode (uniforms_per_episode,) into those of its draws."""
    if not next_draws:
        return Uniforms(np.empty(0), np.empty((H - 1, 0)), np.empty((H, 0)))
    middle = 1 + (H - 1) * next_draws
    return Uniforms(u[:1], u[1:middle].reshape(H - 1, next_draws), u[middle:].reshape(H, 1 + K))


def stepper_for(world: DriftingCMDP | LinearKernelCMDP, *, noisy: bool = False) -> Stepper:
    """Return the stepper of a world with a model.

    Parameters
    ----------
    noisy
        Observe Bernoulli rewards and utilities with the model's means instead of the means.
    """
    if isinstance(world, DriftingCMDP):
        return TableStepper(world, noisy)
    return LinearStepper(world, noisy) if world.box is None else BoxStepper(world, noisy)


class TableStepper:
    """Steps through a `DriftingCMDP`."""

    next_draws = 1

    def __init__(self, world: DriftingCMDP, noisy: bool = False) -> None:
        self._arrays, self._noisy = world.arrays, noisy
        self._seen = np.empty((1 + world.K, world.H))

    def first(self, m: int, u: FloatArray) -> int:
        """Draw the first state."""
        return int(stepping.draw_first(self._arrays, u[0]))

    def signals(self, m: int, h: int, x: int, a: int, u: FloatArray) -> FloatArray:
        """Observe reward and utilities (1+K,)."""
        stepping.draw_signals(self._arrays, m, h, x, a, self._noisy, u, self._seen)
        return self._seen[:, h].copy()

    def next(self, m: int, h: int, x: int, a: int, u: FloatArray) -> int:
        """Draw the next state."""
        return int(stepping.draw_next(self._arrays, m, h, x, a, u[0]))


class LinearStepper:
    """Steps through a `LinearKernelCMDP` with finitely many states."""

    next_draws = 1

    def __init__(self, world: LinearKernelCMDP, noisy: bool = False) -> None:
        self._arrays, self._noisy, self._A = world.arrays, noisy, world.A
        self._seen = np.empty((1 + world.K, world.H))

    def first(self, m: int, u: FloatArray) -> int:
        """Draw the first state."""
        return int(stepping.draw_first(self._arrays, u[0]))

    def signals(self, m: int, h: int, x: int, a: int, u: FloatArray) -> FloatArray:
        """Observe reward and utilities (1+K,)."""
        seen, A = self._seen, self._A
        stepping.draw_signals_linear(self._arrays, m, h, x, a, self._noisy, u, seen, A)
        return seen[:, h].copy()

    def next(self, m: int, h: int, x: int, a: int, u: FloatArray) -> int:
        """Draw the next state."""
        return int(stepping.draw_next_linear(self._arrays, m, h, x, a, u[0], self._A))


class BoxStepper:
    """Steps through a `LinearKernelCMDP` whose states fill a box; states are points (n,)."""

    def __init__(self, world: LinearKernelCMDP, noisy: bool = False) -> None:
        if world.box is None:
            _check.fail("world", "on a box", "one with finitely many states")
        if world.box.sample is None:
            raise TypeError(
                "world must have sample to be simulated; got None (a loop of your own needs none)"
            )
        self._world, self._noisy = world, noisy
        self._box: Box = world.box
        self.next_draws = 1 + world.box.low.size

    def first(self, m: int, u: FloatArray) -> FloatArray:
        """Draw the first state (n,)."""
        arrays = self._world.arrays
        chosen = int(np.searchsorted(np.cumsum(arrays.initial), u[0], side="right"))
        support = arrays.initial_states
        return np.asarray(self._box.points[support[min(chosen, support.size - 1)]])

    def signals(self, m: int, h: int, x: FloatArray, a: int, u: FloatArray) -> FloatArray:
        """Observe reward and utilities (1+K,)."""
        world = self._world
        phi = called("phi", self._box.phi, x[None], np.array([[a]]), shape=(1, world.d2))[0]
        theta = np.vstack((world.theta_r[m, h], world.theta_g[m, :, h]))
        means, square = product(theta, phi), float((phi * phi).sum())
        if means.min() < -ROUNDING or means.max() > 1 + ROUNDING or square > 1 + ROUNDING:
            _check.fail(
                "rewards, utilities and the norm of phi",
                "in [0, 1] everywhere, not at the nodes only",
                f"{means} and {np.sqrt(square):.6g}",
                f"(step {h}, state {x}, action {a})",
            )
        means = means.clip(0.0, 1.0)
        return np.where(u < means, 1.0, 0.0) if self._noisy else np.asarray(means)

    def next(self, m: int, h: int, x: FloatArray, a: int, u: FloatArray) -> FloatArray:
        """Draw x' ~ Σ_i θ_i p_i(·|x,a): base density i by u[0], then an exact draw by the rest."""
        theta = self._world.theta[m, h]
        i = min(int(np.searchsorted(np.cumsum(theta), u[0], side="right")), theta.size - 1)
        while theta[i] == 0.0:  # u beyond a sum that rounded below 1
            i -= 1
        return draw(self._box, x, a, i, u[1:])
