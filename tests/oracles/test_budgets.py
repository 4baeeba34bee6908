"""Variation budgets against brute force, and worlds made to have the budgets asked for."""

import re

import numpy as np
import pytest
from hypothesis import given

import naive
import safedrift as sd
from conftest import dense, drifting_worlds, random_scenarios, random_transitions, rebuilt
from safedrift import (
    DriftingCMDP,
    budgets,
    drift,
    local_budgets,
    optima,
    problems,
    solve,
    variation,
)
from safedrift.oracles import block_sums
from safedrift.problems.random import DRIFTS, with_gap

NORMS = ("l2", "l1")


def brute_force(world, norm):
    """(P, r, g, b) from the arrays of every episode."""
    found = naive.variation([dense(world.at(m))[:4] for m in range(world.M)])
    return found["P_" + norm], found["r_" + norm], found["g_" + norm], found["b"]


def assert_matches_brute_force(world):
    for norm in NORMS:
        triples = zip("Prgb", variation(world, norm), brute_force(world, norm), strict=True)
        for name, got, expected in triples:
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10, err_msg=f"{name}, {norm}")


# ---------------------------------------------------------------- per episode and step


def path_of(name, M, N):
    """Each builder of `drift`, with settings under which it moves a lot."""
    paths = {
        "stationary": drift.stationary(M, N),
        "abrupt": drift.abrupt(M, N, switches=min(5, M - 1)),
        "linear": drift.linear(M, N),
        "periodic": drift.periodic(M, N, period=6.3),
        "random_walk": drift.random_walk(M, N, step=0.2, seed=3),
        "bursts": drift.bursts(M, N, count=4, length=3),
        "alternating": drift.alternating(M, N, every=2),
    }
    return paths[name]


@pytest.mark.parametrize("N", [1, 2, 3, 5])
@pytest.mark.parametrize("name", drift.__all__)
def test_variation_equals_brute_force_on_every_kind_of_path(name, N):
    rng = np.random.default_rng(N)
    world = DriftingCMDP(random_scenarios(rng, N, K=2), path_of(name, 20, N))
    assert_matches_brute_force(world)
    if N > 1 and name != "stationary":
        assert variation(world).P.sum() > 0.5


@pytest.mark.parametrize("name", drift.__all__)
def test_variation_with_a_path_for_each_part(name):
    rng = np.random.default_rng(1)
    M, N, K = 20, 3, 2
    world = DriftingCMDP(
        random_scenarios(rng, N, K=K, successors=2),
        transition_weights=path_of(name, M, N),
        reward_weights=drift.random_walk(M, N, step=0.1),
        utility_weights=drift.abrupt(M, N, [4, 9]),
        thresholds=rng.uniform(0.5, 2, (M, K)),
    )
    assert_matches_brute_force(world)
    np.testing.assert_array_equal(np.flatnonzero(variation(world).g.sum(axis=(1, 2))), [4, 9])


def test_variation_of_unrelated_episodes():
    rng = np.random.default_rng(2)
    scenarios = random_scenarios(rng, 12, K=3, successors=3)
    assert_matches_brute_force(DriftingCMDP.from_sequence(scenarios))
    again = [scenarios[n] for n in (0, 0, 1, 2, 1, 0, 0, 5)]
    assert_matches_brute_force(DriftingCMDP.from_sequence(again))


def test_variation_of_jumps_between_mixtures_of_many_scenarios():
    rng = np.random.default_rng(3)
    world = DriftingCMDP(random_scenarios(rng, 6), rng.dirichlet(np.full(6, 0.5), 30))
    assert_matches_brute_force(world)


@given(drifting_worlds(K=2))
def test_variation_equals_brute_force_on_any_world(world):
    assert_matches_brute_force(world)


def test_first_episode_has_no_change():
    world = DriftingCMDP(random_scenarios(np.random.default_rng(0), 2), np.array([1, 0]))
    for norm in NORMS:
        assert all((part[0] == 0).all() and (part[1] > 0).all() for part in variation(world, norm))


