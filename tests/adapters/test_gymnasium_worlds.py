"""Gymnasium environments as worlds without a model: what an episode is, what a run tells."""

import json
import re
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformReward
from typer.testing import CliRunner

import safedrift as sd
from builders import environment_episode
from safedrift.adapters.environment import DriftingEnv
from safedrift.adapters.gymnasium_worlds import EnvironmentStepper
from safedrift.adapters.toy_text import from_table
from safedrift.cli import app
from safedrift.problems.frozen_lake import dry_feet
from safedrift.reports import plots, summary_text


class Scripted(gymnasium.Env):
    """Plays what it is told: one list of (observation, reward, terminated, truncated, info)."""

    def __init__(self, script, first=0, observation=None, action=None):
        self.observation_space = observation or spaces.Discrete(5)
        self.action_space = action or spaces.Discrete(2)
        self.script, self.first = script, first
        self.seeds, self.actions = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.left = iter(self.script)
        return self.first, {}

    def step(self, action):
        self.actions.append(action)
        return next(self.left)


class Walk(gymnasium.Env):
    """A random walk on three cells; action 1 mostly goes right, where it pays and is unsafe."""

    observation_space = spaces.Discrete(3, start=10)
    action_space = spaces.Discrete(2, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return 10, {}

    def step(self, action):
        right = action + 1 if self.np_random.random() < 0.8 else -action
        self.cell = int(np.clip(self.cell + 2 * right - 1, 0, 2))
        reward = float(self.cell == 2)
        return 10 + self.cell, reward, False, False, {"cost": reward}


def refused(error, message):
    return pytest.raises(error, match="^" + re.escape(message))


def agent_for(world, **overrides):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.3), **overrides)


def assert_same(one, other, names=None):
    one, other = one.columns(), other.columns()
    assert one.keys() == other.keys()
    for name in names or one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# ---------------------------------------------------------------- an episode

STEPS = [(3, 2.0, False, False, {"x": 1}), (4, -1.0, True, False, {}), (0, 9.0, False, False, {})]


def test_steps_after_an_early_end_are_spent_in_the_state_over():
    seen = []

    def utility(step):
        seen.append(step)
        return (0.25, 1.0 if step.terminated else 0.5)

    env = Scripted(STEPS, first=2)
    world = sd.from_gymnasium(
        env, 5, utility, [1.0, 2.0], episodes=3, reward_range=(-1, 3), over=[0.75, 0.0]
    )
    assert (world.M, world.H, world.S, world.A, world.K) == (3, 5, 6, 2, 2)
    asked = []
    states, actions, values = environment_episode(
        world, 0, lambda h, x: asked.append((h, x)) or h % 2
    )
    assert states.tolist() == [2, 3, 5, 5, 5]
    assert actions.tolist() == [0, 1, 0, 1, 0]
    assert asked == [(0, 2), (1, 3), (2, 5), (3, 5), (4, 5)]
    assert values[0].tolist() == [0.75, 0.0, 0.25, 0.25, 0.25]
    assert values[1].tolist() == [0.25, 0.25, 0.75, 0.75, 0.75]
    assert values[2].tolist() == [0.5, 1.0, 0.0, 0.0, 0.0]
    assert seen == [
        sd.Transition(2, 0, 3, 2.0, False, {"x": 1}),
        sd.Transition(3, 1, 4, -1.0, True, {}),
    ]
    assert env.actions == [0, 1]


def test_truncation_ends_an_episode_too_and_is_no_termination():
    ends = []
    world = sd.from_gymnasium(
        Scripted([(1, 0.0, False, True, {})]), 3, lambda t: ends.append(t.terminated) or 0.0, 1.0
    )
    states, _, values = environment_episode(world, 0, lambda h, x: 0)
    assert states.tolist() == [0, 5, 5]
    assert values[1].tolist() == [0.0, 1.0, 1.0]
    assert ends == [False]


