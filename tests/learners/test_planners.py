"""Planning rivals: against a linear program on plain counts, and where the answer is known."""

import numpy as np
import pytest
from scipy import stats

import safedrift as sd
from builders import columns_of
from naive_planners import constrained_optimum, counts, weights_of
from safedrift.experiments.playing import play_episode
from safedrift.learners.generators import standard_gamma
from safedrift.learners.rivals.planner import _due, _episodes_to_next_plan, empirical
from safedrift.models.stepping import stepper_for, uniforms_per_episode

FORGETTING = ("never", "periodic", "sliding", "discounted")


def play(world, learner, episodes, seed=0):
    """Play episode by episode; yields trace and past episodes before each is added to them."""
    rng = np.random.default_rng(seed)
    stepper = stepper_for(world, noisy=True)
    draws = uniforms_per_episode(world.H, world.K, stepper.next_draws)
    past = []
    for m in range(episodes):
        policy = np.asarray(learner.begin_episode(world.thresholds[m]))
        episode = play_episode(learner, stepper, m, rng.random(world.H), rng.random(draws))
        learner.end_episode(episode)
        yield m, policy, learner.trace(), list(past)
        past.append(episode)


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("forgetting", FORGETTING)
@pytest.mark.parametrize("name", ["certainty-equivalence", "opt-cmdp"])
def test_plans_are_optimal_for_plain_counts(name, forgetting, constraints):
    world = sd.problems.make("random", 60, 3, states=4, actions=2, horizon=3, gamma=0.3,
                             constraints=constraints)  # fmt: skip
    learner = sd.learners.make(name, world, forgetting=forgetting, window=17, replan_every=6)
    kept = learner.algorithm.forgetting
    H, S, A, K = learner.sizes[1:]
    plans = 0
    for m, _, trace, past in play(world, learner, 60):
        if not trace["replanned"]:
            continue
        n, successors, sums = counts(past, weights_of(kept, m), H, S, A, K)
        means = sums / np.where(n > 0, n, 1.0)
        if name == "opt-cmdp":
            left = H - np.arange(H)[:, None, None]
            means = np.minimum(means + 0.1 / np.sqrt(np.where(n > 0, n, 1.0)), left)
        best = constrained_optimum(n, successors, means, world.thresholds[m], world.initial)
        assert trace["feasible"] == (best is not None)
        if best is not None:
            assert trace["estimated_reward"] == pytest.approx(best[0], abs=1e-6)
            assert (trace["estimated_utility"] >= world.thresholds[m] - 1e-9).all()
            plans += 1
    assert plans >= 5


@pytest.mark.parametrize("forgetting", FORGETTING)
@pytest.mark.parametrize("name", ["certainty-equivalence", "posterior-sampling"])
def test_fast_path_and_loop_agree_where_windows_end_between_plans(name, forgetting):
    world = sd.problems.make("random", 70, 5, states=4, actions=3, horizon=3, gamma=0.3)
    # A window ends 2 episodes after a plan, and plans are due 1 and 2 episodes after that.
    learner = sd.learners.make(name, world, forgetting=forgetting, window=14, replan_every=6)
    fast, slow = (columns_of(world, learner.fresh(4), slow=slow) for slow in (False, True))
    assert fast.keys() == slow.keys()
    for column in fast:
        np.testing.assert_array_equal(fast[column], slow[column], err_msg=column)


def test_planned_policy_has_the_planned_value():
    """With all data of a stationary world, exact signals and sure moves, plan and world agree."""
    world = _two_arms()
    learner = sd.learners.make("certainty-equivalence", world, forgetting="never", replan_every=1)
    *_, (_, policy, trace, _) = play(world, learner, 10)
    np.testing.assert_allclose(policy[0, 0], [0.75, 0.25], atol=1e-12)
    assert trace["estimated_reward"] == pytest.approx(0.75)
    assert trace["mu"] == pytest.approx([1.0])


def _two_arms():
    """One step, one state, arms (1, 0) and (0, 1) of reward and utility, threshold 1/4."""
    P, r = np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.0]]])
    one = sd.TabularCMDP(P, r, 1 - r[None], [0.25], [1.0])
    return sd.DriftingCMDP([one], np.ones((50, 1)))


