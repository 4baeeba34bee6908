"""Seven named problems do what their docstrings claim: by hand and by independent simulation."""

import re
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest
from test_named_worlds import assert_same_world, refused

from safedrift import PROPDPPO, Slater, budgets, evaluate, optima, simulate, solve, variation
from safedrift.models import DriftingCMDP, TabularCMDP
from safedrift.models.outcomes import outcomes
from safedrift.problems import documentation, make

M = 40

# name: documented Slater gap, whether it is attained exactly, what drifts, whether the seed matters
CLAIMS = {
    "energy": SimpleNamespace(gamma=1.68, exact=False, moves="Pb", random=False),
    "inventory": SimpleNamespace(gamma=0.69, exact=False, moves="Prg", random=False),
    "queue": SimpleNamespace(gamma=1.08, exact=False, moves="P", random=False),
    "dosing": SimpleNamespace(gamma=0.25, exact=True, moves="Pr", random=True),
    "driving": SimpleNamespace(gamma=0.2, exact=True, moves="P", random=True),
    "adversary": SimpleNamespace(gamma=1.5, exact=True, moves="P", random=False),
    "stationary": SimpleNamespace(gamma=0.5, exact=True, moves="", random=False),
}


def section(name, heading):
    found = re.search(rf"^{heading}\n((?: {{4}}.*\n)+)", documentation(name), flags=re.MULTILINE)
    return " ".join(found[1].split())


# ---------------------------------------------------------------- all seven


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize(("episodes", "seed"), [(M, 0), (2_000, 1), (20_000, 0)])
def test_documented_slater_gap_holds(name, episodes, seed):
    world, claim = make(name, episodes, seed), CLAIMS[name]
    gamma = optima(world, np.unique(np.linspace(0, episodes - 1, 100).astype(int))).gamma
    if claim.exact:
        np.testing.assert_allclose(gamma, claim.gamma, atol=1e-11)
    else:
        assert claim.gamma <= gamma.min() <= claim.gamma + 0.01
    assert f"{claim.gamma:g}" in section(name, "Knowledge")


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_only_what_the_docstring_names_drifts(name, norm):
    change = variation(make(name, episodes=M), norm)
    moved = {part for part in "Prgb" if getattr(change, part).sum() > 0}
    assert moved == set(CLAIMS[name].moves)
    text = section(name, "Drift")
    words = {"P": "Transitions", "r": "Rewards", "g": "Utilities", "b": "threshold"}
    if len(moved) == 1:
        assert text.startswith(words[moved.pop()] + " only")
    elif moved:
        named = re.split(r"[:;,.] ", text.replace(", rewards", " rewards"))[0].lower()
        assert {part for part, word in words.items() if word.lower() in named} == moved
    else:
        assert text.startswith("None")


@pytest.mark.parametrize("name", CLAIMS)
def test_budgets_are_finite_and_those_of_the_variation(name):
    world = make(name, episodes=M)
    found, change = budgets(world), variation(world)
    assert np.isfinite(list(found)).all()
    assert (found.star > 0) == (name != "stationary")
    for part in "Prgb":
        assert getattr(found, part) == pytest.approx(getattr(change, part).sum(), abs=1e-12)


@pytest.mark.parametrize("name", CLAIMS)
def test_seed_changes_what_is_random_and_nothing_else(name):
    one, other = (make(name, episodes=M, seed=seed) for seed in (1, 2))
    if not CLAIMS[name].random:
        assert_same_world(one, other)
        return
    assert (one.transition_path.weight != other.transition_path.weight).any()
    for mine, its in zip(one.scenarios, other.scenarios, strict=True):
        np.testing.assert_array_equal(mine.dense_transitions(), its.dense_transitions())


@pytest.mark.parametrize("name", CLAIMS)
def test_constraint_binds_in_a_good_share_of_the_episodes(name):
    found = optima(make(name, 20_000), np.arange(0, 20_000, 100))
    assert (found.multipliers > 0.01).mean() >= 0.5


