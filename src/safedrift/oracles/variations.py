"""How much a world changes: variation budgets B_P, B_r, B_g, B_b, B_* (eqs. 6 and 7 of the paper).

Norms. "l2" is the paper's: per step, the Euclidean norm over all (x, a, x') of the change in P, and
over all (x, a) of the change in r or g. "l1" is the one the proofs need (docs/errata.md, E8): per
step, the largest over (x, a) of ‖ΔP(·|x,a)‖₁, and of |Δr| or |Δg|.

A linear-kernel world changes with its coefficients: "l2" is then the Euclidean norm of the changes
of θ, θ_r and θ_g (eq. 6, which for one-hot features is the same thing), "l1" as above.

A mixture of scenarios is Σ_n w_n θ_n with weights that sum to 1, so for a change Δw of the weights

    ‖Σ_n Δw_n θ_n‖₂² = -½ Σ_ij Δw_i Δw_j ‖θ_i - θ_j‖₂²:

l2 budgets need the distances between scenarios and no pass over the episodes. Distances, unlike the
Gram matrix itself, lose no digits when scenarios are close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.sums import product
from safedrift.kernels.types import WeightPath
from safedrift.knowledge import Budgets, LocalBudgets, block_sums
from safedrift.models import DriftingCMDP, DriftingWorld, LinearKernelCMDP
from safedrift.models.tabular import distinct_rows
from safedrift.oracles.optimality import optima

__all__ = ["Variation", "block_sums", "budgets", "local_budgets", "variation"]


class Variation(NamedTuple):
    """Change of a world since the episode before, per episode and step; row 0 is zero.

    Examples
    --------
    >>> import safedrift as sd
    >>> maze = sd.problems.make("maze", episodes=8)
    >>> change = sd.variation(maze)
    >>> change.r.shape, float(change.P.sum())  # rewards move, transitions do not
    ((8, 12), 0.0)
    """

    P: FloatArray  # (M, H)
    r: FloatArray  # (M, H)
    g: FloatArray  # (M, K, H)
    b: FloatArray  # (M, K)


def variation(world: DriftingWorld, norm: str = "l2") -> Variation:
    """Return how much P, r, g and b change from episode to episode.

    Examples
    --------
    Only the threshold drifts, from 0.5 to 1.5:

    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> sd.variation(world).b[:, 0].tolist()
    [0.0, 0.25, 0.25, 0.25, 0.25]
    """
    _check.kind("world", world, get_args(DriftingWorld))
    _check.choice("norm", norm, ("l2", "l1"))
    b = np.zeros((world.M, world.K))
    b[1:] = np.abs(np.diff(world.thresholds, axis=0))
    if isinstance(world, LinearKernelCMDP):
        return Variation(*_coefficient_changes(world, norm), b)
    return Variation(*_mixture_changes(world, norm), b)


def _mixture_changes(world: DriftingCMDP, norm: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Changes of P (M, H), r (M, H) and g (M, K, H)."""
    arrays = world.arrays
    H, K = world.H, world.K
    N = len(world.scenarios)
    pairs = world.S * world.A
    steps = arrays.offsets[::pairs]
    P = [arrays.probabilities[:, steps[h] : steps[h + 1]] for h in range(H)]
    starts = [arrays.offsets[h * pairs : (h + 1) * pairs] - steps[h] for h in range(H)]
    r = [arrays.rewards[:, h].reshape(N, -1) for h in range(H)]
    g = [arrays.utilities[:, k, h].reshape(N, -1) for k in range(K) for h in range(H)]
    return (
        _changes(world.transition_path, P, norm, starts),
        _changes(world.reward_path, r, norm),
        _changes(world.utility_path, g, norm).reshape(world.M, K, H),
    )


