"""The compiled learner against its NumPy twin, against itself, and at the edges of arithmetic."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safedrift as sd
from builders import DRIFT_NAMES, SIGNALS, assert_agrees_with_twin, own_loop, small_world
from safedrift.kernels.tabular import propd_ppo as learner
from safedrift.kernels.tabular.memory import make_memory, with_room
from safedrift.learners.propd_ppo.parameters import MODES

BUDGETS = sd.Budgets(P=2.0, r=1.0, g=1.0, star=3.0)


def build(world, knowledge, mode, **overrides):
    if knowledge == "slater":
        told = sd.Slater(0.4)
    else:
        told = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    return sd.PROPDPPO.for_problem(world, told, mode=mode, budgets=BUDGETS, rho=0.4, **overrides)


# Large steps and small bonuses make every quantity move within few episodes.
LIVELY = {"alpha": 0.7, "eta": 0.4, "bonus_scale": 0.05, "lam": 0.3}


@pytest.mark.parametrize("drift", DRIFT_NAMES)
@pytest.mark.parametrize("knowledge", ["slater", "local-budgets"])
@pytest.mark.parametrize("mode", MODES)
def test_agrees_with_twin_in_every_drift(drift, knowledge, mode):
    world = small_world(M=60, S=4, A=3, H=3, K=2, drift=drift, seed=3)
    assert_agrees_with_twin(world, build(world, knowledge, mode, L=13, W=17, **LIVELY))


@pytest.mark.parametrize("dual_signal", SIGNALS)
@pytest.mark.parametrize(("L", "W"), [(1, 1), (7, 100), (100, 7), (100, 100), (5, 20), (20, 5)])
def test_agrees_with_twin_for_every_dual_signal_and_restart_pattern(dual_signal, L, W):
    world = small_world(M=100, S=6, A=2, H=4, drift="random_walk", seed=1)
    agent = build(
        world, "slater", "practical", L=L, W=W, alpha=0.5, eta=0.3, dual_signal=dual_signal
    )
    assert_agrees_with_twin(world, agent)


@pytest.mark.parametrize("mode", MODES)
def test_agrees_with_twin_with_the_constants_of_each_mode_unchanged(mode):
    world = small_world(M=120, S=3, A=2, H=3, seed=5)
    assert_agrees_with_twin(world, build(world, "slater", mode))
    assert_agrees_with_twin(world, build(world, "local-budgets", mode))


def test_agrees_with_twin_on_many_states_with_few_visited():
    world = small_world(M=50, S=60, A=4, H=5, successors=3, seed=2)
    agent = build(world, "slater", "repaired", L=20, W=30, **LIVELY)
    assert_agrees_with_twin(world, agent)


def test_agrees_with_twin_under_noise_and_a_random_first_state():
    start = np.array([0.5, 0.0, 0.3, 0.2])
    world = small_world(M=80, S=4, H=3, seed=4, start=start)
    agent = build(world, "slater", "practical", L=30, W=40, alpha=0.5, eta=0.3, dual_signal="plain")
    assert_agrees_with_twin(world, agent, noisy=True)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(*(st.integers(1, top) for top in (40, 4, 5, 4, 3))),
    drift=st.sampled_from(DRIFT_NAMES),
    knowledge=st.sampled_from(["slater", "local-budgets"]),
    mode=st.sampled_from(MODES),
    dual_signal=st.sampled_from(SIGNALS),
    restarts=st.tuples(st.integers(1, 45), st.integers(1, 45)),
    steps=st.tuples(st.floats(0, 2), st.floats(0, 1), st.floats(0.01, 2), st.floats(0, 1)),
    noisy=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_agrees_with_twin_everywhere(
    sizes, drift, knowledge, mode, dual_signal, restarts, steps, noisy, seed
):
    M, H, S, A, K = sizes
    world = small_world(M=M, H=H, S=S, A=A, K=K, drift=drift, seed=seed)
    alpha, eta, lam, scale = steps
    agent = build(
        world, knowledge, mode, L=restarts[0], W=restarts[1], alpha=alpha, eta=eta, lam=lam,
        bonus_scale=scale, dual_signal=dual_signal,
    )  # fmt: skip
    assert_agrees_with_twin(world, agent, seed, noisy)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("dual_signal", SIGNALS)
def test_own_loop_and_simulation_are_bit_identical(noisy, dual_signal):
    world = small_world(M=200, S=5, A=3, H=4, K=2, drift="linear", seed=7)
    agent = build(
        world, "slater", "practical", L=60, W=90, alpha=0.4, eta=0.3, dual_signal=dual_signal
    )
    run = sd.simulate(world, agent, seed=11, noisy=noisy)
    for m, (policy, mu, estimates, observed) in enumerate(own_loop(world, agent, 11, noisy)):
        assert mu.tolist() == run.trace["mu"][m].tolist()
        assert estimates[0] == run.trace["estimated_reward"][m]
        assert estimates[1:].tolist() == run.trace["estimated_utility"][m].tolist()
        assert observed.tolist() == run.outcome.observed[m].tolist()
        values = sd.evaluate(world.at(m), np.asarray(policy))
        np.testing.assert_allclose(values[0], run.outcome.reward[m], atol=1e-12)
        np.testing.assert_allclose(values[1:], run.outcome.utility[m], atol=1e-12)


def test_policy_view_agrees_with_its_dense_form():
    world = small_world(M=30, S=5)
    agent = build(world, "slater", "practical", alpha=1.0, L=30, W=10)
    *_, (policy, _, _, _) = own_loop(world, agent, 0)
    dense = np.asarray(policy)
    assert not np.allclose(dense, 1 / 3)
    for h in range(3):
        for s in range(5):
            np.testing.assert_array_equal(policy[h, s], dense[h, s])


# ---------------------------------------------------------------- the printed constants (E9)


def test_printed_constants_leave_the_policy_uniform_and_the_user_is_told():
    world = sd.problems.make("random", episodes=100_000, states=5, actions=3, horizon=5)
    agent = sd.PROPDPPO.for_problem(
        world, sd.Slater(0.5), mode="printed", budgets=sd.budgets(world)
    )
    run = sd.simulate(world, agent, measure_every=500)
    np.testing.assert_allclose(run.outcome.reward, run.truth.baseline_reward, rtol=0, atol=1e-12)
    # V_g^0 = 0 is printed, so the first dual step is spurious (E5); then μ returns to 0 and stays.
    first = agent.hyperparameters.eta * world.thresholds[0]
    np.testing.assert_allclose(run.trace["mu"][0], first, rtol=1e-12)
    assert (run.trace["mu"][1:] == 0).all()
    assert (run.trace["at_cap"] == 1).all()
    note = " ".join(run.summary()["notes"])
    assert "bonus is vacuous" in note
    assert "practical" in note


def test_practical_constants_learn_in_the_same_world_and_say_nothing_of_a_vacuous_bonus():
    world = sd.problems.make("random", episodes=20_000, states=5, actions=3, horizon=5)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.5))
    run = sd.simulate(world, agent, measure_every=50)
    last = slice(-20, None)
    assert run.regret[last].mean() < 0.25 * run.baseline_regret[last].mean()
    assert not any("vacuous" in note for note in run.notes())


# ---------------------------------------------------------------- the edges of arithmetic


def bandit(A, mu, alpha):
    """A learner with one step, one state in its window, and a multiplier set by hand."""
    world = small_world(M=10, S=1, A=A, H=1)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4), L=10**9, W=10**9, alpha=alpha)
    agent.begin_episode(world.thresholds[0])
    agent.end_episode(sd.Trajectory([0], [0], [0.5], [0.5]))
    agent.memory.dual.mu[0] = mu
    return agent


def improve(agent, q_r, q_g):
    agent.memory.values.q[0, 0, :, 0] = q_r
    agent.memory.values.q[1, 0, :, 0] = q_g
    learner.begin(False, False, 1.0, False, agent.hyperparameters, agent.memory)
    return agent.memory.policy.pi[0, :, 0].copy()


def test_log_policy_keeps_what_the_exact_formula_keeps_at_mu_1e6():
    rng = np.random.default_rng(0)
    alpha, mu = 0.125, 1e6
    agent = bandit(2, mu, alpha)
    up = rng.random((50_000, 2))
    exact, naive_sum, high = Fraction(0), np.zeros(2), 0.0
    for q in [*up, *up[::-1, ::-1]]:  # climbs to about 1e9 and comes all the way back
        pi = improve(agent, [0.0, 0.0], q)
        exact += Fraction(alpha) * Fraction(mu) * (Fraction(q[1]) - Fraction(q[0]))
        high = max(high, abs(float(exact)))
        naive_sum = naive_sum + alpha * mu * q
    assert high > 1e6
    assert exact == 0
    # The last step is still the exact formula: equal logits, equal probabilities.
    np.testing.assert_allclose(pi, [0.5, 0.5], rtol=1e-6)
    assert abs(naive_sum[1] - naive_sum[0]) > 1e-6  # a plain running sum has lost it


def test_an_underflowed_action_comes_back():
    agent = bandit(3, 1e6, 1.0)
    for _ in range(1000):
        pi = improve(agent, [0.0, 0.0, 0.0], [1.0, 0.0, 0.5])
    assert pi.tolist() == [1.0, 0.0, 0.0]
    for _ in range(1000):
        pi = improve(agent, [0.0, 0.0, 0.0], [0.0, 1.0, 0.5])
    np.testing.assert_allclose(pi, 1 / 3, rtol=1e-12)
    assert np.isfinite(agent.memory.policy.logit).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1000, 0), min_size=1, max_size=40))
def test_exponentials_to_the_last_digit(numbers):
    memory = with_room(make_memory(1, 64, 1, 1, 2, np.eye(64)[0]), 64)
    memory.policy.pi[0, 0, : len(numbers)] = numbers
    learner.exponentials.py_func(0, 0, len(numbers), memory)
    found = memory.policy.pi[0, 0, : len(numbers)]
    normal = np.array(numbers) > -708
    np.testing.assert_allclose(found[normal], np.exp(numbers)[normal], rtol=5e-16)
    assert (found[~normal] < 1e-300).all()


@pytest.mark.slow
def test_a_million_episodes_stay_finite():
    world = sd.problems.make("random", episodes=1_000_000, states=2, actions=2, horizon=2)
    agent = sd.PROPDPPO.for_problem(world, sd.LocalBudgets(), alpha=5.0, eta=1.0, xi=0.0)
    run = sd.simulate(world, agent, measure_every=10_000)
    for name, values in run.columns().items():
        assert np.isfinite(values).all(), name
    assert (run.outcome.reward >= 0).all()
    assert (run.outcome.utility <= 2).all()


# ---------------------------------------------------------------- a user's own loop


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (dict(states=[0, 1]), ValueError, r"states must be of shape \(H,\) = \(3,\).*ends early"),
        (dict(states=[0, 1, 9]), ValueError, r"states must be in \[0, 4\); got 9 at index 2"),
        (dict(states=[0, 1, -1]), ValueError, r"states must be in \[0, 4\); got -1 at index 2"),
        (dict(states=[0.0, 1.0, 2.0]), TypeError, "states must be integers; got float64"),
        (dict(actions=[0, 3, 0]), ValueError, r"actions must be in \[0, 3\); got 3 at index 1"),
        (
            dict(rewards=[0.1, np.nan, 0.2]),
            ValueError,
            "rewards must be finite; got nan at index 1",
        ),
        (dict(utilities=[[0.1, 0.2]]), ValueError, "utilities must be an array of shape"),
        (
            dict(rewards=[0.1, 7.0, 0.2]),
            ValueError,
            r"rewards must be in \[0, 1\]; got 7.0 at index 1",
        ),
        (dict(rewards="abc"), TypeError, "rewards must be an array of numbers; got str"),
    ],
)
def test_end_episode_refuses_what_is_not_an_episode(call, error, sentence):
    world = small_world()
    agent = build(world, "slater", "practical")
    agent.begin_episode(world.thresholds[0])
    good = dict(states=[0, 1, 2], actions=[0, 1, 2], rewards=[0.1] * 3, utilities=[[0.2] * 3])
    with pytest.raises(error, match=sentence):
        agent.end_episode(sd.Trajectory(**{**good, **call}))
    agent.end_episode(sd.Trajectory(**good))  # nothing was lost by the refusal
    assert agent.episode == 1


def test_calls_out_of_order_are_refused():
    world = small_world(M=1)
    agent = build(world, "slater", "practical")
    with pytest.raises(RuntimeError, match="before begin_episode"):
        agent.act(0, 0)
    with pytest.raises(RuntimeError, match="before begin_episode"):
        agent.end_episode(sd.Trajectory([0] * 3, [0] * 3, [0] * 3, [[0] * 3]))
    agent.begin_episode(world.thresholds[0])
    with pytest.raises(RuntimeError, match="called twice"):
        agent.begin_episode(world.thresholds[0])
    with pytest.raises(ValueError, match=r"state must be an integer in \[0, 3\]; got 4"):
        agent.act(0, 4)
    agent.end_episode(sd.Trajectory([0] * 3, [0] * 3, [0] * 3, [[0] * 3]))
    with pytest.raises(RuntimeError, match="M = 1 episodes"):
        agent.begin_episode(world.thresholds[0])


@pytest.mark.parametrize("bad", [[0.0], [3.5], [np.nan], [1.0, 1.0]])
def test_begin_episode_refuses_bad_thresholds(bad):
    world = small_world()
    with pytest.raises(ValueError, match="thresholds must be"):
        build(world, "slater", "practical").begin_episode(bad)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_a_copied_learner_goes_on_as_the_original(duplicate):
    world = small_world(M=80, S=5, A=3, H=4)
    original = build(world, "slater", "practical", L=30, W=45, alpha=0.5, eta=0.3)
    rng = np.random.default_rng(0)
    twins = [original]
    for m in range(world.M):
        if m == 37:
            twins.append(duplicate(original))
        states, actions = rng.integers(0, 5, 4), rng.integers(0, 3, 4)
        rewards, utilities = rng.random(4), rng.random((1, 4))
        for agent in twins:
            agent.begin_episode(world.thresholds[m])
            agent.end_episode(sd.Trajectory(states, actions, rewards, utilities))
    one, other = (agent.state() for agent in twins)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(0, 1000))
def test_room_made_in_any_portions_changes_nothing(portions, seed):
    world = small_world(M=60, S=50, A=2, H=3, successors=4)
    agents = [build(world, "slater", "repaired", L=25, W=40, **LIVELY) for _ in range(2)]
    agents[0].reserve(world.M)
    rng = np.random.default_rng(seed)
    for m in range(world.M):
        agents[1].reserve(portions[m % len(portions)])
        states, actions = rng.integers(0, 50, 3), rng.integers(0, 2, 3)
        rewards, utilities = rng.random(3), rng.random((1, 3))
        policies = []
        for agent in agents:
            policies.append(np.asarray(agent.begin_episode(world.thresholds[m])))
            agent.end_episode(sd.Trajectory(states, actions, rewards, utilities))
        np.testing.assert_array_equal(*policies)
        np.testing.assert_array_equal(agents[0].q(), agents[1].q())


def test_policy_refuses_what_is_not_there():
    world = small_world()
    policy = build(world, "slater", "practical").begin_episode(world.thresholds[0])
    for key, error in (((0, 99), ValueError), ((0, "a"), TypeError), (0, TypeError)):
        with pytest.raises(error, match=r"must be an integer|needs a step and a state"):
            policy[key]


def test_a_restart_forgets_every_digit_of_the_log_policy():
    agent = bandit(3, 1e6, 1.0)
    agent.memory.policy.logit[:] = 1e12
    agent.memory.policy.logit_low[:] = 1e-5
    learner.begin(False, False, 1.0, True, agent.hyperparameters, agent.memory)
    agent.memory.values.q[:] = 0.5
    learner.begin(False, False, 1.0, False, agent.hyperparameters, agent.memory)
    assert agent.memory.policy.pi[0, :, 0].tolist() == [1 / 3] * 3
    assert not agent.memory.policy.logit[0, :, 0].any()
