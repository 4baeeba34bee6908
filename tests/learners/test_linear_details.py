"""Algorithm 2 in corners where most runs never look: small LV, restarts, singular data, replay."""

from fractions import Fraction

import numpy as np
import pytest

import safedrift as sd
from builders import (
    assert_agrees_with_box_twin,
    assert_agrees_with_linear_twin,
    box_world,
    build_linear,
    dense_features,
    linear_world,
    own_loop,
    small_world,
    with_evaluation,
)
from safedrift.learners.propd_ppo import box_engine

# ---------------------------------------------------------------- local variation terms


def distinct(shape, low, high, seed):
    """Numbers from low to high, all different, in random order."""
    size = int(np.prod(shape))
    return np.random.default_rng(seed).permutation(np.linspace(low, high, size)).reshape(shape)


def with_distinct_terms(agent, LV=True, spreads=True):
    """The learner with LV and spreads that differ in every block, step and constraint."""
    (blocks, K, H), changes = agent.hyperparameters.LV.shape, {}
    if LV:
        changes["LV"] = distinct((blocks, K, H), 0.01, 0.3, 0)
    if spreads:
        changes["window_drift_P"] = distinct((blocks, H), 0.01, 0.1, 1)
        changes["window_drift_g"] = distinct((blocks, K, H), 0.01, 0.1, 2)
    return with_evaluation(agent, **changes)