def _coefficient_changes(
    world: LinearKernelCMDP, norm: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Changes of P (M, H), r (M, H) and g (M, K, H)."""
    theta_g = world.theta_g.transpose(0, 2, 1, 3)  # (M, H, K, d2)
    if norm == "l2":
        P, r, g = (
            np.sqrt((np.diff(theta, axis=0, prepend=theta[:1]) ** 2).sum(axis=-1))
            for theta in (world.theta, world.theta_r, theta_g)
        )
        return P, r, np.ascontiguousarray(g.transpose(0, 2, 1))
    M, H, K = world.M, world.H, world.K
    P, r, g = np.zeros((M, H)), np.zeros((M, H)), np.zeros((M, K, H))
    for h in range(H):
        P[:, h] = _largest(np.diff(world.theta[:, h], axis=0), world.change_of_kernel(h))
        r[:, h] = _largest(np.diff(world.theta_r[:, h], axis=0), world.change_of_signal(h))
        for k in range(K):
            delta = np.diff(world.theta_g[:, k, h], axis=0)
            g[:, k, h] = _largest(delta, world.change_of_signal(h))
    return P, r, g


def _largest(delta: FloatArray, size: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """size(Δθ) of each row of delta, computed once per distinct row; 0 for the first episode."""
    out = np.zeros(len(delta) + 1)
    if len(delta):
        first, number = distinct_rows(delta)
        moved = np.flatnonzero(delta[first].any(axis=1))
        sizes = np.zeros(first.size)
        for block in np.split(moved, range(_BLOCK, moved.size, _BLOCK)):
            if block.size:
                sizes[block] = size(delta[first[block]])
        out[1:] = sizes[number]
    return out


def budgets(
    world: DriftingWorld, policy_change: FloatArray | None = None, norm: str = "l2"
) -> Budgets:
    """Return the total budgets of a world, B_* from its optimal policies.

    B_* depends on which optimal policy is chosen if there are several, and counts only states that
    an optimal policy reaches (docs/errata.md, E11): it is an upper bound for the best choice.

    Parameters
    ----------
    policy_change : (M,), optional
        How much the optimal policy changes before each episode, if already computed:
        `optima(world).policy_change`, or `drift_star` of a `Truth`.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> total = sd.budgets(world)
    >>> [round(float(x), 6) for x in (total.delta, total.star, total.b)]  # B_Δ, B_*, B_b
    [0.0, 2.0, 1.0]
    """
    change = variation(world, norm)
    if policy_change is None:
        policy_change = optima(world).policy_change
    star = _check.floats("policy_change", policy_change, (world.M,)).sum()
    return Budgets(
        P=float(change.P.sum()),
        r=float(change.r.sum()),
        g=float(change.g.sum()),
        star=float(star),
        b=float(change.b.sum()),
    )


def local_budgets(world: DriftingWorld, norm: str = "l2") -> LocalBudgets:
    """Return the exact local budgets of Assumption 2: changes of transitions and utilities.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> sd.local_budgets(world).transitions.shape  # (M, H)
    (5, 2)
    """
    change = variation(world, norm)
    return LocalBudgets(transitions=change.P, utilities=change.g)


_BLOCK = 256  # episodes whose changes are computed at once


def _changes(
    path: WeightPath, banks: list[FloatArray], norm: str, starts: list[np.ndarray] | None = None
) -> FloatArray:
    """Norm of the change of Σ_n w_n bank[n] for each bank (N, entries): (M, banks)."""
    from scipy.sparse import csr_array  # takes a while to import

    M, J = path.scenario.shape
    N = banks[0].shape[0]
    out = np.zeros((M, len(banks)))
    scenario, weight = path.scenario, path.weight
    moves = (scenario[1:] != scenario[:-1]) | (weight[1:] != weight[:-1])
    changed = 1 + np.flatnonzero(moves.any(axis=1))  # few where the world jumps
    rows = np.arange(0, changed.size * J + 1, J)
    now, before = (
        csr_array((weight[m].ravel(), scenario[m].ravel(), rows), shape=(changed.size, N))
        for m in (changed, changed - 1)
    )
    delta = (now - before).tocsr()
    delta.eliminate_zeros()
    size = np.diff(delta.indptr)
    # Between two scenarios the change is a multiple of their difference, in any norm.
    two = np.flatnonzero(size == 2)
    if two.size:
        first = delta.indptr[two]
        pairs = np.stack((delta.indices[first], delta.indices[first + 1]), axis=1)
        distinct, place = np.unique(pairs, axis=0, return_inverse=True)
        one = np.array([[-1.0, 1.0]])
        distance = np.concatenate([_norms(one, pair, banks, norm, starts) for pair in distinct])
        out[changed[two]] = np.abs(delta.data[first])[:, None] * distance[place.ravel()]
    several = np.flatnonzero(size > 2)
    for block in np.split(several, range(_BLOCK, several.size, _BLOCK)):
        if block.size:
            used = np.unique(delta[block].indices)
            out[changed[block]] = _norms(delta[block][:, used].toarray(), used, banks, norm, starts)
    return out


def _norms(
    delta: FloatArray,
    used: np.ndarray,
    banks: list[FloatArray],
    norm: str,
    starts: list[np.ndarray] | None,
) -> FloatArray:
    """Norms (rows, banks) of Σ_n Δw_n bank[used[n]] for rows of changes Δw that sum to zero."""
    found = np.empty((delta.shape[0], len(banks)))
    for i, bank in enumerate(banks):
        parts = bank[used] - bank[used[0]]  # subtract what cancels
        if norm == "l2":
            found[:, i] = _from_distances(delta, parts)
        else:
            change = np.abs(product(delta, parts))
            rows = np.add.reduceat(change, starts[i], axis=1) if starts else change
            found[:, i] = rows.max(axis=1)
    return found


def _from_distances(delta: FloatArray, parts: FloatArray) -> FloatArray:
    """‖Σ_n Δw_n parts[n]‖₂ per row of delta, by squared distances between the parts.

    Where their terms nearly cancel (mixtures that almost coincide), from the definition instead.
    """
    square = np.array([((parts - part) ** 2).sum(axis=1) for part in parts])
    total = -0.5 * (product(delta, square) * delta).sum(axis=1)
    terms = 0.5 * (product(np.abs(delta), square) * np.abs(delta)).sum(axis=1)
    close = total < 1e-4 * terms
    total[close] = (product(delta[close], parts) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(total))
