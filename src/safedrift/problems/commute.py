"""Follow a car on the way to work for four years, in the recorded weather of Seattle.

Description
    The commuter of `driving` lives in Seattle, where traffic is denser. The state of the road
    on a day follows from the records of a weather station: rain, frost and wind from 1 January 2012
    to 31 December 2015, 1461 days. An episode is a trip.
States
    As in `driving`: gap to the car ahead, 0 to `gaps` - 1 lengths, and speed, 0 to `speeds` - 1
    lengths per step, numbered gap * `speeds` + speed. Gap 0 is a near miss.
Actions
    0 brake, 1 keep the speed, 2 accelerate.
Transitions
    As in `driving`: braking works with probability 1 (dry), 0.7 (wet), 0.4 (ice), accelerating with
    1, 0.9, 0.8; the speed of the car ahead varies; a near miss ends in an emergency stop.
Reward
    Progress: speed / (`speeds` - 1).
Utility and threshold
    1 for every step that does not start at gap 0. The threshold H - `misses` allows `misses`
    expected near misses per trip.
Drift
    Transitions only: the shares of the road that are dry, wet and icy on the day of the trip. From
    its precipitation p (mm), lowest and highest temperature T_min and T_max (°C) and mean wind v
    (m/s):
    frost f = (2 - T_min)/(T_max - T_min), kept in [0, 1], the share of the day below 2 °C
    (a road under a clear sky is colder than the air);
    water w = p/(p + d), d = 1 mm (1 + 0.54 v), rain against drying by the wind;
    ice = f (0.3 + 0.7 w), since hoarfrost needs no rain; wet = (1 - f) w; dry = the rest.
    By default the 1461 days are spread evenly over all episodes, once from first to last: 13 or 14
    trips a day if there are 20,000 episodes; with fewer than 1461 episodes, days are skipped. With
    `episodes_per_day` the record is repeated after its end. Rewards, utilities and threshold are
    fixed.
Knowledge
    A car that never starts has no near miss: `Slater(misses)` holds in every episode with equality,
    0.1 with the default options.
Budgets
    With the default options and M = 2000: B_P = 3320, B_r = 0, B_g = 0, B_b = 0, gamma >= 0.1.
Source
    The file seattle-weather.csv of the Python package vega_datasets (MIT licence), which
    `pip install 'safedrift[data]'` installs; it comes from public-domain daily summaries of NOAA,
    the weather service of the United States. 1 + 0.54 v is Penman's wind function of evaporation
    (1948); the other constants, and the road, are invented.
Version
    0
"""

from __future__ import annotations

from functools import cache

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Display
from safedrift.models import DriftingCMDP
from safedrift.problems.driving import road, trip
from safedrift.problems.recorded_data import columns, day_of_episode

_FROST = 2.0  # °C of the air, below which a wet road freezes
_HOAR = 0.3  # share of the road that frost makes icy without any rain
_DRYING, _WIND = 1.0, 0.54  # mm per day in calm air, and how much more per m/s of wind


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    gaps: int = 6,
    speeds: int = 4,
    horizon: int = 10,
    misses: float = 0.1,
    episodes_per_day: int | None = None,
) -> DriftingCMDP:
    """Return the road; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    gaps, speeds
        Number of distinct gaps and speeds: S = gaps * speeds.
    misses
        Allowed expected near misses per trip.
    episodes_per_day
        Trips on each recorded day; by default the record is spread over all episodes.
    """
    M = _check.integer("episodes", episodes)
    weather = road_shares(*seattle())
    day = day_of_episode(M, len(weather), episodes_per_day)
    return road(weather[day], gaps=gaps, speeds=speeds, horizon=horizon, misses=misses)


def display(world: DriftingCMDP) -> Display:
    """Return a trip on a dry day, the wettest and the iciest."""
    return trip(world, build)


@cache
def seattle() -> tuple[FloatArray, ...]:
    """Return precipitation (mm), least and largest temperature (°C), wind (m/s), each (1461,)."""
    names = ("precipitation", "temp_min", "temp_max", "wind")
    found = columns("vega_datasets", "_data/seattle-weather.csv", names)
    return tuple(_check.floats(name, found[name], ("days",)) for name in names)


def road_shares(
    precipitation: FloatArray, temp_min: FloatArray, temp_max: FloatArray, wind: FloatArray
) -> FloatArray:
    """Return the shares (days, 3) of the road that are dry, wet and icy."""
    frost = np.clip((_FROST - temp_min) / np.maximum(temp_max - temp_min, 1e-9), 0, 1)
    water = precipitation / (precipitation + _DRYING * (1 + _WIND * wind))
    ice, wet = frost * (_HOAR + (1 - _HOAR) * water), (1 - frost) * water
    return np.stack((1 - wet - ice, wet, ice), axis=1)
