"""Sell power from a reservoir that must catch floods, last through droughts and supply a town.

Description
    A dam releases water through turbines month by month. Power is worth more in winter. An empty
    reservoir catches floods, a full one lasts through a drought, and the town below needs water all
    the time, most of it in summer: three constraints that ask for different levels. Years are wet
    for a while, then dry. An episode is a year of `horizon` months that starts in January.
States
    Storage 0 to `levels` - 1 and weather (0 dry, 1 normal, 2 wet), numbered 3 * storage + weather.
    A year starts half full (rounded down) in normal weather.
Actions
    Units to release: 0, 1, 2 or 3, as far as there is water.
Transitions
    Up to three units of water come in, each with probability 0.15, 0.4, 0.7 by weather times a
    profile over the year, 1.2 in April and 0.6 in October. What does not fit is spilled. The
    weather becomes wetter with probability 0.35 in wet years and 0.1 in dry ones, drier with 0.1
    and 0.35, and else stays.
Reward
    Power: released units / 3, times (0.8 + 0.2 * storage / (`levels` - 1)) for the height of the
    water, times a price, 1 in January and 0.2 in July.
Utility and threshold
    Flood margin: half of the free units, at most 1; Σ >= `margin` * H.
    Reserve: storage / (`levels` - 1); Σ >= `reserve` * H.
    Supply: released units over the town's need, at most 1; the need is 1 unit in winter and 2 from
    May to September; Σ >= `supply` * H.
Drift
    Transitions only: the weather oscillates between wet and dry years within `period` episodes,
    wet first. Rewards, utilities and thresholds are fixed.
Knowledge
    The Slater gap is smallest in the driest years, 0.4305 with the default options: `Slater(0.43)`.
    With other options, see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 235.2, B_r = 0, B_g = 0, B_b = 0, gamma >=
    0.4305.
Source
    Invented; the textbook conflict of multi-purpose reservoirs.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Display, Drifting, Quantity, Snapshot, last_peak, shares
from safedrift.kernels.elementary import cos_turns
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift
from safedrift.models.outcomes import binomial, certain, outcomes

CONSTRAINTS = ("flood margin", "reserve", "supply")

_INFLOW = np.array([0.15, 0.4, 0.7])  # probability of each unit, by weather
_WEATHER = {"wet years": (0.1, 0.55, 0.35), "dry years": (0.35, 0.55, 0.1)}  # drier, same, wetter
_RELEASES = np.arange(4)
_UNITS = 3  # that can come in within a month


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    levels: int = 9,
    horizon: int = 12,
    margin: float = 0.9,
    reserve: float = 0.55,
    supply: float = 0.65,
    period: float | None = None,
) -> DriftingCMDP:
    """Return the reservoir; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    levels
        Levels of storage: S = 3 * levels.
    horizon
        Steps of a year.
    margin, reserve, supply
        Required means over the year of the three utilities, in (0, 1).
    period
        Episodes from wet years to dry ones and back; a quarter of all episodes by default.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    levels = _check.integer("levels", levels, lower=4)
    wanted = {"margin": margin, "reserve": reserve, "supply": supply}
    shares_of = [_check.positive(name, x, upper=1, closed=False) for name, x in wanted.items()]
    S = 3 * levels
    storage = np.arange(S)[:, None] // 3
    shape = (H, S, _RELEASES.size)
    released = np.minimum(_RELEASES, storage)
    height = 0.8 + 0.2 * storage / (levels - 1)
    price = 0.6 + 0.4 * cos_turns(_months(H) / 12)
    rewards = price[:, None, None] * (released / 3 * height)
    need = _need(H)[:, None, None]
    utilities = np.stack([
        np.broadcast_to(np.minimum((levels - 1 - storage) / 2, 1.0), shape),
        np.broadcast_to(storage / (levels - 1), shape),
        np.minimum(released / need, 1.0),
    ])  # fmt: skip
    start = certain(3 * ((levels - 1) // 2) + 1, S)
    thresholds = H * np.array(shares_of)
    scenarios = [
        TabularCMDP(_transitions(levels, change, H), rewards, utilities, thresholds, start)
        for change in _WEATHER.values()
    ]
    years = drift.periodic(M, 2, period)
    world = DriftingCMDP(scenarios, years, thresholds=np.tile(thresholds, (M, 1)))
    world.constraint_names = CONSTRAINTS
    return world


def display(world: DriftingCMDP) -> Display:
    """Return storage, release and supply over the year."""
    weights = shares(world.transition_path, 2)
    snapshots = (
        Snapshot("wet years", last_peak(weights[:, 0])),
        Snapshot("dry years", last_peak(weights[:, 1])),
        Snapshot("in between", last_peak(-np.abs(weights[:, 0] - 0.5))),
    )
    levels, H, shape = world.S // 3, world.H, (world.H, world.S, world.A)
    storage = np.arange(world.S)[:, None] // 3
    b = world.thresholds[0] / H
    free = np.minimum((levels - 1 - storage) / 2, 1.0)
    served = np.minimum(np.minimum(_RELEASES, storage) / _need(H)[:, None, None], 1.0)
    return Display(
        snapshots,
        (Drifting("weather", tuple(_WEATHER), weights),),
        (
            Quantity(
                "storage, units",
                np.broadcast_to(storage, shape),
                limits=b[1:2] * (levels - 1),
                wanted="reserve, on average",
            ),
            Quantity(
                "flood margin",
                np.broadcast_to(free, shape),
                limits=b[:1],
                wanted="wanted on average",
            ),
            Quantity("supply, share of the need", served, limits=b[2:], wanted="wanted on average"),
        ),
        step="month",
        times=_months(H),
    )


def _months(H: int) -> FloatArray:
    """The middle of each step (H,), in months since the middle of January."""
    return np.asarray(12 * np.arange(H) / H)


def _need(H: int) -> FloatArray:
    """Units that the town needs in each step (H,)."""
    month = _months(H)
    return np.where((month >= 4) & (month < 9), 2.0, 1.0)


def _transitions(levels: int, change: tuple[float, ...], H: int) -> Successors:
    """P of wet or dry years: units that come in, times drier, the same or wetter."""
    storage, weather = np.divmod(np.arange(3 * levels)[:, None, None, None], 3)
    left = storage - np.minimum(_RELEASES[:, None, None], storage)
    came = np.arange(_UNITS + 1)[:, None]
    after = 3 * np.minimum(left + came, levels - 1) + np.clip(weather + np.arange(-1, 2), 0, 2)
    profile = 0.9 + 0.3 * cos_turns((_months(H) - 3) / 12)
    p = profile[:, None] * _INFLOW[np.arange(3 * levels) % 3]  # (H, S)
    inflow = binomial(np.arange(_UNITS + 1), _UNITS, p[:, :, None])
    chance = inflow[:, :, None, :, None] * np.array(change)
    J = 3 * (_UNITS + 1)
    return outcomes(after.reshape(-1, 4, J), chance.reshape(H, -1, 1, J), H)