def test_an_episode_is_cut_at_the_horizon():
    env = Scripted([(1, 0.5, False, False, {})] * 9)
    world = sd.from_gymnasium(env, 4, lambda t: 1.0, 1.0)
    assert environment_episode(world, 0, lambda h, x: 1).states.tolist() == [0, 1, 1, 1]
    assert env.actions == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("space", "n", "first", "later", "numbers"),
    [
        (spaces.Discrete(7, start=-3), 7, -3, 2, [0, 5]),
        (spaces.MultiDiscrete([3, 4]), 12, np.array([2, 1]), np.array([0, 3]), [9, 3]),
        (spaces.MultiDiscrete([3, 4], start=[5, 1]), 12, np.array([5, 1]), np.array([7, 4]),
         [0, 11]),
        (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2, start=1)]), 6, (1, 1), (2, 2),
         [2, 5]),
    ],
)  # fmt: skip
def test_observations_are_numbered_and_actions_keep_their_names(space, n, first, later, numbers):
    env = Scripted([(later, 0.0, False, False, {})] * 2, first, space, spaces.Discrete(3, start=4))
    seen = []
    world = sd.from_gymnasium(env, 2, lambda t: seen.append(t) or 1.0, 1.0, episodes=1)
    states, actions, _ = environment_episode(world, 0, lambda h, x: 2)
    assert states.tolist() == numbers
    assert actions.tolist() == [2, 2]
    assert env.actions == [6, 6]
    np.testing.assert_array_equal(seen[0].state, first)
    np.testing.assert_array_equal(seen[0].next_state, later)
    assert n + 1 == world.S


@pytest.mark.parametrize(("info", "utility"), [({"utility": [0.25], "cost": 1}, 0.25),
                                                ({"cost": 0.25}, 0.75)])  # fmt: skip
def test_without_a_utility_that_in_info_counts_and_else_one_less_the_cost(info, utility):
    world = sd.from_gymnasium(Scripted([(1, 0.0, False, False, info)]), 1, threshold=0.5)
    assert environment_episode(world, 0, lambda h, x: 0).values[1, 0] == utility


