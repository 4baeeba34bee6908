"""Constrained optima of arrays: certificates recomputed, exact fractions, HiGHS as a witness."""

from fractions import Fraction

import numba
import numpy as np
import pytest

import naive
import safedrift as sd
from conftest import as_lists, random_scenarios, random_transitions
from safedrift.kernels import exact
from safedrift.kernels.planning import columns
from safedrift.kernels.planning import double_double as dd
from safedrift.oracles import chunks
from safedrift.planning import Plan, plan
from safedrift.planning.episodes import make_answers, make_ends

# ---------------------------------------------------------------- the certificate, independently


def greedy(P, signal):
    """max_π V_signal from each state, and a policy (H, S, A) that reaches it."""
    H, S, A = signal.shape
    V, policy = np.zeros(S), np.zeros((H, S, A))
    for h in range(H - 1, -1, -1):
        Q = signal[h] + P[h] @ V
        policy[h, np.arange(S), Q.argmax(axis=1)] = 1
        V = Q.max(axis=1)
    return V, policy


def values_of(P, signals, initial, policy):
    return np.array([naive.policy_value(P, signal, initial, policy) for signal in signals])


def check_certificate(world, found):
    """All that makes `found` an optimum, without the library; returns gap / (1 + Σμ)."""
    P, r, g, b, initial = world
    H = r.shape[0]
    mu, policy = found.multipliers, found.policy
    assert found.status == "optimal"
    assert policy.min() >= 0
    np.testing.assert_allclose(policy.sum(axis=2), 1, rtol=0, atol=1e-14)
    value, *utilities = values_of(P, (r, *g), initial, policy)
    assert found.value == pytest.approx(value, rel=0, abs=1e-13)
    np.testing.assert_allclose(found.utilities, utilities, rtol=0, atol=1e-13)
    lowest = 1e-13 * H if found.gamma >= 2e-13 * H else 1.2e-12 * H
    assert (b - utilities).max() <= lowest, "infeasible"
    assert mu.min() >= 0
    scale = 1 + mu.sum()
    short = np.maximum(b - utilities, 0)  # certified for the thresholds that are reached
    dual = initial @ greedy(P, r + np.tensordot(mu, g, axes=1))[0] - mu @ b + mu @ short
    gap = max(abs(dual - value), abs(found.gap)) / scale
    assert gap <= 2e-14 * H
    assert (mu * np.maximum(utilities - b, 0)).max() <= 1e-13 * H * scale, "complementarity"
    assert mu.sum() * found.gamma <= H + 1e-9, "Lemma 1: mu* <= H / gamma"
    return gap


# ---------------------------------------------------------------- 504 worlds, known Slater gaps


def draw(rng, K, successors=None):
    H, S, A = rng.integers(1, 6), rng.integers(1, 7), rng.integers(2, 5)
    P = random_transitions(rng, H, S, A, successors)
    return P, rng.random((H, S, A)), rng.random((K, H, S, A)), rng.dirichlet(np.ones(S))


def dense(rng, K):
    return draw(rng, K)


def sparse(rng, K):
    return draw(rng, K, successors=2)


def deterministic(rng, K):
    P, r, g, _ = draw(rng, K)
    S = P.shape[1]
    return np.eye(S)[rng.integers(0, S, P.shape[:3])], r, g, np.eye(S)[rng.integers(S)]


def ties(rng, K):
    """Very few different numbers, of which thirds are not exact."""
    P, r, g, initial = draw(rng, K)
    P = np.eye(P.shape[1])[rng.integers(0, P.shape[1], (*P.shape[:3], 3))].mean(axis=3)
    return P, rng.integers(0, 3, r.shape) / 2, rng.integers(0, 4, g.shape) / 3, initial


def zero_rewards(rng, K):
    P, r, g, initial = draw(rng, K)
    return P, np.zeros_like(r), g, initial


def opposed(rng, K):
    """V_g,1 + V_g,2 = H for every policy: with gap 0 both always bind."""
    P, r, g, initial = draw(rng, K)
    g[1] = 1 - g[0]
    return P, r, g, initial


def repeated(rng, K):
    """All constraints are the same one: the multipliers are not unique."""
    P, r, g, initial = draw(rng, K)
    return P, r, np.repeat(g[:1], K, axis=0), initial


FAMILIES = (dense, sparse, deterministic, ties, zero_rewards, opposed, repeated)
GAPS = (0.3, 1e-2, 1e-6, 1e-9, 1e-10, 0.0)
EACH = 6


