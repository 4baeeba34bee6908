"""Run a home battery on sun and tariffs, and keep the reserve that the season demands.

Description
    A house with solar panels and a battery buys power at a price that changes with the hour. It
    pays to charge when power is cheap and to discharge when it is expensive. The house must keep a
    reserve for outages, more in winter than in summer. The sky of the next hours depends on the
    current one, and summers are brighter. An episode is a day of `horizon` slots from midnight to
    midnight.
States
    Charge 0 to `levels` - 1 and sky (0 overcast, 1 mixed, 2 clear), numbered 3 * charge + sky. A
    day starts half charged (rounded down) under a mixed sky.
Actions
    0 discharge one unit, 1 do nothing, 2 charge one unit.
Transitions
    Charge and sky move independently. Discharging takes one unit, charging adds one with
    probability 0.9 (losses), both within 0 and `levels` - 1. The sky keeps or changes by one grade:
    it clears with probability 0.1 in winter and 0.3 in summer, and clouds over with 0.3 and 0.1.
Reward
    The house needs one unit per slot. Sun gives s = y * sin(π (t - 6)/12) at hour t between 6 and
    18 and none at night, y = 0.2, 0.8, 1.4 by sky. The grid delivers n = 1 - s, one more to charge
    (lost or not), one less while discharging. It costs c n if n > 0 and pays 0.1 |n| else. The
    price c is 0.3 from 22 to 6, 1 from 6 to 9 and from 17 to 21, and 0.6 else. The reward is the
    money saved, c less what is paid, scaled linearly from its range over the day to [0, 1].
Utility and threshold
    Reserve: charge / (`levels` - 1). The threshold requires an average over the day of
    `reserve` + `swing` in mid-winter and `reserve` - `swing` in mid-summer.
Drift
    Transitions and threshold: the sky oscillates between winter and summer within `period`
    episodes, starting in winter, and the threshold follows a cosine over the same year. Rewards and
    utilities are fixed.
Knowledge
    Charging all day keeps the largest reserve: the Slater gap is smallest in mid-winter, 1.689
    with the default options: `Slater(1.68)`. With other options, see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 139.9, B_r = 0, B_g = 0, B_b = 19.2, gamma >=
    1.688.
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
from safedrift.kernels.elementary import cos_turns
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift
from safedrift.models.outcomes import certain, outcomes

_SUN = np.array([0.2, 0.8, 1.4])  # units per slot at noon, by sky
_FEED_IN = 0.1
_EFFICIENCY = 0.9
_SKY = {"winter": (0.3, 0.6, 0.1), "summer": (0.1, 0.6, 0.3)}  # clouds over, stays, clears


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    levels: int = 7,
    horizon: int = 8,
    reserve: float = 0.5,
    swing: float = 0.15,
    period: float | None = None,
) -> DriftingCMDP:
    """Return the house; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    levels
        Levels of charge: S = 3 * levels.
    horizon
        Slots of a day.
    reserve, swing
        Required mean charge over the year and how much more in winter, as shares of the
        battery; 0 <= swing < reserve.
    period
        Episodes per year; a quarter of all episodes by default.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    levels = _check.integer("levels", levels, lower=2)
    reserve = _check.positive("reserve", reserve, upper=1, closed=False)
    if not 0 <= _check.real("swing", swing) < min(reserve, 1 - reserve):
        _check.fail("swing", f"in [0, {min(reserve, 1 - reserve):g})", swing)
    S = 3 * levels
    charge = np.arange(S) // 3
    rewards = _money(levels, H)
    utilities = np.broadcast_to((charge / (levels - 1))[:, None], (1, H, S, 3))
    start = certain(3 * ((levels - 1) // 2) + 1, S)
    scenarios = []
    for season in ("winter", "summer"):
        P = _transitions(levels, _SKY[season], H)
        scenarios.append(TabularCMDP(P, rewards, utilities, np.full(1, reserve * H), start))
    year = drift.periodic(M, 2, period)
    winter = year[:, :1] - year[:, 1:]  # from 1 to -1 and back
    return DriftingCMDP(scenarios, year, thresholds=H * (reserve + swing * winter))


def display(world: DriftingCMDP) -> Display:
    """Return battery, grid and sun over the day."""
    weights = shares(world.transition_path, 2)
    between = last_peak(-np.abs(weights[:, 0] - 0.5))
    snapshots = (
        Snapshot("winter", last_peak(weights[:, 0])),
        Snapshot("summer", last_peak(weights[:, 1])),
        Snapshot("in between", between),
    )
    levels, H, shape = world.S // 3, world.H, (world.H, world.S, world.A)
    charge = (np.arange(world.S) // 3)[:, None]
    days = [snapshot.episode for snapshot in snapshots]
    reserve = world.thresholds[days, 0] / H * (levels - 1)
    return Display(
        snapshots,
        (
            Drifting("sky", ("winter", "summer"), weights),
            Drifting("reserve, b/H", ("b/H",), world.thresholds / H, shares=False),
        ),
        (
            Quantity(
                "charge of the battery, units",
                np.broadcast_to(charge, shape),
                limits=reserve,
                wanted="reserve, on average",
            ),
            Quantity("from the grid (below 0: to it), units", _grid(levels, H)),
            Quantity("from the sun, units per slot", np.broadcast_to(_sun(levels, H), shape)),
        ),
        step="hour of the day",
        times=_hours(H),
    )


def _money(levels: int, H: int) -> FloatArray:
    """Rewards (H, S, 3): money saved in a slot, scaled to [0, 1]."""
    t = _hours(H)
    price = np.where((t < 6) | (t >= 22), 0.3, 0.6)
    price[((t >= 6) & (t < 9)) | ((t >= 17) & (t < 21))] = 1.0
    grid, price = _grid(levels, H), price[:, None, None]
    saved = price - np.where(grid > 0, price, _FEED_IN) * grid
    return np.asarray((saved - saved.min()) / (saved.max() - saved.min()))


def _hours(H: int) -> FloatArray:
    """The middle of each slot (H,), in hours."""
    return np.asarray(24 * (np.arange(H) + 0.5) / H)


def _sun(levels: int, H: int) -> FloatArray:
    """Units that the panels give (H, S, 1)."""
    daylight = np.maximum(cos_turns((_hours(H) - 12) / 24), 0)
    return np.asarray(daylight[:, None, None] * _SUN[np.arange(3 * levels) % 3][:, None])


def _grid(levels: int, H: int) -> FloatArray:
    """Units that the grid delivers (H, S, 3), negative where it takes some."""
    charge = np.arange(3 * levels)[:, None] // 3
    moved = np.clip(charge + np.array([-1, 0, 1]), 0, levels - 1) - charge
    return np.asarray(1 - _sun(levels, H) + moved)


def _transitions(levels: int, change: tuple[float, ...], H: int) -> Successors:
    """P of a season: the battery works or not, times the sky clouds over, stays or clears."""
    charge, sky = np.divmod(np.arange(3 * levels)[:, None, None, None], 3)
    moved = np.array([-1, 0, 1])[:, None, None] * np.array([1, 0])[:, None]
    next_charge = np.clip(charge + moved, 0, levels - 1)
    next_sky = np.clip(sky + np.array([-1, 0, 1]), 0, 2)
    works = np.array([1, 1, _EFFICIENCY])
    chance = np.stack((works, 1 - works), axis=-1)[:, :, None]
    chance = chance * np.array(change)
    return outcomes((3 * next_charge + next_sky).reshape(-1, 3, 6), chance.reshape(3, 6), H)
