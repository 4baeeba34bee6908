"""Q-learning with optimism, frames and virtual queues, compiled.

Tables Q_h(s,a) for the reward and C_h,k(s,a) for utility k; the action of a state is

    argmax_a Q_h(s,a) + Σ_k μ_k C_h,k(s,a),    μ_k = Z_k / η,    ties to the lowest action.

Two ways to learn from x = observed signal + value of the next state:

    by rates    after the t-th visit  Q ← (1 - α_t) Q + α_t (x + b_t),  α_t = (χ + 1)/(χ + t),
                the value of the next state being that of the action taken there (Triple-Q)
    by stages   visits come in stages of e_1 = H, e_{i+1} = ⌊(1 + 1/H) e_i⌋ of them; at the end of
                one, Q ← min(Q, mean of x over the stage + b_e), the value of the next state being
                the largest there (RestartQ-UCB)

    b_t = width √((ψ + 1)/(ψ + t)) + offset

At the end of a frame of F episodes each queue takes up what was missing, and learning starts anew:

    Z_k ← (Z_k + 1/F Σ_m (b_m,k - C_1,k(s_1, a_1)) + ε)_+
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_part


class Rule(NamedTuple):
    """The constants of an algorithm."""

    staged: bool  # learn by stages, or by rates
    restarts: bool  # a new frame forgets the tables; otherwise Q is raised by `lift`
    frame: int  # episodes of a frame, F
    chi: float  # χ of the rates
    chi_bonus: float  # ψ of the bonuses
    width: float  # of the bonuses
    utility_width: float  # of those of the utilities
    offset: float  # added to every bonus
    eta: float  # η: the queue's unit
    epsilon: float  # ε: utility asked for beyond the threshold
    lift: float


class Tables(NamedTuple):
    """What is learnt; C - 1 is the number of constraints that are heeded: K or none."""

    q: FloatArray  # (H, S, A, C) reward first, then utilities
    counts: NDArray[np.int64]  # (H, S, A) visits in this frame, or in this stage
    stages: NDArray[np.int64]  # (H, S, A) length of the current stage; empty where learnt by rates
    sums: FloatArray  # (H, S, A) sum of x over the current stage; likewise
    queues: FloatArray  # (C - 1,) Z
    mu: FloatArray  # (C - 1,) Z / η
    missing: FloatArray  # (C - 1,) sum of b - C_1(s_1, a_1) over this frame
    totals: FloatArray  # (1 + K,) rewards, and utilities minus thresholds, since last set to zero
    clock: NDArray[np.int64]  # (2,) episodes of this frame, finished frames


def make_tables(H: int, S: int, A: int, K: int, C: int, rule: Rule) -> Tables:
    """Return the tables of an algorithm before its first episode."""
    stages = (H, S, A) if rule.staged else (0, 0, 0)
    tables = Tables(
        q=np.empty((H, S, A, C)),
        counts=np.empty((H, S, A), np.int64),
        stages=np.empty(stages, np.int64),
        sums=np.empty(stages),
        queues=np.zeros(C - 1),
        mu=np.zeros(C - 1),
        missing=np.zeros(C - 1),
        totals=np.zeros(1 + K),
        clock=np.zeros(2, np.int64),
    )
    forget(tables, rule.staged)
    return tables


@jit
def forget(tables, staged):
    """Set all estimates to the largest value, H, or to what the steps left allow by stages."""
    H, S, A, C = tables.q.shape
    for h in range(H):
        largest = float(H - h) if staged else float(H)
        for s in range(S):
            for a in range(A):
                for c in range(C):
                    tables.q[h, s, a, c] = largest
                tables.counts[h, s, a] = 0
                if staged:
                    tables.stages[h, s, a] = H
                    tables.sums[h, s, a] = 0.0


@jit_part
def raise_rewards(tables, lift):
    """Q ← Q + lift; where Q or some C is then H or more, all of them become H."""
    H, S, A, C = tables.q.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                tables.q[h, s, a, 0] += lift
                over = False
                for c in range(C):
                    over = over or tables.q[h, s, a, c] >= H
                if over:
                    for c in range(C):
                        tables.q[h, s, a, c] = float(H)
                tables.counts[h, s, a] = 0


@jit_part
def end_frame(tables, rule):
    """Update the queues and begin the next frame."""
    for k in range(tables.queues.size):
        more = tables.missing[k] / rule.frame + rule.epsilon
        tables.queues[k] = max(tables.queues[k] + more, 0.0)
        tables.mu[k] = tables.queues[k] / rule.eta
        tables.missing[k] = 0.0
    if rule.restarts:
        forget(tables, rule.staged)
    else:
        raise_rewards(tables, rule.lift)
    tables.clock[0] = 0
    tables.clock[1] += 1


@jit_inline
def greedy_action(tables, h, s):
    """Return argmax_a Q_h(s,a) + Σ_k μ_k C_h,k(s,a)."""
    _, _, A, C = tables.q.shape
    chosen = 0
    best = -np.inf
    for a in range(A):
        score = tables.q[h, s, a, 0]
        for k in range(C - 1):
            score += tables.mu[k] * tables.q[h, s, a, 1 + k]
        if score > best:
            best = score
            chosen = a
    return chosen


@jit_inline
def update_by_rate(tables, rule, h, states, actions, signals):
    """Q_h(s,a) and C_h(s,a) after the t-th visit of the pair in this frame."""
    H, _, _, C = tables.q.shape
    s, a = states[h], actions[h]
    tables.counts[h, s, a] += 1
    t = tables.counts[h, s, a]
    rate = (rule.chi + 1.0) / (rule.chi + t)
    root = np.sqrt((rule.chi_bonus + 1.0) / (rule.chi_bonus + t))
    for c in range(C):
        ahead = 0.0
        if h + 1 < H:
            ahead = tables.q[h + 1, states[h + 1], actions[h + 1], c]
        bonus = (rule.width if c == 0 else rule.utility_width) * root + rule.offset
        target = signals[c, h] + ahead + bonus
        tables.q[h, s, a, c] = (1.0 - rate) * tables.q[h, s, a, c] + rate * target


@jit_inline
def update_by_stage(tables, rule, h, states, actions, signals):
    """One more visit of the pair; at the end of its stage Q_h(s,a) may fall."""
    H, _, A, _ = tables.q.shape
    s, a = states[h], actions[h]
    ahead = 0.0
    if h + 1 < H:
        ahead = tables.q[h + 1, states[h + 1], 0, 0]
        for other in range(1, A):
            ahead = max(ahead, tables.q[h + 1, states[h + 1], other, 0])
    tables.sums[h, s, a] += signals[0, h] + ahead
    tables.counts[h, s, a] += 1
    t = tables.counts[h, s, a]
    if t == tables.stages[h, s, a]:
        root = np.sqrt((rule.chi_bonus + 1.0) / (rule.chi_bonus + t))
        found = tables.sums[h, s, a] / t + (rule.width * root + rule.offset)
        tables.q[h, s, a, 0] = min(tables.q[h, s, a, 0], found)
        tables.counts[h, s, a] = 0
        tables.sums[h, s, a] = 0.0
        tables.stages[h, s, a] += t // H


@jit_part
def learn(tables, rule, thresholds, states, actions, signals):
    """Learn from a finished episode.

    Parameters
    ----------
    thresholds : (K,) those of the episode
    states, actions : (H,)
    signals : (1+K, H)
    """
    H = states.size
    for k in range(tables.missing.size):
        tables.missing[k] += thresholds[k] - tables.q[0, states[0], actions[0], 1 + k]
    # Forwards: the value of the next state is then the one from before the episode.
    for h in range(H):
        if rule.staged:
            update_by_stage(tables, rule, h, states, actions, signals)
        else:
            update_by_rate(tables, rule, h, states, actions, signals)
        for c in range(signals.shape[0]):
            tables.totals[c] += signals[c, h]
    for k in range(thresholds.size):
        tables.totals[1 + k] -= thresholds[k]
    tables.clock[0] += 1
    if tables.clock[0] == rule.frame:
        end_frame(tables, rule)


@jit
def learn_episode(tables, rule, thresholds, states, actions, signals):
    """Entry point of `learn`."""
    learn(tables, rule, thresholds, states, actions, signals)


@jit
def play(arrays, first, tables, rule, inputs, buffer, out, mu):
    """Play B episodes from number `first` on.

    Parameters
    ----------
    arrays : TableArrays, the world
    tables : Tables, written
    inputs : ChunkInput; the uniforms of the actions are not used
    buffer : EpisodeBuffer, scratch
    out : ChunkOutput, written
    mu : (B, C - 1) written: μ after each episode
    """
    B, H = inputs.action_uniforms.shape
    _, S, A, _ = tables.q.shape
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    channels = signals.shape[0]
    written = 0
    for e in range(B):
        if inputs.measured[e]:
            for h in range(H):
                for s in range(S):
                    for a in range(A):
                        out.policies[written, h, s, a] = 0.0
                    out.policies[written, h, s, greedy_action(tables, h, s)] = 1.0
            written += 1
        u = inputs.world_uniforms[e]
        x = first_state(arrays, u[0])
        for h in range(H):
            states[h] = x
            actions[h] = greedy_action(tables, h, x)
            observe(arrays, first + e, h, x, actions[h], inputs.noisy, u, H + h * channels, signals)
            for c in range(channels):
                out.returns[e, c] += signals[c, h]
            if h + 1 < H:
                x = next_state(arrays, first + e, h, x, actions[h], u[h + 1])
        learn(tables, rule, arrays.thresholds[first + e], states, actions, signals)
        for k in range(mu.shape[1]):
            mu[e, k] = tables.mu[k]
