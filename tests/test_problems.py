"""The contract every named problem keeps, and the maze in detail."""

import re

import numpy as np
import pytest

from safedrift import PROPDPPO, DriftingCMDP, Slater, optima, simulate, solve, variation
from safedrift.problems import PROBLEMS, describe, make

M = 40
HEADINGS = (
    "Story", "States", "Actions", "Reward", "Utility", "Drift", "Knowledge", "Source", "Version",
)  # fmt: skip


def refused(error, message, name, **options):
    with pytest.raises(error, match="^" + re.escape(message)):
        make(name, **({"episodes": M} | options))


def assert_same_world(one, other):
    for got, expected in zip(one.arrays, other.arrays, strict=True):
        np.testing.assert_array_equal(got, expected)


# ---------------------------------------------------------------- every problem


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_a_valid_world_at_every_sampled_episode(name):
    world = make(name, episodes=M)
    assert isinstance(world, DriftingCMDP)
    assert world.M == M
    for m in (0, 1, M // 2, M - 1):
        cmdp = world.at(m)
        P = cmdp.dense_transitions()
        assert P.min() >= 0
        np.testing.assert_allclose(P.sum(axis=-1), 1, atol=1e-12)
        assert cmdp.initial.sum() == pytest.approx(1)
        for values in (cmdp.rewards, cmdp.utilities):
            assert 0 <= values.min() < values.max() <= 1
        assert (cmdp.thresholds > 0).all()
        assert (cmdp.thresholds <= world.H).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_strictly_feasible_in_every_episode(name):
    found = optima(make(name, episodes=M))
    assert found.feasible.all()
    assert (found.gamma > 0).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_drifts_and_its_constraint_matters(name):
    world = make(name, episodes=M)
    change = variation(world)
    assert change.P.sum() + change.r.sum() + change.g.sum() > 0
    assert (optima(world).multipliers > 0).any()


@pytest.mark.parametrize("name", PROBLEMS)
def test_same_seed_same_world(name):
    assert_same_world(make(name, episodes=M, seed=3), make(name, episodes=M, seed=3))


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_described_under_the_same_headings(name):
    text = describe(name)
    # A heading is a line at the margin whose next line is indented.
    headings = re.findall(r"^(\S.*)\n {4}\S", text, flags=re.MULTILINE)
    for heading in HEADINGS:
        assert any(heading.lower() in line.lower() for line in headings), heading
    assert re.search(r"^Version\n {4}\d+$", text, flags=re.MULTILINE)
    assert text.splitlines()[0].endswith("."), "a sentence says what it is"


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    ("episodes", "error", "message"),
    [
        (0, ValueError, "episodes must be an integer >= 1; got 0"),
        (2.5, TypeError, "episodes must be an integer; got 2.5"),
    ],
)
def test_number_of_episodes_is_checked(name, episodes, error, message):
    refused(error, message, name, episodes=episodes)


@pytest.mark.parametrize("name", PROBLEMS)
def test_unknown_option_is_answered_with_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"option of {name} must be one of '") as error:
        make(name, episodes=M, colour="red")
    assert str(error.value).endswith("; got 'colour'")
    assert "'episodes'" not in str(error.value)


@pytest.mark.parametrize("call", [make, describe])
def test_unknown_problem_is_answered_with_the_known_ones(call):
    known = ", ".join(repr(name) for name in PROBLEMS)
    with pytest.raises(ValueError, match=rf"problem must be one of {known}; got 'labyrinth'"):
        call("labyrinth")


# ---------------------------------------------------------------- maze


def test_only_rewards_drift_in_the_maze():
    world = make("maze", episodes=M)
    change = variation(world)
    assert change.P.sum() == change.g.sum() == change.b.sum() == 0
    np.testing.assert_array_equal(np.flatnonzero(change.r.sum(axis=1)), [10, 20, 30])


