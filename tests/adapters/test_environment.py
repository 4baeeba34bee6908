"""Named worlds behind Gymnasium's interface."""

import re
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import safedrift as sd
from safedrift.adapters.environment import DriftingEnv
from safedrift.adapters.registration import VERSION
from safedrift.problems import PROBLEMS, make_environment

M = 30


def made(name, **options):
    return gymnasium.make(f"safedrift/{name}-v{VERSION}", episodes=M, **options)


def refused(error, message):
    return pytest.raises(error, match="^" + re.escape(message))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.filterwarnings("error::UserWarning")
def test_every_problem_is_registered_and_passes_gymnasiums_own_check(name):
    env = made(name)
    check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_episode_lasts_h_steps_and_each_reset_advances_the_drift(name):
    env = made(name).unwrapped
    world = env.world
    for m in range(3):
        state, info = env.reset()
        assert info["episode"] == m
        assert info["step"] == 0
        np.testing.assert_array_equal(info["threshold"], world.thresholds[m])
        for h in range(world.H):
            state, reward, terminated, truncated, info = env.step(env.action_space.sample())
            assert env.observation_space.contains(state)
            assert terminated == (h + 1 == world.H)
            assert not truncated
            assert 0 <= reward <= 1
            assert info["utility"].shape == (world.K,)
            np.testing.assert_array_equal(info["cost"], 1 - info["utility"])
            assert info["step"] == h + 1
        with refused(RuntimeError, f"the episode of H = {world.H} steps is over; call reset"):
            env.step(0)


def episode(env, policy, seed=None, **options):
    """Observations, rewards and utilities of one episode."""
    state, info = env.reset(seed=seed, options=options or None)
    seen = []
    over = False
    while not over:
        state, reward, over, _, info = env.step(policy(info["step"], state))
        seen.append((state, reward, *info["utility"]))
    return seen


def test_same_seed_same_episodes():
    def some(h, x):
        return (h + int(x)) % 3

    one, other = made("random", noisy=True), made("random", noisy=True)
    first = [episode(one, some, seed=7), *(episode(one, some) for _ in range(4))]
    again = [episode(other, some, seed=7), *(episode(other, some) for _ in range(4))]
    assert first == again
    assert episode(one, some, seed=8, episode=0) != first[0]


@pytest.mark.parametrize("noisy", [False, True])
def test_mean_returns_are_the_exact_values(noisy):
    """Within four standard errors, in an episode in mid-drift and from a random first state."""
    rng = np.random.default_rng(0)
    plain = sd.problems.make("random", episodes=M, drift="linear", constraints=2, gamma=0.1)
    start = rng.dirichlet(np.ones(plain.S))
    scenarios = [
        sd.TabularCMDP(c.transitions, c.rewards, c.utilities, c.thresholds, start)
        for c in plain.scenarios
    ]
    world = sd.DriftingCMDP(scenarios, sd.drift.linear(M, 3), thresholds=plain.thresholds)
    policy = rng.dirichlet(np.ones(world.A), (world.H, world.S))
    exact = sd.evaluate(world.at(11), policy)
    env = DriftingEnv(world, noisy=noisy)
    env.reset(seed=3)

    def act(h, x):
        return int(rng.choice(world.A, p=policy[h, int(x)]))

    returns = np.array(
        [np.sum([seen[1:] for seen in episode(env, act, episode=11)], axis=0) for _ in range(1500)]
    )
    error = returns.std(axis=0) / np.sqrt(len(returns))
    assert (np.abs(returns.mean(axis=0) - exact) < 4 * error).all()


def test_a_learner_in_the_environment_is_the_learner_in_the_world():
    """What the environment shows is what the world's tables say, step by step."""
    env = made("maze").unwrapped
    world = env.world
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.45))
    for m in range(M):
        today = world.at(m)
        state, info = env.reset(seed=0 if m == 0 else None)
        agent.begin_episode(info["threshold"])
        states, actions, rewards, utilities = [], [], [], []
        for h in range(world.H):
            states.append(int(state))
            actions.append(agent.act(h, int(state)))
            state, reward, _, _, info = env.step(actions[h])
            rewards.append(reward)
            utilities.append(info["utility"])
            at = (h, states[h], actions[h])
            assert reward == today.rewards[at]
            assert info["utility"][0] == today.utilities[0][at]
            if h + 1 < world.H:
                assert today.dense_transitions()[(*at, int(state))] > 0
        agent.end_episode(sd.Trajectory(states, actions, rewards, np.transpose(utilities)))
    assert agent.episode == M


def test_after_the_last_episode_the_world_stands_still():
    env = made("random").unwrapped
    env.reset(options={"episode": M - 1})
    _, info = env.reset()
    assert info["episode"] == M - 1


def test_bad_input_gets_a_sentence():
    env = made("maze").unwrapped
    with refused(RuntimeError, "step was called before reset"):
        env.step(0)
    env.reset()
    with refused(ValueError, "action must be"):
        env.step(4)
    with refused(ValueError, f"episode must be an integer in [0, {M - 1}]; got {M}"):
        env.reset(options={"episode": M})
    with refused(ValueError, "options must be {'episode': m}; got speed"):
        env.reset(options={"speed": 2})
    with refused(ValueError, "option of maze must be one of"):
        make_environment("maze", colour=3)
    with refused(TypeError, "world must be"):
        DriftingEnv("maze")
    for make in (partial(make_environment, "maze"), partial(DriftingEnv, env.world)):
        with refused(ValueError, "render_mode must be None"):
            make(render_mode="human")
