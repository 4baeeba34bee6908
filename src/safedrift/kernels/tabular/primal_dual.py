"""The primal-dual family with counts, compiled: one loop, and rules that are data.

    begin_episode     forget; π from the last estimates and μ, or as a response to μ on the window
    act, step         draw a_h ~ π_m, observe, move on
    end_episode       dual step, estimates of V_g under π_m, the episode enters the window

Policies (`Rules.primal`), with Q = Q_r + Σ_k μ_k Q_g,k:

    MIRROR        π ∝ π exp(α Q)
    MIXED         π ∝ ((1-θ) π + θ uniform) exp(α Q)
    REGULARISED   π ∝ π^(1-ατ) exp(α Q), with τ times the entropy of later steps in Q_r
    GREEDY        the best action for Q on the estimated model; equal ones share
    SOFTMAX       π ∝ exp(Q / κ) on the estimated model

The first three improve the last policy with its estimates. The other two plan: they choose the
policy of each step within the backward pass, every `every` episodes and whenever the episode
before visited a pair of which there were no data (then without a new search for μ).

Multipliers (`Rules.dual`), with margin ε, both by the age of the policy:

    ASCENT        μ' = clip((c μ + η (b + ε - V_g - ξ μ)) / c', 0, χ)
    PID           μ = clip(K_P d + K_I I + K_D D, 0, χ);  d = b + ε - V_g,  I ← (I + d)_+,
                  D = (V_g of the episode before - V_g)_+; at the cap I does not grow
    BISECTION     the smallest μ in [0, χ] whose response has V_g ≥ b + ε on the estimated model

c and c' are scales of successive ages, 1 unless the step is to shrink: λ = c μ is then an
unscaled multiplier.

Rounds (`Rules.rounds`). Before each episode the first three may take further rounds on the same
data: estimate the policy, step the multipliers, improve the policy.

With MIRROR, ASCENT, no margin and no rounds the numbers are PROPD-PPO's, bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.tabular import propd_ppo as parts
from safedrift.kernels.tabular import window as data
from safedrift.kernels.tabular.adaptive_window import follow, keep_alarms
from safedrift.kernels.tabular.homogeneity import compare
from safedrift.kernels.tabular.memory import OBSERVED, OPTIMISTIC
from safedrift.kernels.tabular.signed_values import estimate
from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_part, jit_shared

MIRROR, MIXED, REGULARISED, GREEDY, SOFTMAX = range(5)
ASCENT, PID, BISECTION = range(3)
PESSIMISTIC = 3  # a dual signal beside OPTIMISTIC (that of the policy), PLAIN and OBSERVED


class Rules(NamedTuple):
    """What distinguishes the members of the family, beside their `Hyperparameters`."""

    primal: int
    dual: int
    prompt: bool  # the dual step sees V_g of this episode, not of the one before
    theta: float  # MIXED
    tau: float  # REGULARISED
    kappa: float  # SOFTMAX
    every: int  # GREEDY, SOFTMAX: episodes from one plan to the next, at most
    signs: FloatArray  # (C,) of the bonuses: reward, utilities, utilities for the dual step
    gains: FloatArray  # (3,) PID: K_P, K_I, K_D
    smoothing: float  # PID: share of the old in the running means of d and V_g
    steps: int  # BISECTION
    margin: FloatArray  # (ages,) the last one stays
    scale: FloatArray  # (ages,) the last one stays
    rounds: int  # MIRROR, MIXED, REGULARISED: further estimates and steps before each episode


class Carried(NamedTuple):
    """What the family remembers beside `Memory`."""

    integral: FloatArray  # (K,) PID: I
    error: FloatArray  # (K,) PID: running mean of d
    value: FloatArray  # (K,) PID: running mean of V_g
    news: NDArray[np.bool_]  # (1,) GREEDY, SOFTMAX: the last episode visited a pair without data


@jit
def play(arrays, hyper, rules, memory, carried, schedule, inputs, buffer, out, trace):
    """Play B episodes from `memory.clock.episode` on.

    Parameters
    ----------
    arrays : TableArrays, the world
    hyper : Hyperparameters
    rules : Rules
    memory : Memory
    carried : Carried
    schedule : Schedule, what to forget before each episode
    inputs : ChunkInput
    buffer : EpisodeBuffer, scratch
    out : ChunkOutput, written
    trace : Trace, written
    """
    B, H = inputs.action_uniforms.shape
    K = memory.dual.mu.size
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    written = 0
    for e in range(B):
        m = memory.clock.episode[0]
        begin_episode(
            arrays.thresholds[m],
            schedule.opens_window[e],
            schedule.drops[e],
            schedule.discount[e],
            schedule.restarts[e],
            hyper,
            rules,
            memory,
            carried,
        )
        if inputs.measured[e]:
            parts.write_policy(memory, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            states[h] = s
            actions[h] = parts.act(h, s, inputs.action_uniforms[e, h], memory)
            observe(arrays, m, h, s, actions[h], inputs.noisy, u, H + h * (1 + K), signals)
            if h + 1 < H:
                s = next_state(arrays, m, h, s, actions[h], u[h + 1])
        at_cap = end_episode(
            arrays.thresholds[m], states, actions, signals, hyper, rules, memory, carried
        )
        parts.keep(e, at_cap, signals, memory, out, trace)
        keep_alarms(e, memory.filters, trace.alarm)
        keep_alarms(e, memory.test, trace.alarm)


@jit
def begin_episode(
    thresholds, opens_window, drops, discount, restarts, hyper, rules, memory, carried
):
    """Policy of the next episode, and what is to be forgotten."""
    plans = rules.primal >= GREEDY
    if not restarts and not plans:
        improve(hyper, rules, memory)
    parts.forget(opens_window, drops, discount, hyper, memory)
    if restarts:
        parts.restart_policy(memory)
        memory.clock.policy_age[0] = 0
    if not plans:
        for _ in range(rules.rounds):
            take_round(thresholds, hyper, rules, memory, carried)
    due = memory.clock.episode[0] % rules.every == 0 or restarts or opens_window
    if plans and (due or carried.news[0]):
        plan(due and rules.dual == BISECTION, thresholds, hyper, rules, memory)


@jit
def end_episode(thresholds, states, actions, signals, hyper, rules, memory, carried):
    """Dual step and estimates, then the episode enters the window; returns hits of the cap."""
    if not rules.prompt:
        dual_step(thresholds, hyper, rules, memory, carried)
    if rules.primal < GREEDY:
        estimate_values(rules, hyper, memory)
    set_dual_signal(signals, hyper.dual_signal, memory)
    if rules.prompt:
        dual_step(thresholds, hyper, rules, memory, carried)
    carried.news[0] = finds_news(states, actions, memory)
    at_cap = data.absorb(states, actions, signals, hyper, memory)
    if memory.episodes.states.shape[0] > 0:
        data.hold(states, actions, signals, memory.episodes)
    follow(states, actions, signals, memory.filters, hyper, memory)
    compare(states, actions, signals, memory.test, hyper, memory)
    parts.advance(memory.clock)
    return at_cap


@jit_shared
def estimate_values(rules, hyper, memory):
    """Values of the policy, or of the response to the multipliers, on the window's data."""
    greedy = rules.primal == GREEDY
    responds = greedy or rules.primal == SOFTMAX
    estimate(responds, greedy, rules.kappa, rules.tau, rules.signs, hyper, memory)


