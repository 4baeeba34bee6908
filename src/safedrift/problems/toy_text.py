"""Gymnasium's transition tables as exact CMDPs.

Environments of the toy-text family carry their model: P[s][a] is a list of (probability, next
state, reward, terminated). Here it becomes a `TabularCMDP` of H steps:

    states      those of the environment, and one more, "over", where an ended episode stays
    rewards     (r - low)/(high - low), averaged over next states; an ended episode earns r = 0
    utilities   utility(s, a, next state, raw reward, terminated), averaged; 1 when over

so that a value V here is (V_raw - H low)/(high - low) of a value in the environment's own units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift.kernels.types import Successors
from safedrift.models import TabularCMDP

__all__ = ["from_table"]

Signal = Callable[[int, int, int, float, bool], float]


def from_table(
    env: str | gymnasium.Env[Any, Any],
    horizon: int,
    utility: Signal,
    threshold: float,
    *,
    reward: Signal | None = None,
    reward_range: tuple[float, float] | None = None,
    **options: Any,
) -> TabularCMDP:
    """Return the CMDP of an environment that has a transition table.

    Parameters
    ----------
    env
        An environment, or the id of one that is made with `options`.
    utility
        utility(state, action, next state, raw reward, terminated), in [0, 1].
    threshold
        What the expected sum of utilities over `horizon` steps must reach.
    reward
        reward(state, action, next state, raw reward, terminated); by default the raw reward.
    reward_range
        `low` and `high`; by default the smallest and largest reward, or 0.
    """
    H = _check.integer("horizon", horizon)
    if isinstance(env, str):
        env = gymnasium.make(env, **options)
    elif options:
        _check.fail("options", "none with an environment that is made already", ", ".join(options))
    raw: Any = env.unwrapped
    for name in ("P", "initial_state_distrib"):
        if not hasattr(raw, name):
            _check.fail("env", "one with a transition table (toy text)", type(raw).__name__)
    S, A = int(raw.observation_space.n), int(raw.action_space.n)
    earn = reward or (lambda s, a, after, raw, terminated: raw)
    rewards = [
        float(earn(s, a, int(after), float(got), bool(terminated)))
        for s in range(S)
        for a in range(A)
        for _, after, got, terminated in raw.P[s][a]
    ]
    low, high = reward_range or (min(0.0, *rewards), max(0.0, *rewards))
    if not low < high or low > min(rewards) or high < max(rewards):
        _check.fail("reward_range", f"around [{min(rewards)}, {max(rewards)}]", (low, high))
    P = np.zeros((S + 1, A, S + 1))
    r, g = np.zeros((S + 1, A)), np.zeros((S + 1, A))
    P[S, :, S], r[S], g[S] = 1.0, (0.0 - low) / (high - low), 1.0
    earned = iter(rewards)
    for s in range(S):
        for a in range(A):
            for p, after, got, terminated in raw.P[s][a]:
                P[s, a, S if terminated else int(after)] += p
                r[s, a] += p * (next(earned) - low) / (high - low)
                g[s, a] += p * _value(utility, s, a, int(after), float(got), bool(terminated))
    first = np.append(np.asarray(raw.initial_state_distrib, dtype=float), 0.0)
    return TabularCMDP(
        _lists(P, H), _steps(r, H), _steps(g, H)[None], np.array([threshold]), first / first.sum()
    )


def _value(utility: Signal, *transition: Any) -> float:
    value = _check.real("utility(...)", utility(*transition))
    if not 0 <= value <= 1:
        _check.fail("utility(...)", "in [0, 1]", value, transition)
    return value


def _steps(values: np.ndarray, H: int) -> np.ndarray:
    return np.asarray(np.clip(values, 0.0, 1.0)[None].repeat(H, axis=0))


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
    share = 0.5 + 0.5 * np.cos(2 * np.pi * cycles * np.arange(episodes) / episodes)
    return np.stack([share, 1 - share], axis=1)
