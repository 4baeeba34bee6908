"""Ways of forgetting: what is scheduled, what is learnt from what is left, what stays the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import safedrift as sd
from builders import DRIFT_NAMES, SIGNALS, linear_world, recorded_play, small_world
from safedrift.experiments.playing import play_chunks
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS
from safedrift.learners import Discount, Never, Periodic, SlidingWindow
from safedrift.learners.forgetting import forgetting_from, record
from safedrift.learners.propd_ppo.parameters import MODES

BUDGETS = sd.Budgets(P=2.0, r=1.0, g=1.0, star=3.0)
# Large steps and small bonuses make every quantity move within few episodes.
LIVELY = {"alpha": 0.7, "eta": 0.4, "bonus_scale": 0.05, "lam": 0.3}
EVERY = [Periodic(9, 7), Never(), SlidingWindow(9), SlidingWindow(9, 7), Discount(0.8),
         Discount(0.8, 7)]  # fmt: skip


def build(world, forgetting, mode="practical", **overrides):
    return sd.PROPDPPO.for_problem(
        world, sd.Slater(0.4), mode=mode, budgets=BUDGETS, forgetting=forgetting,
        **LIVELY | overrides,
    )  # fmt: skip


# ---------------------------------------------------------------- schedules by hand


def scheduled(forgetting, first, episodes):
    """Per episode: w where a window opens, d where one is dropped, p where the policy restarts."""
    found = forgetting.schedule(first, episodes)
    marks = zip(found.opens_window, found.drops, found.restarts, strict=True)
    return ["".join(np.array(["w", "d", "p"])[list(mark)]) for mark in marks]


def test_periodic_windows_and_policies_restart_by_the_clock():
    assert scheduled(Periodic(2, 3), 0, 7) == ["wp", "", "w", "p", "w", "", "wp"]
    assert scheduled(Periodic(2, 3), 3, 4) == ["p", "w", "", "wp"]


def test_never_forgetting_starts_once():
    assert scheduled(Never(), 0, 4) == ["wp", "", "", ""]
    assert scheduled(Never(), 4, 3) == ["", "", ""]


def test_a_sliding_window_drops_one_episode_at_a_time_once_it_is_full():
    assert scheduled(SlidingWindow(3), 0, 6) == ["wp", "", "", "d", "d", "d"]
    assert scheduled(SlidingWindow(3, 2), 1, 5) == ["", "p", "d", "dp", "d"]
    assert scheduled(SlidingWindow(1), 0, 3) == ["wp", "d", "d"]


def test_a_discount_begins_with_the_second_episode():
    assert scheduled(Discount(0.5), 0, 3) == ["wp", "", ""]
    assert scheduled(Discount(0.5, 2), 1, 4) == ["", "p", "", "p"]
    assert Discount(0.5).schedule(0, 3).discount.tolist() == [1.0, 0.5, 0.5]
    assert Discount(0.5).schedule(2, 2).discount.tolist() == [0.5, 0.5]
    for other in (Periodic(2, 3), Never(), SlidingWindow(2)):
        assert other.schedule(0, 9).discount.tolist() == [1.0] * 9


@pytest.mark.parametrize("forgetting", EVERY)
def test_schedules_do_not_depend_on_chunks(forgetting):
    whole = forgetting.schedule(0, 40)
    for cut in (1, 7, 9, 39):
        parts = forgetting.schedule(0, cut), forgetting.schedule(cut, 40 - cut)
        for name in whole._fields:
            joined = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(getattr(whole, name), joined, err_msg=name)


@pytest.mark.parametrize("forgetting", EVERY)
def test_a_forgetting_comes_back_from_its_record(forgetting):
    assert forgetting_from(record(forgetting)) == forgetting
    world = small_world(M=5)
    run = sd.simulate(world, build(world, forgetting))
    assert run.manifest.learner.settings["forgetting"] == record(forgetting)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Periodic(0, 1), "W must be an integer >= 1; got 0"),
        (lambda: Periodic(1, 0), "L must be an integer >= 1; got 0"),
        (lambda: SlidingWindow(0), "W must be an integer >= 1; got 0"),
        (lambda: SlidingWindow(3, 0), "L must be an integer >= 1; got 0"),
        (lambda: Discount(0.0), r"factor must be in \(0, 1\); got 0.0"),
        (lambda: Discount(1.0), r"factor must be in \(0, 1\); got 1.0"),
        (lambda: Discount(float("nan")), "factor must be a number; got nan"),
        (lambda: Discount(0.5, -1), "L must be an integer >= 1; got -1"),
        (lambda: forgetting_from({"kind": "Sometimes"}), "forgetting must be one of"),
    ],
)
def test_impossible_forgetting_is_refused(make, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make()


@pytest.mark.parametrize("forgetting", [SlidingWindow(5), Discount(0.9)])
def test_least_squares_can_not_forget_single_episodes(forgetting):
    world = linear_world(M=10)
    with pytest.raises(ValueError, match=r"^forgetting must be Periodic or Never with least squa"):
        build(world, forgetting)


@pytest.mark.parametrize(
    "forgetting", [Never(), SlidingWindow(5), Discount(0.9), Periodic(5, 4), Periodic(4, 5)]
)
@pytest.mark.parametrize("world", [small_world(M=20, drift="linear"), linear_world(M=20)])
def test_local_variation_terms_belong_to_the_blocks_they_were_made_for(world, forgetting):
    if world.name is None and not isinstance(forgetting, Never | Periodic):
        pytest.skip("refused already: least squares")
    told = sd.local_budgets(world)
    options = {"mode": "repaired", "budgets": BUDGETS, "W": 5, "L": 5}
    sd.PROPDPPO.for_problem(world, told, forgetting=Periodic(5, 5), **options)
    with pytest.raises(ValueError, match=r"^forgetting must be Periodic\(W=5, L=5\) where the par"):
        sd.PROPDPPO.for_problem(world, told, forgetting=forgetting, **options)


# ---------------------------------------------------------------- against the twin


def window_of(forgetting):
    """window(m), from the definition: past episodes and their weights."""
    if isinstance(forgetting, Never):
        return lambda m: [(tau, 1.0) for tau in range(m)]
    if isinstance(forgetting, SlidingWindow):  # W episodes, m among them
        return lambda m: [(tau, 1.0) for tau in range(max(0, m - forgetting.W + 1), m)]
    if isinstance(forgetting, Discount):
        return lambda m: [(tau, forgetting.factor ** (m - tau)) for tau in range(m)]
    return lambda m: [(tau, 1.0) for tau in range(m - m % forgetting.W, m)]


def restarts_of(forgetting):
    L = getattr(forgetting, "L", None)
    return lambda m: m == 0 if L is None else m % L == 0


def twin_of(agent, play, thresholds):
    s = agent.hyperparameters
    if s.bonus == BERNSTEIN_BONUS:
        bonus = naive.weighted_bernstein_bonus(s.c, agent.sizes.H, s.lam)
    elif s.shift > 0:
        bonus = naive.printed_bonus(s.root[0] / 2, s.lam)
    else:
        bonus = naive.repaired_bonus(s.root, s.tail, s.lam)
    return naive.propd_ppo_forgetting(
        play=play, thresholds=thresholds, sizes=agent.sizes, initial=agent.initial, alpha=s.alpha,
        eta=s.eta, xi=s.xi, chi=s.chi, lam=s.lam, bonus=bonus,
        window=window_of(agent.forgetting), restarts=restarts_of(agent.forgetting),
        lagged=s.lagged, dual_signal=SIGNALS[s.dual_signal],
    )  # fmt: skip


def assert_agrees_with_twin(world, agent, seed=0, noisy=False, tolerance=1e-10):
    """Drive learner and twin with the twin's trajectories; compare everything at every episode."""
    play, seen = recorded_play(world, seed, noisy)
    for m, expected in enumerate(twin_of(agent, play, world.thresholds)):
        policy = np.asarray(agent.begin_episode(world.thresholds[m]))
        agent.end_episode(sd.Trajectory(*seen[m]))
        (Q_r, *Q_g), (V_r, *V_g) = agent.q(), agent.estimates
        found = {"policy": policy, "mu": agent.mu, "Q_r": Q_r, "Q_g": Q_g, "V_r": V_r, "V_g": V_g}
        for name, got in found.items():
            np.testing.assert_allclose(
                got, expected[name], rtol=0, atol=tolerance, err_msg=f"{name} of episode {m}"
            )
    assert agent.episode == world.M


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("forgetting", EVERY)
def test_agrees_with_twin_for_every_bonus(forgetting, mode):
    world = small_world(M=60, S=4, A=3, H=3, K=2, drift="random_walk", seed=3)
    assert_agrees_with_twin(world, build(world, forgetting, mode))


