"""Admit patients to a ward: keep beds free for emergencies without sending people home too early.

Description
    A ward admits planned patients, which it is paid for, and must take emergencies. Beds become
    free when patients leave. Sending them home early frees beds faster and is bad for them: the two
    constraints ask for opposite things. Outbreaks bring more emergencies, and some seasons have
    more outbreaks than others. An episode is a week of `horizon` days.
States
    Taken beds 0 to `beds` and whether there is an outbreak, numbered 2 * taken + outbreak. A week
    starts with three quarters of the beds taken (rounded down) and without an outbreak.
Actions
    0 admit nobody, 1 admit two, 2 admit four, 3 admit nobody and send home early, 4 admit two and
    send home early. Patients are admitted as far as there are beds.
Transitions
    Each patient of the morning leaves with probability 0.15, or 0.4 if people are sent home early.
    Then planned patients and up to four emergencies take beds; each emergency comes with
    probability 0.25, or 0.7 in an outbreak. Who finds no bed goes elsewhere. An outbreak begins
    with probability 0.1 in calm seasons and 0.4 in bad ones, and ends with 0.5 and 0.2.
Reward
    Planned patients admitted, over four.
Utility and threshold
    Free beds: the share of free beds in the morning; Σ >= `free` * H.
    Aftercare: 1, or 1 - taken / `beds` if people are sent home early; Σ >= `aftercare` * H.
Drift
    Transitions, threshold: the season walks at random between calm and bad, and the required free
    beds rise linearly by `rise` * H over all episodes. Rewards and utilities are fixed.
Knowledge
    Even in the worst season and with the most free beds required, the Slater gap is 0.3666 with the
    default options: `Slater(0.36)`. With other options, see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 209.1, B_r = 0, B_g = 0, B_b = 0.42, gamma >=
    0.4895.
Source
    Invented.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.display import Display, Drifting, Quantity, Snapshot, last_peak, shares
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift
from safedrift.models.outcomes import binomial, certain, outcomes

CONSTRAINTS = ("free beds", "aftercare")

_ADMIT = np.array([0, 2, 4, 0, 2])  # per action
_EARLY = np.array([0, 0, 0, 1, 1])
_LEAVE = np.where(_EARLY == 1, 0.4, 0.15)
_EMERGENCY = np.array([0.25, 0.7])  # without and in an outbreak
_EMERGENCIES = 4  # at most, per day
_OUTBREAK = {"calm": (0.1, 0.5), "bad": (0.4, 0.8)}  # P(outbreak tomorrow), without and in one


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    beds: int = 12,
    horizon: int = 7,
    free: float = 0.3,
    rise: float = 0.06,
    aftercare: float = 0.7,
    step: float = 0.01,
) -> DriftingCMDP:
    """Return the ward; see the module docstring. `seed` draws the walk of the season.

    Parameters
    ----------
    beds
        S = 2 * (beds + 1).
    free, aftercare
        Required means over the week of the two utilities, in (0, 1).
    rise
        How much the required free beds grow over all episodes.
    step
        Size of the steps of the season's walk.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    beds = _check.integer("beds", beds, lower=4)
    free = _check.positive("free", free, upper=1, closed=False)
    aftercare = _check.positive("aftercare", aftercare, upper=1, closed=False)
    if not 0 <= _check.real("rise", rise) < 1 - free:
        _check.fail("rise", f"in [0, {1 - free:g})", rise)
    S = 2 * (beds + 1)
    taken = np.arange(S)[:, None] // 2
    shape = (H, S, _ADMIT.size)
    rewards = np.broadcast_to(np.minimum(_ADMIT, beds - taken) / 4, shape)
    utilities = np.stack([
        np.broadcast_to(1 - taken / beds, shape),
        np.broadcast_to(1 - _EARLY * taken / beds, shape),
    ])  # fmt: skip
    start = certain(2 * (3 * beds // 4), S)
    scenarios = [
        TabularCMDP(
            _transitions(beds, outbreak, H),
            rewards,
            utilities,
            H * np.array([free, aftercare]),
            start,
        )
        for outbreak in _OUTBREAK.values()
    ]
    needed = free + rise * drift.linear(M, 2)[:, 1]
    thresholds = H * np.stack((needed, np.full(M, aftercare)), axis=1)
    season = drift.random_walk(M, 2, step, seed=seed)
    world = DriftingCMDP(scenarios, season, thresholds=thresholds)
    world.constraint_names = CONSTRAINTS
    return world


def display(world: DriftingCMDP) -> Display:
    """Return beds, planned patients and aftercare over the week."""
    weights = shares(world.transition_path, 2)
    snapshots = tuple(
        Snapshot(f"{kind} season", last_peak(weights[:, n])) for n, kind in enumerate(_OUTBREAK)
    )
    shape, beds = (world.H, world.S, world.A), world.S // 2 - 1
    taken = np.arange(world.S)[:, None] // 2
    b = world.thresholds[[snapshot.episode for snapshot in snapshots]] / world.H
    return Display(
        snapshots,
        (
            Drifting("season", tuple(_OUTBREAK), weights),
            Drifting("free beds, b/H", ("b/H",), world.thresholds[:, :1] / world.H, shares=False),
        ),
        (
            Quantity(
                "free beds",
                np.broadcast_to(beds - taken, shape),
                limits=beds * b[:, 0],
                wanted="needed on average",
            ),
            Quantity(
                "aftercare",
                np.broadcast_to(1 - _EARLY * taken / beds, shape),
                limits=b[:, 1],
                wanted="needed on average",
            ),
            Quantity(
                "planned patients admitted",
                np.broadcast_to(np.minimum(_ADMIT, beds - taken), shape),
            ),
        ),
        step="day",
    )


def _transitions(beds: int, outbreak: tuple[float, float], H: int) -> Successors:
    """P of a season: patients who leave, times emergencies, times an outbreak tomorrow or not."""
    state = np.arange(2 * (beds + 1))
    taken, now = np.divmod(state[:, None, None, None, None], 2)
    gone = np.arange(beds + 1)[:, None, None]
    came = np.arange(_EMERGENCIES + 1)[:, None]
    admitted = np.minimum(_ADMIT[:, None, None, None], beds - taken)
    left = np.maximum(taken - gone, 0)
    after = 2 * np.minimum(left + admitted + came, beds) + np.arange(2)
    leaves = binomial(gone, taken, _LEAVE[:, None, None, None])
    emergencies = binomial(came, _EMERGENCIES, _EMERGENCY[now])
    tomorrow = np.array(outbreak)[now]
    chance = leaves * emergencies * np.concatenate((1 - tomorrow, tomorrow), axis=-1)
    J = (beds + 1) * (_EMERGENCIES + 1) * 2
    return outcomes(after.reshape(-1, 5, J), chance.reshape(-1, 5, J), H)
