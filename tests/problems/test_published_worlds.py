"""Published worlds are what their authors specify: against loops in published units, and paper."""

import math
from itertools import product

import numpy as np
import pytest
from test_named_worlds import refused

import naive_published_worlds as naive
from safedrift import describe, evaluate, optima, solve, variation
from safedrift.problems import PROBLEMS, make
from safedrift.problems.published.draws import dirichlet, gamma, generator
from safedrift.problems.published.scaling import COST, SAME, Scale

M = 40
NAMES = [name for name, module in PROBLEMS.items() if hasattr(module, "PUBLISHED")]


def assert_same(cmdp, twin, published):
    """A CMDP equals a twin in published units, converted by the problem's own scales."""
    H, S, A = cmdp.shape[:3]
    P = cmdp.dense_transitions()
    assert {s for s, _ in twin.P} == set(range(S))
    assert {a for _, a in twin.P} == set(range(A))
    for h, s, a in product(range(H), range(S), range(A)):
        row = np.zeros(S)
        for to, chance in twin.P[s, a].items():
            row[to] = chance
        np.testing.assert_allclose(P[h, s, a], row, atol=1e-14)
        number = twin.reward[(h, s, a) if (h, s, a) in twin.reward else (s, a)]
        assert published.reward.published(cmdp.rewards[h, s, a], 1) == pytest.approx(number)
        taken = published.constraint.published(cmdp.utilities[0, h, s, a], 1)
        assert taken == pytest.approx(twin.constraint[s, a], abs=1e-12)
    assert published.constraint.published(cmdp.thresholds[0], H) == pytest.approx(twin.limit)
    np.testing.assert_array_equal(np.flatnonzero(cmdp.initial), [twin.start])


def in_published_units(name, world, m=0):
    """(V_r*, constraint there) of an episode as its paper would state them."""
    found, scales = solve(world.at(m)), PROBLEMS[name].PUBLISHED
    utility = evaluate(world.at(m), found.policy)[1]
    return (
        scales.reward.published(found.value, world.H),
        scales.constraint.published(utility, world.H),
    )


# ---------------------------------------------------------------- all


def test_ten_worlds_are_published():
    assert len(NAMES) == 10
    for name in NAMES:
        paper, episodes, runs, *_ = PROBLEMS[name].PUBLISHED
        assert paper
        assert episodes >= 5_000
        assert runs >= 1


@pytest.mark.parametrize("scale", [SAME, COST, Scale(1.2, -0.1), Scale(-1.1, 1.1)])
def test_scales_go_both_ways(scale):
    for value in (0.0, 0.7, 12.5):
        assert scale.ours(scale.published(value, 20), 20) == pytest.approx(value)
    assert scale.published(3.0, 20) - scale.published(2.0, 20) == pytest.approx(scale.per_unit)


@pytest.mark.parametrize("name", NAMES)
def test_stationary_ones_have_one_scenario(name):
    drifts = name in ("drifting_grid", "combination_lock")
    world = make(name, episodes=M)
    assert (world.distinct[0].size > 1) == drifts
    assert drifts or len(world.scenarios) == 1


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize(("moves", "end"), [("rises", 0.15), ("falls", 0.0), ("fixed", 0.05)])
def test_random_moves_of_the_drifting_grid(moves, end):
    scales = PROBLEMS["drifting_grid"].PUBLISHED
    options = {"horizon": 1, "limit": 1.0, "rewards": "fixed", "costs": "fixed", "moves": moves}
    world = make("drifting_grid", 10, **options)
    for m in (0, 4, 9):
        share = min(2 * m / 10, 1) if moves == "falls" else m / 10
        twin = naive.drifting_grid(0.05 + share * (end - 0.05), limit=1.0)
        assert_same(world.at(m), twin, scales)


