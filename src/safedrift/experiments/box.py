"""Play a learner in a continuous world, and say what its discretisation costs.

The features of a box are Python functions, so the loop over steps is one in Python; everything that
depends on the number of nodes, episodes or features is compiled. An episode uses from the
world's stream, in this order: one number for the first state, 1 + n for each of H-1 successors (the
base density, then the draw from it), then H*(1+K) for noisy observations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels import simulation
from safedrift.learners.propd_ppo.engines import BoxEngine
from safedrift.models import LinearKernelCMDP, refined
from safedrift.models.stepping import first_point, next_point, signals
from safedrift.oracles import Optima, evaluate_episodes, optima

__all__ = ["Refinement", "box_uniforms", "finer", "play_on_box"]

PROBES = 16  # episodes at which the grid is refined


class Refinement:
    """How much the measured numbers change when the nodes are doubled, at a few episodes.

    The learner is the same, its policy rebuilt at the nodes of the finer grid; the world, its
    optimum and the exact values are those of the finer grid.
    """

    def __init__(self, world: LinearKernelCMDP, measured: IntArray) -> None:
        # At random: evenly spread ones would all fall into the same season of a periodic world.
        count = min(PROBES, measured.size)
        self.place = np.sort(np.random.default_rng(0).choice(measured.size, count, replace=False))
        self.episodes = measured[self.place]
        self.coarse, self.fine = world, finer(world)
        self.policies: list[FloatArray] = []

    def look(self, m: int, engine: BoxEngine) -> None:
        """Rebuild the policy of episode m at the nodes of the finer grid, if it is one to probe."""
        if m in self.episodes:
            points = _box(self.fine).points
            self.policies.append(
                np.stack([engine.policy_at(h, points) for h in range(self.fine.H)])
            )

    def error(self, truth: Optima, values: FloatArray) -> dict[str, Any]:
        """Largest changes of V_r*, V_r, V_r* - V_r and V_g; `values` (n, 1+K) are the coarse."""
        optimal = optima(self.fine, self.episodes).value
        found = evaluate_episodes(self.fine, self.episodes, np.stack(self.policies))
        reward = found[:, 0] - values[self.place, 0]
        best = optimal - truth.value[self.place]
        return {
            "rule": _box(self.coarse).rule,
            "nodes": [_box(self.coarse).nodes, _box(self.fine).nodes],
            "episodes": self.episodes.tolist(),
            "optimal_reward": float(np.abs(best).max()),
            "reward": float(np.abs(reward).max()),
            "regret": float(np.abs(best - reward).max()),
            "utility": float(np.abs(found[:, 1:] - values[self.place, 1:]).max()),
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


def box_uniforms(H: int, K: int, n: int) -> int:
    """How many numbers an episode takes from the world's stream."""
    return 1 + (H - 1) * (1 + n) + H * (1 + K)


def play_on_box(
    world: LinearKernelCMDP,
    engine: BoxEngine,
    refinement: Refinement,
    arrays: Any,
    settings: Any,
    memory: Any,
    noisy: bool,
    action_uniforms: FloatArray,
    world_uniforms: FloatArray,
    measured: np.ndarray,
    policies: FloatArray,
    trajectory: Any,
    log: Any,
    out: simulation.Record,
) -> None:
    """`simulation.play` for states that fill a box, with its arguments; some go unused."""
    if world.box is None or world.box.sample is None:
        raise TypeError(
            "world must have sample to be simulated; got None (a loop of your own does)"
        )
    B, H = action_uniforms.shape
    K = world.K
    written = 0
    states, actions = np.empty((H, world.box.low.size)), np.empty(H, np.int64)
    for e in range(B):
        m = int(engine.memory.episode[0])
        policy = engine.begin(m)
        if measured[e]:
            policies[written] = np.asarray(policy)
            written += 1
            refinement.look(m, engine)
        u = world_uniforms[e]
        x = first_point(world, u[0])
        means = np.empty((1 + K, H))
        for h in range(H):
            states[h] = x
            actions[h] = engine.act(h, x, float(action_uniforms[e, h]))
            means[:, h] = signals(world, m, h, x, int(actions[h]))
            if h + 1 < H:
                x = next_point(world, m, h, x, int(actions[h]), u[1 + h * (1 + x.size) :])
        values = means
        if noisy:
            noise = u[-H * (1 + K) :].reshape(H, 1 + K).T
            values = np.where(noise < means, 1.0, 0.0)
        at_cap = engine.end(m, world.thresholds[m], states, actions, np.ascontiguousarray(values))
        out.at_cap[e] = at_cap / (H * (1 + K))
        out.mu[e] = engine.memory.mu
        out.v_start[e] = engine.memory.v_start
        out.returns[e] = values.sum(axis=1)


def _box(world: LinearKernelCMDP) -> Any:
    if world.box is None:
        _check.fail("world", "on a box", "one with finitely many states")
    return world.box
