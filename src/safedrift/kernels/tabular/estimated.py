"""Planning learners, compiled: play a policy, count, and write the counted model down.

The policy lives in the slots of `kernels.tabular.memory`; states without a slot have the uniform
one. The estimated model has one state per active slot, and one more, the last, for everything that
has not been seen: pairs without data lead there for certain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.tabular import window as data
from safedrift.kernels.tabular.adaptive_window import follow, keep_alarms, stops
from safedrift.kernels.tabular.homogeneity import compare
from safedrift.kernels.tabular.propd_ppo import act, advance, forget, restart_policy, write_policy
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_source_inline


class Counted(NamedTuple):
    """Counts of the window as a model with N states per step, number N-1 for what is unseen."""

    offsets: NDArray[np.int64]  # (H*N*A + 1,) rows (h*N + i)*A + a
    states: NDArray[np.uint32]  # (entries,) successors
    times: FloatArray  # (entries,) n(x, a, x'); 1 in the one entry of a pair without data
    visits: FloatArray  # (H, N, A) n(x, a)
    sums: FloatArray  # (1+K, H, N, A) sums of observed rewards and utilities
    initial: FloatArray  # (N,) distribution of the first state


# ---------------------------------------------------------------- playing


@jit
def play(arrays, hyper, memory, schedule, begun, inputs, buffer, out, alarms):
    """Play B episodes with the policy in memory, forgetting and counting as they pass.

    Returns how many were played: fewer than B where one raised an alarm, after which to plan anew.

    Parameters
    ----------
    arrays : TableArrays, the world
    hyper, memory : as in `kernels.tabular.propd_ppo.play`
    schedule : Schedule, what to forget before each episode
    begun : bool, the first episode has been begun already
    inputs, buffer, out : as in `kernels.tabular.propd_ppo.play`
    alarms : (B, 2+K) written
    """
    B, H = inputs.action_uniforms.shape
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    C = signals.shape[0]
    written = 0
    for e in range(B):
        m = memory.clock.episode[0]
        if e > 0 or not begun:
            begin_episode(
                schedule.opens_window[e],
                schedule.drops[e],
                schedule.discount[e],
                schedule.restarts[e],
                hyper,
                memory,
            )
        if inputs.measured[e]:
            write_policy(memory, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            states[h] = s
            actions[h] = act(h, s, inputs.action_uniforms[e, h], memory)
            observe(arrays, m, h, s, actions[h], inputs.noisy, u, H + h * C, signals)
            for c in range(C):
                out.returns[e, c] += signals[c, h]
            if h + 1 < H:
                s = next_state(arrays, m, h, s, actions[h], u[h + 1])
        end_episode(states, actions, signals, hyper, memory)
        keep_alarms(e, memory.filters, alarms)
        keep_alarms(e, memory.test, alarms)
        if stops(memory.filters) or stops(memory.test):
            return e + 1
    return B


@jit_source_inline
def begin_episode(opens_window, drops, discount, restarts, hyper, memory):
    """Forget what is to be forgotten; the policy changes only where it restarts."""
    forget(opens_window, drops, discount, hyper, memory)
    if restarts:
        restart_policy(memory)
        memory.clock.policy_age[0] = 0


@jit_source_inline
def end_episode(states, actions, signals, hyper, memory):
    """Count a finished episode."""
    data.absorb(states, actions, signals, hyper, memory)
    if memory.episodes.states.shape[0] > 0:
        data.hold(states, actions, signals, memory.episodes)
    follow(states, actions, signals, memory.filters, hyper, memory)
    compare(states, actions, signals, memory.test, hyper, memory)
    advance(memory.clock)


# ---------------------------------------------------------------- the counted model


@jit
def width_and_entries(memory):
    """States per step and successors in all of the model that `write_model` writes."""
    window = memory.window
    H, A, _ = window.visits.shape
    most, entries = 0, 0
    for h in range(H):
        most = max(most, window.active[h])
    for h in range(H):
        entries += (most + 1) * A  # at most one for each pair without data, ...
        for e in range(window.edges[h]):  # ... and those that were seen
            entries += window.edge_times[h, e] > 0.0
    return most + 1, entries


@jit
def write_model(memory, cursor, model):
    """Write the window's counts as a model.

    Parameters
    ----------
    cursor : (H*N*A,) scratch
    model : Counted, written; returns how many entries are in use
    """
    window, initial = memory.window, memory.values.initial
    C = model.sums.shape[0]
    H, N, A = model.visits.shape
    cap = window.visits.shape[2]
    for row in range(cursor.size):
        cursor[row] = 0
    for h in range(H):
        for i in range(N):
            for a in range(A):
                known = i < window.active[h]
                model.visits[h, i, a] = window.visits[h, a, i] if known else 0.0
                for c in range(C):
                    model.sums[c, h, i, a] = window.signal_sums[c, h, a, i] if known else 0.0
        for e in range(window.edges[h]):
            if window.edge_times[h, e] > 0.0:
                cursor[row_of_pair(h, window.edge_pair[h, e], cap, N, A)] += 1
    place = 0
    for row in range(cursor.size):
        model.offsets[row] = place
        if cursor[row] == 0:
            model.states[place] = N - 1
            model.times[place] = 1.0
        count = max(cursor[row], 1)
        cursor[row] = place
        place += count
    model.offsets[cursor.size] = place
    for h in range(H):
        for e in range(window.edges[h]):
            if window.edge_times[h, e] > 0.0:
                row = row_of_pair(h, window.edge_pair[h, e], cap, N, A)
                model.states[cursor[row]] = window.edge_next[h, e]
                model.times[cursor[row]] = window.edge_times[h, e]
                cursor[row] += 1
    inside = 0.0
    for i in range(N):
        model.initial[i] = 0.0
    for i in range(window.active[0]):
        model.initial[i] = initial[memory.policy.state[0, i]]
        inside += model.initial[i]
    model.initial[N - 1] = max(1.0 - inside, 0.0)
    return place


@jit_inline
def row_of_pair(h, pair, cap, N, A):
    """Row of the model that belongs to a pair a*cap + i of the window."""
    return (h * N + pair % cap) * A + pair // cap


@jit
def normalise(offsets, times, probabilities):
    """Write the shares of each row's entries."""
    for row in range(offsets.size - 1):
        total = 0.0
        for e in range(offsets[row], offsets[row + 1]):
            total += times[e]
        for e in range(offsets[row], offsets[row + 1]):
            probabilities[e] = times[e] / total


@jit
def set_policy(memory, policy):
    """Take over a policy (H, N, A) on active slots; all other states get the uniform one."""
    table, active = memory.policy, memory.window.active
    H, A, _ = table.pi.shape
    for h in range(H):
        table.slots[h] = active[h]
        for a in range(A):
            for i in range(active[h]):
                table.pi[h, a, i] = policy[h, i, a]


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(opens_window, drops, discount, restarts, hyper, memory):
    """Entry point of `begin_episode`."""
    begin_episode(opens_window, drops, discount, restarts, hyper, memory)


@jit
def end(states, actions, signals, hyper, memory):
    """Entry point of `end_episode`."""
    end_episode(states, actions, signals, hyper, memory)
