"""Forgetting by a homogeneity test: the window, its alarms, and who can use it."""

import math
from functools import partial

import numpy as np
import pytest
from test_adaptive_forgetting import SPEC, A, H, K, S, dense, switching_world

import naive_homogeneity
import safedrift as sd
from builders import columns_of, small_world
from safedrift.kernels.tabular.homogeneity_memory import make_test
from safedrift.learners import Homogeneity
from safedrift.learners.checked import CheckedLearner, tabular_setup
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.rivals.opt_cmdp import with_bonus
from safedrift.learners.rivals.planner import Planner


def planner_with(rate, spec=SPEC):
    """A learner and what holds its memory; it plans when the data change."""
    rule = partial(with_bonus, np.ones(spec.H))
    planner = Planner(tabular_setup(spec), "opt-cmdp", rule, Homogeneity(rate), 10_000, {}, 0)
    return CheckedLearner(planner, 0), planner


def propd_ppo_with(rate, spec=SPEC):
    learner = sd.PROPDPPO.for_problem(spec, sd.Slater(0.3), forgetting=Homogeneity(rate))
    return learner, learner.engine


@pytest.mark.parametrize(
    "learner_with", [planner_with, pytest.param(propd_ppo_with, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("noise", ["none", "bernoulli"])
@pytest.mark.parametrize("levels", [16, 3])
def test_the_window_is_the_twins(noise, levels, learner_with):
    """Counts, transitions and sums of 300 episodes with two changes."""
    learner, holder = learner_with(0.5)
    twin = naive_homogeneity.HomogeneityWindow(learner.sizes, 0.5, levels)
    test = make_test(H, A, K, float(twin.limit), buckets=2 * levels)
    assert holder.memory.test.settings.limit == pytest.approx(twin.limit)
    holder.memory = holder.memory._replace(test=test)
    alarms, dropped = np.zeros(2 + K, int), 0
    for m, episode in zip(range(300), switching_world(1, noise), strict=False):
        learner.begin_episode([1.0] * K)
        learner.end_episode(episode)
        twin.add(*episode)
        assert learner.trace()["alarm"].tolist() == twin.alarm.tolist()
        for name, found, wanted in zip(
            ("n3", "n", "sums"), dense(holder.memory), twin.counts, strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12, err_msg=name)
        alarms += twin.alarm
        dropped = max(dropped, (m + 1) * H - int(twin.counts[1].sum()))
    assert (alarms > 0).sum() >= 2
    assert dropped >= 150 * H


def test_the_mixture_is_as_large_as_the_limit_assumes():
    """Beta(1/2, 1/2) mixtures lose at most ½ log 4n, also for sums that are not whole numbers."""
    for n in (*range(1, 40), 1000, 50_000):
        for s in np.linspace(0, n, 101):
            mixture = math.lgamma(s + 0.5) + math.lgamma(n - s + 0.5) - math.lgamma(n + 1)
            mixture -= math.log(math.pi)
            best = sum(x * math.log(x / n) for x in (s, n - s) if x > 0)
            assert mixture >= best - math.log(4 * n) / 2 - 1e-9 * n


def alarms_of(rewards, rate=1e-3):
    """Episodes of alarms in a world of one pair, and the learner."""
    learner, planner = planner_with(rate, sd.ProblemSpec(H=1, S=1, A=1, initial=0))
    raised = []
    for m, reward in enumerate(rewards):
        learner.begin_episode([1.0])
        learner.end_episode(sd.Trajectory([0], [0], [reward], [0.5]))
        if learner.trace()["alarm"].any():
            assert learner.trace()["alarm"].tolist() == [False, True, False]
            raised.append(m)
    return raised, planner.memory.window


@pytest.mark.parametrize(
    ("before", "after", "n"), [(0.2, 0.9, 64), (0.0, 1.0, 100), (1.0, 0.7, 500)]
)
def test_one_switch_is_noticed_after_a_delay_that_can_be_computed(before, after, n):
    """Not before the best cut fires, and not much later: cuts are at most two times too long."""
    limit = math.log(2 / 1e-3)
    delays = range(1, n)
    best = next(d for d in delays if naive_homogeneity.excess([before] * n, [after] * d, limit) > 0)
    raised, window = alarms_of([before] * n + [after] * (n - 1))
    assert len(raised) == 1
    assert best - 1 <= raised[0] - n <= 2 * best
    mean = window.signal_sums[0, 0, 0, 0] / window.visits[0, 0, 0]
    assert abs(mean - after) < 0.25 * abs(before - after)


def test_false_alarms_are_as_rare_as_stated():
    """A fair coin, the worst case: of 100 worlds of 200 episodes at most 20 may raise an alarm."""
    rng = np.random.default_rng(0)
    found = sum(
        bool(alarms_of(rng.integers(2, size=200).astype(float), 1e-3)[0]) for _ in range(100)
    )
    assert found <= 20
    assert not alarms_of(np.full(2000, 0.3))[0]  # sums round, means do not


@pytest.mark.parametrize("noisy", [False, True])
def test_a_world_that_stands_still_raises_no_alarm(noisy):
    world = small_world(M=4000, S=5, H=4, K=2, drift="stationary", seed=11)
    learner = sd.learners.make("opt-cmdp", world, forgetting="homogeneity")
    trace = columns_of(world, learner, slow=False, noisy=noisy)
    assert trace["alarm"].shape == (4000, 2 + K)
    assert trace["alarm"].any(axis=1).sum() <= 4


# ---------------------------------------------------------------- who can use it


@pytest.mark.parametrize(
    "name",
    [
        "opt-cmdp",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("propd-ppo", "propd-ppo told nothing")),
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("opt-dual", "pid-lagrangian")),
    ],
)
def test_fast_path_and_loop_give_the_same_numbers(name):
    """With alarms on the way, after which planners plan at once."""
    world = small_world(M=400, S=3, A=2, H=3, K=2, seed=5)
    options = {"forgetting": Homogeneity(0.5)}
    if name.startswith("propd-ppo"):
        known = None if name.endswith("nothing") else sd.Slater(0.3)
        learner = sd.PROPDPPO.for_problem(world, known, **options)
    else:
        learner = sd.learners.make(name, world, forgetting="homogeneity")
    fast, slow = (
        columns_of(world, learner.fresh(4), slow=slow, noisy=False) for slow in (False, True)
    )
    assert fast.keys() == slow.keys()
    for column in fast:
        np.testing.assert_array_equal(fast[column], slow[column], err_msg=column)
    assert fast["alarm"].any()
    if "replanned" in fast:
        after = np.flatnonzero(fast["alarm"][:-1].any(axis=1)) + 1
        assert fast["replanned"][after].all()


@pytest.mark.slow
def test_contract():
    sd.check_learner(lambda world: sd.learners.make("opt-cmdp", world, forgetting="homogeneity"))


def test_by_name_without_m_and_in_bounded_memory():
    assert named_forgetting("homogeneity", None, None) == Homogeneity()
    learner = sd.learners.make("opt-cmdp", SPEC, forgetting="homogeneity", replan_every=100)
    rng = np.random.default_rng(0)
    sizes = []
    for m in range(1200):
        learner.begin_episode([1.0] * K)
        states, actions = rng.integers(S, size=H), rng.integers(A, size=H)
        learner.end_episode(sd.Trajectory(states, actions, rng.random(H), rng.random((K, H))))
        if m in (800, 1199):
            sizes.append(sum(array.nbytes for array in learner.state().values()))
    assert sizes[0] == sizes[1]


def test_what_is_refused():
    for rate in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"^false_alarm_rate must be in \(0, 1\]; got {rate}"):
            Homogeneity(rate)
    world = small_world(M=20).as_linear_kernel()
    with pytest.raises(ValueError, match=r"^forgetting must be Periodic or Never with least squ"):
        sd.PROPDPPO.for_problem(world, sd.Slater(0.3), forgetting=Homogeneity())
