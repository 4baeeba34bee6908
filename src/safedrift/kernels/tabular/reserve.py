"""What plans aim at: thresholds, corrected by what returns say, with a reserve where it is cheap.

A model that is late in many pairs at once is hardly wrong in any of them, and yet its utilities of
whole episodes are. So the return of every episode is compared with what the plan promised:

    x_m = Σ_h g_h - V_g(s_1) = d + noise,    d = true utility - promised utility.

Filters believe that d is 0 for ever, or that it starts anywhere and walks at random, by variance
κ v per episode, v that of the noise. Those that walk are Kalman filters; the better a filter
predicted, the more it weighs. Together they have a mean d and a variance σ².

The utility of a plan that aims at b + y is then b + y + d, give or take σ. A unit of violation
costs 1, and aiming a unit higher costs the multiplier μ in reward. The mean of both is least where
the plan is unsafe with probability μ (the newsvendor's answer). If d is logistic:

    y = -d + σ (√3/π) log((1 - μ)/μ),

the logarithm at most `MOST_ODDS` either way. Where safety is dear (μ > 1/2) less of d is corrected,
but a plan never aims below both b and b - d. With several constraints the cost is the sum of one
such term for each, so that each has its own d, σ and μ.

With one constraint y is at most `MOST_SHARE` of the slack that the model shows. With several, the
slack is what all can have at once, and says little about how far one can be raised while others
fall: only the reserve, y + d, is limited, and `lowered` says how much of all corrections is asked
for where no policy gets there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.types import FloatArray, jit_inline, jit_part

WALKS = (-1.0, 0.0, 1e-6, 1e-5, 1e-4, 1e-3)
"""κ of each filter; -1: d is 0 for ever."""

SHARE = 1e-4  # of the weight, spread over all filters
MOST_LOSS = 30.0  # that a filter is charged per episode, above the best
NOISE_RATE, LEAST_NOISE = 0.002, 1e-4  # with which v is learned at least; v at least
LOGISTIC = 0.5513288954217921  # √3/π: scale of a logistic variable of variance 1
MOST_ODDS = 3.6  # logarithm that counts: a reserve of two standard deviations
MOST_SHARE = 0.5
CLOSE = 0.95


class Returns(NamedTuple):
    """What returns say of plans, constraint by constraint."""

    kappa: FloatArray  # (F,) `WALKS`
    mean: FloatArray  # (K, F) of d
    variance: FloatArray  # (K, F)
    weight: FloatArray  # (K, F)
    noise: FloatArray  # (K,) v
    loss: FloatArray  # (F,) scratch
    seen: FloatArray  # (1,) episodes


def make_returns(H: int, K: int) -> Returns:
    """Nothing was seen yet: d is within ±1, returns within ±√H."""
    F = len(WALKS)
    return Returns(
        kappa=np.array(WALKS),
        mean=np.zeros((K, F)),
        variance=np.ones((K, F)),
        weight=np.full((K, F), 1 / F),
        noise=np.full(K, float(H)),
        loss=np.zeros(F),
        seen=np.zeros(1),
    )


@jit_part
def see_returns(returns, values, signals):
    """Learn from an episode: `values` (K,) were promised, `signals` (1+K, H) came."""
    returns.seen[0] += 1.0
    rate = max(1.0 / (returns.seen[0] + 1.0), NOISE_RATE)
    for k in range(values.size):
        x = -values[k]
        for h in range(signals.shape[1]):
            x += signals[1 + k, h]
        predict(returns, k, x)
        weigh(returns, k)
        error = x - moments(returns, k)[0]
        v = returns.noise[k] + rate * (error * error - returns.noise[k])
        returns.noise[k] = max(v, LEAST_NOISE)


@jit_inline
def predict(returns, k, x):
    """Write what each filter of constraint k loses at x, and let it learn."""
    v = returns.noise[k]
    for f in range(returns.kappa.size):
        d, variance = 0.0, 0.0
        if returns.kappa[f] >= 0.0:
            d, variance = returns.mean[k, f], returns.variance[k, f] + returns.kappa[f] * v
        total = variance + v
        error = x - d
        returns.loss[f] = 0.5 * (error * error / total + log_of(total))
        returns.mean[k, f] = d + variance / total * error
        returns.variance[k, f] = variance * v / total


@jit_inline
def weigh(returns, k):
    """Let weights of constraint k follow the losses."""
    F, least, total = returns.kappa.size, np.inf, 0.0
    for f in range(F):
        least = min(least, returns.loss[f])
    for f in range(F):
        returns.weight[k, f] *= exp_of(-min(returns.loss[f] - least, MOST_LOSS))
        total += returns.weight[k, f]
    for f in range(F):
        returns.weight[k, f] = (1.0 - SHARE) * returns.weight[k, f] / total + SHARE / F


@jit_inline
def moments(returns, k):
    """Mean and variance of d of constraint k."""
    d, square = 0.0, 0.0
    for f in range(returns.kappa.size):
        w, mean = returns.weight[k, f], returns.mean[k, f]
        d += w * mean
        square += w * (mean * mean + returns.variance[k, f])
    return d, max(square - d * d, 0.0)


@jit_part
def aim_above(returns, k, mu, slack):
    """By how much a plan aims above the threshold of constraint k, of multiplier μ."""
    d, variance = moments(returns, k)
    odds = MOST_ODDS if mu < 0.5 else -MOST_ODDS
    if 0.0 < mu < 1.0:
        odds = min(max(log_of((1.0 - mu) / mu), -MOST_ODDS), MOST_ODDS)
    most = MOST_SHARE * max(slack, 0.0)
    reserve = LOGISTIC * odds * np.sqrt(variance)
    if returns.noise.size == 1:
        return min(max(reserve - d, min(0.0, -d)), most)
    return max(min(reserve, most) - d, min(0.0, -d))


@jit_inline
def lowered(slack, missing):
    """Share of all corrections that some policy should reach, where none reaches them in full.

    The largest slack is concave in what is asked for. So where it is `slack` with none of the
    corrections and `missing` < 0 with all of them, it is at least 0 with slack/(slack - missing) of
    them. The slack is that of the plan before, so a little less is taken, or half if it had none.
    """
    return CLOSE * slack / (slack - missing) if slack > 0.0 else 0.5
