"""Small worlds and comparisons shared by the tests of the learner."""

import numpy as np

import naive
import safedrift as sd
from safedrift.kernels import memory, simulation
from safedrift.kernels.memory import BERNSTEIN_BONUS
from safedrift.problems.random import DRIFTS

FEEDS = tuple(memory.FEEDS)
DRIFT_NAMES = tuple(DRIFTS)


def small_world(M=40, S=4, A=3, H=3, K=1, drift="abrupt", seed=0, successors=None, start=None):
    """A random drifting world; `start` replaces the fixed first state by a distribution."""
    world = sd.problems.make(
        "random", episodes=M, seed=seed, states=S, actions=A, horizon=H, constraints=K, drift=drift,
        gamma=0.01, successors=successors,
    )  # fmt: skip
    if start is None:
        return world
    scenarios = [
        sd.TabularCMDP(c.transitions, c.rewards, c.utilities, c.thresholds, start)
        for c in world.scenarios
    ]
    weights = dense_weights(world.transition_path, len(scenarios))
    return sd.DriftingCMDP(scenarios, weights, thresholds=world.thresholds)


def dense_weights(path, N):
    weights = np.zeros((path.scenario.shape[0], N))
    np.put_along_axis(weights, path.scenario.astype(int), path.weight, axis=1)
    return weights


def twin_of(agent, play, thresholds):
    """The NumPy twin with the same constants as `agent`."""
    s = agent.settings
    if s.bonus == BERNSTEIN_BONUS:
        bonus = naive.bernstein_bonus(s.c, agent.sizes.H, s.lam)
    elif s.shift > 0:
        bonus = naive.printed_bonus(s.root[0] / 2, s.lam)
    else:
        bonus = naive.repaired_bonus(s.root, s.tail, s.lam)
    return naive.propd_ppo(
        play=play, thresholds=thresholds, sizes=agent.sizes, initial=agent.initial, alpha=s.alpha,
        L=s.L, eta=s.eta, xi=s.xi, chi=s.chi, W=s.W, lam=s.lam, bonus=bonus, LV=s.LV,
        lagged=s.lagged, feed=FEEDS[s.feed],
    )  # fmt: skip


def assert_agrees_with_twin(world, agent, seed=0, noisy=False, tolerance=1e-10):
    """Drive learner and twin with the twin's trajectories; compare everything at every episode."""
    M, H, _, _, K = agent.sizes
    rng = np.random.default_rng(seed)
    dense = {}

    def at(m):
        version = world.distinct[1][m]
        if version not in dense:
            cmdp = world.at(m)
            dense[version] = (
                cmdp.dense_transitions(), cmdp.rewards, cmdp.utilities, cmdp.initial,
            )  # fmt: skip
        return dense[version]

    draw = naive.simulated_play(at, rng.random((M, H)), rng.random((M, H * (2 + K))), noisy)
    seen = []

    def play(m, pi):
        seen.append(draw(m, pi))
        return seen[-1]

    for m, expected in enumerate(twin_of(agent, play, world.thresholds)):
        policy = np.asarray(agent.begin_episode(world.thresholds[m]))
        np.testing.assert_allclose(policy, expected["policy"], rtol=0, atol=tolerance)
        agent.end_episode(*seen[m])
        found = agent.q()
        np.testing.assert_allclose(found[0], expected["Q_r"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(found[1:], expected["Q_g"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(agent.mu, expected["mu"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(agent.estimates[0], expected["V_r"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(agent.estimates[1:], expected["V_g"], rtol=0, atol=tolerance)
    assert agent.episode == M


def own_loop(world, agent, seed, noisy=False):
    """A user's own loop in a world that draws exactly as the simulation does.

    Yields (policy, mu, estimates, observed sums) of each episode.
    """
    from safedrift.experiments.simulate import seeds

    agent = agent.fresh(seeds(seed)["learner"])
    stream = np.random.default_rng(seeds(seed)["world"])
    arrays = world.arrays
    _, H, _, _, K = agent.sizes
    for m in range(world.M):
        policy = agent.begin_episode(world.thresholds[m])
        u = stream.random(simulation.world_uniforms_per_episode(H, K))
        values = np.zeros((1 + K, H))
        states, actions = [], []
        s = simulation.first_state.py_func(arrays, u[0])
        for h in range(H):
            states.append(int(s))
            actions.append(agent.act(h, int(s)))
            simulation.observe.py_func(
                arrays, m, h, s, actions[h], noisy, u, H + h * (1 + K), values
            )
            if h + 1 < H:
                s = simulation.next_state.py_func(arrays, m, h, s, actions[h], u[h + 1])
        agent.end_episode(states, actions, values[0], values[1:])
        yield policy, agent.mu, agent.estimates, values.sum(axis=1)
