"""Statistics of scores: intervals, interquartile means, paired tests, profiles.

Scores are arrays (W, N): W worlds and N seeds, the same seeds for every learner. Smaller is better.

    mean over seeds              one world; interval by the bias-corrected bootstrap (BCa)
    interquartile mean           the mean of the middle half of all W·N scores
    probability of improvement   mean over worlds of P(X < Y) + P(X = Y)/2, X and Y independent
    performance profile          share of the W·N scores that are at most τ

Intervals over several worlds resample the seeds of each world apart (stratified bootstrap); where
two learners are compared the same seeds are drawn for both. Because learners share their random
numbers, tests are paired by world and seed. They are about the worlds compared, not about others:
worlds are not drawn at random.

Agarwal, Schwarzer, Castro, Courville, Bellemare: Deep reinforcement learning at the edge of the
statistical precipice (NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from safedrift._check import FloatArray

__all__ = [
    "CONFIDENCE",
    "RESAMPLES",
    "Interval",
    "holm",
    "interquartile_mean",
    "iqm_tests",
    "mean_interval",
    "paired_t_test",
    "performance_profile",
    "pooled_iqm",
    "probability_of_improvement",
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
    from scipy.stats import bootstrap  # takes half a second to import

    found = bootstrap(
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

    from scipy.stats import bootstrap  # takes half a second to import

    found = bootstrap(
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


def iqm_tests(scores: Sequence[FloatArray], *, resamples: int = 1999, seed: int = 0) -> FloatArray:
    """Return two-sided p-values (L, L) of equal interquartile means, for every pair of L learners.

    Scores are (W, N) each. The difference d of two interquartile means is divided by its standard
    error s, from a stratified bootstrap that draws the same seeds for all learners, widened by
    √(N/(N-1)). Then d/s is compared with Student's t, whose degrees of freedom are those of Welch
    and Satterthwaite for the paired differences in W worlds: from N - 1 to W (N - 1).

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.results.statistics import iqm_tests
    >>> luck = np.random.default_rng(0).normal(size=(2, 20))
    >>> own = 0.1 * np.random.default_rng(1).normal(size=(2, 20))
    >>> p = iqm_tests([luck, luck + own, luck + own + 1])
    >>> bool(p[0, 1] > 0.05), bool(p[0, 2] < 0.001)
    (True, True)
    """
    values = np.stack([np.asarray(given, float) for given in scores])
    L, W, N = values.shape
    found = np.full((L, L), np.nan)
    if N < 2:
        return found
    rng = np.random.default_rng(seed)
    drawn = np.empty((resamples, L))
    batch = max(1, 1_000_000 // (L * W * N))
    for start in range(0, resamples, batch):
        part = drawn[start : start + batch]
        at = rng.integers(N, size=(len(part), W, N))
        part[:] = pooled_iqm(values[:, np.arange(W)[:, None], at]).T
    middle = pooled_iqm(values)
    for i, j in np.ndindex(L, L):
        if i != j:
            error = (drawn[:, i] - drawn[:, j]).std() * np.sqrt(N / (N - 1))
            degrees = _welch(values[i] - values[j])
            size = SAME * max(np.abs(values[i]).max(), np.abs(values[j]).max())
            found[i, j] = _p_value(float(middle[i] - middle[j]), error, degrees, size)
    return found


def _welch(differences: FloatArray) -> float:
    """Degrees of freedom of the mean of W means, from paired differences (W, N)."""
    W, N = differences.shape
    v = differences.var(axis=1, ddof=1)
    return float((N - 1) * v.sum() ** 2 / (v**2).sum()) if v.any() else float(W * (N - 1))


def _p_value(difference: float, error: float, degrees: float, size: float) -> float:
    """Two-sided, of a difference with a standard error; below `size` both count as zero."""
    if error <= size:  # no spread to compare with
        return 1.0 if abs(difference) <= size else 0.0
    from scipy.stats import t as students_t  # takes half a second to import

    return float(2 * students_t.sf(abs(difference) / error, degrees))


def paired_t_test(x: FloatArray, y: FloatArray) -> float:
    """Return the two-sided p-value of equal means, from paired scores (n,)."""
    d = np.asarray(x, float) - np.asarray(y, float)
    if d.size < 2:
        return np.nan
    size = SAME * max(np.abs(x).max(), np.abs(y).max())
    return _p_value(d.mean(), d.std(ddof=1) / np.sqrt(d.size), d.size - 1, size)


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
