"""The planner on filtered coefficients: twin, answers known on paper, alarms, files, refusals."""

import numpy as np
import pytest

import safedrift as sd
from builders import dense_features, linear_world, recorded_play, small_world
from naive_adaptive_linear import Twin
from safedrift.kernels.linear.filters import inverse_of
from safedrift.learners import adaptive_linear_planner
from safedrift.learners.linear_coordinates import coordinates
from safedrift.planning import plan

NAME = "adaptive-linear-planner"
# Alarms within few episodes, and bonuses that are seen.
LIVELY = {"false_alarms": 0.5, "replan_every": 3, "reward_bonus": 0.7, "utility_bonus": 0.3}


def made(world, **options):
    return sd.learners.make(NAME, world, **options)


# ---------------------------------------------------------------- twin


def twin_for(world, algorithm):
    psi, phi = dense_features(world)
    f = world.features
    rows = np.repeat(np.arange(f.offsets.size - 1), np.diff(f.offsets))
    support = np.zeros((f.offsets.size - 1, world.S), bool)
    support[rows, f.states.astype(int)] = True
    support = np.broadcast_to(
        support.reshape(-1, world.S, world.A, world.S), (world.H, world.S, world.A, world.S)
    )
    known = coordinates(f, world.H, world.S, world.A)
    # The learner's basis of the unknown directions, read off its features: x = psi @ basis.
    basis = np.linalg.lstsq(f.psi, known.basis.x, rcond=None)[0]
    settings = algorithm.numbers._asdict() | {
        "signal_prior": algorithm.numbers.prior[1] / algorithm.numbers.unit[1]
    }
    return Twin(psi, support, phi, world.K, basis, settings)


def spectrum_free(world):
    """Whether psi has full rank, so that a basis can be read off it."""
    return np.linalg.matrix_rank(world.features.psi) == world.d1


WORLDS = {
    "scenarios": lambda M: linear_world(M=M, drift="abrupt"),
    "one-hot rewards": lambda M: linear_world("scenarios", "one-hot", M=M, S=3, A=2),
    "two constraints": lambda M: linear_world(M=M, K=2, S=3, drift="linear"),
    "tables": lambda M: linear_world("tabular", "one-hot", S=2, A=2, M=M),
    "one step": lambda M: linear_world(M=M, H=1),
    "one model": lambda M: sd.problems.make(
        "random", M, 2, states=3, gamma=0.3, scenarios=1, drift="stationary"
    ).as_linear_kernel(),
    "random first state": lambda M: small_world(M=M, S=3, start=[0.5, 0.2, 0.3]).as_linear_kernel(),
}


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(x, marks=pytest.mark.slow) if x == "two constraints" else x  # compiles anew
        for x in WORLDS
    ],
)
def test_agrees_with_twin(kind, noisy, monkeypatch):
    # A less vague prior: that of the learner makes 1e-16 of rounding 1e-10 in some directions.
    monkeypatch.setattr(adaptive_linear_planner, "SIGNAL_PRIOR", 100.0)
    world = WORLDS[kind](60)
    assert spectrum_free(world)
    learner = made(world, **LIVELY)
    algorithm = learner.algorithm
    twin = twin_for(world, algorithm)
    play, seen = recorded_play(world, 1, noisy)
    close = {"rtol": 1e-10, "atol": 1e-10}
    tried = []
    for m in range(world.M):
        memory, work = algorithm.memory, algorithm._work
        before = memory.plan._replace(**{
            name: getattr(memory.plan, name).copy() for name in ("mu", "values", "thresholds")
        })  # fmt: skip
        due = twin.due(world.thresholds[m], before.thresholds)
        policy = learner.begin_episode(world.thresholds[m])
        assert memory.clock.replanned[0] == due
        if due:
            P, means, bonused, attempts = planned(twin, before, world, m)
            tried.append(attempts)
            twin.plan_made()
            found = np.zeros((world.H, world.S, world.A, world.S))
            t = work.tables
            rows = np.repeat(np.arange(t.offsets.size - 1), np.diff(t.offsets))
            found.reshape(-1, world.S)[rows, t.states.astype(int)] = t.probabilities[0]
            np.testing.assert_allclose(found, P, **close, err_msg=f"P {m}")
            np.testing.assert_allclose(work.means, means, **close, err_msg=f"means {m}")
            np.testing.assert_allclose(work.bonused, bonused, **close, err_msg=f"bonuses {m}")
            assert_optimal(policy, P, bonused, world, m)
            assert_values(memory.plan, policy, P, means, world)
        play(m, policy)
        states, actions, rewards, utilities = seen[m]
        learner.end_episode(sd.Trajectory(states, actions, rewards, utilities))
        twin.learn(states, actions, np.vstack((rewards, utilities)))
        assert_same_filters(memory, twin, close, m)
    if kind not in ("one model", "one step"):
        assert sum(q.alarms.sum() for q in (twin.moves, *twin.signals)) > 3
        assert max(tried) > 1
    assert memory.clock.next_plan[0] == twin.next_plan


