"""Feature maps on a box that are arrays, not functions, compiled: ψ, φ and draws at any state.

Component i of ψ is a normal cut at the box, around a mean that reverts: with z = origin + unit x,

    z' = z + rate (towards - z) + push[a],   mean = (z' - origin) / unit,

each coordinate by itself and, where bent, pressed into the box by middle + half tanh((mean -
middle) / half). The features of rewards are bumps,

    φ_i(x, a) = height[a, i] exp(-½ Σ_k ((z_k - centre[i, k]) / width[i, k])²) / norm.

`models.maps` has the same as functions, which call the same compiled parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.elementary import exp_of, tanh_of
from safedrift.kernels.probability import truncated_normal_density, truncated_normal_draw
from safedrift.kernels.types import FloatArray, LinearArrays, jit, jit_inline, jit_part

LEAST_MASS = 1e-290  # of a normal that must be left in the box


class Means(NamedTuple):
    """Means that revert: one per component, N of them."""

    towards: FloatArray  # (N, n)
    rate: FloatArray  # (N, n)
    push: FloatArray  # (N, A, n)
    origin: FloatArray  # (N, n)
    unit: FloatArray  # (N, n)
    middle: FloatArray  # (N, n)
    half: FloatArray  # (N, n); 0 where nothing is bent


class BumpArrays(NamedTuple):
    """Features of rewards and utilities."""

    height: FloatArray  # (A, d2)
    centre: FloatArray  # (d2, n)
    width: FloatArray  # (d2, n); inf where a coordinate does not matter
    origin: FloatArray  # (n,)
    unit: FloatArray  # (n,)
    norm: FloatArray  # (1,)


class BoxArrays(NamedTuple):
    """A world on a box as compiled code sees it."""

    linear: LinearArrays
    points: FloatArray  # (S, n) the nodes, then the first states
    weights: FloatArray  # (J,) of the nodes
    nodes: FloatArray  # (J, n)
    low: FloatArray  # (n,)
    high: FloatArray  # (n,)
    means: Means
    sd: FloatArray  # (N, n)
    bumps: BumpArrays


@jit_inline
def write_mean(i, x, a, means, out):
    """out (n,) ← mean of component i after action a at x (n,)."""
    for k in range(x.size):
        origin, unit = means.origin[i, k], means.unit[i, k]
        z = origin + unit * x[k]
        z = z + means.rate[i, k] * (means.towards[i, k] - z) + means.push[i, a, k]
        mean = (z - origin) / unit
        half = means.half[i, k]
        if half > 0.0:
            middle = means.middle[i, k]
            mean = middle + half * tanh_of((mean - middle) / half)
        out[k] = mean


@jit_inline
def write_bumps(x, a, bumps, out):
    """out (d2,) ← φ(x (n,), a)."""
    for i in range(out.size):
        square = 0.0
        for k in range(x.size):
            z = bumps.origin[k] + bumps.unit[k] * x[k]
            away = (z - bumps.centre[i, k]) / bumps.width[i, k]
            square += away * away
        out[i] = bumps.height[a, i] * exp_of(-0.5 * square) / bumps.norm[0]


@jit_part
def write_features(x, arrays, centre, mass, density, psi, wide, phi):
    """Write ψ times the weights of the nodes, and φ, of all actions at x (n,).

    Parameters
    ----------
    centre, mass : (A, n), density : (A, J) scratch
    psi : (A, J, d1), wide : (J, A*d1) the same in another order, phi : (A, d2) written

    Returns
    -------
    Whether the box holds something of each normal.
    """
    A, J, d1 = psi.shape
    inside = True
    for i in range(d1):
        for a in range(A):
            write_mean(i, x, a, arrays.means, centre[a])
        truncated_normal_density(
            centre, arrays.sd[i], arrays.low, arrays.high, arrays.nodes, mass, density
        )
        for a in range(A):
            for k in range(x.size):
                inside &= mass[a, k] > LEAST_MASS
            for j in range(J):
                value = density[a, j] * arrays.weights[j]
                psi[a, j, i] = value
                wide[j, a * d1 + i] = value
    for a in range(A):
        write_bumps(x, a, arrays.bumps, phi[a])
    return inside


@jit_part
def write_signals(m, h, phi, noisy, uniforms, first, linear, rounding, signals):
    """Write reward and utilities with features phi (d2,) to signals[:, h].

    Returns whether they, and the norm of φ, are at most 1 and not negative, up to `rounding`.
    """
    square, inside = 0.0, True
    for i in range(phi.size):
        square += phi[i] * phi[i]
    for c in range(signals.shape[0]):
        mean = 0.0
        for i in range(phi.size):
            theta = linear.theta_r[m, h, i] if c == 0 else linear.theta_g[m, c - 1, h, i]
            mean += theta * phi[i]
        inside &= -rounding <= mean <= 1.0 + rounding
        mean = min(max(mean, 0.0), 1.0)
        if noisy:
            mean = 1.0 if uniforms[first + c] < mean else 0.0
        signals[c, h] = mean
    return inside and square <= 1.0 + rounding


@jit_part
def write_next(m, h, x, a, uniforms, first, arrays, centre, mass, out):
    """Draw the state after action a in x (n,): a component by its weight, then from it.

    Uses uniforms number `first`, ..., `first` + n. Returns whether the box holds something of it.
    """
    theta = arrays.linear.theta[m, h]
    i, below = np.int64(0), 0.0
    for other in range(theta.size):
        below += theta[other]
        i += uniforms[first] >= below
    i = min(i, theta.size - 1)
    while theta[i] == 0.0:  # u beyond a sum that rounded below 1
        i -= 1
    write_mean(i, x, a, arrays.means, centre[0])
    n = x.size
    u = uniforms[first + 1 : first + 1 + n]
    truncated_normal_draw(centre[0], arrays.sd[i], arrays.low, arrays.high, u, mass[0], out)
    inside = True
    for k in range(n):
        inside &= mass[0, k] > LEAST_MASS
    return inside


# ---------------------------------------------------------------- entry points for Python


@jit
def means_each(x, a, means, out):
    """out[p] ← mean of component 0 after action a[p] at x[p]; x, out (p, n), a (p,)."""
    for p in range(a.size):
        write_mean(0, x[p], a[p], means, out[p])


@jit
def bumps_each(x, a, bumps, out):
    """out[p] ← φ(x[p], a[p]); x (p, n), a (p,), out (p, d2)."""
    for p in range(a.size):
        write_bumps(x[p], a[p], bumps, out[p])
