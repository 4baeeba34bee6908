"""What the least-squares learner remembers: tables at S states and d × d matrices, no episodes.

Channels are those of `kernels.tabular.memory`: reward, K utilities and, where the dual signal has
no bonus, K utilities again. Each (channel, step) has a regression of value targets on
φ^τ(x, a) = ∫ψ(x, a, x')V^τ(x')dx', each step one of rewards and utilities on φ(x, a); see
`kernels.linear.least_squares` for what a regression keeps. Pairs are numbered a*S + s.

On a box the learner keeps a `History` too: what it takes to evaluate the estimates of every episode
since the last policy restart at a state that is not a node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.tabular.memory import Clock, Dual, make_clock, make_dual
from safedrift.kernels.types import Features, FloatArray


class LinearHyperparameters(NamedTuple):
    """What the compiled parts need to know; see `learners.propd_ppo.components`."""

    alpha: float  # policy improvement: step size
    eta: float  # dual: step size
    xi: float  # dual: regularisation
    chi: float  # dual: upper bound of the multipliers
    lagged: bool  # dual: pair V_g^{m-1} with b_{m-1} instead of b_m
    dual_signal: int  # dual: OPTIMISTIC, PLAIN or OBSERVED
    lam: float  # evaluation: ridge parameter λ
    beta: FloatArray  # (H,) transition bonus
    beta_r: FloatArray  # (H,) reward bonus
    LV: FloatArray  # (windows, K, H) local variation term of each window
    window_drift_P: FloatArray  # (windows, H) growth of the transition bonus of g with √n
    window_drift_g: FloatArray  # (windows, K, H) growth of the reward bonus of g with √n


class LinearPolicy(NamedTuple):
    """The policy at S states or nodes."""

    logit: FloatArray  # (H, A, S)
    logit_low: FloatArray  # (H, A, S) what rounding dropped from logit
    pi: FloatArray  # (H, A, S)
    pi_flat: FloatArray  # (H, A*S) a view of pi


class Regressions(NamedTuple):
    """The data, as regressions: factor, its target, and the sums in two floats."""

    active: NDArray[np.int64]  # (H,) states whose policy moves: all S
    # Regressions of value targets.
    factor: FloatArray  # (C, H, d1, d1)
    target: FloatArray  # (C, H, 1, d1)
    gram: FloatArray  # (C, H, d1, d1)
    gram_low: FloatArray
    moment: FloatArray  # (C, H, 1, d1)
    moment_low: FloatArray
    # Regressions of rewards and utilities.
    factor_r: FloatArray  # (H, d2, d2)
    target_r: FloatArray  # (H, 1+K, d2)
    gram_r: FloatArray  # (H, d2, d2)
    gram_r_low: FloatArray
    moment_r: FloatArray  # (H, 1+K, d2)
    moment_r_low: FloatArray
    visits: FloatArray  # (H, A*S) where one-hot, Λ = diag(visits) + λI
    signal_sums: FloatArray  # (1+K, H, A*S) where one-hot, sums of rewards and utilities
    residual: FloatArray  # (1,) largest seen by a refresh


class LinearValues(NamedTuple):
    """Estimates of the last evaluation, C channels."""

    q: FloatArray  # (C, H, A, S)
    v: FloatArray  # (C, H+1, S), zero at the last step
    bonus: FloatArray  # (1+K, H, A*S) Γ_⋄ of the last evaluation, with its multiplier
    bonus_r: FloatArray  # (1+K, H, A*S) Γ of the rewards, likewise
    w: FloatArray  # (C, H, d1) coefficients of the last evaluation
    u: FloatArray  # (1+K, H, d2), or (1+K, H, A*S) where one-hot
    v_start: FloatArray  # (C,) value at the initial distribution
    initial: FloatArray  # (S,)
    q_flat: FloatArray  # (C, H, A*S) a view of q


class LinearScratch(NamedTuple):
    """Working arrays."""

    top: FloatArray  # (S,)
    step: FloatArray  # (S,)
    mantissa: FloatArray  # (A*S,)
    scale: FloatArray  # (A*S,)
    scale_bits: NDArray[np.int64]  # (A*S,) the bytes of `scale` as integers
    feature: FloatArray  # (C, d1, A*S) φ^m of the current step
    sums: FloatArray  # (C, d1)
    solved: FloatArray  # (max(d1, d2), A*S)
    mean: FloatArray  # (A*S,)
    norm: FloatArray  # (A*S,)
    mean_r: FloatArray  # (A*S,)
    norm_r: FloatArray  # (A*S,)
    x: FloatArray  # (max(d1, d2),)
    y: FloatArray  # (1+K,)
    low: FloatArray  # (max(d1, d2), max(d1, d2))
    vectors: FloatArray  # (2, max(d1, d2))
    coefficients: FloatArray  # (1+K, max(d1, d2))


class LinearMemory(NamedTuple):
    """The complete state of a learner at S states or nodes."""

    clock: Clock
    policy: LinearPolicy
    window: Regressions
    values: LinearValues
    dual: Dual
    scratch: LinearScratch


class History(NamedTuple):
    """The estimates of the n episodes since the last policy restart, to evaluate off the nodes."""

    v: FloatArray  # (H, n, 1+K, J) V at the nodes of the next step
    w: FloatArray  # (H, n, 1+K, d1)
    u: FloatArray  # (H, n, 1+K, d2)
    factor: FloatArray  # (H, n, 1+K, d1, d1)
    factor_r: FloatArray  # (H, n, d2, d2)
    mu: FloatArray  # (n, K)
    window: NDArray[np.int64]  # (n,) number of the window
    past: NDArray[np.int64]  # (n,) past episodes in the window


def make_linear_memory(
    H: int, K: int, C: int, features: Features, initial: FloatArray
) -> LinearMemory:
    """Return a learner's memory before the first episode.

    Alg. 1, line 1: zero Q and V_g, uniform policies, zero multipliers.
    """
    S = initial.size
    pairs = features.phi.shape[2]
    A = pairs // S
    d1, d2 = features.psi.shape[1], features.phi.shape[1]
    d = max(d1, d2)
    one_hot = pairs if features.one_hot else 0
    zeros = np.zeros
    memory = LinearMemory(
        clock=make_clock(),
        policy=LinearPolicy(
            logit=zeros((H, A, S)),
            logit_low=zeros((H, A, S)),
            pi=np.full((H, A, S), 1 / A),
            pi_flat=zeros((H, 0)),
        ),
        window=Regressions(
            active=np.full(H, S, np.int64),
            factor=zeros((C, H, d1, d1)),
            target=zeros((C, H, 1, d1)),
            gram=zeros((C, H, d1, d1)),
            gram_low=zeros((C, H, d1, d1)),
            moment=zeros((C, H, 1, d1)),
            moment_low=zeros((C, H, 1, d1)),
            factor_r=zeros((H, d2, d2)),
            target_r=zeros((H, 1 + K, d2)),
            gram_r=zeros((H, d2, d2)),
            gram_r_low=zeros((H, d2, d2)),
            moment_r=zeros((H, 1 + K, d2)),
            moment_r_low=zeros((H, 1 + K, d2)),
            visits=zeros((H, one_hot)),
            signal_sums=zeros((1 + K, H, one_hot)),
            residual=zeros(1),
        ),
        values=LinearValues(
            q=zeros((C, H, A, S)),
            v=zeros((C, H + 1, S)),
            bonus=zeros((1 + K, H, pairs)),
            bonus_r=zeros((1 + K, H, pairs)),
            w=zeros((C, H, d1)),
            u=zeros((1 + K, H, one_hot or d2)),
            v_start=zeros(C),
            initial=np.array(initial, dtype=np.float64),
            q_flat=zeros((C, H, 0)),
        ),
        dual=make_dual(K),
        scratch=LinearScratch(
            top=zeros(S),
            step=zeros(S),
            mantissa=zeros(pairs),
            scale=zeros(pairs),
            scale_bits=zeros(0, np.int64),
            feature=zeros((C, d1, pairs)),
            sums=zeros((C, d1)),
            solved=zeros((d, pairs)),
            mean=zeros(pairs),
            norm=zeros(pairs),
            mean_r=zeros(pairs),
            norm_r=zeros(pairs),
            x=zeros(d),
            y=zeros(1 + K),
            low=zeros((d, d)),
            vectors=zeros((2, d)),
            coefficients=zeros((1 + K, d)),
        ),
    )
    return with_linear_views(memory)


def with_linear_views(memory: LinearMemory) -> LinearMemory:
    """Return the memory with the arrays that are views of others.

    To be called whenever arrays have been replaced or copied: the kernels rely on shared bytes.
    """
    policy, values, scratch = memory.policy, memory.values, memory.scratch
    C, H, A, S = values.q.shape
    return memory._replace(
        policy=policy._replace(pi_flat=policy.pi.reshape(H, A * S)),
        values=values._replace(q_flat=values.q.reshape(C, H, A * S)),
        scratch=scratch._replace(scale_bits=scratch.scale.view(np.int64)),
    )


def make_history(memory: LinearMemory, J: int) -> History:
    """Return a history without room."""
    C1, H, d2 = memory.values.u.shape
    d1 = memory.values.w.shape[2]
    return History(
        np.zeros((H, 0, C1, J)),
        np.zeros((H, 0, C1, d1)),
        np.zeros((H, 0, C1, d2)),
        np.zeros((H, 0, C1, d1, d1)),
        np.zeros((H, 0, d2, d2)),
        np.zeros((0, C1 - 1)),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
    )


def with_history_room(history: History, used: int, wanted: int) -> History:
    """Return the same history with room for `wanted` episodes, `used` of them written."""
    have = history.window.size
    if wanted <= have:
        return history
    size = max(wanted, 2 * have)

    def longer(array: NDArray, axis: int) -> NDArray:  # type: ignore[type-arg]
        shape = list(array.shape)
        shape[axis] = size
        new = np.zeros(shape, array.dtype)
        kept = (slice(None),) * axis + (slice(used),)
        new[kept] = array[kept]
        return new

    return History(*(longer(a, 1 if i < 5 else 0) for i, a in enumerate(history)))
