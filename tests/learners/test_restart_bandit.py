"""A bandit over restart lengths: EXP3.P, blocks, and what it finds where the answer is known."""

import numpy as np
import pytest

import naive_bandit
import safedrift as sd
from builders import columns_of, small_world
from safedrift.learners.checked import own_generator
from safedrift.learners.exponential_weights import Bandit, block_payoff, exp3p_rates
from safedrift.learners.restart_bandit import PLAYERS, over_restart_lengths


def test_exp3p_is_the_twins():
    rng = np.random.default_rng(0)
    payoffs = rng.random((60, 4)) * [0.2, 0.9, 0.5, 1.0]
    bandit = Bandit(4, exp3p_rates(4, 60), np.random.default_rng(1))
    rows = iter(payoffs)
    twin = naive_bandit.exp3p(
        4, 60, np.random.default_rng(1).random(60), lambda arm: next(rows)[arm]
    )
    arms = set()
    for (arm, p), row in zip(twin, payoffs, strict=True):
        np.testing.assert_allclose(bandit.probabilities(), p, rtol=1e-12)
        assert bandit.draw() == arm
        bandit.learn(arm, row[arm])
        arms.add(arm)
    assert len(arms) > 1
    assert len({round(x, 3) for x in bandit.probabilities()}) > 1


def test_payoffs_are_the_twins():
    rng = np.random.default_rng(2)
    H = 4
    for penalty in (0.0, 1.0, 3.0):
        episodes = [(H * rng.random(), H * rng.random(2), H * rng.random(2)) for _ in range(5)]
        surplus = sum(np.array(g) - b for _, g, b in episodes)
        found = block_payoff(sum(r for r, _, _ in episodes), surplus, 5, H, penalty)
        assert found == pytest.approx(naive_bandit.payoff(H, episodes, penalty))
        assert 0 <= found <= 1
    assert block_payoff(0.0, [-20.0], 5, H, 1.0) == 0.0
    assert block_payoff(20.0, [3.0], 5, H, 1.0) == 1.0


@pytest.mark.parametrize("slow", [False, True])
def test_blocks_are_played_by_new_learners(slow):
    """Every block anew, with the length that the twin draws and the payoffs that it had."""
    world = small_world(M=75, S=3, K=2, drift="linear", seed=2)
    learner = sd.learners.make("restart-bandit", world, block=10, rounds=8, seed=3)
    found = columns_of(world, learner.fresh(4), slow=slow)
    lengths = found["restart_length"].reshape(-1)
    blocks = [range(m, min(m + 10, 75)) for m in range(0, 75, 10)]
    uniforms = own_generator(4, 0).random(len(blocks))
    at = iter(blocks)
    observed = found["returns"]

    def play(arm):
        seen = [(observed[m][0], observed[m][1:], world.thresholds[m]) for m in next(at)]
        return naive_bandit.payoff(world.H, seen, 1.0)

    twin = naive_bandit.exp3p(4, 8, uniforms, play)
    for block, (arm, _) in zip(blocks, twin, strict=True):
        assert set(lengths[block]) == {2**arm}
        restarts = found["policy_restart"].reshape(-1)[block]
        np.testing.assert_array_equal(np.flatnonzero(restarts), np.arange(0, len(block), 2**arm))
    assert len(set(lengths)) > 1


class Constant:
    """Plays one action for ever."""

    def __init__(self, problem, action):
        self.name, self.sizes = "constant", sd.Sizes(*problem[:5])
        self.action = action

    def fresh(self, seed=0):
        return self

    def begin_episode(self, thresholds):
        policy = np.zeros(self.sizes[1:4])
        policy[..., self.action] = 1.0
        return policy

    def act(self, h, state, u=None):
        return self.action

    def end_episode(self, trajectory):
        pass

    def trace(self):
        return {}

    def settings(self):
        return {}

    def state(self):
        return {}

    def restore(self, state):
        pass


def test_the_length_that_pays_is_found():
    """Only learners that restart every 4 episodes take the action with reward and utility 1."""
    signal = np.zeros((1, 1, 2))
    signal[..., 1] = 1.0
    one = sd.TabularCMDP(np.ones((1, 1, 2, 1)), signal, signal[None], [0.5], [1.0])
    world = sd.DriftingCMDP([one], np.ones((4000, 1)))
    learner = over_restart_lengths(
        world, lambda problem, L: Constant(problem, int(L == 4)), block=4
    )
    run = sd.simulate(world, learner, seed=0)
    lengths = run.trace["restart_length"].reshape(-1)[-1000:]
    # Weights stand still where 1 + β/p = x + β/p' for the others' payoff x = 1/4: p' = 0.14.
    assert np.mean(lengths == 4) > 0.6
    assert set(lengths) == {1, 2, 4}


@pytest.mark.parametrize(
    "name",
    [x if x == "posterior-sampling" else pytest.param(x, marks=pytest.mark.slow) for x in PLAYERS],
)
def test_contract(name):
    """Also of a learner that draws random numbers of its own, in every block others."""
    sd.check_learner(lambda world: sd.learners.make("restart-bandit", world, learner=name))


def test_lengths_are_powers_of_two_times_the_shortest():
    world = small_world(M=90)
    lengths = {
        (None, 1): [1, 2, 4, 8],
        (None, 3): [3, 6],
        (16, 1): [1, 2, 4, 8, 16],
        (16, 5): [5, 10],
        (16, 16): [16],
    }
    for (block, shortest), wanted in lengths.items():
        learner = sd.learners.make("restart-bandit", world, block=block, shortest=shortest)
        assert learner.settings()["lengths"] == wanted
        assert learner.settings()["block"] == (block or 10)


def test_what_is_refused():
    world = small_world(M=20)
    for options, sentence in (
        ({"learner": "uniform"}, "learner must be one of"),
        ({"block": 21}, r"block must be an integer in \[1, 20\]; got 21"),
        ({"block": 5, "shortest": 6}, r"shortest must be an integer in \[1, 5\]; got 6"),
        ({"penalty": -1.0}, "penalty must be finite and >= 0; got -1.0"),
        ({"rounds": 0}, "rounds must be an integer >= 1; got 0"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            sd.learners.make("restart-bandit", world, **options)
    endless = sd.ProblemSpec(H=2, S=2, A=2, initial=0)
    for options in ({}, {"block": 5}):
        with pytest.raises(ValueError, match=r"^M must be"):
            sd.learners.make("restart-bandit", endless, **options)