@pytest.mark.parametrize(
    ("rewards", "costs"),
    [("cells", "obstacles"), ("common", "cells"), ("walk", "obstacles"), ("fixed", "fixed")],
)
def test_rewards_and_costs_of_the_drifting_grid(rewards, costs):
    scales = PROBLEMS["drifting_grid"].PUBLISHED
    world = make("drifting_grid", 10, 3, horizon=1, limit=1.0, rewards=rewards, costs=costs)
    rng = generator(3)
    walk, common = [0, *(1 - 2 * rng.integers(0, 2, 9))], 1 - 2 * generator(3).integers(0, 2, 1)[0]
    signs = 1 - 2 * generator(3).integers(0, 2, 169)
    for m in (0, 6, 9):
        t = 0.1 * m / 10
        more = {
            "cells": lambda s, t=t: t * signs[s],
            "common": lambda s, t=t: t * common,
            "walk": lambda s, m=m: 0.1 / 10 * sum(walk[: m + 1]),
            "fixed": lambda s: 0.0,
        }[rewards]
        twin = naive.drifting_grid(
            0.05 + t, more, t * (costs == "obstacles"), t * (costs == "cells"), limit=1.0
        )
        assert_same(world.at(m), twin, scales)


def test_drifting_grid_has_its_map_and_eighteen_moves_to_the_goal():
    world = make("drifting_grid", episodes=2, horizon=18, moves="falls", rewards="fixed")
    assert (world.S, world.A) == (13 * 13, 4)
    assert len(PROBLEMS["drifting_grid"].layout().obstacles) == 57
    # Without random moves the goal pays once in 18 steps and not in 17.
    for H, once in ((17, 0), (18, 1)):
        still = make("drifting_grid", 2, horizon=H, moves="falls", rewards="fixed", limit=H)
        reward, _ = in_published_units("drifting_grid", still, m=1)
        path = reward - once  # cells on the way pay less than 0.1 each
        assert 0.7 < path < 0.1 * H
    assert reward > 1


def test_constraint_of_the_drifting_grid_hardly_costs_anything():
    for H in (19, 20, 21, 22):
        found = describe(make("drifting_grid", episodes=M, horizon=H))
        assert (found.price <= 0.03 * found.free_value).all()


@pytest.mark.parametrize("limit", [5.0, 6.0])
def test_triple_q_grid_is_that_of_the_notebook(limit):
    world = make("triple_q_grid", episodes=2, limit=limit)
    assert (world.H, world.S, world.A) == (25, 324, 4)
    first = make("triple_q_grid", episodes=1, horizon=7, limit=limit).at(0)
    assert_same(first, naive.triple_q_grid(limit), PROBLEMS["triple_q_grid"].PUBLISHED)
    grid = PROBLEMS["triple_q_grid"].layout()
    assert divmod(grid.goal, 18) == (0, 15)  # (1, 16) with the walls


@pytest.mark.parametrize("limit", [4.0, 5.0, 6.0])
def test_constraint_of_the_triple_q_grid_is_slack(limit):
    world = make("triple_q_grid", episodes=2, limit=limit)
    assert solve(world.at(0)).multipliers[0] == pytest.approx(0, abs=1e-12)
    assert in_published_units("triple_q_grid", world) == pytest.approx((963.98, 4), abs=1e-3)
    tight = make("triple_q_grid", episodes=2, limit=3.5)
    assert solve(tight.at(0)).multipliers[0] > 1e-4


# ---------------------------------------------------------------- DOPE


def test_media_is_that_of_the_paper():
    twin = naive.buffer(10, (0.9, 0.1), 0.8, 5.0, lambda x: float(x == 0), lambda a: 1.0 - a)
    assert_same(make("media", episodes=2).at(0), twin, PROBLEMS["media"].PUBLISHED)


def test_two_steps_of_media_on_paper():
    # The first step starts empty; the second does not with probability 0.9 * 0.2 (fast).
    one = make("media", episodes=1, horizon=2, limit=1.0)
    assert in_published_units("media", one) == pytest.approx((2 - 0.18, 1))
    half = make("media", episodes=1, horizon=2, limit=0.5)
    assert in_published_units("media", half)[0] == pytest.approx(2 - (0.18 + 0.02) / 2)


