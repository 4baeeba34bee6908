"""What a continuous world knows beyond its nodes: functions of any state in a box in R^n.

    ψ(x, a, y),  φ(x, a),  and a draw from each component of ψ

The world itself is built in `models.box`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.models.densities import Psi, Sample, called
from safedrift.models.quadrature import Quadrature

__all__ = ["Box", "Phi", "draw"]

Phi = Callable[[FloatArray, IntArray], FloatArray]
"""phi(x (p, n), a (p, 1)) -> (p, d2): one state and one action per row"""


@dataclass(frozen=True, eq=False)
class Box:
    """The functions behind the arrays of a world with continuous states.

    Attributes
    ----------
    low, high : (n,)
    rule : name of the quadrature rule
    nodes : nodes in each direction
    tolerance : largest allowed |quadrature of a kernel - 1|
    quadrature : the first J of the world's S states
    points : (S, n) the nodes, then the first states

    Examples
    --------
    >>> import safedrift as sd
    >>> room = sd.problems.make("thermostat", episodes=2, nodes=24)
    >>> room.box.nodes, room.box.actions
    (24, 3)
    """

    low: FloatArray
    high: FloatArray
    actions: int
    d1: int
    d2: int
    psi: Psi
    phi: Phi
    sample: Sample | None
    rule: str
    nodes: int
    tolerance: float
    quadrature: Quadrature
    points: FloatArray

    def features_at(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ψ (P, A, J, d1) times the weights of the nodes, and φ (P, A, d2), at points (P, n)."""
        y, weights = self.quadrature
        P, A, J = len(points), self.actions, len(weights)
        x, a = np.repeat(points, A, axis=0), np.tile(np.arange(A), P)[:, None]
        psi = called("psi", self.psi, x, a, y, shape=(P * A, J, self.d1))
        phi = called("phi", self.phi, x, a, shape=(P * A, self.d2))
        # Copies: the user may keep and change what the functions returned.
        psi, phi = np.multiply(psi, weights[:, None], order="C"), np.array(phi, order="C")
        return psi.reshape(P, A, J, self.d1), phi.reshape(P, A, self.d2)

    def contains(self, points: FloatArray) -> np.ndarray:
        """Whether each of the points (..., n) lies in the box."""
        return np.asarray(((points >= self.low) & (points <= self.high)).all(axis=-1))


def draw(box: Box, x: FloatArray, a: int, i: int, u: FloatArray) -> FloatArray:
    """Return a draw (n,) from component i after action a at x (n,), checked to lie in the box."""

    def sample(*arguments: Any) -> FloatArray:
        return np.atleast_1d(np.asarray(box.sample(*arguments)))  # type: ignore[misc]

    drawn = called("sample", sample, x, a, i, u, shape=x.shape)
    if not box.contains(drawn):
        _check.fail(
            f"a draw from component {i} after action {a}",
            f"inside the box {box.low} to {box.high}",
            drawn,
        )
    return drawn
