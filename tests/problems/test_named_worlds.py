"""The contract every named problem keeps, and each of them in detail."""

import re

import gymnasium
import numpy as np
import pytest

from safedrift import (
    PROPDPPO,
    DriftingCMDP,
    LinearKernelCMDP,
    Slater,
    evaluate,
    optima,
    simulate,
    solve,
    variation,
)
from safedrift.adapters.environment import DriftingEnv
from safedrift.models import DriftingWorld, evenly_spaced, refined
from safedrift.oracles import evaluate_episodes
from safedrift.problems import PROBLEMS, documentation, make
from safedrift.problems.blend import SIMULATORS

M = 40
SLACK = {"triple_q_grid"}  # as published
HEADINGS = (
    "Description", "States", "Actions", "Reward", "Utility", "Drift", "Knowledge", "Budgets",
    "Source", "Version",
)  # fmt: skip


def refused(error, message, name, **options):
    with pytest.raises(error, match="^" + re.escape(message)):
        make(name, **({"episodes": M} | options))


def leaves(value):
    """The arrays in tuples of tuples of arrays."""
    return (
        [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]
    )


def assert_same_world(one, other):
    assert type(one) is type(other)
    for got, expected in zip(leaves(one.arrays), leaves(other.arrays), strict=True):
        np.testing.assert_array_equal(got, expected)


# ---------------------------------------------------------------- every problem


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_a_valid_world_at_every_sampled_episode(name):
    world = make(name, episodes=M)
    assert isinstance(world, DriftingWorld)
    assert world.M == M
    assert world.name == name
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
    drifts = change.P.sum() + change.r.sum() + change.g.sum() > 0
    assert drifts == (not section(name, "Drift").startswith("None"))
    assert (optima(world).multipliers > 0).any() == (name not in SLACK)


@pytest.mark.parametrize("name", PROBLEMS)
def test_same_seed_same_world(name):
    assert_same_world(make(name, episodes=M, seed=3), make(name, episodes=M, seed=3))


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_described_under_the_same_headings(name):
    text = documentation(name)
    # A heading is a line at the margin whose next line is indented.
    headings = re.findall(r"^(\S.*)\n {4}\S", text, flags=re.MULTILINE)
    for heading in HEADINGS:
        assert any(heading.lower() in line.lower() for line in headings), heading
    assert re.search(r"^Version\n {4}\d+$", text, flags=re.MULTILINE)
    assert text.splitlines()[0].endswith("."), "a sentence says what it is"


def section(name, heading):
    text = documentation(name) + "\n"
    found = re.search(rf"^{heading}\n((?: {{4}}.*\n)+)", text, flags=re.MULTILINE)
    return " ".join(found[1].split())


@pytest.mark.parametrize("name", PROBLEMS)
def test_version_is_the_one_in_the_id(name):
    assert f"safedrift/{name}-v{section(name, 'Version')}" in gymnasium.registry


@pytest.mark.parametrize("name", PROBLEMS)
def test_declared_budgets_and_gap_are_the_computed_ones(name):
    number = r"([-+.e0-9]*[0-9])"
    form = r"With the default options and M = (\d+): "
    form += ", ".join(rf"B_{part} = {number}" for part in "Prgb") + rf", gamma >= {number}\."
    found = re.search(form, section(name, "Budgets"))
    episodes = int(found[1]) if found else 2_000
    world = make(name, episodes)
    change = variation(world)
    computed = [getattr(change, part).sum() for part in "Prgb"]
    on_box = getattr(world, "box", None) is not None
    gamma = optima(world, evenly_spaced(episodes) if on_box else None).gamma.min()
    told = ", ".join(f"B_{part} = {x:.4g}" for part, x in zip("Prgb", computed, strict=True))
    told = f"M = {episodes}: {told}, gamma = {gamma:.6g}"
    assert found, told
    declared = [float(x) for x in found.groups()[1:]]
    np.testing.assert_allclose(declared[:4], computed, rtol=1e-3, atol=1e-9, err_msg=told)
    assert declared[4] - 1e-9 <= gamma <= declared[4] * 1.01, told


