"""Statistics of scores: intervals, interquartile means, paired tests, profiles.

Scores are arrays (W, N): W worlds and N seeds, the same seeds for every learner. Smaller is better.

    mean over seeds              one world; interval by the bias-corrected bootstrap (BCa)
    interquartile mean           the mean of the middle half of all W·N scores
    probability of improvement   mean over worlds of P(X < Y) + P(X = Y)/2, X and Y independent
    performance profile          share of the W·N scores that are at most τ

Intervals over several worlds resample the seeds of each world apart (stratified bootstrap); where
two learners are compared the same seeds are drawn for both. Because learners share their random
numbers, tests are paired: if two learners are the same, swapping their scores in any world and seed
changes nothing, so the mean difference is compared with its values under such swaps (sign flips).
Within one world there are few pairs, and the test is the paired t-test.

Agarwal, Schwarzer, Castro, Courville, Bellemare: Deep reinforcement learning at the edge of the
statistical precipice (NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from safedrift._check import FloatArray

__all__ = [
    "CONFIDENCE",
    "RESAMPLES",
    "Interval",
    "holm",
    "interquartile_mean",
    "mean_interval",
    "paired_t_test",
    "performance_profile",
    "pooled_iqm",
    "probability_of_improvement",
    "sign_flip_test",
    "stratified_interval",
]

CONFIDENCE = 0.95
RESAMPLES = 9999
SAME = 1e-12  # relative difference up to which two sums count as equal


class Interval(NamedTuple):
    """An estimate with its confidence interval, and why there is none where it is missing."""

    value: float
    low: float
    high: float
    note: str = ""


def interquartile_mean(scores: FloatArray, axis: int = -1) -> FloatArray:
    """Return the mean along an axis without the lowest and the highest quarter.

    A quarter is rounded down, as in `scipy.stats.trim_mean`.

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.results.statistics import interquartile_mean
    >>> float(interquartile_mean(np.array([0.0, 1.0, 2.0, 300.0])))
    1.5
    """
    ordered = np.sort(np.moveaxis(np.asarray(scores, float), axis, -1), axis=-1)
    cut = ordered.shape[-1] // 4
    middle = ordered[..., cut : ordered.shape[-1] - cut]
    return np.asarray(np.cumsum(middle, axis=-1)[..., -1] / middle.shape[-1])


# ---------------------------------------------------------------- intervals


def mean_interval(
    scores: FloatArray, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean of scores (N,) and its BCa bootstrap interval."""
    scores = np.asarray(scores, float)
    if not scores.size:
        return Interval(np.nan, np.nan, np.nan, "no runs")
    value = float(np.cumsum(scores)[-1] / scores.size)
    if scores.size == 1:
        return Interval(value, np.nan, np.nan, "one seed: no interval")
    if np.ptp(scores) <= SAME * np.abs(scores).max():
        return Interval(value, value, value, "the same in every seed")
    found = stats.bootstrap(
        (scores,),
        np.mean,
        n_resamples=resamples,
        confidence_level=confidence,
        method="BCa",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high))


