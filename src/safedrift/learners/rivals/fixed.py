"""A policy that never learns: the uniform one, or any other.

Reference points. The uniform policy is what the strict score is measured in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer
from safedrift.kernels.tabular.fixed import play_policies
from safedrift.kernels.types import TableArrays, prepared
from safedrift.learners.checked import CheckedLearner, Setup, tabular_setup
from safedrift.learners.policies import draw_action
from safedrift.learners.protocol import Problem

__all__ = ["FixedPolicy", "build"]


def build(world: Problem, *, seed: int | np.random.SeedSequence = 0) -> CheckedLearner:
    """Return the uniform policy as a learner.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=20)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world))
    >>> bool((run.outcome.reward == run.truth.baseline_reward).all())
    True
    """
    setup = tabular_setup(world)
    _, H, S, A, _ = setup.sizes
    algorithm = FixedPolicy(setup, np.full((H, S, A), 1 / A), "uniform", told=())
    return CheckedLearner(algorithm, seed)


class FixedPolicy:
    """An algorithm that plays one policy (H, S, A) for ever.

    Parameters
    ----------
    told
        What one must know to have this policy.
    """

    plays_in = TableArrays

    def __init__(
        self, setup: Setup, policy: ArrayLike, name: str, *, told: tuple[str, ...]
    ) -> None:
        _, H, S, A, _ = setup.sizes
        self.setup, self.name, self.told = setup, name, told
        self.table: FloatArray = prepared(_check.floats("policy", policy, (H, S, A)))
        _check.distribution("policy", self.table)
        self.episode = 0

    def fresh(self, seed: int | np.random.SeedSequence) -> FixedPolicy:
        """Return the same policy before the first episode."""
        return FixedPolicy(self.setup.renewed(), self.table, self.name, told=self.told)

    def begin(self, thresholds: FloatArray) -> FloatArray:
        """Return the policy."""
        return self.table

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return draw_action(self.table[h, s], u)

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Count the episode."""
        self.episode += 1

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        which = np.zeros(B, np.int64)
        play_policies(
            arrays, self.episode, self.table[None], which, inputs, make_episode_buffer(H, K), out
        )
        self.episode += B
        return {}

    def trace(self) -> dict[str, Any]:
        """Return nothing: there is nothing to show."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return what one must know to have this policy."""
        return {"told": list(self.told)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the number of finished episodes."""
        return {"episode": np.array(self.episode)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.episode = int(state["episode"])
