"""The adaptive planner against its slow twin: filters, alarms, events, model, plan and clock."""

from types import SimpleNamespace as Record

import numpy as np
import pytest

import naive_adaptive as twin
import safedrift as sd
from safedrift.experiments.playing import play_episode
from safedrift.kernels.tabular.reserve import WALKS
from safedrift.learners.adaptive_planner import MOVE_RATES, POOLING, SIGNAL_RATES
from safedrift.models.stepping import stepper_for, uniforms_per_episode

OPTIONS = {
    "caution": 0.0, "false_alarm_rate": 0.02, "replan_every": 6, "gain_per_plan": 0.001,
    "reward_bonus": 0.4, "utility_bonus": 0.2, "range_bonus": 0.1,
    "exploration": 0.01,
}  # fmt: skip


def bonuses_of(options):
    """The numbers of the model, from the options of `build`."""
    caution = options["caution"]
    return Record(
        reward=options["reward_bonus"], utility=options["utility_bonus"] - 0.2 * caution,
        range=options["range_bonus"], unknown_utility=1 - caution,
    )  # fmt: skip


FACTORS = 1e-6  # Γ of exact signals is nearly singular


def close(found, expected, what, tolerance=1e-10):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=what)


# ---------------------------------------------------------------- comparisons


def compare_pairs(cells, pairs, number, rounded, what):
    """Everything known of pairs; number(key) is the kernel's number of a pair.

    √J of a J that is 0 but for rounding is known to 1e-7 only: such n are compared, then taken.
    """
    assert cells.used[0] == len(pairs)
    for key, pair in pairs.items():
        c = cells.index[number(key)]
        assert (cells.last[c], cells.last_move[c]) == (pair.last, pair.last_move), (what, key)
        close(cells.n[c], pair.n, f"{what} n of {key}")
        for i, k in rounded:
            close(cells.signal[c, i, k, 0], pair.weight[i, k], f"{what} rounded n of {key}", 1e-4)
            pair.weight[i, k] = cells.signal[c, i, k, 0]
        assert cells.visits[c] == pair.visits
        close(cells.signal[c, :, :, 0], pair.weight, f"{what} signal n of {key}")
        close(cells.signal[c, :, :, 1], pair.mean, f"{what} means of {key}")
        found, e = {}, cells.head[c]
        while e >= 0:
            found[int(cells.edge_state[e])] = cells.edge_count[e] * cells.scale[c]
            e = cells.edge_next[e]
        assert found.keys() == pair.count.keys()
        for state, count in pair.count.items():
            close(found[state], count, f"{what} counts of {key} to {state}")


def compare_experts(found, expected, what):
    """Evidence that is 0 in one and a rounding error in the other is taken, not compared."""
    close(found.weight, expected.weight, f"{what} weights")
    close(found.v, expected.v, f"{what} v")
    assert found.seen[0] == expected.seen
    close(found.tails, expected.tails, f"{what} tails")
    for part, sums in enumerate(expected.evidence):
        close(found.C[part], sums.C, f"{what} C")
        tie = (found.C[part] > 0) != (sums.C > 0)
        sums.since[tie], sums.C[tie] = found.since[part][tie], found.C[part][tie]
        sums.excess[tie], sums.observations[tie] = found.excess[part][tie].T
        np.testing.assert_array_equal(found.since[part], sums.since, err_msg=f"{what} since")
        close(found.excess[part, ..., 0], sums.excess, f"{what} excess")
        np.testing.assert_array_equal(found.excess[part, ..., 1], sums.observations)


def all_experts(know):
    """Experts of transitions, reward and utilities."""
    signals = [type(know.moves)(*arrays) for arrays in zip(*know.signals, strict=True)]
    return [know.moves, *signals]


def compare_knowledge(memory, slow):
    know, (S, A), rounded = memory.know, (slow.S, slow.A), slow.rounded
    assert know.episode[0] == slow.m
    compare_pairs(
        know.own, slow.own, lambda key: (key[0] * S + key[1]) * A + key[2], rounded, "own"
    )
    compare_pairs(know.pooled, slow.pooled, lambda key: key[0] * A + key[1], rounded, "pooled")
    for i, (found, expected) in enumerate(zip(all_experts(know), slow.experts, strict=True)):
        compare_experts(found, expected, f"quantity {i}")
    assert list(know.binary) == slow.binary
    close(know.mean, slow.mean, "mean of all")
    compare_factors(know.factors, know.own, slow)
    np.testing.assert_array_equal(memory.clock.alarms, slow.alarms)


