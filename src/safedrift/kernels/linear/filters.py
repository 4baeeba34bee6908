"""Coefficients that move like a random walk: Kalman filters of several drift rates.

A filter keeps a mean and a covariance of coefficients that it believes to take a step of
covariance κ q I between two episodes; q is a unit that makes κ free of the scale of the features.
Before each episode

    Σ ← Σ + κ q I,    then rows and columns are shrunk until no Σ_ii exceeds that of the prior.

Signals. y = ⟨φ, θ⟩ + noise of an unknown variance v. Σ is in units of v, so that v is not needed
here and 1/(φᵀΣφ) is an effective number of observations of φ. An observation makes

    θ ← θ + Σφ (y - ⟨φ, θ⟩)/(1 + φᵀΣφ),    Σ ← Σ - Σφ (Σφ)ᵀ/(1 + φᵀΣφ).

Transitions. The rows of P sum to 1 whatever happens, so only z of θ = θ_0 + B z is unknown, where
the columns of B span the directions that change no sum (`learners.linear_coordinates`): with N
mixed models, N - 1 numbers. With p_0 = ⟨ψ, θ_0⟩ and x = Bᵀψ, a successor has probability
p_0 + ⟨x, z⟩.
For any fixed weights w_y > 0 the successor y* has

    E[x(y*)/w(y*)] = Σ_y x_y p_y/w_y = Σ_y x_y p_0(y)/w_y + I z,    I = Σ_y x_y x_yᵀ/w_y,

so it is an unbiased observation of z. With w = p it would be the best one, and I Fisher's
information; here w is p_0, which costs little where models are mixed:

    Σ ← (Σ⁻¹ + I)⁻¹,    z ← z + Σ (x(y*)/w(y*) - Σ_y x_y p_0(y)/w_y - I z).

Nothing here knows that θ is a mixture. Estimated rows may have negative entries, which are set to 0
and the others divided by their sum, for predictions and for planning alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.types import FloatArray, jit, jit_inline, jit_part

MIXED = 1e-3  # share of the uniform distribution in every predicted row


class Basis(NamedTuple):
    """The features in the filters' coordinates. Rows are those of `Features`."""

    offsets: NDArray[np.int64]  # (rows + 1,)
    states: NDArray[np.uint32]  # (entries,) successors
    base: FloatArray  # (entries,) p_0
    x: FloatArray  # (entries, f)
    weight: FloatArray  # (entries,) 1/w
    phi: FloatArray  # (1 or H, A*S, d2) pair s*A + a; (1, 0, d2) where one_hot
    one_hot: bool  # φ is the unit vector of the pair


class Filters(NamedTuple):
    """Filters of one quantity: one per drift rate and step, and at place H one for all steps.

    The last axis of `cov` is 1 where Σ is diagonal and only its diagonal is kept.
    """

    mean: FloatArray  # (k, H+1, d)
    cov: FloatArray  # (k, H+1, d, d or 1)


# ---------------------------------------------------------------- time passes


@jit_inline
def diagonal(cov, i):
    """Column of the diagonal entry of row i."""
    return i if cov.shape[1] > 1 else 0


@jit_part
def cap(cov, most):
    """Shrink rows and columns of Σ until no diagonal entry exceeds `most`."""
    for i in range(cov.shape[0]):
        own = cov[i, diagonal(cov, i)]
        if own > most:
            factor = np.sqrt(most / own)
            for j in range(cov.shape[1]):
                cov[i, j] *= factor
            if cov.shape[1] > 1:
                for j in range(cov.shape[0]):
                    cov[j, i] *= factor
            cov[i, diagonal(cov, i)] = most


@jit_part
def age(filters, kappa, unit, most):
    """Let an episode pass: Σ ← Σ + κ q I, capped."""
    for k in range(kappa.size):
        if kappa[k] > 0.0:
            for slot in range(filters.cov.shape[1]):
                cov = filters.cov[k, slot]
                for i in range(cov.shape[0]):
                    cov[i, diagonal(cov, i)] += kappa[k] * unit
                cap(cov, most)


# ---------------------------------------------------------------- signals


@jit_inline
def expected(mean, x, hot):
    """⟨φ, θ⟩; φ is x, or the unit vector number `hot` where that is not negative."""
    if hot >= 0:
        return mean[hot]
    total = 0.0
    for i in range(x.size):
        total += mean[i] * x[i]
    return total