def planned(twin, before, world, m):
    """What the twin plans on, and how many attempts it took to find a safe policy."""
    for attempt in range(3):
        P, means, bonused = twin.model(before.mu, before.values, attempt)
        if optimum(P, bonused, world, m).status == "optimal":
            break
    return P, means, bonused, attempt + 1


def optimum(P, signals, world, m):
    P = P.copy()
    P[-1] = 1 / world.S  # never used
    return plan(P, signals[0], signals[1:], world.thresholds[m], world.initial)


def assert_same_filters(memory, twin, close, m):
    experts = [(twin.moves, memory.move_experts, memory.moves, 0)]
    for c, quantity in enumerate(twin.signals):
        of = [type(x)(*(part[c] for part in x)) for x in (memory.signal_experts, memory.signals)]
        experts.append((quantity, *of, 1 + c))
    for quantity, weighed, filters, row in experts:
        for name in ("weight", "v", "C"):
            wanted = getattr(quantity.experts, name)
            np.testing.assert_allclose(getattr(weighed, name), wanted, **close, err_msg=f"{m}")
        for k, own in enumerate(quantity.filters):
            for slot, one in enumerate(own):
                np.testing.assert_allclose(filters.mean[k, slot], one.mean, **close, err_msg=f"{m}")
                width = filters.cov.shape[-1]
                cov = one.cov if width == one.mean.size else np.diag(one.cov)[:, None]
                np.testing.assert_allclose(filters.cov[k, slot], cov, **close, err_msg=f"{m}")
        np.testing.assert_array_equal(
            memory.clock.alarms[row, : len(own)], quantity.alarms[: len(own)]
        )
    np.testing.assert_array_equal(memory.clock.changed, twin.changed)


def assert_optimal(policy, P, signals, world, m):
    """The policy is as good as the constrained optimum of the twin's model, and as safe."""
    wanted = optimum(P, signals, world, m)
    values = evaluated(policy, P, signals, world.initial)
    np.testing.assert_allclose(values[1:], wanted.utilities, atol=1e-8)
    if wanted.status == "optimal":
        np.testing.assert_allclose(values[0], wanted.value, atol=1e-8)


def evaluated(policy, P, signals, initial):
    V = np.zeros((len(signals), P.shape[1]))
    for h in reversed(range(len(P))):
        Q = signals[:, h] + np.einsum("say,cy->csa", P[h], V)
        V = (policy[h] * Q).sum(axis=-1)
    return V @ initial


def assert_values(found, policy, P, means, world):
    np.testing.assert_allclose(
        found.start, evaluated(policy, P, means, world.initial), rtol=1e-10, atol=1e-10
    )


# ---------------------------------------------------------------- parts


def test_inverse():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5):
        root = rng.normal(size=(n, n))
        A = root @ root.T + 0.1 * np.eye(n)
        found = A.copy()
        inverse_of(found)
        np.testing.assert_allclose(found, np.linalg.inv(A), rtol=1e-10)
        np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("kind", ["scenarios", "tables"])