def with_gap(P, r, g, initial, gamma):
    """Thresholds that make the Slater gap `gamma`: see `problems.random`."""
    safest = greedy(P, g.sum(axis=0))[1]
    return P, r, g, values_of(P, g, initial, safest) - gamma, initial


def worlds(family, K, gamma, n=EACH):
    rng = np.random.default_rng([*family.__name__.encode(), K, int(abs(gamma) * 1e12), gamma < 0])
    return [with_gap(*family(rng, K), gamma) for _ in range(n)]


def solved(family, world):
    if family is sparse:
        return plan(as_lists(world[0]), *world[1:])
    return plan(*world)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("K", [2, 3])
def test_every_certificate_holds(family, K):
    bound = 0
    for gamma in GAPS:
        for world in worlds(family, K, gamma):
            found = solved(family, world)
            check_certificate(world, found)
            assert found.gamma == pytest.approx(gamma, rel=0, abs=1e-14)
            bound += (found.multipliers > 1e-9).sum() > 1
            reference = naive.occupancy_lp(*world)
            if reference.status == 0:  # close to infeasible it may find none
                slop = 1e-8 + 1e-8 * found.multipliers.sum()
                assert found.value == pytest.approx(-reference.fun, rel=0, abs=slop)
    if family in (dense, sparse, deterministic, ties):
        assert bound > EACH * len(GAPS) / 4, "several constraints bind at once"


def test_there_are_five_hundred_of_them():
    assert len(FAMILIES) * len(GAPS) * 2 * EACH >= 500


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("excess", [1e-9, 1e-6, 0.1])
def test_infeasible_worlds_are_named_so_and_come_with_the_safest_policy(family, excess):
    for K in (2, 3):
        for world in worlds(family, K, -excess, 4):
            P, _, g, b, initial = world
            found = solved(family, world)
            assert found.status == "infeasible"
            assert np.isnan(found.value)
            assert np.isnan(found.gap)
            assert np.isinf(found.multipliers).all()
            assert found.gamma == pytest.approx(-excess, rel=0, abs=1e-14)
            reached = values_of(P, g, initial, found.policy)
            np.testing.assert_allclose(found.utilities, reached, rtol=0, atol=1e-13)
            assert (reached - b).min() == pytest.approx(-excess, rel=0, abs=1e-13)


@pytest.mark.parametrize("K", [2, 3, 5, 8])
def test_thresholds_of_a_random_policy(K):
    """No construction: several constraints bind in different numbers."""
    rng = np.random.default_rng(K)
    for _ in range(12):
        P, r, g, initial = draw(rng, K)
        policy = rng.dirichlet(np.full(r.shape[2], 0.3), r.shape[:2])
        b = values_of(P, g, initial, policy) * rng.uniform(0.9, 1)
        found = plan(P, r, g, b, initial)
        check_certificate((P, r, g, b, initial), found)
        assert found.gamma == pytest.approx(naive.largest_slack(P, g, b, initial), abs=1e-8)


@pytest.mark.parametrize("gamma", [0.1, 1e-9, 0.0])
def test_equal_to_the_optimum_in_exact_fractions(gamma):
    rng = np.random.default_rng(int(gamma * 1e9))
    for K, sizes in ((2, (2, 2, 2)), (2, (1, 3, 2)), (3, (1, 2, 3))):
        H, S, A = sizes
        P = random_transitions(rng, H, S, A)
        r, g, initial = rng.random((H, S, A)), rng.random((K, H, S, A)), rng.dirichlet(np.ones(S))
        world = with_gap(P, r, g, initial, gamma)
        found = plan(*world)
        value, slack = naive.exact_optimum(*world)
        assert found.gamma == pytest.approx(float(max(slack, 0)), rel=0, abs=1e-15)
        if value is not None:  # rounding of the threshold may leave nothing exactly feasible
            scale = 1 + found.multipliers.sum()
            assert abs(Fraction(found.value) - value) <= 2e-13 * H * scale


# ---------------------------------------------------------------- known on paper


def bandit(arms, b):
    """One state, one step; arms (r, g_1, ..., g_K)."""
    r, *g = np.array(arms, float).T
    return plan(np.ones((1, 1, len(arms), 1)), r[None, None], np.array(g)[:, None, None], b, [1])


