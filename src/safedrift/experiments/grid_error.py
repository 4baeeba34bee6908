"""What the grid of a continuous world costs: the same policies measured on a grid twice as fine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.models import LinearKernelCMDP, refined
from safedrift.models.continuous import Box
from safedrift.oracles import evaluate_episodes, optima
from safedrift.results import Outcome

__all__ = ["GridError", "finer"]

PROBES = 16  # episodes at which the grid is refined


class GridError:
    """How much the measured numbers change when the nodes are doubled, at a few episodes.

    The policies are the same, evaluated at the nodes of the finer grid; the world, its optimum and
    the exact values are those of the finer grid.
    """

    def __init__(self, world: LinearKernelCMDP, measured: IntArray) -> None:
        # At random: evenly spaced ones would all fall into the same season of a periodic world.
        count = min(PROBES, measured.size)
        self.place = np.sort(np.random.default_rng(0).choice(measured.size, count, replace=False))
        self.episodes = measured[self.place]
        self.coarse, self.fine = world, finer(world)
        self.policies: list[FloatArray] = []

    def watch(self, m: int, policy: Any) -> None:
        """Evaluate the policy of episode m at the nodes of the finer grid, if it is probed."""
        if m in self.episodes and hasattr(policy, "at"):
            points = _box(self.fine).points
            self.policies.append(np.stack([policy.at(h, points) for h in range(self.fine.H)]))

    def state(self) -> dict[str, FloatArray]:
        """Return the policies kept so far, for a checkpoint."""
        return {f"policy {i}": policy for i, policy in enumerate(self.policies)}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Continue with what `state` returned."""
        self.policies = [state[f"policy {i}"] for i in range(len(state))]

    def error(self, optimal_reward: FloatArray, outcome: Outcome) -> dict[str, Any] | None:
        """Largest changes of V_r*, V_r, V_r* - V_r and V_g; None without policies off the nodes."""
        if len(self.policies) < len(self.episodes):
            return None
        best = optima(self.fine, self.episodes).value - optimal_reward[self.place]
        found = evaluate_episodes(self.fine, self.episodes, np.stack(self.policies))
        reward = found[:, 0] - outcome.reward[self.place]
        return {
            "rule": _box(self.coarse).rule,
            "nodes": [_box(self.coarse).nodes, _box(self.fine).nodes],
            "episodes": self.episodes.tolist(),
            "optimal_reward": float(np.abs(best).max()),
            "reward": float(np.abs(reward).max()),
            "regret": float(np.abs(best - reward).max()),
            "utility": float(np.abs(found[:, 1:] - outcome.utility[self.place]).max()),
            "quadrature": self.coarse.quadrature_error,
        }


def finer(world: LinearKernelCMDP) -> LinearKernelCMDP:
    """Return the world with twice the nodes, or say why it cannot be measured there."""
    try:
        return refined(world)
    except ValueError as error:
        raise ValueError(
            "world must be valid with twice the nodes in each direction too, where the grid error "
            f"is measured; there, {error}"
        ) from None


def _box(world: LinearKernelCMDP) -> Box:
    if world.box is None:
        _check.fail("world", "on a box", "one with finitely many states")
    return world.box