def chance_policy(world, m, rng):
    """Half the best safe policy, half random; on a box, where states are points, by step."""
    if getattr(world, "box", None) is not None:
        return np.repeat(rng.dirichlet(np.ones(world.A), (world.H, 1)), world.S, axis=1)
    random = rng.dirichlet(np.ones(world.A), (world.H, world.S))
    return (solve(world.at(m)).policy + random) / 2


def drawn(rows, rng):
    """A number from each row of probabilities."""
    below = rows.cumsum(axis=1)
    return (below < rng.random((len(rows), 1)) * below[:, -1:]).sum(axis=1)


def played(world, m, policy, episodes, rng):
    """Returns (episodes, 1+K) by the world's tables, all episodes at once."""
    today = world.at(m)
    P, signals = today.dense_transitions(), np.concatenate((today.rewards[None], today.utilities))
    states = drawn(np.tile(today.initial, (episodes, 1)), rng)
    returns = np.zeros((episodes, len(signals)))
    for h in range(world.H):
        actions = drawn(policy[h, states], rng)
        returns += signals[:, h, states, actions].T
        states = drawn(P[h, states, actions], rng)
    return returns


def played_in_gymnasium(world, m, policy, episodes, rng):
    """The same through `DriftingEnv`; on a box that is the continuous world, not its nodes."""
    env = DriftingEnv(world)
    env.reset(seed=5)
    returns = np.zeros((episodes, 1 + world.K))
    for i in range(episodes):
        state, _ = env.reset(options={"episode": m})
        for h in range(world.H):
            row = policy[h, 0 if np.ndim(state) else state]
            state, reward, _, _, info = env.step(drawn(row[None], rng)[0])
            returns[i] += np.append(reward, info["utility"])
    return returns


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    ("play", "episodes", "places"), [(played, 10_000, (0.3, 1)), (played_in_gymnasium, 300, (0.6,))]
)
def test_exact_values_are_those_of_many_episodes(name, play, episodes, places):
    world = make(name, episodes=M)
    rng = np.random.default_rng(7)
    for m in (int(place * (M - 1)) for place in places):
        policy = chance_policy(world, m, rng)
        returns = play(world, m, policy, episodes, rng)
        exact = evaluate_episodes(world, np.array([m]), policy[None])[0]
        # Of many episodes: in a few, a rare reward may never be seen.
        many = returns if play is played else played(world, m, policy, 10_000, rng)
        error = many.std(axis=0) / np.sqrt(episodes)
        assert (np.abs(returns.mean(axis=0) - exact) <= 4 * error + 1e-9).all(), m


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
    assert "; got 'colour'" in str(error.value)
    assert "'episodes'" not in str(error.value)


@pytest.mark.parametrize("call", [make, documentation])
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


# ---------------------------------------------------------------- blend


def corners(**options):
    """The four simulators themselves, one per episode."""
    return make("blend", episodes=4, drift="abrupt", as_table=True, **options)