def compare_factors(factors, cells, slow):
    """Common factors, loadings and trust."""
    common = slow.common
    for w, (mean, variance) in enumerate(common.at):
        close(factors.mean[w], mean, "factors", FACTORS)
        close(factors.variance[w], variance[[0, 0, 1], [0, 1, 1]], "variance", FACTORS)
    close(factors.weight, common.weight, "weights of speeds", FACTORS)
    close(factors.v, common.v, "v of factors", FACTORS)
    close(factors.alpha, common.alpha, "α of factors", FACTORS)
    close(factors.trust, common.trust, "trust", FACTORS)
    for pair, known in common.pairs.items():
        c = cells.index[common.number(pair)]
        assert factors.visits[c] == known.N
        close(
            factors.gram[c] / (known.N + 1),
            known.gram[[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]],
            "Γ",
            FACTORS,
        )
        close(factors.signal[c] / (known.N + 1), known.signal, "sums of signals", FACTORS)
        edge = cells.head[c]
        while edge >= 0:
            wanted = known.after[int(cells.edge_state[edge])]
            close(factors.edge[edge] / (known.N + 1), wanted, "sums of successors", FACTORS)
            edge = cells.edge_next[edge]


def compare_events(events, slow):
    """Same alarms; the pair named is one of those with the largest difference."""
    assert len(events) == len(slow.events)
    for found, expected in zip(events, slow.events, strict=True):
        q = expected.quantity
        name = f"utility {q - 2}" if q > 1 else ("transition", "reward")[q]
        assert (found.episode, found.quantity) == (expected.episode, name)
        assert found.alarms == expected.alarms
        largest = max(abs(after - before) for *_, before, after in expected.candidates)
        assert abs(found.after - found.before) == pytest.approx(largest, abs=1e-9)
        successor = -1 if found.successor is None else found.successor
        place = (found.step, found.state, found.action, successor)
        assert any(
            place == one[:4] and np.allclose(one[4:], (found.before, found.after), atol=1e-9)
            for one in expected.candidates
        )


def dense_model(algorithm):
    """The kernel's model as arrays over all states, as the twin has it."""
    plan, model = algorithm.memory.plan, algorithm._work.model
    C, H, N, A = model.signals.shape
    S = plan.local.shape[1]
    P = np.zeros((H, S, A, S))
    signals, means = np.zeros((C, H, S, A)), np.zeros((C, H, S, A))
    reach = [[int(s) for s in plan.reach[h, : plan.count[h]]] for h in range(H)]
    for h in range(H):
        for i, s in enumerate(reach[h]):
            assert plan.local[h, s] == i
            signals[:, h, s], means[:, h, s] = model.signals[:, h, i], model.means[:, h, i]
            for a in range(A):
                row = (h * N + i) * A + a
                for e in range(model.offsets[row], model.offsets[row + 1]):
                    P[h, s, a, reach[h + 1][model.states[e]]] += model.p[e]
    return Record(P=P, signals=signals, means=means, reach=reach)


def snapshot(memory):
    """What a plan starts from."""
    return Record(
        **{name: getattr(memory.plan, name).copy() for name in ("values", "mu", "policy")},
        optimism=float(memory.plan.optimism[0]), slack=float(memory.plan.slack[0]),
        wait=float(memory.clock.wait[0]),
    )  # fmt: skip


def compare_returns(returns, promises):
    for k, off in enumerate(promises.off):
        means, variances = np.array(off).T
        close(returns.mean[k], means, f"mean of what promise {k} is off by")
        close(returns.variance[k], variances, f"variance of what promise {k} is off by")
    close(returns.weight, promises.weight, "weights of walks")
    close(returns.noise, promises.noise, "noise of returns")


