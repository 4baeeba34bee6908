"""Random numbers of published worlds, in plain arithmetic: the same bits on every processor.

A Dirichlet vector is a vector of independent gamma variables over its sum. For a shape α < 1,
Ahrens and Dieter (1974) draw a gamma variable by rejection: with B = 1 + α/e and u, v uniform,

    B u ≤ 1:   x = (B u)^(1/α),              accepted if v ≤ e^(-x)
    else:      x = -ln((B - B u)/α),         accepted if v ≤ x^(α-1)
"""

from __future__ import annotations

import numpy as np

from safedrift._check import FloatArray
from safedrift.kernels.elementary import exp, log
from safedrift.kernels.sums import product

__all__ = ["bernoulli", "dirichlet", "gamma", "generator"]


def generator(seed: int) -> np.random.Generator:
    """Return the generator of a world's random parts."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])


def bernoulli(rng: np.random.Generator, p: float, shape: tuple[int, ...]) -> FloatArray:
    """Return independent zeros and ones; ones have probability p."""
    return (rng.random(shape) < p).astype(np.float64)


def dirichlet(rng: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> FloatArray:
    """Return distributions over the last axis of `shape`, symmetric Dirichlet(α), 0 < α < 1."""
    weights = gamma(rng, alpha, int(np.prod(shape))).reshape(shape)
    return weights / product(weights, np.ones(shape[-1]))[..., None]


def gamma(rng: np.random.Generator, alpha: float, size: int) -> FloatArray:
    """Return gamma variables (size,) of shape 0 < α < 1 and scale 1; rejected ones are redrawn."""
    out = np.empty(size)
    missing = np.arange(size)
    bound = 1 + alpha * float(exp(-1.0))
    while missing.size:
        u, v = 1 - rng.random((2, missing.size))  # in (0, 1]
        place = bound * u
        low = place <= 1
        small = exp(log(np.minimum(place, 1)) / alpha)
        large = -log(np.where(low, 1, np.maximum(bound - place, 1e-300) / alpha))
        x = np.where(low, small, large)
        level = exp(np.where(low, -x, (alpha - 1) * log(np.where(low, 1, x))))
        accepted = (v <= level) & (x > 0)
        out[missing[accepted]] = x[accepted]
        missing = missing[~accepted]
    return out
