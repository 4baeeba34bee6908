"""Admit customers and choose the speed of service while the arrivals change from week to week.

Description
    A counter is open for `horizon` half hours a day. In every half hour its manager decides whether
    the door is open and how fast the counter works. Fast service costs energy and overtime, and
    waiting customers are angry. Traffic has a profile over the day, and it is normal, slack or
    rushed for weeks, until it suddenly changes. An episode is a day.
States
    0 to `capacity` customers in the queue. A day starts with a quarter of the places taken.
Actions
    0 door open, slow service; 1 open, fast; 2 closed, slow; 3 closed, fast.
Transitions
    x' = min(x - served + open * arrived, capacity). If somebody waits, one customer is served with
    probability 0.45 (slow) or 0.9 (fast). Two customers may come, each with probability
    λ_h = traffic * profile_h, independently. The profile rises from 0.6 when the counter opens to 1
    at noon and falls back; traffic is 0.35 (normal), 0.2 (slack), 0.7 (rush).
Reward
    0.75 times the probability that a customer is served, plus 0.25 if the service is slow:
    throughput minus energy, shifted to [0, 1].
Utility and threshold
    1 - x/`capacity`. By Little's law the queue length is proportional to the waiting time. The
    threshold (1 - `waiting`) H allows a queue of `waiting` * `capacity` on average over the day.
Drift
    Transitions only, and abruptly: the regime changes `changes` times, normal, slack, normal, rush
    and so on. Rewards, utilities and threshold are fixed.
Knowledge
    A closed door and fast service empty the queue. With the door closed all regimes are equal, so
    the Slater gap is 1.083 with the default options: `Slater(1.08)`. With other options,
    see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 55.57, B_r = 0, B_g = 0, B_b = 0, gamma >=
    1.083.
Source
    Invented; the textbook problem of controlled admission and service rate.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.display import (
    Display,
    Drifting,
    Quantity,
    Snapshot,
    allowed_per_step,
    last_peak,
    shares,
)
from safedrift.kernels.elementary import cos_turns
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift
from safedrift.models.outcomes import certain, outcomes

_OPEN = np.array([1, 1, 0, 0])  # per action
_SERVE = np.array([0.45, 0.9, 0.45, 0.9])  # probability to serve a customer, per action
_SLOW = np.array([1.0, 0.0, 1.0, 0.0])
_TRAFFIC = {"normal": 0.35, "slack": 0.2, "rush": 0.7}
_ORDER = ("normal", "slack", "normal", "rush")
_QUIET = 0.6  # profile at the first and last half hour, 1 at noon


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    capacity: int = 8,
    horizon: int = 10,
    waiting: float = 0.15,
    changes: int = 5,
) -> DriftingCMDP:
    """Return the counter; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    capacity
        Places in the queue: S = capacity + 1.
    waiting
        Allowed length of the queue on average over the day, as a share of the capacity.
    changes
        Number of changes of the regime, evenly spaced.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    capacity = _check.integer("capacity", capacity, lower=2)
    waiting = _check.positive("waiting", waiting, upper=1, closed=False)
    changes = min(_check.integer("changes", changes, lower=0), M - 1)
    x = np.arange(capacity + 1)
    served = (x > 0)[:, None] * _SERVE
    rewards = np.broadcast_to(0.75 * served + 0.25 * _SLOW, (H, x.size, 4))
    utilities = np.broadcast_to(1 - x[:, None] / capacity, (1, H, x.size, 4))
    threshold, start = np.array([(1 - waiting) * H]), certain(capacity // 4, x.size)
    days = {}
    for regime, traffic in _TRAFFIC.items():
        P = _transitions(capacity, traffic * _profile(H), H)
        days[regime] = TabularCMDP(P, rewards, utilities, threshold, start)
    return DriftingCMDP([days[regime] for regime in _ORDER], drift.abrupt(M, len(_ORDER), changes))


def display(world: DriftingCMDP) -> Display:
    """Return the queue, the door and the pace of service over the day."""
    by_place = shares(world.transition_path, len(_ORDER))
    weights = np.stack([by_place[:, np.array(_ORDER) == kind].sum(axis=1) for kind in _TRAFFIC], 1)
    seen = [n for n in range(len(_TRAFFIC)) if weights[:, n].any()]
    snapshots = [Snapshot(list(_TRAFFIC)[n], last_peak(weights[:, n])) for n in seen]
    shape = (world.H, world.S, world.A)
    allowed = allowed_per_step(world, snapshots) * (world.S - 1)
    return Display(
        tuple(snapshots),
        (Drifting("traffic", tuple(_TRAFFIC), weights),),
        (
            Quantity(
                "customers waiting",
                np.broadcast_to(np.arange(world.S)[:, None], shape),
                limits=allowed,
                wanted="allowed on average",
            ),
            Quantity("door open, share of days", np.broadcast_to(_OPEN, shape)),
            Quantity("fast service, share of days", np.broadcast_to(1 - _SLOW, shape)),
        ),
        step="half hours since opening",
    )


def _profile(H: int) -> np.ndarray:
    """Arrivals over the day (H,), relative to noon."""
    hour = (np.arange(H) + 0.5) / H
    return np.asarray(_QUIET + (1 - _QUIET) * cos_turns((hour - 0.5) / 2))


def _transitions(capacity: int, arrival: np.ndarray, H: int) -> Successors:
    """P for arrival probabilities (H,): served or not, times 0, 1 or 2 customers at the door."""
    x = np.arange(capacity + 1)[:, None, None, None]
    served, came = np.arange(2)[:, None], np.arange(3)
    after = np.minimum(np.maximum(x - served, 0) + _OPEN[:, None, None] * came, capacity)
    lam = arrival[:, None]
    arrived = np.hstack(((1 - lam) ** 2, 2 * lam * (1 - lam), lam**2))
    done = np.stack((1 - _SERVE, _SERVE), axis=-1)[:, :, None]
    chance = done * arrived[:, None, None, None, :]
    return outcomes(after.reshape(x.size, 4, 6), chance.reshape(H, 1, 4, 6), H)
