"""Gymnasium's transition tables as exact worlds."""

import re

import gymnasium
import numpy as np
import pytest

import safedrift as sd
from safedrift.adapters.toy_text import from_table, thawing
from safedrift.problems.cliff_walking import build as cliff_walking
from safedrift.problems.cliff_walking import on_the_path, one_step
from safedrift.problems.frozen_lake import build as frozen_lake
from safedrift.problems.frozen_lake import dry_feet
from safedrift.problems.taxi import build as taxi

LOOSE = 0.01  # a threshold that every policy meets


def value_iteration(env, H):
    """Largest expected sum of raw rewards over H steps, from the raw table."""
    P = env.unwrapped.P
    V = np.zeros(len(P))
    for _ in range(H):
        V = np.array(
            [
                max(sum(p * (r + (0 if end else V[y])) for p, y, r, end in P[s][a]) for a in P[s])
                for s in range(len(P))
            ]
        )
    return env.unwrapped.initial_state_distrib @ V


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("FrozenLake-v1", {"is_slippery": True}),
        ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}),
        ("CliffWalking-v1", {"is_slippery": True}),
        ("CliffWalking-v1", {}),
        ("Taxi-v4", {}),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_optimum_is_that_of_value_iteration_on_the_raw_table(id, options):
    H = 14
    env = gymnasium.make(id, **options)
    cmdp = from_table(env, H, lambda step: 1.0, LOOSE)
    raw = [r for row in env.unwrapped.P.values() for a in row.values() for _, _, r, _ in a]
    low, high = min(0, *raw), max(0, *raw)
    found = sd.solve(cmdp).value * (high - low) + H * low
    assert found == pytest.approx(value_iteration(env, H), abs=1e-9)


def test_utility_counts_falls_and_the_end_is_absorbing():
    """A walk that falls for sure: down from the start of the dry lake, right into the hole."""
    H = 6
    cmdp = from_table("FrozenLake-v1", H, dry_feet, H - 0.5, is_slippery=False)
    policy = np.zeros((H, 17, 4))
    policy[..., 2] = 1  # right,
    policy[0, :, :] = [0, 1, 0, 0]  # but first down: cell 4, then the hole 5
    reward, utility = sd.evaluate(cmdp, policy)
    assert reward == 0
    assert utility == H - 1  # one step falls, the others do not
    P = cmdp.dense_transitions()
    assert P[0, 4, 2, 16] == 1  # over
    assert (P[:, 16, :, 16] == 1).all()


def test_falling_off_the_cliff_costs_utility_and_time_only():
    H = 5
    cmdp = from_table("CliffWalking-v1", H, on_the_path, H - 0.5, reward=one_step)
    always_right = np.zeros((H, 49, 4))
    always_right[..., 1] = 1
    reward, utility = sd.evaluate(cmdp, always_right)  # from the start into the cliff, every time
    assert (reward, utility) == (0, 0)


def test_several_utilities_are_several_constraints():
    H = 6
    both = from_table(
        "FrozenLake-v1", H, lambda t: (dry_feet(t), 1.0 if t.action == 2 else 0.25), [5.5, 2.0]
    )
    alone = from_table("FrozenLake-v1", H, dry_feet, 5.5)
    assert both.shape.K == 2
    np.testing.assert_array_equal(both.utilities[0], alone.utilities[0])
    np.testing.assert_array_equal(both.utilities[1, 0, 3], [0.25, 0.25, 1.0, 0.25])
    assert (both.utilities[:, :, 16] == 1).all(), "over"
    np.testing.assert_array_equal(both.thresholds, [5.5, 2.0])


@pytest.mark.parametrize(("make", "limit"), [(frozen_lake, "risk"), (cliff_walking, "falls")])
def test_drifting_ground(make, limit):
    world = make(200, cycles=2.0)
    change = sd.variation(world)
    assert change.P.sum() > 0
    assert change.b.sum() == 0
    found = sd.optima(world)
    np.testing.assert_allclose(found.gamma, 0.1, atol=1e-9)  # some policy never falls
    assert 0.5 < (found.multipliers > 1e-9).mean() < 1
    wider = sd.optima(make(200, cycles=2.0, **{limit: 0.3}))
    assert (wider.value >= found.value - 1e-9).all()