@pytest.mark.parametrize("drift", ["periodic", "random_walk"])
def test_blend_and_its_table_are_one_world(drift):
    linear = make("blend", episodes=M, drift=drift, seed=5)
    table = make("blend", episodes=M, drift=drift, seed=5, as_table=True)
    assert isinstance(linear, LinearKernelCMDP)
    assert isinstance(table, DriftingCMDP)
    for m in (0, 3, M // 2, M - 1):
        one, other = linear.at(m), table.at(m)
        for name in ("rewards", "utilities", "thresholds", "initial"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-14)
        np.testing.assert_allclose(one.dense_transitions(), other.dense_transitions(), atol=1e-14)
    np.testing.assert_allclose(optima(linear).value, optima(table).value, atol=1e-10)


def test_blend_has_far_fewer_unknowns_than_pairs_and_sparse_successors():
    world = make("blend", episodes=M)
    assert world.d1 == len(SIMULATORS) == 4
    assert 50 * world.d1 <= world.S * world.A
    assert np.diff(world.features.offsets).max() <= 12
    larger = make("blend", episodes=2, orders=19, grades=12)
    assert (larger.S, larger.A, larger.d1) == (240, 4, 4)


def test_only_transitions_drift_in_the_blend():
    change = variation(make("blend", episodes=M, as_table=True))
    assert change.r.sum() == change.g.sum() == change.b.sum() == 0
    assert (change.P.sum(axis=1)[1:] > 0).sum() > M / 2


@pytest.mark.parametrize("scrap_limit", [0.3, 0.5])
def test_scrap_limit_is_the_threshold_and_the_slater_gap(scrap_limit):
    world = make("blend", episodes=M, scrap_limit=scrap_limit)
    np.testing.assert_allclose(world.thresholds, world.H - scrap_limit)
    found = optima(world)
    np.testing.assert_allclose(found.gamma, scrap_limit, atol=1e-12)
    assert (found.multipliers > 0.1).all(), "the limit costs orders in every episode"


def test_no_simulator_has_the_best_safe_policy_of_another():
    world = corners()
    best = [solve(world.at(m)) for m in range(4)]
    for m, mine in enumerate(best):
        for n, its in enumerate(best):
            value, utility = evaluate(world.at(n), mine.policy)
            unsafe, poor = utility < world.thresholds[n, 0] - 0.05, value < its.value - 0.05
            assert (unsafe or poor) == (m != n), (SIMULATORS[m], SIMULATORS[n])


def test_hour_in_the_cell_on_paper():
    # 6 grades: at most two more in an hour. Number of a state: waiting * 6 + wear.
    world = corners()
    P = {which: world.at(m).dense_transitions()[0] for m, which in enumerate(SIMULATORS)}
    after = P["steel", "few"][2 * 6 + 1, 2]  # two wait, wear 1, cut fast
    assert after[1 * 6 + 1] == pytest.approx(0.9 * 0.7 * 0.8**2)  # one done, none new, no wear
    assert after[2 * 6 + 2] == pytest.approx((0.9 * 0.3 + 0.1 * 0.7) * 2 * 0.8 * 0.2)
    assert after[3 * 6 + 3] == pytest.approx(0.1 * 0.3 * 0.2**2)
    assert P["alloy", "few"][2 * 6 + 1, 2, 1 * 6 + 3] == pytest.approx(0.9 * 0.7)
    assert P["alloy", "many"][4, 1, 2 * 6 + 4] == pytest.approx(0.5), "nothing to cut, no wear"
    assert P["alloy", "many"][9 * 6 + 5, 3, 9 * 6] == pytest.approx(1), "full queue, new tool"
    cell = world.at(0)
    np.testing.assert_allclose(cell.rewards[0, 6], [0.4, 0.7, 0.9, 0])
    np.testing.assert_allclose(1 - cell.utilities[0, 0, 6 + 5], [0.05, 0.25, 1, 0])
    np.testing.assert_allclose(1 - cell.utilities[0, 0, 6 + 1], [0.01, 0.05, 0.2, 0])
    assert (cell.rewards[:, :6] == 0).all(), "no reward without orders"
    assert (cell.utilities[:, :, :6] == 1).all(), "and no scrap"
    assert cell.initial[3 * 6 + 1] == 1


def test_alloy_wears_tools_and_many_orders_fill_the_queue():
    world = corners()
    waiting, wear = np.divmod(np.arange(world.S), 6)
    later = {which: world.at(m).dense_transitions()[0] for m, which in enumerate(SIMULATORS)}
    for demand in ("few", "many"):
        harder = later["alloy", demand] @ wear - later["steel", demand] @ wear
        cuts = (waiting > 0) & (wear < 5)
        assert (harder[cuts, :3] > 0).all()
        np.testing.assert_allclose(harder[waiting == 0], 0, atol=1e-12)
        np.testing.assert_allclose(harder[:, 3], 0, atol=1e-12)
    for material in ("steel", "alloy"):
        fuller = later[material, "many"] @ waiting - later[material, "few"] @ waiting
        assert (fuller[waiting < 9] > 0).all()


def test_seed_of_the_blend_is_that_of_its_path():
    assert_same_world(make("blend", episodes=M, seed=1), make("blend", episodes=M, seed=2))
    one, other = (make("blend", episodes=M, drift="random_walk", seed=seed) for seed in (1, 2))
    assert (one.theta[1:] != other.theta[1:]).all()


def test_who_knows_the_simulators_learns_faster():
    linear, table = (
        simulate(world, PROPDPPO.for_problem(world, Slater(0.5)), measure_every=5)
        for world in (make("blend", 2_000), make("blend", 2_000, as_table=True))
    )
    assert linear.dynamic_regret[-1] <= table.dynamic_regret[-1] / 2
    assert linear.dynamic_regret[-1] <= linear.cumulative_baseline_regret[-1] / 3
    assert linear.violation[-1, 0] <= 0.05 * 2_000


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"orders": 0}, ValueError, "orders must be an integer >= 1; got 0"),
        ({"grades": 1}, ValueError, "grades must be an integer >= 2; got 1"),
        ({"grades": 2.0}, TypeError, "grades must be an integer; got 2.0"),
        ({"horizon": 0}, ValueError, "horizon must be an integer >= 1; got 0"),
        ({"scrap_limit": 0}, ValueError, "scrap_limit must be in (0, 8); got 0"),
        ({"scrap_limit": 8}, ValueError, "scrap_limit must be in (0, 8); got 8"),
        ({"drift": "zigzag"}, ValueError, "drift must be one of 'stationary', 'abrupt', "),
        ({"as_table": "yes"}, TypeError, "as_table must be a bool; got str"),
    ],
)
def test_wrong_options_of_the_blend(options, error, message):
    refused(error, message, "blend", **options)


