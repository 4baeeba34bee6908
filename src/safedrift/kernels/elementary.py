"""Elementary functions in plain arithmetic: the same bits wherever doubles are IEEE doubles.

NumPy's exp, cos and tanh are written anew for each generation of processors, and those of the C
library for processors with and without fused multiply-add: their last digits differ. Worlds that
are promised bit for bit use these instead. Each is right to a few units in the last digit.

    e^x       = 2^k e^r,  |r| ≤ ln 2 / 2, and e^r by its Taylor series
    ln x      = k ln 2 + 2 (s + s³/3 + s⁵/5 + ...),  x = 2^k m,  s = (m - 1)/(m + 1)
    cos(2πt)  by the Taylor series of cosine or sine on an eighth of a turn
    Φ(z)      = 1/2 + φ(z) (z + z³/3 + z⁵/(3·5) + ...) near zero, and below
              = φ(z) / (y + 1/(y + 2/(y + 3/(y + ...)))) with y = -z in the lower tail

Φ is the standard normal's distribution function, φ its density.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from safedrift.kernels.types import FloatArray, jit, jit_part, prepared

__all__ = ["cos_turns", "exp", "log", "normal_cdf", "normal_quantile", "tanh"]

_TAIL = -2.0  # below it the continued fraction is used,
_DEPTH = 100  # from this deep, where it has converged
_STEPS = 2000  # Newton's at most: 800 at the smallest double


# ---------------------------------------------------------------- for Python: arrays in and out


def exp(x: ArrayLike) -> FloatArray:
    """Return e^x; 0 below -708."""
    return _each(exp_each, x)


def log(x: ArrayLike) -> FloatArray:
    """Return the natural logarithm of positive numbers."""
    return _each(log_each, x)


def tanh(x: ArrayLike) -> FloatArray:
    """Return the hyperbolic tangent, to the last digits of 1."""
    return _each(tanh_each, x)


def cos_turns(turns: ArrayLike) -> FloatArray:
    """Return cos(2π turns), exactly 1, 0 and -1 at quarters of a turn."""
    return _each(cos_each, turns)


def normal_cdf(z: ArrayLike) -> FloatArray:
    """Return Φ(z), in the lower tail to the last digits of Φ itself."""
    return _each(cdf_each, z)


def normal_quantile(p: ArrayLike) -> FloatArray:
    """Return z with Φ(z) = p, for p in [0, 1]; infinite at the ends."""
    return _each(quantile_each, p)


def _each(kernel: Callable[[FloatArray, FloatArray], None], x: ArrayLike) -> FloatArray:
    values = prepared(x)
    out = np.empty(values.size)
    kernel(values.ravel(), out)
    return out.reshape(np.shape(x))


@jit
def exp_each(x, out):
    """out ← e^x."""
    for i in range(x.size):
        out[i] = exp_of(x[i])


@jit
def log_each(x, out):
    """out ← ln x."""
    for i in range(x.size):
        out[i] = log_of(x[i])


@jit
def tanh_each(x, out):
    """out ← tanh(x) = (1 - e^(-2|x|)) / (1 + e^(-2|x|)), with the sign of x."""
    for i in range(x.size):
        out[i] = tanh_of(x[i])


@jit
def cos_each(turns, out):
    """out ← cos(2π turns)."""
    for i in range(turns.size):
        out[i] = cos_of(turns[i])


@jit
def cdf_each(z, out):
    """out ← Φ(z)."""
    for i in range(z.size):
        out[i] = cdf_of(z[i])


@jit
def quantile_each(p, out):
    """out ← Φ⁻¹(p)."""
    for i in range(p.size):
        out[i] = quantile_of(p[i])


# ---------------------------------------------------------------- one number at a time


@jit_part
def exp_of(x):
    """e^x = 2^k e^r."""
    if not x > -708.0:
        return 0.0 if x <= -708.0 else x  # nan stays nan
    if x > 709.0:
        return np.inf
    k = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10  # ln 2 in two parts
    y = 1.0
    for n in range(14, 0, -1):  # 1 + r/1 (1 + r/2 (1 + r/3 (...)))
        y = 1.0 + r / n * y
    return math.ldexp(y, int(k))


@jit_part
def tanh_of(x):
    """tanh x by e^(-2|x|)."""
    small = exp_of(-2.0 * abs(x))
    return np.copysign((1.0 - small) / (1.0 + small), x)


@jit_part
def log_of(x):
    """ln x = k ln 2 + ln m with m between √½ and √2."""
    if not 0.0 < x < np.inf:
        return x if x > 0.0 or x != x else (-np.inf if x == 0.0 else np.nan)
    m, k = math.frexp(x)
    if m < 0.7071067811865476:
        m, k = 2.0 * m, k - 1
    f = m - 1.0  # exact
    s = f / (2.0 + f)
    z = s * s
    rest = 0.0
    for n in range(25, 1, -2):  # s²/3 + s⁴/5 + ...
        rest = z * (1.0 / n + rest)
    # ln m = f - f²/2 + s (f²/2 + 2 rest), and ln 2 in two parts: the large terms are exact.
    half = 0.5 * f * f
    low = k * 1.90821492927058770002e-10
    return k * 6.93147180369123816490e-01 - ((half - (s * (half + 2.0 * rest) + low)) - f)


@jit_part
def cos_of(turns):
    """cos(2πt): t within half a turn of 0, its distance from the nearest quarter, then a series."""
    t = abs(turns - np.floor(turns + 0.5))  # exact, in [0, 1/2]
    sign = 1.0
    if t > 0.25:
        t, sign = 0.5 - t, -1.0  # cos(π - x) = -cos x
    if t > 0.125:
        return sign * sin_series(6.283185307179586 * (0.25 - t))
    x = 6.283185307179586 * t
    y = 1.0
    for n in range(20, 0, -2):
        y = 1.0 - x * x / (n * (n - 1)) * y
    return sign * y


@jit_part
def sin_series(x):
    """sin x for |x| ≤ π/4."""
    y = 1.0
    for n in range(20, 0, -2):
        y = 1.0 - x * x / (n * (n + 1)) * y
    return x * y


@jit_part
def density_of(z):
    """φ(z)."""
    return 0.3989422804014327 * exp_of(-0.5 * z * z)


@jit_part
def cdf_of(z):
    """Φ(z)."""
    if z > -_TAIL:
        return 1.0 - tail_of(z)
    if z < _TAIL:
        return tail_of(-z)
    term, total, n = z, z, 1.0
    while abs(term) > 1e-17 * abs(total):
        n += 2.0
        term *= z * z / n
        total += term
    return 0.5 + density_of(z) * total


@jit_part
def tail_of(y):
    """Φ(-y) for y > 0 far from 0, by its continued fraction."""
    below = y
    for n in range(_DEPTH, 0, -1):
        below = y + n / below
    return density_of(y) / below


@jit_part
def quantile_of(p):
    """Φ⁻¹(p), by symmetry from the lower half."""
    return lower_quantile(p) if p <= 0.5 else -lower_quantile(1.0 - p)


@jit_part
def lower_quantile(p):
    """Φ⁻¹(p) for p ≤ 1/2: Newton's steps from 0.

    Φ is convex there, so they approach the root from above and never pass it; they end where
    rounding stops them.
    """
    if p <= 0.0:
        return -np.inf if p == 0.0 else np.nan
    z = 0.0
    for _ in range(_STEPS):
        moved = z - (cdf_of(z) - p) / density_of(z)
        if not moved < z:
            break
        z = moved
    return z
