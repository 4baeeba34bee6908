"""A continuous state space: a box in R^n, features as functions, integrals by quadrature.

    ∫ ψ(x, a, y) V(y) dy ≈ Σ_j ω_j ψ(x, a, y_j) V(y_j)

with nodes y_j and weights ω_j of a product rule. First states are further nodes of weight zero:
they are evaluated like the other nodes but never reached.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.models.continuous import Box, Phi, draw
from safedrift.models.densities import (
    BaseDensity,
    Psi,
    Sample,
    check_function,
    mixture,
    truncated_normal,
)
from safedrift.models.features import rank
from safedrift.models.linear import LinearKernelCMDP, SuccessorFeatures
from safedrift.models.maps import Bumps, MeanReverting
from safedrift.models.quadrature import Quadrature, gauss_legendre, sides, uniform_grid, vector

__all__ = [
    "BaseDensity",
    "Box",
    "Bumps",
    "MeanReverting",
    "Quadrature",
    "gauss_legendre",
    "linear_kernel_on_box",
    "mixture",
    "refined",
    "truncated_normal",
    "uniform_grid",
]

RULES = {"gauss-legendre": gauss_legendre, "uniform": uniform_grid}

_MOST_NUMBERS = 2**26  # of psi, or of P at all steps, at the nodes: half a GiB


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
    """Return a linear-kernel CMDP whose states are the points of a box [low, high] in R^n.

    Parameters
    ----------
    low, high : array (n,), or numbers
    psi : function
        psi(x (p, n), a (p, 1), y (q, n)) -> (p, q, d1), densities in y. Row i belongs to state
        x[i] and action a[i, 0].
    phi : function
        phi(x (p, n), a (p, 1)) -> (p, d2).
    theta, theta_r, theta_g, thresholds
        As in `LinearKernelCMDP`.
    start : array (n,) or (I, n)
        The first state, or several with `start_probabilities` (I,), uniform by default.
    sample : function, needed to simulate
        sample(x (n,), a, i, u (n,)) -> (n,), a draw from component i of psi by uniforms u. The
        components must then be densities, and the coefficients theta convex weights of them.
    rule, nodes
        "gauss-legendre" or "uniform", and the number of nodes in each direction.
    tolerance
        Largest allowed |quadrature of a kernel - 1|.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> density = sd.box.truncated_normal(lambda x, a: 0.8 * x + 0.1 * a, sd=0.2, low=0.0, high=1.0)
    >>> psi, sample = sd.box.mixture([density])
    >>> M, H = 3, 2
    >>> world = sd.linear_kernel_on_box(
    ...     low=0.0, high=1.0, actions=2, psi=psi, phi=lambda x, a: np.hstack([x, 1 - x]),
    ...     theta=np.ones((M, H, 1)),
    ...     theta_r=np.broadcast_to([1.0, 0.0], (M, H, 2)),  # reward x
    ...     theta_g=np.broadcast_to([0.0, 1.0], (M, 1, H, 2)),  # utility 1 - x
    ...     thresholds=np.full((M, 1), 0.5), start=0.3, sample=sample, nodes=8,
    ... )
    >>> world
    LinearKernelCMDP(M=3, H=2, S=9, A=2, K=1, d1=1, d2=2, on a box)
    """
    lower, upper = sides(low, high)
    A = _check.integer("actions", actions)
    check_function("psi", psi)
    check_function("phi", phi)
    weights = _check.floats("theta", theta, ("M", "H", "d1"))
    M, H, d1 = weights.shape
    d2 = _check.floats("theta_r", theta_r, (M, H, "d2")).shape[-1]
    starts, shares = _starts(start, start_probabilities, lower, upper)
    tolerance = _check.positive("tolerance", tolerance, upper=0.1)
    rule = _check.choice("rule", str(rule), tuple(RULES))
    quadrature = RULES[rule](lower, upper, nodes)
    points = np.concatenate((quadrature.nodes, starts))
    for array in (*quadrature, points):
        array.setflags(write=False)  # the user's functions see them
    J, S = len(quadrature.weights), len(points)
    numbers = S * A * J * max(d1, H)
    if numbers > _MOST_NUMBERS:
        allowed = f"so few that psi and the kernels are at most {_MOST_NUMBERS} numbers"
        _check.fail("nodes", allowed, f"{nodes}, which makes {numbers}")
    box = Box(
        lower, upper, A, d1, d2, psi, phi, sample, rule, int(nodes), tolerance, quadrature, points
    )
    psi_nodes, phi_nodes = box.features_at(points)
    if sample is not None:
        check_function("sample", sample)
        _check_bases(box, psi_nodes, weights)
        _check_draws(box, starts[0], psi_nodes[J])
    lists = SuccessorFeatures(
        np.arange(S * A + 1) * J, np.tile(np.arange(J), S * A), psi_nodes.reshape(-1, d1)
    )
    initial = np.concatenate((np.zeros(J), shares))
    return LinearKernelCMDP(lists, phi_nodes, theta, theta_r, theta_g, thresholds, initial, box=box)


def refined(world: LinearKernelCMDP, factor: int = 2) -> LinearKernelCMDP:
    """Return the same world on a box with `factor` times the nodes in each direction.

    Examples
    --------
    >>> import safedrift as sd
    >>> room = sd.problems.make("thermostat", episodes=2, nodes=24)
    >>> room.S, sd.refined(room).S
    (25, 49)
    """
    box = _check.kind("world", world, LinearKernelCMDP).box
    if box is None:
        _check.fail("world", "on a box", "one with finitely many states")
    J = box.quadrature.weights.size
    other = linear_kernel_on_box(
        box.low,
        box.high,
        box.actions,
        box.psi,
        box.phi,
        world.theta,
        world.theta_r,
        world.theta_g,
        world.thresholds,
        box.points[J:],
        sample=box.sample,
        start_probabilities=world.initial[J:],
        rule=box.rule,
        nodes=box.nodes * _check.integer("factor", factor),
        tolerance=box.tolerance,
    )
    other.name, other.recipe = world.name, world.recipe
    return other


def _starts(
    start: ArrayLike, probabilities: ArrayLike | None, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Check the first states (I, n) and their probabilities (I,)."""
    n = lower.size
    if rank(start) < 2:
        starts = vector("start", start, n)[None]
    else:
        starts = _check.floats("start", start, ("I", n))
    inside = (starts >= lower) & (starts <= upper)
    _check.everywhere("start", starts, inside, f"inside the box {lower} to {upper}")
    if probabilities is None:
        return starts, np.full(len(starts), 1 / len(starts))
    shares = _check.floats("start_probabilities", probabilities, (len(starts),))
    _check.distribution("start_probabilities", shares)
    return starts, shares


