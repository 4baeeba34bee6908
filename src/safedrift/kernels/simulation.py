"""The simulation loop, compiled: world, learner and recording, a chunk of episodes at a time.

Uniforms are drawn outside. An episode uses, in this order, from the learner's stream H numbers
(actions) and from the world's stream H + H*(1+K) numbers: the first state and H-1 successors, then
reward and utilities of each step (used only where observations are noisy).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.linear import propd_ppo as linear
from safedrift.kernels.tabular import propd_ppo as learner
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_open


class Record(NamedTuple):
    """What a chunk of B episodes leaves behind."""

    mu: FloatArray  # (B, K) after the dual step
    v_start: FloatArray  # (B, C) estimates at the initial distribution
    at_cap: FloatArray  # (B,) share of estimates at their cap
    returns: FloatArray  # (B, 1+K) observed sums of reward and utilities


class Log(NamedTuple):
    """Everything an audit of B episodes asks for beyond policies and `Record`; or B = 0."""

    q: FloatArray  # (B, C, H, S, A) estimates of the episode
    states: NDArray[np.int64]  # (B, H)
    actions: NDArray[np.int64]  # (B, H)
    values: FloatArray  # (B, 1+K, H)


class Trajectory(NamedTuple):
    """The episode in play."""

    states: NDArray[np.int64]  # (H,)
    actions: NDArray[np.int64]  # (H,)
    values: FloatArray  # (1+K, H) rewards and utilities


@jit
def play(
    world, settings, memory, noisy, action_uniforms, world_uniforms, measured, policies,
    trajectory, log, out,
):  # fmt: skip
    """Play B episodes from `memory.episode` on.

    Parameters
    ----------
    action_uniforms : (B, H)
    world_uniforms : (B, H + H*(1+K))
    measured : (B,) bool, which episodes' policies are written out
    policies : (number measured, H, S, A)
    trajectory : Trajectory, scratch
    log : Log, written where it has room
    out : Record
    """
    B, H = action_uniforms.shape
    K = memory.mu.size
    states, actions, values = trajectory.states, trajectory.actions, trajectory.values
    written = 0
    for e in range(B):
        m = memory.episode[0]
        learner.begin_episode(m, settings, memory)
        if measured[e]:
            learner.write_policy(memory, policies[written])
            written += 1
        u_world = world_uniforms[e]
        s = first_state(world, u_world[0])
        for h in range(H):  # Alg. 1, lines 9 and 10
            states[h] = s
            actions[h] = learner.act(h, s, action_uniforms[e, h], memory)
            observe(world, m, h, s, actions[h], noisy, u_world, H + h * (1 + K), values)
            if h + 1 < H:
                s = next_state(world, m, h, s, actions[h], u_world[h + 1])
        at_cap = learner.end_episode(
            m, world.thresholds[m], states, actions, values, settings, memory
        )
        keep(e, at_cap, values, memory, out)
        if log.states.shape[0] > 0:
            learner.write_estimates(memory, log.q[e])
            keep_path(e, trajectory, log)


@jit
def play_linear(
    world, settings, memory, noisy, action_uniforms, world_uniforms, measured, policies,
    trajectory, log, out,
):  # fmt: skip
    """`play` for a linear-kernel world with finitely many states and its learner."""
    B, H = action_uniforms.shape
    K = memory.mu.size
    states, actions, values = trajectory.states, trajectory.actions, trajectory.values
    written = 0
    for e in range(B):
        m = memory.episode[0]
        linear.begin_episode(m, settings, memory)
        if measured[e]:
            linear.write_policy(memory, policies[written])
            written += 1
        u_world = world_uniforms[e]
        s = first_state(world, u_world[0])
        for h in range(H):
            states[h] = s
            actions[h] = linear.act(h, s, action_uniforms[e, h], memory)
            observe_linear(
                world, m, h, s, actions[h], noisy, u_world, H + h * (1 + K), values, memory
            )
            if h + 1 < H:
                s = next_linear(world, m, h, s, actions[h], u_world[h + 1], memory)
        at_cap = linear.end_episode(
            m, world.thresholds[m], states, actions, values, settings, world.features, memory
        )
        keep(e, at_cap, values, memory, out)
        if log.states.shape[0] > 0:
            linear.write_estimates(memory, log.q[e])
            keep_path(e, trajectory, log)


@jit_inline
def keep(e, at_cap, values, memory, out):
    """Record episode e of the chunk."""
    H, K = values.shape[1], memory.mu.size
    out.at_cap[e] = at_cap / (H * (1 + K))
    for k in range(K):
        out.mu[e, k] = memory.mu[k]
    for c in range(memory.v_start.size):
        out.v_start[e, c] = memory.v_start[c]
    for c in range(1 + K):
        for h in range(H):
            out.returns[e, c] += values[c, h]


@jit_inline
def keep_path(e, trajectory, log):
    """Log the trajectory of episode e of the chunk."""
    for h in range(trajectory.states.size):
        log.states[e, h] = trajectory.states[h]
        log.actions[e, h] = trajectory.actions[h]
        for c in range(trajectory.values.shape[0]):
            log.values[e, c, h] = trajectory.values[c, h]


@jit_inline
def first_state(world, u):
    """Draw the first state."""
    below = 0.0
    for i in range(world.initial.size):
        below += world.initial[i]
        if u < below:
            return np.int64(world.initial_states[i])
    return np.int64(world.initial_states[world.initial.size - 1])


@jit_inline
def next_state(world, m, h, s, a, u):
    """Draw x' ~ P^m_h(·|s,a): a scenario by its weight, then a successor in that scenario."""
    _, _, S, A = world.rewards.shape
    scenario, weight = world.transition_path.scenario, world.transition_path.weight
    j = 0
    while j + 1 < scenario.shape[1] and (u >= weight[m, j] or weight[m, j] == 0.0):
        u -= weight[m, j]
        j += 1
    while weight[m, j] == 0.0:  # rounding pushed u past the last scenario in use
        j -= 1
    u = min(u / weight[m, j], 1.0 - 1e-16)
    n = scenario[m, j]
    row = (h * S + s) * A + a
    low, high = world.offsets[row], world.offsets[row + 1] - 1
    while high - low > 8:
        middle = (low + high) // 2
        if u < world.cumulative[n, middle]:
            high = middle
        else:
            low = middle + 1
    place = low
    for e in range(low, high):  # counting instead of stopping avoids a branch per successor
        place += u >= world.cumulative[n, e]
    return np.int64(world.states[place])


