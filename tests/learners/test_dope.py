"""DOPE: its linear program, its counts, its intervals, and a world with a known answer."""

import numpy as np
import pytest

import safedrift as sd
from builders import small_world
from naive_dope import best_value, weighted_counts
from safedrift.learners.forgetting import named_forgetting
from safedrift.learners.rivals.dope import confidence
from safedrift.learners.rivals.window_counts import WindowCounts
from safedrift.planning.extended_program import plan_within_intervals


def random_program(seed, H=3, S=3, A=2, K=1):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(S), (H - 1, S, A))
    width = rng.random(P.shape) * 0.3
    low, high = np.maximum(P - width, 0), np.minimum(P + width, 1)
    rewards, utilities = rng.random((H, S, A)) * 2, rng.random((K, H, S, A)) - 0.2
    return low, high, rewards, utilities, np.full(K, 0.3 * H), rng.dirichlet(np.ones(S))


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_program_agrees_with_the_dense_one(seed, K):
    parts = random_program(seed, K=K)
    low, high, rewards, utilities, thresholds, initial = parts
    wanted, found = best_value(*parts), plan_within_intervals(*parts)
    assert (wanted is None) == (found is None)
    if found is None:
        return
    assert found.value == pytest.approx(wanted, abs=1e-9)
    z, q = found.occupancy, found.flow
    assert (z * rewards).sum() == pytest.approx(wanted, abs=1e-9)
    assert ((z * utilities).sum(axis=(1, 2, 3)) >= thresholds - 1e-9).all()
    np.testing.assert_allclose(z[0].sum(axis=-1), initial, atol=1e-9)
    np.testing.assert_allclose(q.sum(axis=(1, 2)), z[1:].sum(axis=-1), atol=1e-9)
    np.testing.assert_allclose(q.sum(axis=-1), z[:-1], atol=1e-9)
    assert (q <= high * z[:-1, ..., None] + 1e-9).all()
    assert (q >= low * z[:-1, ..., None] - 1e-9).all()


def test_most_random_programs_are_feasible_and_an_impossible_one_is_not():
    assert sum(plan_within_intervals(*random_program(seed)) is not None for seed in range(4)) >= 2
    low, high, rewards, utilities, _, initial = random_program(0)
    assert plan_within_intervals(low, high, rewards, utilities, np.array([4.0]), initial) is None


def test_program_without_width_is_the_constrained_optimum():
    cmdp = small_world(M=1).at(0)
    P = cmdp.dense_transitions()[:-1]
    found = plan_within_intervals(P, P, cmdp.rewards, cmdp.utilities, cmdp.thresholds, cmdp.initial)
    assert found.value == pytest.approx(sd.solve(cmdp).value, abs=1e-9)


# ---------------------------------------------------------------- counts and intervals


@pytest.mark.parametrize("kind", ["never", "periodic", "sliding", "discounted"])
def test_counts_are_those_of_the_window(kind):
    M, H, S, A, K, W = 23, 3, 4, 2, 2, 5
    rng = np.random.default_rng(0)
    rule = named_forgetting(kind, W, M)
    counts, episodes = WindowCounts(H, S, A, K, rule.held), []
    for m in range(M):
        counts.forget(rule.schedule(m, 1))
        age = m - np.arange(m)  # of the episodes so far
        weights = {
            "never": np.ones(m),
            "periodic": (age <= m % W) * 1.0,
            "sliding": (age < W) * 1.0,
            "discounted": (1 - 1 / W) ** age,
        }[kind]
        wanted = weighted_counts(episodes, weights, H, S, A, K)
        for one, other in zip(
            (counts.visits, counts.transitions, counts.signals), wanted, strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-12)
        seen = (rng.integers(S, size=H), rng.integers(A, size=H), rng.random((1 + K, H)))
        episodes.append(seen)
        counts.add(*seen)


def test_intervals_by_hand():
    visits, transitions = np.zeros((2, 1, 2)), np.zeros((1, 1, 2, 1))
    visits[0, 0, 0] = 4.0
    transitions[0, 0, 0, 0] = 1.0  # a quarter
    L = 0.01
    low, high, spread, beta = confidence(visits, transitions, L, 0.04, capped=False)
    width = 2 * np.sqrt(L * 0.25 * 0.75 / 4) + 14 * L / 12
    assert low[0, 0, 0, 0] == pytest.approx(0.25 - width, abs=1e-15)
    assert high[0, 0, 0, 0] == pytest.approx(0.25 + width, abs=1e-15)
    assert spread[0, 0, 0] == pytest.approx(width, abs=1e-15)
    assert beta[0, 0].tolist() == pytest.approx([0.1, 0.2])
    assert (low[0, 0, 1, 0], high[0, 0, 1, 0], spread[1].max()) == (0.0, 1.0, 0.0)
    *_, capped = confidence(visits, transitions, L, 0.04, capped=True)
    assert capped[0, 0].tolist() == pytest.approx([0.1, 1.0])


# ---------------------------------------------------------------- the learner


def two_action_world(M, threshold=0.5):
    """One state and step, r = (1, 0), g = (0, 1), b = 0.5: V_r* = 0.5, mixing equally."""
    cmdp = sd.TabularCMDP(np.ones((1, 1, 2, 1)), [[[1.0, 0.0]]], [[[[0.0, 1.0]]]], [0.5], [1.0])
    return sd.DriftingCMDP([cmdp], np.ones((M, 1)), thresholds=np.full((M, 1), threshold))


SAFE = {"safe_policy": [[[0.0, 1.0]]], "safe_utility": 1.0, "forgetting": "never"}