@pytest.mark.parametrize("name", CLAIMS)
def test_learner_beats_the_uniform_policy_by_far_and_stays_safe(name):
    world = make(name, 20_000)
    agent = PROPDPPO.for_problem(world, Slater(CLAIMS[name].gamma))
    run = simulate(world, agent, measure_every=20)
    factor = 0.45 if name == "adversary" else 0.25
    assert run.dynamic_regret[-1] <= factor * run.cumulative_baseline_regret[-1]
    assert run.violation[-1, 0] <= 0.01 * world.M


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("energy", {"levels": 20, "horizon": 24}, (24, 60, 3)),
        ("inventory", {"capacity": 30, "customers": 30, "pack": 5, "largest": 6}, (7, 31, 7)),
        ("queue", {"capacity": 50, "horizon": 20}, (20, 51, 4)),
        ("dosing", {"levels": 40, "largest": 9, "horizon": 12}, (12, 40, 10)),
        ("driving", {"gaps": 30, "speeds": 7, "horizon": 15}, (15, 210, 3)),
        ("adversary", {"rungs": 5, "directions": 6, "horizon": 20}, (20, 6, 7)),
        ("stationary", {"machines": 50, "horizon": 4}, (4, 100, 3)),
    ],
)
def test_options_scale_the_sizes_and_the_world_stays_feasible(name, options, sizes):
    world = make(name, episodes=M, **options)
    assert isinstance(world, DriftingCMDP)
    assert sizes == (world.H, world.S, world.A)
    assert (optima(world).gamma > 0).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("energy", {"levels": 20_000}),
        ("queue", {"capacity": 60_000}),
        ("driving", {"gaps": 10_000, "speeds": 6}),
        ("adversary", {"rungs": 1, "directions": 3_000}),
        ("stationary", {"machines": 30_000}),
    ],
)
def test_large_worlds_need_no_array_of_states_times_states(name, options):
    world = make(name, episodes=2, horizon=3, **options)
    pairs = world.H * world.S * world.A
    assert pairs <= world.arrays.states.size <= 9 * pairs


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("episodes", [1, 2, 3])
def test_few_episodes_are_enough(name, episodes):
    assert optima(make(name, episodes)).feasible.all()


def test_outcomes_add_up_and_leave_out_what_cannot_happen():
    after = np.array([[[1, 1, 0]], [[0, 1, 1]]])  # S = 2, A = 1, J = 3
    lists = outcomes(after, np.array([0.25, 0.25, 0.5]), H=1)
    certain = outcomes(after, np.array([1.0, 0.0, 0.0]), H=2)
    half = np.full((1, 2, 1), 0.5)
    cmdp = TabularCMDP(lists, half, half[None], np.array([0.1]), np.eye(2)[0])
    np.testing.assert_array_equal(cmdp.dense_transitions()[0, :, 0], [[0.5, 0.5], [0.25, 0.75]])
    np.testing.assert_array_equal(certain.states, [1, 0, 1, 0])
    np.testing.assert_array_equal(certain.probabilities, 1)


# ---------------------------------------------------------------- independent simulation


class Energy:
    """A house, hour by hour, from its docstring."""

    SUN, CLEARS, CLOUDS = (0.2, 0.8, 1.4), (0.1, 0.3), (0.3, 0.1)

    def start(self, rng, n):
        return np.full(n, 3 * 3 + 1)

    def step(self, rng, share, h, x, a):
        charge, sky = x // 3, x % 3
        money = [self.saved(k, s, d) for k, s, d in zip([h] * x.size, x, a, strict=True)]
        lost = (a == 2) & (rng.random(x.size) >= 0.9)
        after = np.clip(charge + np.where(lost, 0, a - 1), 0, 6)
        summer = (rng.random(x.size) < share[1]).astype(int)
        u = rng.random(x.size)
        clears = u < np.take(self.CLEARS, summer)
        clouds = u >= 1 - np.take(self.CLOUDS, summer)
        sky = np.clip(sky + clears - clouds, 0, 2)
        low, high = self.range
        return (np.array(money) - low) / (high - low), charge / 6, 3 * after + sky

    @staticmethod
    def saved(h, x, a):
        t, charge = 3 * h + 1.5, x // 3
        price = 1 if 6 <= t < 9 or 17 <= t < 21 else 0.6 if 6 <= t < 22 else 0.3
        sun = Energy.SUN[x % 3] * max(np.sin(np.pi * (t - 6) / 12), 0)
        grid = 1 - sun + (1 if a == 2 and charge < 6 else 0) - (1 if a == 0 and charge > 0 else 0)
        return price - (price * grid if grid > 0 else 0.1 * grid)

    @property
    def range(self):
        values = [self.saved(h, x, a) for h in range(8) for x in range(21) for a in range(3)]
        return min(values), max(values)


class Inventory:
    """A shelf, day by day, from its docstring."""

    BUY = (0.2, 0.4, 0.6)

    def __init__(self):
        money = [
            sum(comb(10, D) * p**D * (1 - p) ** (10 - D) * self.money(x, a, D) for D in range(11))
            for p in self.BUY for x in range(11) for a in range(4)
        ]  # fmt: skip
        self.low, self.high = min(money), max(money)

    @staticmethod
    def money(x, a, D):
        y = np.minimum(x + 3 * a, 10)
        sold = np.minimum(y, D)
        return 0.2 * sold - 0.1 * (y - sold) - 0.8 * (a > 0)

    def start(self, rng, n):
        return np.zeros(n, int)

    def step(self, rng, share, h, x, a):
        D = rng.binomial(10, np.take(self.BUY, rng.choice(3, x.size, p=share)))
        y = np.minimum(x + 3 * a, 10)
        served = np.where(D == 0, 1, np.minimum(y, D) / np.maximum(D, 1))
        money = (self.money(x, a, D) - self.low) / (self.high - self.low)
        return money, served, np.maximum(y - D, 0)