def compare_plan(learner, slow, promises, before, boldness, thresholds, options):
    """The model is the twin's, the policy its optimum, and values and clock follow from both.

    Returns whether some policy is safe, and what the plan costs.
    """
    algorithm, memory = learner.algorithm, learner.algorithm.memory
    plan, initial = memory.plan, np.asarray(algorithm.setup.initial)
    bonuses = bonuses_of(options)
    chosen = [
        [(int(k), int(pool), share) for k, pool, share in quantity if share > 0]
        for quantity in algorithm._work.model.chosen
    ]
    wanted = twin.model_of(
        slow, chosen, np.flatnonzero(initial), before.values, before.mu, before.optimism, bonuses,
        boldness,
    )  # fmt: skip
    found = dense_model(algorithm)
    assert [set(states) for states in found.reach] == wanted.reach
    close(found.P, wanted.P, "P")
    close(found.means, wanted.means, "means")
    close(found.signals, wanted.signals, "signals with bonuses")
    aims = aims_of(promises, before, thresholds, options)
    feasible = check_optimal(plan, wanted, thresholds, aims, before.slack, initial)
    check_values(plan, wanted, initial)
    check_clock(memory, wanted, before, initial, options, slow.m)
    grown = before.optimism - bonuses.utility
    if feasible:
        grown = grown / 1.5 if grown > 0.05 else 0.0
    else:
        grown = min(max(1.5 * grown, 0.05), 3.0)
    assert plan.optimism[0] == pytest.approx(bonuses.utility + grown, abs=1e-12)
    cost = twin.cost_of_exploration(slow, wanted, plan.policy, plan.mu, initial)
    close(memory.exploration.cost[0], cost, "cost of the plan", 1e-8)
    return feasible, cost


def aims_of(promises, before, thresholds, options):
    """What is planned for: a share of the slack, and what promises are off by."""
    kept = 0.6 * options["caution"] ** 2 * max(before.slack, 0.0)
    above = [promises.aim(k, mu, before.slack - kept) for k, mu in enumerate(before.mu)]
    return np.asarray(thresholds) + kept + above


def lower_aims(model, thresholds, aims, usual, initial):
    """Aims that are tried one after the other: all, with several constraints a part, none.

    By concavity, of a slack `usual` without corrections that becomes negative with all of them.
    """
    yield aims
    if (aims > thresholds).any():
        if len(thresholds) > 1:
            missing = twin.largest_slack(model.P, model.signals, aims, initial)
            share = 0.95 * usual / (usual - missing) if usual > 0 else 0.5
            yield thresholds + share * (aims - thresholds)
        yield thresholds


def check_optimal(plan, model, thresholds, aims, usual, initial):
    """The constrained optimum under the first of these aims that a policy reaches."""
    thresholds = np.asarray(thresholds)
    for aim in lower_aims(model, thresholds, aims, usual, initial):
        best = twin.optimum(model.P, model.signals, aim, initial)
        if best is not None:
            break
    V = twin.evaluation(model.P, model.signals, plan.policy, model.reach)[:, 0] @ initial
    close(plan.policy.sum(axis=-1), 1.0, "policy")
    slack = twin.largest_slack(model.P, model.signals, aim, initial)
    close(plan.slack[0], slack + (aim - thresholds).min(), "slack", 1e-6)
    if best is None:
        assert plan.found[0] == 0.0
        np.testing.assert_array_equal(plan.mu, 10.0)
        assert (V[1:] - aim).min() == pytest.approx(slack, abs=1e-6)
        return False
    assert plan.found[0] == 1.0
    assert V[0] == pytest.approx(best, abs=1e-6)
    assert (V[1:] >= aim - 1e-6).all()
    if (plan.mu < 10).all():  # strong duality
        reward = model.signals[0] + np.tensordot(plan.mu, model.signals[1:], 1)
        dual = twin.best_value(model.P, reward, initial) - plan.mu @ aim
        assert dual == pytest.approx(best, abs=1e-6)
    return True


def check_values(plan, model, initial):
    V = twin.evaluation(model.P, model.means, plan.policy, model.reach)
    mixed = V[0] + np.tensordot(plan.mu, V[1:], 1)
    for h, states in enumerate(model.reach):
        for s in states:
            close(plan.values[0, h, s], mixed[h, s], "values", 1e-9)
            close(plan.values[1:, h, s], V[1:, h, s], "values of utilities", 1e-9)
    close(plan.found[1:], V[:, 0] @ initial, "value of the plan", 1e-9)


def check_clock(memory, model, before, initial, options, m):
    """The time to the next plan changes by √(wanted gain / gain), between 1/2 and 3/2."""
    H = len(model.reach)
    reward = model.signals[0] + np.tensordot(memory.plan.mu, model.signals[1:], 1)
    gain = twin.gain_of(model.P, reward, memory.plan.policy, before.policy, initial)
    gain = max(gain, 1e-12)
    factor = np.clip(np.sqrt(options["gain_per_plan"] * H / gain), 0.5, 1.5)
    wait = np.clip(before.wait * factor, 1, options["replan_every"])
    if gain > 1e-9:  # else rounding decides
        assert memory.clock.wait[0] == pytest.approx(wait, rel=1e-6)
    assert memory.clock.next_plan[0] == m + int(memory.clock.wait[0])


