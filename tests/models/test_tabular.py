"""Models: what is refused and with which words, and what the accepted ones compute."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import safedrift as sd
from conftest import as_lists, drifting_worlds, random_cmdp, random_scenarios, rebuilt
from safedrift import DriftingCMDP, Successors, TabularCMDP, drift, from_costs

H, S, A, K = 2, 3, 2, 2
NAMES = [field.name for field in dataclasses.fields(TabularCMDP)]
PATHS = ["weights", "transition_weights", "reward_weights", "utility_weights"]


@pytest.fixture
def cmdp():
    return random_cmdp(np.random.default_rng(0), H, S, A, K)


@pytest.fixture
def scenarios():
    return random_scenarios(np.random.default_rng(1), 3, H, S, A, K)


def put(array, index, value):
    """A copy with one entry (or row) replaced."""
    array = np.array(array)
    array[index] = value
    return array


def assert_refused(error, message, build, *arguments, **options):
    """One sentence, exactly this one."""
    with pytest.raises(error) as caught:
        build(*arguments, **options)
    assert type(caught.value) is error
    assert str(caught.value) == message


# ---------------------------------------------------------------- one CMDP: refused

OFF_BY_A_LITTLE = [
    ("transitions", (1, 2, 0), [0.5, 0.5, 0.1],
     "each row of transitions must be a distribution (sum 1); got 1.1 at index (1, 2, 0)"),
    ("transitions", (0, 1, 1), [0.5, 0.5, 1e-8],
     "each row of transitions must be a distribution (sum 1); got 1.00000001 at index (0, 1, 1)"),
    ("transitions", (1, 0, 1), [0.6, -0.1, 0.5],
     "transitions must be >= 0; got -0.1 at index (1, 0, 1, 1)"),
    ("rewards", (1, 2, 1), 1.5, "rewards must be in [0, 1]; got 1.5 at index (1, 2, 1)"),
    ("rewards", (0, 0, 1), -1e-9, "rewards must be in [0, 1]; got -1e-09 at index (0, 0, 1)"),
    ("utilities", (1, 0, 2, 1), 2.0, "utilities must be in [0, 1]; got 2.0 at index (1, 0, 2, 1)"),
    ("utilities", (0, 1, 1, 0), -0.5,
     "utilities must be in [0, 1]; got -0.5 at index (0, 1, 1, 0)"),
    ("thresholds", 1, 0.0, "thresholds must be in (0, H] = (0, 2]; got 0.0 at index 1"),
    ("thresholds", 0, -1.0, "thresholds must be in (0, H] = (0, 2]; got -1.0 at index 0"),
    ("thresholds", 0, 2.001, "thresholds must be in (0, H] = (0, 2]; got 2.001 at index 0"),
    ("initial", 2, -0.25, "initial must be >= 0; got -0.25 at index 2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "index", "value", "message"), OFF_BY_A_LITTLE)
def test_one_wrong_number_is_named_with_its_place(cmdp, name, index, value, message):
    changed = put(getattr(cmdp, name), index, value)
    assert_refused(ValueError, message, rebuilt, cmdp, **{name: changed})


def test_initial_must_sum_to_one(cmdp):
    # A plain vector has one row: there is no index to name.
    with pytest.raises(
        ValueError, match=r"each row of initial must be a distribution \(sum 1\); got 1\.5"
    ):
        rebuilt(cmdp, initial=[0.5, 0.5, 0.5])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_numbers_must_be_finite(cmdp, name, value):
    array = getattr(cmdp, name)
    last = tuple(size - 1 for size in array.shape)
    where = last[0] if len(last) == 1 else last
    message = f"{name} must be finite; got {value} at index {where}"
    assert_refused(ValueError, message, rebuilt, cmdp, **{name: put(array, last, value)})


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("transitions", (H, S, A, S + 1), "(2, 3, 2, 3)"),
        ("transitions", (H - 1, S, A, S), "(2, 3, 2, 3)"),
        ("transitions", (S, A, S), "(2, 3, 2, 3)"),
        ("rewards", (S, A), "(H, S, A)"),
        ("rewards", (H, 0, A), "(H, S, A)"),
        ("utilities", (H, S, A), "(K, 2, 3, 2)"),
        ("utilities", (K, H, S, A + 1), "(K, 2, 3, 2)"),
        ("utilities", (0, H, S, A), "(K, 2, 3, 2)"),
        ("thresholds", (), "(2,)"),
        ("thresholds", (K + 1,), "(2,)"),
        ("initial", (S - 1,), "(3,)"),
        ("initial", (1, S), "(3,)"),
    ],
)
def test_shapes_must_agree(cmdp, name, shape, wanted):
    message = f"{name} must be an array of shape {wanted}; got shape {shape}"
    assert_refused(ValueError, message, rebuilt, cmdp, **{name: np.full(shape, 0.5)})


def test_sizes_are_those_of_the_rewards(cmdp):
    with pytest.raises(ValueError, match=r"utilities must be an array of shape \(K, 2, 4, 2\)"):
        rebuilt(cmdp, rewards=np.zeros((H, S + 1, A)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value", ["twelve", [[1, 2], [3]], object()], ids=["text", "ragged", "object"]
)
def test_only_numbers_are_taken(cmdp, name, value):
    message = f"{name} must be an array of numbers; got {type(value).__name__}"
    assert_refused(TypeError, message, rebuilt, cmdp, **{name: value})


# One row (h, s, a) = (0, 0, 0) .. (0, 1, 0) each: H = 1, S = 2, A = 1.
GOOD_LISTS = Successors(np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.25, 0.75, 1.0]))


def listed(**changes):
    lists = GOOD_LISTS._replace(**changes)
    return TabularCMDP(lists, np.zeros((1, 2, 1)), np.ones((1, 1, 2, 1)), [1], [0.5, 0.5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probabilities": [0.25, 0.5, 1.0]},
         "each row of transitions must be a distribution (sum 1); got 0.75 at index (0, 0, 0)"),
        ({"probabilities": [0.25, 0.75, 1.5]},
         "each row of transitions must be a distribution (sum 1); got 1.5 at index (0, 1, 0)"),
        ({"probabilities": [-0.25, 1.25, 1.0]},
         "transitions.probabilities must be >= 0; got -0.25 at index 0"),
        ({"probabilities": [0.25, np.nan, 1.0]},
         "transitions.probabilities must be finite; got nan at index 1"),
        ({"states": [0, 1, 2]}, "transitions.states must be in [0, 1]; got 2 at index 2"),
        ({"states": [0, -1, 1]},
         "transitions.states must be in [0, 1]; got -1 at index 1"),
        ({"states": [0, 1]}, "transitions.states must be of shape (3,); got (2,)"),
        ({"offsets": [0, 3]},
         "transitions.offsets must be of shape (H*S*A + 1,) = (3,); got (2,)"),
        ({"offsets": [0, 3, 3]}, "row lengths of transitions must be >= 1; got 0 at index 1"),
    ],
)  # fmt: skip
def test_successor_lists_are_checked(changes, message):
    changes = {name: np.array(value) for name, value in changes.items()}
    assert_refused(ValueError, message, listed, **changes)


@pytest.mark.parametrize("offsets", [[0, 2, 4], [1, 2, 3]])
def test_successor_lists_must_cover_all_entries(offsets):
    with pytest.raises(ValueError, match=r"transitions\.offsets must be from 0 to 3; got"):
        listed(offsets=np.array(offsets))


@given(st.data())
def test_any_broken_row_of_transitions_is_found(data):
    cmdp = random_cmdp(np.random.default_rng(0), H, S, A)
    h, s, a, x = (data.draw(st.integers(0, n - 1)) for n in (H, S, A, S))
    shift = data.draw(st.floats(1e-6, 10))
    P = put(cmdp.transitions, (h, s, a, x), cmdp.transitions[h, s, a, x] + shift)
    message = rf"transitions must be a distribution \(sum 1\); got .* at index \({h}, {s}, {a}\)"
    with pytest.raises(ValueError, match=message):
        rebuilt(cmdp, transitions=P)
    with pytest.raises(ValueError, match=message):
        rebuilt(cmdp, transitions=as_lists(P))


# ---------------------------------------------------------------- one CMDP: accepted


def test_limits_of_the_allowed_ranges_are_allowed(cmdp):
    edge = rebuilt(
        cmdp,
        rewards=np.ones((H, S, A)),
        utilities=np.zeros((K, H, S, A)),
        thresholds=[H, 1e-300],
        initial=[0, 1, 0],
        transitions=put(cmdp.transitions, (0, 0, 0), [0.5, 0.5, 5e-10]),
    )
    assert edge.shape == (H, S, A, K)


def test_lists_of_numbers_are_taken_and_become_float64():
    cmdp = TabularCMDP([[[[1]]]], [[[1]]], [[[[0]]]], [1], [1])
    for name in NAMES:
        array = getattr(cmdp, name)
        assert array.dtype == np.float64
        assert array.flags.c_contiguous
    assert cmdp.shape == (1, 1, 1, 1)


def test_arrays_are_copies_and_cannot_be_written(cmdp):
    mine = np.full((H, S, A), 0.5)
    own = rebuilt(cmdp, rewards=mine)
    mine[:] = 7
    assert (own.rewards == 0.5).all()
    for name in NAMES:
        with pytest.raises(ValueError, match="read-only"):
            getattr(own, name)[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.rewards = mine


def test_successor_lists_are_copies_and_cannot_be_written():
    mine = Successors(*(array.copy() for array in GOOD_LISTS))
    own = listed(**mine._asdict())
    for array in mine:
        array[:] = 0
    for got, expected in zip(own.transitions, GOOD_LISTS, strict=True):
        np.testing.assert_array_equal(got, expected)
        with pytest.raises(ValueError, match="read-only"):
            got[...] = 0


@pytest.mark.parametrize("successors", [1, 2, 5])
def test_dense_transitions_and_successor_lists_are_inverse(successors):
    rng = np.random.default_rng(successors)
    full = random_cmdp(rng, 3, 5, 2, successors=successors)
    lists = rebuilt(full, transitions=as_lists(full.transitions))
    np.testing.assert_array_equal(lists.dense_transitions(), full.transitions)
    np.testing.assert_array_equal(full.dense_transitions(), full.transitions)
    for got, expected in zip(full.successors, lists.transitions, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert full.successors.states.size == 3 * 5 * 2 * successors


def test_successors_may_come_in_any_order():
    turned = listed(states=np.array([1, 0, 1]), probabilities=np.array([0.75, 0.25, 1.0]))
    np.testing.assert_array_equal(turned.dense_transitions(), listed().dense_transitions())


# ---------------------------------------------------------------- costs


def test_costs_with_limits_become_utilities_with_thresholds():
    costs = np.broadcast_to(np.array([0.0, 0.25, 1.0])[:, None], (1, 4, 3, 1))
    utilities, thresholds = from_costs(costs, np.array([1.5]))
    np.testing.assert_array_equal(utilities, 1 - costs)
    np.testing.assert_array_equal(thresholds, [2.5])


def test_limits_may_differ_from_episode_to_episode():
    limits = np.array([[0.0, 1.0], [0.5, 2.5]])  # (M, K)
    _, thresholds = from_costs(np.zeros((2, 3, 1, 1)), limits)
    np.testing.assert_array_equal(thresholds, 3 - limits)


@given(npst.arrays(float, (2, 3, 2, 2), elements=st.floats(0, 1)), st.floats(0, 2.999))
def test_cost_within_limit_means_utility_above_threshold(costs, limit):
    utilities, thresholds = from_costs(costs, np.full(2, limit))
    path = costs[:, :, 0, 0].sum(axis=1)  # cost of three steps in one state
    utility = utilities[:, :, 0, 0].sum(axis=1)
    np.testing.assert_allclose(utility - thresholds, limit - path, atol=1e-12)


@pytest.mark.parametrize("limit", [3.0, -0.1, np.nan])
def test_limits_outside_the_horizon_are_refused(limit):
    message = f"limits must be in [0, H) = [0, 3); got {limit} at index 1"
    assert_refused(ValueError, message, from_costs, np.zeros((2, 3, 1, 1)), [1.0, limit])


def test_the_horizon_is_that_of_the_costs():
    # It used to be an argument, and a wrong one changed the limit: H = 5 gave a threshold of 3.
    costs = np.ones((1, 3, 1, 1))
    with pytest.raises(TypeError):
        from_costs(costs, [2.0], 5)
    assert from_costs(costs, [2.0])[1] == 1.0


@pytest.mark.parametrize("limits", [[1.0], [1.0, 1.0, 1.0], 1.0, [[1.0], [1.0]]])
def test_there_is_one_limit_for_each_cost(limits):
    message = f"limits must be one for each of the K = 2 costs; got shape {np.shape(limits)}"
    assert_refused(ValueError, message, from_costs, np.zeros((2, 3, 1, 1)), limits)


def test_costs_without_a_step_axis_are_refused():
    message = "costs must be an array of shape (K, H, S, A); got shape (3, 1, 1)"
    assert_refused(ValueError, message, from_costs, np.zeros((3, 1, 1)), [1.0])


# ---------------------------------------------------------------- drifting worlds: refused


def test_scenarios_must_be_there_and_be_cmdps(scenarios):
    one = np.zeros(1, int)
    message = "scenarios must be at least one TabularCMDP; got none"
    assert_refused(ValueError, message, DriftingCMDP, [], one)
    message = "scenarios[1] must be a TabularCMDP; got str"
    assert_refused(TypeError, message, DriftingCMDP, [scenarios[0], "maze"], one)


def test_scenarios_must_have_one_shape_and_one_start(scenarios):
    other = random_cmdp(np.random.default_rng(0), H, S, A + 1, K)
    shapes = r"of one shape \(2, 3, 2, 2\); got .*A=3.* at index 3$"
    with pytest.raises(ValueError, match="^scenarios must be " + shapes):
        DriftingCMDP([*scenarios, other], np.zeros(1, int))
    moved = rebuilt(scenarios[0], initial=[0, 0, 1])
    message = "scenarios must be of one initial distribution; got another at index 1"
    assert_refused(ValueError, message, DriftingCMDP, [scenarios[0], moved], np.zeros(1, int))


WRONG_WEIGHTS = [
    ([[1, 0, 0], [0.5, 0.6, 0]],
     "each row of {name} must be a distribution (sum 1); got 1.1 at index 1"),
    ([[1, 0, 0], [0, 1, 1e-8]],
     "each row of {name} must be a distribution (sum 1); got 1.00000001 at index 1"),
    ([[1.5, -0.5, 0], [1, 0, 0]], "{name} must be >= 0; got -0.5 at index (0, 1)"),
    ([[1, 0, 0], [0, np.nan, 1]], "{name} must be finite; got nan at index (1, 1)"),
    ([[1, 0, 0], [0, np.inf, 1]], "{name} must be finite; got inf at index (1, 1)"),
    ([[1.0, 0.0], [0.0, 1.0]], "{name} must be an array of shape (M, 3); got shape (2, 2)"),
    ([0.5, 0.5, 0.0], "{name} must be an array of shape (M, 3); got shape (3,)"),
    (np.zeros((0, 3)), "{name} must be an array of shape (M, 3); got shape (0, 3)"),
    ([0, 3], "{name} must be in [0, 2]; got 3 at index 1"),
    ([-1, 0], "{name} must be in [0, 2]; got -1 at index 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["weights", "transition_weights", "reward_weights", "utility_weights"]
)
@pytest.mark.parametrize(("weights", "message"), WRONG_WEIGHTS)
def test_weights_must_be_on_the_simplex(scenarios, name, weights, message):
    options = {"weights": np.zeros(2, int)} | {name: weights}
    assert_refused(ValueError, message.format(name=name), DriftingCMDP, scenarios, **options)


def test_weights_must_be_numbers(scenarios):
    message = "weights must be an array of numbers; got list"
    assert_refused(TypeError, message, DriftingCMDP, scenarios, [["a", "b", "c"]])


def test_paths_must_have_one_length(scenarios):
    for name in ("reward_weights", "utility_weights"):
        message = f"{name} must be of length M = 4; got length 5"
        weights = {name: np.zeros(5, int)}
        assert_refused(ValueError, message, DriftingCMDP, scenarios, np.zeros(4, int), **weights)


def test_some_path_must_be_given_for_each_part(scenarios):
    path = np.zeros(2, int)
    with pytest.raises(TypeError, match="weights or transition_weights must be given"):
        DriftingCMDP(scenarios)
    with pytest.raises(TypeError, match="weights or utility_weights must be given"):
        DriftingCMDP(scenarios, transition_weights=path, reward_weights=path)
    own = dict(transition_weights=path, reward_weights=path, utility_weights=path)
    with pytest.raises(ValueError, match="weights must be of length M = 2; got length 3"):
        DriftingCMDP(scenarios, np.zeros(3, int), **own)
    with pytest.raises(TypeError, match="thresholds must be given when weights is not; got None"):
        DriftingCMDP(scenarios, transition_weights=path, reward_weights=path, utility_weights=path)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ([[1, 1], [1, 0]], "thresholds must be in (0, H] = (0, 2]; got 0.0 at index (1, 1)"),
        ([[1, 2.5], [1, 1]], "thresholds must be in (0, H] = (0, 2]; got 2.5 at index (0, 1)"),
        ([[1, np.nan], [1, 1]], "thresholds must be finite; got nan at index (0, 1)"),
        ([1, 1], "thresholds must be an array of shape (2, 2); got shape (2,)"),
        ([[1, 1]], "thresholds must be an array of shape (2, 2); got shape (1, 2)"),
    ],
)
def test_thresholds_of_all_episodes_are_checked(scenarios, thresholds, message):
    path = np.zeros(2, int)
    assert_refused(ValueError, message, DriftingCMDP, scenarios, path, thresholds=thresholds)
    world = DriftingCMDP(scenarios, path)
    assert_refused(ValueError, message, world.with_thresholds, thresholds)


def test_from_sequence_needs_an_episode():
    message = "episodes must be at least one CMDP; got none"
    assert_refused(ValueError, message, DriftingCMDP.from_sequence, iter([]))


@pytest.mark.parametrize("m", [-1, 4])
def test_only_episodes_of_the_world_can_be_looked_at(scenarios, m):
    world = DriftingCMDP(scenarios, np.zeros(4, int))
    assert_refused(ValueError, f"m must be an integer in [0, 3]; got {m}", world.at, m)


def test_episodes_are_numbered_by_integers(scenarios):
    world = DriftingCMDP(scenarios, np.zeros(4, int))
    assert_refused(TypeError, "m must be an integer; got 1.0", world.at, 1.0)


# ---------------------------------------------------------------- drifting worlds: mixing


def mixed(weights, arrays):
    """Σ_n w_n θ_n, spelled out."""
    total = np.zeros_like(arrays[0])
    for w, array in zip(weights, arrays, strict=True):
        total = total + w * array
    return total


@pytest.mark.parametrize("successors", [None, 1, 2], ids=["dense", "one each", "two each"])
@pytest.mark.parametrize("lists", [False, True], ids=["array", "lists"])
def test_episodes_are_the_mixtures_their_weights_say(successors, lists):
    rng = np.random.default_rng(2)
    N, M = 4, 6
    scenarios = random_scenarios(rng, N, 3, 5, 2, K, successors=successors)
    if lists:  # with different successors in each scenario
        scenarios = [rebuilt(s, transitions=as_lists(s.transitions)) for s in scenarios]
    w, w_P, w_r, w_g = (rng.dirichlet(np.ones(N), M) for _ in range(4))
    w_P[2], w_P[3] = np.eye(N)[1], [0.5, 0, 0.5, 0]
    w_r[:] = [1e-9, 0.5, 1e-6, 0.5 - 1e-9 - 1e-6]  # small weights count too
    world = DriftingCMDP(
        scenarios, w, transition_weights=w_P, reward_weights=w_r, utility_weights=w_g
    )
    for m in range(M):
        found = world.at(m)
        expected = {
            "transitions": mixed(w_P[m], [s.dense_transitions() for s in scenarios]),
            "rewards": mixed(w_r[m], [s.rewards for s in scenarios]),
            "utilities": mixed(w_g[m], [s.utilities for s in scenarios]),
            "thresholds": mixed(w[m], [s.thresholds for s in scenarios]),
            "initial": scenarios[0].initial,
        }
        P = found.dense_transitions()
        np.testing.assert_allclose(P, expected.pop("transitions"), atol=1e-15)
        for name, array in expected.items():
            np.testing.assert_allclose(getattr(found, name), array, atol=1e-15, err_msg=name)


@given(st.integers(1, 12), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_thresholds_at_their_limit_stay_there_when_mixed(H, N, seed):
    """Rounding must not carry a mixture of H, H, ..., H above H."""
    cmdp = TabularCMDP(np.ones((H, 1, 1, 1)), np.zeros((H, 1, 1)), np.ones((1, H, 1, 1)), [H], [1])
    weights = drift.random_walk(20, N, 0.3, seed=seed)
    thresholds = DriftingCMDP([cmdp] * N, weights).thresholds
    assert thresholds.max() <= H
    np.testing.assert_allclose(thresholds, H, rtol=1e-14)


def test_each_part_follows_its_own_path(scenarios):
    first, second, third = np.array([0, 0]), np.array([1, 1]), np.array([2, 2])
    world = DriftingCMDP(
        scenarios, first, transition_weights=second, reward_weights=third, utility_weights=first
    ).at(1)
    np.testing.assert_allclose(world.dense_transitions(), scenarios[1].transitions, atol=1e-15)
    np.testing.assert_array_equal(world.rewards, scenarios[2].rewards)
    np.testing.assert_array_equal(world.utilities, scenarios[0].utilities)
    np.testing.assert_array_equal(world.thresholds, scenarios[0].thresholds)


def test_scenario_numbers_are_one_hot_weights(scenarios):
    numbers = np.array([2, 0, 0, 1])
    short, long = DriftingCMDP(scenarios, numbers), DriftingCMDP(scenarios, np.eye(3)[numbers])
    for m, n in enumerate(numbers):
        assert_same_cmdp(short.at(m), scenarios[n])
        assert_same_cmdp(long.at(m), scenarios[n])


def assert_same_cmdp(found, expected):
    np.testing.assert_array_equal(found.dense_transitions(), expected.dense_transitions())
    for name in ("rewards", "utilities", "thresholds", "initial"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_sequence_of_cmdps_comes_back_unchanged():
    rng = np.random.default_rng(3)
    episodes = random_scenarios(rng, 6, K=2, successors=2)
    world = DriftingCMDP.from_sequence(cmdp for cmdp in episodes)
    assert (world.M, len(world.scenarios)) == (6, 6)
    for m, cmdp in enumerate(episodes):
        assert_same_cmdp(world.at(m), cmdp)


def test_sequence_stores_a_repeated_cmdp_once(scenarios):
    order = [0, 1, 0, 0, 2, 1]
    world = DriftingCMDP.from_sequence(scenarios[n] for n in order)
    assert world.scenarios == tuple(scenarios)
    for m, n in enumerate(order):
        assert_same_cmdp(world.at(m), scenarios[n])


# ---------------------------------------------------------------- distinct worlds, thresholds


@pytest.mark.parametrize("order", [(2, 0, 1), (0, 1, 2), (1, 2, 0)])
def test_distinct_worlds_are_numbered_in_order_of_appearance(scenarios, order):
    x, y, z = order
    first, version = DriftingCMDP(scenarios, np.array([x, x, y, z, z, x, y])).distinct
    np.testing.assert_array_equal(first, [0, 2, 3])
    np.testing.assert_array_equal(version, [0, 0, 1, 2, 2, 0, 1])


@pytest.mark.parametrize("part", PATHS[1:])
def test_any_part_can_make_a_world_distinct(scenarios, part):
    world = DriftingCMDP(scenarios, np.zeros(4, int), **{part: np.array([0, 1, 1, 0])})
    np.testing.assert_array_equal(world.distinct[1], [0, 1, 1, 0])


def test_thresholds_make_worlds_distinct(scenarios):
    world = DriftingCMDP(scenarios, np.zeros(4, int))
    np.testing.assert_array_equal(world.distinct[1], 0)
    b = np.array([[1, 1], [1, 1.5], [1, 1], [1, 1.5]])
    np.testing.assert_array_equal(world.with_thresholds(b).distinct[1], [0, 1, 0, 1])
    np.testing.assert_array_equal(world.distinct[1], 0)


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_blocks_of_rows_leave_no_trace(scenarios, rows, monkeypatch):
    dense = np.random.default_rng(0).dirichlet(np.ones(len(scenarios)), 11)
    dense[[3, 5]], dense[6] = dense[2], dense[5]  # the same again across and within blocks
    whole = DriftingCMDP(scenarios, dense)
    monkeypatch.setattr("safedrift.models.tabular.ROWS_AT_ONCE", rows)
    blocks = DriftingCMDP(scenarios, dense)
    for found, wanted in zip(blocks.transition_path, whole.transition_path, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert whole.distinct[0].size == 8
    for found, wanted in zip(blocks.distinct, whole.distinct, strict=True):
        np.testing.assert_array_equal(found, wanted)


@given(drifting_worlds())
def test_episodes_share_a_number_exactly_when_they_share_weights_and_thresholds(world):
    first, version = world.distinct
    np.testing.assert_array_equal(version[first], np.arange(first.size))
    paths = (world.transition_path, world.reward_path, world.utility_path)
    rows = np.hstack([world.thresholds, *(column for path in paths for column in path)])
    for m in range(world.M):
        np.testing.assert_array_equal(version == version[m], (rows == rows[m]).all(axis=1))
        assert first[version[m]] == np.flatnonzero(version == version[m])[0]
        assert_same_cmdp(world.at(m), world.at(int(first[version[m]])))


@given(drifting_worlds(K=2))
def test_every_episode_is_a_valid_cmdp_between_its_scenarios(world):
    banks = {
        "rewards": np.stack([s.rewards for s in world.scenarios]),
        "utilities": np.stack([s.utilities for s in world.scenarios]),
    }
    P = np.stack([s.dense_transitions() for s in world.scenarios])
    for m in range(world.M):
        cmdp = world.at(m)
        assert cmdp.shape == (world.H, world.S, world.A, 2)
        np.testing.assert_allclose(cmdp.dense_transitions().sum(axis=-1), 1, atol=1e-12)
        assert (cmdp.dense_transitions() <= P.max(axis=0) + 1e-12).all()
        for name, bank in banks.items():
            assert (getattr(cmdp, name) <= bank.max(axis=0) + 1e-12).all()
            assert (getattr(cmdp, name) >= bank.min(axis=0) - 1e-12).all()


def test_with_thresholds_changes_nothing_else(scenarios):
    world = DriftingCMDP(scenarios, drift.linear(5, 3))
    before = world.arrays.thresholds.copy()  # cached now; the other must not inherit it
    b = np.random.default_rng(0).uniform(0.1, 2, (5, K))
    other = world.with_thresholds(b)
    np.testing.assert_array_equal(other.thresholds, b)
    np.testing.assert_array_equal(other.arrays.thresholds, b)
    np.testing.assert_array_equal(world.thresholds, before)
    for m in range(5):
        assert_same_cmdp(other.at(m), rebuilt(world.at(m), thresholds=b[m]))


def test_thresholds_of_a_world_cannot_be_written(scenarios):
    b = np.ones((2, K))
    world = DriftingCMDP(scenarios, np.zeros(2, int), thresholds=b)
    b[:] = 2
    assert (world.thresholds == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        world.thresholds[0] = 2


def test_weights_are_copied(scenarios):
    weights = np.array([[1.0, 0, 0], [0, 1, 0]])
    world = DriftingCMDP(scenarios, weights)
    weights[:] = [0, 0, 1]
    assert_same_cmdp(world.at(1), scenarios[1])


def test_world_says_its_sizes(scenarios):
    world = DriftingCMDP(scenarios, np.zeros(4, int))
    assert (world.M, world.H, world.S, world.A, world.K) == (4, H, S, A, K)
    assert re.fullmatch(r"DriftingCMDP\(M=4, H=2, S=3, A=2, K=2, scenarios=3\)", repr(world))


def test_a_successor_may_not_stand_twice_in_a_row():
    lists = sd.Successors(np.array([0, 2]), np.array([0, 0]), np.array([0.3, 0.7]))
    one = np.full((1, 1, 1), 0.5)
    with pytest.raises(ValueError, match=r"distinct states; got 0 twice at index \(0, 0, 0\)"):
        sd.TabularCMDP(lists, one, one[None], [0.5], [1.0])


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (([0, 1], [1, 2], [2]), None),  # a row may begin where the last one ended
        (([2, 0, 1], [1], [0, 2]), None),  # in any order
        (([0], [2, 1, 2], [0]), "2 twice at index (0, 1, 0)"),
        (([1, 0], [0, 1], [1, 1]), "1 twice at index (0, 2, 0)"),
    ],
)
def test_successors_of_a_row_are_distinct_in_any_order(rows, fault):
    offsets = np.cumsum([0, *map(len, rows)])
    shares = np.concatenate([np.full(len(row), 1 / len(row)) for row in rows])
    lists = sd.Successors(offsets, np.concatenate(rows), shares)
    half = np.full((1, 3, 1), 0.5)
    if fault is None:
        sd.TabularCMDP(lists, half, half[None], [0.5], [1.0, 0, 0])
        return
    with pytest.raises(ValueError, match=re.escape(f"distinct states; got {fault}")):
        sd.TabularCMDP(lists, half, half[None], [0.5], [1.0, 0, 0])


def test_paths_cannot_be_written():
    world = sd.problems.make("random", episodes=5)
    for path in (world.transition_path, world.reward_path, world.utility_path):
        with pytest.raises(ValueError, match="read-only"):
            path.weight[0, 0] = 0.5
