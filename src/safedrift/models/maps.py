"""Feature maps on a box that are described by numbers: worlds built of them are played compiled.

`linear_kernel_on_box` takes any functions. Episodes in a world run in compiled code if its ψ is a
`mixture` of `truncated_normal` densities around `MeanReverting` means and its φ are `Bumps`; the
numbers are the same either way.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.linear.box_maps import (
    BoxArrays,
    BumpArrays,
    Means,
    bumps_each,
    means_each,
)
from safedrift.kernels.types import LinearArrays, prepared
from safedrift.models.continuous import Box
from safedrift.models.densities import components
from safedrift.models.features import rank
from safedrift.models.quadrature import vector

__all__ = ["Bumps", "MeanReverting", "box_arrays"]


class MeanReverting:
    """The mean of the next state: towards a point, pushed by the action.

    With z = origin + unit*x, every coordinate by itself,

        z' = z + rate (towards - z) + push[a],   mean = (z' - origin) / unit.

    Parameters
    ----------
    towards, rate : number or (n,)
    push : (A,) or (A, n)
    origin, unit : number or (n,)
        The unit in which the other numbers are given: z at x = 0, and its change up to x = 1.
    bend : (low, high), each a number or (n,)
        Press the mean into this box: middle + half tanh((mean - middle) / half).

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> mean = sd.box.MeanReverting(towards=0.5, rate=0.1, push=[-0.1, 0.0, 0.1])
    >>> x, a = np.array([[0.5], [1.0]]), np.array([[0], [2]])
    >>> mean(x, a).ravel().round(3).tolist()
    [0.4, 1.05]
    """

    def __init__(
        self,
        towards: ArrayLike,
        rate: ArrayLike,
        push: ArrayLike,
        *,
        origin: ArrayLike = 0.0,
        unit: ArrayLike = 1.0,
        bend: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        pushes = _columns("push", push, "A")
        n = pushes.shape[1]
        middle, half = np.zeros(n), np.zeros(n)
        if bend is not None:
            low, high = (_each("bend", side, n) for side in bend)
            middle, half = (low + high) / 2, (high - low) / 2
            _check.everywhere("bend", half, half > 0, "(low, high) with low < high")
        units = _units(unit, n)
        numbers = (_each("towards", towards, n), _each("rate", rate, n), pushes)
        rows = (*numbers, _each("origin", origin, n), units, middle, half)
        self.arrays = Means(*(prepared(row[None]) for row in rows))

    def __call__(self, x: FloatArray, a: IntArray) -> FloatArray:
        """Means (p, n) at states x (p, n) after actions a (p, 1)."""
        points = prepared(x)
        out = np.empty(points.shape)
        actions = _actions(a, len(points), self.arrays.push.shape[1])
        means_each(points, actions, self.arrays, out)
        return out


class Bumps:
    """Features of rewards and utilities: a bump each, of a height that the action decides.

    With z = origin + unit*x,

        φ_i(x, a) = height[a, i] exp(-½ Σ_k ((z_k - centre[i, k]) / width[i, k])²) / norm.

    Parameters
    ----------
    height : (A, d2)
    centre, width : (d2,) or (d2, n)
        Where the width is infinite, the coordinate does not matter.
    norm
        Divides all features, whose norm may not exceed 1.
    origin, unit : number or (n,)
        As in `MeanReverting`.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> phi = sd.box.Bumps(height=[[1.0, 0.5]], centre=[0.0, 0.3], width=[np.inf, 0.1], norm=2.0)
    >>> phi(np.array([[0.3], [0.5]]), np.array([[0], [0]])).round(3).tolist()
    [[0.5, 0.25], [0.5, 0.034]]
    """

    def __init__(
        self,
        height: ArrayLike,
        centre: ArrayLike,
        width: ArrayLike,
        *,
        norm: float = 1.0,
        origin: ArrayLike = 0.0,
        unit: ArrayLike = 1.0,
    ) -> None:
        heights = _check.floats("height", height, ("A", "d2"))
        centres = _columns("centre", centre, "d2")
        shape = (heights.shape[1], centres.shape[1])
        if centres.shape != shape:
            _check.fail("centre", f"one per feature, {shape[0]}", len(centres))
        widths = np.asarray(width, np.float64)
        widths = widths[:, None] if widths.ndim == 1 else widths
        if widths.shape != shape:
            _check.fail("width", f"of shape {shape}", widths.shape)
        _check.everywhere("width", widths, widths > 0, "> 0")
        n = shape[1]
        scale = np.array([_check.positive("norm", norm)])
        rows = (heights, centres, widths, _each("origin", origin, n), _units(unit, n), scale)
        self.arrays = BumpArrays(*(prepared(row) for row in rows))

    def __call__(self, x: FloatArray, a: IntArray) -> FloatArray:
        """Features (p, d2) at states x (p, n) and actions a (p, 1)."""
        points = prepared(x)
        A, d2 = self.arrays.height.shape
        out = np.empty((len(points), d2))
        bumps_each(points, _actions(a, len(points), A), self.arrays, out)
        return out


def box_arrays(box: Box, linear: LinearArrays) -> BoxArrays | None:
    """Return what compiled code needs to play on the box, None where a map is a plain function."""
    parts = components(box.psi, box.sample)
    if not parts or not isinstance(box.phi, Bumps):
        return None
    n, A = box.low.size, box.actions
    bumps = box.phi.arrays
    if bumps.height.shape[0] != A or bumps.centre.shape[1] != n:
        return None
    means = [part.mean.arrays for part in parts if isinstance(part.mean, MeanReverting)]
    fits = all(
        mean.push.shape[1:] == (A, n)
        and np.array_equal(part.low, box.low)
        and np.array_equal(part.high, box.high)
        for mean, part in zip(means, parts, strict=False)
    )
    if len(means) < len(parts) or not fits:
        return None
    joined = cast(Any, zip(*means, strict=True))
    return BoxArrays(
        linear,
        prepared(box.points),
        prepared(box.quadrature.weights),
        prepared(box.quadrature.nodes),
        prepared(box.low),
        prepared(box.high),
        Means(*(np.concatenate(rows) for rows in joined)),
        np.stack([part.sd for part in parts]),
        bumps,
    )


def _columns(name: str, given: ArrayLike, first: str) -> FloatArray:
    """Check an array (first, n); one of a single axis is about one coordinate."""
    values = np.asarray(given)
    return _check.floats(name, values[:, None] if values.ndim == 1 else given, (first, "n"))


def _each(name: str, given: ArrayLike, n: int) -> FloatArray:
    """Check one number for each coordinate (n,), or one for all."""
    return np.broadcast_to(vector(name, given, 1 if rank(given) == 0 else n), n)


def _units(unit: ArrayLike, n: int) -> FloatArray:
    units = _each("unit", unit, n)
    _check.everywhere("unit", units, units != 0, "not zero")
    return units


def _actions(a: ArrayLike, p: int, A: int) -> IntArray:
    """Actions (p,) from (p, 1), or from one for all, each below A."""
    actions = np.ascontiguousarray(np.broadcast_to(a, (p, 1))[:, 0], np.int64)
    _check.everywhere("a", actions, (actions >= 0) & (actions < A), f"in 0 to {A - 1}")
    return actions