@pytest.mark.parametrize("revenue", ["demand", "next_stock"])
def test_dope_inventory_is_that_of_the_paper(revenue):
    world = make("dope_inventory", episodes=2, revenue=revenue)
    twin = naive.dope_inventory(revenue == "next_stock")
    assert_same(world.at(0), twin, PROBLEMS["dope_inventory"].PUBLISHED)
    assert world.at(0).rewards.max() == pytest.approx(1)
    assert world.at(0).utilities.min() == pytest.approx(0, abs=1e-15)


def test_one_day_of_the_dope_inventory_on_paper():
    # Order 3: 0.08 (1 * 0.2 + 2 * 0.2 + 3 * 0.2) by demand. By next stock demand 3 has the weight
    # of a sold-out day, 0.3. The cost is 4 + 2 * 3 + 3.
    for revenue, earned in (("demand", 0.096), ("next_stock", 0.12)):
        day = make("dope_inventory", episodes=1, horizon=1, limit=0.9, revenue=revenue).at(0)
        assert day.rewards[0, 0, 3] == pytest.approx(earned / 0.132)
        assert 1 - day.utilities[0, 0, 0, 3] == pytest.approx(13 / 19)


@pytest.mark.parametrize("pays", ["moving", "always"])
def test_factored_is_that_of_the_paper(pays):
    world = make("factored", episodes=2, pays=pays)
    assert_same(world.at(0), naive.factored(pays == "always"), PROBLEMS["factored"].PUBLISHED)


def test_factored_on_paper():
    found = solve(make("factored", episodes=1).at(0))
    assert (found.value, found.multipliers[0]) == pytest.approx((2, 2 / 3))
    assert describe(make("factored", episodes=1)).free_value == pytest.approx(4)
    # Limit 1: with μ = 2/3 whole rounds are worth 0 more than staying: 1/3 of a round, 2/3.
    assert solve(make("factored", episodes=1, limit=1.0).at(0)).value == pytest.approx(2 / 3)
    always = solve(make("factored", episodes=1, pays="always").at(0))
    assert (always.value, always.multipliers[0]) == pytest.approx((5, 0))


# ---------------------------------------------------------------- job scheduler


def test_job_scheduler_is_that_of_the_paper():
    world = make("job_scheduler", episodes=2)
    assert_same(world.at(0), naive.job_scheduler(), PROBLEMS["job_scheduler"].PUBLISHED)


@pytest.mark.parametrize("first", [2, 3])
def test_job_scheduler_on_paper(first):
    found = solve(make("job_scheduler", episodes=1, first=first).at(0))
    assert found.multipliers[0] == pytest.approx(0.2 / 0.85)
    assert found.value == pytest.approx(10 - 3.5 * 0.2 / 0.85)


# ---------------------------------------------------------------- random families


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_kitamura_streaming_is_that_of_the_paper(seed):
    world = make("kitamura_streaming", episodes=2, seed=seed)
    mu, playout = generator(seed).random(2) * [0.4, 0.3] + [0.5, 0.1]
    twin = naive.buffer(6, (mu, 1 - mu), playout, 2.4, lambda x: float(x >= 1), float)
    assert_same(world.at(0), twin, PROBLEMS["kitamura_streaming"].PUBLISHED)


def tables(cmdp):
    """P, r and g by (h, s, a), and the first state."""
    keys = list(product(*map(range, cmdp.rewards.shape)))
    P = cmdp.dense_transitions()
    return (
        {key: P[key] for key in keys},
        {key: cmdp.rewards[key] for key in keys},
        {key: cmdp.utilities[0][key] for key in keys},
        int(cmdp.initial.argmax()),
    )