class Queue:
    """A counter, half hour by half hour, from its docstring."""

    TRAFFIC = (0.35, 0.2, 0.35, 0.7)

    def start(self, rng, n):
        return np.full(n, 2)

    def step(self, rng, share, h, x, a):
        fast, is_open = a % 2 == 1, a < 2
        traffic = np.take(self.TRAFFIC, rng.choice(4, x.size, p=share))
        arrival = traffic * (0.6 + 0.4 * np.sin(np.pi * (h + 0.5) / 10))
        came = rng.binomial(2, arrival)
        served = (x > 0) & (rng.random(x.size) < np.where(fast, 0.9, 0.45))
        after = np.minimum(x - served + is_open * came, 8)
        return 0.75 * served + 0.25 * ~fast, 1 - x / 8, after


class Dosing:
    """A patient, dose by dose, from the docstring: 13 levels, safe up to 8."""

    KEEP, HALF = (0.5, 0.65, 0.8), (0.6 * 8, 0.9 * 8)

    def start(self, rng, n):
        return np.zeros(n, int)

    def step(self, rng, share, h, x, a):
        peak = np.minimum(x + a, 12)
        half = np.take(self.HALF, rng.choice(2, x.size, p=self.response[:2]))
        left = rng.binomial(peak, np.take(self.KEEP, rng.choice(3, x.size, p=share)))
        return peak**4 / (half**4 + peak**4), 1 - np.maximum(peak - 8, 0) / 4, left


class Driving:
    """A trip, step by step, from the docstring."""

    BRAKE, ACCELERATE = (1, 0.7, 0.4), (1, 0.9, 0.8)

    def start(self, rng, n):
        return np.full(n, 4 * 4)

    def step(self, rng, share, h, x, a):
        gap, speed = x // 4, x % 4
        weather = rng.choice(3, x.size, p=share)
        grip = np.where(a == 0, np.take(self.BRAKE, weather), np.take(self.ACCELERATE, weather))
        faster = np.clip(speed + np.where(rng.random(x.size) < grip, a - 1, 0), 0, 3)
        ahead = np.minimum(gap + rng.choice([0, 1, 2], x.size, p=[0.3, 0.4, 0.3]) - faster, 7)
        return speed / 3, gap > 0, np.where(ahead <= 0, 0, 4 * ahead + faster)


class Adversary:
    """A ladder, rung by rung, from the docstring."""

    def start(self, rng, n):
        return np.zeros(n, int)

    def step(self, rng, share, h, x, a):
        good = 1 if share[0] == 1 else 3
        u = rng.random(x.size)
        up = (a > 0) & (u < np.where(a == good, 0.9, 0.1))
        falls = (a > 0) | (u < 0.1)
        return x / 2, a == 0, np.where(x == 2, np.where(falls, 0, 2), x + up)


class Stationary:
    """A shop, step by step, from its docstring."""

    def start(self, rng, n):
        return 2 * rng.integers(0, 4, n)

    def step(self, rng, share, h, x, a):
        runs = x % 2 == 0
        breaks = runs & (a == 2) & (rng.random(x.size) < 0.1)
        return runs * np.take([0, 0.5, 1], a), runs, x + breaks


SIMULATORS = {
    "energy": Energy, "inventory": Inventory, "queue": Queue, "dosing": Dosing,
    "driving": Driving, "adversary": Adversary, "stationary": Stationary,
}  # fmt: skip


def dense_row(path, m, N):
    row = np.zeros(N)
    np.add.at(row, path.scenario[m], path.weight[m])
    return row


@pytest.mark.parametrize("name", SIMULATORS)
@pytest.mark.parametrize("m", [7, 23])
def test_exact_values_agree_with_an_independent_simulation(name, m):
    # In episode m a customer, patient, sky, ... is of scenario n with probability w[m, n].
    world, simulator, n = make(name, episodes=M, seed=4), SIMULATORS[name](), 20_000
    share = dense_row(world.transition_path, m, len(world.scenarios))
    simulator.response = dense_row(world.reward_path, m, len(world.scenarios))
    rng = np.random.default_rng(1)
    policy = rng.dirichlet(np.ones(world.A), (world.H, world.S))
    x, total = simulator.start(rng, n), np.zeros((2, n))
    for h in range(world.H):
        u = rng.random((n, 1))
        a = np.minimum((policy[h, x].cumsum(axis=1) < u).sum(axis=1), world.A - 1)
        r, g, x = simulator.step(rng, share, h, x, a)
        total += r, g
    error = total.std(axis=1) / np.sqrt(n)
    assert (np.abs(total.mean(axis=1) - evaluate(world.at(m), policy)) <= 4 * error).all()


