"""Reference points that need an oracle: the optimum of the first episode, and of every episode.

`optimum-of-first-episode` is the best safe policy of episode 0, played for ever: what planning once
and never learning is worth. `optimum` plays the best safe policy of each episode; its regret and
violation are zero up to rounding. Both see the truth, so neither can win a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray, IntArray
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer
from safedrift.kernels.tabular.fixed import play_policies
from safedrift.kernels.types import TableArrays
from safedrift.learners import CheckedLearner, draw_action
from safedrift.learners.checked import tabular_setup
from safedrift.learners.rivals.fixed import FixedPolicy
from safedrift.models import DriftingWorld
from safedrift.oracles import optimal_policies

__all__ = ["ORACLES", "EpisodeOptima", "optimum", "optimum_of_first_episode"]

_AHEAD = 32  # episodes solved at once where episodes are played one by one


def optimum_of_first_episode(world: DriftingWorld) -> CheckedLearner:
    """Return the best safe policy of episode 0 as a learner."""
    setup = tabular_setup(world)
    _, policies, _ = optimal_policies(world, np.zeros(1, np.int64))
    told = ("the world of episode 0",)
    return CheckedLearner(
        FixedPolicy(setup, _distributions(policies[0]), "optimum-of-first-episode", told=told)
    )


def optimum(world: DriftingWorld) -> CheckedLearner:
    """Return the best safe policy of every episode as a learner, an oracle.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.experiments.reference_points import optimum
    >>> world = sd.problems.make("maze", episodes=30)
    >>> run = sd.simulate(world, optimum(world))
    >>> bool(abs(run.regret).max() < 1e-9), bool(run.shortfall.max() < 1e-9)
    (True, True)
    """
    return CheckedLearner(EpisodeOptima(world))


ORACLES = {"optimum-of-first-episode": optimum_of_first_episode, "optimum": optimum}


class EpisodeOptima:
    """An algorithm that plays the optimum of the coming episode, which only an oracle knows."""

    plays_in = TableArrays
    name = "optimum"

    def __init__(self, world: DriftingWorld) -> None:
        self.world = world
        self.setup = tabular_setup(world)
        self.episode = 0
        self._current: FloatArray = np.empty(0)
        self._solved: tuple[int, FloatArray, IntArray] = (0, np.empty(0), np.empty(0, np.int64))

    def fresh(self, seed: int | np.random.SeedSequence) -> EpisodeOptima:
        """Return the same oracle before the first episode."""
        return EpisodeOptima(self.world)

    def _policies(self, count: int) -> tuple[FloatArray, IntArray]:
        """Optimal policies (n, H, S, A) of the coming episodes, and which is whose (count,)."""
        last = min(self.episode + count, self.world.M)
        _, policies, which = optimal_policies(self.world, np.arange(self.episode, last))
        return _distributions(policies), which

    def begin(self, thresholds: FloatArray) -> FloatArray:
        """Return the optimal policy of the coming episode."""
        if self.episode >= self.world.M:
            raise RuntimeError(f"the world has {self.world.M} episodes, and all are finished")
        first, policies, which = self._solved
        if not 0 <= self.episode - first < which.size:
            self._solved = first, policies, which = (self.episode, *self._policies(_AHEAD))
        self._current = policies[which[self.episode - first]]
        return self._current

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return draw_action(self._current[h, s], u)

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Count the episode."""
        self.episode += 1

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        policies, which = self._policies(B)
        play_policies(arrays, self.episode, policies, which, inputs, make_episode_buffer(H, K), out)
        self.episode += B
        return {}

    def trace(self) -> dict[str, Any]:
        """Return nothing: there is nothing to show."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return that everything is known."""
        return {"told": ["the world of every episode"]}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the number of finished episodes."""
        return {"episode": np.array(self.episode)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.episode = int(state["episode"])


def _distributions(policies: FloatArray) -> FloatArray:
    """Policies whose rows add up to 1 exactly enough to be drawn from."""
    clipped = np.maximum(policies, 0)
    return np.asarray(clipped / clipped.sum(axis=-1, keepdims=True))
