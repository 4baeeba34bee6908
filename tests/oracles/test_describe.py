"""A world in numbers: against the oracles one by one, against paper, and of many sizes."""

import json
import re

import numpy as np
import pytest
from test_named_worlds import leaves

import safedrift as sd
from builders import small_world
from conftest import random_scenarios, rebuilt
from safedrift.models import evenly_spaced
from safedrift.oracles import expected, free_values, occupancy, smallest_gap
from safedrift.problems import make


def assert_agrees_with_the_oracles(world, found):
    best = [sd.solve(world.at(int(m))) for m in found.episodes]
    np.testing.assert_allclose(found.value, [b.value for b in best], atol=1e-9)
    np.testing.assert_allclose(found.gamma, [b.gamma for b in best], atol=1e-9)
    np.testing.assert_allclose(found.multipliers, [b.multipliers for b in best], atol=1e-7)
    np.testing.assert_array_equal(found.thresholds, world.thresholds[found.episodes])
    free = []
    for m in found.episodes:
        today = world.at(int(m))
        free.append(sd.solve(rebuilt(today, thresholds=np.full(world.K, 1e-9))).value)
    np.testing.assert_allclose(found.free_value, free, atol=1e-9)
    np.testing.assert_allclose(found.price, found.free_value - found.value, atol=1e-12)
    assert (found.price >= -1e-9).all()
    binds = np.array([b.multipliers for b in best]) > 1e-9
    np.testing.assert_allclose(found.binding, binds.mean(axis=0))
    change = sd.variation(world)
    for part in "Prgb":
        assert getattr(found.budgets, part) == pytest.approx(getattr(change, part).sum())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("maze", {}), ("energy", {}), ("dosing", {}), ("blend", {}), ("thermostat", {}),
        ("random", {"constraints": 2, "states": 3, "horizon": 3}),
    ],
)  # fmt: skip
def test_description_agrees_with_the_oracles(name, options):
    world = make(name, episodes=60, **options)
    found = sd.describe(world, np.array([0, 7, 31, 59]))
    assert_agrees_with_the_oracles(world, found)
    assert found.sizes == (60, world.H, world.S, world.A, world.K)
    assert found.name == name


def test_budgets_are_of_all_episodes_and_b_star_only_when_all_are_solved():
    world = make("energy", episodes=300)
    some, all_of_them = sd.describe(world), sd.describe(world, np.arange(300))
    whole = sd.budgets(world)
    assert np.isnan(some.budgets.star)
    assert "B_* is known only when all episodes are solved" in str(some)
    assert all_of_them.budgets == pytest.approx(whole)
    assert f"B_* = {whole.star:.4g}" in str(all_of_them)
    assert some.budgets[:3] == pytest.approx(whole[:3])
    assert some.budgets.b == pytest.approx(whole.b)


@pytest.mark.parametrize(("M", "most"), [(1, 200), (2, 200), (200, 200), (201, 200), (10**6, 7)])
def test_episodes_are_evenly_spaced_with_both_ends(M, most):
    episodes = evenly_spaced(M, most)
    assert episodes[0] == 0
    assert episodes[-1] == M - 1
    assert episodes.size == min(M, most)
    gaps = np.diff(episodes)
    if gaps.size:
        assert gaps.min() >= 1
        assert np.ptp(gaps) <= 1


def test_stationary_world_is_described_as_on_paper():
    found = sd.describe(make("stationary", episodes=50))
    # Its module: mu* = 0.229/0.271, V_r* = 6.21 + 0.21 mu*, gamma = 0.5. Without the constraint
    # the last j steps are fast: the largest V_r(j) = 0.5 (10 - j) + 10 (1 - 0.9^j), at j = 7.
    np.testing.assert_allclose(found.multipliers, 0.229 / 0.271)
    np.testing.assert_allclose(found.value, 6.21 + 0.21 * 0.229 / 0.271)
    np.testing.assert_allclose(found.free_value, 0.5 * 3 + 10 * (1 - 0.9**7))
    np.testing.assert_allclose(found.gamma, 0.5)
    assert found.binding == 1
    assert found.budgets[:3] == (0, 0, 0)


def test_record_is_strict_json_and_has_every_number():
    found = sd.describe(small_world(M=30, K=2, drift="linear"), np.array([0, 10, 29]))
    record = json.loads(json.dumps(found.record(), allow_nan=False))
    assert record["episodes"] == [0, 10, 29]
    assert record["sizes"] == found.sizes._asdict()
    assert record["B_star"] is None
    assert record["B_P"] == found.budgets.P
    for name in ("gamma", "multipliers", "value", "free_value", "price", "thresholds", "binding"):
        np.testing.assert_array_equal(record[name], getattr(found, name))