# ---------------------------------------------------------------- energy


def test_hour_of_the_house_by_hand():
    winter = make("energy", episodes=M).at(0)
    P = winter.dense_transitions()
    row = np.zeros(21)  # charge 2, mixed sky, charging
    row[3 * 3 + np.arange(3)] = 0.9 * np.array([0.3, 0.6, 0.1])
    row[3 * 2 + np.arange(3)] = 0.1 * np.array([0.3, 0.6, 0.1])
    np.testing.assert_allclose(P[0, 3 * 2 + 1, 2], row, atol=1e-15)
    assert P[0, 0, 0, 0] == pytest.approx(0.9), "an empty battery and the darkest sky stay"
    summer = make("energy", episodes=M, period=20).at(10).dense_transitions()[0]
    np.testing.assert_allclose(summer[3 * 2 + 1, 0, 3:6], [0.1, 0.6, 0.3], atol=1e-15)
    # The best slot: 7:30 under a clear sky, with the battery serving the house and the sun sold.
    low, high = Energy().range
    assert high == pytest.approx(1 + 0.1 * (1.4 * np.sin(np.pi / 8)), abs=1e-12)
    night = winter.rewards[0, 3 * 2 + 1] * (high - low) + low
    np.testing.assert_allclose(night, [0.3, 0, -0.3], atol=1e-12)
    assert winter.initial[3 * 3 + 1] == 1


def test_required_reserve_is_a_cosine_of_the_year():
    world = make("energy", episodes=M, period=20, reserve=0.4, swing=0.2)
    expected = 8 * (0.4 + 0.2 * np.cos(2 * np.pi * np.arange(M) / 20))
    np.testing.assert_allclose(world.thresholds[:, 0], expected, atol=1e-12)
    assert variation(make("energy", episodes=M, swing=0)).b.sum() == 0


def test_battery_buys_at_low_prices_and_sells_at_high_ones():
    cmdp = make("energy", episodes=20_000).at(2_500)
    policy, charge, seen = solve(cmdp).policy, np.arange(21) // 3, cmdp.initial
    means = []
    for h, P in enumerate(cmdp.dense_transitions()):
        means.append(seen @ charge)
        seen = np.einsum("x,xa,xay->y", seen, policy[h], P)
    change = np.diff([*means, seen @ charge])
    assert change[[2, 6]].max() < 0, "expensive at 7:30 and at 19:30"
    assert change[1] > 0.5, "cheap at 4:30"


def test_larger_battery_never_saves_less():
    sizes = (2, 3, 5, 7, 11)
    values = [
        optima(make("energy", episodes=M, levels=n, reserve=0.01, swing=0)).value for n in sizes
    ]
    assert (np.diff(values, axis=0) >= -1e-12).all()


def test_summer_pays_more_than_winter_and_the_reserve_costs_money():
    world = make("energy", episodes=M, period=20)
    found = optima(world)
    assert found.value[10] > found.value[0] + 0.3
    assert found.multipliers[0, 0] > 0.3
    stricter = optima(make("energy", episodes=M, period=20, reserve=0.6))
    assert (stricter.value <= found.value + 1e-12).all()
    assert stricter.value[0] < found.value[0]


# ---------------------------------------------------------------- inventory


def test_day_of_the_shelf_by_hand():
    quiet = make("inventory", episodes=M).at(0)
    chance = [comb(10, D) * 0.2**D * 0.8 ** (10 - D) for D in range(11)]
    row = np.zeros(11)  # 2 on the shelf, one pack of 3
    row[[5, 4, 3, 2, 1, 0]] = *chance[:5], sum(chance[5:])
    np.testing.assert_allclose(quiet.dense_transitions()[0, 2, 1], row, atol=1e-15)
    level = chance[0] + sum(chance[D] * min(5, D) / D for D in range(1, 11))
    assert quiet.utilities[0, 0, 2, 1] == pytest.approx(level, abs=1e-14)
    assert quiet.utilities[0, 0, 0, 0] == pytest.approx(chance[0], abs=1e-14)
    np.testing.assert_allclose(quiet.thresholds, 0.9 * 7)


def test_demand_grows_jumps_and_falls_back():
    path = make("inventory", episodes=100).transition_path
    weights = np.array([dense_row(path, m, 3) for m in range(100)])
    np.testing.assert_allclose(weights[:60, 1], np.arange(60) / 60, atol=1e-12)
    np.testing.assert_array_equal(weights[60:75, 2], 1)
    np.testing.assert_allclose(weights[75:, 1], (100 - np.arange(75, 100)) / 25, atol=1e-12)
    change = variation(make("inventory", episodes=100)).P.sum(axis=1)
    assert set(np.argsort(change)[-2:]) == {60, 75}


