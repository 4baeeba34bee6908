"""Common factors: what one pair shows of how all others move.

Drift is rarely a matter of single pairs: the weather of a year moves every row at once. So

    signal i of pair x in episode m      β_0 + β_1 z_1 + β_2 z_2 + noise,    β of (x, i)
    successor e of pair x in episode m   the same, β of (x, e)

with two factors z that all pairs have in common and loadings β of each pair's own. Factors walk at
random, at one of several speeds (`WALKS`); loadings stay.

Loadings are least squares: with f = (1, z), each pair keeps Γ = Σ f f' and each of its signals and
successors Σ f x. With Λ = diag(λ_0, λ_1, λ_1) the prediction is ω·Σ f x, ω = (Γ + Λ)^-1 f: a
weighted mean of what was seen, with weights for what the world is like today. 1/(f·ω) is the
effective number of observations n. At the N-th visit sums shrink to N/(N + 1) before it is added,
because old observations were attributed to factors that were hardly known yet; what is stored is
N + 1 times the sums, so that nothing needs to shrink.

After an episode its signals and successors tell where z is: Gaussian observations of variance
v (1 + 1/n) with slopes β_1, β_2, and the score of the probability (n p + α)/(n + S α) that a
successor had. A Kalman filter per speed takes them in; the better a speed predicted, the more it
weighs. Then loadings learn with the new z, its variance included (the expectation step of EM).

A prior slope that differs from pair to pair breaks the symmetry between the factors.

Trust. Factors predict before they learn, as filters do, and pay minus the logarithm of the
probability that they gave. The trust in them is their weight against the heaviest expert of the
filters, quantity by quantity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.tabular.evidence import heaviest
from safedrift.kernels.tabular.filters import FLOOR, MOST, SPREAD, TINY
from safedrift.kernels.types import FloatArray, jit_inline, jit_part

WALKS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""κ of each speed: a factor's variance P becomes (1 - κ) P + κ from one episode to the next."""

SHARE = 1e-4  # of weight and trust that is spread again after each episode
FIRST_TRUST = 0.02
SLOPE = 0.05  # prior variance of a signal's slope
MOVE_FIRST, MOVE_SLOPE = 0.01, 20.0  # λ of successors
BREAK = 0.1  # prior slopes, within plus or minus
LEAST_V = 1e-5  # noise that predictions assume at least
UNSURE = 1e-3  # variance of each factor that loadings assume besides
MOST_TRUST = 0.9  # in a model


class Factors(NamedTuple):
    """Factors, loadings and trust; C = 1 + K signals, W speeds."""

    kappa: FloatArray  # (W,) `WALKS`
    mean: FloatArray  # (W, 2) of z
    variance: FloatArray  # (W, 3) of z: 11, 12, 22
    weight: FloatArray  # (W,)
    loss: FloatArray  # (W,) scratch
    z: FloatArray  # (2,) mean over speeds
    spread: FloatArray  # (3,) variance, speeds included
    told: FloatArray  # (5,) information of this episode: 11, 12, 22, and times z
    gram: FloatArray  # (cap, 6) (N + 1) Γ of own cells: 00, 01, 02, 11, 12, 22
    visits: FloatArray  # (cap,) N
    signal: FloatArray  # (cap, C, 3) (N + 1) Σ f x
    edge: FloatArray  # (edges, 3) the same of successors
    v: FloatArray  # (C,) mean squared error of predictions
    alpha: FloatArray  # (1,) concentration of the prior of successors
    seen: FloatArray  # (1,) steps seen
    charged: FloatArray  # (1+C, 2) losses of this episode, product of probabilities or variances
    trust: FloatArray  # (1+C,)


# ---------------------------------------------------------------- room (plain Python)