@pytest.mark.parametrize(
    ("step", "utility", "error", "message"),
    [
        ((1, 1.5, False, False, {}), lambda t: 1.0, ValueError,
         "the reward of episode 7, step 1 must be in reward_range, [0, 1]; got 1.5"),
        ((1, "much", False, False, {}), lambda t: 1.0, TypeError,
         "the reward of episode 7, step 1 must be a number; got 'much'"),
        ((1, float("nan"), False, False, {}), lambda t: 1.0, ValueError,
         "the reward of episode 7, step 1 must be in reward_range, [0, 1]; got nan"),
        ((1, 0.25, False, False, {}), lambda t: 1 - 8 * t.reward, ValueError,
         "utility(...) of episode 7, step 1 must be in [0, 1]; got -1.0"),
        ((1, 0.5, False, False, {}), lambda t: (0.5, 0.5) if t.reward else 1.0, ValueError,
         "utility(...) of episode 7, step 1 must be in [0, 1]; got 2 numbers"),
        ((1, 0.0, False, False, {"speed": 2}), None, ValueError,
         "utility must be given where info has neither 'utility' nor 'cost'; got speed"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_named_with_episode_and_step(step, utility, error, message):
    script = [(1, 0.0, False, False, {"cost": 0}), step]
    world = sd.from_gymnasium(Scripted(script), 3, utility, 1.0, episodes=9)
    with refused(error, message):
        environment_episode(world, 7, lambda h, x: 0)


def test_an_observation_outside_its_space_is_named():
    world = sd.from_gymnasium(Scripted([(5, 0.0, False, False, {})]), 2, lambda t: 1.0, 1.0)
    with refused(ValueError, "the observation of episode 0, step 1 must be in Discrete(5); got 5"):
        environment_episode(world, 0, lambda h, x: 0)


@pytest.mark.parametrize("wrong", [(1, 2), (-100, -1)])
def test_an_ended_episode_earns_nothing_and_that_must_be_in_range(wrong):
    with refused(
        ValueError, f"reward_range must be around 0, which an ended episode earns; got {wrong}"
    ):
        sd.from_gymnasium(Scripted([]), 2, lambda t: 1.0, 1.0, reward_range=wrong)


def test_faults_of_utilities_and_environments_are_told_with_their_place():
    world = sd.from_gymnasium(
        Scripted([(1, 0.5, False, False, {})]), 2, lambda t: t.info["rain"], 1.0
    )
    with refused(RuntimeError, "utility(...) of episode 3, step 0 failed: KeyError: 'rain'"):
        environment_episode(world, 3, lambda h, x: 0)
    old = sd.from_gymnasium(Scripted([(1, 0.5, False, {})]), 2, lambda t: 1.0, 1.0)
    with refused(ValueError, "what step returns must be 5 things, as in Gymnasium; got 4"):
        environment_episode(old, 0, lambda h, x: 0)
    ended = sd.from_gymnasium(Scripted([]), 2, lambda t: 1.0, 1.0)
    with refused(RuntimeError, "step of episode 0, step 0 failed: "):
        environment_episode(ended, 0, lambda h, x: 0)
    costly = sd.from_gymnasium(Scripted([(1, 0.5, False, False, {"cost": 2.0})]), 2, None, 1.0)
    with refused(ValueError, "info['cost'] must be in [0, 1], or utility given; got 2.0"):
        environment_episode(costly, 0, lambda h, x: 0)


@pytest.mark.parametrize("seen", [1.0, 5, -1, np.array([1, 1])])
def test_observations_outside_their_space_are_told(seen):
    world = sd.from_gymnasium(Scripted([], first=seen), 2, lambda t: 1.0, 1.0)
    with refused(ValueError, "the observation of episode 0, step 0 must be in Discrete(5); got "):
        environment_episode(world, 0, lambda h, x: 0)


def test_a_changed_environment_of_our_own_is_not_measured_exactly():
    class Louder(DriftingEnv):
        def step(self, action):
            seen, reward, *rest = super().step(action)
            return seen, 1 - reward, *rest

    maze = sd.problems.make("maze", 10)
    assert sd.from_gymnasium(DriftingEnv(maze)).model is maze
    assert sd.from_gymnasium(Louder(maze)).model is None


def test_too_many_states_are_refused_at_once():
    for many in ([2] * 64, [1000] * 8):
        env = Scripted([])
        env.observation_space = spaces.MultiDiscrete(many)
        with refused(ValueError, "observation_space must be of at most 10,000,000 values; got "):
            sd.from_gymnasium(env, 2, lambda t: 1.0, 1.0)


# ---------------------------------------------------------------- arguments


def test_thresholds_are_a_number_a_row_or_a_row_per_episode():
    def of(threshold):
        world = sd.from_gymnasium(Scripted([]), 4, lambda t: 1.0, threshold, episodes=3)
        return world.thresholds.tolist()

    assert of(2) == [[2.0]] * 3
    assert of([1.0, 3.5]) == [[1.0, 3.5]] * 3
    assert of([[1], [2], [3]]) == [[1.0], [2.0], [3.0]]
    with refused(ValueError, "thresholds must be an array of shape (3, 1); got shape (2, 1)"):
        of([[1], [2]])
    with refused(ValueError, "thresholds must be in (0, H] = (0, 4]; got 4.5 at index (0, 0)"):
        of(4.5)
    with refused(TypeError, "threshold must be a number, or an array (K,) or (M, K); got None"):
        of(None)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"horizon": 0}, ValueError, "horizon must be an integer >= 1; got 0"),
        ({"horizon": None}, TypeError, "horizon must be an integer; got None"),
        ({"episodes": 0}, ValueError, "episodes must be an integer >= 1; got 0"),
        ({"reward_range": (1, 1)}, ValueError, "reward_range must be two finite numbers, the sm"),
        ({"reward_range": (0, np.inf)}, ValueError, "reward_range must be two finite numbers"),
        ({"reward_range": (0, 1, 2)}, ValueError, "reward_range must be two finite numbers"),
        ({"over": [1.0, 1.0]}, ValueError, "over must be an array of shape (1,); got shape (2,)"),
        ({"over": 1.5}, ValueError, "over must be in [0, 1]; got 1.5 at index 0"),
        ({"initial": [0.5, 0.5]}, ValueError, "initial must be an array of shape (6,)"),
        ({"initial": [1, 1, 0, 0, 0]}, ValueError, "each row of initial must be a distribution"),
        ({"is_slippery": True}, ValueError, "options must be none with an environment that is"),
        ({"env": "CartPole-v1"}, TypeError, "observation_space must be Discrete, MultiDiscrete"),
        ({"env": Scripted([], action=spaces.Box(0, 1))}, TypeError,
         "action_space must be Discrete; got Box"),
    ],
)  # fmt: skip
def test_bad_arguments_get_a_sentence(change, error, message):
    given = {"env": Scripted([]), "horizon": 4, "utility": lambda t: 1.0, "threshold": 1.0}
    with refused(error, message):
        sd.from_gymnasium(**given | change)


