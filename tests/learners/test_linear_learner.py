"""Algorithm 2: the compiled learner against its NumPy twins, against itself, against the truth."""

import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import naive
import safedrift as sd
from builders import (
    BUDGETS,
    DRIFT_NAMES,
    SIGNALS,
    assert_agrees_with_box_twin,
    assert_agrees_with_linear_twin,
    box_world,
    counted_caps,
    linear_world,
    own_loop,
    small_world,
)
from builders import build_linear as build
from safedrift.experiments.streams import seeds
from safedrift.learners.propd_ppo.engines import LinearEngine
from safedrift.learners.propd_ppo.parameters import MODES
from safedrift.models.stepping import split_uniforms, stepper_for, uniforms_per_episode

# ---------------------------------------------------------------- finite states


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("knowledge", ["slater", "local-budgets"])
@pytest.mark.parametrize("mode", MODES)
def test_agrees_with_twin_for_every_knowledge_mode_and_number_of_constraints(K, knowledge, mode):
    world = linear_world(K=K, drift="random_walk")
    assert_agrees_with_linear_twin(world, build(world, knowledge, mode, W=13, L=8))


@pytest.mark.parametrize("rewards", ["scenarios", "one-hot"])
@pytest.mark.parametrize("features", ["scenarios", "tabular"])
def test_agrees_with_twin_for_every_kind_of_features(features, rewards):
    world = linear_world(features, rewards, drift="linear")
    assert_agrees_with_linear_twin(world, build(world, "local-budgets", W=11, L=30))