@jit_part
def take_round(thresholds, hyper, rules, memory, carried):
    """Estimate values of the policy, then a step of the multipliers and one of the policy."""
    estimate_values(rules, hyper, memory)
    see_estimates(hyper.dual_signal, memory)
    dual_step(thresholds, hyper, rules, memory, carried)
    improve(hyper, rules, memory)


@jit_inline
def finds_news(states, actions, memory):
    """Whether an episode visits a pair of which the window has no data."""
    new = False
    for h in range(states.size):
        i = data.find(h, states[h], memory.policy)
        new = new or i < 0 or i >= memory.window.active[h]
        new = new or memory.window.visits[h, actions[h], i] <= 0.0
    return new


# ---------------------------------------------------------------- policies


@jit_part
def improve(hyper, rules, memory):
    """Improve the last policy with its estimates."""
    if rules.primal == MIXED:
        mix(rules.theta, memory)
    if rules.primal == REGULARISED:
        shrink(1.0 - hyper.alpha * rules.tau, memory)
    parts.improve_policy(hyper.alpha, memory)


@jit_inline
def mix(theta, memory):
    """π ← (1-θ) π + θ uniform, wherever the policy is not uniform."""
    policy = memory.policy
    H, A, _ = policy.pi.shape
    for h in range(H):
        for i in range(policy.slots[h]):
            for a in range(A):
                policy.pi[h, a, i] = (1.0 - theta) * policy.pi[h, a, i] + theta / A
            first = log_of(policy.pi[h, 0, i])
            for a in range(1, A):
                policy.logit[h, a, i] = log_of(policy.pi[h, a, i]) - first
                policy.logit_low[h, a, i] = 0.0