@pytest.mark.parametrize("moves", [0, 1, 5])
def test_target_moves_as_often_as_asked(moves):
    change = variation(make("maze", episodes=M, moves=moves))
    assert (change.r.sum(axis=1) > 0).sum() == moves


@pytest.mark.parametrize("size", [4, 5, 8])
def test_maze_pays_on_one_cell_above_the_hazards(size):
    world = make("maze", episodes=M, size=size)
    hazard = world.at(0).utilities[0, 0, :, 0] == 0
    row = np.flatnonzero(hazard) // size
    assert set(row) == {size // 2}
    assert hazard.sum() == size - 2, "a way around on either side"
    start = int(np.flatnonzero(world.at(0).initial)[0])
    assert start // size == size - 1
    targets = set()
    for m in world.distinct[0]:
        paid = world.at(int(m)).rewards
        assert (paid == paid[:1, :, :1]).all(), "whatever the step and the action"
        (target,) = np.flatnonzero(paid[0, :, 0])
        assert target // size < size // 2
        targets.add(int(target))
    assert len(targets) == 3


def test_robot_moves_slips_and_bumps_into_walls():
    # 4 x 4, slip 0.2: the wanted way with 0.8, each of the four ways with 0.05.
    P = make("maze", episodes=M, size=4, slip=0.2).at(0).dense_transitions()[0]
    corner = np.zeros(16)  # up from the top left corner stays; so does a slip to the left
    corner[[0, 1, 4]] = 0.9, 0.05, 0.05
    np.testing.assert_allclose(P[0, 0], corner, atol=1e-15)
    inside = np.zeros(16)  # right from cell 5
    inside[[1, 4, 6, 9]] = 0.05, 0.05, 0.85, 0.05
    np.testing.assert_allclose(P[5, 1], inside, atol=1e-15)
    certain = make("maze", episodes=M, size=4, slip=0.0).at(0).dense_transitions()[0]
    np.testing.assert_array_equal(certain[5].argmax(axis=1), [1, 6, 9, 4])
    np.testing.assert_array_equal(certain[15].argmax(axis=1), [11, 15, 15, 14])
    assert set(np.unique(certain)) == {0.0, 1.0}


def test_hazard_budget_is_the_threshold_and_almost_the_slater_gap():
    world = make("maze", episodes=M, hazard_budget=0.75)
    np.testing.assert_allclose(world.thresholds, world.H - 0.75)
    gamma = solve(world.at(0)).gamma
    assert 0.74 < gamma < 0.75
    # Without slipping the robot can stand still: the gap is the budget.
    still = make("maze", episodes=M, slip=0.0, hazard_budget=0.75)
    assert solve(still.at(0)).gamma == pytest.approx(0.75, abs=1e-12)


def test_maze_without_slipping_is_solved_on_paper():
    # 5 x 5, start (4, 2), target (0, 2) at first. Straight up: 4 steps, one on a hazard, then paid
    # for 12 - 4 = 8. Around: 8 steps, paid for 4. A budget of 1/2 hazard steps mixes them evenly:
    # 6, at a price of (8 - 4)/1 per hazard step.
    found = solve(make("maze", episodes=M, slip=0.0).at(0))
    assert found.value == pytest.approx(6, abs=1e-12)
    assert found.multipliers[0] == pytest.approx(4, abs=1e-12)


def test_nothing_in_the_maze_is_random():
    assert_same_world(make("maze", episodes=M, seed=1), make("maze", episodes=M, seed=2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 3}, ValueError, "size must be an integer >= 4; got 3"),
        ({"size": 5.0}, TypeError, "size must be an integer; got 5.0"),
        ({"horizon": 4}, ValueError, "horizon must be an integer >= 5; got 4"),
        ({"slip": 1.0}, ValueError, "slip must be in [0, 1); got 1.0"),
        ({"slip": -0.1}, ValueError, "slip must be in [0, 1); got -0.1"),
        ({"slip": np.nan}, ValueError, "slip must be a number; got nan"),
        ({"hazard_budget": 0}, ValueError, "hazard_budget must be in (0, 12); got 0"),
        ({"hazard_budget": 12}, ValueError, "hazard_budget must be in (0, 12); got 12"),
        ({"hazard_budget": "low"}, TypeError, "hazard_budget must be a number; got 'low'"),
    ],
)
def test_wrong_options_of_the_maze(options, error, message):
    refused(error, message, "maze", **options)