def test_coordinates_leave_out_what_is_known(kind):
    """Mixed models: equal shares, N - 1 unknowns. Tables: uniform rows, S - 1 unknowns each."""
    world = WORLDS[kind](9)
    known = coordinates(world.features, world.H, world.S, world.A)
    rows = np.repeat(np.arange(known.basis.offsets.size - 1), np.diff(known.basis.offsets))
    sums = np.zeros((rows[-1] + 1, known.basis.x.shape[1]))
    np.add.at(sums, rows, known.basis.x)
    np.testing.assert_allclose(sums, 0, atol=1e-12)  # no unknown changes a sum
    np.testing.assert_allclose(np.bincount(rows, known.basis.base), 1)
    if kind == "tables":
        np.testing.assert_allclose(known.basis.base, 1 / world.S)
        assert known.basis.x.shape[1] == world.S * world.A * (world.S - 1)
        np.testing.assert_allclose(known.move_unit, 1 / world.S**2)
    else:
        np.testing.assert_allclose(known.basis.base, world.features.psi.mean(axis=1))
        assert known.basis.x.shape[1] == world.d1 - 1
        np.testing.assert_allclose(known.move_unit, 1 / world.d1**2)


# ---------------------------------------------------------------- answers known on paper


def two_action_world(M):
    """One state, H = 2, r = (1, 0), g = (0, 1), b = 1: mu* = 1, both actions equally often."""
    signals = np.zeros((2, 2, 1, 2))
    signals[0, ..., 0] = signals[1, ..., 1] = 1.0
    cmdp = sd.TabularCMDP(np.ones((2, 1, 2, 1)), signals[0], signals[1:], [1.0], [1.0])
    return sd.DriftingCMDP([cmdp], np.ones((M, 1))).as_linear_kernel()


@pytest.mark.parametrize("noisy", [False, True])
def test_probe_with_a_known_optimum(noisy):
    world = two_action_world(300)
    run = sd.simulate(world, made(world), noisy=noisy)
    np.testing.assert_allclose(run.trace["mu"][-1], 1.0, atol=0.02)
    np.testing.assert_allclose(run.trace["estimated_reward"][-1], 1.0, atol=0.02)
    np.testing.assert_allclose(run.trace["estimated_utility"][-1], 1.0, atol=0.02)
    np.testing.assert_allclose(run.outcome.reward[-1], 1.0, atol=0.02)
    np.testing.assert_allclose(run.outcome.utility[-1], 1.0, atol=0.02)


def test_filters_find_the_weights_of_a_mixture():
    shares = np.array([0.2, 0.5, 0.3])
    table = sd.problems.make(
        "random", 4000, 3, states=4, actions=3, horizon=3, gamma=0.3,
        weights=np.tile(shares, (4000, 1)),
    )  # fmt: skip
    world = table.as_linear_kernel()
    run = sd.simulate(world, made(world), noisy=True, measure_every=100)
    memory = run.learner.algorithm.memory
    known = coordinates(world.features, world.H, world.S, world.A)
    x = np.linalg.lstsq(world.features.psi, known.basis.x, rcond=None)[0]
    np.testing.assert_allclose(1 / 3 + x @ memory.moves.mean[0, -1], shares, atol=0.06)
    assert memory.move_experts.weight[:, 1].sum() > 0.7  # all steps have the same shares
    uncertain = np.sqrt(np.diag(x @ memory.moves.cov[0, -1] @ x.T))
    assert 0.005 < uncertain.max() < 0.06
    assert run.regret[-1] < 0.02