@pytest.mark.parametrize("dual_signal", SIGNALS)
@pytest.mark.parametrize(
    "forgetting",
    [SlidingWindow(1), SlidingWindow(2, 1), SlidingWindow(17, 23), SlidingWindow(80),
     Discount(0.1), Discount(0.5, 11), Discount(0.999, 80)],
)  # fmt: skip
def test_agrees_with_twin_for_every_dual_signal(forgetting, dual_signal):
    world = small_world(M=80, S=6, A=2, H=4, drift="random_walk", seed=1)
    assert_agrees_with_twin(world, build(world, forgetting, dual_signal=dual_signal, lagged=True))


def test_agrees_with_twin_on_many_states_with_few_visited():
    """States leave a sliding window and come back, some of them as others' successors."""
    world = small_world(M=90, S=40, A=3, H=4, successors=3, seed=2)
    for forgetting in (SlidingWindow(13, 29), Discount(0.7, 29)):
        assert_agrees_with_twin(world, build(world, forgetting, "repaired"))


def test_agrees_with_twin_under_noise_and_a_random_first_state():
    world = small_world(M=60, S=4, H=3, seed=4, start=np.array([0.5, 0.0, 0.3, 0.2]))
    for forgetting in (SlidingWindow(11), Discount(0.9)):
        assert_agrees_with_twin(world, build(world, forgetting, dual_signal="plain"), noisy=True)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(*(st.integers(1, top) for top in (40, 4, 5, 4, 3))),
    forgetting=st.one_of(
        st.just(Never()),
        st.builds(SlidingWindow, st.integers(1, 45), st.none() | st.integers(1, 45)),
        st.builds(Discount, st.floats(0.05, 0.99), st.none() | st.integers(1, 45)),
    ),
    drift=st.sampled_from(DRIFT_NAMES),
    mode=st.sampled_from(MODES),
    dual_signal=st.sampled_from(SIGNALS),
    steps=st.tuples(st.floats(0, 2), st.floats(0, 1), st.floats(0.01, 2), st.floats(0, 1)),
    lagged=st.booleans(),
    noisy=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_agrees_with_twin_everywhere(
    sizes, forgetting, drift, mode, dual_signal, steps, lagged, noisy, seed
):
    M, H, S, A, K = sizes
    world = small_world(M=M, H=H, S=S, A=A, K=K, drift=drift, seed=seed)
    alpha, eta, lam, scale = steps
    agent = build(
        world, forgetting, mode, alpha=alpha, eta=eta, lam=lam, bonus_scale=scale,
        dual_signal=dual_signal, lagged=lagged,
    )  # fmt: skip
    assert_agrees_with_twin(world, agent, seed, noisy)


