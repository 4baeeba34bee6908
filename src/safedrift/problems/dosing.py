"""Dose a drug so that it works and stays in the safe range, for patients who change.

Description
    A clinic gives a drug every few hours. It works only if enough of it is in the blood, and too
    much does harm. The patients change over the months: how fast they clear the drug, and how
    strongly they respond to it. An episode is the stay of one patient; the population drifts from
    stay to stay.
States
    Units of the drug in the blood just before a dose, 0 to `levels` - 1. A stay starts with 0.
Actions
    Dose 0, 1, ..., `largest` units.
Transitions
    With peak y = min(x + a, `levels` - 1), every unit stays in the blood until the next dose with
    probability k, independently: x' ~ Binomial(y, k), so that the mean falls exponentially. Rapid,
    normal and slow metabolisers keep k = 0.5, 0.65 and 0.8.
Reward
    Effect of the peak by the Hill equation y⁴/(e⁴ + y⁴), with half effect at e = 0.6 and 0.9 of the
    safe limit for sensitive and tolerant patients.
Utility and threshold
    1 while the peak is within the safe limit, two thirds of the scale; above it falls linearly to 0
    at the end of the scale. The threshold H - `harm` allows `harm` expected harm per stay.
Drift
    Transitions and rewards, on separate random walks of `step` per episode: clearance between
    rapid, normal and slow metabolisers, response between sensitive and tolerant patients.
    Utilities and threshold are fixed.
Knowledge
    Giving no drug does no harm: `Slater(harm)` holds in every episode with equality, 0.25 with
    the default options.
Budgets
    With the default options and M = 2000: B_P = 177.5, B_r = 71.82, B_g = 0, B_b = 0, gamma >=
    0.25.
Source
    Invented; a one-compartment model with first-order elimination and the Hill equation.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Display, Drifting, Quantity, Snapshot, last_peak, shares
from safedrift.kernels.sums import product
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import binomial, certain, outcomes

_KEEP = (0.5, 0.65, 0.8)  # rapid, normal, slow metabolisers
_HALF = (0.6, 0.9)  # peak of half effect, sensitive and tolerant, as a share of the safe limit


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    levels: int = 13,
    largest: int = 3,
    horizon: int = 8,
    harm: float = 0.25,
    step: float = 0.005,
) -> DriftingCMDP:
    """Return the clinic; see the module docstring.

    Parameters
    ----------
    seed
        Seed of the two random walks.
    levels
        Number of levels of the drug: S = levels.
    largest
        Largest dose: A = largest + 1.
    harm
        Allowed expected harm per stay.
    step
        Size of a step of the random walks of the weights.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    S = _check.integer("levels", levels, lower=4)
    largest = _check.integer("largest", largest, upper=S - 1)
    harm = _check.positive("harm", harm, upper=H, closed=False)
    step = _check.positive("step", step)
    seed = _check.integer("seed", seed, lower=0)
    clears, responds = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    peak = np.minimum(np.arange(S)[:, None] + np.arange(largest + 1), S - 1)
    limit = _limit(S)
    harms = np.maximum(peak - limit, 0) / (S - 1 - limit)
    costs = np.broadcast_to(harms, (1, H, *peak.shape))
    utilities, threshold = from_costs(costs, np.array([harm]))
    effects = [_effect(peak, share * limit, H) for share in _HALF]
    start = certain(0, S)
    scenarios = []
    for keep, effect in zip(_KEEP, (*effects, effects[-1]), strict=True):
        P = _elimination(peak, keep, H)
        scenarios.append(TabularCMDP(P, effect, utilities, threshold, start))
    response = np.zeros((M, len(_KEEP)))
    response[:, : len(_HALF)] = drift.random_walk(M, len(_HALF), step, responds)
    return DriftingCMDP(
        scenarios,
        drift.random_walk(M, len(_KEEP), step, clears),
        reward_weights=response,
        utility_weights=np.zeros(M, np.int64),
        thresholds=np.full((M, 1), threshold),
    )


def display(world: DriftingCMDP) -> Display:
    """Return peak, trough and dose over the stay, and the safe range."""
    clears = shares(world.transition_path, len(_KEEP))
    responds = shares(world.reward_path, len(_KEEP))[:, : len(_HALF)]
    half = world.M // 2  # by then a learner has some data
    # Share of the drug left at the next dose.
    stays = product(clears, np.array(_KEEP))[half:]
    snapshots = (
        Snapshot("clears fastest", half + last_peak(-stays)),
        Snapshot("clears slowest", half + last_peak(stays)),
    )
    S, shape = world.S, (world.H, world.S, world.A)
    trough, limit = np.arange(S)[:, None], _limit(S)
    peak = np.minimum(trough + np.arange(world.A), S - 1)
    window = (_HALF[0] * limit, float(limit))
    return Display(
        snapshots,
        (
            Drifting("clearance", ("rapid", "normal", "slow"), clears),
            Drifting("response", ("sensitive", "tolerant"), responds),
        ),
        (
            Quantity(
                "peak in the blood after the dose, units",
                np.broadcast_to(peak, shape),
                band=window,
                wanted="half effect to safe limit",
            ),
            Quantity("trough before the dose, units", np.broadcast_to(trough, shape)),
            Quantity("dose, units", np.broadcast_to(np.arange(world.A), shape)),
        ),
        step="dose of the stay (from 0)",
    )


def _limit(S: int) -> int:
    """The largest safe peak."""
    return 2 * (S - 1) // 3


def _elimination(peak: np.ndarray, keep: float, H: int) -> Successors:
    """P of patients in whom a unit stays until the next dose with probability `keep`."""
    left = np.arange(peak.max() + 1)
    chance = binomial(left, peak[..., None], keep)
    return outcomes(left, chance / chance.sum(axis=-1, keepdims=True), H)


def _effect(peak: np.ndarray, half: float, H: int) -> FloatArray:
    """Reward (H, S, A) by the Hill equation with coefficient 4."""
    fourth = ((peak / half) ** 2) ** 2
    effect = fourth / (1 + fourth)
    return np.broadcast_to(effect, (H, *peak.shape))