@pytest.mark.parametrize(
    ("name", "sizes", "share"),
    [("kitamura_random", (4, 5, 3), 0.6), ("complementary", (10, 30, 3), 0.5)],
)
def test_thresholds_of_random_worlds_are_a_share_of_the_largest_utility(name, sizes, share):
    for seed in range(3):
        cmdp = make(name, episodes=1, seed=seed).at(0)
        assert cmdp.shape[:3] == sizes
        P, r, g, start = tables(cmdp)
        most = naive.largest(P, g, sizes[0], start)
        assert cmdp.thresholds[0] == pytest.approx(share * most)
        assert solve(cmdp).gamma == pytest.approx((1 - share) * most)
        assert {*r.values(), *g.values()} == {0.0, 1.0}
        if name == "complementary":
            assert all(r[key] + g[key] == 1 for key in r)


def test_rewards_of_the_random_worlds_are_as_rare_as_told():
    draws = [make("kitamura_random", episodes=1, seed=seed).at(0) for seed in range(60)]
    n = 60 * 60  # 60 worlds with 60 entries; those without utility are drawn again
    for values in ([x.rewards for x in draws], [x.utilities for x in draws]):
        assert np.mean(values) == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / n) + 0.005)
    starts = {int(x.initial.argmax()) for x in draws}
    assert starts == set(range(5))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_dirichlet_draws_have_their_moments(alpha):
    J, n = 4, 40_000
    x = dirichlet(generator(0), alpha, (n, J))
    np.testing.assert_allclose(x.sum(axis=1), 1, atol=1e-14)
    assert x.min() >= 0
    variance = (1 / J) * (1 - 1 / J) / (J * alpha + 1)
    error = 4 * math.sqrt(variance / n)
    np.testing.assert_allclose(x.mean(axis=0), 1 / J, atol=error)
    np.testing.assert_allclose(x.var(axis=0), variance, rtol=0.04)
    # The third moment of a coordinate is that of Beta(α, (J - 1) α).
    third = math.prod((alpha + i) / (J * alpha + i) for i in range(3))
    np.testing.assert_allclose((x**3).mean(axis=0), third, rtol=0.06)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_gamma_draws_have_their_moments(alpha):
    n = 200_000
    x = gamma(generator(1), alpha, n)
    moments = [math.gamma(alpha + k) / math.gamma(alpha) for k in range(1, 7)]  # E x^k
    for k in (1, 2, 3):
        error = math.sqrt((moments[2 * k - 1] - moments[k - 1] ** 2) / n)
        assert abs((x**k).mean() - moments[k - 1]) <= 4 * error, k
    small = 1e-3**alpha / math.gamma(alpha + 1)  # P(x < 0.001), to a thousandth
    assert abs((x < 1e-3).mean() - small) <= 4 * math.sqrt(small / n) + small / 1000


@pytest.mark.parametrize("seed", range(4))
def test_complementary_worlds_are_solved_on_paper(seed):
    world = make("complementary", episodes=1, seed=seed)
    found, b = solve(world.at(0)), world.thresholds[0, 0]
    assert found.value == pytest.approx(world.H - b)
    assert found.multipliers[0] == pytest.approx(1)
    # Any policy between a safe and an unsafe one that meets the threshold is optimal.
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(3), (10, 30))
    reward, utility = evaluate(world.at(0), policy)
    assert reward + utility == pytest.approx(world.H)


# ---------------------------------------------------------------- combination lock


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("drift", ["abrupt", "gradual"])
def test_combination_lock_is_that_of_the_paper(seed, drift):
    world = make("combination_lock", episodes=100, seed=seed, drift=drift)
    right = generator(seed).integers(0, 2, 8)
    for m in (0, 1, 2, 3, 50, 99):
        prizes = (0.25 + 0.75 * m / 100, 1 - 0.75 * m / 100)
        if drift == "abrupt":  # every M/50 episodes
            prizes = (0.25, 1) if m // 2 % 2 == 0 else (1, 0.25)
        twin = naive.combination_lock(right, prizes)
        assert_same(world.at(m), twin, PROBLEMS["combination_lock"].PUBLISHED)
    assert variation(world).P.sum() == 0