def test_a_discounted_visit_counts_as_one_until_there_are_more():
    """The bonus of `CountBonus` at shift 0: n counts as at least 1."""
    world = small_world(M=3, S=1, A=2, H=1)
    agent = build(world, Discount(0.25), "repaired", lam=1.0, bonus_scale=1e-3, noisy=True)
    root, tail = agent.hyperparameters.root[0], agent.hyperparameters.tail[0]
    assert root > 0
    for m in range(3):
        agent.begin_episode(world.thresholds[m])
        agent.end_episode(sd.Trajectory([0], [0], [0.5], [0.5]))
    n = 0.25 + 0.25**2
    assert agent.q()[0, 0, 0, 0] == pytest.approx(0.5 * n / (n + 1) + root + tail / (n + 1))


def test_a_discount_that_underflows_leaves_a_state_unvisited():
    world = small_world(M=1500, S=2, A=2, H=2)
    agent = build(world, Discount(0.2), dual_signal="plain")
    for m in range(world.M):
        agent.begin_episode(world.thresholds[m])
        x = int(m == 0)  # state 1 is seen once
        agent.end_episode(sd.Trajectory([x, x], [x, x], [0.5, 0.5], [0.5, 0.5]))
        assert np.isfinite(agent.q()).all()
        assert np.isfinite(agent.estimates).all()
    np.testing.assert_array_equal(agent.q()[:, 0, 1], 2.0)
    for name, array in agent.state().items():
        assert name == "window.count_bonus" or np.isfinite(array).all(), name


# ---------------------------------------------------------------- the same bits


def assert_same_learning(world, one, other, seed=5):
    """Bit for bit the same runs; what the learners call their settings aside."""
    one, other = (sd.simulate(world, agent, seed, noisy=True) for agent in (one, other))
    assert one.columns().keys() == other.columns().keys()
    for name, values in one.columns().items():
        np.testing.assert_array_equal(values, other.columns()[name], err_msg=name)
    np.testing.assert_array_equal(one.policy, other.policy)
    np.testing.assert_array_equal(one.learner.q(), other.learner.q())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [small_world, linear_world])