def test_alarm_and_recovery_after_a_change():
    """Rewards of two actions are swapped: noticed in the first episode that shows it."""
    cmdps = []
    for good in (0, 1):
        rewards = np.zeros((2, 1, 2))
        rewards[..., good] = 1.0
        cmdps.append(
            sd.TabularCMDP(np.ones((2, 1, 2, 1)), rewards, np.ones((1, 2, 1, 2)), [0.1], [1.0])
        )
    M = 400
    world = sd.DriftingCMDP(cmdps, np.repeat([0, 1], M // 2)).as_linear_kernel(
        "scenarios", "one-hot"
    )
    run = sd.simulate(world, made(world))
    when = np.flatnonzero(run.trace["changed"][:, 1])
    assert when.size
    assert 200 <= when[0] < 205
    assert run.trace["replanned"][when[0] + 1]
    np.testing.assert_allclose(run.outcome.reward[100:200], 2.0)
    np.testing.assert_allclose(run.outcome.reward[220:], 2.0)
    assert not run.trace["changed"][:, [0, 2]].any()


@pytest.mark.parametrize("noisy", [False, True])
def test_false_alarms_stay_below_their_bound(noisy):
    rate, M, worlds = 0.01, 1000, 4
    alarms = 0
    for seed in range(worlds):
        table = sd.problems.make(
            "random", M, 10**6 + 3000 + seed, states=5, gamma=0.4, drift="stationary"
        )
        world = table.as_linear_kernel()
        run = sd.simulate(world, made(world, false_alarms=rate), noisy=noisy, measure_every=M)
        alarms += run.learner.algorithm.memory.clock.alarms.sum()
    assert alarms <= rate * M * worlds * 3  # three quantities


# ---------------------------------------------------------------- for ever, files, refusals


def without_end(world):
    return sd.ProblemSpec(
        world.H, world.S, world.A, world.K, world.initial, features=world.features
    )


def play(learner, world, episodes):
    """Episodes of a world in a loop of one's own."""
    _, seen = played = recorded_play(world, 5, True)
    for m in episodes:
        played[0](m, np.asarray(learner.begin_episode(world.thresholds[m])))
        learner.end_episode(sd.Trajectory(*seen[-1]))


def test_needs_no_number_of_episodes_and_keeps_its_memory():
    world = linear_world(M=120)
    one, other = made(world), made(without_end(world))
    assert other.sizes.M is None
    for learner in (one, other):
        play(learner, world, range(60))
    sizes = {key: values.nbytes for key, values in other.state().items()}
    for learner in (one, other):
        play(learner, world, range(60, 120))
    found = other.state()
    assert {key: values.nbytes for key, values in found.items()} == sizes
    for key, values in one.state().items():
        np.testing.assert_array_equal(values, found[key], err_msg=key)


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_saved_and_loaded_in_the_middle(K, tmp_path):
    world = linear_world(M=100, K=K)
    learner = made(world, **LIVELY)
    play(learner, world, range(50))
    again = made(world, **LIVELY).load(learner.save(tmp_path / "learner"))
    for each in (learner, again):
        play(each, world, range(50, 100))
    found = again.state()
    for key, values in learner.state().items():
        np.testing.assert_array_equal(values, found[key], err_msg=key)


def test_first_states_are_counted_where_they_are_not_known():
    world = linear_world(M=40)
    spec = sd.ProblemSpec(world.H, world.S, world.A, world.K, features=world.features)
    learner = made(spec)
    play(learner, world, range(40))
    start = learner.algorithm._work.tables.initial
    np.testing.assert_allclose(start, world.initial, atol=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match=r"world must be one with features .* got a DriftingCMDP"):
        made(small_world(M=10))
    with pytest.raises(ValueError, match="finitely many states"):
        made(sd.problems.make("thermostat", 5))
    world = linear_world(M=10)
    for option, value in (
        ("replan_every", 0), ("false_alarms", 0.0), ("false_alarms", 2.0), ("reward_bonus", -1.0),
        ("utility_bonus", np.inf),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{option} must be"):
            made(world, **{option: value})
    other = sd.ProblemSpec(world.H, world.S + 1, world.A, 1, 0, features=world.features)
    with pytest.raises(ValueError, match="features must be those of a world with H = 3, S = 5"):
        made(other)
    psi = np.zeros_like(world.features.psi)
    empty = sd.ProblemSpec(
        world.H, world.S, world.A, 1, 0, features=world.features._replace(psi=psi)
    )
    with pytest.raises(ValueError, match=r"features\.psi must be such that rows of P can sum to 1"):
        made(empty)


def test_what_it_is_told_is_in_the_settings():
    settings = made(linear_world(M=10), reward_bonus=0.3).settings()
    assert settings["told"] == ["features"]
    assert settings["reward_bonus"] == 0.3