@pytest.mark.parametrize(("LV", "spreads"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("kind", ["finite", "box"])
def test_agrees_with_twin_where_local_variation_does_not_saturate(kind, LV, spreads):
    world = linear_world(M=24, K=2, H=3) if kind == "finite" else box_world(M=24, K=2, H=3)
    agree = assert_agrees_with_linear_twin if kind == "finite" else assert_agrees_with_box_twin
    agent = with_distinct_terms(build_linear(world, W=7, L=9, bonus_scale=0.02), LV, spreads)
    assert agent.hyperparameters.LV.shape == (4, 2, 3)
    agree(world, agent)
    caps = np.arange(3, 0, -1.0)[:, None, None]
    assert (agent.q() < caps).all()


def test_box_learner_with_a_plain_channel_per_constraint_agrees_with_twin():
    world = box_world(M=15, H=3, K=2)
    agent = with_distinct_terms(build_linear(world, W=7, L=5, dual_signal="plain"))
    assert_agrees_with_box_twin(world, agent)


# ---------------------------------------------------------------- estimates at their cap


@pytest.mark.parametrize("kind", ["finite", "box"])
def test_share_of_estimates_at_their_cap_is_that_of_the_twin(kind):
    """The twins count too; here some estimates are at their cap and some are not."""
    world = linear_world(M=20, K=2) if kind == "finite" else box_world(M=20, K=2, H=3)
    agent = build_linear(world, W=20, L=9, bonus_scale=0.4)
    agree = assert_agrees_with_linear_twin if kind == "finite" else assert_agrees_with_box_twin
    agree(world, agent)
    caps = np.arange(3, 0, -1.0)[:, None, None]
    run = sd.simulate(world, build_linear(world, W=20, L=9, bonus_scale=0.4))
    share = run.trace["at_cap"]
    assert 0 < share.mean() < 1
    assert 0 < (agent.q() >= caps).mean() < 1


# ---------------------------------------------------------------- restarts

KEPT = ("clock.episode", "clock.window", "dual.mu", "dual.signal", "dual.last_thresholds")


def learnt(agent):
    """What a learner has learnt, but for the size of its history."""
    found = agent.state()
    return {name: array for name, array in found.items() if not name.startswith("history.")}


@pytest.mark.parametrize("kind", ["scenarios", "one-hot", "box"])
def test_a_restart_of_both_parts_leaves_nothing_but_the_dual(kind):
    world = box_world(M=24) if kind == "box" else linear_world("scenarios", kind, M=24, H=4)
    rng = np.random.default_rng(0)
    old, new = (build_linear(world, W=6, L=4, lam=1e-3) for _ in range(2))

    def episode():
        states = rng.random((4, 1)) if kind == "box" else rng.integers(0, 4, 4)
        return states, rng.integers(0, 3, 4), rng.random(4), rng.random(4)

    for m in range(12):
        old.begin_episode(world.thresholds[m])
        old.end_episode(sd.Trajectory(*episode()))
    new.restore(new.state() | {name: old.state()[name] for name in KEPT})
    for m in range(12, 24):
        policies = [np.asarray(one.begin_episode(world.thresholds[m])) for one in (old, new)]
        np.testing.assert_array_equal(*policies)
        if m == 12:
            np.testing.assert_array_equal(policies[0], 1 / 3)
        seen = episode()
        for one in (old, new):
            one.end_episode(sd.Trajectory(*seen))
        assert learnt(old).keys() == learnt(new).keys()
        for name, array in learnt(old).items():
            np.testing.assert_array_equal(array, learnt(new)[name], err_msg=name)
    assert np.abs(old.memory.policy.logit_low).max() > 0  # otherwise keeping it could not show
    assert kind == "one-hot" or np.abs(old.memory.window.gram_r_low).max() > 0


# ---------------------------------------------------------------- what is learnt


def test_without_bonus_and_ridge_the_coefficients_of_a_still_world_are_recovered():
    """w - θ = Λ⁻¹ Σ φ ε with |ε| ≤ (H-h)/2: within 5 standard deviations in every direction."""
    M, S, A, H = 4000, 6, 3, 3
    table = small_world(M=M, S=S, A=A, H=H, drift="stationary", start=np.full(S, 1 / S))
    rng = np.random.default_rng(0)
    scenarios = [  # kernels that lead to different states, utilities and rewards that tell them
        sd.TabularCMDP(
            rng.dirichlet(np.full(S, 0.05), (H, S, A)), rng.random((H, S, A)).round(),
            rng.random((1, H, S, A)).round(), table.scenarios[0].thresholds, np.full(S, 1 / S),
        )
        for _ in range(3)
    ]  # fmt: skip
    blend = np.broadcast_to([0.5, 0.2, 0.3], (M, 3))
    world = sd.DriftingCMDP(scenarios, blend, thresholds=np.full((M, 1), 0.1)).as_linear_kernel()
    np.testing.assert_array_equal(np.unique(world.theta[0]), [0.2, 0.3, 0.5])
    agent = build_linear(world, W=M, L=M, bonus_scale=0.0, lam=1e-9, alpha=0.0)
    for _ in own_loop_keeping(world, agent):
        pass
    memory = agent.memory
    psi, phi = dense_features(world)
    for c in range(2):
        for h in range(H - 1):
            inverse = np.linalg.inv(
                memory.window.gram[c, h] + np.triu(memory.window.gram[c, h], 1).T
            )
            sigma = (H - 1 - h) / 2
            off = memory.values.w[c, h] - world.theta[0, h]
            assert (np.abs(off) <= 5 * sigma * np.sqrt(np.diag(inverse))).all()
            assert np.abs(off).max() < 0.08
            # φ^m of this very step, from V^m of the next: what Q was made of.
            ahead = np.einsum("xayd,y->xad", psi[h], memory.values.v[c, h + 1])
            np.testing.assert_allclose(ahead @ off, 0, atol=0.05)
        signal = world.theta_r[0] if c == 0 else world.theta_g[0, 0]
        for h in range(H):  # rewards are seen without noise
            np.testing.assert_allclose(
                phi[h] @ memory.values.u[c, h], phi[h] @ signal[h], atol=1e-5
            )


def own_loop_keeping(world, agent):
    """`own_loop` on the very learner that is given."""
    agent.fresh = lambda seed: agent
    return own_loop(world, agent, 0)


def rising_world(moving, M=400, H=3):
    """Utilities ("g"), or the chance of the state where they are high ("P"), rise."""
    x, a, y = np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij")
    low = np.where(y == 1, 0.1 + 0.1 * a, 0.9 - 0.1 * a)
    high = np.where(y == 1, 0.8 + 0.1 * x, 0.2 - 0.1 * x)
    last = [0.4, 0.6] if moving == "P" else [0.9, 0.1]
    theta = np.linspace([0.9, 0.1], last, M)[:, None].repeat(H, axis=1)
    utility = np.array([0.05, 0.1, 0.6, 0.7])  # of the pairs (x, a)
    rise = 0.15 if moving == "g" else 0.0
    theta_g = np.linspace(utility, utility + rise, M)[:, None, None].repeat(H, axis=2)
    return sd.LinearKernelCMDP(
        np.stack([low, high], axis=-1), "one-hot", theta, 0.5 * np.ones((M, H, 4)), theta_g,
        np.full((M, 1), 0.3), [1.0, 0.0],
    )  # fmt: skip


@pytest.mark.parametrize("moving", ["P", "g"])
@pytest.mark.parametrize("seed", range(3))
def test_repaired_window_drifts_cover_a_utility_that_rises_within_the_window(seed, moving):
    """Without β the spreads alone must make up for data that are out of date; nothing else does."""
    world = rising_world(moving)
    M = world.M
    above = {}
    for knowledge in ("local-budgets", "slater"):
        agent = build_linear(world, knowledge, W=M, L=M, bonus_scale=0.0, lam=1e-3, alpha=0.0)
        assert max(agent.hyperparameters.beta.max(), agent.hyperparameters.beta_r.max()) == 0
        run = sd.simulate(world, agent, seed=seed)
        above[knowledge] = (run.trace["estimated_utility"] - run.outcome.utility)[M // 2 :]
        assert run.trace["estimated_utility"][M // 2 :].max() < 0.9 * world.H  # far from saturated
    assert (above["local-budgets"] > 0).all()
    assert (above["slater"] < 0).mean() > 0.95  # the control: no spreads, no optimism


# ---------------------------------------------------------------- singular data


def doubled(world):
    """The same finite world with all features twice: no Gram matrix has full rank."""
    psi, phi = dense_features(world)
    root = np.sqrt(2)
    return sd.LinearKernelCMDP(
        np.concatenate([psi, psi], -1), np.concatenate([phi, phi], -1) / root,
        np.concatenate([world.theta] * 2, -1) / 2, np.concatenate([world.theta_r] * 2, -1) / root,
        np.concatenate([world.theta_g] * 2, -1) / root, world.thresholds, world.initial,
    )  # fmt: skip


@pytest.mark.parametrize("lam", [1e-4, 1.0])
def test_agrees_with_twin_on_duplicated_features(lam):
    world = doubled(linear_world(M=25, K=2, drift="linear"))
    agent = build_linear(world, W=25, L=9, lam=lam)
    assert_agrees_with_linear_twin(world, agent, tolerance=1e-7)
    for gram, d in (
        (agent.memory.window.gram[1, 0], world.d1),
        (agent.memory.window.gram_r[0], world.d2),
    ):
        full = np.triu(gram) + np.triu(gram, 1).T
        assert np.linalg.matrix_rank(full - lam * np.eye(d), tol=1e-9) <= d // 2


@pytest.mark.parametrize("lam", [1e-4, 1.0])
def test_agrees_with_twin_on_duplicated_features_on_a_box(lam):
    world = box_world(M=18, H=3, copies=2)
    assert (world.d1, world.d2) == (4, 6)
    assert_agrees_with_box_twin(world, build_linear(world, W=18, L=9, lam=lam))


def exact_coefficients(gram, gram_low, moment, moment_low):
    """Λ⁻¹b from the learner's own sums (d, d) upper triangle and (d,), in rational numbers."""
    d = len(moment)
    G = [
        [Fraction(gram[min(i, j), max(i, j)]) + Fraction(gram_low[min(i, j), max(i, j)])
         for j in range(d)]
        for i in range(d)
    ]  # fmt: skip
    b = [Fraction(high) + Fraction(low) for high, low in zip(moment, moment_low, strict=True)]
    for k in range(d):
        for i in range(k + 1, d):
            factor = G[i][k] / G[k][k]
            G[i] = [u - factor * v for u, v in zip(G[i], G[k], strict=True)]
            b[i] -= factor * b[k]
    for i in range(d - 1, -1, -1):
        b[i] = (b[i] - sum(G[i][j] * b[j] for j in range(i + 1, d))) / G[i][i]
    return np.array([float(value) for value in b])


@pytest.mark.parametrize("kind", ["finite", "box"])
def test_nearly_singular_regressions_are_exact_between_scheduled_refreshes(kind):
    """The coefficients of every episode, against exact ones from the learner's sums."""
    M, H, lam = 40, 2, 1e-11
    world = box_world(M=M, H=H, copies=2)
    if kind == "finite":
        world = doubled(linear_world(M=M, H=H, S=3, A=2, drift="linear"))
    agent = build_linear(world, W=M, L=10, lam=lam)
    rng = np.random.default_rng(0)
    worst = 0.0
    for m in range(M):
        agent.begin_episode(world.thresholds[m])
        s, values = agent.memory.window, agent.memory.values
        wanted = [
            exact_coefficients(s.gram[c, 0], s.gram_low[c, 0], s.moment[c, 0, 0],
                               s.moment_low[c, 0, 0])
            for c in range(2)
        ]  # fmt: skip
        wanted_r = exact_coefficients(
            s.gram_r[0], s.gram_r_low[0], s.moment_r[0, 1], s.moment_r_low[0, 1]
        )
        states = rng.random((H, 1)) if kind == "box" else rng.integers(0, 3, H)
        actions, rewards = rng.integers(0, 2, H), rng.random(H)
        agent.end_episode(sd.Trajectory(states, actions, rewards, rng.random(H)))
        found = values.w[0, 0], values.w[1, 0], values.u[1, 0]
        for got, exact in zip(found, (*wanted, wanted_r), strict=True):
            worst = max(worst, np.abs(got - exact).max() / max(np.abs(exact).max(), 1e-3))
    assert worst < 1e-8


def test_a_pivot_that_vanishes_between_scheduled_refreshes_is_told():
    world = linear_world(M=5)
    agent = build_linear(world, W=5, L=5)
    agent.begin_episode(world.thresholds[0])
    agent.memory.window.factor[0, 0, 1, 1] = 1e9  # nearly singular, and
    agent.memory.window.gram[0, 0, 0, 0] = -1e3  # sums that no data have
    agent.end_episode(sd.Trajectory([0, 1, 2], [0, 1, 2], np.full(3, 0.5), np.full(3, 0.5)))
    assert agent.memory.window.residual[0] == np.inf
    assert np.isfinite(agent.memory.window.factor).all()


# ---------------------------------------------------------------- replay on a box


def far_apart(M):
    """One step on [0, 1] whose Q is exactly c_a: action 0 far behind, 1 and 2 almost alike."""
    scale = np.array([0.25, 0.5, 0.5 + 2.0**-22])

    def phi(x, a):
        return scale[a] * (a == np.arange(3)) + 0 * x[:, :1]

    def psi(x, a, y):
        return np.ones((len(x), len(y), 1))

    return sd.linear_kernel_on_box(
        0, 1, 3, psi, phi, np.ones((M, 1, 1)), np.full((M, 1, 3), 0.5), np.full((M, 1, 1, 3), 0.5),
        np.ones((M, 1)) * 0.01, 0.3, nodes=3, tolerance=1e-6,
    )  # fmt: skip


def test_replay_keeps_the_digits_of_a_sum_that_reaches_a_million():
    """Logits of 1e6 have a last digit of 1e-10; the learner keeps both ends of the number."""
    M = 2000
    world = far_apart(M)
    agent = build_linear(
        world, W=1, L=M, lam=1.0, alpha=0.7, eta=4.5325, xi=0.0, chi=np.inf, dual_signal="observed"
    )
    agent = with_evaluation(agent, beta=np.zeros(1), beta_r=np.ones(1))
    for _ in range(M - 1):
        agent.begin_episode([0.99])
        agent.end_episode(sd.Trajectory([0.3], [1], [0.5], [0.0]))
    table = np.asarray(agent.begin_episode([0.99]))[0]
    logits = agent.memory.policy.logit[0]
    assert np.abs(logits).max() > 1e6
    assert 0.1 < table[0, 1] < 0.49
    found = agent.engine.policy_at(0, world.box.points)
    np.testing.assert_allclose(found, table, rtol=0, atol=1e-11)


# ---------------------------------------------------------------- what a loop may ask


def elsewhere(m, agent, policy, states, expected):
    for h, x in enumerate(states):
        agent.act(h, (x + 0.4) % 1)


def here(m, agent, policy, states, expected):
    for h, x in enumerate(states):
        agent.act(h, x)


def every_other(m, agent, policy, states, expected):
    if m % 2 == 0:
        here(m, agent, policy, states, expected)


def here_then_elsewhere(m, agent, policy, states, expected):
    here(m, agent, policy, states, expected)
    elsewhere(m, agent, policy, states, expected)


def swapped(m, agent, policy, states, expected):
    """Act at each state, but at other steps."""
    for h, x in enumerate(states[::-1]):
        agent.act(h, x)


def nothing(m, agent, policy, states, expected):
    pass


@pytest.mark.parametrize(
    "ask", [here, elsewhere, every_other, here_then_elsewhere, swapped, nothing]
)
@pytest.mark.parametrize("still", [False, True])
def test_what_is_asked_in_mid_episode_does_not_change_what_is_learnt(ask, still):
    """V is that of the policy at the states the episode is said to have had."""
    world = box_world(M=12, H=3)
    path = (lambda m: np.array([[0.3], [0.8], [0.1]])) if still else None
    agent = build_linear(world, W=12, L=12, alpha=3.0)
    assert_agrees_with_box_twin(world, agent, path=path, ask=ask)


def test_policy_at_many_points_in_chunks_is_that_at_each(monkeypatch):
    world = box_world(M=6, K=2, n=2, nodes=6)
    agent = build_linear(world, W=6, L=6)
    rng = np.random.default_rng(0)
    for m in range(5):
        agent.begin_episode(world.thresholds[m])
        states = rng.random((4, 2))
        actions, rewards = rng.integers(0, 3, 4), rng.random(4)
        agent.end_episode(sd.Trajectory(states, actions, rewards, rng.random((2, 4))))
    agent.begin_episode(world.thresholds[5])
    points = rng.random((11, 2))
    for h in range(4):
        whole = agent.engine.policy_at(h, points)
        each = np.stack([agent.engine.policy_at(h, x[None])[0] for x in points])
        assert np.ptp(each, axis=0).max() > 1e-3
        np.testing.assert_allclose(whole, each, rtol=0, atol=1e-14)
        per_point = 5 * 3 * 3 * world.d1
        for numbers in (1, 4 * per_point):  # chunks of one, and of 4, 4 and 3
            with monkeypatch.context() as patch:
                patch.setattr(box_engine, "_CHUNK_NUMBERS", numbers)
                parts = agent.engine.policy_at(h, points)
            np.testing.assert_allclose(parts, each, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("pi", "u", "action"),
    [([0.3, 0.7 - 2**-51, 0.0], 1 - 2**-53, 1), ([0.0, 0.5, 0.5], 0.0, 1), ([0.0, 0.0, 1.0], 0, 2),
     ([1 - 2**-51, 0.0, 0.0], 1 - 2**-53, 0), ([0.5, 0.0, 0.5], 0.5, 2), ([0.2, 0.3, 0.5], 0.4, 1)],
)  # fmt: skip
def test_an_action_of_probability_zero_is_never_drawn_on_a_box(pi, u, action, monkeypatch):
    agent = build_linear(box_world(M=5))
    agent.begin_episode([1.0])
    monkeypatch.setattr(agent.engine, "_policy", lambda *_: np.array([pi]))
    assert agent.engine.act(0, 0.5, u) == action