def test_three_arms():
    found = bandit([(1, 0, 0), (0, 1, 0), (0, 0, 1)], [1 / 4, 1 / 2])
    assert isinstance(found, Plan)
    assert found.value == pytest.approx(1 / 4, abs=1e-15)
    np.testing.assert_allclose(found.multipliers, [1, 1], atol=1e-15)
    np.testing.assert_allclose(found.policy[0, 0], [1 / 4, 1 / 4, 1 / 2], atol=1e-15)
    # Without the first arm, shares 1/4 + t and 1/2 + t add up to 1.
    assert found.gamma == pytest.approx(1 / 8, abs=1e-15)


def test_one_of_two_constraints_binds():
    found = bandit([(1, 1 / 2, 0), (0, 1, 1)], [1 / 4, 1 / 2])
    assert found.value == pytest.approx(1 / 2, abs=1e-15)
    np.testing.assert_allclose(found.multipliers, [0, 1], atol=1e-15)
    np.testing.assert_allclose(found.utilities, [3 / 4, 1 / 2], atol=1e-15)
    assert found.gamma == pytest.approx(1 / 2, abs=1e-15)


def test_neither_constraint_binds():
    found = bandit([(1, 1 / 2, 1 / 2), (0, 1, 1)], [1 / 4, 1 / 2])
    assert (found.value, found.gap) == (1, 0)
    assert not found.multipliers.any()
    assert not np.signbit(found.multipliers).any()


@pytest.mark.parametrize("power", [20, 30, 36])
def test_multipliers_as_large_as_the_gap_is_small(power):
    """The rich arm misses both thresholds by e - d; a share d/e = 1/8 of it may be played."""
    e, d = 2.0**-power, 2.0 ** -(power + 3)
    found = bandit([(0, 1, 0), (0, 0, 1), (1, 1 / 2 - e, 1 / 2 - e)], [1 / 2 - d] * 2)
    # Powers of two: only the policy's own values are rounded, to 1e-16 times the multipliers.
    assert found.value == pytest.approx(1 / 8, rel=0, abs=2e-16 / e)
    np.testing.assert_allclose(found.multipliers, 1 / (2 * e), rtol=1e-12)
    assert found.gamma == pytest.approx(d, rel=1e-12)
    assert abs(found.gap) <= 1e-15 * (1 + found.multipliers.sum())


def test_two_steps_from_two_starts():
    # Either start (1/4 and 3/4) offers reward, g_1 or g_2, on two steps. V_g ≥ (3/4, 1/2) leaves
    # 2 - 3/4 - 1/2 for reward; the safest policy splits 2 so that 2 x the gap + 5/4 = 2.
    P = np.full((2, 2, 3, 2), 1 / 2)
    pick = np.broadcast_to(np.eye(3)[:, None, None], (3, 2, 2, 3))
    found = plan(P, pick[0], pick[1:], [3 / 4, 1 / 2], [1 / 4, 3 / 4])
    assert found.value == pytest.approx(3 / 4, abs=1e-15)
    np.testing.assert_allclose(found.multipliers, [1, 1], atol=1e-14)
    assert found.gamma == pytest.approx(3 / 8, abs=1e-15)