# ---------------------------------------------------------------- thermostat

COLD, COOL, MILD = range(3)


def celsius(x):
    return 10 + 16 * np.asarray(x)


def mean_after(world, T, a):
    """Mean temperature (points, 3) after action a at temperatures T, in each kind of air."""
    y, weights = world.box.quadrature
    x = (np.atleast_1d(T)[:, None] - 10) / 16
    return celsius(np.einsum("j,pji->pi", weights * y[:, 0], world.box.psi(x, a, y)))


def test_kernels_of_the_thermostat_integrate_to_one():
    world = make("thermostat", episodes=M)
    assert isinstance(world, LinearKernelCMDP)
    assert world.quadrature_error < 1e-8
    assert make("thermostat", episodes=M, rule="uniform", nodes=64).quadrature_error < 1e-3


def test_refining_the_nodes_changes_little():
    world = make("thermostat", episodes=M)
    coarse, fine = optima(world), optima(refined(world))
    np.testing.assert_allclose(coarse.value, fine.value, atol=0.01)
    np.testing.assert_allclose(coarse.gamma, fine.gamma, atol=0.03)


def test_comfort_binds_all_year_and_the_slater_gap_is_as_told():
    world = make("thermostat", episodes=M)
    np.testing.assert_allclose(world.thresholds, 0.7 * world.H)
    found = optima(world)
    assert (found.multipliers > 0.3).all()
    assert found.gamma.min() >= 0.85
    assert found.gamma.max() <= 1.05
    more = optima(make("thermostat", episodes=M, comfort=0.75))
    np.testing.assert_allclose(found.gamma - more.gamma, 0.05 * world.H, atol=1e-12)
    assert (more.value < found.value).all(), "comfort costs energy"


