"""Play a learner in a Gymnasium environment: it is all that anybody sees.

Where the world behind the environment is known (an environment of safedrift's own), the policies
are measured in it exactly. Elsewhere a run has what was observed; optimum, regret, Slater gap and
drift are not known, and NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from safedrift._check import FloatArray
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld, play_episode
from safedrift.kernels import simulation
from safedrift.learners import PROPDPPO
from safedrift.learners.propd_ppo.engines import Engine
from safedrift.models import DriftingWorld
from safedrift.oracles import Optima, variation
from safedrift.results.run import Run, info_of, make_run

__all__ = ["measured_run", "observed_run", "play_in_environment"]


def play_in_environment(
    world: GymnasiumWorld,
    engine: Engine,
    seed: int,
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
    """`simulation.play` through an environment, with its arguments; some go unused.

    `seed` is that of the first reset of all; later ones have none, so that a drift goes on.
    """
    written = 0
    for e in range(len(action_uniforms)):
        m = int(engine.memory.episode[0])
        policy = engine.begin(m)
        if measured[e]:
            policies[written] = np.asarray(policy)
            written += 1
        act = _actor(engine, action_uniforms[e])
        states, actions, values = play_episode(world, m, act, seed if m == 0 else None)
        if not world.initial_known:  # shares of the first states so far
            engine.memory.initial[:] *= m / (m + 1)
            engine.memory.initial[states[0]] += 1 / (m + 1)
        at_cap = engine.end(m, world.thresholds[m], states, actions, values)
        out.at_cap[e] = at_cap / values.size
        out.mu[e] = engine.memory.mu
        out.v_start[e] = engine.memory.v_start
        out.returns[e] = values.sum(axis=1)


def _actor(engine: Engine, uniforms: FloatArray) -> Callable[[int, int], int]:
    return lambda h, state: engine.act(h, state, float(uniforms[h]))


def measured_run(
    world: GymnasiumWorld,
    known: DriftingWorld,
    learner: PROPDPPO,
    truth: Optima,
    values: FloatArray,
    record: simulation.Record,
    seed: int,
    measure_every: int,
) -> Run:
    """What was learnt in an environment, beside what is true of the world behind it."""
    noisy = bool(getattr(world.env.unwrapped, "noisy", False))
    run = make_run(
        known, learner, truth, values, record, variation(known),
        seed=seed, noisy=noisy, measure_every=measure_every,
    )  # fmt: skip
    return replace(run, info=run.info | _told(world))


def observed_run(
    world: GymnasiumWorld, learner: PROPDPPO, record: simulation.Record, seed: int
) -> Run:
    """What was observed in an environment that nothing is known of."""
    M, K = world.M, world.K
    unknown, unknowns = np.full(M, np.nan), np.full((M, K), np.nan)
    at = np.arange(M)
    return Run(
        episodes=at,
        reward=record.returns[:, 0],
        optimal_reward=unknown,
        utility=record.returns[:, 1:],
        thresholds=world.thresholds,
        mu=record.mu,
        optimal_mu=unknowns,
        gamma=unknown,
        estimated_reward=record.v_start[:, 0],
        estimated_utility=record.v_start[:, 1 : 1 + K],
        policy_restart=at % learner.settings.L == 0,
        window_restart=at % learner.settings.W == 0,
        at_cap=record.at_cap,
        observed=record.returns,
        drift_P=unknown,
        drift_r=unknown,
        drift_g=unknown,
        drift_b=unknown,
        drift_star=unknown,
        baseline_reward=unknown,
        baseline_utility=unknowns,
        info=info_of(
            learner, world.name, {}, seed=seed, noisy=learner.parameters.noisy, measure_every=1,
            truth=False,
        ) | _told(world),
    )  # fmt: skip


def _told(world: GymnasiumWorld) -> dict[str, Any]:
    return {"environment": world.name, "reward_range": list(world.reward_range)}
