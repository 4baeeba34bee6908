"""Constrained optima against an independent linear program, and against their own certificates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import safedrift as sd
from conftest import as_lists, dense, random_cmdp, random_scenarios, rebuilt
from safedrift import DriftingCMDP, TabularCMDP, drift, evaluate, optima, solve
from safedrift.oracles import chunks, evaluate_episodes, safest_utilities
from safedrift.oracles.optimality import _solve_episodes

# ---------------------------------------------------------------- plain twins


def greedy(P, signal, initial):
    """max_π V_signal by dynamic programming, and the actions (H, S) that reach it."""
    H, S, _ = signal.shape
    V, actions = np.zeros(S), np.zeros((H, S), int)
    for h in range(H - 1, -1, -1):
        Q = signal[h] + P[h] @ V
        V, actions[h] = Q.max(axis=1), Q.argmax(axis=1)
    return initial @ V, actions


def best_utility(cmdp, k=0):
    P, _, g, _, initial = dense(cmdp)
    return greedy(P, g[k], initial)[0]


def greedy_utility(cmdp):
    """V_g of the policy that looks at rewards only (one of them)."""
    P, r, g, _, initial = dense(cmdp)
    actions = greedy(P, r, initial)[1]
    return naive.policy_value(P, g[0], initial, np.eye(r.shape[2])[actions])


def dual_value(cmdp, mu):
    """max_π V_r + μ·(V_g - b): an upper bound on the value of every feasible policy."""
    P, r, g, b, initial = dense(cmdp)
    return greedy(P, r + np.tensordot(mu, g, axes=1), initial)[0] - mu @ b


def exact_values(cmdp, policy):
    P, r, g, _, initial = dense(cmdp)
    return np.array([naive.policy_value(P, signal, initial, policy) for signal in (r, *g)])


def check_certificate(cmdp, found):
    """Everything that makes `found` an optimum, recomputed without the library."""
    H = cmdp.shape.H
    policy, mu, b = found.policy, found.multipliers, cmdp.thresholds
    assert found.status == "optimal"
    assert policy.min() >= 0
    np.testing.assert_allclose(policy.sum(axis=2), 1, atol=1e-12)
    values = exact_values(cmdp, policy)
    np.testing.assert_allclose(values, [found.value, *found.utilities], rtol=0, atol=1e-9)
    assert (values[1:] >= b - 1e-9).all(), "infeasible"
    assert mu.min() >= 0
    assert -1e-9 <= found.gap <= 1e-9
    assert dual_value(cmdp, mu) == pytest.approx(found.value, rel=0, abs=1e-8)
    np.testing.assert_allclose(mu * (values[1:] - b), 0, atol=1e-8, err_msg="complementarity")
    assert mu.sum() * found.gamma <= H + 1e-9, "Lemma 1: mu* <= H / gamma"


# ---------------------------------------------------------------- 660 worlds with one constraint


def sized_cmdp(rng, **options):
    H, S, A = rng.integers(1, 6), rng.integers(1, 7), rng.integers(1, 5)
    return random_cmdp(rng, H, S, A, **options)


def with_threshold(cmdp, b):
    return rebuilt(cmdp, thresholds=[b])


def between(rng, cmdp):
    """A threshold that binds: above what the greedy policy does, below what is possible."""
    low, high = greedy_utility(cmdp), best_utility(cmdp)
    return with_threshold(cmdp, low + rng.uniform(0.05, 0.95) * (high - low))


def generic(rng):
    return between(rng, sized_cmdp(rng))


def anywhere(rng):
    cmdp = sized_cmdp(rng)
    return with_threshold(cmdp, rng.uniform(0.01, 1) * best_utility(cmdp))


def non_binding(rng):
    cmdp = sized_cmdp(rng)
    return with_threshold(cmdp, rng.uniform(0.1, 1) * greedy_utility(cmdp))


def on_a_grid(rng, shape):
    return rng.integers(0, 3, shape) / 2


def coarse_grid(rng):
    """Rewards, utilities and transitions from very few numbers: many equally good policies."""
    H, S, A = rng.integers(1, 6), rng.integers(1, 7), rng.integers(2, 5)
    P = np.eye(S)[rng.integers(0, S, (H, S, A, 2))].mean(axis=3)
    g = on_a_grid(rng, (1, H, S, A))
    g[0, 0] = np.maximum(g[0, 0], 0.5)  # so that some utility is in reach of every start
    initial = np.eye(S)[rng.integers(S)]
    cmdp = TabularCMDP(P, on_a_grid(rng, (H, S, A)), g, [H], initial)
    high = best_utility(cmdp)
    return with_threshold(cmdp, high * rng.choice([0.25, 0.5, 0.75, 1.0]))


def equal_utilities(rng):
    """All policies have the same utility, up to rounding; the threshold is on it or below."""
    cmdp = sized_cmdp(rng)
    H, u = cmdp.shape.H, rng.choice([0.1, 0.3, 0.5, 1.0])
    utilities = np.full_like(cmdp.utilities, u)
    return rebuilt(cmdp, utilities=utilities, thresholds=[H * u * rng.choice([1.0, 0.5])])


def utility_is_reward(rng):
    cmdp = sized_cmdp(rng)
    return anywhere_feasible(rng, rebuilt(cmdp, utilities=cmdp.rewards[None]))


def utility_opposes_reward(rng):
    """V_r + V_g = H for every policy: the whole frontier is one edge."""
    cmdp = sized_cmdp(rng)
    return between(rng, rebuilt(cmdp, utilities=1 - cmdp.rewards[None]))


def anywhere_feasible(rng, cmdp):
    return with_threshold(cmdp, rng.choice([0.3, 0.9, 1.0]) * best_utility(cmdp))


def barely(margin):
    def build(rng):
        cmdp = sized_cmdp(rng)
        return with_threshold(cmdp, best_utility(cmdp) - margin)

    return build


def sparse(rng):
    cmdp = between(rng, sized_cmdp(rng, successors=2))
    return rebuilt(cmdp, transitions=as_lists(cmdp.transitions))


def one_start(rng):
    cmdp = sized_cmdp(rng, successors=3)
    S = cmdp.shape.S
    return between(rng, rebuilt(cmdp, initial=np.eye(S)[rng.integers(S)]))


FAMILIES = {
    "generic": (generic, 5),
    "anywhere": (anywhere, 2),
    "non-binding": (non_binding, 3),
    "coarse grid": (coarse_grid, 5),
    "equal utilities": (equal_utilities, 2),
    "utility = reward": (utility_is_reward, 2),
    "utility = 1 - reward": (utility_opposes_reward, 2),
    "barely feasible, 1e-6": (barely(1e-6), 2),
    "barely feasible, 1e-9": (barely(1e-9), 2),
    "just feasible": (barely(0.0), 2),
    "sparse": (sparse, 4),
    "one start": (one_start, 2),
}
BATCH = 20


def batch_of(name, build, batch):
    rng = np.random.default_rng([sum(name.encode()), batch])
    return [build(rng) for _ in range(BATCH)]


@pytest.mark.parametrize(
    ("name", "batch"), [(name, i) for name, (_, n) in FAMILIES.items() for i in range(n)]
)
def test_solve_agrees_with_linear_program(name, batch):
    for cmdp in batch_of(name, FAMILIES[name][0], batch):
        found = solve(cmdp)
        check_certificate(cmdp, found)
        P, r, g, b, initial = dense(cmdp)
        reference = naive.occupancy_lp(P, r, g, b, initial)
        assert reference.status == 0
        # Close to infeasible, HiGHS may gain mu times its tolerance; there the certificate decides.
        slop = 1e-9 if "feasible" not in name else 1e-9 + 2e-10 * found.multipliers[0]
        assert found.value == pytest.approx(-reference.fun, rel=0, abs=slop)
        assert found.gamma == pytest.approx(best_utility(cmdp) - b[0], rel=0, abs=1e-12)
        assert found.gamma == pytest.approx(naive.largest_slack(P, g, b, initial), abs=1e-8)


def test_families_are_what_their_names_say():
    def multipliers(name):
        build, n = FAMILIES[name]
        return np.array(
            [solve(c).multipliers[0] for i in range(n) for c in batch_of(name, build, i)]
        )

    assert sum(n for _, n in FAMILIES.values()) * BATCH >= 500
    assert (multipliers("non-binding") == 0).all()
    assert (multipliers("equal utilities") == 0).all()
    assert (multipliers("utility = reward") == 0).all()
    for name in ("generic", "sparse", "one start", "barely feasible, 1e-9"):
        assert (multipliers(name) > 1e-6).mean() > 0.5
    opposed = multipliers("utility = 1 - reward")
    np.testing.assert_allclose(opposed[opposed > 0], 1, atol=1e-9)


@pytest.mark.parametrize("batch", range(3))
@pytest.mark.parametrize("excess", [1e-9, 1e-6, None], ids=["1e-9", "1e-6", "far"])
def test_infeasible_worlds_are_named_so_and_come_with_the_safest_policy(batch, excess):
    rng = np.random.default_rng([7, batch])
    for _ in range(BATCH):
        cmdp = sized_cmdp(rng)
        best, H = best_utility(cmdp), cmdp.shape.H
        cmdp = with_threshold(cmdp, (best + H) / 2 if excess is None else best + excess)
        found = solve(cmdp)
        assert found.status == "infeasible"
        assert np.isnan(found.value)
        assert np.isnan(found.gap)
        assert np.isinf(found.multipliers).all()
        assert found.gamma == pytest.approx(best - cmdp.thresholds[0], rel=0, abs=1e-12)
        assert found.gamma < 0
        assert found.utilities[0] == pytest.approx(best, rel=0, abs=1e-12)
        np.testing.assert_allclose(found.policy.sum(axis=2), 1, atol=1e-12)
        assert exact_values(cmdp, found.policy)[1] == pytest.approx(best, rel=0, abs=1e-12)
        if excess is None:
            assert naive.occupancy_lp(*dense(cmdp)).status == 2


def test_sparse_and_dense_transitions_give_the_same_optimum():
    rng = np.random.default_rng(3)
    for _ in range(20):
        cmdp = between(rng, sized_cmdp(rng, successors=2))
        full, lists = solve(cmdp), solve(rebuilt(cmdp, transitions=as_lists(cmdp.transitions)))
        assert full.value == lists.value
        np.testing.assert_array_equal(full.policy, lists.policy)


# ---------------------------------------------------------------- several constraints


def several(rng, K):
    """Thresholds a random policy meets; where that policy is far from the best, some bind."""
    H, S, A = rng.integers(1, 5), rng.integers(1, 6), rng.integers(2, 5)
    cmdp = random_cmdp(rng, H, S, A, K)
    policy = rng.dirichlet(np.full(A, 0.3), (H, S))
    return rebuilt(cmdp, thresholds=exact_values(cmdp, policy)[1:] * rng.uniform(0.9, 1))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("batch", range(2))
def test_several_constraints_agree_with_linear_program(K, batch):
    rng = np.random.default_rng([K, batch])
    bound = 0
    for _ in range(BATCH):
        cmdp = several(rng, K)
        found = solve(cmdp)
        check_certificate(cmdp, found)
        P, r, g, b, initial = dense(cmdp)
        reference = naive.occupancy_lp(P, r, g, b, initial)
        assert found.value == pytest.approx(-reference.fun, rel=0, abs=1e-9)
        assert found.gamma == pytest.approx(naive.largest_slack(P, g, b, initial), abs=1e-8)
        bound += found.multipliers.max() > 1e-6
    assert bound > BATCH / 3


def test_a_second_constraint_that_repeats_the_first_changes_nothing():
    rng = np.random.default_rng(5)
    for _ in range(10):
        cmdp = generic(rng)
        twice = rebuilt(
            cmdp,
            utilities=np.repeat(cmdp.utilities, 2, axis=0),
            thresholds=np.repeat(cmdp.thresholds, 2),
        )
        one, two = solve(cmdp), solve(twice)
        assert two.value == pytest.approx(one.value, rel=0, abs=1e-9)
        assert two.gamma == pytest.approx(one.gamma, rel=0, abs=1e-9)
        assert two.multipliers.sum() == pytest.approx(one.multipliers[0], abs=1e-7)


def test_constraints_that_exclude_each_other_are_infeasible_together():
    rng = np.random.default_rng(6)
    for _ in range(10):
        cmdp = random_cmdp(rng, 3, 4, 3)
        g = cmdp.utilities[0]
        P, initial = cmdp.transitions, cmdp.initial
        # V_g,1 + V_g,2 = H, so no policy has more than H/2 of both; each alone may have.
        b = np.full(2, 1.5 + 0.05)
        clash = rebuilt(cmdp, utilities=np.stack([g, 1 - g]), thresholds=b)
        assert min(best_utility(clash, 0), best_utility(clash, 1)) > b[0]
        found = solve(clash)
        assert found.status == "infeasible"
        assert np.isnan(found.value)
        slack = naive.largest_slack(P, clash.utilities, b, initial)
        assert found.gamma == pytest.approx(slack, abs=1e-8)
        assert found.gamma == pytest.approx(-0.05, abs=1e-8)
        assert (exact_values(clash, found.policy)[1:] - b).min() == pytest.approx(slack, abs=1e-8)


# ---------------------------------------------------------------- known on paper


def bandit(arms, b):
    """One state, one step; arms (r, g)."""
    r, g = np.array(arms, float).T
    return TabularCMDP(np.ones((1, 1, len(arms), 1)), r[None, None], g[None, None, None], [b], [1])


def test_two_arms():
    found = solve(bandit([(1, 0), (0, 1)], 3 / 5))
    assert found.value == pytest.approx(2 / 5, abs=1e-15)
    assert found.multipliers[0] == pytest.approx(1, abs=1e-15)
    assert found.gamma == pytest.approx(2 / 5, abs=1e-15)
    np.testing.assert_allclose(found.policy, [[[2 / 5, 3 / 5]]], atol=1e-15)


@pytest.mark.parametrize(
    ("b", "value", "mu", "gamma", "first_step", "at_home"),
    [
        (1 / 2, 9 / 8, 3 / 4, 1, [1 / 2, 1 / 2], [0, 1]),
        (5 / 4, 1 / 2, 1, 1 / 4, [1, 0], [1 / 2, 1 / 2]),
    ],
)
def test_two_steps(b, value, mu, gamma, first_step, at_home):
    # Step 1, home: stay (1/4, 1/2) leads home, go (1/2, 0) leads away. Step 2, home: (0, 1) or
    # (1/2, 1/2); away: (1, 0) or (1/4, 3/4). The four plans have (V_r, V_g) =
    #   stay, first (1/4, 3/2); stay, second (3/4, 1); go, first (3/2, 0); go, second (3/4, 3/4)
    # and the upper hull is (3/2, 0) - (3/4, 1) - (1/4, 3/2) with slopes 3/4 and 1. At b = 1/2 half
    # of the first edge: (3/2 + 3/4)/2 = 9/8; at b = 5/4 half of the second: (3/4 + 1/4)/2 = 1/2.
    stay_or_go = [[[1, 0], [0, 1]], [[1, 0], [0, 1]]]
    r = [[[1 / 4, 1 / 2], [0, 0]], [[0, 1 / 2], [1, 1 / 4]]]
    g = [[[1 / 2, 0], [0, 0]], [[1, 1 / 2], [0, 3 / 4]]]
    found = solve(TabularCMDP([stay_or_go] * 2, r, [g], [b], [1, 0]))
    assert found.value == pytest.approx(value, abs=1e-14)
    assert found.multipliers[0] == pytest.approx(mu, abs=1e-14)
    assert found.gamma == pytest.approx(gamma, abs=1e-14)
    np.testing.assert_allclose(found.policy[0, 0], first_step, atol=1e-14)
    np.testing.assert_allclose(found.policy[1, 0], at_home, atol=1e-14)


@pytest.mark.parametrize(
    ("b", "value", "mu", "policy"),
    [
        (3 / 8, 7 / 16, 1 / 2, [[1, 0], [1 / 2, 1 / 2]]),
        (7 / 8, 1 / 8, 1, [[1 / 2, 1 / 2], [0, 1]]),
    ],
)
def test_two_starts(b, value, mu, policy):
    # Start 1 (probability 1/4) has arms (1, 0), (0, 1): utility costs 1 reward each. Start 2 (3/4)
    # has (1/2, 0), (0, 1): utility costs 1/2. All for reward: 1/4 + 3/8 = 5/8. The cheap utility is
    # bought first: b = 3/8 is half of start 2, 5/8 - 3/16; b = 7/8 is all of it, half of start 1.
    P = np.full((1, 2, 2, 2), 1 / 2)
    r, g = [[[1, 0], [1 / 2, 0]]], [[[[0, 1], [0, 1]]]]
    found = solve(TabularCMDP(P, r, g, [b], [1 / 4, 3 / 4]))
    assert found.value == pytest.approx(value, abs=1e-15)
    assert found.multipliers[0] == pytest.approx(mu, abs=1e-15)
    assert found.gamma == pytest.approx(1 - b, abs=1e-15)
    np.testing.assert_allclose(found.policy[0], policy, atol=1e-15)


def test_multiplier_at_a_corner_lies_between_the_slopes_of_its_edges():
    # (1, 0) - (3/4, 1/2) - (0, 1): slopes 1/2 and 3/2 meet at b = 1/2.
    found = solve(bandit([(1, 0), (3 / 4, 1 / 2), (0, 1)], 1 / 2))
    assert found.value == pytest.approx(3 / 4, abs=1e-15)
    assert 1 / 2 - 1e-15 <= found.multipliers[0] <= 3 / 2 + 1e-15
    np.testing.assert_allclose(found.policy[0, 0], [0, 1, 0], atol=1e-15)


def test_of_equally_good_policies_the_safer_is_taken():
    found = solve(bandit([(1, 0), (1, 1), (1, 1 / 2)], 1 / 4))
    np.testing.assert_array_equal(found.policy[0, 0], [0, 1, 0])
    assert (found.value, found.utilities[0], found.multipliers[0]) == (1, 1, 0)


def test_finely_curved_frontier_is_followed_to_its_last_edge():
    # Arms on a quarter of a circle: the edges at b = sin(pi/6) are about 1e-7 apart in value.
    angle = np.linspace(0, np.pi / 2, 2001)
    r, g = np.cos(angle), np.sin(angle)
    for b in (0.5, 0.123, 0.99):
        cmdp = bandit(np.stack((r, g), axis=1), b)
        found = solve(cmdp)
        check_certificate(cmdp, found)
        assert found.value == pytest.approx(np.interp(b, g, r), rel=0, abs=1e-12)
        i = np.searchsorted(g, b)
        slope = (r[i - 1] - r[i]) / (g[i] - g[i - 1])
        assert found.multipliers[0] == pytest.approx(slope, abs=1e-9)


def test_printed_slater_lemma_fails_and_the_repaired_one_holds():
    """Erratum E1: two episodes, b = 3/5, gamma = 2/5, C = 2H/gamma = 5."""
    b, C = 0.6, 5.0
    worlds = [bandit([(1, 0), (0, 1)], b), bandit([(1, 1), (0, 0)], b)]
    played = [np.array([[[0.9, 0.1]]]), np.array([[[1.0, 0.0]]])]
    found = [solve(world) for world in worlds]
    values = np.array([evaluate(world, pi) for world, pi in zip(worlds, played, strict=True)])
    violation = b - values[:, 1]
    delta = [f.value for f in found] - values[:, 0] + C * violation
    mu = np.array([f.multipliers[0] for f in found])
    np.testing.assert_allclose([f.gamma for f in found], 0.4, atol=1e-15)
    np.testing.assert_allclose(mu, [1, 0], atol=1e-15)
    np.testing.assert_allclose(violation, [0.5, -0.4], atol=1e-15)
    np.testing.assert_allclose(delta, [2, -2], atol=1e-14)
    # As printed: sum of violations <= 2 delta / C = 0. It is 0.1.
    assert 2 * delta.sum() / C == pytest.approx(0, abs=1e-14)
    assert violation.sum() == pytest.approx(0.1, abs=1e-14)
    # As repaired: sum of (C - mu*)(violation) <= delta, here with equality.
    assert ((C - mu) * violation).sum() <= delta.sum() + 1e-12


@given(st.integers(0, 2**32 - 1))
def test_repaired_slater_lemma_holds_for_any_policies(seed):
    rng = np.random.default_rng(seed)
    left = right = 0.0
    for _ in range(3):
        cmdp = between(rng, random_cmdp(rng, H=2, S=3, A=3))
        found = solve(cmdp)
        C = 2 * cmdp.shape.H / found.gamma
        value, utility = evaluate(cmdp, rng.dirichlet(np.full(3, 0.3), (2, 3)))
        left += (C - found.multipliers[0]) * (cmdp.thresholds[0] - utility)
        right += found.value - value + C * (cmdp.thresholds[0] - utility)
    assert left <= right + 1e-9


# ---------------------------------------------------------------- exact values


def test_evaluate_equals_the_bellman_equation():
    rng = np.random.default_rng(11)
    for K in (1, 2, 3):
        for successors in (None, 2):
            cmdp = random_cmdp(rng, 4, 5, 3, K, successors=successors)
            policy = rng.dirichlet(np.ones(3), (4, 5))
            expected = exact_values(cmdp, policy)
            np.testing.assert_allclose(evaluate(cmdp, policy), expected, rtol=0, atol=1e-13)
            lists = rebuilt(cmdp, transitions=as_lists(cmdp.transitions))
            np.testing.assert_allclose(evaluate(lists, policy), expected, rtol=0, atol=1e-13)


def test_evaluate_is_the_mean_of_simulated_episodes():
    rng = np.random.default_rng(12)
    H, S, A, n = 4, 5, 3, 20_000
    cmdp = random_cmdp(rng, H, S, A)
    policy = rng.dirichlet(np.ones(A), (H, S))

    def draw(p):
        return (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=p.shape[1] - 1)

    x, totals = draw(np.broadcast_to(cmdp.initial, (n, S))), np.zeros((2, n))
    for h in range(H):
        a = draw(policy[h, x])
        totals += cmdp.rewards[h, x, a], cmdp.utilities[0, h, x, a]
        x = draw(cmdp.transitions[h, x, a])
    error = totals.std(axis=1) / np.sqrt(n)
    assert (np.abs(totals.mean(axis=1) - evaluate(cmdp, policy)) < 4 * error).all()


@pytest.mark.parametrize("K", [1, 2])
def test_evaluate_episodes_takes_one_policy_each_or_one_for_all(K):
    rng = np.random.default_rng(13)
    world = three_paths(rng, M=70, K=K)
    episodes = rng.integers(0, 70, 50)
    policies = rng.dirichlet(np.ones(world.A), (50, world.H, world.S))
    each = [exact_values(world.at(m), pi) for m, pi in zip(episodes, policies, strict=True)]
    found = evaluate_episodes(world, episodes, policies)
    np.testing.assert_allclose(found, each, rtol=0, atol=1e-13)
    one = [exact_values(world.at(m), policies[0]) for m in episodes]
    found = evaluate_episodes(world, episodes, policies[:1])
    np.testing.assert_allclose(found, one, rtol=0, atol=1e-13)


# ---------------------------------------------------------------- optima of a drifting world


def gradual(rng, M, K):
    return DriftingCMDP(random_scenarios(rng, 3, K=K), drift.linear(M, 3))


def walking(rng, M, K):
    return DriftingCMDP(random_scenarios(rng, 4, K=K), drift.random_walk(M, 4, 0.1, seed=1))


def jumping(rng, M, K):
    scenarios = random_scenarios(rng, 3, K=K, successors=2)
    return DriftingCMDP(scenarios, drift.abrupt(M, 3, switches=5))


def returning(rng, M, K):
    return DriftingCMDP(random_scenarios(rng, 3, K=K), drift.alternating(M, 3))


def three_paths(rng, M, K):
    """Separate paths for P, r, g, and thresholds of every difficulty."""
    world = DriftingCMDP(
        random_scenarios(rng, 3, K=K),
        transition_weights=drift.periodic(M, 3),
        reward_weights=drift.random_walk(M, 3, 0.05),
        utility_weights=drift.alternating(M, 3, every=7),
        thresholds=np.ones((M, K)),
    )
    return world.with_thresholds(rng.uniform(0.3, 0.8, (M, K)) * world.H)


WORLDS = [gradual, walking, jumping, returning, three_paths]
FIELDS = ("value", "utilities", "multipliers", "gap", "gamma")


def assert_same_optima(found, singles):
    for field in FIELDS:
        expected = np.array([getattr(single, field) for single in singles])
        got = getattr(found, field)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9, err_msg=field)
    np.testing.assert_array_equal(found.feasible, [s.status == "optimal" for s in singles])


@pytest.mark.parametrize("build", WORLDS)
@pytest.mark.parametrize(("K", "M"), [(1, 100), (2, 24)])
def test_optima_equal_the_solution_of_each_episode(build, K, M):
    world = build(np.random.default_rng(20), M, K)
    found = optima(world)
    np.testing.assert_array_equal(found.episodes, np.arange(M))
    assert_same_optima(found, [solve(world.at(m)) for m in range(M)])


def test_drifting_worlds_above_have_every_kind_of_episode():
    found = optima(three_paths(np.random.default_rng(20), 100, 1))
    mu = found.multipliers[:, 0]
    assert not found.feasible.all()
    assert (mu[found.feasible] == 0).any()
    assert (mu[found.feasible] > 0).sum() > 20


@pytest.mark.parametrize("build", WORLDS)
@pytest.mark.parametrize(("K", "M"), [(1, 100), (2, 24)])
def test_optima_do_not_depend_on_which_episodes_are_listed(build, K, M):
    world = build(np.random.default_rng(21), M, K)
    everything = optima(world)
    rng = np.random.default_rng(0)
    for listed in (np.arange(M)[::-1], rng.integers(0, M, 2 * M), np.arange(3, M, 5), [M - 1]):
        found = optima(world, np.asarray(listed))
        np.testing.assert_array_equal(found.episodes, listed)
        np.testing.assert_array_equal(found.feasible, everything.feasible[listed])
        for field in FIELDS:
            expected = getattr(everything, field)[listed]
            np.testing.assert_allclose(getattr(found, field), expected, rtol=0, atol=1e-9)


def test_optima_are_the_same_bits_with_any_number_of_threads(monkeypatch):
    world = walking(np.random.default_rng(22), 200, 1)
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(chunks.os, "cpu_count", lambda n=threads: n)
        results.append(optima(world))
    for other in results[1:]:
        for field in (*FIELDS, "policy_change"):
            assert getattr(other, field).tobytes() == getattr(results[0], field).tobytes()


@pytest.mark.parametrize("build", WORLDS)
@pytest.mark.parametrize("K", [1, 2])
def test_progress_adds_up_to_the_number_of_episodes(build, K):
    world = build(np.random.default_rng(23), 40, K)
    for episodes in (None, np.arange(0, 40, 3), np.zeros(9, int)):
        seen = []
        found = optima(world, episodes, progress=seen.append)
        assert sum(seen) == found.episodes.size
        assert min(seen) > 0


@pytest.mark.parametrize("K", [1, 3])
def test_safest_utilities_have_the_largest_sum(K):
    world = three_paths(np.random.default_rng(26), M=50, K=K)
    episodes = np.array([3, 49, 0, 7])
    found = safest_utilities(world, episodes)
    assert found.shape == (4, K)
    for m, utilities in zip(episodes, found, strict=True):
        P, _, g, _, initial = dense(world.at(m))
        best, actions = greedy(P, g.sum(axis=0), initial)
        policy = np.eye(world.A)[actions]
        expected = [naive.policy_value(P, signal, initial, policy) for signal in g]
        np.testing.assert_allclose(utilities, expected, rtol=0, atol=1e-12)
        assert utilities.sum() == pytest.approx(best, rel=0, abs=1e-12)


# ---------------------------------------------------------------- change of the optimal policy


def reach_of(cmdp, policy):
    """Which (h, s) a policy meets with positive probability."""
    P, reach = cmdp.dense_transitions(), np.zeros((cmdp.shape.H, cmdp.shape.S))
    reach[0] = cmdp.initial
    for h in range(cmdp.shape.H - 1):
        reach[h + 1] = np.einsum("s,sa,sax->x", reach[h], policy[h], P[h])
    return reach > 0


def direct_change(world, episodes):
    """Σ_h max over reached x of ‖π*_h - previous π*_h‖₁, from `solve` of each episode."""
    change, before = [0.0], None
    for m in episodes:
        cmdp = world.at(m)
        policy = solve(cmdp).policy
        reach = reach_of(cmdp, policy)
        if before is not None:
            distance = np.abs(policy - before[0]).sum(axis=2)
            change.append(np.where(reach | before[1], distance, 0).max(axis=1).sum())
        before = policy, reach
    return np.array(change)


@pytest.mark.parametrize("build", [gradual, walking, returning])
@pytest.mark.parametrize(("K", "M"), [(1, 100), (2, 24)])
def test_policy_change_equals_its_definition(build, K, M):
    # Dense transitions: every state is reached, the optimum is unique, selection plays no part.
    world = build(np.random.default_rng(24), M, K)
    expected = direct_change(world, range(M))
    assert (expected > 0).sum() > 5
    np.testing.assert_allclose(optima(world).policy_change, expected, rtol=0, atol=1e-8)


def test_policy_change_of_two_arms_is_twice_the_change_of_the_threshold():
    b = np.array([0.2, 0.5, 0.5, 0.4, 0.9, 0.9])
    world = DriftingCMDP([bandit([(1, 0), (0, 1)], 0.5)], np.zeros(6, int), thresholds=b[:, None])
    expected = 2 * np.abs(np.diff(b, prepend=b[0]))
    np.testing.assert_allclose(optima(world).policy_change, expected, atol=1e-15)
    # Listed episodes are compared with the one listed before, here 1, 4, 1.
    found = optima(world, np.array([1, 4, 1]))
    np.testing.assert_allclose(found.policy_change, [0, 0.8, 0.8], atol=1e-15)


@pytest.mark.parametrize("K", [1, 2])
def test_policy_change_ignores_states_that_no_optimal_policy_meets(K):
    # Both states keep to themselves and only the first is a start. The better arm of the second
    # changes between the scenarios; that of the first does not.
    def scenario(better):
        r = np.zeros((2, 2, 2))
        r[:, 0, 0] = r[:, 1, better] = 1
        P = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
        return TabularCMDP(P, r, np.ones((K, 2, 2, 2)), np.ones(K), [1, 0])

    world = DriftingCMDP([scenario(0), scenario(1)], np.array([0, 1, 0]))
    np.testing.assert_array_equal(optima(world).policy_change, 0)


def test_a_mixture_of_scenarios_has_the_optimum_of_the_mixed_arrays():
    rng = np.random.default_rng(25)
    scenarios = random_scenarios(rng, 2)
    mixture = DriftingCMDP(scenarios, [[0.25, 0.75]] * 3)
    P = 0.25 * scenarios[0].transitions + 0.75 * scenarios[1].transitions
    r = 0.25 * scenarios[0].rewards + 0.75 * scenarios[1].rewards
    g = 0.25 * scenarios[0].utilities + 0.75 * scenarios[1].utilities
    b = 0.25 * scenarios[0].thresholds + 0.75 * scenarios[1].thresholds
    single = solve(TabularCMDP(P, r, g, b, scenarios[0].initial))
    assert_same_optima(optima(mixture), [single] * 3)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (np.ones((1, 1, 1)), "policy must be an array of shape"),
        (np.full((5, 5, 3), 5.0), "each row of policy must be a distribution"),
        (np.full((5, 5, 3), -1.0), "policy must be >= 0; got -1.0"),
    ],
)
def test_evaluate_refuses_what_is_not_a_policy(policy, sentence):
    with pytest.raises(ValueError, match=sentence):
        sd.evaluate(sd.problems.make("random", episodes=1).at(0), policy)


@pytest.mark.parametrize("episodes", [[], [10], [-1], [[0]]])
def test_optima_refuse_episodes_that_are_not_there(episodes):
    world = sd.problems.make("random", episodes=10)
    with pytest.raises(ValueError, match="episodes must be"):
        sd.optima(world, np.array(episodes, dtype=int))


def test_a_threshold_missed_by_rounding_has_an_honest_certificate():
    """The best arm misses b by 9e-13, within tolerance; μ* = 1e11 must not multiply that miss."""
    g = np.array([0.5, 0.5 + 1e-11])
    cmdp = sd.TabularCMDP(
        np.ones((1, 1, 2, 1)), [[[1.0, 0.0]]], g.reshape(1, 1, 1, 2), [g[1] + 9e-13], [1.0]
    )
    found = solve(cmdp)
    assert found.status == "optimal"
    assert found.gamma == 0
    assert found.gap >= -1e-4  # μ* times the last digit of a utility
    assert found.value == pytest.approx(0, abs=1e-4)


def test_policy_changes_are_those_of_one_path_also_where_optima_are_not_unique():
    """Across chunks too: no change exceeds that between the policies returned."""
    rng = np.random.default_rng(34)
    cmdps = []
    for _ in range(70):
        P = rng.dirichlet(np.ones(3), (2, 3, 2))
        r, g = rng.integers(0, 2, (2, 3, 2)) / 1.0, rng.integers(0, 2, (1, 2, 3, 2)) / 1.0
        cmdps.append(sd.TabularCMDP(P, r, g, [0.1], [1.0, 0, 0]))
    world = DriftingCMDP.from_sequence(cmdps)
    policies = np.empty((70, world.H, world.S, world.A))
    _, changes = _solve_episodes(world, np.arange(70), policies)
    whole = np.abs(np.diff(policies, axis=0)).sum(axis=3).max(axis=2)
    assert (changes[1:] <= whole + 1e-12).all()
    assert changes[32].any()
    assert not changes[0].any()
    np.testing.assert_allclose(optima(world).policy_change, changes.sum(axis=1))