def test_never_is_periodic_with_endless_periods(make, mode):
    world = make(M=60, K=2, drift="linear")
    never = build(world, Never(), mode)
    assert_same_learning(world, never, build(world, Periodic(60, 60), mode))
    assert_same_learning(world, never, build(world, Periodic(10**9, 10**9), mode))
    long = {"W": 60, "L": 10**6}  # the constants of some modes depend on them
    assert_same_learning(
        world, build(world, Never(), mode, **long), build(world, None, mode, **long)
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("W", [60, 61, 10**12])
def test_a_sliding_window_that_never_fills_is_never(mode, W):
    world = small_world(M=60, K=2, drift="linear")
    assert_same_learning(world, build(world, Never(), mode), build(world, SlidingWindow(W), mode))


def test_the_default_is_periodic_with_the_parameters_periods():
    world = small_world(M=50)
    default = build(world, None, W=9, L=7)
    assert default.forgetting == Periodic(9, 7)
    assert_same_learning(world, default, build(world, Periodic(9, 7)))


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("forgetting", EVERY)
def test_the_fast_path_is_the_loop_bit_for_bit(forgetting, noisy):
    world = small_world(M=70, S=12, A=3, H=4, K=2, successors=4, drift="linear")
    agent = build(world, forgetting)
    parts = [
        list(play_chunks(world, agent.fresh(), 3, noisy, np.arange(world.M), slow=slow))
        for slow in (False, True)
    ]
    names = {name for part in parts[0] for name in part.trace}
    for name in sorted(names):
        one, other = (np.concatenate([part.trace[name] for part in all_]) for all_ in parts)
        np.testing.assert_array_equal(one, other, err_msg=name)
    for name in ("policies", "returns"):
        one, other = (np.concatenate([getattr(part, name) for part in all_]) for all_ in parts)
        np.testing.assert_array_equal(one, other, err_msg=name)


def random_episode(rng, sizes):
    _, H, S, A, K = sizes
    states, actions = rng.integers(0, S, H), rng.integers(0, A, H)
    return sd.Trajectory(states, actions, rng.random(H), rng.random((K, H)))


@pytest.mark.parametrize("stop", [1, 8, 9, 10, 31])
@pytest.mark.parametrize("forgetting", EVERY)
def test_a_restored_learner_goes_on_as_if_never_interrupted(tmp_path, forgetting, stop):
    world = small_world(M=40, S=8, A=3, H=3, K=2)
    agent = build(world, forgetting, dual_signal="plain")
    rng = np.random.default_rng(1)
    learners = [agent]
    for m in range(world.M):
        if m == stop:
            np.savez(tmp_path / "state.npz", **agent.state())
            again = agent.fresh(seed=99)
            again.restore(dict(np.load(tmp_path / "state.npz")))
            learners.append(again)
        policies = [np.asarray(one.begin_episode(world.thresholds[m])) for one in learners]
        actions = [[one.act(h, h % 8) for h in range(3)] for one in learners]
        assert actions[0] == actions[-1]
        np.testing.assert_array_equal(policies[0], policies[-1])
        episode = random_episode(rng, agent.sizes)
        for one in learners:
            one.end_episode(episode)
    one, other = (learner.state() for learner in learners)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# ---------------------------------------------------------------- memory


def test_the_memory_of_a_sliding_window_does_not_grow_with_the_episodes():
    """There are 30 * 30 * 2 transitions to see, and 10 episodes in the window."""
    world = small_world(M=2000, S=30, A=2, H=3)
    agent = build(world, SlidingWindow(10))
    kept = build(world, Never())
    rng = np.random.default_rng(0)
    shapes = {}
    for m in range(world.M):
        episode = random_episode(rng, agent.sizes)
        for one in (agent, kept):
            one.begin_episode(world.thresholds[m])
            one.end_episode(episode)
        if m + 1 in (200, 2000):
            shapes[m + 1] = {name: array.shape for name, array in agent.state().items()}
    assert shapes[200] == shapes[2000]
    assert agent.memory.window.edges.max() <= 2 * 10
    assert kept.memory.window.edges.max() > 500


# ---------------------------------------------------------------- what a user is told


def test_notes_speak_of_what_was_forgotten():
    world = small_world(M=30)
    for forgetting, told in ((None, True), (SlidingWindow(9, 1), True), (Never(), False)):
        notes = sd.simulate(world, build(world, forgetting, L=1, W=9)).notes()
        assert any("L is 1" in note for note in notes) is told
