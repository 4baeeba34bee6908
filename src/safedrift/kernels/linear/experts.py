"""Experts that are weighed by what they predicted, and alarms between them.

An expert is filter k of a step (pool = 0) or of all steps together (pool = 1). It pays minus the
logarithm of the probability, or density, that it gave to what was seen:

    successors       p, with a small share of the uniform distribution (`filters.chance`)
    only 0 and 1     (m + u/2)/(1 + u), its mean m within [0, 1], 1/u observations
    other signals    normal, variance v (1 + u), v the expert's own mean squared error

Weights follow the fixed-share rule (Herbster and Warmuth 1998).

Alarms. For k < j, pooled or not as the heaviest expert is, C = max(0, C + loss_k - loss_j). Where
filter k is right, e^C is at most a sum of martingales that start at 1 in each episode; so in n
episodes C passes a limit c with probability at most n e^-c (Ville's inequality). When it does,
filter k is wrong and goes on from filter j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.types import FloatArray, jit_inline, jit_part

SHARE = 1e-4  # of the weight that is spread over all experts after each episode
SPREAD = 0.1  # variance of a signal of which nothing is known
MOST = 30.0  # nats by which an expert may fall behind the best in one episode
FLOOR, LEAST = 1e-5, 1e-6  # of v, and of the variance of a prediction
SLOWEST = 1e-3  # rate at which v follows, at least
TINY = 1e-150
CHOSEN = 3  # experts that a plan averages at most, ...
LIGHTEST = 0.05  # ... each with at least this share of the heaviest one's weight
CLOSE = 1e-9  # a difference that may be rounding: slower filters go first


class Experts(NamedTuple):
    """Weights and alarms of the experts of one quantity."""

    weight: FloatArray  # (k, 2)
    v: FloatArray  # (k, 2) mean squared error of predictions
    seen: FloatArray  # (1,) observations so far
    C: FloatArray  # (k, k)
    loss: FloatArray  # (k, 2) of this episode
    product: FloatArray  # (k, 2) probabilities, or variances, not yet in `loss`


def make_experts(k: int) -> Experts:
    """Return experts that have predicted nothing yet."""
    return Experts(
        np.full((k, 2), 0.5 / k),
        np.full((k, 2), SPREAD),
        np.zeros(1),
        np.zeros((k, k)),
        np.zeros((k, 2)),
        np.ones((k, 2)),
    )


# ---------------------------------------------------------------- losses


@jit_inline
def pay(experts, k, pool, q):
    """Charge an expert for an observation that it gave probability q."""
    experts.product[k, pool] *= q
    if experts.product[k, pool] < TINY:
        experts.loss[k, pool] -= log_of(experts.product[k, pool])
        experts.product[k, pool] = 1.0


@jit_inline
def pay_signal(experts, k, pool, y, guess, u, binary, rate):
    """Charge an expert for the signal y, of which it had the mean `guess` and 1/u observations."""
    guess = min(max(guess, 0.0), 1.0)
    error = (y - guess) * (y - guess)
    v = experts.v[k, pool]
    variance = max(min(v * (1.0 + u), v + SPREAD), LEAST)
    if binary:
        q = (guess + 0.5 * u) / (1.0 + u)
        pay(experts, k, pool, max(q if y == 1.0 else 1.0 - q, LEAST))
    else:
        experts.loss[k, pool] += 0.5 * error / variance
        experts.product[k, pool] *= variance
        if experts.product[k, pool] < TINY:
            experts.loss[k, pool] += 0.5 * log_of(experts.product[k, pool])
            experts.product[k, pool] = 1.0
    experts.v[k, pool] = max(v + (error * v / variance - v) * rate, FLOOR)


@jit_part
def start_again(experts):
    """Drop the losses of the episode so far."""
    for k in range(experts.loss.shape[0]):
        for pool in range(2):
            experts.loss[k, pool] = 0.0
            experts.product[k, pool] = 1.0


# ---------------------------------------------------------------- after an episode


@jit_part
def heaviest(weight):
    """Number 2 k + pool of the heaviest expert."""
    best, found = 0.0, 0
    for k in range(weight.shape[0]):
        for pool in range(2):
            if weight[k, pool] > (1.0 + CLOSE) * best:
                best, found = weight[k, pool], 2 * k + pool
    return found


@jit_part
def settle(experts, sign):
    """Turn the episode's losses into weights and alarm statistics; clears them.

    `sign` is -1 where `product` holds probabilities, 1/2 where it holds variances.
    """
    kk = experts.weight.shape[0]
    best = np.inf
    for k in range(kk):
        for pool in range(2):
            experts.loss[k, pool] += sign * log_of(experts.product[k, pool])
            best = min(best, experts.loss[k, pool])
    for k in range(kk):
        for pool in range(2):
            experts.loss[k, pool] = min(experts.loss[k, pool] - best, MOST)
    pool = heaviest(experts.weight) % 2
    for k in range(kk):
        for j in range(k + 1, kk):
            C = experts.C[k, j] + experts.loss[k, pool] - experts.loss[j, pool]
            experts.C[k, j] = max(C, 0.0)
    total = 0.0
    for k in range(kk):
        for pool in range(2):
            experts.weight[k, pool] *= exp_of(-experts.loss[k, pool])
            total += experts.weight[k, pool]
    for k in range(kk):
        for pool in range(2):
            kept = (1.0 - SHARE) * experts.weight[k, pool] / total
            experts.weight[k, pool] = kept + SHARE / (2 * kk)
    start_again(experts)


@jit_part
def alarmed(experts, k, limit):
    """Return the filter j whose lead over k is largest and above the limit, or -1."""
    found, largest = -1, limit
    for j in range(k + 1, experts.C.shape[0]):
        if experts.C[k, j] > largest + CLOSE:
            found, largest = j, experts.C[k, j]
    return found


@jit_part
def forgive(experts, k, j):
    """Give filter k a new chance: weight and error of j, and statistics that start again."""
    for pool in range(2):
        experts.weight[k, pool] = max(experts.weight[k, pool], experts.weight[j, pool])
        experts.v[k, pool] = experts.v[j, pool]
    for i in range(k + 1, experts.C.shape[0]):
        experts.C[k, i] = 0.0


# ---------------------------------------------------------------- which are planned with


@jit_part
def matters(weight, k):
    """Whether one of filter k's experts is heavy enough to be planned with."""
    best = 0.0
    for i in range(weight.shape[0]):
        for pool in range(2):
            best = max(best, weight[i, pool])
    return max(weight[k, 0], weight[k, 1]) >= LIGHTEST * best


@jit_part
def choose(weight, chosen):
    """Write k, pool and weight of the heaviest experts to chosen (CHOSEN, 3); weights add to 1."""
    best, total = 0.0, 0.0
    for n in range(chosen.shape[0]):
        chosen[n, 2] = 0.0
        for k in range(weight.shape[0]):
            for pool in range(2):
                taken = False
                for before in range(n):
                    taken |= chosen[before, 0] == k and chosen[before, 1] == pool
                w = weight[k, pool]
                if not taken and w > (1.0 + CLOSE) * chosen[n, 2] and w >= LIGHTEST * best:
                    chosen[n, 0], chosen[n, 1], chosen[n, 2] = k, pool, w
        best = max(best, chosen[n, 2])
        total += chosen[n, 2]
    for n in range(chosen.shape[0]):
        chosen[n, 2] /= total