# ---------------------------------------------------------------- runs


def walk(M=60, **options):
    return sd.from_gymnasium(Walk(), 6, threshold=4.0, episodes=M, **options)


def test_the_environment_is_seeded_once_and_then_goes_on():
    env = Scripted([(1, 0.0, True, False, {"cost": 0})])
    world = sd.from_gymnasium(env, 2, threshold=1.0, episodes=4)
    sd.simulate(world, agent_for(world), seed=3)
    first, *later = env.seeds
    assert isinstance(first, int)
    assert later == [None] * 3
    sd.simulate(world, agent_for(world), seed=4)
    assert env.seeds[4] not in (None, first)


def test_same_seed_same_run_in_a_random_environment():
    world = walk()
    one, again = (sd.simulate(world, agent_for(world), 5) for _ in range(2))
    assert_same(one, again)
    assert one.manifest == again.manifest
    other = sd.simulate(world, agent_for(world), 6)
    assert not np.array_equal(one.outcome.observed, other.outcome.observed)


def test_a_world_without_a_model_has_what_was_observed_and_nothing_else():
    world = walk()
    calls = []
    run = sd.simulate(world, agent_for(world), progress=lambda *call: calls.append(call))
    assert run.episodes.tolist() == list(range(60))
    np.testing.assert_array_equal(run.outcome.reward, run.outcome.observed[:, 0])
    np.testing.assert_array_equal(run.outcome.utility, run.outcome.observed[:, 1:])
    pays, safe = run.outcome.reward, run.outcome.utility[:, 0]
    np.testing.assert_allclose(pays + safe, 6)  # what pays is unsafe
    for name in ("optimal_reward", "gamma", "drift_P", "drift_star", "baseline_reward"):
        assert np.isnan(getattr(run.truth, name)).all()
    assert np.isnan(run.truth.optimal_mu).all()
    assert np.isfinite(run.trace["mu"]).all()
    assert not run.truth.known
    assert calls[-1] == ("learning", 60, 60)
    found = run.summary()
    assert found["truth_known"] is False
    missing = [key for key, value in found.items() if value is None]
    assert all("regret" in k or "gap" in k or "positive" in k
               or "score" in k or "uniform" in k or k in ("discretisation", "constraints", "scale")
               for k in missing)  # fmt: skip
    assert len(missing) == 13
    assert found["violation"] == [max(0.0, float((4 - run.outcome.utility).sum()))]
    assert found["reward_per_episode"] == pytest.approx(run.outcome.reward.mean())
    assert any("no model" in note and "regret" in note for note in run.notes())


def test_a_run_in_a_world_with_a_model_says_so():
    world = sd.problems.make("random", episodes=20)
    run = sd.simulate(world, agent_for(world))
    assert run.truth.known
    assert run.manifest.environment is None
    found = run.summary()
    assert found["truth_known"] is True
    assert found["dynamic_regret"] == run.dynamic_regret[-1]


def test_the_table_and_the_environment_are_one_world_to_the_learner():
    """On dry ground nothing is random: the same actions, rewards and estimates, bit for bit."""
    H, M = 12, 150
    table = from_table("FrozenLake-v1", H, dry_feet, H - 0.5, is_slippery=False)
    known = sd.DriftingCMDP([table], np.zeros(M, np.int64))
    unknown = sd.from_gymnasium(
        "FrozenLake-v1", H, dry_feet, H - 0.5, episodes=M, is_slippery=False
    )
    one = sd.simulate(known, agent_for(known), 4)
    other = sd.simulate(unknown, agent_for(unknown), 4)
    assert_same(
        one, other, ("observed", "trace.mu", "trace.estimated_reward", "trace.estimated_utility",
                     "trace.at_cap", "trace.policy_restart", "trace.window_restart", "thresholds"),
    )  # fmt: skip
    assert 0 < other.outcome.observed[:, 0].mean() < 1


