"""How much a world moves: variation budgets B_P, B_r, B_g, B_b and B_* (eqs. 5 and 6 of the paper).

Norms. "l2" is the paper's: per step, the Euclidean norm over all (x, a, x') of the change in P, and
over all (x, a) of the change in r or g. "l1" is the one the proofs need (docs/errata.md, E8): per
step, the largest over (x, a) of ‖ΔP(·|x,a)‖₁, and of |Δr| or |Δg|.

The world is Σ_n w_n θ_n with weights that sum to 1, so for a change Δw of the weights

    ‖Σ_n Δw_n θ_n‖₂² = -½ Σ_ij Δw_i Δw_j ‖θ_i - θ_j‖₂²:

l2 budgets need the distances between scenarios and no pass over the episodes. Distances, unlike the
Gram matrix itself, lose no digits when scenarios are close.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.algorithms.knowledge import Budgets, LocalBudgets
from safedrift.kernels.types import Path
from safedrift.models import DriftingCMDP
from safedrift.oracles.solve import Optima, optima

__all__ = ["Variation", "block_sums", "budgets", "local_budgets", "variation"]


class Variation(NamedTuple):
    """Change of a world since the episode before, per episode and step; row 0 is zero."""

    P: FloatArray  # (M, H)
    r: FloatArray  # (M, H)
    g: FloatArray  # (M, K, H)
    b: FloatArray  # (M, K)


def variation(world: DriftingCMDP, norm: str = "l2") -> Variation:
    """Return how much P, r, g and b change from episode to episode."""
    _check.choice("norm", norm, ("l2", "l1"))
    arrays = world.arrays
    H, K = world.H, world.K
    N = len(world.scenarios)
    pairs = world.S * world.A
    steps = arrays.offsets[::pairs]
    P = [arrays.probabilities[:, steps[h] : steps[h + 1]] for h in range(H)]
    starts = [arrays.offsets[h * pairs : (h + 1) * pairs] - steps[h] for h in range(H)]
    r = [arrays.rewards[:, h].reshape(N, -1) for h in range(H)]
    g = [arrays.utilities[:, k, h].reshape(N, -1) for k in range(K) for h in range(H)]
    b = np.zeros((world.M, K))
    b[1:] = np.abs(np.diff(world.thresholds, axis=0))
    return Variation(
        _changes(world.transition_path, P, norm, starts),
        _changes(world.reward_path, r, norm),
        _changes(world.utility_path, g, norm).reshape(world.M, K, H),
        b,
    )


def budgets(world: DriftingCMDP, found: Optima | None = None, norm: str = "l2") -> Budgets:
    """Return the total budgets of a world, B_* from its optimal policies.

    B_* depends on which optimal policy is taken where several are, and only states that an optimal
    policy reaches count (docs/errata.md, E11): it is an upper bound for the best selection.

    Parameters
    ----------
    found
        Optima of all episodes, if they are known already.
    """
    change = variation(world, norm)
    found = optima(world) if found is None else found
    return Budgets(
        P=float(change.P.sum()),
        r=float(change.r.sum()),
        g=float(change.g.sum()),
        star=float(found.policy_change.sum()),
        b=float(change.b.sum()),
    )


def local_budgets(world: DriftingCMDP, norm: str = "l2") -> LocalBudgets:
    """Return what Assumption 2 grants the learner: the drift of transitions and utilities."""
    change = variation(world, norm)
    return LocalBudgets(transitions=change.P, utilities=change.g)


def block_sums(per_episode: FloatArray, length: int) -> FloatArray:
    """Sum changes inside blocks of `length` episodes; changes between blocks belong to none."""
    length = _check.integer("length", length)
    inside = np.array(per_episode)
    inside[::length] = 0.0
    return np.asarray(np.add.reduceat(inside, np.arange(0, len(inside), length), axis=0))


def _changes(
    path: Path, banks: list[FloatArray], norm: str, starts: list[np.ndarray] | None = None
) -> FloatArray:
    """Norm of the change of Σ_j w_j bank[index_j] for each bank (N, entries): (M, banks)."""
    M = path.index.shape[0]
    out = np.zeros((M, len(banks)))
    cache: dict[tuple[int, int], FloatArray] = {}
    seen: dict[bytes, FloatArray] = {}
    for m in range(1, M):
        index, delta = _weight_change(path, m)
        if index.size == 0:
            continue
        key = index.tobytes() + delta.tobytes()
        if key not in seen:
            seen[key] = _norms(index, delta, banks, norm, starts, cache)
        out[m] = seen[key]
    return out


def _weight_change(path: Path, m: int) -> tuple[np.ndarray, FloatArray]:
    """Scenarios whose weight changes at episode m, and by how much (summing to zero)."""
    both = np.concatenate((path.index[m], path.index[m - 1]))
    change = np.concatenate((path.weight[m], -path.weight[m - 1]))
    index, place = np.unique(both, return_inverse=True)
    delta = np.bincount(place, change)
    return index[delta != 0], delta[delta != 0]


def _norms(
    index: np.ndarray,
    delta: FloatArray,
    banks: list[FloatArray],
    norm: str,
    starts: list[np.ndarray] | None,
    cache: dict[tuple[int, int], FloatArray],
) -> FloatArray:
    if norm == "l2":
        square = np.zeros(len(banks))
        for x in range(index.size):
            for y in range(x):
                pair = (int(index[x]), int(index[y]))
                if pair not in cache:
                    i, j = pair
                    cache[pair] = np.array([((bank[i] - bank[j]) ** 2).sum() for bank in banks])
                square -= delta[x] * delta[y] * cache[pair]
        return np.sqrt(np.maximum(square, 0))
    if index.size == 2:  # on a segment the change is a multiple of one difference
        pair = (int(index[1]), int(index[0]))
        if pair not in cache:
            cache[pair] = _largest(np.array([-1.0, 1.0]), index, banks, starts)
        return np.abs(delta[1]) * cache[pair]
    return _largest(delta, index, banks, starts)


def _largest(
    delta: FloatArray, index: np.ndarray, banks: list[FloatArray], starts: list[np.ndarray] | None
) -> FloatArray:
    """Largest |change| per bank, or largest row sum of |change| where rows start at `starts`."""
    found = np.empty(len(banks))
    for i, bank in enumerate(banks):
        change = np.abs(delta @ bank[index])
        found[i] = (np.add.reduceat(change, starts[i]) if starts else change).max()
    return found
