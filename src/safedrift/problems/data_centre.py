"""Serve jobs in a data centre: quickly, with little energy, and without wearing out the machines.

Description
    A rack works through a queue of jobs. Fast machines keep the queue short, but they use energy
    and become hot; slow ones are cheap and let jobs wait. Jobs can be turned away, which helps
    against waiting and earns nothing. Traffic and the cleanness of the grid's power change from one
    day to the next. An episode is a night of `horizon` slots.
States
    Jobs in the queue 0 to `capacity` and heat (0 cool, 1 warm, 2 hot), numbered 3 * jobs + heat.
    A night starts with a quarter of the places taken and cool machines.
Actions
    0 slow, 1 normal, 2 fast, 3 normal with the door closed: jobs that arrive are turned away.
Transitions
    Up to three jobs are done, each with probability 0.25, 0.5, 0.85, 0.5 by action. Up to three
    jobs arrive, each with probability 0.4 (normal), 0.65 (rush) or 0.2 (slack). Machines become
    hotter by one grade with probability 0.05, 0.25, 0.7, 0.25 and cooler with 0.6, 0.3, 0.05, 0.3.
Reward
    Expected number of jobs done, over three.
Utility and threshold
    Latency: 1 - jobs / `capacity`; Σ >= `latency` * H.
    Energy: 1 - power * carbon, power 0.2, 0.5, 1, 0.45 by action; carbon is 0.7 at normal traffic,
    0.9 in a rush and 1 when traffic is slack; Σ >= `energy` * H.
    Wear: 1 - heat / 2; Σ >= `wear` * H.
Drift
    Transitions, utilities: traffic and carbon jump `changes` times, normal, rush, normal, slack and
    so on, at random times. Rewards and thresholds are fixed.
Knowledge
    The Slater gap is 0.5217 in a rush, 0.8406 at normal and 0.9623 at slack traffic with the
    default options: `Slater(0.52)`. With other options, see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 141.6, B_r = 0, B_g = 113.8, B_b = 0, gamma >=
    0.5217.
Source
    Invented.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Display, Drifting, Quantity, Snapshot, last_peak, shares
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift
from safedrift.models.outcomes import binomial, certain, outcomes

CONSTRAINTS = ("latency", "energy", "wear")

_SERVE = np.array([0.25, 0.5, 0.85, 0.5])  # per action
_OPEN = np.array([1, 1, 1, 0])
_POWER = np.array([0.2, 0.5, 1.0, 0.45])
_HOTTER = np.array([0.05, 0.25, 0.7, 0.25])
_COOLER = np.array([0.6, 0.3, 0.05, 0.3])
_ARRIVALS = {"normal": 0.4, "rush": 0.65, "slack": 0.2}
_CARBON = {"normal": 0.7, "rush": 0.9, "slack": 1.0}
_ORDER = ("normal", "rush", "normal", "slack")
_JOBS = 3  # that can be done, and that can arrive, within a slot


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    capacity: int = 9,
    horizon: int = 10,
    latency: float = 0.8,
    energy: float = 0.65,
    wear: float = 0.8,
    changes: int = 7,
) -> DriftingCMDP:
    """Return the data centre; see the module docstring. `seed` draws the times of the changes.

    Parameters
    ----------
    capacity
        Places in the queue: S = 3 * (capacity + 1).
    latency, energy, wear
        Required means over the night of the three utilities, in (0, 1).
    changes
        Number of changes of traffic and carbon.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    capacity = _check.integer("capacity", capacity, lower=4)
    wanted = {"latency": latency, "energy": energy, "wear": wear}
    means = [_check.positive(name, x, upper=1, closed=False) for name, x in wanted.items()]
    changes = min(_check.integer("changes", changes, lower=0), M - 1)
    S = 3 * (capacity + 1)
    jobs, heat = np.divmod(np.arange(S)[:, None], 3)
    shape = (H, S, _SERVE.size)
    rewards = np.broadcast_to(_expected_jobs(jobs) / _JOBS, shape)
    start, thresholds = certain(3 * (capacity // 4), S), H * np.array(means)
    nights = {}
    for regime, rate in _ARRIVALS.items():
        utilities = np.stack([
            np.broadcast_to(1 - jobs / capacity, shape),
            np.broadcast_to(1 - _POWER * _CARBON[regime], shape),
            np.broadcast_to(1 - heat / 2, shape),
        ])  # fmt: skip
        P = _transitions(capacity, rate, H)
        nights[regime] = TabularCMDP(P, rewards, utilities, thresholds, start)
    path = drift.abrupt(M, len(_ORDER), changes, seed=seed)
    world = DriftingCMDP([nights[regime] for regime in _ORDER], path)
    world.constraint_names = CONSTRAINTS
    return world


def display(world: DriftingCMDP) -> Display:
    """Return queue, power and heat over the night."""
    by_place = shares(world.transition_path, len(_ORDER))
    weights = np.stack(
        [by_place[:, np.array(_ORDER) == kind].sum(axis=1) for kind in _ARRIVALS], axis=1
    )
    seen = [n for n in range(len(_ARRIVALS)) if weights[:, n].any()]
    snapshots = tuple(Snapshot(list(_ARRIVALS)[n], last_peak(weights[:, n])) for n in seen)
    carbon = np.array([_CARBON[snapshot.name] for snapshot in snapshots])
    jobs, heat = np.divmod(np.arange(world.S)[:, None], 3)
    shape = (world.H, world.S, world.A)
    loss = 1 - world.thresholds[0] / world.H
    allowed = "allowed on average"
    return Display(
        snapshots,
        (Drifting("traffic", tuple(_ARRIVALS), weights),),
        (
            Quantity(
                "jobs in the queue",
                np.broadcast_to(jobs, shape),
                limits=loss[:1] * (world.S // 3 - 1),
                wanted=allowed,
            ),
            Quantity(
                "carbon: power times intensity",
                np.broadcast_to(_POWER, shape) * carbon[:, None, None, None],
                limits=loss[1:2],
                wanted=allowed,
            ),
            Quantity(
                "heat, 0 cool to 2 hot",
                np.broadcast_to(heat, shape),
                limits=2 * loss[2:],
                wanted=allowed,
            ),
        ),
        step="slot",
    )


def _expected_jobs(jobs: np.ndarray) -> FloatArray:
    """Expected number of jobs done (S, A): as many as machines can do, and as there are."""
    n = np.arange(_JOBS + 1)
    able = binomial(n, _JOBS, _SERVE[:, None])  # (A, 4)
    return np.asarray((able * np.minimum(n, jobs[:, :, None])).sum(axis=-1))


def _transitions(capacity: int, rate: float, H: int) -> Successors:
    """P of a regime: jobs done, times jobs that arrive, times heat."""
    jobs, heat = np.divmod(np.arange(3 * (capacity + 1))[:, None, None, None, None], 3)
    n = np.arange(_JOBS + 1)
    done, came, grade = n[:, None, None], n[:, None], np.arange(-1, 2)
    left = np.maximum(jobs - done, 0) + _OPEN[:, None, None, None] * came
    after = 3 * np.minimum(left, capacity) + np.clip(heat + grade, 0, 2)
    able = binomial(n, _JOBS, _SERVE[:, None])[:, :, None, None]
    arrived = binomial(n, _JOBS, rate)[:, None]
    change = np.stack((_COOLER, 1 - _COOLER - _HOTTER, _HOTTER), axis=-1)[:, None, None]
    chance = able * arrived * change
    J = 3 * (_JOBS + 1) * (_JOBS + 1)
    return outcomes(after.reshape(-1, 4, J), chance.reshape(4, J), H)