def test_never_unsafe_and_nearly_optimal_in_the_end():
    world = two_action_world(600)
    run = sd.simulate(world, sd.learners.make("dope", world, L=0.01, **SAFE), seed=1)
    assert (run.outcome.utility >= 0.5 - 1e-9).all()
    assert run.outcome.reward[0] == 0.0
    assert run.outcome.reward[-1] > 0.48
    assert run.trace["planned"].mean() > 0.9


@pytest.mark.parametrize("K", [1, 2])
def test_plans_with_optimistic_rewards_and_pessimistic_utilities(K):
    """The program's value, from the formulas of the paper and counts made by hand."""
    world = small_world(M=41, S=3, A=2, H=3, K=K, drift="stationary")
    uniform = np.full((3, 3, 2), 0.5)
    b = np.full((41, K), 1.6 if K == 1 else 1.45)
    known = {"safe_policy": uniform, "safe_utility": b[0] + 0.7}
    learner = sd.learners.make("dope", world, **known, replan_every=40, forgetting="never", L=1e-3)
    rng, episodes = np.random.default_rng(0), []
    for m in range(41):
        policy = learner.begin_episode(b[m])
        seen = (rng.integers(3, size=3), rng.integers(2, size=3), rng.random((1 + K, 3)))
        learner.end_episode(sd.Trajectory(*seen[:2], seen[2][0], seen[2][1:]))
        episodes.append(seen)
    visits, transitions, signals = weighted_counts(episodes[:40], np.ones(40), 3, 3, 2, K)
    assert visits.min() > 0
    P, n = transitions / visits[:-1, ..., None], visits[:-1, ..., None]
    width = 2 * np.sqrt(1e-3 * P * (1 - P) / n) + 14 * 1e-3 / (3 * n)
    total = np.append(width.sum(axis=-1), np.zeros((1, 3, 2)), axis=0)
    beta = np.sqrt(1e-3 / visits)
    rewards = signals[0] / visits + 3 * 3 / 0.7 * beta + 3**2 / 0.7 * total
    utilities = signals[1:] / visits - beta - 3 * total
    low, high = np.maximum(P - width, 0), np.minimum(P + width, 1)
    wanted = best_value(low, high, rewards, utilities, b[0], world.initial)
    free = best_value(low, high, rewards, utilities, b[0] - 10, world.initial)
    assert wanted < free - 0.001  # the constraint binds
    trace = learner.trace()
    assert trace["planned"] == 1.0
    assert trace["planned_reward"] == pytest.approx(wanted, abs=1e-9)
    assert not np.array_equal(policy, uniform)


def test_plays_the_safe_policy_while_there_is_no_plan():
    world = two_action_world(60)
    run = sd.simulate(world, sd.learners.make("dope", world, constants="printed", **SAFE))
    assert not run.trace["planned"].any()
    assert (run.outcome.utility == 1.0).all()
    world = two_action_world(60, threshold=1.0)  # no slack
    run = sd.simulate(world, sd.learners.make("dope", world, **SAFE))
    assert not run.trace["planned"].any()


def test_plans_anew_when_a_count_has_doubled():
    world = two_action_world(100)
    learner = sd.learners.make("dope", world, L=0.01, replan_every="doubling", **SAFE)
    plans = []
    for m in range(100):
        before = learner.algorithm.last_visits
        learner.begin_episode(world.thresholds[m])
        if learner.algorithm.last_visits is not before:
            plans.append(m)
        learner.end_episode(sd.Trajectory([0], [1], [0.0], [1.0]))
    assert plans == [0, 1, 2, 4, 8, 16, 32, 64]


def test_interrupted_between_two_plans():
    world = small_world(M=40, S=3, A=2, H=3)
    known = {"safe_policy": np.full((3, 3, 2), 0.5), "safe_utility": world.thresholds[0] + 0.5}
    for kind in ("sliding", "discounted"):
        learner = sd.learners.make(
            "dope", world, **known, forgetting=kind, window=12, replan_every=7
        )
        rng, policies = np.random.default_rng(1), []
        for m in range(40):
            if m == 19:
                other = learner.fresh(5)
                other.restore(learner.state())
                learner = other
            policies.append(np.array(learner.begin_episode(np.array([0.5]))))
            signals = rng.random((2, 3))
            states, actions = rng.integers(3, size=3), rng.integers(2, size=3)
            learner.end_episode(sd.Trajectory(states, actions, signals[0], signals[1:]))
            if m == 18:
                assert learner.trace()["planned"] == 1.0
        np.testing.assert_array_equal(policies[19], policies[18])  # no plan in between


def test_refusals():
    world = two_action_world(10)
    with pytest.raises(TypeError, match="safe_policy and safe_utility must be given"):
        sd.learners.make("dope", world)
    with pytest.raises(TypeError, match="safe_policy and safe_utility must be given"):
        sd.learners.make("dope", world, safe_policy=SAFE["safe_policy"])
    for option, value in (
        ("safe_policy", [[[0.5, 0.6]]]), ("safe_utility", [1.0, 1.0]), ("replan_every", 0),
        ("replan_every", "often"), ("constants", "best"), ("L", 0.0), ("forgetting", "slowly"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{option} must be"):
            sd.learners.make("dope", world, **SAFE | {option: value})
    large = sd.problems.make("random", 2, states=60, actions=4, horizon=6, successors=2)
    known = {"safe_policy": np.full((6, 60, 4), 0.25), "safe_utility": 3.0}
    with pytest.raises(ValueError, match="world must be small enough for a linear program"):
        sd.learners.make("dope", large, **known)