def make_factors(cells, S, C):
    """Return factors of which nothing is known, with room for the same pairs as `cells`."""
    W = len(WALKS)
    return Factors(
        kappa=np.array(WALKS),
        mean=np.zeros((W, 2)),
        variance=np.tile([1.0, 0.0, 1.0], (W, 1)),
        weight=np.full(W, 1 / W),
        loss=np.zeros(W),
        z=np.zeros(2),
        spread=np.array([1.0, 0.0, 1.0]),
        told=np.zeros(5),
        gram=np.zeros((len(cells.key), 6)),
        visits=np.zeros(len(cells.key)),
        signal=np.zeros((len(cells.key), C, 3)),
        edge=np.zeros((len(cells.edge_next), 3)),
        v=np.full(C, SPREAD),
        alpha=np.full(1, 0.5 / S),
        seen=np.zeros(1),
        charged=np.tile([0.0, 1.0], (1 + C, 1)),
        trust=np.full(1 + C, FIRST_TRUST),
    )


def with_room_of(factors, cells):
    """Return factors with room for the same pairs as `cells`; the same ones if they have it."""
    changed = {}
    for name, size in (
        ("gram", len(cells.key)),
        ("visits", len(cells.key)),
        ("signal", len(cells.key)),
        ("edge", len(cells.edge_next)),
    ):
        old = getattr(factors, name)
        if len(old) < size:
            changed[name] = np.zeros((size, *old.shape[1:]))
            changed[name][: len(old)] = old
    return factors._replace(**changed) if changed else factors


# ---------------------------------------------------------------- loadings


@jit_inline
def inverse_of(factors, c, first, slope):
    """L and 1/D of (N + 1)(Γ + Λ) = L D L' of cell c: 10, 20, 21, and 1/D."""
    gram, scale = factors.gram[c], factors.visits[c] + 1.0
    first, slope = scale * first, scale * slope
    one = 1.0 / (gram[0] + first)
    a, b = gram[1] * one, gram[2] * one
    two = 1.0 / (gram[3] + slope - a * gram[1])
    e = gram[4] - a * gram[2]
    c = e * two
    return a, b, c, one, two, 1.0 / (gram[5] + slope - b * gram[2] - c * e)


@jit_inline
def times(inverse, x, y, z):
    """(Γ + Λ)^-1/(N + 1) times a vector."""
    a, b, c, one, two, three = inverse
    y -= a * x
    z = (z - b * x - c * y) * three
    y = y * two - c * z
    return x * one - a * y - b * z, y, z


@jit_inline
def fewness(factors, c, inverse):
    """1/n = f·(Γ + Λ)^-1 f with f = (1, z)."""
    z = factors.z
    omega = times(inverse, 1.0, z[0], z[1])
    few = omega[0] + omega[1] * z[0] + omega[2] * z[1]
    return max((factors.visits[c] + 1.0) * few, 1e-9)


@jit_inline
def prior_slopes(number):
    """Two numbers within plus or minus `BREAK`, other ones for every pair."""
    mixed = (number * 0x9E3779B1) >> 8
    return BREAK * ((mixed & 15) * 0.125 - 1.0), BREAK * (((mixed >> 4) & 15) * 0.125 - 1.0)


@jit_inline
def loadings_of_signal(factors, c, pair, i, mean):
    """Loadings of signal i of cell c, and (Γ + Λ)^-1."""
    v, u = max(factors.v[i], LEAST_V), factors.signal[c, i]
    first, slope = v / SPREAD, v / SLOPE
    inverse = inverse_of(factors, c, first, slope)
    one, two = prior_slopes(pair * 3 + i)
    scale = factors.visits[c] + 1.0
    first, slope = scale * first, scale * slope
    beta = times(inverse, u[0] + first * mean, u[1] + slope * one, u[2] + slope * two)
    return beta, inverse


@jit_inline
def loadings_of_edge(factors, c, e, pair, state, inverse):
    """Loadings of successor e of cell c."""
    u = factors.edge[e]
    one, two = prior_slopes(pair * 5 + state * 3 + 1)
    p = MOVE_SLOPE * (factors.visits[c] + 1.0) * u[0] / factors.gram[c, 0]
    return times(inverse, u[0], u[1] + p * one, u[2] + p * two)


@jit_inline
def variance_along(spread, one, two):
    """Variance of one z_1 + two z_2."""
    return one * one * spread[0] + 2.0 * one * two * spread[1] + two * two * spread[2]


