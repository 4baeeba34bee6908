"""PROPD-PPO that is told nothing, compiled: the primal-dual family with rounds before each episode.

`told_nothing` has the formulas. The loop is `kernels.tabular.primal_dual`, whose simplest member is
the paper's algorithm, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray
from safedrift.kernels.records import (
    ChunkInput,
    ChunkOutput,
    EpisodeBuffer,
    Log,
    Schedule,
    Trace,
)
from safedrift.kernels.tabular import primal_dual as kernel
from safedrift.kernels.tabular.memory import Hyperparameters, Memory
from safedrift.kernels.tabular.primal_dual import Carried, Rules
from safedrift.kernels.types import TableArrays
from safedrift.learners.policies import TabularPolicy
from safedrift.learners.propd_ppo.components import DualStep, Settling
from safedrift.learners.propd_ppo.engines import TableEngine, flatten, unflatten

__all__ = ["SettlingEngine"]


class SettlingEngine:
    """Counts as in `TableEngine`, steps as in `told_nothing`."""

    plays_in = TableArrays

    def __init__(self, table: TableEngine, dual: DualStep, settling: Settling) -> None:
        self.table = table
        self.hyperparameters: Hyperparameters = table.hyperparameters
        K, C = table.sizes.K, table.memory.values.v_start.size
        self.rules = rules_of(settling, dual, K, C)
        self.carried = Carried(np.zeros(K), np.zeros(K), np.zeros(K), np.zeros(1, bool))

    @property
    def memory(self) -> Memory:
        """The window, the policy and the multipliers."""
        return self.table.memory

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes."""
        self.table.reserve(episodes)

    def begin(self, forget: Schedule, thresholds: FloatArray) -> TabularPolicy:
        """Start the next episode, after `rounds` rounds of steps, and return its policy."""
        kernel.begin_episode(
            thresholds,
            forget.opens_window[0],
            forget.drops[0],
            forget.discount[0],
            forget.restarts[0],
            self.hyperparameters,
            self.rules,
            self.memory,
            self.carried,
        )
        return self.table.policy()

    def act(self, h: int, state: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return self.table.act(h, state, u)

    def end(
        self, thresholds: FloatArray, states: NDArray[Any], actions: Any, signals: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        own = self.hyperparameters, self.rules, self.memory, self.carried
        return int(kernel.end_episode(thresholds, states, actions, signals, *own))

    def play(
        self,
        arrays: TableArrays,
        hyper: Hyperparameters,
        memory: Memory,
        schedule: Schedule,
        inputs: ChunkInput,
        buffer: EpisodeBuffer,
        out: ChunkOutput,
        trace: Trace,
        log: Log,
    ) -> None:
        """Play B episodes in one compiled call; there is no audit to log for."""
        own = self.rules, memory, self.carried
        kernel.play(arrays, hyper, *own, schedule, inputs, buffer, out, trace)

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        return self.table.q()

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learnt so far, as arrays."""
        return self.table.state() | flatten(self.carried, "carried.")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.table.restore(state)
        self.carried = unflatten(self.carried, state, "carried.")


def rules_of(settling: Settling, dual: DualStep, K: int, C: int) -> Rules:
    """Return what the compiled code takes, for K constraints and C channels."""
    signs = np.ones(C)
    signs[1 + K :] = 0.0  # without bonus, where the multiplier sees those
    return Rules(
        primal=kernel.REGULARISED,
        dual=kernel.PID,
        prompt=True,
        theta=0.0,
        tau=float(settling.tau),
        kappa=1.0,
        every=1,
        signs=signs,
        gains=np.array([settling.proportional, dual.eta, 0.0]),
        smoothing=0.0,
        steps=0,
        margin=np.zeros(1),
        scale=np.ones(1),
        rounds=int(settling.rounds),
    )