def test_policies_that_tie_but_for_rounding_stay_in():
    """gamma = 0 and many equally safe mixtures: noise must not decide which may be played."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        P, r, g, initial = draw(rng, 2)
        H = r.shape[0]
        g[1] = 1 - g[0]
        free = initial @ greedy(P, r)[0]
        b = values_of(P, g, initial, greedy(P, r)[1])  # the best policy of all is just safe
        found = plan(P, r, g, b, initial)
        assert found.gamma == pytest.approx(0, abs=1e-14)
        assert found.value == pytest.approx(free, rel=0, abs=1e-10 * H)


@pytest.mark.parametrize("power", [45, 52])
def test_an_arm_that_misses_by_rounding_is_safe(power):
    almost = 1 / 2 - 2.0**-power
    found = bandit([(0, 1 / 2, 1 / 2), (1, almost, almost)], [1 / 2, 1 / 2])
    assert (found.status, found.value, found.gamma) == ("optimal", 1, 0)
    assert abs(found.gap) <= 1e-15


def test_finely_curved_frontier_is_followed_to_its_last_edge():
    # Arms on a quarter of a circle, 1e-5 apart: the chords leave it by 1e-11.
    angle = np.linspace(0, np.pi / 2, 157_080)
    r, g = np.cos(angle), np.sin(angle)
    for b in (0.5, 0.123, 0.99):
        found = bandit(np.stack((r, g, np.full_like(r, 0.75)), axis=1), [b, 0.5])
        assert found.value == pytest.approx(np.interp(b, g, r), rel=0, abs=1e-13)
        assert abs(found.gap) <= 1e-14 * (1 + found.multipliers[0])
        assert found.multipliers[1] == 0


# ---------------------------------------------------------------- how it is found


@pytest.mark.parametrize("K", [1, 2, 3])
def test_a_warm_start_changes_nothing_but_the_time(K):
    rng = np.random.default_rng(K)
    for _ in range(10):
        world = with_gap(*draw(rng, K), 0.05)
        cold = plan(*world)
        for start in (cold.multipliers, np.zeros(K), np.full(K, 1e4), rng.exponential(1, K)):
            warm = plan(*world, multipliers=start)
            check_certificate(world, warm)
            assert warm.value == pytest.approx(cold.value, rel=0, abs=1e-12)
            assert warm.gamma == pytest.approx(cold.gamma, rel=0, abs=1e-14)
            np.testing.assert_allclose(warm.multipliers, cold.multipliers, atol=1e-9)
    infeasible = with_gap(*draw(rng, K), -0.05)
    assert plan(*infeasible, multipliers=np.ones(K)).status == "infeasible"


def test_good_multipliers_save_time():
    rng = np.random.default_rng(0)
    saved = 0
    for _ in range(20):
        world = with_gap(*draw(rng, 2), 0.05)
        cold = plan(*world)
        saved += cold.iterations - plan(*world, multipliers=cold.multipliers).iterations
    assert saved > 0


def test_column_generation_with_one_constraint_agrees_with_the_method_of_lines():
    world = sd.problems.make("random", episodes=40, drift="random_walk", gamma=0.2)
    tables, n = world.arrays, 40
    H, S, A = world.H, world.S, world.A
    answers, changes = make_answers(n, 1), np.empty((n, H))
    scratch = columns.make_scratch(tables.states.size, H, S, A, 1)
    columns.solve_episodes(
        tables, tables.rewards[:, None], np.arange(n), np.empty(0), answers, changes,
        np.empty((0, H, S, A)), make_ends(tables), scratch,
    )  # fmt: skip
    lines = sd.optima(world)
    assert (answers.status == exact.OPTIMAL).all()
    for field in ("value", "utilities", "multipliers", "gamma"):
        np.testing.assert_allclose(getattr(answers, field), getattr(lines, field), atol=1e-12)


def test_few_places_for_columns_are_enough(monkeypatch):
    """Large worlds have room for few policies at a time: columns are dropped and found again."""
    world = with_gap(*draw(np.random.default_rng(8), 3), 0.01)
    plenty = plan(*world)
    make = columns.make_scratch
    few = 8

    def small(entries, H, S, A, K):
        scratch = make(entries, H, S, A, K)
        return scratch._replace(
            actions=scratch.actions[:few].copy(),
            keep=scratch.keep[:few].copy(),
            master=columns.make_master(few, K),
        )

    monkeypatch.setattr(columns, "make_scratch", small)
    tight = plan(*world)
    check_certificate(world, tight)
    assert plenty.iterations > few
    assert tight.value == pytest.approx(plenty.value, rel=0, abs=1e-13)


def test_a_hundred_thousand_states_as_successor_lists():
    """No S*S array: it would take 80 GB per step. Ten of the states can be reached."""
    rng = np.random.default_rng(0)
    H, S, A, K, few, width = 3, 100_000, 2, 2, 10, 3
    rows = H * S * A
    first = rng.integers(0, few - width, rows)
    states = (first[:, None] + np.arange(width)).ravel()
    p = rng.dirichlet(np.ones(width), rows)
    r, g = rng.random((H, S, A)), rng.random((K, H, S, A))
    initial = np.zeros(S)
    initial[:few] = 1 / few
    lists = sd.Successors(np.arange(rows + 1) * width, states, p.ravel())
    P = np.zeros((H, S, A, few))
    np.put_along_axis(P.reshape(rows, few), states.reshape(rows, width), p, axis=1)
    small = P[:, :few], r[:, :few], g[:, :, :few], initial[:few]
    world = with_gap(*small, 0.1)
    found = plan(lists, r, g, world[3], initial)
    assert found.value == pytest.approx(plan(*world).value, rel=0, abs=1e-13)
    cut = Plan(**(vars(found) | {"policy": found.policy[:, :few]}))
    check_certificate(world, cut)


@pytest.mark.parametrize("K", [2, 3])
def test_optima_are_the_same_bits_with_any_number_of_threads(monkeypatch, K):
    scenarios = random_scenarios(np.random.default_rng(K), 3, K=K)
    world = sd.DriftingCMDP(scenarios, sd.drift.random_walk(150, 3, 0.1, seed=1))
    results = []
    for threads in (1, 4):
        monkeypatch.setattr(chunks.os, "cpu_count", lambda n=threads: n)
        results.append(sd.optima(world))
    for field in ("value", "utilities", "multipliers", "gap", "gamma", "policy_change"):
        first, second = (getattr(found, field).tobytes() for found in results)
        assert first == second, field


# ---------------------------------------------------------------- any finite numbers


@pytest.mark.parametrize("K", [1, 2])
def test_rewards_and_utilities_of_any_sign(K):
    """A shift of all rewards moves the value by H times as much, and nothing else."""
    rng = np.random.default_rng(9)
    P, r, g, b, initial = with_gap(*draw(rng, K), 0.05)
    H = r.shape[0]
    plain, shifted = plan(P, r, g, b, initial), plan(P, r - 5, g - 3, b - 3 * H, initial)
    assert shifted.value == pytest.approx(plain.value - 5 * H, abs=1e-12)
    assert shifted.gamma == pytest.approx(plain.gamma, abs=1e-12)
    np.testing.assert_allclose(shifted.multipliers, plain.multipliers, atol=1e-9)


GOOD = {
    "transitions": np.full((2, 2, 2, 2), 0.5),
    "rewards": np.zeros((2, 2, 2)),
    "utilities": np.ones((2, 2, 2, 2)),
    "thresholds": np.ones(2),
    "initial": np.array([0.5, 0.5]),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": np.zeros((2, 2))}, r"rewards must be an array of shape \(H, S, A\)"),
        ({"rewards": np.full((2, 2, 2), np.nan)}, r"rewards must be finite; got nan at index \(0"),
        ({"utilities": np.ones((2, 2, 2))}, r"utilities must be an array of shape \(K, 2, 2, 2\)"),
        ({"thresholds": np.ones(3)}, r"thresholds must be an array of shape \(2,\)"),
        ({"thresholds": [1, np.inf]}, "thresholds must be finite; got inf at index 1"),
        ({"initial": [0.5, 0.6]}, "each row of initial must be a distribution"),
        ({"transitions": np.ones((2, 2, 2, 2))}, "each row of transitions must be a distribution"),
        ({"transitions": np.ones((2, 2, 2))}, r"transitions must be an array of shape \(2, 2, 2"),
        ({"transitions": sd.Successors(np.arange(9), np.full(8, 2), np.ones(8))},
         r"transitions.states must be in \[0, 1\]; got 2 at index 0"),
        ({"multipliers": [1.0]}, r"multipliers must be an array of shape \(2,\)"),
        ({"multipliers": [1.0, -1.0]}, "multipliers must be >= 0; got -1.0 at index 1"),
    ],
)  # fmt: skip
def test_bad_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        plan(**(GOOD | changes))


def test_input_is_not_changed_and_may_be_read_only():
    arrays = {name: array.copy() for name, array in GOOD.items()}
    for array in arrays.values():
        array.setflags(write=False)
    plan(**arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, GOOD[name])


# ---------------------------------------------------------------- 32 digits


@numba.njit
def operations(a, a_low, b, b_low):
    numbers = a, a_low, b, b_low
    return dd.add(*numbers), dd.multiply(*numbers), dd.divide(*numbers)


def test_double_double_arithmetic_has_thirty_digits():
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = rng.normal(size=2) * 10.0 ** rng.integers(-8, 8, 2)
        a_low, b_low = a * rng.normal() * 1e-17, b * rng.normal() * 1e-17
        x, y = Fraction(a) + Fraction(a_low), Fraction(b) + Fraction(b_low)
        for (high, low), true in zip(
            operations(a, a_low, b, b_low), (x + y, x * y, x / y), strict=True
        ):
            scale = abs(true) if true != x + y else abs(x) + abs(y)
            assert abs(Fraction(high) + Fraction(low) - true) <= Fraction(1, 10**30) * scale
            assert high == high + low
