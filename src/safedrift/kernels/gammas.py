"""Gamma variates, compiled: the same bits on every processor, unlike NumPy's.

Marsaglia and Tsang 2000: with d = shape - 1/3, c = 1/√(9d) and a normal x, accept d (1 + cx)³;
for a shape below 1 the variate of shape + 1 is multiplied by U^(1/shape). Normals come in pairs
from points in the unit disc (Marsaglia's polar method), uniforms from a counter (SplitMix64).
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.elementary import exp_of, log_of
from safedrift.kernels.types import jit, jit_inline


@jit_inline
def uniform(state):
    """A number in (0, 1), and the state moved on."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(12)) + 0.5) * 2.0**-52


@jit
def standard_gammas(shapes, state, out):
    """out[i] ← a draw from Gamma(shapes[i], 1); `state` (1,) of uint64 is the generator's."""
    spare, x = np.nan, 0.0
    for i in range(shapes.size):
        shape = shapes[i]
        d = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
        c = 1.0 / np.sqrt(9.0 * d)
        while True:
            if spare == spare:  # not nan: the second of a pair
                x, spare = spare, np.nan
            else:
                one = two = square = 1.0
                while square >= 1.0:
                    one, two = 2.0 * uniform(state) - 1.0, 2.0 * uniform(state) - 1.0
                    square = one * one + two * two
                scale = np.sqrt(-2.0 * log_of(square) / square)
                x, spare = one * scale, two * scale
            root = 1.0 + c * x
            if root > 0.0:
                v = root * root * root
                u = uniform(state)
                if u < 1.0 - 0.0331 * x * x * x * x:  # the quick test: nearly always enough
                    break
                if log_of(u) < 0.5 * x * x + d * (1.0 - v + log_of(v)):
                    break
        out[i] = d * v
        if shape < 1.0:
            out[i] *= exp_of(log_of(uniform(state)) / shape)
