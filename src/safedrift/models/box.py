"""A continuous state space: a box in R^n, features as functions, integrals by quadrature.

    ∫ ψ(x, a, y) V(y) dy ≈ Σ_j ω_j ψ(x, a, y_j) V(y_j)

with nodes y_j and weights ω_j of a product rule. First states are further nodes of weight zero:
they can be evaluated like every other node and nothing ever moves to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.models.linear import LinearKernelCMDP, SuccessorFeatures

__all__ = [
    "BaseDensity",
    "Box",
    "Quadrature",
    "gauss_legendre",
    "linear_kernel_on_box",
    "mixture",
    "truncated_normal",
    "uniform_grid",
]

Psi = Callable[[FloatArray, int, FloatArray], FloatArray]
"""psi(x (p, n), a, y (q, n)) -> (p, q, d1)"""
Phi = Callable[[FloatArray, int], FloatArray]
"""phi(x (p, n), a) -> (p, d2)"""
Sample = Callable[[FloatArray, int, int, FloatArray], FloatArray]
"""sample(x (n,), a, i, u (n,)) -> (n,): a draw from base density i, by uniforms u"""


class Quadrature(NamedTuple):
    """Nodes and weights of a rule on a box."""

    nodes: FloatArray  # (J, n)
    weights: FloatArray  # (J,)


def gauss_legendre(low: ArrayLike, high: ArrayLike, nodes: int) -> Quadrature:
    """Product Gauss-Legendre rule with `nodes` nodes in each direction."""
    points, weights = np.polynomial.legendre.leggauss(_check.integer("nodes", nodes))
    return _product(low, high, (points + 1) / 2, weights / 2)


def uniform_grid(low: ArrayLike, high: ArrayLike, nodes: int) -> Quadrature:
    """Product midpoint rule: `nodes` cells in each direction, a node in the middle of each."""
    J = _check.integer("nodes", nodes)
    return _product(low, high, (np.arange(J) + 0.5) / J, np.full(J, 1 / J))


RULES = {"gauss-legendre": gauss_legendre, "uniform": uniform_grid}


def _product(low: ArrayLike, high: ArrayLike, points: FloatArray, weights: FloatArray) -> Quadrature:
    """Product rule from one on [0, 1]."""
    lower, upper = _sides(low, high)
    axes = [a + (b - a) * points for a, b in zip(lower, upper, strict=True)]
    grids = np.meshgrid(*axes, indexing="ij")
    total = np.ones(1)
    for a, b in zip(lower, upper, strict=True):
        total = np.multiply.outer(total, (b - a) * weights).ravel()
    return Quadrature(np.stack([grid.ravel() for grid in grids], axis=1), total)


def _sides(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    lower = _check.floats("low", np.atleast_1d(np.asarray(low, float)), ("n",))
    upper = _check.floats("high", np.atleast_1d(np.asarray(high, float)), (lower.size,))
    _check.everywhere("high", upper, upper > lower, "above low")
    return lower, upper


# ---------------------------------------------------------------- base densities


class BaseDensity(NamedTuple):
    """One base simulator on a box: its density, and an exact draw from it."""

    density: Callable[[FloatArray, int, FloatArray], FloatArray]  # (p, n), a, (q, n) -> (p, q)
    sample: Callable[[FloatArray, int, FloatArray], FloatArray]  # (n,), a, (n,) -> (n,)


def truncated_normal(
    mean: Callable[[FloatArray, int], FloatArray],
    spread: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
) -> BaseDensity:
    """Normal around mean(x (p, n), a) -> (p, n), independent coordinates, cut off at the box."""
    lower, upper = _sides(low, high)
    sd = np.broadcast_to(np.asarray(spread, float), lower.shape)
    _check.everywhere("spread", sd, sd > 0, "> 0")

    def tails(x: FloatArray, a: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        centre = np.asarray(mean(x, a), dtype=np.float64)
        if centre.shape != x.shape:
            _check.fail("mean(x, a)", f"of shape {x.shape}", centre.shape)
        return centre, ndtr((lower - centre) / sd), ndtr((upper - centre) / sd)

    def density(x: FloatArray, a: int, y: FloatArray) -> FloatArray:
        centre, left, right = tails(x, a)
        z = (y[None] - centre[:, None]) / sd
        return np.asarray(
            (np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * sd * (right - left)[:, None])).prod(-1)
        )

    def sample(x: FloatArray, a: int, u: FloatArray) -> FloatArray:
        centre, left, right = (part[0] for part in tails(x[None], a))
        return np.clip(centre + sd * ndtri(left + u * (right - left)), lower, upper)

    return BaseDensity(density, sample)


def mixture(bases: Sequence[BaseDensity]) -> tuple[Psi, Sample]:
    """ψ whose components are the base densities, and a draw from each of them."""
    if not bases:
        _check.fail("bases", "at least one BaseDensity", "none")

    def psi(x: FloatArray, a: int, y: FloatArray) -> FloatArray:
        return np.stack([base.density(x, a, y) for base in bases], axis=-1)

    def sample(x: FloatArray, a: int, i: int, u: FloatArray) -> FloatArray:
        return bases[i].sample(x, a, u)

    return psi, sample


# ---------------------------------------------------------------- the box


@dataclass(frozen=True, eq=False)
class Box:
    """What a continuous world adds to its nodes: the functions behind the arrays.

    Attributes
    ----------
    low, high : (n,)
    rule : name of the quadrature rule
    nodes : nodes in each direction
    quadrature : the first J of the world's S states
    points : (S, n) the nodes, then the first states
    """

    low: FloatArray
    high: FloatArray
    actions: int
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
        psi = np.stack([self.psi(points, a, y) for a in range(self.actions)], axis=1)
        phi = np.stack([self.phi(points, a) for a in range(self.actions)], axis=1)
        return psi * weights[:, None], phi

    def contains(self, points: FloatArray) -> np.ndarray:
        """Whether each of the points (..., n) lies in the box."""
        return ((points >= self.low) & (points <= self.high)).all(axis=-1)


def linear_kernel_on_box(
    low: ArrayLike,
    high: ArrayLike,
    actions: int,
    psi: Psi,
    phi: Phi,
    theta: ArrayLike,
    theta_r: ArrayLike,
    theta_g: ArrayLike,
    thresholds: ArrayLike,
    start: ArrayLike,
    *,
    sample: Sample | None = None,
    start_probabilities: ArrayLike | None = None,
    rule: str = "gauss-legendre",
    nodes: int = 32,
    tolerance: float = 1e-3,
) -> LinearKernelCMDP:
    """Return a linear-kernel CMDP whose states fill the box [low, high] in R^n.

    Parameters
    ----------
    psi : function
        psi(x (p, n), a, y (q, n)) -> (p, q, d1), densities in y.
    phi : function
        phi(x (p, n), a) -> (p, d2).
    theta, theta_r, theta_g, thresholds
        As in `LinearKernelCMDP`.
    start : array (n,) or (I, n)
        The first state, or several with `start_probabilities` (I,).
    sample : function, needed to simulate
        sample(x (n,), a, i, u (n,)) -> (n,), a draw from component i of psi by uniforms u. The
        coefficients theta must then be convex weights: the components are base densities.
    rule, nodes
        "gauss-legendre" or "uniform", and how many nodes in each direction.
    tolerance
        By how much the quadrature of a kernel may miss 1.
    """
    lower, upper = _sides(low, high)
    A = _check.integer("actions", actions)
    build = RULES[_check.choice("rule", rule, tuple(RULES))]
    quadrature = build(lower, upper, _check.integer("nodes", nodes))
    tolerance = _check.positive("tolerance", tolerance, upper=0.1)
    starts = _check.floats("start", np.atleast_2d(np.asarray(start, float)), ("I", lower.size))
    inside = (starts >= lower) & (starts <= upper)
    _check.everywhere("start", starts, inside, f"inside the box {lower} to {upper}")
    if start_probabilities is None:
        start_probabilities = np.full(len(starts), 1 / len(starts))
    shares = _check.floats("start_probabilities", start_probabilities, (len(starts),))
    points = np.concatenate((quadrature.nodes, starts))
    coefficients = _check.floats("theta", theta, ("M", "H", "d1"))
    M, H, d1 = coefficients.shape
    d2 = _check.floats("theta_r", theta_r, (M, H, "d2")).shape[-1]
    J, S = len(quadrature.weights), len(points)
    for a in range(A):
        _checked("psi", a, psi(points, a, quadrature.nodes), (S, J, d1), positive=sample is not None)
        _checked("phi", a, phi(points, a), (S, d2))
    if sample is not None:
        _check.distribution("theta", coefficients)
    box = Box(
        lower, upper, A, psi, phi, sample, rule, nodes, tolerance, quadrature, points
    )
    psi_nodes, phi_nodes = box.features_at(points)
    lists = SuccessorFeatures(
        np.arange(S * A + 1, dtype=np.int64) * J,
        np.tile(np.arange(J), S * A),
        psi_nodes.reshape(-1, d1),
    )
    initial = np.concatenate((np.zeros(J), shares))
    return LinearKernelCMDP(
        lists, phi_nodes, theta, theta_r, theta_g, thresholds, initial, box=box
    )


def refined(world: LinearKernelCMDP, factor: int = 2) -> LinearKernelCMDP:
    """Return the same world on a box with `factor` times the nodes in each direction."""
    box = world.box
    if box is None:
        _check.fail("world", "on a box", "one with finitely many states")
    J = box.quadrature.weights.size
    other = linear_kernel_on_box(
        box.low, box.high, box.actions, box.psi, box.phi, world.theta, world.theta_r,
        world.theta_g, world.thresholds, box.points[J:], sample=box.sample,
        start_probabilities=world.initial[J:], rule=box.rule,
        nodes=box.nodes * _check.integer("factor", factor), tolerance=box.tolerance,
    )  # fmt: skip
    other.name, other.recipe = world.name, world.recipe
    return other


def _checked(
    name: str, a: int, values: object, shape: tuple[int, ...], positive: bool = False
) -> None:
    """Check what a feature function returned for action a at the nodes."""
    array = _check.floats(f"what {name} returns for action {a}", values, shape)
    if positive:
        _check.everywhere(f"the densities psi of action {a}", array, array >= 0, ">= 0")
