"""Adaptive forgetting: the window that filters decide, its alarms, and who can use it."""

import math

import numpy as np
import pytest

import naive_filters
import safedrift as sd
from builders import columns_of, small_world
from safedrift.learners import Adaptive, Never
from safedrift.learners.forgetting import MOVE_RATES, SIGNAL_RATES, named_forgetting

H, S, A, K = 4, 5, 3, 2
SPEC = sd.ProblemSpec(H=H, S=S, A=A, K=K, initial=0)
WINDOWED = ("certainty-equivalence", "opt-cmdp", "posterior-sampling", "opt-dual",
            "opt-primal-dual", "regularised-primal-dual", "pid-lagrangian", "propo")  # fmt: skip


def twin_of(forgetting, sizes):
    limits = [math.log(len(rates) * (len(rates) - 1) / 2 / forgetting.false_alarms)
              for rates in (MOVE_RATES, SIGNAL_RATES)]  # fmt: skip
    return naive_filters.AdaptiveWindow(sizes, MOVE_RATES, SIGNAL_RATES, limits)


def dense(memory):
    """Counts n3, n and sums of a window, by state."""
    window, state = memory.window, memory.policy.state
    n3, n, sums = np.zeros((H, S, A, S)), np.zeros((H, S, A)), np.zeros((1 + K, H, S, A))
    cap = window.visits.shape[2]
    for h in range(H):
        for i in range(window.active[h]):
            n[h, state[h, i]] = window.visits[h, :, i]
            sums[:, h, state[h, i]] = window.signal_sums[:, h, :, i]
        for e in range(window.edges[h]):
            a, i = divmod(int(window.edge_pair[h, e]), cap)
            n3[h, state[h, i], a, state[h + 1, window.edge_next[h, e]]] = window.edge_times[h, e]
    return n3, n, sums


