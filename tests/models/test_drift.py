"""Weight paths: shape, simplex, seeds, and what each builder means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from safedrift import drift
from safedrift.kernels.probability import walk_on_simplex

BUILDERS = {name: getattr(drift, name) for name in drift.__all__}
SIZES = [(1, 1), (1, 3), (2, 2), (7, 1), (7, 3), (50, 2), (101, 5), (3, 8)]


def scenario_of(weights):
    """The scenario of each episode of a path that never mixes."""
    assert set(np.unique(weights)) <= {0.0, 1.0}
    return weights.argmax(axis=1)


# ---------------------------------------------------------------- all builders


def assert_on_simplex(weights, M, N):
    assert weights.shape == (M, N)
    assert weights.dtype == np.float64
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("M", "N"), SIZES)
@pytest.mark.parametrize("name", BUILDERS)
def test_paths_are_on_the_simplex(name, M, N):
    assert_on_simplex(BUILDERS[name](M, N), M, N)


@given(
    M=st.integers(1, 60),
    N=st.integers(1, 6),
    period=st.floats(0.1, 100),
    phase=st.floats(-2, 2),
    step=st.floats(1e-6, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_paths_are_on_the_simplex_for_any_settings(M, N, period, phase, step, seed):
    assert_on_simplex(drift.periodic(M, N, period, phase), M, N)
    assert_on_simplex(drift.random_walk(M, N, step, seed), M, N)
    assert_on_simplex(drift.bursts(M, N, count=N, length=1 + seed % 5, seed=seed), M, N)
    assert_on_simplex(drift.abrupt(M, N, seed % M, seed), M, N)


@pytest.mark.parametrize("name", BUILDERS)
def test_same_arguments_give_the_same_path(name):
    np.testing.assert_array_equal(BUILDERS[name](40, 3), BUILDERS[name](40, 3))


@pytest.mark.parametrize(
    "build",
    [
        lambda seed: drift.abrupt(200, 3, 5, seed=seed),
        lambda seed: drift.random_walk(200, 3, seed=seed),
        lambda seed: drift.bursts(200, 3, seed=seed),
    ],
    ids=["abrupt", "random_walk", "bursts"],
)
def test_seeds_decide(build):
    np.testing.assert_array_equal(build(4), build(4))
    assert (build(4) != build(5)).any()


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((0, 2), ValueError, "episodes must be an integer >= 1; got 0"),
        ((-3, 2), ValueError, "episodes must be an integer >= 1; got -3"),
        ((5, 0), ValueError, "scenarios must be an integer >= 1; got 0"),
        ((5.0, 2), TypeError, r"episodes must be an integer; got 5\.0"),
        ((5, "two"), TypeError, "scenarios must be an integer; got 'two'"),
        ((True, 2), TypeError, "episodes must be an integer; got True"),
    ],
)
def test_sizes_must_be_positive_integers(name, sizes, error, message):
    with pytest.raises(error, match=message):
        BUILDERS[name](*sizes)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: drift.stationary(5, 3, 3), ValueError,
         r"scenario must be an integer in \[0, 2\]; got 3"),
        (lambda: drift.stationary(5, 3, -1), ValueError,
         r"scenario must be an integer in \[0, 2\]; got -1"),
        (lambda: drift.abrupt(5, 3, 5), ValueError,
         r"switches must be an integer in \[0, 4\]; got 5"),
        (lambda: drift.abrupt(5, 3, -1), ValueError, r"switches must be .*; got -1"),
        (lambda: drift.abrupt(5, 3, 1.5), TypeError, r"switches must be an integer; got 1\.5"),
        (lambda: drift.abrupt(5, 3, [2, 5]), ValueError,
         r"switches must be in \[1, 4\]; got 5 at index 1"),
        (lambda: drift.abrupt(5, 3, [0]), ValueError, r"switches must be in .*; got 0 at index 0"),
        (lambda: drift.periodic(5, 3, 0), ValueError, "period must be > 0; got 0"),
        (lambda: drift.periodic(5, 3, -2.0), ValueError, r"period must be > 0; got -2\.0"),
        (lambda: drift.periodic(5, 3, np.nan), ValueError, "period must be a number; got nan"),
        (lambda: drift.periodic(5, 3, "long"), TypeError, "period must be a number; got 'long'"),
        (lambda: drift.periodic(5, 3, phase=np.nan), ValueError, "phase must be a number; got nan"),
        (lambda: drift.random_walk(5, 3, 0.0), ValueError, r"step must be in \(0, 1e\+06\]; got 0"),
        (lambda: drift.periodic(5, 3, phase=1e308), ValueError, r"phase must be at most 1e\+06"),
        (lambda: drift.periodic(5, 3, 1e-320), ValueError, "period must be at least 1e-06"),
        (lambda: drift.random_walk(5, 3, np.nan), ValueError, "step must be a number; got nan"),
        (lambda: drift.bursts(5, 3, count=-1), ValueError, "count must be an integer >= 0; got -1"),
        (lambda: drift.bursts(5, 3, length=0), ValueError, "length must be an integer >= 1; got 0"),
        (lambda: drift.bursts(5, 3, count=2.5), TypeError, r"count must be an integer; got 2\.5"),
        (lambda: drift.alternating(5, 3, every=0), ValueError,
         "every must be an integer >= 1; got 0"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


# ---------------------------------------------------------------- one by one


def test_stationary_stays_where_it_is_told():
    np.testing.assert_array_equal(scenario_of(drift.stationary(6, 3)), 0)
    np.testing.assert_array_equal(scenario_of(drift.stationary(6, 3, scenario=2)), 2)


def test_abrupt_jumps_at_the_episodes_given():
    found = scenario_of(drift.abrupt(10, 3, [2, 3, 7, 9]))
    np.testing.assert_array_equal(found, [0, 0, 1, 2, 2, 2, 2, 0, 0, 1])
    np.testing.assert_array_equal(scenario_of(drift.abrupt(4, 2, [])), 0)


def test_abrupt_takes_switch_times_in_any_order_and_once():
    expected = drift.abrupt(10, 3, [2, 7])
    np.testing.assert_array_equal(drift.abrupt(10, 3, [7, 2, 7]), expected)


def test_abrupt_spreads_a_number_of_jumps_evenly():
    np.testing.assert_array_equal(scenario_of(drift.abrupt(8, 3, 3)), [0, 0, 1, 1, 2, 2, 0, 0])
    for M, switches in ((100, 7), (101, 3), (9, 8), (20, 0)):
        times = np.flatnonzero(np.diff(scenario_of(drift.abrupt(M, 4, switches)))) + 1
        assert times.size == switches
        lengths = np.diff(np.concatenate(([0], times, [M])))
        assert lengths.max() - lengths.min() <= 1


def test_abrupt_visits_every_scenario_once_by_default():
    np.testing.assert_array_equal(scenario_of(drift.abrupt(9, 3)), [0, 0, 0, 1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(scenario_of(drift.abrupt(2, 5)), [0, 1])


@pytest.mark.parametrize("switches", [0, 1, 6, 19])
def test_abrupt_draws_so_many_times_when_seeded(switches):
    path = scenario_of(drift.abrupt(20, 3, switches, seed=2))
    steps = np.diff(path) % 3
    assert path[0] == 0
    assert (steps > 0).sum() == switches
    assert set(steps) <= {0, 1}, "the next scenario each time"


def test_linear_glides_evenly_through_all_scenarios():
    found = drift.linear(5, 3)
    expected = [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 1]]
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize(("M", "N"), [(2, 2), (50, 2), (37, 4)])
def test_linear_goes_from_the_first_to_the_last_at_constant_speed(M, N):
    found = drift.linear(M, N)
    np.testing.assert_array_equal(found[0], np.eye(N)[0])
    np.testing.assert_array_equal(found[-1], np.eye(N)[-1])
    place = found @ np.arange(N)
    np.testing.assert_allclose(np.diff(place), (N - 1) / (M - 1), atol=1e-12)
    assert ((found > 0).sum(axis=1) <= 2).all(), "only neighbours are mixed"


def test_linear_of_one_episode_is_the_first_scenario():
    np.testing.assert_array_equal(drift.linear(1, 3), [[1, 0, 0]])


def test_periodic_is_a_cosine_between_first_and_last():
    found = drift.periodic(9, 2, period=8)
    angle = 2 * np.pi * np.arange(9) / 8
    np.testing.assert_allclose(found[:, 1], (1 - np.cos(angle)) / 2, atol=1e-14)
    np.testing.assert_allclose(found[[0, 4, 8]], [[1, 0], [0, 1], [1, 0]], atol=1e-14)


def test_periodic_repeats_after_its_period_and_passes_through_the_middle():
    found = drift.periodic(60, 3, period=12)
    np.testing.assert_allclose(found[12:], found[:-12], atol=1e-12)
    assert np.abs(found[6:] - found[:-6]).max() > 0.9
    np.testing.assert_allclose(found[[0, 3, 6, 9]], np.eye(3)[[0, 1, 2, 1]], atol=1e-12)


def test_periodic_has_four_seasons_by_default():
    np.testing.assert_array_equal(drift.periodic(40, 3), drift.periodic(40, 3, period=10))


@pytest.mark.parametrize(("phase", "ahead"), [(0.5, 4), (0.25, 2), (-0.25, 6)])
def test_phase_is_counted_in_seasons_and_looks_ahead(phase, ahead):
    found = drift.periodic(20, 2, period=8, phase=phase)
    np.testing.assert_allclose(found, drift.periodic(40, 2, period=8)[ahead:][:20], atol=1e-12)


def test_random_walk_starts_in_the_middle_and_takes_steps_of_its_size():
    found = drift.random_walk(4000, 3, step=1e-3, seed=0)
    np.testing.assert_allclose(found[0], 1 / 3)
    inside = (found[1:] > 0).all(axis=1) & (found[:-1] > 0).all(axis=1)
    assert inside.sum() > 1000
    # Inside the simplex projection only removes the mean of three steps: variance (1 - 1/3) step².
    steps = np.diff(found, axis=0)[inside]
    assert steps.std() == pytest.approx(1e-3 * np.sqrt(2 / 3), rel=0.05)


def test_random_walk_gets_around():
    found = drift.random_walk(2000, 3, step=0.1, seed=0)
    assert found.max(axis=0).min() > 0.95
    assert found.min() == 0


def test_bursts_rest_in_the_first_scenario_and_visit_the_others_in_turn():
    M, length = 400, 5
    for seed in range(5):
        path = scenario_of(drift.bursts(M, 4, count=3, length=length, seed=seed))
        assert (path > 0).sum() <= 3 * length
        entered = path[np.flatnonzero(np.diff(path, prepend=0))]
        np.testing.assert_array_equal(entered[entered > 0], [1, 2, 3])


def test_a_single_burst_lasts_as_long_as_asked():
    starts = set()
    for seed in range(20):
        path = scenario_of(drift.bursts(100, 2, count=1, length=7, seed=seed))
        (busy,) = np.nonzero(path)
        assert busy.size == min(7, 100 - busy[0])
        np.testing.assert_array_equal(np.diff(busy), 1)
        starts.add(int(busy[0]))
    assert len(starts) > 10


def test_no_bursts_and_default_length():
    np.testing.assert_array_equal(scenario_of(drift.bursts(50, 2, count=0)), 0)
    np.testing.assert_array_equal(drift.bursts(100, 2), drift.bursts(100, 2, count=3, length=5))


def test_alternating_takes_the_next_scenario_in_time():
    np.testing.assert_array_equal(scenario_of(drift.alternating(7, 3)), [0, 1, 2, 0, 1, 2, 0])
    found = scenario_of(drift.alternating(7, 2, every=3))
    np.testing.assert_array_equal(found, [0, 0, 0, 1, 1, 1, 0])


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_projection_is_the_nearest_point_of_the_simplex(point, seed):
    point = np.array(point)
    found = np.zeros((2, point.size))
    walk_on_simplex(np.stack((point, point)), np.empty(point.size), found)
    found = found[1]
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    # Nearest: the angle towards every other point of the simplex is not acute.
    others = np.random.default_rng(seed).dirichlet(np.ones(point.size), 20)
    corners = np.eye(point.size)
    for other in (*others, *corners):
        assert (point - found) @ (other - found) <= 1e-9


@pytest.mark.parametrize("N", [1, 2, 3, 8])
@pytest.mark.parametrize("step", [0.01, 0.5, 20.0])
def test_random_walk_projects_each_step_onto_the_simplex(N, step):
    steps = np.random.default_rng(5).normal(0.0, step, (60, N))
    walk = drift.random_walk(60, N, step=step, seed=5)
    np.testing.assert_array_equal(walk[0], 1 / N)
    for m in range(1, 60):
        expected = naive.project_to_simplex(walk[m - 1] + steps[m])
        np.testing.assert_allclose(walk[m], expected, atol=1e-12)