@jit_inline
def observe(world, m, h, s, a, noisy, uniforms, first, values):
    """Write reward and utilities of (h, s, a) to values[:, h].

    Where noisy, they are Bernoulli draws with the uniforms from number `first` on.
    """
    scenario, weight = world.reward_path.scenario, world.reward_path.weight
    mean = 0.0
    for j in range(scenario.shape[1]):
        mean += weight[m, j] * world.rewards[scenario[m, j], h, s, a]
    values[0, h] = mean
    scenario, weight = world.utility_path.scenario, world.utility_path.weight
    for k in range(values.shape[0] - 1):
        mean = 0.0
        for j in range(scenario.shape[1]):
            mean += weight[m, j] * world.utilities[scenario[m, j], k, h, s, a]
        values[1 + k, h] = mean
    if noisy:
        toss(h, uniforms, first, values)


@jit_open
def toss(h, uniforms, first, values):
    """Replace the means in values[:, h] by Bernoulli draws."""
    for c in range(values.shape[0]):
        values[c, h] = 1.0 if uniforms[first + c] < values[c, h] else 0.0


@jit_inline
def next_linear(world, m, h, s, a, u, memory):
    """Draw x' ~ ⟨ψ(s,a,·), θ⟩ by running through the successors of the pair."""
    _, A, S = memory.pi.shape
    features, theta = world.features, world.theta
    row = linear.row_of(h, s, a, S, A, features)
    below = 0.0
    last = features.offsets[row]
    for e in range(features.offsets[row], features.offsets[row + 1]):
        p = 0.0
        for i in range(theta.shape[2]):
            p += features.psi[e, i] * theta[m, h, i]
        if p > 0.0:
            below += p
            last = e
            if u < below:
                break
    return np.int64(features.states[last])


@jit_inline
def observe_linear(world, m, h, s, a, noisy, uniforms, first, values, memory):
    """`observe` in a linear-kernel world: r = ⟨φ, θ_r⟩ and g = ⟨φ, θ_g⟩, clipped to [0, 1]."""
    features, d2 = world.features, world.theta_r.shape[2]
    S = memory.pi.shape[2]
    step = h if features.phi.shape[0] > 1 else 0
    for c in range(values.shape[0]):
        mean = 0.0
        if features.one_hot:
            i = s * memory.pi.shape[1] + a
            mean = world.theta_r[m, h, i] if c == 0 else world.theta_g[m, c - 1, h, i]
        else:
            for i in range(d2):
                x = features.phi[step, i, a * S + s]
                mean += x * (world.theta_r[m, h, i] if c == 0 else world.theta_g[m, c - 1, h, i])
        values[c, h] = min(max(mean, 0.0), 1.0)
    if noisy:
        toss(h, uniforms, first, values)


def make_record(B: int, K: int, C: int) -> Record:
    """Return an empty record of B episodes."""
    return Record(
        mu=np.zeros((B, K)),
        v_start=np.zeros((B, C)),
        at_cap=np.zeros(B),
        returns=np.zeros((B, 1 + K)),
    )


def make_log(B: int, C: int, H: int, S: int, A: int, K: int) -> Log:
    """Return room for the log of B episodes; none with B = 0."""
    paths = (np.zeros((B, H), np.int64), np.zeros((B, H), np.int64))
    return Log(np.empty((B, C, H, S, A)), *paths, np.zeros((B, 1 + K, H)))


def make_trajectory(H: int, K: int) -> Trajectory:
    """Return room for one episode."""
    return Trajectory(np.zeros(H, np.int64), np.zeros(H, np.int64), np.zeros((1 + K, H)))


def world_uniforms_per_episode(H: int, K: int) -> int:
    """How many numbers an episode takes from the world's stream."""
    return H + H * (1 + K)
