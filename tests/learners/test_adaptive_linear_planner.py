"""The planner on filtered coefficients: twin, answers known on paper, alarms, files, refusals."""

import numpy as np
import pytest

import safedrift as sd
from builders import columns_of, dense_features, linear_world, recorded_play, small_world
from naive_adaptive_linear import Twin
from safedrift.experiments.playing import play_chunks
from safedrift.kernels.linear.filters import inverse_of
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
    known = coordinates(f, world.S, world.A)
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
@pytest.mark.parametrize("kind", WORLDS)
def test_agrees_with_twin(kind, noisy):
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
