"""Random worlds that meet a prescribed Slater gap and prescribed variation budgets.

Description
    For tests and studies that need a world of given sizes, drift and difficulty.
States, actions
    `states`, `actions`, without meaning.
Reward, utility and threshold
    Uniform in [0, 1]. Each episode's thresholds are set so that the Slater gap is exactly `gamma`.
Drift
    Base world and `scenarios` - 1 others; P, r and g follow the path of the chosen builder. The
    others are moved towards the base to give the requested budgets B_P, B_r, B_g. P, r and g differ
    from step to step unless `per_step` is false.
Knowledge
    `Slater(gamma)` holds with equality in every episode.
Budgets
    With the default options and M = 2000: B_P = 19.9, B_r = 16.43, B_g = 15.75, B_b = 0.1853,
    gamma >= 0.5.
Source
    Dirichlet transitions, uniform rewards and utilities.
Version
    0

How the gap is met exactly. Let π̄ maximise Σ_k V_g,k and set b_k = V_g,k(π̄) - gamma. For any π, the
smallest slack is gamma + min_k (V_g,k(π) - V_g,k(π̄)) ≤ gamma + Σ_k (V_g,k(π) - V_g,k(π̄))/K ≤ gamma.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.models import DriftingCMDP, TabularCMDP
from safedrift.models import drift as paths
from safedrift.models.outcomes import certain
from safedrift.oracles import safest_utilities, variation

DRIFTS: dict[str, Callable[[int, int, int], FloatArray]] = {
    "stationary": lambda M, N, seed: paths.stationary(M, N),
    "abrupt": lambda M, N, seed: paths.abrupt(M, N),
    "linear": lambda M, N, seed: paths.linear(M, N),
    "periodic": lambda M, N, seed: paths.periodic(M, N),
    "random_walk": lambda M, N, seed: paths.random_walk(M, N, seed=seed),
    "bursts": lambda M, N, seed: paths.bursts(M, N, seed=seed),
    "alternating": lambda M, N, seed: paths.alternating(M, N),
}
PACES = {"abrupt": "switches", "periodic": "period", "random_walk": "step", "alternating": "every"}
"""The option that says how fast a drift is, by drift."""


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    states: int = 5,
    actions: int = 3,
    horizon: int = 5,
    constraints: int = 1,
    scenarios: int = 3,
    drift: str = "abrupt",
    gamma: float = 0.5,
    B_P: float | None = None,
    B_r: float | None = None,
    B_g: float | None = None,
    successors: int | None = None,
    weights: ArrayLike | None = None,
    per_step: bool = True,
    switches: int | None = None,
    period: float | None = None,
    step: float | None = None,
    every: int | None = None,
) -> DriftingCMDP:
    """Return a random drifting world.

    Parameters
    ----------
    drift
        stationary, abrupt, linear, periodic, random_walk, bursts or alternating.
    gamma
        Slater gap of every episode.
    B_P, B_r, B_g
        Total variation budgets in the paper's norms; None leaves the scenarios as drawn.
    successors
        Number of successors of each pair; None allows all states.
    weights : array (M, scenarios)
        Your own path instead of `drift`.
    per_step
        Draw P, r and g of every step; False: the same at every step.
    switches, period, step, every
        How fast the drift abrupt, periodic, random_walk or alternating is, in this order; see
        `sd.drift`.
    """
    M = _check.integer("episodes", episodes)
    N = _check.integer("scenarios", scenarios)
    H, S = _check.integer("horizon", horizon), _check.integer("states", states)
    A, K = _check.integer("actions", actions), _check.integer("constraints", constraints)
    J = S if successors is None else _check.integer("successors", successors, upper=S)
    gamma = _check.positive("gamma", gamma, upper=H, closed=False)
    seed = _check.integer("seed", seed, lower=0)
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    _check.kind("per_step", per_step, bool)
    P, r, g = _draw(rng, N, H if per_step else 1, S, A, K, J)
    if not per_step:
        P, r, g = np.repeat(P, H, axis=1), np.repeat(r, H, axis=1), np.repeat(g, H, axis=2)
    paces = {"switches": switches, "period": period, "step": step, "every": every}
    path = _path(drift, M, N, seed, paces)
    if weights is not None:
        path = _check.floats("weights", weights, (M, N))
    world = DriftingCMDP(_scenarios(P, r, g), path)
    wanted = {"B_P": B_P, "B_r": B_r, "B_g": B_g}
    if any(value is not None for value in wanted.values()):
        change = variation(world)
        for bank, have, (name, value) in zip(
            (P, r, g), (change.P, change.r, change.g), wanted.items(), strict=True
        ):
            if value is not None:
                _pull_to_base(name, bank, float(have.sum()), value)
        world = DriftingCMDP(_scenarios(P, r, g), path)
    del path  # of M episodes: the world has its own
    return with_gap(world, gamma)


def _path(drift: str, M: int, N: int, seed: int, paces: Mapping[str, float | None]) -> FloatArray:
    """Weights (M, N) of a drift, at the given pace or the usual one."""
    _check.choice("drift", drift, tuple(DRIFTS))
    chosen = {name: value for name, value in paces.items() if value is not None}
    for name, value in chosen.items():
        if PACES.get(drift) != name:
            _check.fail(name, f"left out where the drift is {drift}", value)
    if not chosen:
        return DRIFTS[drift](M, N, seed)
    if drift == "random_walk":
        return paths.random_walk(M, N, seed=seed, **chosen)
    builder: Callable[..., FloatArray] = getattr(paths, drift)
    return builder(M, N, **chosen)


def with_gap(world: DriftingCMDP, gamma: float) -> DriftingCMDP:
    """Return the world with thresholds that make the Slater gap of every episode `gamma`."""
    first, version = world.distinct
    best = safest_utilities(world, first)
    if best.min() <= gamma:
        m, k = np.unravel_index(best.argmin(), best.shape)
        _check.fail(
            "gamma",
            f"below {best.min():.6g}, the utility that constraint {k} can reach in episode "
            f"{first[m]}",
            gamma,
        )
    return world.with_thresholds((best - gamma)[version])


def _draw(
    rng: np.random.Generator, N: int, H: int, S: int, A: int, K: int, J: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    P = np.zeros((N, H, S, A, S))
    where = rng.random((H, S, A, S)).argsort(axis=-1)[..., :J]
    for n in range(N):
        np.put_along_axis(P[n], where, rng.dirichlet(np.ones(J), (H, S, A)), axis=-1)
    return P, rng.random((N, H, S, A)), rng.random((N, K, H, S, A))


def _scenarios(P: FloatArray, r: FloatArray, g: FloatArray) -> list[TabularCMDP]:
    K, H, S = g.shape[1:4]
    return [
        TabularCMDP(*parts, np.full(K, H), certain(0, S)) for parts in zip(P, r, g, strict=True)
    ]


def _pull_to_base(name: str, bank: FloatArray, have: float, wanted: float) -> None:
    """Shrink all bank[n] - bank[0] by one factor: a budget `have` becomes `wanted`."""
    if _check.real(name, wanted) < 0:
        _check.fail(name, ">= 0", wanted)
    if wanted > have * (1 + 1e-12):
        _check.fail(name, f"at most {have:.6g}, all that this path between scenarios gives", wanted)
    if have > 0:
        bank[1:] = bank[0] + (wanted / have) * (bank[1:] - bank[0])