def stratified_interval(
    statistic: Callable[..., FloatArray],
    arrays: Sequence[FloatArray],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return a statistic of scores and its interval, resampling the seeds of each world apart.

    Parameters
    ----------
    statistic
        Takes one array (..., W, N) per entry of `arrays` and returns (...).
    arrays
        Scores (W, N), one array per learner; all are resampled at the same seeds.
    """
    W, N = arrays[0].shape
    value = float(statistic(*arrays))
    if N == 1:
        return Interval(value, np.nan, np.nan, "one seed: no interval")
    if all((np.ptp(a, axis=1) <= SAME * np.abs(a).max()).all() for a in arrays):
        return Interval(value, value, value, "the same in every seed")

    def of_drawn(*drawn: Any, axis: int = -1) -> FloatArray:
        picked = np.stack([np.moveaxis(x, axis, -1) for x in drawn], axis=-2)  # (..., W, N)
        world = np.arange(W)[:, None]
        return statistic(*(a[world, picked] for a in arrays))

    found = stats.bootstrap(
        tuple(np.arange(N) for _ in range(W)),
        of_drawn,
        n_resamples=resamples,
        batch=max(1, 200_000 // (W * N)),
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high))


def pooled_iqm(scores: FloatArray) -> FloatArray:
    """Return the interquartile mean (...) of scores (..., W, N) over worlds and seeds."""
    return interquartile_mean(scores.reshape(*scores.shape[:-2], -1))


def improvement(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return P(X < Y) + P(X = Y)/2 (...) of scores (..., W, N), mean over worlds."""
    less = x[..., :, None] < y[..., None, :]
    same = x[..., :, None] == y[..., None, :]
    return np.asarray((less + 0.5 * same).mean(axis=(-1, -2, -3)))


def probability_of_improvement(
    x: FloatArray, y: FloatArray, *, resamples: int = 999, seed: int = 0
) -> Interval:
    """Return how likely a run of the first learner is better than one of the second.

    Parameters
    ----------
    x, y : (W, N)

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.results.statistics import probability_of_improvement
    >>> probability_of_improvement(np.array([[1.0, 2.0]]), np.array([[2.0, 3.0]])).value
    0.875
    """
    return stratified_interval(improvement, (x, y), resamples=resamples, seed=seed)


def performance_profile(
    scores: FloatArray,
    levels: FloatArray,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = 499,
    seed: int = 0,
) -> FloatArray:
    """Return the share of scores (W, N) at most each level (T,), and its interval: (3, T)."""
    W, N = scores.shape
    rng = np.random.default_rng(seed)
    below = (scores[..., None] <= levels).astype(float)  # (W, N, T)
    shares = np.empty((resamples, levels.size))
    for row in shares:
        drawn = rng.integers(N, size=(W, N))
        row[:] = below[np.arange(W)[:, None], drawn].mean(axis=(0, 1))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(shares, (tail, 100 - tail), axis=0)
    return np.stack((below.mean(axis=(0, 1)), low, high))


# ---------------------------------------------------------------- tests


def sign_flip_test(
    x: FloatArray, y: FloatArray, *, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Return the two-sided p-value of two learners being the same, from paired scores (n,).

    If they are, each difference may as well have the other sign. The mean difference is compared
    with all 2^n choices of signs where these are at most `resamples`; else with that many random
    ones, the observed one added.

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.results.statistics import sign_flip_test
    >>> sign_flip_test(np.arange(6.0), np.arange(6.0) + 1)  # 2 of 64 signs are as extreme
    0.03125
    """
    d = np.asarray(x, float) - np.asarray(y, float)
    n = d.size
    if n < 2:
        return np.nan
    every = n < 60 and 2**n <= resamples
    if every:
        flipped = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        flipped = np.random.default_rng(seed).integers(2, size=(resamples, n), dtype=np.int8)
    sums = np.abs((d * (1 - 2 * flipped)).sum(axis=1))
    rounding = SAME * np.abs(d).sum()
    extreme = int((sums >= abs(d.sum()) - rounding).sum())
    return extreme / 2**n if every else (1 + extreme) / (1 + resamples)


def paired_t_test(x: FloatArray, y: FloatArray) -> float:
    """Return the two-sided p-value of equal means, from paired scores (n,)."""
    d = np.asarray(x, float) - np.asarray(y, float)
    if d.size < 2:
        return np.nan
    size = SAME * max(np.abs(x).max(), np.abs(y).max())
    if np.ptp(d) <= size:  # no spread to measure the mean with
        return 1.0 if np.abs(d).max() <= size else 0.0
    t = d.mean() / (d.std(ddof=1) / np.sqrt(d.size))
    return float(2 * stats.t.sf(abs(t), d.size - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number by Holm's method; NaN stays and does not count.

    Examples
    --------
    >>> from safedrift.results.statistics import holm
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p, float)
    known = np.flatnonzero(~np.isnan(given))
    order = known[np.argsort(given[known], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    adjusted = np.full(given.size, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * given[order]), 1.0)
    return [float(value) for value in adjusted]
