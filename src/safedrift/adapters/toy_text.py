"""Gymnasium's transition tables as exact CMDPs.

Toy-text environments contain their model: P[s][a] is a list of (probability, next
state, reward, terminated). Here it becomes a `TabularCMDP` of H steps:

    states      those of the environment, and one more, "over", where an ended episode stays
    rewards     (r - low)/(high - low), averaged over next states; an ended episode earns r = 0
    utilities   utility(transition), one or K numbers, averaged over next states; 1 when over

so that a value V here is (V_raw - H low)/(high - low) of a value in the environment's own units.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift.adapters.transitions import (
    Signal,
    Transition,
    checked_range,
    made_environment,
    utilities_of,
)
from safedrift.kernels.elementary import cos_turns
from safedrift.kernels.types import Successors
from safedrift.models import TabularCMDP
from safedrift.scale import Scale

__all__ = ["from_table", "thawing"]


def from_table(
    env: str | gymnasium.Env[Any, Any],
    horizon: int,
    utility: Signal,
    threshold: ArrayLike,
    *,
    reward: Signal | None = None,
    reward_range: tuple[float, float] | None = None,
    scale: Scale | None = None,
    **options: Any,
) -> TabularCMDP:
    """Return the CMDP of an environment that has a transition table.

    Parameters
    ----------
    env
        An environment, or its id, with `options` for `gymnasium.make`.
    utility
        Function of a `Transition` (with empty info): a number in [0, 1], or K of them.
    threshold : float or array (K,)
        Lower bound for the expected sum of utilities over `horizon` steps.
    reward
        Function of a `Transition`; by default its raw reward.
    reward_range
        `low` and `high`; by default the smallest and largest reward, or 0.
    scale
        Units of rewards and constraints, instead of `reward_range`: `utility` and `threshold` are
        then in these units, in order or by name. Pass it to `DriftingCMDP` too, for results.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.adapters.toy_text import from_table
    >>> def dry_feet(t):
    ...     return 0.0 if t.terminated and t.reward == 0 else 1.0
    >>> lake = from_table("FrozenLake-v1", 20, dry_feet, 19.5)
    >>> lake.shape  # H, S, A, K; one more state, "over", comes last
    Shape(H=20, S=17, A=4, K=1)
    >>> float(round(sd.solve(lake).value, 3))  # probability to reach the goal
    0.199
    """
    H = _check.integer("horizon", horizon)
    if scale is not None:
        if reward_range is not None:
            _check.fail("reward_range", "left out where scale has one", reward_range)
        reward_range = _check.kind("scale", scale, Scale).reward
        threshold = scale.to_thresholds(threshold, H)
    thresholds = _check.floats("threshold", np.atleast_1d(np.asarray(threshold)), ("K",))
    table, A, first = _table(env, options)
    S, K = len(first), thresholds.size
    earn = reward or (lambda step: step.reward)
    earned = np.array([float(earn(step)) for _, step in table])
    low, high = min(0.0, float(earned.min())), max(0.0, float(earned.max()))
    low, high = checked_range((low, high) if reward_range is None else reward_range)
    if low > earned.min() or high < earned.max():
        name = "reward_range" if scale is None else "scale.reward"
        _check.fail(name, f"around [{earned.min()}, {earned.max()}]", (low, high))
    P = np.zeros((S + 1, A, S + 1))
    signals = np.zeros((1 + K, S + 1, A))
    P[S, :, S], signals[0, S], signals[1:, S] = 1.0, (0.0 - low) / (high - low), 1.0
    _check_table(table, (S, A))
    for (p, step), got in zip(table, earned, strict=True):
        s, a = step.state, step.action
        P[s, a, S if step.terminated else step.next_state] += p
        signals[0, s, a] += p * (got - low) / (high - low)
        signals[1:, s, a] += p * utilities_of(utility, step, K, f"state {s}, action {a}", scale)
    steps = np.clip(signals, 0.0, 1.0)[:, None].repeat(H, axis=1)
    start = np.append(first, 0.0)
    return TabularCMDP(_lists(P, H), steps[0], steps[1:], thresholds, start / start.sum())


def _table(
    env: str | gymnasium.Env[Any, Any], options: dict[str, Any]
) -> tuple[list[tuple[float, Transition]], int, np.ndarray]:
    """All transitions with their probabilities, the number of actions, the first states (S,)."""
    raw: Any = made_environment(env, options).unwrapped
    for name in ("P", "initial_state_distrib"):
        if not hasattr(raw, name):
            _check.fail("env", "one with a transition table (toy text)", type(raw).__name__)
    S, A = int(raw.observation_space.n), int(raw.action_space.n)
    table = [
        (float(p), Transition(s, a, int(after), float(got), bool(terminated), {}))
        for s in range(S)
        for a in range(A)
        for p, after, got, terminated in raw.P[s][a]
    ]
    return table, A, np.asarray(raw.initial_state_distrib, dtype=float)


def _check_table(table: list[tuple[float, Transition]], shape: tuple[int, int]) -> None:
    """Fail unless the probabilities of each state and action are a distribution."""
    total = np.zeros(shape)
    for p, step in table:
        if not p >= 0:
            _check.fail("probabilities of P", ">= 0", p, (step.state, step.action))
        total[step.state, step.action] += p
    _check.everywhere("sums of P", total, np.abs(total - 1) <= 1e-9, "1")


def _lists(P: np.ndarray, H: int) -> Successors:
    """The same successor lists at every step."""
    S, A, _ = P.shape
    rows, states = np.nonzero(P.reshape(S * A, S))
    probabilities = P.reshape(S * A, S)[rows, states]
    counts = np.tile(np.bincount(rows, minlength=S * A), H)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    totals = np.bincount(rows, probabilities, minlength=S * A)
    return Successors(
        offsets, np.tile(states, H).astype(np.int32), np.tile(probabilities / totals[rows], H)
    )


def thawing(episodes: int, cycles: float) -> ArrayLike:
    """Weights (M, 2) of slippery and dry ground: slippery first, dry after half a cycle."""
    share = 0.5 + 0.5 * cos_turns(cycles * np.arange(episodes) / episodes)
    return np.stack([share, 1 - share], axis=1)