def test_infeasible_episodes_are_described_as_such():
    world = small_world(M=20, drift="abrupt")
    b = world.thresholds.copy()
    b[12:15] = world.H
    found = sd.describe(world.with_thresholds(b))
    np.testing.assert_array_equal(np.flatnonzero(~found.feasible), [12, 13, 14])
    safe = found.multipliers[found.feasible]
    np.testing.assert_allclose(found.binding, (safe > 1e-9).mean(axis=0))
    assert np.isnan(found.budgets.star)
    assert " inf" not in str(found)
    assert np.isnan(found.value[12])
    assert np.isinf(found.multipliers[12, 0])
    assert found.gamma[12] < 0
    assert "No policy is safe in 3 of them, the first is 12." in str(found)
    assert json.loads(json.dumps(found.record(), allow_nan=False))["value"][13] is None


def test_table_shows_first_last_mean_and_extremes():
    world = make("energy", episodes=80)
    found = sd.describe(world, np.array([0, 9, 40, 79]))
    line = re.search(r"^gamma +(.*)$", str(found), flags=re.MULTILINE)[1].split()
    g = found.gamma
    for shown, value in zip(line, (g[0], g[-1], g.mean(), g.min(), g.max()), strict=True):
        assert float(shown) == pytest.approx(value, rel=1e-3)
    assert f"binds in {found.binding[0]:.0%} of these episodes" in str(found)


def test_progress_adds_up_to_the_described_episodes():
    counts = []
    sd.describe(make("dosing", episodes=500), progress=counts.append)
    assert sum(counts) == 200


def test_large_sparse_world_is_described_without_a_square_array():
    world = make("queue", episodes=600, capacity=5_000, waiting=0.3)
    found = sd.describe(world, np.array([0, 599]))
    largest = max(x.nbytes for x in leaves(world.arrays))
    assert largest < 0.1 * 8 * world.S**2 * world.A * world.H
    assert found.feasible.all()
    # Nobody has to wait less than a quarter of the places, of which H customers are served at most.
    np.testing.assert_allclose(found.free_value, 0.75 * 0.9 * 10, atol=1e-9)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([3, 2], "episodes must be increasing; got 2 at index 0"),
        ([5, 5], "episodes must be increasing; got 5 at index 0"),
        ([20], "episodes must be in [0, 19]; got 20 at index 0"),
        ([], "episodes must be"),
    ],
)
def test_wrong_episodes(episodes, message):
    with pytest.raises((ValueError, TypeError), match="^" + re.escape(message)):
        sd.describe(small_world(M=20), episodes)


def test_something_else_than_a_world_is_refused():
    with pytest.raises(TypeError, match="world must be a DriftingCMDP or LinearKernelCMDP; got st"):
        sd.describe("maze")


# ---------------------------------------------------------------- occupancy


def test_occupancy_of_two_states_on_paper():
    P = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.0, 1.0]]])[None].repeat(3, axis=0)
    ones = np.full((3, 2, 2), 0.5)
    cmdp = sd.TabularCMDP(P, ones, ones[None], [1.0], [1.0, 0.0])
    policy = np.zeros((3, 2, 2))
    policy[:, 0], policy[:, 1] = (0.25, 0.75), (1.0, 0.0)
    d = occupancy(cmdp, policy)
    np.testing.assert_allclose(d[0], [[0.25, 0.75], [0, 0]])
    stays = 0.25 * 0.9 + 0.75 * 0.2  # in state 0
    np.testing.assert_allclose(d[1], [[0.25 * stays, 0.75 * stays], [1 - stays, 0]])
    second = stays * stays + (1 - stays) * 0.5
    np.testing.assert_allclose(d[2].sum(axis=1), [second, 1 - second])
    at_one = np.array([0.0, 1.0])[:, None].repeat(2, axis=1)[None].repeat(3, axis=0)
    np.testing.assert_allclose(expected(d, at_one), [0, 1 - stays, 1 - second])


@pytest.mark.parametrize("name", ["inventory", "thermostat", "blend", "frozen_lake"])
def test_expected_rewards_and_utilities_add_up_to_the_values(name):
    cmdp = make(name, episodes=20).at(13)
    H, S, A, _ = cmdp.shape
    policy = np.random.default_rng(1).dirichlet(np.ones(A), (H, S))
    d = occupancy(cmdp, policy)
    np.testing.assert_allclose(d.sum(axis=(1, 2)), 1)
    values = [expected(d, q).sum() for q in (cmdp.rewards, *cmdp.utilities)]
    np.testing.assert_allclose(values, sd.evaluate(cmdp, policy), atol=1e-12)


def test_free_value_of_repeated_and_unordered_episodes():
    world = sd.DriftingCMDP(random_scenarios(np.random.default_rng(3), 3), np.array([0, 1, 2, 1]))
    found = free_values(world, np.array([3, 0, 1, 0]))
    one_by_one = [free_values(world, np.array([m]))[0] for m in (3, 0, 1, 0)]
    np.testing.assert_array_equal(found, one_by_one)
    assert len(set(found)) == 2


def test_smallest_gap_is_that_of_the_tightest_episode():
    world = make("energy", episodes=40)
    assert smallest_gap(world) == sd.optima(world).gamma.min()