# ---------------------------------------------------------------- an episode


@jit_part
def predict(factors):
    """Let factors walk into the coming episode."""
    for w in range(factors.kappa.size):
        kappa, rest = factors.kappa[w], 1.0 - factors.kappa[w]
        factors.variance[w, 0] = rest * factors.variance[w, 0] + kappa
        factors.variance[w, 1] *= rest
        factors.variance[w, 2] = rest * factors.variance[w, 2] + kappa
    mix(factors)
    for x in range(5):
        factors.told[x] = 0.0
    for x in range(factors.trust.size):
        factors.charged[x, 0], factors.charged[x, 1] = 0.0, 1.0


@jit_inline
def mix(factors):
    """Write mean and variance over speeds."""
    z, spread = factors.z, factors.spread
    z[0], z[1], spread[0], spread[1], spread[2] = 0.0, 0.0, 0.0, 0.0, 0.0
    for w in range(factors.kappa.size):
        share, one, two = factors.weight[w], factors.mean[w, 0], factors.mean[w, 1]
        z[0] += share * one
        z[1] += share * two
        spread[0] += share * (factors.variance[w, 0] + one * one)
        spread[1] += share * (factors.variance[w, 1] + one * two)
        spread[2] += share * (factors.variance[w, 2] + two * two)
    spread[0] -= z[0] * z[0]
    spread[1] -= z[0] * z[1]
    spread[2] -= z[1] * z[1]


@jit_inline
def tell(factors, one, two, pull, precision):
    """An observation says that one z_1 + two z_2 is `pull`, with this precision."""
    told = factors.told
    told[0] += one * one * precision
    told[1] += one * two * precision
    told[2] += two * two * precision
    told[3] += one * pull * precision
    told[4] += two * pull * precision


@jit_inline
def charge(factors, quantity, factor, sign):
    """Add sign * log(factor) to the loss of a quantity, later if possible."""
    charged = factors.charged[quantity]
    charged[1] *= factor
    if charged[1] < TINY:
        charged[0] += sign * log_of(charged[1])
        charged[1] = 1.0


@jit_part
def hear_signal(factors, c, pair, i, x, binary, mean):
    """Pay for an observed signal i of cell c, and note what it says of the factors."""
    z, v = factors.z, max(factors.v[i], LEAST_V)
    beta, inverse = loadings_of_signal(factors, c, pair, i, mean)
    few = fewness(factors, c, inverse)
    guess = beta[0] + beta[1] * z[0] + beta[2] * z[1]
    guess = min(max(guess, 0.0), 1.0)
    own = v * (1.0 + few)
    variance = own + variance_along(factors.spread, beta[1], beta[2])
    error = (x - guess) * (x - guess)
    if binary:
        n = 1.0 / few
        q = (n * guess + 0.5) / (n + 1.0)
        charge(factors, 1 + i, q if x == 1.0 else 1.0 - q, -1.0)
    else:
        factors.charged[1 + i, 0] += 0.5 * error / variance
        charge(factors, 1 + i, variance, 0.5)
    rate = max(1.0 / (factors.seen[0] + 1.0), 1e-3)
    factors.v[i] = max(factors.v[i] + (error * v / variance - factors.v[i]) * rate, FLOOR)
    if factors.visits[c] > 0.0:
        tell(factors, beta[1], beta[2], x - beta[0], 1.0 / own)