def test_a_first_state_that_is_not_told_is_learnt():
    """The walk starts in one cell always: after an episode that is known."""
    unknown, told = walk(), walk(initial=[1, 0, 0])
    assert not unknown.initial_known
    assert told.initial_known
    one, other = (sd.simulate(world, agent_for(world), 1) for world in (unknown, told))
    assert_same(one, other)
    assert one.trace["estimated_reward"].max() > 0


def test_a_wrapper_may_number_states_anew_so_that_the_start_is_unknown():
    class Backwards(gymnasium.ObservationWrapper):
        def observation(self, seen):
            return 15 - seen

    plain = sd.from_gymnasium("FrozenLake-v1", 5, dry_feet, 4.0)
    assert plain.initial_known
    assert plain.initial[0] == 1
    turned = sd.from_gymnasium(Backwards(gymnasium.make("FrozenLake-v1")), 5, dry_feet, 4.0)
    assert not turned.initial_known
    assert environment_episode(turned, 0, lambda h, x: 0).states[0] == 15
    ours = Backwards(gymnasium.make("safedrift/frozen_lake-v0", episodes=5))
    assert not sd.from_gymnasium(ours, threshold=4.0).initial_known


@pytest.mark.parametrize(
    ("id", "rewards", "S"),
    [("Blackjack-v1", (-1, 1.5), 32 * 11 * 2 + 1), ("CliffWalking-v1", (-100, 0), 49),
     ("Taxi-v4", (-10, 20), 501)],
)  # fmt: skip
def test_toy_text_plays_as_it_is(id, rewards, S):
    def half(step):
        return 0.5

    world = sd.from_gymnasium(id, 6, half, 2.0, episodes=20, reward_range=rewards)
    run = sd.simulate(world, agent_for(world))
    assert (world.S, run.manifest.environment) == (S, id)
    assert ((run.outcome.utility >= 3) & (run.outcome.utility <= 6)).all()
    raw = 6 * rewards[0] + (rewards[1] - rewards[0]) * run.outcome.reward
    np.testing.assert_allclose(raw * 2, np.round(raw * 2), atol=1e-9)