def test_more_demand_empties_the_shelf_and_serves_a_smaller_share():
    quiet, _, campaign = make("inventory", episodes=M).scenarios
    assert (campaign.utilities <= quiet.utilities + 1e-12).all()
    stock = np.arange(11)
    left = campaign.dense_transitions() @ stock - quiet.dense_transitions() @ stock
    assert (left <= 1e-12).all()


def test_service_costs_money_and_deliveries_are_pooled():
    values = [
        optima(make("inventory", episodes=M, service=service)).value for service in (0.8, 0.9, 0.95)
    ]
    assert (np.diff(values, axis=0) < 0).all()
    policy = solve(make("inventory", episodes=M).at(0)).policy
    assert policy[0, 8, 0] == pytest.approx(1), "a full shelf waits for customers"
    assert policy[0, 0, 0] < 0.01, "an empty one is filled"


# ---------------------------------------------------------------- queue


def test_half_hour_of_the_counter_by_hand():
    world = make("queue", episodes=M)
    P = world.at(0).dense_transitions()
    lam = 0.35 * (0.6 + 0.4 * np.sin(np.pi * 4.5 / 10))
    row = np.zeros(9)  # three wait, door open, fast
    come = np.array([(1 - lam) ** 2, 2 * lam * (1 - lam), lam**2])
    row[2:5] += 0.9 * come
    row[3:6] += 0.1 * come
    np.testing.assert_allclose(P[4, 3, 1], row, atol=1e-15)
    full = np.zeros(9)  # a full queue, door open, slow
    full[[7, 8]] = 0.45 * come[0], 1 - 0.45 * come[0]
    np.testing.assert_allclose(P[4, 8, 0], full, atol=1e-15)
    np.testing.assert_allclose(P[:, 0, 2:, 0], 1, err_msg="behind a closed door nothing happens")
    np.testing.assert_allclose(world.at(0).rewards[0, 0], [0.25, 0, 0.25, 0])
    np.testing.assert_allclose(world.at(0).rewards[0, 1], [0.5875, 0.675, 0.5875, 0.675])
    np.testing.assert_allclose(world.at(0).utilities[0, :, 6], 0.25)