@jit_part
def hear_successor(factors, cells, c, pair, state, S):
    """Pay for a successor of cell c, and note what it says of the factors."""
    z, alpha = factors.z, factors.alpha[0]
    e = cells.head[c]
    while e >= 0 and cells.edge_state[e] != state:
        e = cells.edge_next[e]
    p, one, two, n = 0.0, 0.0, 0.0, 0.0
    if factors.visits[c] > 0.0:
        inverse = inverse_of(factors, c, MOVE_FIRST, MOVE_SLOPE)
        n = 1.0 / fewness(factors, c, inverse)
        if e >= 0:
            beta = loadings_of_edge(factors, c, e, pair, state, inverse)
            p = min(max(beta[0] + beta[1] * z[0] + beta[2] * z[1], 0.0), 1.0)
            one, two = beta[1], beta[2]
    top, bottom = n * p + alpha, n + S * alpha
    charge(factors, 0, top / bottom, -1.0)
    if e >= 0:
        one, two = n * one / top, n * two / top
        tell(factors, one, two, 1.0 + one * z[0] + two * z[1], 1.0)
    rate = 0.5 / np.sqrt(1.0 + 0.02 * factors.seen[0])
    alpha *= 1.0 + rate * alpha * (1.0 / top - S / bottom)
    factors.alpha[0] = min(max(alpha, 0.05 / S), 2.0)


@jit_part
def locate(factors):
    """Move the factors to where the episode says that they are."""
    a, b, c, x, y = factors.told
    best, total = np.inf, 0.0
    for w in range(factors.kappa.size):
        P, z = factors.variance[w], factors.mean[w]
        det = P[0] * P[2] - P[1] * P[1]
        one, two, both = P[2] / det + a, P[0] / det + c, b - P[1] / det
        after = one * two - both * both
        pull, push = x - a * z[0] - b * z[1], y - b * z[0] - c * z[1]
        d, e = (two * pull - both * push) / after, (one * push - both * pull) / after
        likely = x * z[0] + y * z[1]
        likely -= 0.5 * (a * z[0] * z[0] + 2.0 * b * z[0] * z[1] + c * z[1] * z[1])
        likely += 0.5 * (pull * d + push * e - log_of(after * det))
        factors.loss[w] = -likely
        best = min(best, -likely)
        z[0] += d
        z[1] += e
        P[0], P[1], P[2] = two / after, -both / after, one / after
    for w in range(factors.kappa.size):
        factors.weight[w] *= exp_of(-min(factors.loss[w] - best, MOST))
        total += factors.weight[w]
    for w in range(factors.kappa.size):
        factors.weight[w] = (1.0 - SHARE) * factors.weight[w] / total + SHARE / factors.kappa.size
    mix(factors)


@jit_part
def load(factors, c, h, signals):
    """Let loadings of signals of cell c learn from step h of the episode (`signals` (C, H))."""
    z, spread, gram = factors.z, factors.spread, factors.gram[c]
    factors.seen[0] += 1.0
    factors.visits[c] += 1.0
    weight = factors.visits[c] + 1.0
    gram[0] += weight
    gram[1] += weight * z[0]
    gram[2] += weight * z[1]
    gram[3] += weight * (z[0] * z[0] + spread[0] + UNSURE)
    gram[4] += weight * (z[0] * z[1] + spread[1])
    gram[5] += weight * (z[1] * z[1] + spread[2] + UNSURE)
    for i in range(signals.shape[0]):
        u, x = factors.signal[c, i], weight * signals[i, h]
        u[0] += x
        u[1] += x * z[0]
        u[2] += x * z[1]


@jit_part
def load_successor(factors, cells, c, state):
    """The same for successors, after `load`."""
    e, weight = cells.head[c], factors.visits[c] + 1.0
    while cells.edge_state[e] != state:
        e = cells.edge_next[e]
    u = factors.edge[e]
    u[0] += weight
    u[1] += weight * factors.z[0]
    u[2] += weight * factors.z[1]


@jit_part
def weigh(factors, experts, quantity, sign):
    """Let the trust in factors follow their loss, against that of the heaviest expert.

    To be called before the experts settle; `sign` as there.
    """
    best, ll = heaviest(experts.weight), experts.weight.shape[1]
    k, o = best // ll, best % ll
    other = experts.loss[k, o] + sign * log_of(experts.product[k, o])
    own = factors.charged[quantity, 0] + sign * log_of(factors.charged[quantity, 1])
    lead = min(max(other - own, -MOST), MOST)
    odds = factors.trust[quantity] * exp_of(lead)
    share = odds / (odds + 1.0 - factors.trust[quantity])
    factors.trust[quantity] = (1.0 - SHARE) * share + 0.5 * SHARE