def switching_world(seed, noise):
    """An endless supply of episodes: everything changes at 150, the first utility also at 220."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.3), (2, H, S, A))
    means = rng.random((2, 1 + K, H, S, A))
    m = 0
    while True:
        new = int(m >= 150)
        states, actions = np.zeros(H, int), rng.integers(A, size=H)
        if m % 3:
            actions[:] = np.minimum(actions, 1)  # the last action is seldom tried
        for h in range(H - 1):
            states[h + 1] = rng.choice(S, p=P[new, h, states[h], actions[h]])
        signals = means[new, :, np.arange(H), states, actions].T.copy()
        if m >= 220:
            signals[1] = 1 - signals[1]
        if noise == "bernoulli" or (noise == "at first" and m < 40):
            signals = (rng.random(signals.shape) < signals).astype(float)
        yield sd.Trajectory(states, actions, signals[0], signals[1:])
        m += 1


@pytest.mark.parametrize("known", [None, pytest.param(sd.Slater(0.3), marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", ["none", "bernoulli", "at first"])
def test_the_window_is_the_twins(noise, known):
    """Counts, transitions and sums of 300 episodes with two changes, to 1e-10."""
    forgetting = Adaptive(false_alarms=0.05)
    learner = sd.PROPDPPO.for_problem(SPEC, known, forgetting=forgetting)
    twin = twin_of(forgetting, learner.sizes)
    filters = learner.memory.filters
    alarms, followed, dropped = np.zeros(2 + K, int), set(), 0
    for _, episode in zip(range(300), switching_world(1, noise), strict=False):
        learner.begin_episode([1.0] * K)
        learner.end_episode(episode)
        twin.add(*episode)
        for name, found, wanted in zip(
            ("n3", "n", "sums"), dense(learner.memory), twin.counts, strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10, err_msg=name)
        filters = learner.memory.filters
        scores = (twin.moves, *twin.signals)
        assert filters.followed.tolist() == [one.followed for one in scores]
        assert learner.trace()["alarm"].tolist() == [one.alarm for one in scores]
        alarms += filters.alarm
        followed.add(tuple(filters.followed))
        dropped += int((twin.counts[1][twin.last >= 0] == 0).sum())
    assert alarms.sum() > 0
    assert len(followed) > 2
    assert dropped > 0 or noise == "bernoulli"


@pytest.mark.parametrize("noisy", [False, True])
def test_false_alarms_are_as_rare_as_stated(noisy):
    """At most `false_alarms` per episode and quantity: 8 expected at most in 4,000 episodes."""
    world = small_world(M=4000, S=5, H=4, K=2, drift="stationary", seed=11)
    learner = sd.PROPDPPO.for_problem(world, None, forgetting=Adaptive(false_alarms=2e-3))
    trace = columns_of(world, learner, slow=False, noisy=noisy)
    assert trace["alarm"].shape == (4000, 2 + K)
    assert trace["alarm"].sum(axis=0).max() <= 8


def test_a_change_is_noticed_within_a_few_episodes():
    learner = sd.PROPDPPO.for_problem(SPEC, None)
    raised = []
    for m, episode in zip(range(200), switching_world(2, "none"), strict=False):
        learner.begin_episode([1.0] * K)
        restarted = learner._last[1]
        learner.end_episode(episode)
        assert restarted == (m == 0 or bool(raised and raised[-1] == m - 1))
        if learner.trace()["alarm"].any():
            raised.append(m)
    assert any(150 <= m < 160 for m in raised)


# ---------------------------------------------------------------- who can use it


@pytest.mark.parametrize(
    "name",
    [
        "propd-ppo told nothing",
        *(pytest.param(x, marks=pytest.mark.slow) for x in (*WINDOWED, "propd-ppo")),
    ],
)
def test_fast_path_and_loop_give_the_same_numbers(name):
    """With alarms on the way, after which planners plan at once."""
    world = small_world(M=300, S=5, H=4, K=2, seed=5)
    if name == "propd-ppo told nothing":
        learner = sd.PROPDPPO.for_problem(world, None)
    else:
        told = {"gamma": 0.3} if name == "propd-ppo" else {}
        learner = sd.learners.make(name, world, forgetting="adaptive", **told)
    fast, slow = (
        columns_of(world, learner.fresh(4), slow=slow, noisy=False) for slow in (False, True)
    )
    assert fast.keys() == slow.keys()
    for column in fast:
        np.testing.assert_array_equal(fast[column], slow[column], err_msg=column)
    assert fast["alarm"].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["opt-cmdp", "pid-lagrangian"])
def test_contract(name):
    sd.check_learner(lambda world: sd.learners.make(name, world, forgetting="adaptive"))


def test_by_name_without_m_and_in_bounded_memory():
    assert named_forgetting("adaptive", None, None) == Adaptive()
    learner = sd.learners.make("pid-lagrangian", SPEC, forgetting="adaptive")
    rng = np.random.default_rng(0)
    sizes = []
    for m in range(1200):
        learner.begin_episode([1.0] * K)
        states, actions = rng.integers(S, size=H), rng.integers(A, size=H)
        learner.end_episode(sd.Trajectory(states, actions, rng.random(H), rng.random((K, H))))
        if m in (800, 1199):
            sizes.append(sum(array.nbytes for array in learner.state().values()))
    assert sizes[0] == sizes[1]
    assert learner.settings()["forgetting"] == {"kind": "Adaptive", "false_alarms": 1e-5}


def test_what_is_refused():
    world = small_world(M=20)
    with pytest.raises(ValueError, match=r"^false_alarms must be in \(0, 1\]; got 0"):
        Adaptive(0.0)
    uniform = np.full((world.H, world.S, world.A), 1 / world.A)
    told = {"safe_policy": uniform, "safe_utility": world.thresholds.max(axis=0) + 0.1}
    with pytest.raises(ValueError, match=r"^forgetting must be one of .*; got 'adaptive'"):
        sd.learners.make("dope", world, forgetting="adaptive", **told)
    with pytest.raises(ValueError, match=r"^forgetting must be Periodic or Never with least squ"):
        sd.PROPDPPO.for_problem(world.as_linear_kernel(), sd.Slater(0.3), forgetting=Adaptive())
    assert Never() != Adaptive()