def test_infeasible_estimates_play_the_safest_policy():
    """Threshold 1 is reached by the second arm alone; noise may make it look unreachable."""
    P, r = np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.5]]])
    g = np.array([[[[0.2, 0.9]]]])
    world = sd.DriftingCMDP([sd.TabularCMDP(P, r, g, [0.9], [1.0])], np.ones((300, 1)))
    learner = sd.learners.make("certainty-equivalence", world, forgetting="never", replan_every=1)
    seen = [(trace, policy) for _, policy, trace, _ in play(world, learner, 300) if
            not trace["feasible"]]  # fmt: skip
    assert seen
    for trace, policy in seen:
        assert np.isnan(trace["mu"]).all()
        assert policy[0, 0, 1] == 1.0


@pytest.mark.parametrize("name", ["certainty-equivalence", "opt-cmdp", "posterior-sampling"])
def test_a_window_as_long_as_the_run_is_no_window(name):
    world = sd.problems.make("random", 120, 8, gamma=0.3)
    runs = [
        sd.simulate(world, sd.learners.make(name, world, forgetting=kind, window=120), noisy=True)
        for kind in ("never", "periodic", "sliding")
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].outcome.reward, other.outcome.reward)
        np.testing.assert_array_equal(runs[0].policy, other.policy)


def test_replanning_schedule():
    """1, 2, 4, 8, 16 episodes after a restart, then every 25; both functions agree."""
    due = [age for age in range(101) if _due(age, 25)]
    assert due == [1, 2, 4, 8, 16, 25, 50, 75, 100]
    for every in (1, 2, 3, 25):
        for age in range(60):
            ahead = next(n for n in range(1, 100) if _due(age + n, every))
            assert _episodes_to_next_plan(age, every) == ahead


def test_posterior_is_centred_at_the_counts_and_narrows():
    """Shares drawn for a pair have mean (n' + prior at unseen)/(n + prior)."""
    from safedrift.learners.rivals.posterior_sampling import drawn

    world = sd.problems.make("random", 400, 3, states=3, actions=2, horizon=3, gamma=0.3)
    learner = sd.learners.make("certainty-equivalence", world, forgetting="never")
    for _ in play(world, learner, 400):
        pass
    estimate, rng = empirical(learner.algorithm.memory), np.random.default_rng(0)
    model = estimate.model
    samples = [drawn(0.5, estimate, rng) for _ in range(2000)]
    shares = np.array([sample.probabilities for sample in samples])
    offsets = samples[0].model.offsets
    busiest = int(np.argmax(model.visits[: world.H - 1]))  # row with a successor distribution
    entries = slice(offsets[busiest], offsets[busiest + 1])
    alpha = samples[0].model.times[entries]
    total = alpha.sum()
    np.testing.assert_allclose(shares[:, entries].sum(axis=1), 1.0, atol=1e-12)
    error = np.sqrt(alpha * (total - alpha) / (total**2 * (total + 1)) / 2000)
    assert (np.abs(shares[:, entries].mean(axis=0) - alpha / total) < 5 * error).all()
    assert alpha[-1] == 0.5
    assert samples[0].model.states[entries][-1] == model.visits.shape[1] - 1


@pytest.mark.parametrize("shape", [0.05, 0.7, 1.0, 3.5, 200.0])
def test_gamma_draws(shape):
    sample = standard_gamma(np.full(20_000, shape), np.random.default_rng(5))
    assert stats.kstest(sample, stats.gamma(shape).cdf).pvalue > 1e-3
    other = standard_gamma(np.full(20_000, shape * 1.1), np.random.default_rng(6))
    assert stats.kstest(other, stats.gamma(shape).cdf).pvalue < 1e-3


def test_bad_options():
    world = sd.problems.make("maze", 20)
    for name, option, match in [
        ("opt-cmdp", {"constants": "mine"}, "constants must be one of 'printed', 'practical'"),
        ("opt-cmdp", {"bonus_scale": -1}, "bonus_scale must be finite and >= 0"),
        ("opt-cmdp", {"forgetting": "slidng"}, "did you mean 'sliding'"),
        ("posterior-sampling", {"prior": 0}, "prior"),
        ("certainty-equivalence", {"replan_every": 0}, "replan_every"),
        ("certainty-equivalence", {"window": 0}, "window"),
    ]:
        with pytest.raises(ValueError, match=match):
            sd.learners.make(name, world, **option)


def test_printed_bonus_is_vacuous_and_says_so():
    """At any M one can run, the printed bonus exceeds what is left to earn: nothing is learnt."""
    world = sd.problems.make("random", 300, 3, gamma=0.3)
    learner = sd.learners.make("opt-cmdp", world, constants="printed", forgetting="never")
    run = sd.simulate(world, learner)
    assert run.manifest.learner.settings["bonus_scale"] == 1.0
    late = run.trace["estimated_reward"][-50:]
    assert (late > world.H).all()  # beyond what any policy can earn