# ---------------------------------------------------------------- episodes


def twin_of(world, options):
    rates = (MOVE_RATES, SIGNAL_RATES)
    sizes = (world.H, world.S, world.A, world.K)
    return twin.Filters(*sizes, rates, POOLING, options["false_alarm_rate"])


def learn_both(learner, slow, episode, signals):
    """Let both learn from the episode in progress; whether planning is concerned."""
    know = learner.algorithm.memory.know
    heaviest = [int(e.weight.argmax()) for e in all_experts(know)]
    best = know.signals.best.copy()
    learner.end_episode(episode)
    wrong = slow.learn(episode.states, episode.actions, signals, best, heaviest)
    assert learner.trace()["alarm"] == wrong
    return wrong


def compared(world, options, noisy=False, change=None, seed=0, spent=0.0):
    """Play a world, compare at each plan and after each episode; returns what happened.

    change(m, signals) -> signals (1+K, H) that the learner sees instead; exploration has `spent`
    something before.
    """
    learner = sd.learners.make("adaptive-planner", world, **options)
    learner.algorithm.memory.exploration.spent[0] = spent
    slow = twin_of(world, options)
    rng, stepper = np.random.default_rng(seed), stepper_for(world, noisy=noisy)
    draws = uniforms_per_episode(world.H, world.K, stepper.next_draws)
    promises = twin.Promises(world.H, world.K, [None if x < 0 else x for x in WALKS])
    plans, feasible, asked = 0, [], 1
    cost, boldness = 0.0, [1.0]
    close(learner.algorithm.numbers.limits, slow.limits, "limits of alarms", 1e-12)
    for m in range(world.M):
        before = snapshot(learner.algorithm.memory)
        due = m >= asked
        learner.begin_episode(world.thresholds[m])
        assert learner.trace()["replanned"] == due
        if due:
            safe, cost = compare_plan(
                learner, slow, promises, before, boldness[-1], world.thresholds[m], options
            )
            feasible.append(safe)
            plans, asked = plans + 1, int(learner.algorithm.memory.clock.next_plan[0])
        episode = play_episode(learner, stepper, m, rng.random(world.H), rng.random(draws))
        signals = np.vstack((episode.rewards, episode.utilities))
        if change is not None:
            signals = change(m, signals)
            episode = sd.Trajectory(episode.states, episode.actions, signals[0], signals[1:])
        memory = learner.algorithm.memory
        wait = memory.clock.wait[0]
        wrong = learn_both(learner, slow, episode, signals)
        asked = m + 1 if wrong or slow.tried else asked
        assert memory.clock.wait[0] == (1.0 if wrong else wait)
        compare_knowledge(memory, slow)
        spent += cost
        known = len(slow.own)
        boldness.append(twin.boldness_of(spent, m + 1, options["exploration"], known, world.H))
        close(memory.exploration.share[0], boldness[-1], "share of the bonuses", 1e-7)
        if plans:
            promised = memory.plan.values[1:, 0, episode.states[0]]
            promises.see(promised, signals[1:].sum(axis=1))
        compare_returns(memory.returns, promises)
        if wrong:  # events change with alarms only
            compare_events(learner.events(), slow)
    compare_events(learner.events(), slow)
    return Record(
        learner=learner, slow=slow, plans=plans, feasible=np.array(feasible), boldness=boldness
    )


def drifting(M, seed, K=1, **options):
    sizes = {"states": 3, "actions": 2, "horizon": 3, "constraints": K, "gamma": 0.3}
    return sd.problems.make("random", M, seed, **(sizes | {"switches": 2} | options))


@pytest.mark.parametrize(
    ("K", "per_step"),
    [
        (1, False),
        (2, True),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in ((1, True), (2, False))),
    ],
)
def test_exact_signals(K, per_step):
    world = drifting(220, 1 + K, K, per_step=per_step)
    found = compared(world, OPTIONS)
    assert found.plans > 20
    assert (found.slow.alarms[1:].sum(axis=1) > 0).all()
    assert len(found.slow.events) >= 3


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_signals_of_two_values(K):
    """Few successors and pairs, so that transitions raise alarms too."""
    world = drifting(500, 4, K, successors=2, states=4, per_step=False)
    found = compared(world, OPTIONS | {"caution": 0.6}, noisy=True, seed=K)
    assert found.slow.binary == [True] * (1 + K)
    assert found.slow.alarms[0].sum() > 0
    assert found.slow.alarms[1:].sum() > 0