@pytest.mark.parametrize("changes", [0, 1, 5])
def test_regime_changes_as_often_as_asked(changes):
    world = make("queue", episodes=60, changes=changes)
    change = variation(world)
    assert (change.P.sum(axis=1) > 0).sum() == changes
    regime = world.transition_path.scenario[:, 0]
    np.testing.assert_array_equal(regime[:: 60 // (changes + 1)], np.arange(changes + 1) % 4)


def test_closed_door_is_the_same_in_every_regime_and_an_open_one_is_not():
    slack, normal, rush = (make("queue", episodes=M).scenarios[n] for n in (1, 2, 3))
    length = np.arange(9)
    after = [day.dense_transitions() @ length for day in (slack, normal, rush)]
    np.testing.assert_allclose(after[0][..., 2:], after[2][..., 2:], atol=1e-14)
    assert (after[0][:, :-1, :2] < after[1][:, :-1, :2]).all()
    assert (after[1][:, :-1, :2] < after[2][:, :-1, :2]).all()


def test_patient_customers_bring_more():
    values = [
        optima(make("queue", episodes=M, waiting=waiting)).value for waiting in (0.1, 0.15, 0.2)
    ]
    assert (np.diff(values, axis=0) > 0).all()


def test_policy_of_a_slack_week_fails_in_the_rush():
    slack, rush = (make("queue", episodes=M).scenarios[n] for n in (1, 3))
    assert evaluate(rush, solve(slack).policy)[1] < rush.thresholds[0] - 1
    assert evaluate(slack, solve(rush).policy)[0] < solve(slack).value - 0.5


# ---------------------------------------------------------------- dosing


def test_dose_by_hand():
    world = make("dosing", episodes=M)
    rapid, normal, slow = world.scenarios
    row = np.zeros(13)  # 2 units and 1 more: of 3, each stays with probability 0.65
    row[:4] = 0.35**3, 3 * 0.65 * 0.35**2, 3 * 0.65**2 * 0.35, 0.65**3
    np.testing.assert_allclose(normal.dense_transitions()[0, 2, 1], row, atol=1e-15)
    for patient, keep in ((rapid, 0.5), (slow, 0.8)):
        left = patient.dense_transitions()[0] @ np.arange(13)
        np.testing.assert_allclose(left[:9, 2], keep * np.arange(2, 11), atol=1e-12)
    assert rapid.rewards[0, 5, 3] == pytest.approx(8**4 / (4.8**4 + 8**4))
    np.testing.assert_allclose(1 - rapid.utilities[0, 0, [5, 6, 9, 12], 3], [0, 0.25, 1, 1])
    assert (rapid.rewards[:, 0, 0] == 0).all(), "no drug, no effect"


def test_effect_grows_with_the_dose_and_sensitive_patients_feel_more():
    sensitive, tolerant, _ = make("dosing", episodes=M).scenarios
    assert (np.diff(sensitive.rewards, axis=-1) >= 0).all()
    assert (sensitive.rewards >= tolerant.rewards).all()
    assert (np.diff(sensitive.utilities, axis=-1) <= 0).all()


def test_larger_doses_to_choose_from_never_lower_the_effect():
    values = [optima(make("dosing", episodes=M, largest=n)).value for n in (1, 2, 3, 5)]
    assert (np.diff(values, axis=0) >= -1e-12).all()


def test_slow_metabolisers_are_harmed_by_the_doses_of_rapid_ones():
    rapid, _, slow = make("dosing", episodes=M).scenarios
    assert evaluate(slow, solve(rapid).policy)[1] < slow.thresholds[0] - 1


def test_walks_of_clearance_and_response_are_different_ones():
    world = make("dosing", episodes=200, step=0.02)
    clearance = np.array([dense_row(world.transition_path, m, 3) for m in range(200)])
    response = np.array([dense_row(world.reward_path, m, 3) for m in range(200)])
    assert (response[:, 2] == 0).all()
    assert np.abs(np.diff(clearance[:, 0])).max() < 0.2
    assert np.abs(np.corrcoef(np.diff(clearance[:, 0]), np.diff(response[:, 0]))[0, 1]) < 0.3
    calm = variation(make("dosing", episodes=200, step=0.001))
    assert calm.P.sum() < variation(world).P.sum() / 5


# ---------------------------------------------------------------- driving


def test_step_on_the_road_by_hand():
    dry, wet, ice = make("driving", episodes=M).scenarios
    row = np.zeros(32)  # gap 2, speed 2, accelerating on ice: speed 3 with 0.8, else 2
    row[0] = 0.8 * (0.3 + 0.4) + 0.2 * 0.3  # gap 2 + u - v' <= 0
    row[1 * 4 + 3] = 0.8 * 0.3
    row[1 * 4 + 2] = 0.2 * 0.4
    row[2 * 4 + 2] = 0.2 * 0.3
    np.testing.assert_allclose(ice.dense_transitions()[0, 2 * 4 + 2, 2], row, atol=1e-15)
    stop = np.zeros(32)  # gap 7, speed 1, braking on a dry road: the gap stays within the scale
    stop[7 * 4] = 1
    np.testing.assert_allclose(dry.dense_transitions()[0, 7 * 4 + 1, 0], stop, atol=1e-15)
    for road, brakes, accelerates in ((dry, 1, 1), (wet, 0.7, 0.9), (ice, 0.4, 0.8)):
        speed = road.dense_transitions()[0, 4 * 4 + 1] @ (np.arange(32) % 4)
        np.testing.assert_allclose(speed, [1 - brakes, 1, 1 + accelerates], atol=1e-14)
    near = wet.dense_transitions()[0, 0, 1]  # after an emergency stop the car ahead drives on
    np.testing.assert_allclose(near[[0, 1 * 4, 2 * 4]], [0.3, 0.4, 0.3], atol=1e-15)
    np.testing.assert_allclose(dry.rewards[0, :4, 0], [0, 1 / 3, 2 / 3, 1])
    assert (dry.utilities[0, :, :4] == 0).all()
    assert (dry.utilities[0, :, 4:] == 1).all()


def test_habits_of_dry_roads_are_dangerous_on_ice():
    dry, wet, ice = make("driving", episodes=M).scenarios
    habits = solve(dry).policy
    misses = [10 - evaluate(road, habits)[1] for road in (dry, wet, ice)]
    assert misses[0] == pytest.approx(0.2, abs=1e-9)
    assert misses[0] + 0.05 < misses[1] < misses[2] - 0.05
    values = [solve(road).value for road in (dry, wet, ice)]
    assert values[0] > values[1] > values[2]


def test_weather_follows_the_year_except_for_storms():
    quiet, stormy = (make("driving", episodes=400, storms=n, seed=2) for n in (0, 3))
    year = [dense_row(quiet.transition_path, m, 3) for m in (0, 25, 50, 100)]
    np.testing.assert_allclose(year, np.eye(3)[[0, 1, 2, 0]], atol=1e-12)
    differs = np.flatnonzero(
        [
            not np.allclose(*(dense_row(w.transition_path, m, 3) for w in (quiet, stormy)))
            for m in range(400)
        ]
    )
    assert 4 <= differs.size <= 12
    for m in differs:
        np.testing.assert_array_equal(dense_row(stormy.transition_path, m, 3), [0, 0, 1])


def test_braver_drivers_are_faster():
    values = [optima(make("driving", episodes=M, misses=n)).value for n in (0.05, 0.1, 0.2)]
    assert (np.diff(values, axis=0) > 0).all()


# ---------------------------------------------------------------- adversary


@pytest.mark.parametrize(("episodes", "period", "every"), [(40, 7, 7), (40, 1, 1), (40, None, 20),
                                                           (20_000, None, 5894)])  # fmt: skip
def test_worlds_alternate_exactly(episodes, period, every):
    world = make("adversary", episodes, period=period)
    which = world.transition_path.scenario[:, 0]
    np.testing.assert_array_equal(which, np.arange(episodes) // every % 2)
    moved = np.flatnonzero(variation(world).P.sum(axis=1))
    np.testing.assert_array_equal(moved, np.arange(every, episodes, every))


@pytest.mark.parametrize("gap", [0.1, 0.4, 0.5])
@pytest.mark.parametrize("directions", [2, 4])
def test_worlds_of_the_adversary_are_mirrored_and_disagree(gap, directions):
    even, odd = make("adversary", episodes=M, gap=gap, directions=directions).scenarios
    left, right = solve(even), solve(odd)
    assert left.value == pytest.approx(right.value, abs=1e-12)
    assert left.multipliers[0] == pytest.approx(right.multipliers[0], abs=1e-9)
    assert left.multipliers[0] > 0.1
    here, there = (evaluate(one, left.policy)[0] for one in (even, odd))
    assert there < here - gap, "the way up of one world leads nowhere in the other"
    mirror = [0, directions, *range(2, directions), 1]
    P, Q = even.dense_transitions(), odd.dense_transitions()
    np.testing.assert_array_equal(P, Q[:, :, mirror])


def test_rung_by_hand():
    even, odd = make("adversary", episodes=M).scenarios
    P = even.dense_transitions()[0]
    np.testing.assert_allclose(P[0], [[1, 0, 0], [0.1, 0.9, 0], *[[0.9, 0.1, 0]] * 2], atol=1e-15)
    np.testing.assert_allclose(P[2], [[0.1, 0, 0.9], *[[1, 0, 0]] * 3], atol=1e-15)
    np.testing.assert_allclose(odd.dense_transitions()[0, 0, 1:, 1], [0.1, 0.1, 0.9], atol=1e-15)
    # One rung, certain success: an effort now is 5 steps at the top, less the falls; with at most
    # half an effort, half of Σ_i 0.9^i, i = 0..4.
    sure = make("adversary", episodes=M, rungs=1, gap=0.5, efforts=0.5).at(0)
    climb = (1 - 0.9**5) / 0.1
    assert solve(sure).value == pytest.approx(climb / 2, abs=1e-9)
    assert solve(sure).multipliers[0] == pytest.approx(climb, abs=1e-9)


# ---------------------------------------------------------------- stationary


def closed_form(H, p, c, b):
    """(V_r*, μ*) by the closed form of the docstring."""
    q = 1 - p
    V_r = [c * (H - j) + (1 - q**j) / p for j in range(H + 1)]
    V_g = [H - j + (1 - q**j) / p for j in range(H + 1)]
    for j in range(1, H):
        if V_g[j + 1] <= b < V_g[j] and q**j > c:
            mu = (q**j - c) / (1 - q**j)
            return V_r[j] + mu * (V_g[j] - b), mu
    return max(V_r), 0.0


def test_default_shop_is_solved_by_hand():
    found = solve(make("stationary", episodes=M).at(0))
    assert found.value == pytest.approx(6.21 + 0.21 * 0.229 / 0.271, abs=1e-12)
    assert found.multipliers[0] == pytest.approx(0.229 / 0.271, abs=1e-9)


@pytest.mark.parametrize("H", [2, 5, 12])
@pytest.mark.parametrize("wear", [0.03, 0.2, 0.6])
@pytest.mark.parametrize("careful", [0.1, 0.7])
@pytest.mark.parametrize("share", [0.3, 0.83, 0.97])
def test_closed_form_of_the_shop(H, wear, careful, share):
    options = {"horizon": H, "wear": wear, "careful": careful, "uptime": share * H}
    found = solve(make("stationary", episodes=1, **options).at(0))
    value, mu = closed_form(H, wear, careful, share * H)
    assert found.value == pytest.approx(value, abs=1e-10)
    assert found.multipliers[0] == pytest.approx(mu, abs=1e-8)
    assert found.gamma == pytest.approx((1 - share) * H, abs=1e-10)


def test_nothing_ever_changes_in_the_shop():
    world = make("stationary", episodes=M, machines=2)
    assert world.distinct[0].size == 1
    assert budgets(world) == (0, 0, 0, 0, 0)
    np.testing.assert_array_equal(world.initial, [0.5, 0, 0.5, 0])
    P = world.at(0).dense_transitions()[0]
    np.testing.assert_allclose(P[2, 2], [0, 0, 0.9, 0.1], atol=1e-15)
    np.testing.assert_array_equal(P[[1, 3], 2], np.eye(4)[[1, 3]])


# ---------------------------------------------------------------- invalid options


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("energy", {"levels": 1}, ValueError, "levels must be an integer >= 2; got 1"),
        ("energy", {"horizon": 8.0}, TypeError, "horizon must be an integer; got 8.0"),
        ("energy", {"reserve": 1}, ValueError, "reserve must be in (0, 1); got 1"),
        ("energy", {"swing": 0.5}, ValueError, "swing must be in [0, 0.5); got 0.5"),
        (
            "energy",
            {"reserve": 0.8, "swing": 0.3},
            ValueError,
            "swing must be in [0, 0.2); got 0.3",
        ),
        ("energy", {"swing": -0.1}, ValueError, "swing must be in [0, 0.5); got -0.1"),
        ("energy", {"swing": "some"}, TypeError, "swing must be a number; got 'some'"),
        ("energy", {"period": 0}, ValueError, "period must be > 0; got 0"),
        ("inventory", {"capacity": 1}, ValueError, "capacity must be an integer >= 2; got 1"),
        ("inventory", {"customers": 0}, ValueError, "customers must be an integer >= 1; got 0"),
        ("inventory", {"pack": 11}, ValueError, "pack must be an integer in [1, 10]; got 11"),
        ("inventory", {"largest": 0}, ValueError, "largest must be an integer >= 1; got 0"),
        ("inventory", {"service": 1.0}, ValueError, "service must be in (0, 1); got 1.0"),
        ("inventory", {"service": None}, TypeError, "service must be a number; got None"),
        ("queue", {"capacity": 1}, ValueError, "capacity must be an integer >= 2; got 1"),
        ("queue", {"waiting": 0}, ValueError, "waiting must be in (0, 1); got 0"),
        ("queue", {"waiting": np.nan}, ValueError, "waiting must be a number; got nan"),
        ("queue", {"changes": -1}, ValueError, "changes must be an integer >= 0; got -1"),
        ("queue", {"changes": True}, TypeError, "changes must be an integer; got True"),
        ("dosing", {"levels": 3}, ValueError, "levels must be an integer >= 4; got 3"),
        ("dosing", {"largest": 13}, ValueError, "largest must be an integer in [1, 12]; got 13"),
        ("dosing", {"harm": 8}, ValueError, "harm must be in (0, 8); got 8"),
        ("dosing", {"step": 0}, ValueError, "step must be > 0; got 0"),
        ("dosing", {"step": np.inf}, ValueError, "step must be finite; got inf"),
        ("driving", {"gaps": 2}, ValueError, "gaps must be an integer >= 3; got 2"),
        ("driving", {"speeds": 2}, ValueError, "speeds must be an integer >= 3; got 2"),
        ("driving", {"misses": 0}, ValueError, "misses must be in (0, 10); got 0"),
        ("driving", {"storms": -1}, ValueError, "storms must be an integer >= 0; got -1"),
        ("driving", {"period": -5}, ValueError, "period must be > 0; got -5"),
        ("adversary", {"rungs": 0}, ValueError, "rungs must be an integer >= 1; got 0"),
        ("adversary", {"horizon": 2}, ValueError, "horizon must be an integer >= 3; got 2"),
        ("adversary", {"directions": 1}, ValueError, "directions must be an integer >= 2; got 1"),
        ("adversary", {"gap": 0.6}, ValueError, "gap must be in (0, 0.5]; got 0.6"),
        ("adversary", {"efforts": 8}, ValueError, "efforts must be in (0, 6); got 8"),
        ("adversary", {"period": 0}, ValueError, "period must be an integer >= 1; got 0"),
        ("adversary", {"period": 2.5}, TypeError, "period must be an integer; got 2.5"),
        ("stationary", {"machines": 0}, ValueError, "machines must be an integer >= 1; got 0"),
        ("stationary", {"wear": 1}, ValueError, "wear must be in (0, 1); got 1"),
        ("stationary", {"careful": 0}, ValueError, "careful must be in (0, 1); got 0"),
        ("stationary", {"uptime": 10}, ValueError, "uptime must be in (0, 10); got 10"),
        ("stationary", {"uptime": "most"}, TypeError, "uptime must be a number; got 'most'"),
    ],
)
def test_wrong_options(name, options, error, message):
    refused(error, message, name, **options)