def test_first_states_are_counted_as_they_come():
    class Anywhere(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.cell = int(self.np_random.integers(3))
            return 10 + self.cell, {}

    world = sd.from_gymnasium(Anywhere(), 3, threshold=1.0, episodes=300)
    run = sd.simulate(world, agent_for(world, alpha=0.0, dual_signal="plain"), 1)
    even = sd.from_gymnasium(Anywhere(), 3, threshold=1.0, episodes=300, initial=np.full(3, 1 / 3))
    exact = sd.simulate(even, agent_for(even, alpha=0.0, dual_signal="plain"), 1)
    apart = np.abs(run.trace["estimated_utility"] - exact.trace["estimated_utility"])[:, 0]
    assert apart[:5].max() > 0.05
    assert 0 < apart[-50:].max() < 0.05


def test_the_learner_beats_chance_and_stays_safe():
    world = walk(M=1500)
    run = sd.simulate(world, sd.PROPDPPO.for_problem(world, sd.Slater(1.0)))
    rng = np.random.default_rng(0)
    chance = np.mean([
        environment_episode(world, m, lambda h, x: int(rng.integers(2))).values[0].sum()
        for m in range(400)
    ])  # fmt: skip
    last = slice(-300, None)
    assert run.outcome.reward[last].mean() > chance + 0.2
    assert run.outcome.utility[last].mean() > 4.0 - 0.15
    assert run.violation[-1, 0] / 1500 < 0.15


def test_the_learner_finds_the_way_over_the_ice():
    M = 700
    world = sd.from_gymnasium("FrozenLake-v1", 12, dry_feet, 11.0, episodes=M, is_slippery=False)
    run = sd.simulate(world, sd.PROPDPPO.for_problem(world, sd.Slater(0.5), L=M, W=M))
    assert run.outcome.reward[:100].mean() < 0.2
    assert run.outcome.reward[-100:].mean() > 0.9


# ---------------------------------------------------------------- environments of our own


def stay_or_go(M=80):
    """Two states, nothing random, rewards and thresholds that drift."""
    H = 4
    P = np.stack([np.eye(2), np.eye(2)[::-1]], axis=1)[None].repeat(H, axis=0)
    r = np.array([0.2, 1.0])[None, :, None].repeat(H, 0).repeat(2, 2)
    calm = sd.TabularCMDP(P, r, 1 - r[None] * 0.9, [2.0], [1.0, 0.0])
    storm = sd.TabularCMDP(P, r[:, ::-1], 1 - r[None] * 0.9, [1.5], [1.0, 0.0])
    return sd.DriftingCMDP([calm, storm], sd.drift.periodic(M, 2, period=40))


def test_learning_through_our_own_environment_is_the_compiled_simulation_bit_for_bit():
    inside = stay_or_go()
    world = sd.from_gymnasium(DriftingEnv(inside))
    assert (world.M, world.H, world.S, world.A, world.K) == (80, 4, 2, 2, 1)
    assert world.model is inside
    for measure_every in (1, 7):
        compiled = sd.simulate(inside, agent_for(inside), 2, measure_every=measure_every)
        through = sd.simulate(world, agent_for(world), 2, measure_every=measure_every)
        assert_same(compiled, through)
        assert through.summary() == compiled.summary() | {"problem": None}


def test_regret_is_exact_where_the_truth_is_known():
    """In a random world: other trajectories, but each policy measured as it was played."""
    env = gymnasium.make("safedrift/random-v0", episodes=40, drift="linear", noisy=True)
    world = sd.from_gymnasium(env)
    inside = env.unwrapped.world
    assert world.model is inside
    agent = agent_for(world, noisy=True, alpha=0.5)
    run = sd.simulate(world, agent, 3)
    assert run.truth.known
    assert run.manifest.noisy is True
    np.testing.assert_allclose(run.truth.optimal_reward, sd.optima(inside).value)
    # The same trajectories, handed to a learner in a loop of one's own.
    own = agent.fresh()
    children = np.random.SeedSequence(3).spawn(2)
    stepper = EnvironmentStepper(world, int(children[0].generate_state(1)[0]))
    u = np.random.default_rng(children[1]).random((40, world.H))
    for m in range(40):
        policy = np.asarray(own.begin_episode(world.thresholds[m]))
        exact = sd.evaluate(inside.at(m), policy)
        np.testing.assert_allclose(
            exact, [run.outcome.reward[m], *run.outcome.utility[m]], atol=1e-12
        )
        path = environment_episode(world, m, lambda h, x, m=m: own.act(h, x, u[m, h]), stepper)
        own.end_episode(sd.Trajectory(path.states, path.actions, path.values[0], path.values[1:]))
        np.testing.assert_array_equal(own.mu, run.trace["mu"][m])
        np.testing.assert_array_equal(path.values.sum(axis=1), run.outcome.observed[m])


def test_an_id_of_ours_is_made_with_its_episodes():
    world = sd.from_gymnasium("safedrift/maze-v0", episodes=50, size=4)
    assert (world.M, world.S) == (50, 16)
    assert world.model is not None


@pytest.mark.parametrize(
    "changed",
    [
        lambda env: (TransformReward(env, lambda r: r / 2), {}),
        lambda env: (TimeLimit(env, 2), {}),
        lambda env: (env, {"utility": lambda t: 1.0}),
        lambda env: (env, {"threshold": 1.0}),
        lambda env: (env, {"horizon": 3}),
        lambda env: (env, {"episodes": 30}),
        lambda env: (env, {"reward_range": (0.0, 2.0)}),
    ],
)
def test_whatever_changes_our_environment_makes_the_truth_unknown(changed):
    env, options = changed(DriftingEnv(stay_or_go()))
    world = sd.from_gymnasium(env, **options)
    assert world.model is None
    assert world.S == 3
    run = sd.simulate(world, agent_for(world), 1)
    assert not run.truth.known
    assert np.isfinite(run.outcome.observed).all()


def test_after_its_last_episode_our_environment_stands_still():
    inside = stay_or_go(20)
    world = sd.from_gymnasium(DriftingEnv(inside), episodes=25)
    np.testing.assert_array_equal(world.thresholds[:20], inside.thresholds)
    assert (world.thresholds[20:] == inside.thresholds[-1]).all()


# ---------------------------------------------------------------- what needs a model


def test_what_needs_a_model_is_refused_in_a_sentence(tmp_path):
    world = walk(M=20)
    agent = agent_for(world)
    run = sd.simulate(world, agent)
    with refused(ValueError, "world must be one with a model to certify a run in it; got Gymn"):
        sd.certify(world, agent)
    sentence = "the run must be of a world with a model, which can be played again; got one of the"
    with refused(ValueError, sentence):
        run.certify()
    run.to_parquet(tmp_path / "run.parquet")
    with refused(ValueError, sentence):
        sd.Run.from_parquet(tmp_path / "run.parquet").certify()
    with refused(ValueError, "noisy must be False: an environment is as noisy as it is; got True"):
        sd.simulate(world, agent, noisy=True)
    with refused(ValueError, "measure_every must be 1 in a world without a model; got 2"):
        sd.simulate(world, agent, measure_every=2)
    with refused(ValueError, "measure_log must be None in a world without a model; got 5"):
        sd.simulate(world, agent, measure_log=5)
    with refused(ValueError, "truth must be None in a world without a model; got Truth"):
        sd.simulate(world, agent, truth=sd.measure_truth(stay_or_go()))
    with refused(ValueError, "the learner's M must be the world's, 20; got 21"):
        sd.simulate(world, agent_for(walk(M=21)))
    through = sd.from_gymnasium(DriftingEnv(stay_or_go()))
    with refused(ValueError, sentence):  # known, but its states came from the environment
        sd.simulate(through, agent_for(through)).certify()


def test_local_budgets_are_welcome_where_the_user_knows_them():
    world = walk(M=30)
    agent = sd.PROPDPPO.for_problem(world, sd.LocalBudgets(0.01, 0.0))
    settings = sd.simulate(world, agent).manifest.learner.settings
    assert settings["knowledge"] == {"name": "local-budgets"}


# ---------------------------------------------------------------- files, pages, command


def test_a_stored_run_without_truth_comes_back_whole(tmp_path):
    world = sd.from_gymnasium(Walk(), 6, lambda t: (1 - t.reward, 0.5), [4.0, 2.0], episodes=40)
    run = sd.simulate(world, agent_for(world))
    run.to_parquet(tmp_path / "run.parquet")
    back = sd.Run.from_parquet(tmp_path / "run.parquet")
    assert_same(run, back)
    assert back.manifest == run.manifest
    assert back.summary() == run.summary()
    assert back.digest == run.digest


@pytest.mark.parametrize("K", [1, 2])
def test_the_page_shows_what_was_observed_and_hides_what_is_unknown(tmp_path, K):
    world = sd.from_gymnasium(Walk(), 6, lambda t: [1 - t.reward] * K, [4.0, 5.0][:K], episodes=300)
    run = sd.simulate(world, agent_for(world))
    titles = [plot.title for plot in plots.all_plots(run)]
    middle = ["Observed utility and threshold"] if K == 1 else [
        "Observed utility and threshold, constraint 1",
        "Observed utility and threshold, constraint 2",
    ]  # fmt: skip
    assert titles == ["Observed reward", *middle, "Observed long-run violation", "Multiplier"]
    for plot in plots.all_plots(run):
        assert not any(np.isnan(np.asarray(line.y, float)).any() for line in plot.figure.data)
    reward = next(plots.all_plots(run)).figure.data[0]
    hundredth = run.outcome.reward[-3:]
    np.testing.assert_allclose(reward.y[-1], hundredth.mean())
    text = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    page = text[text.rindex("<body>") :]
    assert "Dynamic regret" not in page
    assert "Slater gap" not in page.replace("[Slater gap]", "")  # beside what the learner was told
    assert ">nan<" not in page
    assert "the regret, is unknown" in page


def test_headline_of_an_observed_run():
    run = sd.simulate(walk(M=40), agent_for(walk(M=40)))
    n, K = run.outcome.utility.shape
    achieved = replace(run.outcome, utility=np.full((n, K), 4.001), reward=np.full(n, 1.5))
    safe = replace(run, outcome=achieved)
    assert summary_text.headline(safe) == (
        "In 40 episodes propd-ppo earned 1.5 reward per episode, 1.5 in the last tenth of them. "
        "The constraint was met in the long run: 4.001 utility per episode observed, 4 required."
    )
    unsafe = replace(run, outcome=replace(achieved, utility=np.full((n, K), 3.5)))
    assert summary_text.headline(unsafe).endswith(
        "The constraint was missed in the long run: 3.5 utility per episode observed, 4 required."
    )


FILE = """
import safedrift as sd

def dry(t):
    return 0.0 if t.terminated and t.reward == 0 else 1.0

def make(episodes=50):
    return sd.from_gymnasium("FrozenLake-v1", 8, dry, 7.5, episodes=episodes)
"""


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "lake.py").write_text(FILE, encoding="utf-8")
    return f"{tmp_path / 'lake.py'}:make"