def test_variation_known_on_paper():
    # One step, two states, two actions. One row of P moves from (1, 0) to (1/4, 3/4), one from
    # (0, 1) to (1/2, 1/2); one reward by 1/2, one by 1/4; one utility by 1.
    (base,) = random_scenarios(np.random.default_rng(0), 1, H=1, S=2, A=2)
    P, r, g = (np.zeros(shape) for shape in ((1, 2, 2, 2), (1, 2, 2), (1, 1, 2, 2)))
    P[..., 0] = 1
    P[0, 1, 1] = 0, 1
    before = rebuilt(base, transitions=P, rewards=r, utilities=g, thresholds=[0.25])
    P[0, 0, 0], P[0, 1, 1] = (1 / 4, 3 / 4), (1 / 2, 1 / 2)
    r[0, 0] = 1 / 2, 1 / 4
    g[0, 0, 1, 0] = 1
    after = rebuilt(base, transitions=P, rewards=r, utilities=g, thresholds=[0.75])
    world = DriftingCMDP([before, after], np.array([0, 1]))
    l2, l1 = variation(world, "l2"), variation(world, "l1")
    assert l2.P[1, 0] == pytest.approx(np.sqrt(2 * 9 / 16 + 2 / 4), abs=1e-15)
    assert l2.r[1, 0] == pytest.approx(np.sqrt(1 / 4 + 1 / 16), abs=1e-15)
    assert (l1.P[1, 0], l1.r[1, 0]) == (3 / 2, 1 / 2)
    assert (l2.g[1, 0, 0], l1.g[1, 0, 0]) == (1, 1)
    assert l2.b[1, 0] == l1.b[1, 0] == 1 / 2


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("N", [2, 3, 4])
def test_variation_keeps_its_digits_when_scenarios_are_close(N, norm):
    """Differences of 1e-7. A Gram matrix, unlike distances, would be wrong in the first digit."""
    rng = np.random.default_rng(N)
    M, tiny = 30, 1e-7
    (base,) = random_scenarios(rng, 1)
    r, g = 0.25 + base.rewards / 2, 0.25 + base.utilities / 2
    P = (1 - tiny) * base.transitions
    scenarios = [
        rebuilt(
            base,
            transitions=P + tiny * random_transitions(rng, *base.shape[:3]),
            rewards=r + tiny * rng.random(r.shape),
            utilities=g + tiny * rng.random(g.shape),
        )
        for _ in range(N)
    ]
    weights = drift.random_walk(M, N, step=0.2, seed=1)
    found = variation(DriftingCMDP(scenarios, weights), norm)
    # Change = Σ_n Δw_n (θ_n - θ_0): subtracting close numbers is exact, mixing them first is not.
    parts = [(s.transitions, s.rewards[..., None], s.utilities[0][..., None]) for s in scenarios]
    for part, got in enumerate((found.P, found.r, found.g[:, 0])):
        bank = np.stack([p[part] - parts[0][part] for p in parts])
        change = np.tensordot(np.diff(weights, axis=0), bank, axes=1)
        if norm == "l2":
            expected = np.sqrt((change**2).sum(axis=(2, 3, 4)))
        else:
            expected = np.abs(change).sum(axis=4).max(axis=(2, 3))
        assert expected.max() < 1e-6
        np.testing.assert_allclose(got[1:], expected, rtol=1e-9, atol=0)


def test_unknown_norm():
    world = DriftingCMDP(random_scenarios(np.random.default_rng(0), 1), np.zeros(2, int))
    with pytest.raises(ValueError, match=r"norm must be one of 'l2', 'l1'; got 'l3'"):
        variation(world, "l3")


# ---------------------------------------------------------------- sums


