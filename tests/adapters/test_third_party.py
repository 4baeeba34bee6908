"""Environments of other libraries in Gymnasium's form.

Safety-Gymnasium 1.0.0 pins Gymnasium 0.28.1 and cannot be installed beside safedrift, so `Recorded`
plays what it did in an environment of its own (Python 3.10): SafetyPointGoal1-v0, seed 0, the
action (1, 0.1) at every step, steps 0 to 2 and 34 to 36. NS-Gym is played itself where it is
installed, and from a recording of version 1.0.12 where it is not.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import safedrift as sd
from builders import environment_episode
from safedrift.adapters.third_party import from_ns_gym, six_tuple
from safedrift.problems.frozen_lake import dry_feet

# ---------------------------------------------------------------- Safety-Gymnasium

# Reward (np.float64) and cost (float); info repeats the cost by its source.
SAFETY = [
    (-0.0006111642925332728, 0.0), (-0.0017116276349720128, 0.0), (-0.0027655052214641263, 0.0),
    (-0.021940802592415487, 0.0), (-0.022243059625563832, 1.0), (-0.02253394473258652, 1.0),
]  # fmt: skip


class Recorded:
    """No Gymnasium environment of today: just an object with the methods of one."""

    observation_space = spaces.Box(-np.inf, np.inf, (60,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    spec = SimpleNamespace(id="SafetyPointGoal1-v0")
    render_mode = None

    def reset(self, *, seed=None, options=None):
        self.asked, self.steps, self.closed = seed, iter(SAFETY), False
        return np.zeros(60), {}

    def step(self, action):
        reward, cost = next(self.steps)
        info = {"cost_hazards": cost, "cost_sum": cost}
        return np.full(60, cost), np.float64(reward), cost, False, False, info

    def close(self):
        self.closed = True


def test_six_results_become_five_and_the_cost_is_in_info():
    held = Recorded()
    env = six_tuple(held)
    assert isinstance(env, gymnasium.Env)
    assert env.observation_space == held.observation_space
    state, info = env.reset(seed=9)
    assert (held.asked, state.shape, info) == (9, (60,), {})
    for reward, cost in SAFETY:
        state, got, terminated, truncated, info = env.step(np.array([1.0, 0.1]))
        assert got == reward
        assert (terminated, truncated) == (False, False)
        assert info == {"cost_hazards": cost, "cost_sum": cost, "cost": cost}
    env.close()
    assert held.closed


class Coarse(gymnasium.ObservationWrapper):
    """Whether a hazard is near; the way the guide shows it."""

    observation_space = spaces.Discrete(2)

    def observation(self, seen):
        return int(seen.max() > 0.5)


class Pushes(gymnasium.ActionWrapper):
    """Three pushes instead of a box of forces."""

    action_space = spaces.Discrete(3)

    def action(self, a):
        return np.array([[1.0, 0.1], [-1.0, 0.0], [0.0, 1.0]][a])


def test_a_discretised_box_is_a_world():
    env = Pushes(Coarse(six_tuple(Recorded())))
    world = sd.from_gymnasium(env, 6, threshold=3.0, episodes=3, reward_range=(-1, 1))
    assert (world.name, world.S, world.A) == ("SafetyPointGoal1-v0", 3, 3)
    states, _, values = environment_episode(world, 0, lambda h, x: 0)
    assert states.tolist() == [0, 0, 0, 0, 0, 1]
    assert values[1].tolist() == [1, 1, 1, 1, 0, 0]
    np.testing.assert_allclose(2 * values[0] - 1, [reward for reward, _ in SAFETY])


def test_five_results_are_not_six():
    env = six_tuple(gymnasium.make("FrozenLake-v1"))
    env.reset()
    with pytest.raises(ValueError, match="what step returns must be six things, the third of th"):
        env.step(0)


# ---------------------------------------------------------------- NS-Gym


@dataclass(frozen=True)
class Reward:
    """As in ns_gym.base."""

    reward: float
    env_change: dict
    delta_change: dict
    relative_time: int


def notice(state, change, delta, time):
    return {"state": state, "env_change": {"P": change}, "delta_change": {"P": delta},
            "relative_time": time}  # fmt: skip


class Drifting:
    """NSFrozenLakeWrapper of NS-Gym 1.0.12, change and delta notified: right, right, down, down."""

    observation_space = spaces.Dict({
        "state": spaces.Discrete(16),
        "env_change": spaces.Dict({"P": spaces.Discrete(2)}),
        "delta_change": spaces.Dict({"P": spaces.Box(-np.inf, np.inf, ())}),
        "relative_time": spaces.Box(0, np.inf, ()),
    })  # fmt: skip
    action_space = spaces.Discrete(4)
    spec = SimpleNamespace(id="FrozenLake-v1")

    def __init__(self, structured):
        self.structured = structured

    def reset(self, *, seed=None, options=None):
        self.steps = iter([(1, False), (2, False), (6, False), (7, True)])
        self.time = 0
        return notice(0, 0, 0, 0), {"prob": 1}

    def step(self, action):
        state, terminated = next(self.steps)
        self.time += 1
        change, delta = {"P": 1}, {"P": 0.07500000000000007}
        reward = Reward(0.0, change, delta, self.time) if self.structured else 0.0
        told = {"prob": 0.95, "Ground Truth Env Change": change}
        return notice(state, 1, delta["P"], self.time), reward, terminated, False, told


@pytest.mark.parametrize("structured", [False, True])
def test_the_state_alone_is_observed_and_notices_are_in_info(structured):
    env = from_ns_gym(Drifting(structured))
    assert env.observation_space == spaces.Discrete(16)
    state, info = env.reset(seed=0)
    assert state == 0
    assert info["relative_time"] == 0
    state, reward, terminated, truncated, info = env.step(2)
    assert (state, reward, terminated, truncated) == (1, 0.0, False, False)
    assert info["env_change"] == {"P": 1}
    assert info["delta_change"] == {"P": 0.07500000000000007}
    assert info["prob"] == 0.95
    world = sd.from_gymnasium(env, 6, dry_feet, 5.0, episodes=3)
    path = environment_episode(world, 0, lambda h, x: 2)
    assert path.states.tolist() == [0, 1, 2, 6, 16, 16]
    assert path.values[1].tolist() == [1, 1, 1, 0, 1, 1]


def test_another_observation_is_refused():
    with pytest.raises(ValueError, match="observation_space must be a Dict with 'state', as NS-G"):
        from_ns_gym(gymnasium.make("FrozenLake-v1"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scalar_reward", [True, False])
def test_a_lake_of_ns_gym_drifts_on_from_episode_to_episode(scalar_reward):
    pytest.importorskip("ns_gym")
    from ns_gym.schedulers import ContinuousScheduler
    from ns_gym.update_functions import DistributionDecrementUpdate
    from ns_gym.wrappers import NSFrozenLakeWrapper

    env = NSFrozenLakeWrapper(
        gymnasium.make("FrozenLake-v1", is_slippery=False),
        {"P": DistributionDecrementUpdate(ContinuousScheduler(), k=0.002)},
        initial_prob_dist=[1, 0, 0], scalar_reward=scalar_reward, persistent_params=True,
    )  # fmt: skip
    slips = []

    def utility(step):
        slips.append(1 - step.info["transition_prob"][0])
        return dry_feet(step)

    world = sd.from_gymnasium(from_ns_gym(env), 10, utility, 9.5, episodes=30)
    assert (world.S, world.A) == (17, 4)
    run = sd.simulate(world, sd.PROPDPPO.for_problem(world, sd.Slater(0.3)))
    assert np.isfinite(run.outcome.observed).all()
    assert 10 <= run.outcome.utility.max() <= 10
    assert (np.diff(slips) >= 0).all(), "the ice gets worse and no reset mends it"
    assert slips[-1] > slips[0] + 0.1