def test_only_transitions_drift_with_the_seasons():
    world = make("thermostat", episodes=M, period=20)
    change = variation(world)
    assert change.r.sum() == change.g.sum() == change.b.sum() == 0
    assert (change.P.sum(axis=1)[1:] > 0).all()
    np.testing.assert_allclose(world.theta[[0, 10, 20], 0], np.eye(3)[[COLD, MILD, COLD]])
    np.testing.assert_allclose(world.theta[[5, 15], 0], np.eye(3)[[COOL, COOL]], atol=1e-12)


def test_room_on_paper():
    world = make("thermostat", episodes=M)
    # 20 °C, half power, cool air: 20 - 0.12 (20 - 4) + 2.5 = 20.58; 18 + 8 tanh(2.58/8) = 20.495.
    assert mean_after(world, 20, 1)[0, COOL] == pytest.approx(20.495, abs=1e-3)
    # A draw by u = 1/2 is the median, far from the edges of the box the mean.
    drawn = world.box.sample(np.array([10 / 16]), 1, COOL, np.array([0.5]))
    assert celsius(drawn[0]) == pytest.approx(20.495, abs=1e-3)
    x, half = (np.array([[20], [18], [22]]) - 10) / 16, np.ones((3, 1), int)
    rewards, comfort = np.sqrt(2) * world.box.phi(x, half).T
    np.testing.assert_allclose(rewards, 0.5)
    np.testing.assert_allclose(comfort, np.exp([0, -0.5, -0.5]))
    assert celsius(world.box.points[world.initial == 1]) == pytest.approx(18)


def test_heating_warms_and_cold_air_cools():
    world = make("thermostat", episodes=M)
    T = np.linspace(10, 26, 50)
    off, half, full = (mean_after(world, T, a) for a in range(3))
    assert (off < half).all()
    assert (half < full).all()
    for after in (off, half, full):
        assert (np.diff(after, axis=1) > 0).all(), "cold < cool < mild"
        assert (np.diff(after, axis=0) > 0).all(), "a warm room stays warmer than a cold one"
    at_home = (T >= 17) & (T <= 21)
    assert (off[at_home] < T[at_home, None]).all()
    assert (full[at_home] > T[at_home, None]).all()


def test_winter_takes_more_energy_and_another_policy():
    world = make("thermostat", episodes=M, period=20)
    winter, spring, summer = (solve(world.at(m)) for m in (0, 5, 10))
    assert winter.value + 1 < spring.value < summer.value - 0.5
    b = world.thresholds[0, 0]
    assert evaluate(world.at(0), summer.policy)[1] < b - 2, "the room is cold"
    value, comfort = evaluate(world.at(10), winter.policy)
    assert value < summer.value - 1, "and here energy is wasted"
    assert comfort >= b - 0.5


def test_thermostat_learns():
    world = make("thermostat", episodes=300)
    run = simulate(world, PROPDPPO.for_problem(world, Slater(0.8)), measure_every=3)
    late = run.episodes >= 200
    assert run.regret[late].mean() <= run.baseline_regret[late].mean() / 2
    assert (
        run.outcome.utility[late].mean()
        > (run.truth.baseline_utility[late].mean() + 0.7 * world.H) / 2
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"horizon": 0}, ValueError, "horizon must be an integer >= 1; got 0"),
        ({"comfort": 0}, ValueError, "comfort must be in (0, 1); got 0"),
        ({"comfort": 1}, ValueError, "comfort must be in (0, 1); got 1"),
        ({"comfort": "high"}, TypeError, "comfort must be a number; got 'high'"),
        ({"period": 0}, ValueError, "period must be > 0; got 0"),
        ({"rule": "simpson"}, ValueError, "rule must be one of 'gauss-legendre', 'uniform'; got "),
        ({"nodes": 0}, ValueError, "nodes must be an integer"),
        ({"nodes": 8}, ValueError, "the integral of each component of psi"),
    ],
)
def test_wrong_options_of_the_thermostat(options, error, message):
    refused(error, message, "thermostat", **options)


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
