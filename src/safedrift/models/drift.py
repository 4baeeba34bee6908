"""Weight paths: how a world drifts. Each builder returns convex weights (M, N), a row per episode.

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

LARGEST = 1e6  # of phases and steps; beyond, a path is rounding error


def stationary(episodes: int, scenarios: int, scenario: int = 0) -> FloatArray:
    """Stay in one scenario: no drift at all."""
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
        How many jumps, or the episodes (from 0) at which the world jumps; N - 1 by default.
    seed
        With a count: None spreads the jumps evenly, a number draws their times at random.
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
    """Glide evenly from the first scenario through all others to the last."""
    M, N = _sizes(episodes, scenarios)
    place = np.linspace(0, N - 1, M) if M > 1 else np.zeros(1)
    return _interpolate(place, N)


def periodic(
    episodes: int, scenarios: int, period: float | None = None, phase: float = 0.0
) -> FloatArray:
    """Seasons: swing between the first and the last scenario along a cosine.

    Parameters
    ----------
    period
        Episodes per season; a quarter of all episodes by default.
    phase
        In seasons: 0 starts at the first scenario, 0.5 at the last.
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
    """Walk on the simplex: Gaussian steps of size `step`, projected back onto the simplex."""
    M, N = _sizes(episodes, scenarios)
    step = _check.positive("step", step, upper=LARGEST)
    weights = np.full((M, N), 1 / N)
    walk_on_simplex(_generator(seed).normal(0.0, step, (M, N)), np.empty(N), weights)
    return weights


def bursts(
    episodes: int, scenarios: int, count: int = 3, length: int | None = None, seed: int = 0
) -> FloatArray:
    """Rest in the first scenario, with short stays in the others at random times."""
    M, N = _sizes(episodes, scenarios)
    count = _check.integer("count", count, lower=0)
    length = max(1, M // 20) if length is None else _check.integer("length", length)
    starts = np.sort(_generator(seed).integers(0, M, count))
    path = np.zeros(M, dtype=np.int64)
    for number, start in enumerate(starts):
        path[start : start + length] = 1 + number % (N - 1) if N > 1 else 0
    return _one_hot(path, N)


def alternating(episodes: int, scenarios: int, every: int = 1) -> FloatArray:
    """Act as an adversary: take the next scenario every `every` episodes, for ever."""
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
    """Weights of the point `place` in [0, N-1] on the polygon through the scenarios."""
    left = np.minimum(np.floor(place).astype(np.int64), max(N - 2, 0))
    share = place - left
    weights = np.zeros((place.size, N))
    rows = np.arange(place.size)
    weights[rows, left] = 1 - share
    if N > 1:
        weights[rows, left + 1] = share
    return weights