def test_combination_lock_on_paper():
    q, H = 0.98, 5
    # Falling off at move i = 1..4 leaves H - i steps at 0.125/H.
    off = sum(q ** (i - 1) * (1 - q) * (H - i) * 0.125 / H for i in range(1, 5))
    walks = {prize: q**4 * prize + off for prize in (0.25, 1)}
    steps = q + q**2 + q**3 + q**4
    share = 2 / steps
    world = make("combination_lock", episodes=4, swaps=2)
    tolled, free = solve(world.at(0)), solve(world.at(3))
    assert tolled.value == pytest.approx(share * walks[1] + (1 - share) * walks[0.25])
    assert tolled.multipliers[0] == pytest.approx((walks[1] - walks[0.25]) / steps)
    assert (free.value, free.multipliers[0]) == pytest.approx((walks[1], 0))
    unlimited = make("combination_lock", episodes=4, swaps=2, limit=4.0)
    assert solve(unlimited.at(0)).value == pytest.approx(walks[1])
    assert "never binds" in describe(unlimited).warnings[0]


@pytest.mark.parametrize("horizon", [2, 3, 8])
def test_locks_of_other_lengths(horizon):
    world = make("combination_lock", episodes=4, horizon=horizon, limit=0.5)
    right = generator(0).integers(0, 2, 2 * (horizon - 1))
    twin = naive.combination_lock(right, (0.25, 1), horizon, limit=0.5)
    assert_same(world.at(0), twin, PROBLEMS["combination_lock"].PUBLISHED)
    assert (optima(world).gamma > 0).all()


# ---------------------------------------------------------------- invalid options


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        (
            "drifting_grid",
            {"moves": "jumps"},
            ValueError,
            "moves must be one of 'rises', 'falls', ",
        ),
        (
            "drifting_grid",
            {"rewards": "up"},
            ValueError,
            "rewards must be one of 'walk', 'cells', ",
        ),
        ("drifting_grid", {"costs": "all"}, ValueError, "costs must be one of 'obstacles', "),
        ("drifting_grid", {"limit": 0}, ValueError, "limit must be in (0, 24.2); got 0"),
        ("drifting_grid", {"horizon": 0}, ValueError, "horizon must be an integer >= 1; got 0"),
        ("triple_q_grid", {"limit": 25}, ValueError, "limit must be in (0, 25); got 25"),
        ("media", {"fast": 1.2}, ValueError, "fast must be in (0, 1); got 1.2"),
        ("media", {"limit": "much"}, TypeError, "limit must be a number; got 'much'"),
        ("media", {"capacity": 0}, ValueError, "capacity must be an integer >= 1; got 0"),
        ("dope_inventory", {"revenue": "sales"}, ValueError, "revenue must be one of 'demand', "),
        ("factored", {"pays": "never"}, ValueError, "pays must be one of 'moving', 'always'"),
        ("job_scheduler", {"required": 11}, ValueError, "required must be in (0, 10]; got 11"),
        ("job_scheduler", {"first": -1}, ValueError, "first must be an integer >= 0; got -1"),
        ("kitamura_random", {"density": 0}, ValueError, "density must be in (0, 1]; got 0"),
        ("kitamura_random", {"concentration": 1}, ValueError, "concentration must be in (0, 1)"),
        ("kitamura_streaming", {"share": 1}, ValueError, "share must be in (0, 1); got 1"),
        ("complementary", {"states": 0}, ValueError, "states must be an integer >= 1; got 0"),
        ("combination_lock", {"drift": "slow"}, ValueError, "drift must be one of 'abrupt', "),
        ("combination_lock", {"horizon": 1}, ValueError, "horizon must be an integer >= 2; got 1"),
        ("combination_lock", {"swaps": 0}, ValueError, "swaps must be an integer >= 1; got 0"),
        ("combination_lock", {"limit": 5}, ValueError, "limit must be in (0, 5); got 5"),
    ],
)
def test_wrong_options_of_published_worlds(name, options, error, message):
    refused(error, message, name, **options)