@jit_inline
def shrink(factor, memory):
    """π ← π^factor / Z, wherever the policy is not uniform."""
    policy = memory.policy
    H, A, _ = policy.pi.shape
    for h in range(H):
        for a in range(1, A):
            for i in range(policy.slots[h]):
                policy.logit[h, a, i] *= factor
                policy.logit_low[h, a, i] *= factor
        for i in range(memory.window.active[h], policy.slots[h]):  # others are improved next
            top = 0.0
            for a in range(1, A):
                top = max(top, policy.logit[h, a, i])
            total = 0.0
            for a in range(A):
                policy.pi[h, a, i] = exp_of(policy.logit[h, a, i] - top)
                total += policy.pi[h, a, i]
            for a in range(A):
                policy.pi[h, a, i] /= total


@jit_part
def plan(searches, thresholds, hyper, rules, memory):
    """Respond to the multipliers on the window, after a search for the smallest that will do.

    The tries of a bisection are 0, χ, then midpoints, and last the upper end of the bracket.
    """
    mu, age = memory.dual.mu, memory.clock.policy_age[0]
    wanted = thresholds[0] + at_age(rules.margin, age)
    low, high = 0.0, hyper.chi
    tries = rules.steps + 3 if searches else 1
    for t in range(tries):
        if searches:
            mu[0] = 0.0 if t == 0 else (low + high) / 2.0
            if t == 1 or t == tries - 1:
                mu[0] = high
        estimate_values(rules, hyper, memory)
        enough = memory.values.v_start[1] >= wanted
        if searches and ((t == 0 and enough) or (t == 1 and not enough)):
            return
        if t > 1 and enough:
            high = mu[0]
        elif t > 1:
            low = mu[0]


# ---------------------------------------------------------------- multipliers


@jit_inline
def at_age(table, age):
    """Entry of a table by age, the last one from its end on."""
    return table[min(age, table.size - 1)]


@jit_inline
def set_dual_signal(signals, dual_signal, memory):
    """Keep what the dual step sees of V_g of this episode's policy."""
    if dual_signal != OBSERVED:
        see_estimates(dual_signal, memory)
        return
    signal = memory.dual.signal
    for k in range(signal.size):
        signal[k] = 0.0
        for h in range(signals.shape[1]):
            signal[k] += signals[1 + k, h]


@jit_inline
def see_estimates(dual_signal, memory):
    """Let the dual step see the last estimates of V_g."""
    signal, v_start = memory.dual.signal, memory.values.v_start
    K = signal.size
    for k in range(K):
        signal[k] = v_start[1 + k if dual_signal == OPTIMISTIC else 1 + K + k]


@jit_inline
def dual_step(thresholds, hyper, rules, memory, carried):
    """μ of the next policy."""
    dual, age = memory.dual, memory.clock.policy_age[0]
    for k in range(dual.mu.size):
        b = thresholds[k] + at_age(rules.margin, age)
        if rules.dual == ASCENT:
            mu = dual.mu[k]
            wanted = dual.last_thresholds[k] if hyper.lagged else b
            step = hyper.eta * (wanted - dual.signal[k] - hyper.xi * mu)
            mu = (at_age(rules.scale, age) * mu + step) / at_age(rules.scale, age + 1)
            dual.mu[k] = min(max(mu, 0.0), hyper.chi)
        if rules.dual == PID:
            control(k, b - dual.signal[k], hyper, rules, memory, carried)
        dual.last_thresholds[k] = b


@jit_inline
def control(k, d, hyper, rules, memory, carried):
    """μ_k by proportional, integral and derivative terms of the error d."""
    K_P, K_I, K_D = rules.gains[0], rules.gains[1], rules.gains[2]
    old = rules.smoothing if memory.clock.episode[0] > 0 else 0.0
    before = carried.value[k] if memory.clock.episode[0] > 0 else memory.dual.signal[k]
    carried.error[k] = old * carried.error[k] + (1.0 - old) * d
    carried.value[k] = old * before + (1.0 - old) * memory.dual.signal[k]
    others = K_P * carried.error[k] + K_D * max(before - carried.value[k], 0.0)
    integral = max(carried.integral[k] + d, 0.0)
    if d > 0.0 and others + K_I * integral > hyper.chi:  # no windup: I does not grow at the cap
        integral = carried.integral[k]
    carried.integral[k] = integral
    memory.dual.mu[k] = min(max(others + K_I * integral, 0.0), hyper.chi)