def command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_runs_an_environment(tmp_path, lake):
    done = command("run", lake, "-n", 40, "--gamma", 0.3, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for words_ in ("propd-ppo in FrozenLake-v1", "observed reward", "observed violation", "Note."):
        assert words_ in done.stdout
    assert "regret " not in done.stdout.partition("Note.")[0]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "records.parquet", "summary.json", "manifest.json"}
    summary = json.loads(
        (tmp_path / "out" / "summary.json").read_text(), parse_constant=pytest.fail
    )
    assert summary["dynamic_regret"] is None
    assert summary["sizes"]["M"] == 40
    assert command("report", tmp_path / "out").exit_code == 0
    told = command("certify", tmp_path / "out")
    assert told.exit_code == 2
    assert "the run must be of a world with a model" in told.stderr


def test_the_command_plays_any_learner_that_is_told_nothing(tmp_path, lake):
    done = command(
        "run", lake, "-n", 40, "--learner", "opt-cmdp:window=20", "--out", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output
    assert "opt-cmdp in FrozenLake-v1" in done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "--gamma must be given in a Gymnasium environment"),
        (["--learner", "propd-ppo:alpha=0.1"], "gamma must be given: propd-ppo knows the Slater"),
        (["--learner", "optimum"], "--learner must be one that needs no truth in a Gymnasium"),
        (
            ["--gamma", 0.3, "--knowledge", "local-budgets"],
            "--knowledge must be slater or none",
        ),
        (["--gamma", 0.3, "--mode", "printed"], "--mode must be practical in a Gymnasium env"),
        (["--gamma", 0.3, "--measure-every", 3], "measure_every must be 1 in a world without a"),
        (["--gamma", -1], "gamma must be > 0; got -1.0"),
    ],
)
def test_the_command_says_what_an_environment_needs(tmp_path, lake, options, sentence):
    done = command("run", lake, "-n", 40, "--out", tmp_path / "out", *options)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_learner_that_is_not_told_the_first_state_counts_those_it_sees():
    """The shares are the learner's own: nobody writes into what it was given."""
    world = sd.from_gymnasium(
        gymnasium.wrappers.TransformObservation(
            gymnasium.make("FrozenLake-v1"), lambda s: s, gymnasium.spaces.Discrete(16)
        ),
        5,
        lambda t: 1.0,
        threshold=4.0,
        episodes=12,
    )
    assert not world.initial_known
    given = np.array(world.initial)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.5))
    assert agent.initial is None
    before = agent.state()
    run = sd.simulate(world, agent, seed=1)
    np.testing.assert_array_equal(world.initial, given)
    for name, values in agent.state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    assert run.learner.memory.values.initial.tolist() == [1.0] + [0.0] * 16
