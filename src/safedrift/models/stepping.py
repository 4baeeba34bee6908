"""One episode of a world, a step at a time: draws and mean signals at a point of a box.

What the compiled simulation does for finite states in `kernels.simulation`.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.sums import product
from safedrift.models.continuous import Box, draw
from safedrift.models.densities import called
from safedrift.models.features import ROUNDING
from safedrift.models.linear import LinearKernelCMDP

__all__ = ["first_point", "next_point", "signals"]


def first_point(world: LinearKernelCMDP, u: float) -> FloatArray:
    """Draw the first state (n,)."""
    box = _box(world)
    support = world.arrays.initial_states
    chosen = np.searchsorted(np.cumsum(world.arrays.initial), u, side="right")
    return np.asarray(box.points[support[min(int(chosen), support.size - 1)]])


def next_point(
    world: LinearKernelCMDP, m: int, h: int, x: FloatArray, a: int, u: FloatArray
) -> FloatArray:
    """Draw x' ~ Σ_i θ_i p_i(·|x,a): base density i by u[0], then an exact draw by the next n."""
    box = _box(world)
    theta = world.theta[m, h]
    i = min(int(np.searchsorted(np.cumsum(theta), u[0], side="right")), theta.size - 1)
    while theta[i] == 0.0:  # u beyond a sum that rounded below 1
        i -= 1
    return draw(box, x, a, i, u[1 : 1 + x.size])


def signals(world: LinearKernelCMDP, m: int, h: int, x: FloatArray, a: int) -> FloatArray:
    """Mean reward and utilities (1+K,) of action a at a point x (n,)."""
    phi = called("phi", _box(world).phi, x[None], np.array([[a]]), shape=(1, world.d2))[0]
    theta = np.vstack((world.theta_r[m, h], world.theta_g[m, :, h]))
    means, square = product(theta, phi), float((phi * phi).sum())
    if means.min() < -ROUNDING or means.max() > 1 + ROUNDING or square > 1 + ROUNDING:
        _check.fail(
            "rewards, utilities and the norm of phi", "in [0, 1] everywhere, not at the nodes only",
            f"{means} and {np.sqrt(square):.6g}", f"(step {h}, state {x}, action {a})",
        )  # fmt: skip
    return np.asarray(means.clip(0.0, 1.0))


def _box(world: LinearKernelCMDP) -> Box:
    if world.box is None:
        _check.fail("world", "on a box", "one with finitely many states")
    return world.box