@pytest.mark.slow
def test_three_constraints():
    found = compared(drifting(70, 7, K=3, switches=1), OPTIONS)
    assert found.plans > 10
    assert found.slow.alarms[2:].sum() > 0


def test_continuous_noise():
    world = drifting(300, 6)
    rng = np.random.default_rng(5)

    def jitter(m, signals):
        return np.clip(signals + 0.1 * rng.standard_normal(signals.shape), 0, 1)

    found = compared(world, OPTIONS, change=jitter)
    assert found.slow.alarms[1:].sum() > 0


def test_signals_that_turn_out_to_be_continuous_in_mid_episode():
    """Losses of the two-valued model are dropped; squared errors and means stay."""
    world = drifting(120, 7, K=2, switches=1)
    middle = {0: (0, 1), 40: (1, 2)}  # episode -> signal, step; utility 1 stays binary

    def change(m, signals):
        if m in middle:
            signals[middle[m]] = 0.37
        return signals

    found = compared(world, OPTIONS, noisy=True, change=change)
    assert found.slow.switched == 2
    assert found.slow.binary == [False, False, True]


def test_exploration_that_costs_too_much():
    """Bonuses shrink to their least share, and come back with what is allowed later."""
    world = drifting(150, 9, states=4, switches=1)
    found = compared(world, OPTIONS | {"exploration": 0.3}, noisy=True, spent=100.0)
    assert 0.2 in found.boldness
    assert any(0.2 < share < 1.0 for share in found.boldness)
    assert found.boldness[-1] == 1.0


@pytest.mark.parametrize("caution", [0.0, 1.0])
def test_thresholds_that_no_policy_reaches(caution):
    """Optimism grows up to its limit, and falls again where thresholds can be reached."""
    world = drifting(90, 8, switches=1)
    b = world.thresholds.copy()
    b[20:60] = world.H  # only utility 1 everywhere would do
    world = sd.DriftingCMDP(world.scenarios, np.eye(3)[np.zeros(90, int)], thresholds=b)
    found = compared(world, OPTIONS | {"caution": caution, "replan_every": 1})
    assert (~found.feasible).any()
    assert found.feasible.any()


def test_rare_pairs_are_doubted_as_much_as_the_faster_filter_doubts_them():
    """A pair that is visited every 100 episodes, while another one changes by little."""
    spec = sd.ProblemSpec(H=2, S=2, A=2, initial=0)
    learner = sd.learners.make("adaptive-planner", spec, **(OPTIONS | {"replan_every": 500}))
    slow = twin_of(spec, OPTIONS)
    rng, signals = np.random.default_rng(3), np.array([[1.0, 1.0], [0.0, 1.0]])
    for m in range(1600):
        learner.begin_episode([0.5])
        rare = m % 100 == 50
        after = (m // 100) % 2 if rare else int(rng.random() < (0.5 if m < 1200 else 0.9))
        episode = sd.Trajectory([0, after], [int(rare), 0], signals[0], signals[1:])
        before = slow.alarms[0].sum()
        learn_both(learner, slow, episode, signals)
        if m % 100 == 0 or slow.alarms[0].sum() > before:
            compare_knowledge(learner.algorithm.memory, slow)
            compare_events(learner.events(), slow)
    assert slow.alarms[0].sum() > 0


@pytest.mark.slow
def test_limits_that_only_long_runs_reach():
    """Sure moves: α falls to its least value; the mean of all observations forgets old ones."""
    H, S = 10, 3
    spec = sd.ProblemSpec(H=H, S=S, A=2, initial=0)
    learner = sd.learners.make("adaptive-planner", spec, **(OPTIONS | {"replan_every": 2000}))
    slow, rng = twin_of(spec, OPTIONS), np.random.default_rng(4)
    for _ in range(1050):
        learner.begin_episode([1.0])
        signals = (rng.random((2, H)) < 0.3).astype(float)
        episode = sd.Trajectory(np.arange(H) % S, np.zeros(H, int), signals[0], signals[1:])
        learn_both(learner, slow, episode, signals)
    compare_knowledge(learner.algorithm.memory, slow)
    assert slow.seen > 10_000
    assert slow.experts[0].v.min() == pytest.approx(0.05 / S)
