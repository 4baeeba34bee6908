"""Quadrature on a box in R^n: products of a rule on [0, 1]."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.probability import gauss_legendre_rule
from safedrift.models.features import rank

__all__ = ["Quadrature", "gauss_legendre", "uniform_grid"]

_MOST_NODES = 2048  # in one direction
_MOST_POINTS = 2**20  # in all of them


class Quadrature(NamedTuple):
    """Nodes and weights of a rule on a box.

    Examples
    --------
    >>> import safedrift as sd
    >>> rule = sd.box.uniform_grid(0.0, 2.0, nodes=4)
    >>> rule.nodes.ravel().tolist(), rule.weights.tolist()
    ([0.25, 0.75, 1.25, 1.75], [0.5, 0.5, 0.5, 0.5])
    """

    nodes: FloatArray  # (J, n)
    weights: FloatArray  # (J,)


def gauss_legendre(low: ArrayLike, high: ArrayLike, nodes: int) -> Quadrature:
    """Product Gauss-Legendre rule with `nodes` nodes in each direction.

    Examples
    --------
    >>> import safedrift as sd
    >>> rule = sd.box.gauss_legendre(0.0, 1.0, nodes=3)
    >>> round(float(rule.weights @ rule.nodes[:, 0] ** 5), 12)  # exact up to degree 5: 1/6
    0.166666666667
    """
    nodes = _check.integer("nodes", nodes, upper=_MOST_NODES)
    points, weights = np.empty(nodes), np.empty(nodes)
    gauss_legendre_rule(points, weights)
    return _product(low, high, (points + 1) / 2, weights / 2)


def uniform_grid(low: ArrayLike, high: ArrayLike, nodes: int) -> Quadrature:
    """Product midpoint rule: `nodes` cells in each direction, a node in the middle of each.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.box.uniform_grid(0.0, 1.0, nodes=2).nodes.ravel().tolist()
    [0.25, 0.75]
    """
    nodes = _check.integer("nodes", nodes, upper=_MOST_NODES)
    return _product(low, high, (np.arange(nodes) + 0.5) / nodes, np.full(nodes, 1 / nodes))


def _product(
    low: ArrayLike, high: ArrayLike, points: FloatArray, weights: FloatArray
) -> Quadrature:
    """Product rule from one on [0, 1]."""
    lower, upper = sides(low, high)
    n, count = lower.size, points.size
    if count**n > _MOST_POINTS:
        _check.fail("nodes", f"so few that nodes**{n} is at most {_MOST_POINTS}", count)
    grid, total = np.empty((1, 0)), np.ones(1)
    for a, b in zip(lower, upper, strict=True):
        axis = np.tile(a + (b - a) * points, len(grid))
        grid = np.hstack((np.repeat(grid, count, axis=0), axis[:, None]))
        total = np.multiply.outer(total, (b - a) * weights).ravel()
    return Quadrature(grid, total)


def vector(name: str, value: ArrayLike, n: int | str) -> FloatArray:
    """Check a vector (n,), or a number where n is 1 or may be."""
    if rank(value) == 0 and n in (1, "n"):
        return _check.floats(name, value, ()).reshape(1)
    return _check.floats(name, value, (n,))


def sides(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check the corners of a box (n,)."""
    lower = vector("low", low, "n")
    upper = vector("high", high, lower.size)
    _check.everywhere("high", upper, upper > lower, "above low")
    with np.errstate(over="ignore"):
        _check.everywhere("high - low", upper - lower, np.isfinite(upper - lower), "finite")
    return lower, upper