# ---------------------------------------------------------------- random (budgets: test_budgets.py)


def test_random_world_has_the_sizes_asked_for():
    world = make("random", episodes=M, states=4, actions=2, horizon=3, constraints=2, scenarios=5)
    assert (world.M, world.H, world.S, world.A, world.K) == (M, 3, 4, 2, 2)
    assert len(world.scenarios) == 5


def test_another_seed_is_another_random_world():
    one, other = (make("random", episodes=M, seed=seed).at(0) for seed in (1, 2))
    for name in ("rewards", "utilities"):
        assert (getattr(one, name) != getattr(other, name)).all()
    assert (one.dense_transitions() != other.dense_transitions()).all()


@pytest.mark.parametrize("successors", [1, 3])
def test_random_world_has_so_many_successors(successors):
    world = make("random", episodes=M, states=6, successors=successors, drift="alternating")
    for m in range(3):
        P = world.at(m).dense_transitions()
        np.testing.assert_array_equal((P > 0).sum(axis=-1), successors)


def test_random_world_follows_a_path_of_your_own():
    weights = np.random.default_rng(0).dirichlet(np.ones(2), M)
    own = make("random", episodes=M, scenarios=2, weights=weights)
    r = np.stack([s.rewards for s in own.scenarios])
    for m in (0, 7, M - 1):
        expected = np.tensordot(weights[m], r, axes=1)
        np.testing.assert_allclose(own.at(m).rewards, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gamma": 0}, ValueError, "gamma must be in (0, 5); got 0"),
        ({"gamma": 5.0}, ValueError, "gamma must be in (0, 5); got 5.0"),
        ({"drift": "zigzag"}, ValueError, "drift must be one of 'stationary', 'abrupt', "),
        ({"successors": 6}, ValueError, "successors must be an integer in [1, 5]; got 6"),
        ({"states": 0}, ValueError, "states must be an integer >= 1; got 0"),
        ({"actions": 1.5}, TypeError, "actions must be an integer; got 1.5"),
        ({"horizon": -1}, ValueError, "horizon must be an integer >= 1; got -1"),
        ({"constraints": 0}, ValueError, "constraints must be an integer >= 1; got 0"),
        ({"scenarios": 0}, ValueError, "scenarios must be an integer >= 1; got 0"),
        ({"weights": [[1, 0, 0], [0.5, 0.6, 0]]}, ValueError,
         "weights must be an array of shape (40, 3); got shape (2, 3)"),
        ({"B_P": "much"}, TypeError, "B_P must be a number; got 'much'"),
    ],
)  # fmt: skip
def test_wrong_options_of_the_random_world(options, error, message):
    refused(error, message, "random", **options)


def test_a_short_maze_moves_its_target_less_often():
    assert make("maze", episodes=2).M == 2
    refused(ValueError, "moves must be an integer >= 0; got -1", "maze", moves=-1)


def test_the_demo_learns_in_every_segment_and_its_violation_falls():
    world = make("maze", episodes=20_000)
    run = simulate(world, PROPDPPO.for_problem(world, Slater(0.49)), seed=0, measure_every=5)
    for end in (5_000, 10_000, 15_000, 20_000):
        late = (run.episodes >= end - 500) & (run.episodes < end)
        assert run.regret[late].mean() <= run.baseline_regret[late].mean() / 4
    per_episode = run.violation[:, 0] / (run.episodes + 5)
    early, middle, late = (
        per_episode[np.searchsorted(run.episodes, m)] for m in (500, 4_000, 19_000)
    )
    assert early > middle > late
