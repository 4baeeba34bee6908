"""A mixture of tabular scenarios in the form of Assumption 1, with the same numbers.

    "scenarios"  ψ(x,a,x') = (P_1(x'|x,a), ..., P_N(x'|x,a)),  θ_h^m = w_P[m]
    "tabular"    ψ(x,a,x') = e_{x,a,x'},                        θ_h^m = P_h^m   (the paper's)

and likewise for rewards and utilities: φ(x,a) = (r_1, ..., r_N, g_1,1, ..., g_N,K)(x,a) with the
weights as coefficients, or φ(x,a) = e_{x,a} with the tables themselves.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.sums import product
from safedrift.kernels.types import TableArrays, WeightPath
from safedrift.models.linear import LinearKernelCMDP, SuccessorFeatures
from safedrift.models.tabular import distinct_rows

__all__ = ["linear_kernel_of"]

_MOST_FEATURES = 4096  # of the tabular reduction: its Gram matrices have d1² entries


def linear_kernel_of(
    arrays: TableArrays, initial: FloatArray, features: str, rewards: str
) -> LinearKernelCMDP:
    """Return a mixture of scenarios as a linear-kernel CMDP.

    Parameters
    ----------
    arrays
        The scenarios and the paths through them.
    initial : (S,)
        Distribution of the first state.
    features, rewards
        As in `DriftingCMDP.as_linear_kernel`.
    """
    by_scenario = _check.choice("features", str(features), ("scenarios", "tabular")) == "scenarios"
    psi, theta = _scenario_psi(arrays) if by_scenario else _tabular_psi(arrays)
    by_scenario = _check.choice("rewards", str(rewards), ("scenarios", "one-hot")) == "scenarios"
    phi, theta_r, theta_g = _scenario_phi(arrays) if by_scenario else _one_hot_phi(arrays)
    return LinearKernelCMDP(psi, phi, theta, theta_r, theta_g, arrays.thresholds, initial)


def _different(path: WeightPath, bank: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Different rows of bank (N, ...), and the weight path (M, different) through them."""
    first, number = distinct_rows(bank.reshape(len(bank), -1))
    weights = np.zeros((len(path.weight), first.size))
    np.add.at(weights, (np.arange(len(weights))[:, None], number[path.scenario]), path.weight)
    return bank[first], weights


def _mixed(path: WeightPath, bank: FloatArray) -> FloatArray:
    """Σ_n w[m,n] bank[n] for bank (N, H, ...): (M, H, entries of a step)."""
    bank, weights = _different(path, bank)
    first, number = distinct_rows(weights)  # equal weights, equal bits
    mixed = product(weights[first], bank.reshape(len(bank), -1))
    return np.asarray(mixed[number].reshape(len(weights), bank.shape[1], -1))


def _per_step(weights: FloatArray, H: int) -> FloatArray:
    """Repeat weights (M, d) for H steps: (M, H, d)."""
    return np.repeat(weights[:, None], H, axis=1)


# ---------------------------------------------------------------- transitions


def _scenario_psi(arrays: TableArrays) -> tuple[SuccessorFeatures, FloatArray]:
    """ψ with one component per different transition model; one step of it where all are alike."""
    _, H, S, A = arrays.rewards.shape
    pairs = S * A
    bank, weights = _different(arrays.transition_path, arrays.probabilities)
    offsets, states, psi = arrays.offsets, arrays.states.astype(np.int32), bank.T
    counts, size = np.diff(offsets).reshape(H, pairs), int(offsets[pairs])
    if (
        (counts == counts[0]).all()
        and (states.reshape(H, size) == states[:size]).all()
        and (psi.reshape(H, size, -1) == psi[:size]).all()
    ):
        offsets, states, psi = offsets[: pairs + 1], states[:size], psi[:size]
    return SuccessorFeatures(offsets, states, psi), _per_step(weights, H)


def _tabular_psi(arrays: TableArrays) -> tuple[SuccessorFeatures, FloatArray]:
    """ψ = e_{x,a,x'} and θ = P."""
    N, H, S, A = arrays.rewards.shape
    d1 = S * A * S
    if d1 > _MOST_FEATURES:
        _check.fail("S*S*A", f"at most {_MOST_FEATURES} with features='tabular'", d1)
    lists = SuccessorFeatures(np.arange(S * A + 1) * S, np.tile(np.arange(S), S * A), np.eye(d1))
    bank = np.zeros((N, H * S * A, S))
    rows = np.repeat(np.arange(H * S * A), np.diff(arrays.offsets))
    bank[:, rows, arrays.states] = arrays.probabilities
    return lists, _mixed(arrays.transition_path, bank.reshape(N, H, S, A, S))


# ---------------------------------------------------------------- rewards and utilities


def _scenario_phi(arrays: TableArrays) -> tuple[FloatArray, FloatArray, FloatArray]:
    """φ with one component per different reward or utility table, scaled to norm at most 1."""
    K, H = arrays.utilities.shape[1:3]
    parts = [_different(arrays.reward_path, arrays.rewards)]
    parts += [_different(arrays.utility_path, arrays.utilities[:, k]) for k in range(K)]
    phi = np.concatenate([bank for bank, _ in parts]).transpose(1, 2, 3, 0)  # (H, S, A, d2)
    if (phi == phi[0]).all():
        phi = phi[0]
    scale = float(np.sqrt((phi**2).sum(axis=-1)).max()) or 1.0
    theta = np.zeros((1 + K, len(arrays.thresholds), phi.shape[-1]))
    done = 0
    for c, (bank, weights) in enumerate(parts):
        theta[c, :, done : done + len(bank)] = weights * scale
        done += len(bank)
    theta_g = np.stack([_per_step(each, H) for each in theta[1:]], axis=1)
    return phi / scale, _per_step(theta[0], H), theta_g


def _one_hot_phi(arrays: TableArrays) -> tuple[str, FloatArray, FloatArray]:
    """φ = e_{x,a}, θ_r = r and θ_g = g."""
    K = arrays.utilities.shape[1]
    theta_g = [_mixed(arrays.utility_path, arrays.utilities[:, k]) for k in range(K)]
    return "one-hot", _mixed(arrays.reward_path, arrays.rewards), np.stack(theta_g, axis=1)
