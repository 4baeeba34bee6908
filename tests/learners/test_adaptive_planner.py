"""The adaptive planner: the same numbers on every path, answers known on paper, bounded memory."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safedrift as sd
from builders import columns_of
from safedrift import _check
from safedrift.experiments.playing import play_episode
from safedrift.learners.policies import DensePolicy
from safedrift.models.stepping import stepper_for, uniforms_per_episode

# Numbers that matter are said here, not left to defaults.
OPTIONS = {
    "caution": 0.0, "false_alarm_rate": 1e-4, "replan_every": 8, "gain_per_plan": 0.001,
    "reward_bonus": 0.4, "utility_bonus": 0.15, "range_bonus": 0.1,
    "exploration": 0.01,
}  # fmt: skip


def made(world, **changes):
    return sd.learners.make("adaptive-planner", world, **(OPTIONS | changes))


def drifting(M, seed, K=1, **options):
    sizes = {"states": 4, "actions": 3, "horizon": 3, "constraints": K, "gamma": 0.3}
    return sd.problems.make("random", M, seed, **(sizes | {"switches": 2} | options))


def play(world, learner, first, last, noisy=True, seed=0):
    """Episodes first .. last-1 with draws that depend on the episode only; yields what it shows."""
    stepper = stepper_for(world, noisy=noisy)
    draws = uniforms_per_episode(world.H, world.K, stepper.next_draws)
    for m in range(first, last):
        rng = np.random.default_rng((seed, m))
        policy = np.array(learner.begin_episode(world.thresholds[m]))
        episode = play_episode(learner, stepper, m, rng.random(world.H), rng.random(draws))
        learner.end_episode(episode)
        yield policy, learner.trace()


def assert_same_state(learner, other, but=()):
    found, expected = learner.state(), other.state()
    assert found.keys() == expected.keys()
    for name in expected:
        if name not in ("generator", *but):
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


# ---------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("K", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_fast_path_and_loop_agree_where_the_world_changes(K, noisy):
    world = drifting(300, 3, K, per_step=noisy)
    fast, slow = made(world), made(world)
    columns = columns_of(world, fast, slow=False, noisy=noisy)
    expected = columns_of(world, slow, slow=True, noisy=noisy)
    assert columns["alarm"].any()
    assert columns.keys() == expected.keys()
    for name in columns:
        np.testing.assert_array_equal(columns[name], expected[name], err_msg=name)
    assert fast.events() == slow.events() != []
    found, wanted = (_contents(learner) for learner in (fast, slow))
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


def _contents(learner):
    """The state, without room that is not used: chunks reserve more of it."""
    state = learner.state()
    for cells in ("know.own", "know.pooled"):
        used, edges = state[f"{cells}.used"]
        for name in ("key", "last", "last_move", "n", "scale", "head", "signal"):
            state[f"{cells}.{name}"] = state[f"{cells}.{name}"][:used]
        for name in ("edge_next", "edge_state", "edge_count"):
            state[f"{cells}.{name}"] = state[f"{cells}.{name}"][:edges]
    used, edges = state["know.own.used"]
    for name, size in (("gram", used), ("visits", used), ("signal", used), ("edge", edges)):
        state[f"know.factors.{name}"] = state[f"know.factors.{name}"][:size]
    state.pop("generator")
    return state


@pytest.mark.parametrize("known", [True, False])
def test_saved_and_loaded_at_random_moments(tmp_path, known):
    """Twenty times a new learner goes on from a file; nobody can tell."""
    world = drifting(160, 4)
    spec = sd.ProblemSpec(
        H=world.H, S=world.S, A=world.A, K=world.K, initial=world.initial if known else None
    )
    learner = made(spec)
    whole = list(play(world, learner, 0, world.M))
    rng = np.random.default_rng(7)
    stops = [0, *np.sort(rng.choice(np.arange(1, world.M), 20, replace=False)), world.M]
    current, pieces = made(spec), []
    for first, last in pairwise(stops):
        pieces += play(world, current, int(first), int(last))
        file = current.save(tmp_path / f"{last}.npz")
        current = made(spec).load(file)
    assert sum(bool(trace["alarm"]) for _, trace in whole) > 0
    for m, ((policy, trace), (again, shown)) in enumerate(zip(whole, pieces, strict=True)):
        np.testing.assert_array_equal(policy, again, err_msg=str(m))
        assert trace.keys() == shown.keys()
        for name in trace:
            np.testing.assert_array_equal(trace[name], shown[name], err_msg=f"{name} {m}")
    # Where first states are not known, states are found again at each plan, and after loading.
    assert_same_state(current, learner, but=() if known else ("plan.known",))
    assert current.events() == learner.events()


def test_a_file_of_other_options_is_refused(tmp_path):
    world = drifting(10, 4)
    file = made(world).save(tmp_path / "learner.npz")
    with pytest.raises(ValueError, match="caution"):
        made(world, caution=0.5).load(file)


def test_fresh_knows_nothing():
    world = drifting(60, 4)
    learner = made(world)
    list(play(world, learner, 0, 60))
    assert_same_state(learner.fresh(0), made(world))


# ---------------------------------------------------------------- answers known on paper


def test_two_arms_are_mixed():
    """Arms (1, 0) and (0, 1) of reward and utility, threshold 1/4: mix 3/4 and 1/4."""
    r = np.array([[[1.0, 0.0]]])
    one = sd.TabularCMDP(np.ones((1, 1, 2, 1)), r, 1 - r[None], [0.25], [1.0])
    world = sd.DriftingCMDP([one], np.ones((800, 1)))
    learner = made(world, utility_bonus=0.1)
    *_, (policy, trace) = play(world, learner, 0, 800, noisy=False)
    np.testing.assert_allclose(policy[0, 0], [0.75, 0.25], atol=0.02)
    assert trace["feasible"]
    assert trace["mu"] == pytest.approx([1.0], abs=0.05)
    assert trace["estimated_reward"] == pytest.approx(0.75, abs=0.02)
    assert learner.events() == []


def switched(quantity, M=400, at=200):
    """Two states, two steps, action 1 pays less; one number changes at episode `at`.

    From state 0, action 0 leads to state 1 and action 1 back to 0, for sure.
    """
    P = np.zeros((2, 2, 2, 2))
    P[:, :, 0, 1] = P[:, :, 1, 0] = 1.0
    r = np.full((2, 2, 2), 0.5)
    r[..., 1] = 0.3
    r[1, 1, 0] = 0.8
    g = np.full((1, 2, 2, 2), 0.6)
    before = sd.TabularCMDP(P, r, g, [0.5], [1.0, 0.0])
    P, r, g = P.copy(), r.copy(), g.copy()
    if quantity == "reward":
        r[1, 1, 0] = 0.4
    elif quantity == "utility 0":
        g[0, 1, 1, 0] = 0.35
    else:
        P[0, 0, 0] = [0.9, 0.1]
    after = sd.TabularCMDP(P, r, g, [0.5], [1.0, 0.0])
    weights = np.zeros((M, 2))
    weights[:at, 0] = weights[at:, 1] = 1.0
    return sd.DriftingCMDP([before, after], weights)


@pytest.mark.parametrize(
    ("quantity", "place", "before", "after", "late"),
    [
        ("reward", (1, 1, 0, None), 0.8, 0.4, 1),
        ("utility 0", (1, 1, 0, None), 0.6, 0.35, 1),
        ("transition", (0, 0, 0, None), None, None, 25),
    ],
)
def test_the_event_names_what_changed(quantity, place, before, after, late):
    learner = made(switched(quantity))
    shown = [trace["alarm"] for _, trace in play(switched(quantity), learner, 0, 400, noisy=False)]
    assert not any(shown[:200])
    assert any(shown[200 : 201 + late])
    event = learner.events()[0]
    assert event.quantity == quantity
    assert 200 <= event.episode <= 200 + late
    assert event.episode == shown.index(True)
    assert (event.step, event.state, event.action) == place[:3]
    if before is not None:
        assert event.successor is None
        assert event.before == pytest.approx(before, abs=0.05)
        followed = (event.after - event.before) / (after - before)  # by a filter, after few visits
        assert 0.5 < followed < 1.1
    else:
        gone = event.after < event.before
        assert event.successor == (1 if gone else 0)
        assert abs(event.after - event.before) > 0.4
    assert {other.quantity for other in learner.events()} == {quantity}


@pytest.mark.parametrize("noisy", [False, True])
def test_no_alarm_where_nothing_changes(noisy):
    world = drifting(3000, 5, drift="stationary", switches=None)
    learner = made(world, false_alarm_rate=1e-5)
    assert not columns_of(world, learner, slow=False, noisy=noisy)["alarm"].any()
    assert learner.events() == []


# ---------------------------------------------------------------- caution, infeasible plans


def test_caution_buys_utility():
    """On every world, and the plan itself shows the reserve."""
    for seed in (11, 12, 13):
        world = drifting(400, seed)
        utility, kept = {}, {}
        for caution in (0.0, 1.0):
            learner = made(world, caution=caution)
            columns = columns_of(world, learner, slow=False, noisy=True)
            utility[caution] = columns["returns"][:, 1].mean()
            above = columns["estimated_utility"][200:, 0] - world.thresholds[200:, 0]
            kept[caution] = np.median(above[columns["feasible"][200:]])
        assert utility[1.0] >= utility[0.0]
        assert kept[1.0] > kept[0.0] + 0.05


def test_thresholds_out_of_reach():
    """Hope grows until a policy looks safe, and is disappointed again and again."""
    world = drifting(300, 6)
    hopeless = sd.DriftingCMDP(
        world.scenarios, np.eye(3)[np.zeros(300, int)], thresholds=np.full((300, 1), 3.0)
    )
    for slow in (False, True):
        columns = columns_of(hopeless, made(hopeless), slow=slow)
        out_of_reach = ~columns["feasible"]
        assert out_of_reach[-100:].mean() > 0.8
        np.testing.assert_array_equal(columns["mu"][1:][out_of_reach[1:]], 10.0)
        np.testing.assert_allclose(columns["policies"].sum(axis=-1), 1.0)


# ---------------------------------------------------------------- memory


def test_a_hundred_thousand_states():
    """Cells are kept of what was visited; tables (H, S, A) are the policy and its values only."""
    H, S, A = 4, 100_000, 3
    learner = made(sd.ProblemSpec(H=H, S=S, A=A, initial=0))
    rng = np.random.default_rng(0)
    for _ in range(30):
        policy = learner.begin_episode([0.5])
        s, states, actions = 0, [], []
        for h in range(H):
            states.append(s)
            actions.append(learner.act(h, s))
            assert policy[h, s].sum() == pytest.approx(1.0)
            s = (s * 3 + actions[-1] * 1013 + int(rng.integers(2))) % S
        learner.end_episode(sd.Trajectory(states, actions, rng.random(H), rng.random((1, H))))
    know, work = learner.algorithm.memory.know, learner.algorithm._work
    for cells in (know.own, know.pooled):
        assert len(cells.key) <= 256
        assert len(cells.edge_next) <= 256
    assert work.model.signals.nbytes < 1e5
    assert sum(array.nbytes for array in learner.state().values()) < 8 * H * S * (A + 2 + 2) + 2e7


def test_arrays_stop_growing():
    """Every pair and successor was seen long before the second half."""
    learner = made(sd.ProblemSpec(H=3, S=4, A=2, initial=0), replan_every=50)
    rng, shapes = np.random.default_rng(0), []
    for _ in range(2):
        for _ in range(600):
            learner.begin_episode([1.0])
            states, actions = rng.integers(4, size=3), rng.integers(2, size=3)
            learner.end_episode(sd.Trajectory(states, actions, rng.random(3), rng.random((1, 3))))
        shapes.append({name: array.shape for name, array in learner.state().items()})
    assert shapes[0] == shapes[1]
    assert learner.algorithm.memory.know.own.used[1] == 2 * 4 * 2 * 4


# ---------------------------------------------------------------- options, policies


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("caution", -0.1, r"caution must be in \[0, 1\]; got -0.1"),
        ("caution", 1.5, r"caution must be in \[0, 1\]; got 1.5"),
        ("caution", "much", "caution must be a number; got 'much'"),
        ("caution", float("nan"), "caution must be a number; got nan"),
        ("false_alarm_rate", 0.0, r"false_alarm_rate must be in \(0, 1\]; got 0.0"),
        ("replan_every", 0, "replan_every must be an integer >= 1; got 0"),
        ("replan_every", 2.5, "replan_every must be an integer; got 2.5"),
        ("gain_per_plan", 0.0, "gain_per_plan must be > 0; got 0.0"),
        ("reward_bonus", -1.0, "reward_bonus must be >= 0 and finite; got -1.0"),
        ("utility_bonus", np.inf, "utility_bonus must be >= 0 and finite; got inf"),
        ("range_bonus", None, "range_bonus must be a number; got None"),
        ("exploration", True, "exploration must be a number; got True"),
        ("exploration", -0.01, "exploration must be >= 0 and finite; got -0.01"),
    ],
)
def test_bad_options(option, value, sentence):
    with pytest.raises((ValueError, TypeError), match=f"^{sentence}$"):
        made(sd.ProblemSpec(H=2, S=2, A=2), **{option: value})


def test_settings_say_what_was_chosen():
    settings = made(sd.ProblemSpec(H=2, S=2, A=2), caution=1).settings()
    assert settings["told"] == []
    assert {name: settings[name] for name in OPTIONS} == OPTIONS | {"caution": 1.0}


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(-12, 12))
def test_within(one, other, value):
    lower, upper = min(one, other), max(one, other)
    if lower <= value <= upper:
        assert _check.within("x", value, lower, upper) == value
    else:
        with pytest.raises(ValueError, match="x must be in"):
            _check.within("x", value, lower, upper)


def test_dense_policy():
    table = np.arange(12.0).reshape(1, 4, 3)
    policy = DensePolicy(table)
    row, whole = policy[0, 2], np.asarray(policy)
    table[0, 2] = 0.0
    np.testing.assert_array_equal(row, [6, 7, 8])  # copies, not views
    np.testing.assert_array_equal(whole[0, 2], [6, 7, 8])
    assert policy.shape == (1, 4, 3)
    assert np.asarray(policy, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="s must be an integer in"):
        policy[0, 4]
    policy.lease.end()
    with pytest.raises(RuntimeError, match="belongs to an earlier episode"):
        policy[0, 0]
    with pytest.raises(RuntimeError, match="belongs to an earlier episode"):
        np.asarray(policy)


def test_planning_takes_no_more_than_its_credit():
    """Exact signals of a world that moves fast raise alarms all the time: 500 plans, then few.

    A plan costs an episode of (successors in the model)/60 H; they become more and more.
    """
    sizes = {"states": 12, "actions": 3, "horizon": 5, "gamma": 0.3}
    world = sd.problems.make("random", 3000, 7, drift="periodic", period=200, **sizes)
    run = sd.simulate(world, sd.learners.make("adaptive-planner", world))
    planned = run.trace["replanned"]
    assert planned[1:501].mean() > 0.5
    earned = 60 * world.H / run.learner.algorithm.memory.plan.known[4]
    assert planned[2000:].mean() == pytest.approx(earned, rel=0.2)
    assert np.diff(np.flatnonzero(planned)).max() <= 25


def test_a_trial_is_answered_by_a_plan():
    """Two arms, one pays a little more: the other is tried now and then, mostly for one episode.

    With 25 episodes between plans that would be a dozen.
    """
    lengths = []
    for seed in range(4):
        learner = made(sd.ProblemSpec(H=1, S=1, A=2, initial=0), replan_every=25)
        rng, played = np.random.default_rng(seed), []
        for _ in range(1500):
            learner.begin_episode([0.5])
            arm = learner.act(0, 0)
            played.append(arm)
            paid = rng.random() < (0.45, 0.55)[arm]
            learner.end_episode(sd.Trajectory([0], [arm], [float(paid)], np.ones((1, 1))))
        ends = np.flatnonzero(np.diff(np.array(played[500:]), prepend=1, append=1))
        lengths += list(ends[1::2] - ends[::2])
    assert len(lengths) >= 4
    assert np.median(lengths) == 1


def test_two_unlucky_visits_are_not_believed_for_ever():
    """Action 1 pays, and breaks the machine at its first visits only: it is tried again."""
    spec = sd.ProblemSpec(H=4, S=2, A=2, initial=0)
    learner, tried = made(spec, range_bonus=0.15), 0
    for _ in range(3000):
        learner.begin_episode([0.1])
        s, states, actions = 0, [], []
        for h in range(4):
            states.append(s)
            actions.append(learner.act(h, s))
            if s == 0 and actions[-1] == 1:
                tried += 1
                s = int(tried <= 2)
        good = np.array(states) == 0
        rewards = good * np.where(np.array(actions) == 1, 1.0, 0.4)
        learner.end_episode(sd.Trajectory(states, actions, rewards, good[None] * 1.0))
    assert tried > 5000