@pytest.mark.parametrize("dual_signal", SIGNALS)
@pytest.mark.parametrize(("W", "L"), [(1, 1), (30, 30), (7, 3), (3, 7), (10, 10), (30, 4)])
def test_agrees_with_twin_for_every_dual_signal_and_restart_pattern(dual_signal, W, L):
    world = linear_world(K=2, H=4)
    assert_agrees_with_linear_twin(
        world, build(world, W=W, L=L, dual_signal=dual_signal, lagged=W > L)
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("knowledge", ["slater", "local-budgets"])
def test_agrees_with_twin_with_the_constants_of_each_mode_unchanged(knowledge, mode):
    world = linear_world(drift="linear")
    told = sd.Slater(0.4)
    if knowledge == "local-budgets":
        told = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    agent = sd.PROPDPPO.for_problem(world, told, mode=mode, budgets=BUDGETS)
    assert_agrees_with_linear_twin(world, agent)


def test_agrees_with_twin_under_noise_and_a_random_first_state():
    world = small_world(M=30, S=3, start=[0.5, 0.2, 0.3]).as_linear_kernel()
    assert_agrees_with_linear_twin(world, build(world, W=12, L=7), noisy=True)


def test_agrees_with_twin_on_sparse_successors_and_features_shared_by_all_steps():
    world = sd.problems.make("maze", episodes=30, size=4, horizon=5).as_linear_kernel()
    assert world.features.offsets.size == world.S * world.A + 1
    assert world.d1 == 1
    assert_agrees_with_linear_twin(world, build(world, W=16, L=9))


@pytest.mark.parametrize("lam", [1e-4, 1.0])
def test_agrees_with_twin_on_rank_deficient_data(lam):
    """One and the same trajectory for ever: of 18 directions the data show at most 3."""
    world = linear_world("tabular", "one-hot", S=3, A=2, H=3, drift="stationary")
    states, actions = np.array([0, 1, 2]), np.array([1, 0, 1])

    def draw(m, pi):
        return states, actions, np.full(3, 0.6), np.full((1, 3), 0.3)

    agent = build(world, W=30, L=10, lam=lam)
    assert_agrees_with_linear_twin(world, agent, draw=draw)
    assert np.linalg.matrix_rank(agent.memory.window.gram[0, 0] - lam * np.eye(world.d1)) <= 3


def test_agrees_with_twin_across_a_refresh_of_the_factors():
    world = linear_world(M=300, S=3, A=2, H=2, drift="linear")
    agent = build(world, W=300, L=60)
    assert_agrees_with_linear_twin(world, agent)
    assert 0 < agent.memory.window.residual[0] < 1e-12


@given(
    S=st.integers(1, 4), A=st.integers(1, 3), H=st.integers(1, 4), K=st.integers(1, 2),
    W=st.integers(1, 14), L=st.integers(1, 14), drift=st.sampled_from(DRIFT_NAMES),
    mode=st.sampled_from(MODES), knowledge=st.sampled_from(["slater", "local-budgets"]),
    rewards=st.sampled_from(["scenarios", "one-hot"]), dual_signal=st.sampled_from(SIGNALS),
    lagged=st.booleans(), lam=st.sampled_from([1e-3, 0.3, 2.0]), scale=st.sampled_from([0, 0.1, 1]),
    seed=st.integers(0, 2**16),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_agrees_with_twin_everywhere(
    S, A, H, K, W, L, drift, mode, knowledge, rewards, dual_signal, lagged, lam, scale, seed
):
    try:
        world = linear_world("scenarios", rewards, M=14, S=S, A=A, H=H, K=K, drift=drift, seed=seed)
    except ValueError:  # utilities so small that no threshold leaves a gap
        reject()
    agent = build(
        world,
        knowledge,
        mode,
        W=W,
        L=L,
        dual_signal=dual_signal,
        lagged=lagged,
        lam=lam,
        bonus_scale=scale,
    )
    assert_agrees_with_linear_twin(world, agent, seed=seed)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("rewards", ["scenarios", "one-hot"])
def test_own_loop_and_simulation_are_bit_identical(noisy, rewards, monkeypatch):
    world = linear_world("scenarios", rewards, M=40, K=2, drift="linear")
    agent = build(world, W=15, L=6, bonus_scale=0.3)
    run = sd.simulate(world, agent, seed=3, noisy=noisy)
    caps, end = [], LinearEngine.end

    def counted(*all_):
        caps.append(end(*all_))
        return caps[-1]

    monkeypatch.setattr(LinearEngine, "end", counted)
    for m, (policy, mu, estimates, observed) in enumerate(own_loop(world, agent, 3, noisy)):
        np.testing.assert_array_equal(run.trace["mu"][m], mu)
        assert run.trace["estimated_reward"][m] == estimates[0]
        np.testing.assert_array_equal(run.outcome.observed[m], observed)
        values = sd.evaluate(world.at(m), np.asarray(policy))
        np.testing.assert_allclose(run.outcome.reward[m], values[0], atol=1e-12)
        assert run.trace["at_cap"][m] == caps[m] / (world.H * (1 + world.K))
    assert 0 < np.mean(run.trace["at_cap"]) < 1


def test_measured_numbers_are_those_of_the_same_world_as_a_table():
    table = small_world(M=60, drift="linear")
    world = table.as_linear_kernel()
    run = sd.simulate(world, build(world, W=30, L=20))
    truth = sd.optima(table)
    np.testing.assert_allclose(run.truth.optimal_reward, truth.value, atol=1e-12)
    np.testing.assert_allclose(run.truth.gamma, truth.gamma, atol=1e-12)
    uniform = np.full((1, table.H, table.S, table.A), 1 / table.A)
    expected = sd.oracles.evaluate_episodes(table, np.arange(60), uniform)
    np.testing.assert_allclose(run.truth.baseline_reward, expected[:, 0], atol=1e-12)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_goes_on_exactly_like_the_original(how):
    world = linear_world(M=12)
    agent = build(world, W=8, L=5)
    rng = np.random.default_rng(0)

    def step(learner, m):
        learner.begin_episode(world.thresholds[m])
        states, actions = rng.integers(0, 4, 3), rng.integers(0, 3, 3)
        learner.end_episode(sd.Trajectory(states, actions, rng.random(3), rng.random(3)))

    for m in range(6):
        step(agent, m)
    other = how(agent)
    for m in range(6, 12):
        state = rng.bit_generator.state
        step(agent, m)
        rng.bit_generator.state = state
        step(other, m)
    np.testing.assert_array_equal(agent.q(), other.q())
    np.testing.assert_array_equal(agent.memory.policy.pi, other.memory.policy.pi)


def test_memory_does_not_grow_with_the_window():
    world = linear_world(M=40)
    agent = build(world, W=40, L=40)
    agent.fresh = lambda seed: agent  # the loop below plays this very learner
    before = {name: array.shape for name, array in agent.state().items()}
    for _ in own_loop(world, agent, 0):
        pass
    assert agent.episode == world.M
    assert {name: array.shape for name, array in agent.state().items()} == before


# ---------------------------------------------------------------- a box


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("K", "n", "rule"), [(1, 1, "gauss-legendre"), (2, 1, "uniform"),
                                              (3, 2, "gauss-legendre")])  # fmt: skip
def test_box_learner_agrees_with_twin(K, n, rule, mode):
    world = box_world(M=20, K=K, n=n, nodes=8 if n == 2 else 12, rule=rule)
    assert_agrees_with_box_twin(world, build(world, "local-budgets", mode, W=12, L=9))


@pytest.mark.parametrize("dual_signal", SIGNALS)
@pytest.mark.parametrize(("W", "L"), [(1, 1), (15, 15), (4, 7), (7, 4)])
def test_box_learner_agrees_with_twin_for_every_dual_signal_and_restart_pattern(dual_signal, W, L):
    world = box_world(M=15, H=3)
    assert_agrees_with_box_twin(world, build(world, W=W, L=L, dual_signal=dual_signal))


def test_policy_at_a_node_is_that_of_the_table():
    world = box_world(M=10)
    agent = build(world, W=10, L=10)
    for m in range(10):
        policy = agent.begin_episode(world.thresholds[m])
        table = np.asarray(policy)
        for h in range(world.H):
            at_nodes = agent.engine.policy_at(h, world.box.points)
            np.testing.assert_allclose(at_nodes, table[h], rtol=0, atol=1e-12)
        states = np.linspace(0.1, 0.9, world.H)
        actions, rewards = np.arange(world.H) % 3, np.full(world.H, 0.5)
        agent.end_episode(sd.Trajectory(states, actions, rewards, np.ones(world.H)))
    with pytest.raises(RuntimeError, match="an episode that is over"):
        policy[0, 0.5]


@pytest.mark.parametrize(
    ("noisy", "K", "n"), [(False, 1, 1), (True, 1, 1), (False, 2, 1), (True, 2, 2)]
)
def test_own_loop_and_simulation_on_a_box_are_bit_identical(noisy, K, n):
    world = box_world(M=25, K=K) if n == 1 else box_world(M=13, H=3, K=K, n=n, nodes=6)
    every = 1 if n == 1 else 6  # optima in the plane take long
    assert np.ptp(world.theta_r, axis=0).max() > 0.1
    agent = build(world, W=12, L=9, bonus_scale=0.3)
    run = sd.simulate(world, agent, seed=4, noisy=noisy, measure_every=every)
    learner = agent.fresh(seeds(4)["learner"])
    caps = counted_caps(learner)
    stream = np.random.default_rng(seeds(4)["world"])
    stepper, H = stepper_for(world), world.H
    for m in range(world.M):
        learner.begin_episode(world.thresholds[m])
        u = stream.random(1 + (H - 1) * (1 + n) + H * (1 + K))
        x = stepper.first(m, u[:1])
        states, actions, values = [], [], np.empty((1 + K, H))
        for h in range(H):
            states.append(x)
            actions.append(learner.act(h, x))
            phi = world.box.phi(x[None], np.array([[actions[h]]]))[0]
            theta = np.vstack((world.theta_r[m, h], world.theta_g[m, :, h]))
            values[:, h] = np.cumsum(theta * phi, axis=1)[:, -1]  # from first to last
            if h + 1 < H:
                x = stepper.next(m, h, x, actions[h], u[1 + (1 + n) * h :][: 1 + n])
        if noisy:
            noise = u[1 + (H - 1) * (1 + n) :].reshape(H, 1 + K).T
            values = (noise < values).astype(float)
        learner.end_episode(sd.Trajectory(states, actions, values[0], values[1:]))
        if m % every == 0:
            i = m // every
            np.testing.assert_array_equal(run.trace["mu"][i], learner.mu)
            assert run.trace["estimated_reward"][i] == learner.estimates[0]
            np.testing.assert_array_equal(run.trace["estimated_utility"][i], learner.estimates[1:])
            np.testing.assert_array_equal(run.outcome.observed[i], values.sum(axis=1))
            assert run.trace["at_cap"][i] == caps[m] / (H * (1 + K))
    assert run.trace["at_cap"].min() < run.trace["at_cap"].max()


def replayed(world, episodes, **overrides):
    """Exact values (M, 1+K) of the policies of a learner that is shown the given episodes."""
    agent = build(world, W=40, L=40, **overrides)
    policies = []
    for m, episode in enumerate(episodes):
        policies.append(np.asarray(agent.begin_episode(world.thresholds[m])))
        agent.end_episode(sd.Trajectory(*episode))
    at = np.arange(len(episodes))
    return sd.oracles.evaluate_episodes(world, at, np.stack(policies))


@pytest.mark.parametrize("rule", ["gauss-legendre", "uniform"])
def test_regret_and_violation_converge_as_nodes_double(rule):
    M, H = 40, 4
    rng = np.random.default_rng(0)
    episodes = [
        (rng.random((H, 1)), rng.integers(0, 3, H), rng.random(H), rng.random((1, H)))
        for _ in range(M)
    ]
    found = []
    for nodes in (8, 16, 32, 64, 128):
        world = box_world(M=M, H=H, nodes=nodes, rule=rule)
        values = replayed(world, episodes)
        regret = (sd.optima(world).value - values[:, 0]).sum()
        violation = (world.thresholds - values[:, 1:]).sum()
        found.append((regret, violation))
    change = np.abs(np.diff(found, axis=0)) / M
    assert (change[-1] < 2e-4).all()
    assert (change[-1] < change[0] / 8).all()


def measured_naively(world, m, policy):
    """(1 + K,) values of a policy (H, S, A) at the nodes, and the optimum from a linear program."""
    psi, phi = world.box.features_at(world.box.points)
    P = np.zeros((world.H, world.S, world.A, world.S))
    P[..., : psi.shape[2]] = np.einsum("xayd,hd->hxay", psi, world.theta[m])
    r, *g = (np.stack([phi @ at_step for at_step in theta])
             for theta in (world.theta_r[m], *world.theta_g[m]))  # fmt: skip
    values = [naive.policy_value(P, signal, world.initial, policy) for signal in (r, *g)]
    best = naive.occupancy_lp(P, r, np.stack(g), world.thresholds[m], world.initial)
    return np.array(values), -best.fun


def test_run_on_a_box_says_what_its_discretisation_costs():
    errors = []
    for nodes in (8, 24):
        world = box_world(M=40, H=3, K=2, nodes=nodes)
        agent = build(world, W=30, L=20)
        run = sd.simulate(world, agent)
        cost = run.manifest.discretisation
        assert cost["nodes"] == [nodes, 2 * nodes]
        assert len(cost["episodes"]) == 16
        assert len(set(np.diff(cost["episodes"]))) > 2, "not evenly spread: no season is missed"
        fine = sd.refined(world)
        policies = policies_at(world, agent, fine.box.points)
        change = []
        for m in cost["episodes"]:
            (reward, *utilities), best = measured_naively(fine, m, policies[m])
            change.append([
                best - run.truth.optimal_reward[m], reward - run.outcome.reward[m],
                (best - reward) - (run.truth.optimal_reward[m] - run.outcome.reward[m]),
                np.abs(utilities - run.outcome.utility[m]).max(),
            ])  # fmt: skip
        wanted = np.abs(change).max(axis=0)
        found = [cost[name] for name in ("optimal_reward", "reward", "regret", "utility")]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
        errors.append(found)
    assert (np.array(errors[1]) < np.array(errors[0]) / 4).all()
    assert run.summary()["discretisation"] == cost


def policies_at(world, agent, points):
    """Policies (M, H, P, A) at points (P, n) of the learner that `sd.simulate` plays."""
    learner = agent.fresh(seeds(0)["learner"])
    stream = np.random.default_rng(seeds(0)["world"])
    stepper = stepper_for(world)
    found = []
    for m in range(world.M):
        learner.begin_episode(world.thresholds[m])
        found.append([learner.engine.policy_at(h, points) for h in range(world.H)])
        draws = stream.random(uniforms_per_episode(world.H, world.K, stepper.next_draws))
        u = split_uniforms(draws, world.H, world.K, stepper.next_draws)
        x = world.box.points[-1]
        states, actions, values = [], [], []
        for h in range(world.H):
            states.append(x)
            actions.append(learner.act(h, x))
            values.append(stepper.signals(m, h, x, actions[h], u.signals[h]))
            if h + 1 < world.H:
                x = stepper.next(m, h, x, actions[h], u.next[h])
        values = np.array(values).T
        learner.end_episode(sd.Trajectory(states, actions, values[0], values[1:]))
    return np.array(found)


def test_finite_worlds_have_no_discretisation():
    world = linear_world(M=10)
    assert sd.simulate(world, build(world)).manifest.discretisation is None


# ---------------------------------------------------------------- what a user is told


def test_vacuous_constants_of_theorem_1_are_told_with_their_numbers():
    world = linear_world(M=200, drift="linear")
    agent = sd.PROPDPPO.for_problem(
        world, sd.local_budgets(world, "l2"), mode="printed", budgets=sd.budgets(world)
    )
    assert agent.parameters.source == "Theorem 1"
    notes = " ".join(sd.simulate(world, agent).notes())
    assert "W = 0.471 (unrounded)" in notes
    assert f"beta = {agent.hyperparameters.beta[0]:.3g}" in notes
    wide = build(world, "local-budgets", "printed", W=100, bonus_scale=1.0, lam=1.0)
    notes = " ".join(sd.simulate(world, wide).notes())
    assert f"LV = {wide.hyperparameters.LV.max():.3g}" in notes


@pytest.mark.parametrize(
    ("state", "message"),
    [(0.5, None), (1.5, "state must be in"), ([0.1, 0.2], "state must be an array of shape (1,)"),
     (np.nan, "state must be finite"), ("x", "state must be")],
)  # fmt: skip
def test_states_on_a_box_are_checked(state, message):
    agent = build(box_world(M=5))
    agent.begin_episode([1.0])
    if message is None:
        assert agent.act(0, state) in (0, 1, 2)
    else:
        with pytest.raises((ValueError, TypeError), match="^" + re.escape(message)):
            agent.act(0, state)


def test_world_and_learner_must_belong_together():
    world = linear_world(M=10)
    other = linear_world(M=10, seed=1)
    with pytest.raises(ValueError, match="made for this world's features"):
        sd.simulate(other, build(world))


def test_a_copied_learner_still_belongs_to_the_world():
    world = linear_world(M=10)
    agent = build(world, W=5, L=5)
    expected = sd.simulate(world, agent).outcome.reward
    other = pickle.loads(pickle.dumps((world, agent)))
    np.testing.assert_array_equal(sd.simulate(world, other[1]).outcome.reward, expected)
    np.testing.assert_array_equal(sd.simulate(other[0], agent).outcome.reward, expected)


def test_a_box_made_of_densities_can_be_pickled_in_mid_run():
    world = sd.problems.make("thermostat", episodes=6)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.8), L=6, W=6)
    rng = np.random.default_rng(0)

    def step(learner, m, episode):
        learner.begin_episode(world.thresholds[m])
        learner.end_episode(sd.Trajectory(*episode))

    episodes = [
        (rng.random((8, 1)), rng.integers(0, 3, 8), rng.random(8), rng.random(8)) for _ in range(6)
    ]
    for m in range(3):
        step(agent, m, episodes[m])
    other = pickle.loads(pickle.dumps(agent))
    for m in range(3, 6):
        step(agent, m, episodes[m])
        step(other, m, episodes[m])
    np.testing.assert_array_equal(agent.q(), other.q())
    np.testing.assert_array_equal(agent.memory.policy.pi, other.memory.policy.pi)


def test_a_policy_that_is_always_uniform_is_told():
    world = linear_world(M=30)
    assert any("L is 1" in note for note in sd.simulate(world, build(world, L=1)).notes())
    huge = sd.simulate(world, build(world, mode="practical", lam=1e12, L=30, W=30))
    assert any("nothing was learnt" in note for note in huge.notes())
    fine = sd.simulate(world, build(world, mode="practical", L=30, W=30))
    assert not any("nothing was learnt" in note for note in fine.notes())


def test_signals_off_the_nodes_must_lie_in_the_unit_interval():
    world = box_world(M=5)
    plain = world.box.phi

    def phi(x, a):  # too large between the nodes only
        at_node = np.isin(x[:, :1], world.box.points) | np.isin(x[:, :1], fine)
        return np.where(at_node, plain(x, a), 2.0)

    fine = sd.refined(world).box.points
    broken = sd.linear_kernel_on_box(
        0, 1, 3, world.box.psi, phi, world.theta, world.theta_r, world.theta_g, world.thresholds,
        0.3, sample=world.box.sample, nodes=12, tolerance=0.05,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"^rewards, utilities and the norm of phi must be in"):
        sd.simulate(broken, build(broken))
