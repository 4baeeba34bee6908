"""What is known of coefficients before the first episode, and coordinates for the rest.

Transitions. Every row of P sums to 1: ⟨s(x, a), θ⟩ = 1 for all pairs, s(x, a) = Σ_y ψ(x, a, y).
Let θ_0 be the shortest solution of these equations, and B an orthonormal basis of the directions
that are orthogonal to all s. Then θ = θ_0 + B z, and only z is unknown. Where ψ holds N models to
be mixed, θ_0 gives each the share 1/N, and z has N - 1 entries.

    z ~ N(0, q I),    q = |θ_0|²/d1: a coefficient differs from 0 as much as those of θ_0 do

Signals. θ_r and θ_g are unknown in all directions. Their mean before the first episode is the one
that comes closest to a signal of 1/2 everywhere; a unit of variance is one that gives the signal of
an average pair the variance 1.

Sums are taken in a fixed order (`kernels.sums`), so that bits do not depend on the machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.linear.filters import MIXED, Basis, inverse_of
from safedrift.kernels.sums import product
from safedrift.kernels.types import Features

__all__ = ["Coordinates", "coordinates"]

_TOLERANCE = 1e-9  # relative length below which a vector counts as dependent on others
_LOOSE = 1e-6  # distance from 1 that a sum of probabilities may have
_RIDGE = 1e-6  # of the fit of 1/2, relative to an average feature


class Coordinates(NamedTuple):
    """Features as the filters use them, and their prior."""

    basis: Basis
    move_unit: float  # q of transitions
    signal_mean: FloatArray  # (d2,) prior mean of θ_r and θ_g
    signal_unit: float


def coordinates(features: Features, H: int, S: int, A: int) -> Coordinates:
    """Return the coordinates of what is unknown, in a world of these sizes.

    Examples
    --------
    Three models to be mixed leave two unknowns:

    >>> import safedrift as sd
    >>> from safedrift.learners.linear_coordinates import coordinates
    >>> world = sd.problems.make("random", episodes=9, scenarios=3).as_linear_kernel()
    >>> coordinates(world.features, world.H, world.S, world.A).basis.x.shape[1]
    2
    """
    rows, steps, pairs = features.offsets.size - 1, features.phi.shape[0], features.phi.shape[2]
    if rows not in (S * A, H * S * A) or steps not in (1, H) or pairs != S * A:
        wanted = f"those of a world with H = {H}, S = {S}, A = {A}"
        _check.fail("features", wanted, f"{rows} rows of psi, phi of {steps} steps, {pairs} pairs")
    base, x, unit = _transitions(features)
    phi, mean, signal_unit = _signals(features, S, A)
    lengths = np.diff(features.offsets)
    weight = 1 / np.maximum(base, MIXED / np.repeat(lengths, lengths))
    basis = Basis(features.offsets, features.states, base, x, weight, phi, features.one_hot)
    return Coordinates(basis, unit, mean, signal_unit)


def _transitions(features: Features) -> tuple[FloatArray, FloatArray, float]:
    """p_0 (entries,), x (entries, f) and q."""
    psi, d1 = features.psi, features.psi.shape[1]
    sums = np.add.reduceat(psi, features.offsets[:-1], axis=0)
    span, known = _span(np.column_stack((sums, np.ones(len(sums)))), d1)
    theta = product(known, span) if len(span) else np.zeros(d1)
    worst = float(np.abs(product(sums, theta) - 1).max())
    if not worst <= _LOOSE:
        _check.fail("features.psi", "such that rows of P can sum to 1", f"a row off by {worst:.3g}")
    free, _ = _span(np.eye(d1) - product(span.T, span), d1)
    x = product(psi, free.T) if len(free) else np.empty((len(psi), 0))
    return product(psi, theta), x, float(product(theta, theta)) / d1


def _span(rows: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """Orthonormal basis (n, d) of rows[:, :d], by elimination of the longest row.

    Columns of `rows` after the first d are carried along; the first of them comes back as (n,).
    """
    rest, ones = rows.astype(float), np.ones(d)
    basis = np.empty((0, rows.shape[1]))
    longest = 0.0
    while len(basis) < d:
        lengths = np.sqrt(product(rest[:, :d] ** 2, ones))
        i = int(lengths.argmax())
        longest = max(longest, float(lengths[i]))
        if not lengths[i] > _TOLERANCE * longest:
            break
        row = rest[i]
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            row = row - product(product(basis[:, :d], row[:d]), basis) if len(basis) else row
            row = row / np.sqrt(product(row[:d], row[:d]))
        basis = np.vstack((basis, row))
        rest = rest - product(rest[:, :d], row[:d])[:, None] * row
    carried = basis[:, d] if rows.shape[1] > d else np.zeros(len(basis))
    return np.ascontiguousarray(basis[:, :d]), carried


def _signals(features: Features, S: int, A: int) -> tuple[FloatArray, FloatArray, float]:
    """φ by pair s*A + a, prior mean, and unit of variance."""
    if features.one_hot:
        return np.empty((1, 0, S * A)), np.full(S * A, 0.5), 1.0
    steps, d2, _ = features.phi.shape
    phi = features.phi.reshape(steps, d2, A, S).transpose(0, 3, 2, 1).reshape(steps, S * A, d2)
    phi = np.ascontiguousarray(phi)
    rows = phi.reshape(-1, d2)
    average = float(product(rows.ravel(), rows.ravel())) / len(rows)
    gram = product(rows.T, rows) + _RIDGE * max(average, 1e-12) * len(rows) * np.eye(d2)
    inverse_of(gram)
    mean = product(gram, product(np.full(len(rows), 0.5), rows))
    return phi, mean, 1.0 / max(average, 1e-12)