def _check_bases(box: Box, psi: FloatArray, theta: FloatArray) -> None:
    """Check that ψ (S, A, J, d1) times the nodes' weights are densities and θ convex weights.

    Otherwise `sample` would not draw from the kernel.
    """
    _check.distribution("theta with sample", theta)
    if psi.min() < 0:
        density = psi / box.quadrature.weights[:, None]
        _check.everywhere("psi with sample", density, density >= 0, ">= 0")
    total = psi.sum(axis=2)
    allowed = f"1 within {box.tolerance:g} (more nodes, or densities that stay inside the box)"
    ok = np.abs(total - 1) <= box.tolerance
    _check.everywhere("the integral of each component of psi with sample", total, ok, allowed)


_DRAWS = 64


def _check_draws(box: Box, x: FloatArray, psi: FloatArray) -> None:
    """Compare mean and mean square of some draws at x (n,) with those of ψ (A, J, d1) there.

    A rough check: it finds a `sample` for another density, but not a small error.
    """
    uniforms = np.random.default_rng(0).random((_DRAWS, x.size))
    powers = np.stack([box.quadrature.nodes, box.quadrature.nodes**2, box.quadrature.nodes**4])
    for a in range(box.actions):
        for i in range(box.d1):
            drawn = np.stack([draw(box, x, a, i, u) for u in uniforms])
            first, second, fourth = powers.transpose(0, 2, 1) @ psi[a, :, i]  # (n,) each
            for name, got, mean, square in (
                ("mean", drawn, first, second),
                ("mean square", drawn**2, second, fourth),
            ):
                error = np.sqrt(np.maximum(square - mean**2, 0) / _DRAWS)
                allowed = 6 * error + 10 * box.tolerance * (1 + np.abs(mean))
                off = np.abs(got.mean(axis=0) - mean)
                _check.everywhere(
                    f"the {name} of draws by sample from component {i} after action {a}",
                    got.mean(axis=0),
                    off <= allowed,
                    f"near {mean}, that of psi",
                )
