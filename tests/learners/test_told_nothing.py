"""PROPD-PPO with knowledge=None: told nothing, settled, not the paper's, and saying so."""

import numpy as np
import pytest
from test_primal_dual import filters_of, two_arms

import naive_primal_dual
import safedrift as sd
from builders import columns_of, recorded_play, small_world
from safedrift.learners import Adaptive, Periodic, SlidingWindow
from safedrift.learners.propd_ppo.parameters import Parameters

SPEC = sd.ProblemSpec(H=3, S=5, A=3, initial=2)


def twin_of(world, agent, play):
    """The twin of the primal-dual family with the same constants."""
    hyper, settling = agent.hyperparameters, agent.parameters.settling
    whole = agent.forgetting.schedule(0, world.M)
    return naive_primal_dual.primal_dual(
        play=play, thresholds=world.thresholds, sizes=agent.sizes, initial=world.initial,
        schedule=lambda m: [column[m] for column in whole], policy="regularised", multiplier="pid",
        bonus=naive_primal_dual.bernstein_bonus(hyper.c, world.H, hyper.lam), lam=hyper.lam,
        utility=1.0, dual_signal={"optimistic": "policy", "plain": 0.0}[
            agent.parameters.dual.dual_signal], prompt=True, lagged=True, alpha=hyper.alpha,
        eta=0.0, xi=0.0, chi=hyper.chi, theta=0.0, tau=settling.tau, kappa=1.0, every=1,
        gains=(settling.proportional, hyper.eta, 0.0), smoothing=0.0, steps=0, margin=np.zeros(1),
        scale=np.ones(1), rounds=settling.rounds, filters=filters_of(world, agent.forgetting),
    )  # fmt: skip


@pytest.mark.parametrize("forgetting", [Adaptive(0.5), SlidingWindow(9), Periodic(8, 13)])
@pytest.mark.parametrize("changes", [
    {}, {"rounds": 2},
    {"rounds": 3, "dual_signal": "plain", "tau": 0.3, "proportional": 0.5, "chi": 2.0},
])  # fmt: skip
def test_agrees_with_the_twin(forgetting, changes):
    world = small_world(M=60, K=2, seed=3)
    agent = sd.PROPDPPO.for_problem(world, None, forgetting=forgetting, **changes)
    play, seen = recorded_play(world)
    multipliers = []
    for m, expected in enumerate(twin_of(world, agent, play)):
        policy = np.asarray(agent.begin_episode(world.thresholds[m]))
        np.testing.assert_allclose(policy, expected["policy"], rtol=0, atol=1e-10)
        agent.end_episode(sd.Trajectory(*seen[m]))
        for name, found in {"mu": agent.mu, "V": agent.estimates}.items():
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-10, err_msg=name)
        multipliers.append(agent.mu)
    assert np.ptp(multipliers) > 0.05


def test_contract():
    sd.check_learner(lambda world: sd.PROPDPPO.for_problem(world, None))
    sd.check_learner(lambda world: sd.learners.make("propd-ppo", world, knowledge=None))


@pytest.mark.parametrize("constraints", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_fast_path_and_loop_give_the_same_numbers(constraints):
    world = small_world(M=70, S=12, H=4, K=constraints, successors=4, drift="linear")
    agent = sd.PROPDPPO.for_problem(world, None, rounds=2)
    fast, slow = (columns_of(world, agent.fresh(4), slow=slow) for slow in (False, True))
    assert fast.keys() == slow.keys()
    for column in fast:
        np.testing.assert_array_equal(fast[column], slow[column], err_msg=column)


def test_the_same_with_and_without_a_last_episode():
    rng = np.random.default_rng(0)
    episodes = [sd.Trajectory(rng.integers(5, size=3), rng.integers(3, size=3), rng.random(3),
                              rng.random(3)) for _ in range(60)]  # fmt: skip
    ends = sd.ProblemSpec(H=3, S=5, A=3, initial=2, M=60)
    one, other = (sd.PROPDPPO.for_problem(spec, None) for spec in (ends, SPEC))
    for episode in episodes:
        for learner in (one, other):
            learner.begin_episode([1.0])
            learner.end_episode(episode)
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[name], err_msg=name)


def test_it_settles_at_the_threshold_where_the_paper_swings():
    """Two arms, b = 0.6: V_g is the share of arm 1, and the optimum has exactly 0.6."""
    world = two_arms(0.6, 3000)
    runs = [sd.simulate(world, sd.PROPDPPO.for_problem(world, told))
            for told in (sd.Slater(0.4), None)]  # fmt: skip
    swings, settled = (run.outcome.utility[-1000:, 0] for run in runs)
    assert np.ptp(swings) > 0.2
    assert np.abs(settled - 0.6).max() < 0.03


def test_everything_is_recorded_and_comes_back():
    world = small_world(M=40)
    agent = sd.PROPDPPO.for_problem(world, None, tau=0.1, proportional=2.0, rounds=4, eta=0.2)
    found = agent.settings()
    assert found["told"] == []
    assert found["knowledge"] == {"name": "none"}
    assert found["forgetting"] == {"kind": "Adaptive", "false_alarms": 1e-5}
    assert found["parameters"]["settling"] == {"tau": 0.1, "proportional": 2.0, "rounds": 4}
    assert found["parameters"]["source"] == "no theorem"
    again = Parameters.from_record(found["parameters"], agent.sizes)
    assert again.record() == found["parameters"]
    told = sd.PROPDPPO.for_problem(world, sd.Slater(0.3)).settings()
    assert "settling" not in told["parameters"]
    built = sd.learners.make("propd-ppo", world, knowledge=None, forgetting="sliding", window=9)
    assert built.forgetting == SlidingWindow(9)


def test_what_is_refused():
    world = small_world(M=20)
    make = sd.PROPDPPO.for_problem
    for options, sentence in [
        ({"mode": "printed"}, r"knowledge must be Slater\(...\) or LocalBudgets\(...\) in mode"),
        ({"W": 5}, "override must be one of 'alpha', 'tau'"),
        ({"dual_signal": "observed"}, "dual_signal must be 'optimistic' or 'plain' with"),
        ({"tau": 2.0}, "tau must be at most 1/alpha; got 2"),
        ({"rounds": -1}, r"rounds must be an integer in \[0, 1000\]; got -1"),
        ({"proportional": -1.0}, "proportional must be in"),
    ]:
        with pytest.raises(ValueError, match=f"^{sentence}"):
            make(world, None, **options)
    with pytest.raises(ValueError, match=r"^override must be one of"):
        make(world, sd.Slater(0.3), tau=0.1)
    with pytest.raises(ValueError, match=r"^knowledge must be .* with known features; got None"):
        make(world.as_linear_kernel(), None)
    with pytest.raises(ValueError, match=r"^gamma must be None with knowledge=None"):
        sd.learners.make("propd-ppo", world, knowledge=None, gamma=0.3)
    told = make(world, sd.Slater(0.3))
    with pytest.raises(ValueError, match=r"^knowledge must be None if and only if the parameters"):
        sd.PROPDPPO(told.sizes, told.initial, told.parameters, None)
    for forgetting in (None, Periodic(5, 5)):
        with pytest.raises(ValueError, match=r"^the learner's knowledge must be Slater"):
            sd.certify(world, make(world, None, forgetting=forgetting))