@pytest.mark.parametrize("trailing", [(), (3,), (2, 3)])
def test_block_sums_count_changes_inside_blocks_only(trailing):
    M = 7
    change = np.random.default_rng(0).random((M, *trailing))
    for length in range(1, M + 4):
        found = block_sums(change, length)
        expected = [
            sum((change[m] for m in range(start + 1, min(start + length, M))), np.zeros(trailing))
            for start in range(0, M, length)
        ]
        assert found.shape == (-(-M // length), *trailing)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    assert (change > 0).all(), "the argument is not written to"


@pytest.mark.parametrize("length", [0, -1])
def test_block_sums_need_a_positive_length(length):
    with pytest.raises(ValueError, match=rf"length must be an integer >= 1; got {length}"):
        block_sums(np.zeros((3, 2)), length)


@pytest.mark.parametrize("norm", NORMS)
def test_budgets_are_totals_and_star_comes_from_the_optima(norm):
    rng = np.random.default_rng(4)
    world = DriftingCMDP(random_scenarios(rng, 3, K=2), drift.linear(15, 3))
    P, r, g, b = brute_force(world, norm)
    found = optima(world)
    total = budgets(world, norm=norm)
    np.testing.assert_allclose(
        total, [P.sum(), r.sum(), g.sum(), found.policy_change.sum(), b.sum()], atol=1e-9
    )
    assert total.star > 0
    assert total.delta == pytest.approx(P.sum() + r.sum() + g.sum(), abs=1e-9)
    assert budgets(world, found.policy_change, norm) == total


def test_budgets_use_the_optima_they_are_given():
    rng = np.random.default_rng(5)
    world, other = (DriftingCMDP(random_scenarios(rng, 2), drift.linear(9, 2)) for _ in range(2))
    assert budgets(world, optima(other).policy_change).star == optima(other).policy_change.sum()
    assert budgets(world, optima(other).policy_change).P == budgets(world).P


@pytest.mark.parametrize("norm", NORMS)
def test_local_budgets_are_the_changes_of_the_constraint(norm):
    rng = np.random.default_rng(6)
    world = DriftingCMDP(random_scenarios(rng, 3, K=2), drift.random_walk(15, 3, 0.2))
    P, _, g, _ = brute_force(world, norm)
    found = local_budgets(world, norm)
    np.testing.assert_allclose(found.transitions, P, atol=1e-10)
    np.testing.assert_allclose(found.utilities, g, atol=1e-10)


# ---------------------------------------------------------------- worlds with budgets as asked

MOVING = [name for name in DRIFTS if name != "stationary"]


def made(name, K=1, **options):
    sizes = {"states": 4, "actions": 3, "horizon": 5, "constraints": K}
    return problems.make("random", 24, 5, drift=name, **(sizes | options))


def assert_slater_gap(world, gamma):
    for m in world.distinct[0]:
        cmdp = world.at(int(m))
        P, _, g, b, initial = dense(cmdp)
        assert solve(cmdp).gamma == pytest.approx(gamma, rel=0, abs=1e-9)
        if world.K > 1:
            continue
        V = np.zeros(world.S)  # the largest utility, by dynamic programming
        for h in range(world.H - 1, -1, -1):
            V = (g[0, h] + P[h] @ V).max(axis=1)
        assert initial @ V - b[0] == pytest.approx(gamma, rel=0, abs=1e-9)
    m = int(world.distinct[0][-1])
    P, _, g, b, initial = dense(world.at(m))
    assert naive.largest_slack(P, g, b, initial) == pytest.approx(gamma, rel=0, abs=1e-8)


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("name", MOVING)
def test_generator_meets_budgets_and_gap(name, K):
    free = variation(made(name, K))
    asked = {"B_P": 0.7 * free.P.sum(), "B_r": 0.3 * free.r.sum(), "B_g": 0.01 * free.g.sum()}
    world = made(name, K, gamma=0.3, **asked)
    P, r, g, _ = brute_force(world, "l2")
    np.testing.assert_allclose((P.sum(), r.sum(), g.sum()), list(asked.values()), rtol=1e-9)
    found = variation(world)
    totals = (found.P.sum(), found.r.sum(), found.g.sum())
    np.testing.assert_allclose(totals, list(asked.values()), rtol=1e-9)
    assert_slater_gap(world, 0.3)


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("name", DRIFTS)
def test_generator_meets_the_gap_without_budgets(name, K):
    assert_slater_gap(made(name, K, gamma=0.8), 0.8)


def test_generator_can_hold_any_part_still():
    world = made("abrupt", B_P=0.0, B_g=0)
    found = variation(world)
    assert found.P.sum() == found.g.sum() == found.b.sum() == 0
    assert found.r.sum() == variation(made("abrupt")).r.sum()


def test_generator_budgets_may_be_tiny():
    world = made("linear", B_P=1e-6, B_r=1e-6, B_g=1e-6)
    found = variation(world)
    np.testing.assert_allclose((found.P.sum(), found.r.sum(), found.g.sum()), 1e-6, rtol=1e-7)


@pytest.mark.parametrize("name", ["B_P", "B_r", "B_g"])
def test_unreachable_budget_names_the_largest_reachable_one(name):
    free = getattr(variation(made("abrupt")), name[-1]).sum()
    with pytest.raises(ValueError, match=rf"{name} must be at most .*; got 1000.0") as error:
        made("abrupt", **{name: 1000.0})
    (largest,) = re.findall(r"at most ([0-9.]+)", str(error.value))
    assert float(largest) == pytest.approx(free, rel=1e-5)
    reached = getattr(variation(made("abrupt", **{name: free})), name[-1]).sum()
    assert reached == pytest.approx(free, rel=1e-12)
    with pytest.raises(ValueError, match="at most"):
        made("abrupt", **{name: free * 1.0001})


def test_budgets_of_a_stationary_world_can_only_be_zero():
    assert variation(made("stationary", B_P=0.0)).P.sum() == 0
    with pytest.raises(ValueError, match=r"B_r must be at most 0, .*; got 0.1"):
        made("stationary", B_r=0.1)


@pytest.mark.parametrize(
    ("value", "message"), [(-0.1, "B_g must be >= 0; got -0.1"), (np.nan, "B_g must be a number")]
)
def test_budgets_must_be_numbers_from_zero_up(value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        made("abrupt", B_g=value)


def test_gap_beyond_reach_names_the_largest_utility_and_where():
    world = made("abrupt", gamma=0.1)
    best = (world.thresholds + 0.1).min()
    with pytest.raises(
        ValueError, match=r"gamma must be below .* constraint 0 .*; got 3.9"
    ) as error:
        with_gap(world, 3.9)
    (limit,) = re.findall(r"below ([0-9.]+)", str(error.value))
    assert float(limit) == pytest.approx(best, rel=1e-5)
    assert_slater_gap(with_gap(world, 0.999 * best), 0.999 * best)


def test_mixtures_that_coincide_have_no_variation():
    """θ1 lies between θ0 and θ2: walking from θ1 to that mixture changes nothing."""
    rng = np.random.default_rng(0)
    share = 0.37
    first, last = rng.random((2, 2, 3, 2))
    middle = (1 - share) * first + share * last
    P = rng.dirichlet(np.ones(3), (2, 3, 2))
    flat = np.full((1, 2, 3, 2), 0.5)
    scenarios = [sd.TabularCMDP(P, r, flat, [0.5], [1, 0, 0]) for r in (first, middle, last)]
    world = sd.DriftingCMDP(scenarios, [[0, 1, 0], [1 - share, 0, share]])
    for norm in ("l2", "l1"):
        assert sd.variation(world, norm).r.max() < 1e-14


def test_optima_of_some_episodes_are_not_enough_for_the_budgets():
    world = sd.problems.make("random", episodes=10)
    with pytest.raises(
        ValueError, match=r"policy_change must be an array of shape \(10,\); got shape \(5,\)"
    ):
        sd.budgets(world, sd.optima(world, np.arange(5)).policy_change)