def test_the_ground_is_slippery_first_and_dry_after_half_a_cycle():
    weights = thawing(100, 2.0)
    np.testing.assert_allclose(weights[[0, 25, 50]], [[1, 0], [0, 1], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1)


# ---------------------------------------------------------------- a goal that moves


def pays(cmdp):
    """Cells from which some step reaches the goal on dry ground, with that step."""
    return {(int(s), int(a)) for s, a in np.argwhere(cmdp.rewards[0] == 1)}


def test_the_goal_moves_from_cell_to_cell_and_round_again():
    world = frozen_lake(400, goal="moving", moves=3, cycles=0.001)
    dry = [world.scenarios[n] for n in (1, 3, 5)]
    assert [pays(c) for c in dry] == [{(14, 2)}, {(2, 2)}, {(9, 1), (14, 0)}]
    icy_share = world.transition_path.weight
    assert (world.transition_path.scenario[:, 0] // 2)[::100].tolist() == [0, 1, 2, 0]
    moved = np.flatnonzero(np.diff(world.transition_path.scenario[:, 0] // 2)) + 1
    assert moved.tolist() == [100, 200, 300]
    assert icy_share.sum() == pytest.approx(400)
    one = frozen_lake(50, goal="fixed")
    other = frozen_lake(50, goal=[(3, 3)], moves=7)
    for m in (0, 20, 49):
        np.testing.assert_array_equal(one.at(m).rewards, other.at(m).rewards)


@pytest.mark.parametrize(("map_name", "horizon"), [("4x4", 30), ("8x8", 40)])
def test_wherever_the_goal_is_it_can_be_reached_and_nobody_need_fall(map_name, horizon):
    world = frozen_lake(12, map_name=map_name, goal="moving", moves=2, horizon=horizon)
    found = sd.optima(world)
    np.testing.assert_allclose(found.gamma, 0.1, atol=1e-9)
    assert (found.value > 0.1).all()


def test_refused_goals():
    free = "goal[1] must be a row and a column of a cell that is neither the start nor a hole"
    for cell in ((1, 1), (0, 0), (2,)):
        with pytest.raises(ValueError, match="^" + re.escape(free)):
            frozen_lake(10, goal=[(0, 3), cell])
    with pytest.raises(ValueError, match=r"^goal\[0\] must be in \[0, 3\]; got 4"):
        frozen_lake(10, goal=[(4, 0)])
    with pytest.raises(ValueError, match=r"^goal must be one of 'fixed', 'moving'; got 'still'"):
        frozen_lake(10, goal="still")
    with pytest.raises(ValueError, match=r"^goal must be 'fixed', 'moving' or at least one cell"):
        frozen_lake(10, goal=[])


# ---------------------------------------------------------------- taxi


def fares(P, expensive, fare):
    """The raw table with fares for rewards."""
    return {
        s: {
            a: [
                (p, y, (1.0 if s % 4 == expensive else fare) if r == 20 else 0.0, end)
                for p, y, r, end in P[s][a]
            ]
            for a in P[s]
        }
        for s in P
    }


@pytest.mark.parametrize(("m", "rainy", "expensive"), [(0, True, 0), (4, False, 2)])
def test_the_optimum_of_the_taxi_is_that_of_value_iteration_where_fuel_abounds(m, rainy, expensive):
    H, fare = 9, 0.3
    options = {"cycles": 1, "start": "anywhere", "fare": fare, "horizon": H, "haste": 0}
    world = taxi(8, fuel=H - 0.01, **options)
    env = gymnasium.make("Taxi-v4", is_rainy=rainy)
    env.unwrapped.P = fares(env.unwrapped.P, expensive, fare)
    assert sd.solve(world.at(m)).value == pytest.approx(value_iteration(env, H), abs=1e-9)


def test_a_late_fare_is_a_smaller_one():
    patient, hasty = taxi(1, haste=0.0).at(0).rewards, taxi(1, haste=0.05).at(0).rewards
    shares = (1 - 0.05 * np.arange(12))[:, None, None]
    np.testing.assert_allclose(hasty, shares * patient, atol=1e-12)
    for haste in (-0.1, 0.1):
        with pytest.raises(ValueError, match=r"haste must be in \[0, 1/11\], .*; got -?0.1"):
            taxi(1, haste=haste)


def test_rain_and_fares_change_a_few_times_a_wave_and_nothing_else_does():
    world = taxi(80, cycles=2, levels=8)
    change = sd.variation(world)
    assert change.g.sum() == change.b.sum() == 0
    np.testing.assert_array_equal(np.flatnonzero(change.P.sum(axis=1)), np.arange(5, 80, 5))
    np.testing.assert_array_equal(np.flatnonzero(change.r.sum(axis=1)), np.arange(10, 80, 10))
    assert len(world.distinct[0]) == 8


def test_the_taxi_starts_where_the_passenger_is():
    first = np.flatnonzero(taxi(1).initial)
    assert first.size == 12
    decode = gymnasium.make("Taxi-v4").unwrapped.decode
    ranks = gymnasium.make("Taxi-v4").unwrapped.locs
    for s in first:
        row, column, passenger, destination = decode(s)
        assert ranks[passenger] == (row, column)
        assert passenger != destination
    assert np.flatnonzero(taxi(1, start="anywhere").initial).size == 300


def test_fuel_is_what_moves_burn_and_the_price_of_rides():
    H = 12
    world = taxi(4, fuel=2.0, cycles=1)
    south, stand = np.zeros((H, 501, 6)), np.zeros((H, 501, 6))
    south[..., 0], stand[..., 4] = 1, 1
    assert sd.evaluate(world.at(0), south)[1] == pytest.approx(0)
    assert sd.evaluate(world.at(0), stand)[1] == pytest.approx(H)
    found = sd.optima(world)
    np.testing.assert_allclose(found.gamma, 2.0, atol=1e-9)
    assert (found.multipliers > 0.01).all()
    assert (sd.optima(taxi(4, fuel=3.0, cycles=1)).value > found.value + 0.01).all()


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "env must be one with a transition table", ("CartPole-v1", 5, dry_feet, 1.0)),
        (ValueError, "utility(...) of state 0, action 0 must be in [0, 1]; got 2.0",
         ("FrozenLake-v1", 5, lambda t: 2.0, 1.0)),
        (ValueError, "utility(...) of state 0, action 0 must be 2 numbers in [0, 1]; got 1 numbers",
         ("FrozenLake-v1", 5, lambda t: 0.5, [1.0, 1.0])),
        (TypeError, "utility(...) of state 0, action 0 must be in [0, 1]; got 'wet'",
         ("FrozenLake-v1", 5, lambda t: "wet", 1.0)),
        (ValueError, "horizon must be", ("FrozenLake-v1", 0, dry_feet, 1.0)),
        (ValueError, "thresholds must be", ("FrozenLake-v1", 5, dry_feet, 9.0)),
    ],
)  # fmt: skip
def test_refused(error, message, arguments):
    with pytest.raises(error, match="^" + re.escape(message)):
        from_table(*arguments)


def test_refused_ranges_and_options():
    with pytest.raises(ValueError, match=r"^reward_range must be around \[0.0, 1.0\]"):
        from_table("FrozenLake-v1", 5, dry_feet, 1.0, reward_range=(0.0, 0.5))
    env = gymnasium.make("FrozenLake-v1")
    with pytest.raises(ValueError, match=r"^options must be none with an environment"):
        from_table(env, 5, dry_feet, 1.0, is_slippery=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([(0.5, 0, 0.0, False)], r"sums of P must be 1; got 0.5 at index \(3, 1\)"),
        (
            [(1.5, 0, 0.0, False), (-0.5, 1, 0.0, False)],
            r"must be >= 0; got -0.5 at index \(3, 1\)",
        ),
    ],
)
def test_tables_that_are_no_distributions_are_refused(row, message):
    env = gymnasium.make("FrozenLake-v1")
    env.unwrapped.P[3][1] = row
    with pytest.raises(ValueError, match=message):
        from_table(env, 5, dry_feet, 4.0)


def test_a_recipe_with_arrays_can_be_stored(tmp_path):
    lake = sd.problems.make("frozen_lake", 30, goal=np.array([[3, 3], [0, 3]]))
    assert lake.recipe["goal"] == [[3, 3], [0, 3]]
    run = sd.simulate(lake, sd.PROPDPPO.for_problem(lake, sd.Slater(0.1)))
    run.to_parquet(tmp_path / "run.parquet")
    assert sd.Run.from_parquet(tmp_path / "run.parquet").certify().identities_hold