@jit_inline
def spread(cov, x, hot, moved):
    """Return φᵀΣφ; `moved` ← Σφ unless `hot` is not negative."""
    if hot >= 0:
        return cov[hot, 0]
    total = 0.0
    for i in range(x.size):
        moved[i] = 0.0
        for j in range(x.size):
            moved[i] += cov[i, j] * x[j]
        total += x[i] * moved[i]
    return max(total, 0.0)


@jit_inline
def absorb(mean, cov, hot, moved, u, error):
    """Learn from an error y - ⟨φ, θ⟩, given u = φᵀΣφ and `moved` = Σφ."""
    gain = 1.0 / (1.0 + u)
    if hot >= 0:
        mean[hot] += u * gain * error
        cov[hot, 0] = u * gain
        return
    for i in range(moved.size):
        mean[i] += moved[i] * (gain * error)
        for j in range(moved.size):
            cov[i, j] -= gain * (moved[i] * moved[j])


# ---------------------------------------------------------------- transitions


@jit_inline
def raw(basis, e, z):
    """p_0 + ⟨x, z⟩ of entry e, which may be negative."""
    p = basis.base[e]
    for i in range(z.size):
        p += basis.x[e, i] * z[i]
    return p


@jit_inline
def entry_of(basis, row, state):
    """Entry of a successor in a row, or -1."""
    for e in range(basis.offsets[row], basis.offsets[row + 1]):
        if basis.states[e] == state:
            return e
    return np.int64(-1)


@jit_part
def chance(basis, row, hit, z):
    """Probability that the filter with mean z gives to entry `hit` of a row."""
    low, high = basis.offsets[row], basis.offsets[row + 1]
    total, found = 0.0, 0.0
    for e in range(low, high):
        p = raw(basis, e, z)
        if p > 0.0:
            total += p
            if e == hit:
                found = p
    if total > 0.0:
        found /= total
    return (1.0 - MIXED) * found + MIXED / (high - low)


@jit_part
def observe_row(basis, row, hit, info, score):
    """Add what entry `hit` of a row says of z: `info` += I, `score` += x/w - Σ x p_0/w."""
    f = score.size
    for e in range(basis.offsets[row], basis.offsets[row + 1]):
        seen = (1.0 if e == hit else 0.0) - basis.base[e]
        for i in range(f):
            y = basis.weight[e] * basis.x[e, i]
            score[i] += y * seen
            for j in range(f):
                info[i, j] += y * basis.x[e, j]


@jit_part
def invert(A):
    """A ← A⁻¹ for a symmetric positive definite A, by elimination; exactly symmetric after."""
    n = A.shape[0]
    for k in range(n):
        pivot = 1.0 / A[k, k]
        A[k, k] = 1.0
        for j in range(n):
            A[k, j] *= pivot
        for i in range(n):
            if i != k:
                factor = A[i, k]
                A[i, k] = 0.0
                for j in range(n):
                    A[i, j] -= factor * A[k, j]
    for i in range(n):
        for j in range(i):
            middle = 0.5 * (A[i, j] + A[j, i])
            A[i, j] = middle
            A[j, i] = middle


@jit_part
def absorb_rows(mean, cov, info, score, rest):
    """Learn from `info` and `score` of one or several rows; `rest` (f,) is scratch."""
    f = mean.size
    for i in range(f):
        rest[i] = score[i]
        for j in range(f):
            rest[i] -= info[i, j] * mean[j]
    invert(cov)
    for i in range(f):
        for j in range(f):
            cov[i, j] += info[i, j]
    invert(cov)
    for i in range(f):
        for j in range(f):
            mean[i] += cov[i, j] * rest[j]


# ---------------------------------------------------------------- corrections


@jit_part
def follow(filters, k, j, doubt, most):
    """Let filter k go on from filter j, and doubt it by the squared distance between the two.

    Σ_k ← Σ_j + doubt (|θ_j - θ_k|²/d) I, capped.
    """
    _, slots, d, width = filters.cov.shape
    for slot in range(slots):
        jump = 0.0
        for i in range(d):
            gap = filters.mean[j, slot, i] - filters.mean[k, slot, i]
            jump += gap * gap
            filters.mean[k, slot, i] = filters.mean[j, slot, i]
            for n in range(width):
                filters.cov[k, slot, i, n] = filters.cov[j, slot, i, n]
        cov = filters.cov[k, slot]
        for i in range(d):
            cov[i, diagonal(cov, i)] += doubt * jump / d
        cap(cov, most)


# ---------------------------------------------------------------- entry points for tests


@jit
def inverse_of(A):
    """Entry point of `invert`."""
    invert(A)
