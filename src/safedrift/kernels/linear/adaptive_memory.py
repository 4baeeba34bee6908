"""What the planner on filtered coefficients keeps, and where it works."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels import exact
from safedrift.kernels.linear.experts import Experts
from safedrift.kernels.linear.filters import Basis, Filters
from safedrift.kernels.planning import columns
from safedrift.kernels.types import FloatArray, TableArrays, jit_inline


class Settings(NamedTuple):
    """Numbers the learner is built with."""

    move_rates: FloatArray  # (kP,) κ of transitions
    signal_rates: FloatArray  # (kS,) κ of signals
    unit: FloatArray  # (2,) q of transitions and signals
    prior: FloatArray  # (2,) variance of a coefficient before anything is known, likewise
    limits: FloatArray  # (2,) of C, likewise
    doubt: float  # of a filter that was corrected
    every: float  # most episodes between two plans
    pace: float  # episodes since the last alarm over episodes between two plans
    reward_bonus: float  # c_r
    utility_bonus: float  # c_g
    moved: float  # change of a threshold that calls for a plan


class Clock(NamedTuple):
    """Episodes, and what happened after the last one."""

    episode: NDArray[np.int64]  # (1,) episodes finished
    next_plan: NDArray[np.int64]  # (1,) episode before which to plan
    last_alarm: NDArray[np.int64]  # (1,) episode after which planning experts were alarmed last
    alarms: NDArray[np.int64]  # (2+K, k) alarms so far, by quantity and filter
    changed: NDArray[np.bool_]  # (2+K,) which quantities had an alarm that matters, just now
    replanned: NDArray[np.bool_]  # (1,) before the episode just finished
    binary: NDArray[np.bool_]  # (1+K,) only 0 and 1 were seen so far


class Plan(NamedTuple):
    """The policy in use, and values of it in the model it was made for, without bonuses."""

    policy: FloatArray  # (H, S, A)
    values: FloatArray  # (1+K, H, S)
    start: FloatArray  # (1+K,) at the initial distribution
    mu: FloatArray  # (K,)
    thresholds: FloatArray  # (K,)
    feasible: NDArray[np.bool_]  # (1,)


class Memory(NamedTuple):
    """Everything the learner knows."""

    moves: Filters
    signals: Filters  # with a first axis of length 1+K
    move_experts: Experts
    signal_experts: Experts  # likewise
    clock: Clock
    plan: Plan


class Work(NamedTuple):
    """Where an episode is learnt from and plans are made; nothing is kept here."""

    basis: Basis
    phi: FloatArray  # (d2,) of the pair at hand
    moved: FloatArray  # (d2,)
    info: FloatArray  # (2, f, f) of a step, and of all steps of an episode
    score: FloatArray  # (2, f)
    rest: FloatArray  # (f,)
    chosen: FloatArray  # (CHOSEN, 3)
    move: FloatArray  # (H, f) z of the model
    move_cov: FloatArray  # (H, f, f)
    signal: FloatArray  # (1+K, H, d2)
    signal_cov: FloatArray  # (1+K, H, d2, d2 or 1)
    ahead: FloatArray  # (1+K, f) ψ^V of the pair at hand
    spreads: FloatArray  # (1+K,) |φ|² of the pair at hand
    means: FloatArray  # (1+K, H, S, A) r̂ and ĝ
    bonused: FloatArray  # (1+K, H, S, A) r̃ and g̃
    initial: FloatArray  # (S,) distribution of the first state
    tables: TableArrays  # the model, as a world of one episode
    rewards: FloatArray  # its rewards with a signal axis
    episodes: NDArray[np.int64]  # (1,) 0
    mu: FloatArray  # (K,) of the plan in the making
    numbers: FloatArray  # (1, 8)
    answers: columns.Answers
    changes: FloatArray  # (1, H)
    policies: FloatArray  # (1, H, S, A)
    ends: exact.Ends


class Trace(NamedTuple):
    """What the learner shows of B episodes."""

    mu: FloatArray  # (B, K)
    estimated_reward: FloatArray  # (B,)
    estimated_utility: FloatArray  # (B, K)
    feasible: NDArray[np.bool_]  # (B,)
    replanned: NDArray[np.bool_]  # (B,)
    changed: NDArray[np.bool_]  # (B, 2+K)


# ---------------------------------------------------------------- reading it


@jit_inline
def filters_of(memory, c):
    """Filters of signal c."""
    return Filters(memory.signals.mean[c], memory.signals.cov[c])


@jit_inline
def experts_of(memory, c):
    """Experts of signal c."""
    of = memory.signal_experts
    return Experts(of.weight[c], of.v[c], of.seen[c], of.C[c], of.loss[c], of.product[c])


@jit_inline
def row_at(basis, h, pair, pairs):
    """Row of a pair at step h; features that are the same at every step have one set of rows."""
    return (h * pairs if basis.offsets.size > pairs + 1 else 0) + pair


@jit_inline
def read_phi(basis, h, pair, phi):
    """Write φ of a pair; returns the number of its unit vector instead where it is one, or -1."""
    if basis.one_hot:
        return pair
    step = h if basis.phi.shape[0] > 1 else 0
    for i in range(phi.size):
        phi[i] = basis.phi[step, pair, i]
    return -1
