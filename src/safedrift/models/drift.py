"""Paths of weights: how a world drifts. Each builder returns convex weights (M, N).

Pass the result to `DriftingCMDP(scenarios, weights)`, or a different path to each of
`transition_weights`, `reward_weights` and `utility_weights`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import cos_turns
from safedrift.kernels.probability import walk_on_simplex

__all__ = [
    "abrupt",
    "alternating",
    "bursts",
    "linear",
    "periodic",
    "random_walk",
    "stationary",
]

LARGEST = 1e6  # phase or step; beyond, a path is rounding error


def stationary(episodes: int, scenarios: int, scenario: int = 0) -> FloatArray:
    """Stay in one scenario: no drift.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.drift.stationary(3, 2, scenario=1).tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    M, N = _sizes(episodes, scenarios)
    scenario = _check.integer("scenario", scenario, lower=0, upper=N - 1)
    return _one_hot(np.full(M, scenario), N)


def abrupt(
    episodes: int, scenarios: int, switches: int | ArrayLike | None = None, seed: int | None = None
) -> FloatArray:
    """Jump from scenario to scenario (0, 1, ..., N-1, 0, ...).

    Parameters
    ----------
    switches
        Number of jumps, or the episodes (from 0) of the jumps; N - 1 by default.
    seed
        With a number of jumps: None spaces them evenly, an int draws their times at random.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.drift.abrupt(5, 2, switches=[3]).argmax(axis=1).tolist()  # scenario of each episode
    [0, 0, 0, 1, 1]
    """
    M, N = _sizes(episodes, scenarios)
    if switches is None:
        switches = min(N, M) - 1
    if np.ndim(switches) == 0:
        count = _check.integer("switches", switches, lower=0, upper=M - 1)
        if seed is None:
            times = np.arange(1, count + 1) * M // (count + 1)
        else:
            times = _generator(seed).choice(M - 1, count, replace=False) + 1
    else:
        times = np.zeros(0, np.int64)
        if np.size(switches):
            times = _check.integers("switches", switches, 1, M - 1)
    segment = np.zeros(M, dtype=np.int64)
    segment[np.unique(times)] = 1
    return _one_hot(np.cumsum(segment) % N, N)


def linear(episodes: int, scenarios: int) -> FloatArray:
    """Move at constant speed from the first scenario through all others to the last.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.drift.linear(3, 2).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    M, N = _sizes(episodes, scenarios)
    place = np.linspace(0, N - 1, M) if M > 1 else np.zeros(1)
    return _interpolate(place, N)


def periodic(
    episodes: int, scenarios: int, period: float | None = None, phase: float = 0.0
) -> FloatArray:
    """Oscillate between the first and the last scenario along a cosine.

    Parameters
    ----------
    period
        Episodes per cycle; a quarter of all episodes by default.
    phase
        In cycles: 0 starts at the first scenario, 0.5 at the last.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.drift.periodic(4, 2, period=4).round(6).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.5, 0.5]]
    """
    M, N = _sizes(episodes, scenarios)
    period = M / 4 if period is None else _check.positive("period", period)
    if not abs(_check.real("phase", phase)) <= LARGEST:
        _check.fail("phase", f"at most {LARGEST:g} either way", phase)
    if not period >= 1 / LARGEST:
        _check.fail("period", f"at least {1 / LARGEST:g}", period)
    seasons = np.arange(M) / period + phase
    return _interpolate((N - 1) * (1 - cos_turns(seasons)) / 2, N)


def random_walk(episodes: int, scenarios: int, step: float = 0.02, seed: int = 0) -> FloatArray:
    """Walk on the simplex: Gaussian steps of size `step`, projected back onto the simplex.

    Examples
    --------
    >>> import safedrift as sd
    >>> weights = sd.drift.random_walk(100, 3, step=0.05, seed=1)
    >>> weights.shape, bool((weights >= 0).all())
    ((100, 3), True)
    """
    M, N = _sizes(episodes, scenarios)
    step = _check.positive("step", step, upper=LARGEST)
    weights = np.full((M, N), 1 / N)
    walk_on_simplex(_generator(seed).normal(0.0, step, (M, N)), np.empty(N), weights)
    return weights


def bursts(
    episodes: int, scenarios: int, count: int = 3, length: int | None = None, seed: int = 0
) -> FloatArray:
    """Stay in the first scenario, with short bursts of the others at random times.

    Examples
    --------
    >>> import safedrift as sd
    >>> weights = sd.drift.bursts(100, 2, count=2, length=5, seed=0)
    >>> int(weights[:, 1].sum())  # episodes in the second scenario
    10
    """
    M, N = _sizes(episodes, scenarios)
    count = _check.integer("count", count, lower=0)
    length = max(1, M // 20) if length is None else _check.integer("length", length)
    starts = np.sort(_generator(seed).integers(0, M, count))
    path = np.zeros(M, dtype=np.int64)
    for number, start in enumerate(starts):
        path[start : start + length] = 1 + number % (N - 1) if N > 1 else 0
    return _one_hot(path, N)


def alternating(episodes: int, scenarios: int, every: int = 1) -> FloatArray:
    """Switch to the next scenario every `every` episodes.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.drift.alternating(4, 2, every=1).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    M, N = _sizes(episodes, scenarios)
    every = _check.integer("every", every)
    return _one_hot(np.arange(M) // every % N, N)


def _sizes(episodes: int, scenarios: int) -> tuple[int, int]:
    return _check.integer("episodes", episodes), _check.integer("scenarios", scenarios)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(_check.integer("seed", seed, lower=0))


def _one_hot(path: np.ndarray, N: int) -> FloatArray:
    return np.asarray(np.eye(N)[path])


def _interpolate(place: FloatArray, N: int) -> FloatArray:
    """Weights of the point `place` in [0, N-1] on the line through the scenarios."""
    left = np.minimum(np.floor(place).astype(np.int64), max(N - 2, 0))
    share = place - left
    weights = np.zeros((place.size, N))
    rows = np.arange(place.size)
    weights[rows, left] = 1 - share
    if N > 1:
        weights[rows, left + 1] = share
    return weights
